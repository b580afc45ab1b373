# SPDX-License-Identifier: Apache-2.0
"""Numbers where an op takes arrays, and outputs for arrays of frameworks that the extension does not know."""

import functools
import sys
from typing import Any

from narrows import _errors, _narrows, _programs


def is_number(x):
    """Whether x is a scalar operand and no array."""
    if isinstance(x, (bool, int, float)):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, numpy.generic)


def no_array(op, i, x):
    """The TypeError for input i, in the words that the extension has for it."""
    reason = f"{type(x).__name__} is no array"
    try:
        _narrows.from_dlpack(x)
    except TypeError as error:
        reason = str(error).removeprefix("from_dlpack: ")
    name = op.inputs[i].rstrip("?")
    arguments = {} if _programs.is_program(op.op) else _errors.OPERANDS.get(op.__name__, {})
    return TypeError(f"{op.__name__}: {arguments.get(name, name)}: {reason}")


EXPECTED = "float16, bfloat16, float32, float64, an integer of 8 to 64 bits, bool"


@functools.cache
def dtypes():
    """The names of the dtypes that arrays may have: those to which astype casts."""
    from narrows import _functions

    return _functions.dtypes()


def as_array(op, i, number, like: Any) -> Any:
    """A 0-d array of the number that is given as input i, of the dtype, framework and device of `like`. TypeError, ValueError: it
    does not fit."""
    if not hasattr(like, "__dlpack__") and hasattr(like, "__cuda_array_interface__"):
        dtype, _ = op._checked((like,))[0]
    elif not hasattr(like, "dtype"):  # a producer that says it in its capsule alone
        from narrows import _device

        like = _device.from_dlpack(like)
        dtype = like.dtype
    else:
        dtype = str(like.dtype).removeprefix("torch.")
    number = op._number(i, number, dtype)
    if (torch := sys.modules.get("torch")) is not None and isinstance(like, torch.Tensor):
        return torch.full((), number, dtype=like.dtype, device=like.device)
    if type(like).__module__.startswith("cupy"):
        import cupy

        return cupy.asarray(number, dtype=like.dtype)
    import numpy

    if type(like).__module__ == "numpy":
        return numpy.asarray(number, dtype=like.dtype)
    from narrows import _device

    device = like.__dlpack_device__() if hasattr(like, "__dlpack_device__") else (2, 0)  # the interface is for CUDA's only device
    return _device._sent(numpy.asarray(number, dtype=dtype), _device.Device(*device))


def _first_array(op, inputs):
    like = next((x for x in inputs if x is not None and not is_number(x)), None)
    if like is None:
        raise TypeError(f"{op.__name__}: {_errors.NO_ARRAY}")
    return like


def lift(op, inputs):
    """The inputs, with arrays for the numbers that stand where the op needs an array."""
    like = _first_array(op, inputs)
    needed = [not name.endswith("?") for name in op.inputs]
    return [as_array(op, i, x, like) if needed[i] and is_number(x) else x for i, x in enumerate(inputs)]


def _call(op, inputs, out, device):
    """A call with a number in the place of a required input."""
    result = op(*lift(op, inputs), out=out)
    if out is not None:
        return result
    results = [
        like(_first_array(op, inputs), y) if type(y) is _narrows.Tensor else y
        for y in (result if isinstance(result, tuple) else (result,))
    ]
    return tuple(results) if isinstance(result, tuple) else results[0]


def like(array, tensor):
    """The narrows.Tensor as an array of array's framework, where that can be known; else as it is."""
    if type(array).__module__.startswith("cupy"):
        from narrows import _cupy

        return _cupy.import_tensor(tensor)
    if type(array).__module__ == "numpy":  # before NumPy 2 an array did not know its namespace
        return tensor.numpy()
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__().from_dlpack(tensor)
    return tensor
