# SPDX-License-Identifier: Apache-2.0
"""Narrows: compute ops for arrays of any framework, on the device where they live, on its current stream, without a copy.

    >>> import numpy, narrows
    >>> x = numpy.arange(15, dtype="float32")
    >>> w = numpy.array([0, 1, 2, 3], dtype="float32")
    >>> narrows.conv1d(x, w, padding=(0, 3))
    array([14., 20., 26., 32., 38., 44., 50., 56., 62., 68., 74., 80., 41.,
           14.,  0.], dtype=float32)
    >>> narrows.add(x[:3], 2)
    array([2., 3., 4.], dtype=float32)

Arrays are torch's, JAX's, CuPy's, NumPy's, :class:`narrows.Tensor`, or of any producer of DLPack. Outputs are of the first input's
framework. Importing this imports no framework.

- element-wise functions by the array API's names: ``narrows.add``, ``narrows.exp``, ...; ``conv1d``; ``lltm``
- every op by its own name: ``narrows.op("conv1d", stride=2)``, ``narrows.ops.vendor.name``, ``narrows.ops["vendor.name/1"]``
- ``narrows.torch``: ``torch.ops.narrows.*``, ``Conv1d``, ``LLTM``; ``narrows.jax``: the same under ``jit``, ``grad``, ``vmap``
- ``narrows.program``: tensor programs in TVMScript's spelling, their schedules, and what a program becomes: an op like the others
- ``narrows.set_num_threads`` and ``get_num_threads``: how many threads a call on the CPU may use
- ``narrows.testing``: ``check_op`` compares an op of one's own with a reference, in every framework; ``conform`` judges its plugin
- ``narrows.from_tvm_ffi`` and ``to_tvm_ffi``: functions of tvm-ffi on any arrays, and ops as such functions
- ``narrows.load`` loads a plugin, ``narrows.build`` and ``narrows.load_inline`` compile one; ``narrows.info()`` says what is there

Errors: ValueError for what is wrong with a call, TypeError for objects that are no arrays, NotImplementedError for what is legal but
not here, MemoryError, and RuntimeError for devices, each with the library's words.
"""

import importlib

try:
    from narrows import _narrows
except ImportError as error:  # as where another libnarrows, which this process has, lacks a symbol
    from narrows import _library

    raise _library.explained(error) from None
from narrows import _errors, _functions, _when
from narrows._device import Device, Stream, devices, empty, from_dlpack
from narrows._narrows import Op, Tensor, get_num_threads, set_num_threads
from narrows._ops import cmake_dir, get_include, info, load, op, ops

__version__ = _narrows.abi()[0]
_LAZY = {"build": "_build", "load_inline": "_build", "bench": "_bench", "from_tvm_ffi": "_tvm_ffi", "to_tvm_ffi": "_tvm_ffi"}
_MODULES = ("torch", "jax", "program", "testing")
__all__ = [
    "Device",
    "Op",
    "Stream",
    "Tensor",
    "cmake_dir",
    "devices",
    "empty",
    "from_dlpack",
    "get_include",
    "get_num_threads",
    "info",
    "load",
    "op",
    "ops",
    "set_num_threads",
    *_LAZY,
    *_functions.NAMES,
    *_functions.OPS,
]


def __getattr__(name):
    """Functions, and the modules that not everybody needs, when they are first asked for."""
    if name in _functions.NAMES or name in _functions.WRITTEN:
        value = _functions.make(name)
    elif name in _LAZY:
        value = _errors.with_near_names(getattr(importlib.import_module(f"narrows.{_LAZY[name]}"), name))
    elif name in _MODULES:
        return importlib.import_module(f"narrows.{name}")
    else:
        raise _errors.attribute("narrows", name, __dir__(), _functions.known_as())
    return globals().setdefault(name, value)


def __dir__():
    return sorted({*__all__, *_MODULES, "__doc__", "__version__"})


_when.imported("torch", lambda: importlib.import_module("narrows.torch"))
_when.imported("jax", lambda: importlib.import_module("narrows._xla").register_early())
