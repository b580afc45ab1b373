# SPDX-License-Identifier: Apache-2.0
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
        (lambda: narrows.add([1.0], X), TypeError, r"^add: a: list is no array: .* as numpy\.asarray\(x\) gives"),
        (lambda: narrows.clip((1.0,), 0), TypeError, r"^clip: x: tuple is no array: .* numpy\.asarray"),
        (lambda: narrows.elu([1.0], alpha=2), TypeError, r"^elu: a: list is no array: .* numpy\.asarray"),
        (lambda: narrows.where(X > 0, X, [1.0]), TypeError, r"^where: c: list is no array: .* numpy\.asarray"),
        (lambda: narrows.astype([1.0], "int8"), TypeError, r"^astype: x: list is no array: .* numpy\.asarray"),
        (lambda: narrows.conv1d([1.0], X), TypeError, r"^conv1d: x: list is no array: .* numpy\.asarray"),
        (lambda: narrows.from_dlpack([1.0]), TypeError, r"^from_dlpack: list is no array: .* numpy\.asarray"),
        (lambda: narrows.add(X, [1.0], device="cpu"), TypeError, r"^add: b: list is no array: .* numpy\.asarray"),
        (lambda: narrows.add(array.array("f", [1]), X), TypeError, "array is no array"),
        (lambda: narrows.add(X, 1j), TypeError, "complex"),
        (lambda: narrows.add(X, decimal.Decimal(1)), TypeError, "Decimal"),
        (lambda: narrows.add(X), TypeError, "b is missing"),
        (lambda: narrows.add(X, None), TypeError, "b is missing"),
        (lambda: narrows.add(2, 3), TypeError, "no input is an array"),
        (lambda: narrows.add(X, X, X), TypeError, "takes 2 operands; 3 were given"),
        (lambda: narrows.exp(X, 2.0), TypeError, "exp takes 1 operand; 2 were given"),
        (lambda: narrows.add(X, X, X, X), TypeError, "takes 2 operands; 4 were given"),
        (lambda: narrows.add(X, X, b=X), TypeError, "given twice"),
        (lambda: narrows.add(X, X, colour="red"), TypeError, "^add has no argument 'colour'; it has a, b, out"),
        (lambda: narrows.add(X, X, outt=X), TypeError, r"^add has no argument 'outt'; did you mean 'out'\?"),
        (lambda: narrows.clip(X, 0, 1, mim=0), TypeError, r"^clip has no argument 'mim'; did you mean 'min'\?"),
        (lambda: narrows.op("conv1d")(X, X, strides=2), TypeError, r"^conv1d has no argument 'strides'; did you mean 'stride'\?"),
        (lambda: narrows.op("conv1d").bind(dilaton=2), TypeError, r"no parameter 'dilaton'; did you mean 'dilation'\?"),
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
        (lambda: narrows.add(np.int64([1]), 2**70), ValueError, "does not fit int64"),
        (lambda: narrows.add(X, 10**400), ValueError, "real number"),
        (lambda: narrows.exp(np.int32([1])), ValueError, "exp: a has dtype int32"),
        (lambda: narrows.conv1d(X, np.ones(9, "float32")), ValueError, "no element"),
        (lambda: narrows.conv1d(X, X, groups=2), ValueError, "groups = 2"),
        (lambda: narrows.op("conv1d")(X, X, stride=-1), ValueError, "stride = -1"),
        (lambda: narrows.op("conv1d", stride=1.5), TypeError, "stride is 1.5; expected an integer"),
        (lambda: narrows.op("conv1d", stride=2**64), ValueError, "stride = "),
        (lambda: narrows.op("conv1d", padding_mode="mirror"), ValueError, "expected one of 'zeros'"),
        (lambda: narrows.op("elementwise", function="adds"), ValueError, r"'adds'; expected one of .*; did you mean 'add'\?"),
        (lambda: narrows.op("elementwise", function=999)(X), NotImplementedError, "function = 999"),
        (lambda: narrows.op("elementwise")(X), ValueError, "function = 0"),
        (lambda: narrows.op("conv1d", strides=2), TypeError, r"no parameter 'strides'; did you mean 'stride'\?"),
        (lambda: narrows.op("conv1d", colour=2), TypeError, "no parameter 'colour'; it has stride, dilation"),
        (lambda: narrows.op("nope"), ValueError, "unknown op 'nope'; built in"),
        (lambda: narrows.op("conv2d"), ValueError, r"unknown op 'conv2d'; did you mean 'conv1d'\?"),
        (lambda: narrows.op("add"), ValueError, r"unknown op 'add'; did you mean 'elementwise' with function = 'add'\?"),
        (lambda: narrows.op("no.such.thing"), ValueError, "no.such.thing"),
        (lambda: narrows.op(7), TypeError, "name is 7; expected a string"),
        (lambda: narrows.astype(X, "float8"), ValueError, "^astype: dtype = 'float8'"),
        (lambda: narrows.empty((2**70,)), ValueError, "less than 2\\^63"),
        (lambda: narrows.empty((2, -1)), ValueError, "expected extents of 0 or more"),
        (lambda: narrows.empty((1,) * 17), ValueError, "17 dimensions"),
        (lambda: narrows.empty(3, "complex64"), ValueError, "complex64"),
        (lambda: narrows.empty((2**40, 2**40)), ValueError, "more than 2.64 bytes"),
        (lambda: narrows.from_dlpack(object()), TypeError, "object is no array: it has no __dlpack__$"),
        (lambda: narrows.Tensor(), TypeError, "cannot create"),
        (lambda: narrows.load("/nowhere/narrows_x.so"), ValueError, "/nowhere/narrows_x.so: cannot be opened: No such file"),
        (lambda: narrows.load(__file__), ValueError, "test_bad_input.py: not an ELF file"),
        (lambda: narrows.add(X, X, backend="none"), ValueError, "unknown backend 'none'; loaded: .*cpu"),
        (lambda: narrows.Device("tpu"), ValueError, "device 'tpu'; expected one of cpu, cuda, "),
        (lambda: narrows.add(X, 1, device="cuda:x"), ValueError, "device 'cuda:x'; expected one of cpu, cuda, "),
        (lambda: narrows.empty(3, device="cpu:5"), ValueError, r"CPU:5 does not exist: \w+ has 1 device"),
        (lambda: narrows.empty(3, device=narrows.Device(99)), RuntimeError, "no plugin serves device type 99:0"),
        (lambda: narrows.add(X, 1, device="metal"), RuntimeError, "no plugin serves Metal:0; `narrows info` .* narrows_.*so"),
        (lambda: narrows.Stream("metal:1"), RuntimeError, "no plugin serves Metal:1"),
        (lambda: narrows.empty(3).to("metal"), RuntimeError, "no plugin serves Metal:0"),
        (lambda: narrows.Device("metal").info, RuntimeError, "no plugin serves Metal:0"),
        (
            lambda: narrows.conv1d(X, X, dilation=2**40),
            ValueError,
            r"the output has no element: .* - 1099511627776\*3 - 1 = -3298534883325",
        ),
        (lambda: narrows.conv1d(X, X, dilation=2**63 - 1), ValueError, "dilation = 9223372036854775807, K = 4 overflow 64 bits"),
        (lambda: narrows.add(X, X, backend=3), TypeError, "backend is 3"),
        (lambda: narrows.add(X, X, stream="main"), TypeError, "stream is 'main'"),
        (lambda: narrows.add(X, 1, device=2.5), TypeError, "float"),
        (
            lambda: narrows.empty(3, device=narrows.Device(2**40)),
            ValueError,
            "device \\(1099511627776, 0\\); expected numbers from 0 to",
        ),
        (lambda: narrows.Device("cuda:4294967296"), ValueError, "expected numbers from 0 to"),
        (lambda: narrows.Device(-1), ValueError, "expected numbers from 0 to"),
        (lambda: narrows.add(X, np.complex64(2 + 3j)), TypeError, "b: complex64 is a complex number"),
        (lambda: narrows.add(X, Plain()), TypeError, "Plain is no array: it has __dlpack__, but no __dlpack_device__"),
        (lambda: narrows.conv1d(X, X, stride="2"), TypeError, "stride = '2'; expected an integer"),
        (lambda: narrows.conv1d(X, X, stride=(1, 2)), TypeError, r"stride = \(1, 2\)"),
        (lambda: narrows.conv1d(X, X, dilation=0), ValueError, "dilation = 0; expected 1 or more"),
        (lambda: narrows.conv1d(X, X, padding=1.5), TypeError, "padding = 1.5; expected a number"),
        (lambda: narrows.conv1d(X, X, padding=(1, 2, 3)), TypeError, r"padding = \(1, 2, 3\)"),
        (lambda: narrows.conv1d(X, [1, 2], padding="same"), TypeError, "w is list"),
        (lambda: narrows.conv1d(X, X[0].reshape(()), padding="same"), TypeError, "expected an array of one dimension"),
        (lambda: narrows.conv1d(X, X, padding="same", stride=2), ValueError, "'same' with stride = 2; expected stride 1"),
        (lambda: narrows.conv1d(X, X, padding={1: 2, 3: 4}), TypeError, r"padding = \{1: 2, 3: 4\}; expected a number"),
        (lambda: narrows.conv1d(X, X, padding={1, 2}), TypeError, r"padding = \{1, 2\}; expected a number"),
        (lambda: narrows.conv1d(X, X, padding=b"ab"), TypeError, "padding = b'ab'; expected a number"),
        (lambda: narrows.Device("cuda:1", 2), ValueError, "device 'cuda:1' with id = 2; expected one of both"),
        (lambda: narrows.Device(1.5), TypeError, "device = 1.5, a float; expected a name or a number"),
        (lambda: narrows.Device("cuda", "1"), TypeError, "id = '1', a str; expected a number"),
        (lambda: narrows.Stream().wait(None), TypeError, "wait: other = None, a NoneType; expected a narrows.Stream or a handle"),
        (lambda: narrows.empty("ab"), TypeError, "shape = 'ab'; expected integers, or one"),
        (lambda: narrows.empty((2.5,)), TypeError, r"shape = \(2.5,\); expected integers, or one"),
        (lambda: narrows.empty(None), TypeError, "shape = None; expected integers, or one"),
        (lambda: narrows.build(3), TypeError, "files = 3; expected a path or several"),
        (lambda: narrows.build("x.cpp", flags="-g"), TypeError, "flags = '-g'; expected a list of strings"),
        (lambda: narrows.build("x.cpp", flags=None), TypeError, "flags = None; expected a list of strings"),
        (lambda: narrows.build("x.cpp", name=3), TypeError, "name = 3; expected a string"),
        (
            lambda: narrows.build("x.cpp", name="../../../evil"),
            ValueError,
            "name = '../../../evil'; expected part of a file's name",
        ),
        (lambda: narrows.build("x.cpp", name=""), ValueError, "name = ''; expected part of a file's name"),
        (lambda: narrows.load_inline("q", 3), TypeError, "cpp_sources = 3; expected a text or several"),
        (lambda: narrows.load_inline("q", cuda_sources=[b""]), TypeError, r"cuda_sources = \[b''\]; expected a text or several"),
        (lambda: narrows.load_inline(3, ""), TypeError, "name = 3; expected a string"),
        (lambda: narrows.from_dlpack(np.ma.masked_array(X, X > 0)), TypeError, "MaskedArray is a subclass of numpy.ndarray"),
        (lambda: narrows.from_dlpack(np.matrix(X)), TypeError, "matrix is a subclass of numpy.ndarray"),
        (lambda: narrows.from_dlpack(np.matrix(X), "cpu", True), TypeError, "matrix is a subclass of numpy.ndarray"),
        (lambda: narrows.from_dlpack(X).__dlpack__(max_version="1.0"), TypeError, "max_version is '1.0'"),
        (lambda: narrows.from_dlpack(X).__dlpack__(dl_device=1), TypeError, "dl_device is 1"),
    ],
)
def test_wrong_calls(call, error, words):
    with pytest.raises(error, match=words or None):
        call()


CELL = [np.zeros(s, "float32") for s in ((1, 2), (6, 4), 6, (1, 2), (1, 2))]
READ_ONLY = np.zeros(4, "float32")
READ_ONLY.flags.writeable = False
HEAD = np.zeros(5, "float32")
PAIR = np.zeros((1, 2), "float32")
EITHER_WAY = {
    "one output twice": (lambda **d: narrows.lltm(*CELL, out=(PAIR, PAIR), **d), ValueError, "new_cell .*overlaps new_h|new_h .*overlaps new_cell"),
    "stride 0": (lambda **d: narrows.add(X, 1, out=np.lib.stride_tricks.as_strided(HEAD, (4,), (0,)), **d), ValueError, "out of shape .4,. has strides .0,., by which two elements share a place"),
    "over an input": (lambda **d: narrows.add(HEAD[:-1], 1, out=HEAD[1:], **d), ValueError, "out .*overlaps a"),
    "read-only": (lambda **d: narrows.add(X, 1, out=READ_ONLY, **d), ValueError, "out is read-only"),
    "another shape": (lambda **d: narrows.add(X, 1, out=np.ones((2, 4), "float32"), **d), ValueError, r"out has shape .2, 4.; expected .4."),
    "another dtype": (lambda **d: narrows.add(X, 1, out=np.ones(4), **d), ValueError, "out has dtype float64; expected float32"),
    "no output": (lambda **d: narrows.add(X, 1, out="x", **d), TypeError, "out: str is no array"),
    "too many outputs": (lambda **d: narrows.add(X, 1, out=(X, X), **d), TypeError, "out has 2 arrays"),
    "a matrix": (lambda **d: narrows.add(np.matrix(X), 1, **d), TypeError, "a: matrix is a subclass of numpy.ndarray"),
    "a masked array": (lambda **d: narrows.add(X, np.ma.masked_array(X), **d), TypeError, "b: MaskedArray is a subclass of numpy.ndarray"),
    "a matrix for the output": (lambda **d: narrows.add(X, 1, out=np.matrix(X), **d), TypeError, "out: matrix is a subclass of numpy.ndarray"),
    "big-endian": (lambda **d: narrows.add(X.astype(">f4"), 1, **d), TypeError, "big-endian"),
    "complex": (lambda **d: narrows.add(X, np.complex64(1j), **d), TypeError, "b: complex64 is a complex number"),
    "numbers": (lambda **d: narrows.add(np.float32(1), 2, **d), TypeError, "no input is an array"),
    "text": (lambda **d: narrows.add(X, "a", **d), TypeError, "b: str is no array"),
    "a number too large": (lambda **d: narrows.subtract(300, np.uint8([1]), **d), ValueError, "does not fit uint8"),
}  # fmt: skip


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("call, error, words", EITHER_WAY.values(), ids=EITHER_WAY)
def test_device_refuses_what_is_refused_without_it(call, error, words, device):
    with pytest.raises(error, match=words):
        call(device=device)
    assert not HEAD.any() and not READ_ONLY.any() and not PAIR.any()


@pytest.mark.parametrize("device", [None, "cpu"])
def test_device_takes_what_is_taken_without_it(device):
    np.testing.assert_array_equal(narrows.add(X, np.int64(2), device=device), 3)
    np.testing.assert_array_equal(narrows.subtract(np.float32(2), X, device=device), 1)
    np.testing.assert_array_equal(narrows.add(READ_ONLY, True, device=device), 1)
    out, outs = np.zeros((4, 2), "float32")[:, 0], [np.ones((1, 2), "float32"), np.ones((1, 2), "float32")]
    assert narrows.add(X, 1, out=out, device=device) is narrows.add(X, 1, out=[out], device=device) is out and (out == 2).all()
    assert narrows.add(out, 1, out=out, device=device) is out and (out == 3).all()
    for out in (outs, tuple(outs)):
        given = narrows.lltm(*CELL, out=out, device=device)
        assert type(given) is tuple and given[0] is outs[0] and given[1] is outs[1] and not np.any(outs)


def test_device_is_for_numpy():
    for call in (lambda: narrows.add(Again(), 1, device="cpu"), lambda: narrows.add(X, 1, out=Again(), device="cpu")):
        with pytest.raises(TypeError, match="device= is for NumPy"):
            call()
    with pytest.raises(TypeError, match=r"out is a narrows\.Tensor; expected an array of NumPy"):
        narrows.add(X, 1, out=narrows.empty(4), device="cpu")


def test_memory_that_is_not_there():
    """256 TiB, which malloc never has: the words say where, and how much."""
    for call in (lambda: narrows.empty((1 << 48,), "uint8"), lambda: narrows.empty((1 << 43, 4), "float64")):
        with pytest.raises(MemoryError, match="cannot allocate 281474976710656 bytes of host memory"):
            call()
    wide = np.lib.stride_tricks.as_strided(X, (1 << 46,), (0,))  # writable, as older NumPys have to have it
    with pytest.raises(MemoryError, match="281474976710656 bytes of host memory"):
        narrows.add(narrows.from_dlpack(wide), 1)
    with pytest.raises(MemoryError, match="Unable to allocate"):  # NumPy's own words: the output is its
        narrows.add(wide, 1)
    np.testing.assert_array_equal(narrows.add(X, 1), 2)


class Again:
    """A producer with nothing but what DLPack wants of it."""

    def __dlpack__(self, **keywords):
        return X.__dlpack__()

    def __dlpack_device__(self):
        return 1, 0


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


class Leaving(Liar):
    """One that keeps no reference to what it gives."""

    def __dlpack__(self, **_):
        return self.__dict__.pop("capsule")


def fake_capsule(ndim=1, shape=(4,), code=2, bits=32, lanes=1, device=(1, 0), major=1, data=None, no_shape=False, destructor=None):
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
    return new(ctypes.addressof(managed), b"dltensor_versioned", destructor)


fake_capsule.kept = []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "producer, error, words",
    [
        (lambda: Liar(RuntimeError("no")), RuntimeError, "^no$"),
        (lambda: Liar(KeyboardInterrupt()), KeyboardInterrupt, "^$"),
        (lambda: Liar("not a capsule"), TypeError, "__dlpack__ gave 'not a capsule'; expected a new capsule"),
        (lambda: Liar(None), TypeError, "__dlpack__ gave None; expected a new capsule"),
        (lambda: Liar(fake_capsule(), device=(3, 0)), None, None),  # pinned memory is the CPU's to some
        (lambda: Liar(fake_capsule(ndim=-3)), ValueError, "a tensor of -3 dimensions"),
        (lambda: Liar(fake_capsule(ndim=99)), ValueError, "a tensor of 99 dimensions"),
        (lambda: Liar(fake_capsule(no_shape=True)), ValueError, "whose shape is NULL"),
        (lambda: Liar(fake_capsule(shape=(-4,))), ValueError, r"has shape \(-4,\)|gave extent -4"),
        (lambda: Liar(fake_capsule(shape=(2**62,))), ValueError, "overflow 64 bits|less than 2\\^63 bytes"),
        (lambda: Liar(fake_capsule(code=77)), (ValueError, NotImplementedError), "dtype (of )?code 77"),
        (lambda: Liar(fake_capsule(bits=3)), (ValueError, NotImplementedError), "3 bits"),
        (lambda: Liar(fake_capsule(lanes=4)), (ValueError, NotImplementedError), "4 lanes|32 bitsx4"),
        (lambda: Liar(fake_capsule(device=(99, 0))), ValueError, r"a tensor on \(99, 0\)"),
        (lambda: Liar(fake_capsule(major=2)), NotImplementedError, r"gave DLPack 2\.0; expected 1\.x"),
        (lambda: Liar(fake_capsule(data=0)), ValueError, "data NULL"),
    ],
)
def test_producers_that_lie(producer, error, words):
    if error is None:
        np.testing.assert_array_equal(narrows.add(producer(), 1).numpy(), 1)
        return
    with pytest.raises(error, match=words):
        narrows.add(producer(), 1)
    with pytest.raises(error, match=words):
        narrows.add(X, producer())
    with pytest.raises(error, match=words):
        np.asarray(narrows.from_dlpack(producer())).tolist()


@pytest.mark.parametrize("said", [None, "cpu", (1,), (1, 0, 0), (1, "0"), (-1, 0), (1, -1), (1, 2**40), 7])
def test_a_device_that_is_none(said):
    for call in (lambda x: narrows.add(x, 1), lambda x: narrows.add(X, x), narrows.from_dlpack):
        with pytest.raises(TypeError, match=r"Liar is no array: its __dlpack_device__ is .*; expected two integers"):
            call(Liar(fake_capsule(), said))


@pytest.mark.parametrize("said", [(99, 0), (2, 0), (1, 5), (10, 0)])
def test_a_device_that_the_capsule_denies(said):
    words = rf"__dlpack_device__ gave \({said[0]}, {said[1]}\), but __dlpack__ a tensor on \(1, 0\)"
    for call in (lambda x: narrows.add(x, 1), lambda x: narrows.add(X, x), narrows.from_dlpack):
        with pytest.raises(ValueError, match=words):
            call(Liar(fake_capsule(), said))


@pytest.mark.parametrize("device, name", [((99, 0), "device type 99:0"), ((8, 7), "Metal:7")])
def test_a_device_that_nobody_serves(device, name):
    producer = lambda: Liar(fake_capsule(device=device), device)  # noqa: E731
    for call in (lambda: narrows.add(producer(), 1), lambda: narrows.from_dlpack(producer(), "cpu")):
        with pytest.raises(RuntimeError, match=f"no plugin serves {name}"):
            call()
    with pytest.raises(ValueError, match=f"a lives on CPU:0, and b on {name}; expected one device"):
        narrows.add(X, producer())
    tensor = narrows.from_dlpack(producer())
    assert tensor.device == narrows.Device(*device)
    with pytest.raises(TypeError, match=r"not on the CPU; expected \.numpy"):
        np.asarray(tensor)


def test_a_producer_that_refuses():
    with pytest.raises(NotImplementedError, match="b: not exported"):
        narrows.add(X, Liar(BufferError("not exported")))


class Two(ValueError):
    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")


@pytest.mark.parametrize("error", [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), Two("it", "home")], ids=["unicode", "two"])
def test_an_error_of_a_producers_own_class(error):
    with pytest.raises(type(error)) as raised:
        narrows.add(X, Liar(error))
    assert raised.value is error


@pytest.mark.parametrize("kind, refused, expected", [(2, (0, -2, -(2**40), 2**70), "-1, 1, 2"), (10, (1, 2, -2, 2**70), "-1, 0")])
def test_a_consumers_stream_that_is_none(kind, refused, expected):
    """Of a tensor that is said to be on a GPU: its memory is not touched."""
    tensor = narrows.from_dlpack(Liar(fake_capsule(device=(kind, 0)), (kind, 0)))
    for stream in refused:
        with pytest.raises(ValueError, match=f"stream = {stream}; expected None, {expected} or a stream's handle"):
            tensor.__dlpack__(stream=stream)
    for stream in (None, -1, 1 if kind == 2 else 0):  # the stream that the tensor was made on: nothing to wait for
        assert "dltensor" in repr(tensor.__dlpack__(stream=stream))
    with pytest.raises(TypeError, match="integer"):
        tensor.__dlpack__(stream="1")
    for stream in (0, 1, -2, 2**70):
        with pytest.raises(RuntimeError, match=f"stream = {stream} for a tensor on the CPU; expected None"):
            narrows.from_dlpack(X).__dlpack__(stream=stream)


def test_a_number_beside_a_producer_that_says_no_dtype():
    np.testing.assert_array_equal(narrows.subtract(3, Again()).numpy(), 2)
    with pytest.raises(ValueError, match="expected a real number that float64 holds"):
        narrows.subtract(10**400, Again())


def test_integers_of_any_kind():
    assert narrows.conv1d(X, X, padding=np.int64(2), stride=np.int8(2)).shape == (3,)
    assert narrows.conv1d(X, X, padding=np.array([2, 2])).shape == (5,)
    assert narrows.empty(np.int64(3)).shape == narrows.empty([np.int8(3)]).shape == narrows.empty(range(3, 4)).shape == (3,)
    assert narrows.empty(np.array([2, 3])).shape == (2, 3)


def test_a_capsule_that_clears_the_exception_when_it_goes():
    clear = ctypes.cast(ctypes.pythonapi.PyErr_Clear, ctypes.c_void_p).value
    for call in (lambda liar: narrows.add(liar, 1), lambda liar: narrows.add(X, liar), narrows.from_dlpack):
        liar = Leaving(fake_capsule(ndim=99, destructor=clear))
        with pytest.raises(ValueError, match="a tensor of 99 dimensions"):
            call(liar)


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
        given = narrows.lltm(Thief(), np.zeros((6, 4), "float32"), np.ones(6, "float32"), zeros, zeros, out=out)
        assert out == [] and [y.shape for y in given] == [(1, 2), (1, 2)]


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
    with pytest.raises(ValueError, match=r"function = .*Nasty.*; expected one of 'neg', "):
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
    with pytest.raises(error, match=words):
        narrows.subtract(1, Interface(**changes))


@pytest.mark.skipif(present.GPU, reason="the memory would be read")
def test_a_number_ahead_of_a_cuda_array_interface():
    with pytest.raises(RuntimeError, match="no plugin"):
        narrows.subtract(2, Interface())
    with pytest.raises(ValueError, match="a = 256 does not fit uint8"):
        narrows.subtract(256, Interface(typestr="|u1"))


def test_how_a_call_is_made_is_never_ignored():
    """stream=, backend=, kernel= and deterministic= need a direct call; elsewhere they are refused."""
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
            with pytest.raises(
                NotImplementedError,
                match=rf"{next(iter(how))} needs a direct call, and this one (goes through|copies to|has a number)",
            ):
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
