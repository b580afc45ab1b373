# SPDX-License-Identifier: Apache-2.0
"""Functions of tvm-ffi on arrays of any framework, and ops as functions of tvm-ffi: over the same memory, on the same stream."""

import importlib
import sys

from narrows import _narrows, _ops
from narrows._device import empty, from_dlpack

_CPU = 1  # DLPack's number


def from_tvm_ffi(function, outputs=None):
    """A function of tvm-ffi as one that takes arrays of any framework and numbers, without a copy.

    ``function``: a ``tvm_ffi.Function``. ``outputs``: for one that writes into its last arguments, as kernels do: a function that is
    given the inputs and returns ``(shape, dtype)`` of the output, or a list of such tuples. They are allocated, passed behind the inputs and
    returned. Unless given, what the function itself returns is returned. Arrays that are returned are of the first input's framework.

    On a GPU it runs on the current stream of the first array's framework, or on ``stream=`` of the call; JAX's arrays there are
    refused. There is no gradient: a torch tensor that requires one is refused while torch records. Errors are those of the function.
    ImportError: apache-tvm-ffi is not installed; TypeError: no function of tvm-ffi.

        >>> import numpy, narrows, tvm_ffi
        >>> def add_one(x, y):
        ...     numpy.add(numpy.from_dlpack(x), 1, out=numpy.from_dlpack(y))
        >>> call = narrows.from_tvm_ffi(tvm_ffi.convert(add_one), outputs=lambda x: (x.shape, x.dtype))
        >>> call(numpy.zeros(3, "float32"))
        array([1., 1., 1.], dtype=float32)
    """
    tvm_ffi = _module("from_tvm_ffi")
    if not isinstance(function, tvm_ffi.Function):
        raise TypeError(f"from_tvm_ffi: function = {function!r}; expected a tvm_ffi.Function")
    if outputs is not None and not callable(outputs):
        raise TypeError(f"from_tvm_ffi: outputs = {outputs!r}; expected a function of the inputs")

    def call(*inputs, stream=None):
        arrays = [x for x in inputs if _is_array(x)]
        if not arrays:
            raise TypeError("from_tvm_ffi: no input is an array; expected one at least")
        for x in arrays:
            _refuse_recorded(x)
        tensors = [from_dlpack(x) if _is_array(x) else x for x in inputs]
        first = next(t for t in tensors if isinstance(t, _narrows.Tensor))
        handle = _stream_of(arrays[0], first, stream)
        made = [] if outputs is None else _made(outputs(*inputs), first.device, handle, stream)
        passed = [_exported(t, tvm_ffi) for t in [*tensors, *made]]
        with tvm_ffi.use_raw_stream(tvm_ffi.device(first.device.type, first.device.id), handle):
            result = function(*passed)
        if outputs is not None:
            result = made[0] if len(made) == 1 else tuple(made)
        return _given_back(result, arrays[0], tvm_ffi)

    return call


def to_tvm_ffi(op, **params):
    """An op as a ``tvm_ffi.Function``, which other languages call too once ``tvm_ffi.register_global_func`` has named it.

    ``op``: an op, or its name; ``params``: as :func:`narrows.op` binds them. The function takes the inputs in their order, None for
    one that is absent, and returns the outputs. With the outputs behind all inputs it writes into them and returns None. No tensor is
    copied. On a GPU it runs on tvm-ffi's current stream (``tvm_ffi.use_raw_stream``). There is no gradient.
    ImportError: apache-tvm-ffi is not installed; other errors are those of :func:`narrows.op`, also of a call.

        >>> import numpy, narrows, tvm_ffi
        >>> double = narrows.to_tvm_ffi("elementwise", function="mul")
        >>> numpy.from_dlpack(double(numpy.ones(3, "float32"), 2))
        array([2., 2., 2.], dtype=float32)
    """
    tvm_ffi = _module("to_tvm_ffi")
    tvm_ffi.register_error("NotImplementedError", NotImplementedError)  # which it does not know by itself
    bound = _ops.op(op, **params) if isinstance(op, str) else op.bind(**params) if isinstance(op, _narrows.Op) else None
    if bound is None:
        raise TypeError(f"to_tvm_ffi: op = {op!r}; expected an op or its name")

    def run(*arguments):
        count = len(bound.inputs)
        if count < len(arguments) != count + len(bound.outputs):
            raise ValueError(
                f"{bound.op}: {len(arguments)} arguments; expected at most {count} inputs, or {count} and {len(bound.outputs)} outputs"
            )
        tensors = [from_dlpack(x) if isinstance(x, tvm_ffi.Tensor) else x for x in arguments]
        first = next((x for x in arguments if isinstance(x, tvm_ffi.Tensor)), None)
        how = {}
        if first is not None and first.__dlpack_device__()[0] != _CPU:
            how["stream"] = tvm_ffi.get_raw_stream(first.device)
        if len(arguments) > count:
            outs = tensors[count:]
            bound(*tensors[:count], out=outs[0] if len(outs) == 1 else outs, **how)
            return None
        result = bound(*tensors, **how)
        return tuple(_exported(t, tvm_ffi) for t in result) if isinstance(result, tuple) else _exported(result, tvm_ffi)

    return tvm_ffi.convert(run)


def _module(who):
    try:
        return importlib.import_module("tvm_ffi")
    except ImportError as error:
        raise ImportError(f"narrows.{who}: tvm_ffi is missing; pip install apache-tvm-ffi", name="tvm_ffi") from error


def _exported(x, tvm_ffi):
    """A narrows.Tensor as one of tvm-ffi, over the same memory, which is used on the stream that it is ordered on; anything else as it is.
    tvm-ffi takes DLPack 1, which read-only memory needs, and does not ask for it."""
    if not isinstance(x, _narrows.Tensor):
        return x
    stream = None if x.device.type == _CPU else -1  # DLPack's word for it
    return tvm_ffi.from_dlpack(x.__dlpack__(max_version=(1, 0), stream=stream))


def _is_array(x):
    return hasattr(x, "__dlpack__")


def _framework(x):
    return type(x).__module__.partition(".")[0]


def _refuse_recorded(x):
    if getattr(x, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        raise ValueError("from_tvm_ffi: an input requires a gradient, and a function of tvm-ffi has none; expected x.detach()")


def _stream_of(array, tensor, stream):
    """The native handle of the stream that the call is on."""
    if stream is not None:
        return getattr(stream, "handle", stream)
    if tensor.device.type == _CPU:
        return 0
    if isinstance(array, _narrows.Tensor):
        return array.stream
    framework = _framework(array)
    if framework == "torch":
        return sys.modules["torch"].cuda.current_stream(array.device).cuda_stream
    if framework == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream().ptr
    raise NotImplementedError(
        f"from_tvm_ffi: the stream of an array of {framework} on {tensor.device} is not known; expected stream=, or one of torch or CuPy"
    )


def _made(specs, device, handle, keeper):
    """The outputs, as narrows.Tensor. TypeError: they are no shapes and dtypes."""
    try:
        pairs = [(tuple(shape), dtype) for shape, dtype in (specs if isinstance(specs, list) else [specs])]
    except (TypeError, ValueError):
        raise TypeError(f"from_tvm_ffi: outputs gives {specs!r}; expected (shape, dtype), or a list of them") from None
    return [empty(shape, dtype, device, handle if keeper is None else keeper) for shape, dtype in pairs]


def _given_back(result, like, tvm_ffi):
    """What is no array as it is; arrays in the framework of `like`, over the same memory."""
    if isinstance(result, (tuple, list, tvm_ffi.Array)):
        return tuple(_given_back(r, like, tvm_ffi) for r in result)
    if not isinstance(result, (_narrows.Tensor, tvm_ffi.Tensor)):
        return result
    tensor, framework = from_dlpack(result), _framework(like)
    if framework == "numpy":
        return tensor.numpy()
    if framework in ("jax", "jaxlib"):
        return importlib.import_module("jax.numpy").from_dlpack(tensor)
    return sys.modules[framework].from_dlpack(tensor) if framework in ("torch", "cupy") else tensor
