"""What is wrong is an exception of the right kind with words that help, whatever the framework; and nothing ever crashes."""

import array
import ctypes
import decimal
import importlib.util

import numpy as np
import pytest

import narrows
import present

X = np.ones(4, "float32")


class Plain:
    def __dlpack__(self, **keywords):
        return X.__dlpack__()


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: narrows.add(X, "a"), TypeError, "b: str is no array"),
        (lambda: narrows.add(object(), X), TypeError, "a: object is no array"),
        (lambda: narrows.add([1.0], X), TypeError, "a: list is no array"),
        (lambda: narrows.add(array.array("f", [1]), X), TypeError, "array is no array"),
        (lambda: narrows.add(X, 1j), TypeError, "complex"),
        (lambda: narrows.add(X, decimal.Decimal(1)), TypeError, "Decimal"),
        (lambda: narrows.add(X), TypeError, "b is missing"),
        (lambda: narrows.add(X, None), TypeError, "b is missing"),
        (lambda: narrows.add(2, 3), TypeError, "no input is an array"),
        (lambda: narrows.add(X, X, X), ValueError, "takes 2 operands"),
        (lambda: narrows.add(X, X, X, X), TypeError, "takes 3 tensors"),
        (lambda: narrows.add(X, X, b=X), TypeError, "given twice"),
        (lambda: narrows.add(X, X, colour="red"), TypeError, "no argument 'colour'"),
        (lambda: narrows.add(X, np.ones(3, "float32")), ValueError, "do not broadcast: 4 against 3"),
        (lambda: narrows.add(X, np.ones(4)), ValueError, "b has dtype float64; expected float32"),
        (lambda: narrows.add(X.astype(">f4"), 1), TypeError, "big-endian"),
        (lambda: narrows.add(X.astype("complex64"), 1), TypeError, "complex64"),
        (lambda: narrows.add(np.array(["a"]), 1), TypeError, "<U1"),
        (lambda: narrows.add(np.array([object()]), 1), TypeError, "object"),
        (lambda: narrows.add(np.zeros(2, "M8[s]"), 1), TypeError, "datetime64"),
        (lambda: narrows.add(np.zeros(2, [("a", "f4"), ("b", "i2")])["a"], 1), ValueError, "stride of 6 bytes"),
        (lambda: narrows.add(np.zeros(2, [("a", "f4")]), 1), TypeError, "expected"),
        (lambda: narrows.add(np.ma.masked_array(X), 1), TypeError, "subclass of numpy.ndarray"),
        (lambda: narrows.add(np.ones((1,) * 17, "float32"), 1), ValueError, "17 dimensions"),
        (lambda: narrows.add(X, 1, out=np.broadcast_to(X[:1], 4)), ValueError, "read-only"),
        (lambda: narrows.add(X, 1, out=np.ones(3, "float32")), ValueError, "out"),
        (lambda: narrows.add(X, 1, out=np.ones(4)), ValueError, "dtype"),
        (lambda: narrows.add(X, 1, out="x"), TypeError, "out: str"),
        (lambda: narrows.add(X[:-1], 1, out=X[1:]), ValueError, "overlap|share"),
        (lambda: narrows.add(X, 1, out=(X, X)), TypeError, "out has 2 arrays"),
        (lambda: narrows.add(np.int32([1]), 2.5), TypeError, "2.5 beside int32"),
        (lambda: narrows.add(np.uint8([1]), 256), ValueError, "does not fit uint8"),
        (lambda: narrows.add(np.uint8([1]), -1), ValueError, "does not fit uint8"),
        (lambda: narrows.subtract(300, np.uint8([1])), ValueError, "does not fit uint8"),
        (lambda: narrows.add(np.int64([1]), 2**70), ValueError, "integer of 64 bits"),
        (lambda: narrows.add(X, 10**400), ValueError, "real number"),
        (lambda: narrows.exp(np.int32([1])), ValueError, "exp: a has dtype int32"),
        (lambda: narrows.conv1d(X, np.ones(9, "float32")), ValueError, "no element"),
        (lambda: narrows.conv1d(X, X, groups=2), ValueError, "groups = 2"),
        (lambda: narrows.op("conv1d")(X, X, stride=-1), ValueError, "stride = -1"),
        (lambda: narrows.op("conv1d", stride=1.5), TypeError, "stride is 1.5; expected an integer"),
        (lambda: narrows.op("conv1d", stride=2**64), ValueError, "stride = "),
        (lambda: narrows.op("conv1d", padding_mode="mirror"), ValueError, "expected one of 'zeros'"),
        (lambda: narrows.op("elementwise", function="adds"), ValueError, "'adds'; expected one of"),
        (lambda: narrows.op("elementwise", function=999)(X), NotImplementedError, "function = 999"),
        (lambda: narrows.op("elementwise")(X), ValueError, "function = 0"),
        (lambda: narrows.op("conv1d", strides=2), TypeError, "no parameter 'strides'"),
        (lambda: narrows.op("nope"), ValueError, "unknown op 'nope'"),
        (lambda: narrows.op("no.such.thing"), ValueError, "no.such.thing"),
        (lambda: narrows.op(7), TypeError, "name is 7; expected a string"),
        (lambda: narrows.astype(X, "float8"), ValueError, "out_dtype"),
        (lambda: narrows.empty((2**70,)), ValueError, "less than 2\\^63"),
        (lambda: narrows.empty((2, -1)), ValueError, "expected extents of 0 or more"),
        (lambda: narrows.empty((1,) * 17), ValueError, "17 dimensions"),
        (lambda: narrows.empty(3, "complex64"), ValueError, "complex64"),
        (lambda: narrows.empty((2**40, 2**40)), (ValueError, MemoryError), ""),
        (lambda: narrows.from_dlpack(object()), TypeError, "no __dlpack__"),
        (lambda: narrows.Tensor(), TypeError, "cannot create"),
        (lambda: narrows.load("/nowhere/narrows_x.so"), (ValueError, RuntimeError, NotImplementedError), "nowhere"),
        (lambda: narrows.load(__file__), (ValueError, NotImplementedError), ""),
        (lambda: narrows.add(X, X, backend="none"), (ValueError, NotImplementedError, RuntimeError), "none"),
        (lambda: narrows.add(X, X, backend=3), TypeError, "backend is 3"),
        (lambda: narrows.add(X, X, stream="main"), TypeError, "stream is 'main'"),
        (lambda: narrows.add(X, 1, device=2.5), TypeError, "float"),
        (
            lambda: narrows.add(X, 1, device="cpu", out=np.ones((2, 4), "float32")),
            ValueError,
            r"out is float32, \(2, 4\); expected float32, \(4,\)",
        ),
        (lambda: narrows.add(X, 1, device="cpu", out="x"), ValueError, "out is str"),
        (lambda: narrows.add(X, np.complex64(2 + 3j)), TypeError, "b: complex64 is a complex number"),
        (lambda: narrows.add(X, Plain()), TypeError, "Plain is no array: it has __dlpack__, but no __dlpack_device__"),
        (lambda: narrows.conv1d(X, X, stride="2"), TypeError, "stride = '2'; expected an integer"),
        (lambda: narrows.conv1d(X, X, stride=(1, 2)), TypeError, r"stride = \(1, 2\)"),
        (lambda: narrows.conv1d(X, X, dilation=0), ValueError, "dilation = 0; expected 1 or more"),
        (lambda: narrows.conv1d(X, X, padding=1.5), TypeError, "padding = 1.5; expected a number"),
        (lambda: narrows.conv1d(X, X, padding=(1, 2, 3)), TypeError, r"padding = \(1, 2, 3\)"),
        (lambda: narrows.conv1d(X, [1, 2], padding="same"), TypeError, "w is list"),
        (lambda: narrows.conv1d(X, X[0].reshape(()), padding="same"), TypeError, "expected an array of one dimension"),
        (lambda: narrows.from_dlpack(X).__dlpack__(max_version="1.0"), TypeError, "max_version is '1.0'"),
        (lambda: narrows.from_dlpack(X).__dlpack__(dl_device=1), TypeError, "dl_device is 1"),
    ],
)
def test_wrong_calls(call, error, words):
    with pytest.raises(error, match=words or None):
        call()


def test_memory_that_is_not_there():
    """256 TiB, which malloc never has: the words say where, and how much."""
    for call in (lambda: narrows.empty((1 << 48,), "uint8"), lambda: narrows.empty((1 << 43, 4), "float64")):
        with pytest.raises(MemoryError, match="281474976710656 bytes of host memory are not to be had"):
            call()
    wide = np.lib.stride_tricks.as_strided(X, (1 << 46,), (0,))  # writable, as older NumPys have to have it
    with pytest.raises(MemoryError, match="281474976710656 bytes of host memory"):
        narrows.add(narrows.from_dlpack(wide), 1)
    with pytest.raises(MemoryError, match="Unable to allocate"):  # NumPy's own words: the output is its
        narrows.add(wide, 1)
    np.testing.assert_array_equal(narrows.add(X, 1), 2)


class Liar:
    """A producer of DLPack that gives whatever it is told to."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_):
        if isinstance(self.capsule, BaseException):
            raise self.capsule
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def fake_capsule(ndim=1, shape=(4,), code=2, bits=32, lanes=1, device=(1, 0), major=1, data=None, no_shape=False):
    """A versioned capsule whose every field may be wrong. Its memory is kept by the process."""

    class DLTensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                    ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]  # fmt: skip

    class Managed(ctypes.Structure):
        _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                    ("flags", ctypes.c_uint64), ("t", DLTensor)]  # fmt: skip

    memory = (ctypes.c_float * 64)()
    extents = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    address = ctypes.addressof(memory) if data is None else data
    tensor = DLTensor(address, *device, ndim, code, bits, lanes, None if no_shape else ctypes.addressof(extents), None, 0)
    managed = Managed(major, 0, None, None, 0, tensor)
    fake_capsule.kept.append((memory, extents, managed))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(managed), b"dltensor_versioned", None)


fake_capsule.kept = []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "producer, error",
    [
        (lambda: Liar(RuntimeError("no")), RuntimeError),
        (lambda: Liar(KeyboardInterrupt()), KeyboardInterrupt),
        (lambda: Liar("not a capsule"), TypeError),
        (lambda: Liar(None), TypeError),
        (lambda: Liar(fake_capsule(), device="cpu"), None),
        (lambda: Liar(fake_capsule(ndim=-3)), ValueError),
        (lambda: Liar(fake_capsule(ndim=99)), ValueError),
        (lambda: Liar(fake_capsule(no_shape=True)), ValueError),
        (lambda: Liar(fake_capsule(shape=(-4,))), ValueError),
        (lambda: Liar(fake_capsule(shape=(2**62,))), ValueError),
        (lambda: Liar(fake_capsule(code=77)), (ValueError, NotImplementedError)),
        (lambda: Liar(fake_capsule(bits=3)), (ValueError, NotImplementedError)),
        (lambda: Liar(fake_capsule(lanes=4)), (ValueError, NotImplementedError)),
        (lambda: Liar(fake_capsule(device=(99, 0))), (ValueError, NotImplementedError, RuntimeError)),
        (lambda: Liar(fake_capsule(device=(2, 7)), device=(2, 7)), (ValueError, NotImplementedError, RuntimeError)),
        (lambda: Liar(fake_capsule(major=2)), NotImplementedError),
        (lambda: Liar(fake_capsule(data=0)), ValueError),
    ],
)
def test_producers_that_lie(producer, error):
    if error is None:
        np.testing.assert_array_equal(narrows.add(producer(), 1).numpy(), 1)
        return
    with pytest.raises(error):
        narrows.add(producer(), 1)
    with pytest.raises(error):
        narrows.add(X, producer())
    with pytest.raises((error, BufferError) if isinstance(error, type) else (*error, BufferError)):  # of a device that nobody has
        memoryview(narrows.from_dlpack(producer())).tolist()


def test_integers_of_any_kind():
    assert narrows.conv1d(X, X, padding=np.int64(2), stride=np.int8(2)).shape == (3,)
    assert narrows.conv1d(X, X, padding=np.array([2, 2])).shape == (5,)
    assert narrows.empty(np.int64(3)).shape == narrows.empty([np.int8(3)]).shape == narrows.empty(range(3, 4)).shape == (3,)
    assert narrows.empty(np.array([2, 3])).shape == (2, 3)


def test_a_used_capsule_is_refused():
    liar = Liar(fake_capsule())
    narrows.add(liar, 1)
    with pytest.raises(TypeError, match="new capsule"):
        narrows.add(liar, 1)


def test_a_producer_that_takes_the_outputs_away():
    """While the inputs are read, anything may happen to the list of outputs."""
    out = [np.zeros((1, 2), "float32"), np.zeros((1, 2), "float32")]

    class Thief:
        shape = 1, 2

        def __dlpack__(self, **_):
            out.clear()
            return np.zeros((1, 2), "float32").__dlpack__()

        def __dlpack_device__(self):
            return 1, 0

    zeros = np.zeros((1, 2), "float32")
    for _ in range(50):
        out[:] = [np.zeros((1, 2), "float32") for _ in range(2)]
        narrows.lltm(Thief(), np.zeros((6, 4), "float32"), np.ones(6, "float32"), zeros, zeros, out=out)
        assert out == []


def test_an_old_producer_without_keywords():
    class Old:
        def __dlpack__(self, stream=None):
            return X.__dlpack__()

        def __dlpack_device__(self):
            return 1, 0

    np.testing.assert_array_equal(narrows.add(Old(), 1).numpy(), 2)


def test_attributes_that_raise():
    class Nasty:
        def __getattr__(self, name):
            raise RuntimeError(name)

    with pytest.raises(TypeError, match="Nasty is no array"):
        narrows.add(Nasty(), X)
    with pytest.raises(TypeError, match="Nasty"):
        narrows.op("conv1d", stride=Nasty())
    with pytest.raises((TypeError, ValueError)):
        narrows.op("elementwise", function=Nasty())


class Interface:
    """What Numba's arrays give, with whatever is changed."""

    def __init__(self, **changes):
        self.dict = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3, **changes}

    @property
    def __cuda_array_interface__(self):
        return self.dict.get("instead", self.dict)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        ({"instead": 7}, TypeError, "a: __cuda_array_interface__ is 7; expected a dict"),
        ({"shape": None}, TypeError, "shape is None; expected a tuple of up to 16 int"),
        ({"shape": (1,) * 17}, TypeError, "expected a tuple of up to 16 int"),
        ({"shape": ("a",)}, TypeError, "int"),
        ({"shape": (-4,)}, (ValueError, RuntimeError), "-4|no plugin"),
        ({"typestr": ">f4"}, TypeError, "typestr is '>f4'; expected a little-endian"),
        ({"typestr": "<c8"}, TypeError, "typestr is '<c8'"),
        ({"typestr": "<V2"}, TypeError, "typestr is '<V2'"),
        ({"typestr": "<f16"}, TypeError, "typestr is '<f16'"),
        ({"typestr": "|b8"}, (TypeError, ValueError), "typestr|dtype"),
        ({"typestr": "f"}, TypeError, "typestr is 'f'"),
        ({"typestr": 4}, TypeError, "typestr is 4"),
        ({"data": 4096}, TypeError, "data is 4096; expected"),
        ({"data": ("a", False)}, TypeError, "int"),
        ({"strides": (4, 4)}, ValueError, "expected 1 multiples of 4 bytes"),
        ({"strides": (3,)}, ValueError, "expected 1 multiples of 4 bytes"),
        ({"mask": object()}, TypeError, "mask is given"),
        ({"stream": 0}, ValueError, "stream is 0; expected None, 1, 2"),
        ({"stream": "a"}, TypeError, "int"),
        ({"data": (0, False)}, (ValueError, RuntimeError), "data NULL|no plugin"),
    ],
)
def test_a_cuda_array_interface_that_lies(changes, error, words):
    if present.GPU and len([d for d in narrows.devices() if str(d).startswith("cuda")]) > 1:
        error, words = (TypeError, ValueError), "."
    with pytest.raises(error, match=words):
        narrows.add(Interface(**changes), 1)


def test_how_a_call_is_made_is_never_ignored():
    """stream=, backend=, kernel= and deterministic= are for calls that go straight to the library; elsewhere they are refused."""
    ways = [{"stream": 7}, {"backend": "cpu"}, {"kernel": "x"}, {"deterministic": True}]
    calls = [lambda **how: narrows.add(X, X, device="cpu", **how), lambda **how: narrows.subtract(2, X, **how)]
    signal, w = np.ones(8, "float32"), np.ones(3, "float32")
    cell = [np.zeros(s, "float32") for s in ((1, 2), (6, 4), 6, (1, 2), (1, 2))]
    calls += [lambda **how: narrows.conv1d(signal, w, device="cpu", **how), lambda **how: narrows.lltm(*cell, device="cpu", **how)]
    if importlib.util.find_spec("torch"):
        import torch

        t = torch.ones(3, requires_grad=True)
        calls += [lambda **how: narrows.add(t, t.detach(), **how), lambda **how: narrows.add(torch._neg_view(t.detach()), 1, **how)]
        calls += [lambda **how: narrows.conv1d(torch.ones(8), t, **how)]
    if importlib.util.find_spec("jax"):
        import jax

        a = jax.numpy.ones(3)
        calls += [lambda **how: narrows.add(a, a, **how), lambda **how: jax.jit(lambda a: narrows.add(a, a, **how))(a)]
    for call in calls:
        call()
        for how in ways:
            with pytest.raises(NotImplementedError, match="straight to the library"):
                call(**how)


def test_conv1d_and_lltm_say_how_they_are_called():
    signal, w = np.ones(8, "float32"), np.ones(3, "float32")
    cell = [np.zeros(s, "float32") for s in ((1, 2), (6, 4), 6, (1, 2), (1, 2))]
    for call in (lambda **how: narrows.conv1d(signal, w, **how), lambda **how: narrows.lltm(*cell, **how)):
        np.testing.assert_array_equal(call(backend="cpu", deterministic=True), call())
        with pytest.raises(ValueError, match="unknown backend 'none'"):
            call(backend="none")
        with pytest.raises(NotImplementedError, match="no kernel 'none'"):
            call(kernel="none")
        with pytest.raises(ValueError, match="stream = 0x7"):
            call(stream=7)
