# SPDX-License-Identifier: Apache-2.0
"""XLA's handlers, from libnarrows_xla: registered when JAX is imported, so that a program that another process saved finds its ops.

JAX keeps what is registered before its backends start, and a handler that is refused then ends JAX for the process. So the CPU's
handlers go to jaxlib itself, which refuses at once. A GPU's plugin is of the same XLA: its handlers are left with JAX once the
CPU's were taken. Nothing here starts a backend.
"""

import contextlib
import ctypes
import os
import threading

from narrows import _narrows

TARGETS: tuple[str, str] = ("narrows", "narrows_capturable")  # the second: what XLA may put into a graph
_GPUS = {"CUDA": "cuda", "ROCM": "rocm"}  # what XLA calls each platform, and the handlers' names do
_lock = threading.Lock()
_registered: list = []


def ffi():
    """jax.ffi, under the name that it has."""
    try:
        import jax.ffi as found
    except ImportError:  # before 0.5
        import jax.extend.ffi as found  # type: ignore[no-redef, import-not-found]
    return found


def library():
    """The file that has the handlers; narrows/xla.h declares them."""
    return os.path.join(os.path.dirname(_narrows.__file__), "lib", "libnarrows_xla.so")


def _handlers(platform):
    """{target: handler} of "cpu", "cuda" or "rocm"."""
    handlers = ctypes.CDLL(library())
    plain = getattr(handlers, f"nw_xla_{platform}")
    capturable = plain if platform == "cpu" else getattr(handlers, f"nw_xla_{platform}_capturable")
    return {target: ffi().pycapsule(f) for target, f in zip(TARGETS, (plain, capturable), strict=True)}


def _register_cpu_at_once():
    from jaxlib import xla_client

    for target, handler in _handlers("cpu").items():
        xla_client._xla.register_custom_call_target(target, handler, "Host", 1)  # pyright: ignore


def _register_cpu():
    for target, handler in _handlers("cpu").items():
        ffi().register_ffi_target(target, handler, platform="cpu")


def _register(register_cpu):
    with _lock:
        if not _registered:
            register_cpu()
            for platform, name in _GPUS.items():
                for target, handler in _handlers(name).items():
                    ffi().register_ffi_target(target, handler, platform=platform)
            _registered.append(True)


def register_early():
    """When JAX has been imported. What is refused here is refused again, with the reason, by the first call of an op."""
    with contextlib.suppress(Exception):  # of any kind: `import jax` must not fail for it
        _register(_register_cpu_at_once)


def register():
    """Before an op is called: raises what XLA or the loader says against the handlers."""
    if not _registered:
        import jax

        jax.devices()  # so that a refusal ends nothing but this call
        _register(_register_cpu)
