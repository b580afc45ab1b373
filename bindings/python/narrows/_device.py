# SPDX-License-Identifier: Apache-2.0
"""Devices, streams, and tensors in memory of our own."""

import operator
import sys

from narrows import _narrows

_TYPES = {
    "cpu": 1,
    "cuda": 2,
    "cuda_host": 3,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "rocm": 10,
    "rocm_host": 11,
    "cuda_managed": 13,
}
_NAMES = {number: name for name, number in _TYPES.items()}


def _nearest(name):
    """Of a device's name, which others may know under the name of its maker's toolkit."""
    from narrows import _errors

    toolkits = {"gpu": "cuda", "hip": "rocm", "amd": "rocm", "nvidia": "cuda", "mps": "metal"}
    return _errors.near(name, [*_TYPES], toolkits)


def _integer(what, value, expected):
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} = {value!r}, a {type(value).__name__}; expected {expected}") from None


class Device:
    """A device: ``narrows.Device("cuda:1")``, ``narrows.Device("cuda", 1)``, or DLPack's numbers ``narrows.Device(2, 1)``.

    ``type`` and ``id`` are those numbers. Whether it is there is not asked before it is used. ValueError: an unknown name,
    or a number that no device has.

        >>> import narrows
        >>> narrows.Device("cuda:1") == narrows.Device(2, 1)
        True
        >>> sorted(narrows.Device("cpu").info)
        ['arch', 'name', 'total_memory', 'uuid']
    """

    __slots__ = ("id", "type")
    id: int
    type: int

    def __init__(self, type, id=None):
        if isinstance(type, Device):
            type, id = type.type, type.id if id is None else id
        if isinstance(type, str):
            name, colon, number = type.partition(":")
            if name not in _TYPES or (colon and not number.isdigit()):
                raise ValueError(
                    f"device '{type}'; expected one of {', '.join(_TYPES)}, and ':' with a number where there are several"
                    + ("" if name in _TYPES else _nearest(name))
                )
            if colon and id is not None and id != int(number):
                raise ValueError(f"device '{type}' with id = {id!r}; expected one of both")
            type, id = _TYPES[name], int(number) if colon else id
        self.type, self.id = _integer("device", type, "a name or a number"), _integer("id", 0 if id is None else id, "a number")
        if not (0 <= self.type < 1 << 31 and 0 <= self.id < 1 << 31):
            raise ValueError(f"device ({self.type}, {self.id}); expected numbers from 0 to 2^31 - 1")

    @property
    def info(self):
        """name, arch, uuid (32 hexadecimal digits; zeros: not known), total_memory in bytes. RuntimeError: the device is not there."""
        return _narrows.device_info(self.type, self.id)

    def __str__(self):
        name = _NAMES.get(self.type, f"type{self.type}")
        return name if self.type == 1 and self.id == 0 else f"{name}:{self.id}"

    def __repr__(self):
        return f"narrows.Device('{self}')"

    def __eq__(self, other):
        return isinstance(other, Device) and (self.type, self.id) == (other.type, other.id)

    def __hash__(self):
        return hash((self.type, self.id))


def devices():
    """Every device of every usable backend.

    >>> import narrows
    >>> narrows.devices()[0]
    narrows.Device('cpu')
    """
    found = {}
    for b in _narrows.backends():
        if b["status"] == "ok":
            found.update(dict.fromkeys(Device(b["device_type"], i) for i in range(b["device_count"])))
    return sorted(found, key=lambda d: (d.type, d.id))


class Stream:
    """A stream of a device, made and destroyed here. ``handle`` is the native one; on the CPU it is 0 and all is done at once.

    What was made on it (``narrows.empty(…, stream=s)``, an op's ``stream=s``) keeps it alive. ValueError: an unknown device;
    RuntimeError: it is not there.

        >>> import numpy, narrows
        >>> stream = narrows.Stream("cpu")
        >>> y = narrows.add(numpy.ones(2, "float32"), 1, stream=stream)
        >>> stream.sync()
        >>> y
        array([2., 2.], dtype=float32)
    """

    __slots__ = ("__weakref__", "device", "handle")

    def __init__(self, device="cpu"):
        self.device = Device(device)
        self.handle = _narrows.stream("create", self.device.type, self.device.id) or 0

    def sync(self):
        """Waits until all that is on the stream is done."""
        _narrows.stream("sync", self.device.type, self.device.id, self.handle)

    def wait(self, other):
        """What is put on this stream from now on waits for what is on `other` (a Stream or a handle) now."""
        handle = _integer("wait: other", getattr(other, "handle", other), "a narrows.Stream or a handle")
        _narrows.stream("wait", self.device.type, self.device.id, self.handle, handle)

    def __del__(self):
        if getattr(self, "handle", 0):
            _narrows.stream("destroy", self.device.type, self.device.id, self.handle)

    def __reduce__(self):
        raise TypeError("a narrows.Stream is neither copied nor pickled: it is destroyed with the object that made it")

    def __repr__(self):
        return f"narrows.Stream('{self.device}', handle={self.handle:#x})"


def empty(shape, dtype="float32", device="cpu", stream=None):
    """A contiguous :class:`narrows.Tensor` whose elements are not set.

    ``shape``: extents of 0 or more, at most 16, or one number; ``dtype``: a name, or any framework's object; ``stream``: where
    it is used first, a :class:`narrows.Stream` or native handle, by default the device's own.
    Errors: ValueError for a shape, dtype or device that is none; RuntimeError: no backend has the device; MemoryError.

        >>> import narrows
        >>> narrows.empty((2, 3), "float16")
        narrows.Tensor(shape=(2, 3), dtype='float16', device='cpu')
    """
    device = Device(device)
    try:
        shape = (operator.index(shape),)
    except TypeError:
        try:
            shape = tuple(map(operator.index, shape))
        except TypeError:
            raise TypeError(f"shape = {shape!r}; expected integers, or one") from None
    return _narrows.empty(shape, dtype, device.type, device.id, getattr(stream, "handle", stream) or 0, stream)


def from_dlpack(x, device=None, copy=None):
    """A :class:`narrows.Tensor` over the memory of any array with ``__dlpack__``, or a copy on another device.

    ``copy``: True: always; None: only where the device asks for it; False: never (BufferError where it would be needed).
    TypeError: no ``__dlpack__``; BufferError: its producer does not export it; ValueError, NotImplementedError: what that exports is
    malformed, or of a dtype that is not known. Whether its device is there is not asked before it is used.

        >>> import numpy, narrows
        >>> narrows.from_dlpack(numpy.float32([1, 2])).numpy()
        array([1., 2.], dtype=float32)
    """
    device = None if device is None else Device(device)
    numpy = sys.modules.get("numpy")
    own = () if numpy is None or not isinstance(x, numpy.ndarray) else (numpy.ndarray, numpy.memmap)
    if own and type(x) not in own and type(x).__dlpack__ is own[0].__dlpack__:
        raise TypeError(f"{type(x).__name__} is a subclass of numpy.ndarray, whose meaning would be lost; pass numpy.asarray(x)")
    if hasattr(x, "detach") and getattr(x, "requires_grad", False):
        x = x.detach()
    tensor = _exported(x)
    if device in (None, tensor.device) and not copy:
        return tensor
    if copy is False:
        raise BufferError(f"the array is on {tensor.device}, not on {device}; expected copy=None or True")
    return to(tensor, device or tensor.device)


def _exported(x):
    """The array as a narrows.Tensor over its memory; BufferError, NotImplementedError: its producer does not export its dtype, or no op has it."""
    from narrows import _operands

    if _is_numpy(x) and x.dtype.name == "bfloat16":  # NumPy cannot export it
        return _narrows.from_dlpack(x.view("uint16")).view("bfloat16")
    dtype = str(getattr(x, "dtype", "")).removeprefix("torch.")
    others = dtype and dtype not in _operands.dtypes()
    try:
        tensor = _from_dlpack_there(x)
    except (BufferError, RuntimeError) as error:  # JAX's own error is the latter, and so is what this library says
        if not others or isinstance(error, NotImplementedError):
            raise
        raise BufferError(f"the array has dtype {dtype}; expected {_operands.EXPECTED} ({error})") from None
    if others and type(x).__module__.partition(".")[0] == "torch":  # which exports integers of 4 bits as those of 8
        raise NotImplementedError(f"the array has dtype {dtype}; expected {_operands.EXPECTED}")
    return tensor


def _from_dlpack_there(x):
    """As _narrows.from_dlpack: torch exports tensors of its current GPU alone."""
    if type(x).__module__.partition(".")[0] == "torch" and getattr(x, "is_cuda", False):
        with sys.modules["torch"].cuda.device(x.device):
            return _narrows.from_dlpack(x)
    return _narrows.from_dlpack(x)


def contiguous(tensor):
    """The tensor, or a copy of one whose elements do not lie one after the other."""
    from narrows import _functions

    return tensor if tensor.contiguous else _functions.astype(tensor, tensor.dtype)


def to(tensor, device, stream=None):
    """A contiguous copy on `device`. Backs Tensor.to()."""
    tensor = contiguous(tensor)
    out = empty(tensor.shape, tensor.dtype, device, stream)
    out._copy_from(tensor)
    return out


def numpy(tensor):
    """A NumPy array over a CPU tensor's memory, else of a copy. Backs Tensor.numpy()."""
    import numpy

    if tensor.device.type != 1:
        tensor = to(tensor, "cpu")
    if tensor.dtype != "bfloat16":
        return numpy.asarray(tensor)
    try:
        import ml_dtypes
    except ImportError:
        raise NotImplementedError("NumPy has no bfloat16; install ml_dtypes for it") from None
    return numpy.asarray(tensor.view("uint16")).view(ml_dtypes.bfloat16)


def array(tensor, dtype=None, copy=None):
    """What numpy.asarray(tensor) is where there is no __array_interface__: of bfloat16. Backs Tensor.__array__()."""
    import numpy as np

    if tensor.device.type != 1:
        raise TypeError(f"the tensor is on {tensor.device}, not on the CPU; expected .numpy(), which copies it")
    values = numpy(tensor)
    return np.asarray(values, dtype) if copy is None else np.array(values, dtype=dtype, copy=copy)  # NumPy 1 knows no copy=None


def jax_array(tensor):
    """What jax.numpy.asarray(tensor) is: over the same memory, or a copy of what JAX does not import, which is read-only memory and
    elements that do not lie one after the other. Backs Tensor.__jax_array__()."""
    import jax.numpy

    if _NAMES.get(tensor.device.type) not in ("cpu", "cuda", "rocm"):
        raise TypeError(f"the tensor is on {tensor.device}, where JAX has no arrays; expected one of .to('cpu')")
    return jax.numpy.from_dlpack(to(tensor, tensor.device) if tensor.read_only else contiguous(tensor))


def _is_numpy(x):
    return type(x).__module__ == "numpy" and hasattr(x, "dtype")


def _sent(x, device):
    """A NumPy array, or anything that gives one, on a device."""
    import numpy

    if isinstance(x, _narrows.Tensor):
        return x if x.device == device else to(x, device)
    x = numpy.asarray(x, order="C")
    out = empty(x.shape, x.dtype.name, device)
    out._copy_from(numpy.ascontiguousarray(x).reshape(x.shape))
    return out


def _refuse_others(op, arrays, expected):
    """Arrays of frameworks, which are on a device already."""
    import numpy as np

    for x in arrays:
        if x is None or isinstance(x, (*expected, np.generic)):
            continue
        if hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"):
            raise TypeError(f"{op.op}: device= is for NumPy arrays and narrows.Tensor; other arrays are used where they are")


def _call(op, inputs, out, device):
    """A call with device=: the inputs go there, the outputs come back as NumPy arrays. Refused is what is refused without it."""
    import numpy as np

    from narrows import _errors, _operands

    device, outs = Device(device), [*out] if isinstance(out, (tuple, list)) else [out]
    _refuse_others(op, inputs, (np.ndarray, _narrows.Tensor))
    if all(x is None or _operands.is_number(x) for x in inputs):
        raise TypeError(f"{op.__name__}: {_errors.NO_ARRAY}")
    op._checked(tuple(inputs))
    if any(map(_operands.is_number, inputs)):
        inputs = _operands.lift(op, inputs)
    if out is not None:
        op._checked(tuple(inputs), out)
        if any(isinstance(o, _narrows.Tensor) for o in outs):
            raise TypeError(f"{op.op}: out is a narrows.Tensor; expected an array of NumPy beside device=")
        _refuse_others(op, outs, (np.ndarray,))
    sent = tuple(x if x is None or _operands.is_number(x) else _sent(x, device) for x in inputs)
    all_wanted = len(outs) > len(op.outputs) - op.num_aux  # those too that exist for backward only
    result = op._run(sent, (1 << len(op.outputs)) - 1) if all_wanted else op(*sent)
    results: list = [numpy(r) if r is not None else None for r in (result if isinstance(result, tuple) else (result,))]
    if out is None:
        return tuple(results) if isinstance(result, tuple) else results[0]
    for target, value in zip(outs, results[: len(outs)], strict=True):
        if target is None:
            continue
        if (target.dtype, target.shape) != (value.dtype, value.shape):  # of an op that the CPU does not have
            raise ValueError(f"{op.op}: out is {target.dtype}, {target.shape}; expected {value.dtype}, {value.shape}")
        np.copyto(target, value)
    return tuple(outs) if len(outs) > 1 else outs[0]
