"""Numbers where an op takes arrays, and outputs for arrays of frameworks that the extension does not know."""

import functools
import sys
from typing import Any

from narrows import _ops


def is_number(x):
    """Whether x is a scalar operand and no array."""
    if isinstance(x, (bool, int, float)):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, numpy.generic)


EXPECTED = "float16, bfloat16, float32, float64, an integer of 8 to 64 bits, bool"


@functools.cache
def dtypes():
    """The names of the dtypes that arrays may have."""
    return frozenset(next(values for name, _, _, values, _ in _ops.op("elementwise").fields if name == "out_dtype")) - {""}


def as_array(op, i, number, like: Any) -> Any:
    """A 0-d array of the number that is given as input i, of the dtype, framework and device of `like`. TypeError, ValueError: it
    does not fit."""
    if not hasattr(like, "dtype"):  # a producer that says it in its capsule alone
        from narrows import _device

        like = _device.from_dlpack(like)
    dtype = str(like.dtype).removeprefix("torch.")
    number = op._number(i, number, dtype)
    if type(like).__module__.startswith("torch"):
        import torch

        return torch.full((), number, dtype=like.dtype, device=like.device)
    if type(like).__module__.startswith("cupy"):
        import cupy

        return cupy.asarray(number, dtype=like.dtype)
    import numpy

    if type(like).__module__ == "numpy":
        return numpy.asarray(number, dtype=like.dtype)
    from narrows import _device

    return _device._sent(numpy.asarray(number, dtype=dtype), _device.Device(*like.__dlpack_device__()))


def lift(op, inputs):
    """The inputs, with arrays for the numbers that stand where the op needs an array."""
    like = next((x for x in inputs if x is not None and not is_number(x)), None)
    if like is None:
        raise TypeError(f"{op.op}: no input is an array")
    needed = [not name.endswith("?") for name in op.inputs]
    return [as_array(op, i, x, like) if needed[i] and is_number(x) else x for i, x in enumerate(inputs)]


def _call(op, inputs, out, device):
    """A call with a number in the place of a required input."""
    return op(*lift(op, inputs), out=out)


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
