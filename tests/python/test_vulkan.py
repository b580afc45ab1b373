# SPDX-License-Identifier: Apache-2.0
"""Vulkan through Python, on the first device of that backend (NARROWS_PLUGIN_PATH): memory of our own, copies, streams, export, device=.
What only computes values is in test_functions.py and test_onnx.py, on every device. Skipped where there is no Vulkan device."""

import ctypes
import gc
import os
import pathlib
import subprocess
import sys
import weakref

import numpy as np
import pytest

import narrows
import present
from narrows.program import PrimFunc, Schedule, _tuning

if "vulkan:0" not in present.DEVICES:
    pytest.skip("the vulkan backend has no device here", allow_module_level=True)

X = np.linspace(-2, 2, 1000, dtype="float32")
VULKAN = narrows.Device("vulkan")


def test_numpy_goes_there_and_comes_back():
    np.testing.assert_allclose(narrows.exp(X, device="vulkan"), np.exp(X), rtol=1e-5)
    out = np.empty_like(X)
    assert narrows.add(X, 2, out=out, device="vulkan") is out
    np.testing.assert_array_equal(out, X + 2)
    x, w = np.random.default_rng(0).normal(size=(2, 4, 60)).astype("float32"), np.ones((3, 4, 5), "float32")
    np.testing.assert_allclose(narrows.conv1d(x, w, device="vulkan"), narrows.conv1d(x, w), rtol=1e-4, atol=1e-4)
    cell = [
        np.random.default_rng(i).normal(size=s).astype("float32") for i, s in enumerate(((2, 3), (12, 7), (12,), (2, 4), (2, 4)))
    ]
    for ours, expected in zip(narrows.lltm(*cell, device="vulkan"), narrows.lltm(*cell), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_tensors_stay_there():
    t = narrows.from_dlpack(X, "vulkan")
    y = narrows.multiply(narrows.add(t, 1), t)
    assert type(y) is narrows.Tensor and y.device == VULKAN and y.dtype == "float32"
    np.testing.assert_allclose(y.numpy(), (X + 1) * X, rtol=1e-6)
    assert y.to("cpu").device == narrows.Device("cpu") and y.to("vulkan").device == VULKAN
    out = narrows.empty(X.shape, device="vulkan")
    assert narrows.add(t, t, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X + X)
    halves = narrows.from_dlpack(X.astype("float16"), "vulkan")
    np.testing.assert_array_equal(narrows.astype(halves, "float32").numpy(), X.astype("float16").astype("float32"))


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class View:
    """Elements of a tensor, which has no views of its own, as another array."""

    def __init__(self, tensor, like, shape, strides, first=0):
        self.tensor, self.byte_offset, self.ndim = tensor, 4 * first, len(shape)
        self.shape, self.strides = (ctypes.c_int64 * len(shape))(*shape), (ctypes.c_int64 * len(shape))(*strides)
        self.expected = np.lib.stride_tricks.as_strided(like.ravel()[first:], shape, [4 * s for s in strides])

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream=None):
        capsule = self.tensor.__dlpack__(stream=stream)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        t = DLTensor.from_address(pointer(capsule, b"dltensor"))
        t.ndim, t.shape, t.strides, t.byte_offset = self.ndim, self.shape, self.strides, t.byte_offset + self.byte_offset
        return capsule


def test_a_remembered_plan_is_for_calls_alike():
    """In place or not, of other shapes, strides, alignments or dtypes: each call takes the plan of its own kind, in any order."""
    table = np.arange(600, dtype="float32").reshape(20, 30)
    t = narrows.from_dlpack(table, "vulkan")
    views = (
        [(20, 30), (30, 1)],
        [(20, 30), (1, 20)],
        [(20, 30), (0, 1)],
        [(10, 30), (60, 1)],
        [(20, 29), (30, 1), 1],
        [(0, 30), (30, 1)],
    )
    views = [View(t, table, *view) for view in views]
    y = np.arange(1000, dtype="float32")
    on_device, out = narrows.from_dlpack(y, "vulkan"), narrows.empty(X.shape, device="vulkan")
    halves = narrows.from_dlpack(X.astype("float16"), "vulkan")
    for _ in range(3):
        for view in views:
            ones = narrows.from_dlpack(np.ones(view.expected.shape, "float32"), "vulkan")
            np.testing.assert_array_equal(narrows.add(ones, view).numpy(), 1 + view.expected)
        x = narrows.from_dlpack(X, "vulkan")
        np.testing.assert_array_equal(narrows.add(x, on_device).numpy(), X + y)
        assert narrows.add(x, on_device, out=out) is out
        np.testing.assert_array_equal(out.numpy(), X + y)
        np.testing.assert_array_equal(narrows.add(halves, halves).numpy(), (X + X).astype("float16"))
        assert narrows.add(x, on_device, out=x) is x
        np.testing.assert_array_equal(x.numpy(), X + y)
        narrows.add(on_device, x, out=x)
        np.testing.assert_array_equal(x.numpy(), X + y + y)
        with pytest.raises(ValueError, match="out has shape"):
            narrows.add(x, on_device, out=narrows.empty(3, device="vulkan"))


def test_a_plugin_that_is_loaded_gets_calls_that_were_planned_without_it():
    script = f"""
import numpy, narrows
x = narrows.from_dlpack(numpy.ones(4, "float32"), "vulkan")
out = narrows.empty(4, device="vulkan")
for _ in range(3):
    narrows.add(x, x, out=out)
    narrows.add(x, x)
narrows.load(narrows.build({str(pathlib.Path(__file__).parent / "plugins" / "bare.c")!r}))
for given in ({{"out": out}}, {{}}):
    try:
        narrows.add(x, x, **given)
    except RuntimeError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"BARE_DEVICE": "7"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("it was asked for a plan") == 2, done.stdout


def test_several_devices_in_one_call_are_refused():
    t = narrows.from_dlpack(X, "vulkan")
    for arguments in ((t, X), (X, t), (t, narrows.from_dlpack(X))):
        with pytest.raises((ValueError, RuntimeError), match="device"):
            narrows.add(*arguments)
    with pytest.raises((ValueError, RuntimeError), match="device"):
        narrows.add(t, 1, out=np.empty_like(X))
    with pytest.raises((ValueError, RuntimeError), match="ulkan:63 does not exist"):
        narrows.empty(3, device="vulkan:63")


def test_export_says_where_it_is():
    """No framework reads Vulkan's memory in place; one that asks for the CPU gets a copy, and memory has no host address."""
    t = narrows.from_dlpack(X, "vulkan")
    assert t.__dlpack_device__() == (7, 0)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(t)
    with pytest.raises(TypeError, match="vulkan:0, not on the CPU"):
        np.asarray(t)
    np.testing.assert_array_equal(np.asarray(t.to("cpu")), X)
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # before that it cannot ask for a device
        np.testing.assert_array_equal(np.from_dlpack(t, device="cpu"), X)
        with pytest.raises((BufferError, ValueError)):
            np.from_dlpack(t, device="cpu", copy=False)
    again = narrows.from_dlpack(t)  # the same memory, by DLPack
    assert again.device == VULKAN and again.data_ptr == t.data_ptr
    del t
    np.testing.assert_array_equal(again.numpy(), X)
    with pytest.raises(BufferError):
        narrows.from_dlpack(again, "cpu", copy=False)


def test_streams():
    stream, other = narrows.Stream("vulkan"), narrows.Stream("vulkan:0")
    assert stream.device == VULKAN and stream.handle != other.handle
    t = narrows.from_dlpack(X).to("vulkan", stream=stream)
    for _ in range(20):
        t = narrows.add(t, 1)
    assert t.stream == stream.handle
    other.wait(stream)
    y = narrows.multiply(t, 2, stream=other)
    other.sync()
    np.testing.assert_allclose(y.numpy(), (X + 20) * 2, rtol=1e-5, atol=1e-5)
    alive = weakref.ref(stream)
    del stream, y
    gc.collect()
    assert alive() is not None  # t was made on it
    del t
    gc.collect()
    assert alive() is None


def test_the_example_of_every_device():
    example = pathlib.Path(__file__).parents[2] / "examples" / "puzzle17.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    device = next(i for i, line in enumerate(lines) if line.startswith("vulkan:0: "))
    assert lines[device + 1] == "14 20 26 32 38 44 50 56 62 68 74 80 41 14 0"


@pytest.fixture
def squares():
    return PrimFunc(
        "program 1 squares(A: f32[1000], B: out f32[1000]):\n  for i in 1000:\n    block B(vi: S(1000) = i):\n"
        "      B[vi] = A[vi] * A[vi]\n"
    )


@pytest.mark.parametrize("given", [{"device": "vulkan"}, {"device": "vulkan", "backend": "vulkan"}, {}])
def test_a_schedule_is_measured_where_the_arrays_are(squares, given, tmp_path, monkeypatch):
    monkeypatch.setenv("NARROWS_CACHE_DIR", str(tmp_path))
    x = X if given else narrows.from_dlpack(X, "vulkan")
    sch = Schedule(squares)
    outer, inner = sch.split("i", [None, 100])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")  # which the cpu backend refuses
    if given:
        assert sch.evaluate(x, **given).error == 0
    seen = []
    monkeypatch.setattr(_tuning, "_machine", lambda backend: seen.append(backend) or {"backend": backend})
    monkeypatch.setattr(_tuning, "compared", lambda *_: None)
    sch.tune(x, budget=1e-9, **given)
    assert set(seen) == {"vulkan"}


def test_a_backend_of_another_device_is_refused(squares):
    for measure in (Schedule(squares).evaluate, Schedule(squares).tune):
        with pytest.raises(ValueError, match="the arrays are on vulkan:0"):
            measure(X, device="vulkan", backend="cpu")
