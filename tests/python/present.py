# SPDX-License-Identifier: Apache-2.0
"""Which devices are here. The tests of values run on each: the CPU always, an NVIDIA GPU where the cuda backend and the framework
can use one, and Vulkan's first device, by NumPy, where that backend is found (NARROWS_PLUGIN_PATH). And the compiler of CUDA."""

import importlib.util
import os
import pathlib
import pkgutil
import shutil

import narrows

DEVICES = [str(d) for d in narrows.devices() if str(d) in ("cpu", "cuda:0", "vulkan:0")]
GPU = "cuda:0" in DEVICES


def nvcc():
    """The path of the environment's, the machine's, or the one that ./run fetches; None: there is none."""
    fetched = pathlib.Path(__file__).parents[2] / ".deps" / "cuda" / "nvidia" / "cu13" / "bin" / "nvcc"
    candidates = [os.environ.get("NVCC"), os.environ.get("CUDACXX"), "nvcc", "/usr/local/cuda/bin/nvcc", str(fetched)]
    return next((path for n in candidates if n and (path := shutil.which(n))), None)


def of_torch(torch):
    """Names of torch's devices."""
    return ["cpu", "cuda"] if GPU and torch.cuda.is_available() else ["cpu"]


def of_jax():
    """Names of JAX's platforms; the first is the default. To be asked before JAX is imported."""
    plugins = importlib.util.find_spec("jax_plugins")
    found = pkgutil.iter_modules(plugins.submodule_search_locations) if plugins is not None else ()
    return ["cpu", "cuda"] if GPU and any(m.name.startswith("xla_cuda") for m in found) else ["cpu"]


def sent(x, device):
    """A NumPy array on that device: itself on the CPU, else a narrows.Tensor. What is no array stays as it is."""
    return narrows.from_dlpack(x, device) if device != "cpu" and hasattr(x, "dtype") and hasattr(x, "ctypes") else x


def brought(x):
    """The NumPy array of what was computed from `sent` ones."""
    return x.numpy() if isinstance(x, narrows.Tensor) else x
