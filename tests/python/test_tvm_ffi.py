# SPDX-License-Identifier: Apache-2.0
"""Functions of tvm-ffi on arrays of any framework, and ops as functions of tvm-ffi: the same memory, and errors in their own words."""

import importlib

import numpy as np
import pytest

tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed; ./run check python installs it")
import narrows  # noqa: E402
from present import GPU  # noqa: E402


def address(x):
    """Where the elements of an array of NumPy, torch, JAX, narrows or tvm-ffi lie."""
    if isinstance(x, np.ndarray):
        return x.ctypes.data
    if hasattr(x, "unsafe_buffer_pointer"):
        return x.unsafe_buffer_pointer()
    return x.data_ptr() if callable(x.data_ptr) else x.data_ptr


def arrays(framework, values):
    """A NumPy array as one of that framework, on the CPU."""
    if framework == "numpy":
        return values
    if framework == "narrows":
        return narrows.from_dlpack(values)
    module = pytest.importorskip("jax.numpy" if framework == "jax" else framework)
    return module.asarray(values) if framework == "jax" else module.from_numpy(values)


FRAMEWORKS = ["numpy", "torch", "jax", "narrows"]


def values(x):
    return x.numpy() if isinstance(x, narrows.Tensor) else np.asarray(x)


def add_scaled(x, y, factor, out):
    """A kernel as tvm-ffi has them: it writes into its last argument."""
    np.add(np.from_dlpack(x), factor * np.from_dlpack(y), out=np.from_dlpack(out))


# ---- functions of tvm-ffi ----


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_function_gets_the_memory_itself(framework):
    seen = []
    call = narrows.from_tvm_ffi(tvm_ffi.convert(lambda x, number, text: seen.append((x.data_ptr(), x.shape, number, text))))
    x = arrays(framework, np.arange(6, dtype="float32").reshape(2, 3))
    assert call(x, 2.5, "words") is None
    assert seen == [(address(x), (2, 3), 2.5, "words")]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_outputs_are_arrays_of_the_first_input_s_framework(framework):
    x = arrays(framework, np.arange(6, dtype="float32").reshape(2, 3))
    call = narrows.from_tvm_ffi(tvm_ffi.convert(add_scaled), outputs=lambda x, y, factor: (x.shape, x.dtype))
    out = call(x, x, 3.0)
    assert type(out) is type(x) and out.dtype == x.dtype
    np.testing.assert_array_equal(values(out), 4 * np.arange(6, dtype="float32").reshape(2, 3))


def test_several_outputs_lie_where_the_function_wrote():
    written = []

    def divide(x, y, quotient, rest):
        written.extend([quotient.data_ptr(), rest.data_ptr()])
        np.divmod(np.from_dlpack(x), np.from_dlpack(y), out=(np.from_dlpack(quotient), np.from_dlpack(rest)))

    x, y = np.array([7, 9], "int64"), np.array([2, 5], "int64")
    call = narrows.from_tvm_ffi(tvm_ffi.convert(divide), outputs=lambda x, y: [(x.shape, "int64"), ((2,), x.dtype)])
    out = call(x, y)
    assert isinstance(out, tuple) and [address(o) for o in out] == written
    assert [o.tolist() for o in out] == [[3, 1], [1, 4]]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_it_returns_comes_back_without_a_copy(framework):
    x = arrays(framework, np.arange(16, dtype="float32"))
    call = narrows.from_tvm_ffi(tvm_ffi.convert(lambda x: (x, 7)))
    out, number = call(x)
    assert type(out) is type(x) and address(out) == address(x) and number == 7


def test_strides_and_dtypes_arrive():
    seen = []
    call = narrows.from_tvm_ffi(tvm_ffi.convert(lambda x: seen.append((str(x.dtype), x.shape, x.strides))))
    x = np.zeros((4, 6), "float16")[::2, 1:4]
    read_only = np.zeros(3, "int8")
    read_only.flags.writeable = False
    call(x)
    call(read_only)
    assert seen == [("float16", (2, 3), (12, 1)), ("int8", (3,), (1,))]


@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError, MemoryError])
def test_errors_of_a_function_keep_their_words(error):
    def fail(x):
        raise error("the factor is 3; expected 4")

    with pytest.raises(error, match=r"^the factor is 3; expected 4$"):
        narrows.from_tvm_ffi(tvm_ffi.convert(fail))(np.ones(2))


def test_what_from_tvm_ffi_refuses():
    function = tvm_ffi.convert(lambda *inputs: pytest.fail("it was called"))
    x = np.ones(2)
    with pytest.raises(TypeError, match=r"function = 3; expected a tvm_ffi\.Function"):
        narrows.from_tvm_ffi(3)
    with pytest.raises(TypeError, match="outputs = 3; expected a function of the inputs"):
        narrows.from_tvm_ffi(function, outputs=3)
    with pytest.raises(TypeError, match="no input is an array; expected one at least"):
        narrows.from_tvm_ffi(function)(3)
    for made in (3, [3], ((2,), "float32", 1)):
        with pytest.raises(TypeError, match=r"outputs gives .*; expected \(shape, dtype\), or a list of them"):
            narrows.from_tvm_ffi(function, outputs=lambda x, made=made: made)(x)
    with pytest.raises(ValueError, match="complex"):
        narrows.from_tvm_ffi(function, outputs=lambda x: ((2,), "complex64"))(x)


def test_a_gradient_is_not_dropped_in_silence():
    torch = pytest.importorskip("torch")
    call = narrows.from_tvm_ffi(tvm_ffi.convert(add_scaled), outputs=lambda x, y, factor: (x.shape, x.dtype))
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match=r"an input requires a gradient, and a function of tvm-ffi has none; expected x\.detach"):
        call(x, x, 1.0)
    with torch.no_grad():
        assert call(x, x, 1.0).tolist() == [2, 2, 2]
    assert call(x.detach(), x.detach(), 1.0).tolist() == [2, 2, 2]


# ---- ops ----


def test_an_op_is_a_function():
    x, w = np.arange(15, dtype="float32"), np.array([0, 1, 2, 3], "float32")
    conv1d = narrows.to_tvm_ffi("conv1d", stride=2)
    assert isinstance(conv1d, tvm_ffi.Function)
    out = conv1d(x, w)
    assert isinstance(out, tvm_ffi.Tensor)
    np.testing.assert_array_equal(np.from_dlpack(out), np.correlate(x, w)[::2])
    tvm_ffi.register_global_func("narrows.test.conv1d", conv1d, override=True)
    np.testing.assert_array_equal(np.from_dlpack(tvm_ffi.get_global_func("narrows.test.conv1d")(x, w)), np.correlate(x, w)[::2])


def test_outputs_that_are_given_are_written():
    x, y = np.arange(4, dtype="float32"), np.full(4, 9, "float32")
    double = narrows.to_tvm_ffi(narrows.op("elementwise", function="mul"))
    inputs = [x, 2.0, *[None] * (len(narrows.ops.elementwise.inputs) - 2)]
    assert double(*inputs, y) is None
    assert y.tolist() == [0, 2, 4, 6]


def test_an_op_s_params_are_bound(scale_plugin):
    scale = narrows.to_tvm_ffi(scale_plugin.scale, factor=4.0)
    assert np.from_dlpack(scale(np.ones(2, "float32"))).tolist() == [4, 4]
    assert np.from_dlpack(narrows.to_tvm_ffi("test.scale", factor=5.0)(np.ones(2, "float32"))).tolist() == [5, 5]


def test_several_outputs_are_an_array_of_them():
    shapes = ((2, 3), (12, 7), (12,), (2, 4), (2, 4))  # input, weights, bias, old_h, old_cell
    inputs = [np.random.default_rng(i).normal(size=shape).astype("float32") for i, shape in enumerate(shapes)]
    gates = np.concatenate([inputs[3], inputs[0]], 1).astype("float64") @ inputs[1].T.astype("float64") + inputs[2]
    write, show, candidate = gates[:, :4], gates[:, 4:8], gates[:, 8:]
    cell = inputs[4] + np.where(candidate > 0, candidate, np.expm1(candidate)) / (1 + np.exp(-write))
    expected = np.tanh(cell) / (1 + np.exp(-show)), cell
    out = narrows.to_tvm_ffi("lltm")(*inputs)
    assert len(out) == 2
    for got, want in zip(out, expected, strict=True):
        np.testing.assert_allclose(np.from_dlpack(got), want, rtol=1e-5, atol=1e-6)


def test_torch_gets_torch_tensors():
    """As tvm-ffi does where an argument is one."""
    torch = pytest.importorskip("torch")
    x = torch.arange(4.0)
    out = narrows.to_tvm_ffi("elementwise", function="mul")(x, 3.0)
    assert isinstance(out, torch.Tensor) and out.tolist() == [0, 3, 6, 9]


def test_errors_of_an_op_keep_their_type_and_words(scale_plugin):
    x = np.ones((2, 3), "float32")
    with pytest.raises(ValueError, match="conv1d: w "):
        narrows.to_tvm_ffi("conv1d")(x, np.ones((2, 2, 2, 2), "float32"))
    with pytest.raises(NotImplementedError, match="float32"):
        narrows.to_tvm_ffi(scale_plugin.scale)(np.ones(2, "int32"))
    inputs = len(narrows.ops.conv1d.inputs)
    with pytest.raises(
        ValueError, match=f"conv1d: {inputs + 2} arguments; expected at most {inputs} inputs, or {inputs} and 1 outputs"
    ):
        narrows.to_tvm_ffi("conv1d")(*[x] * (inputs + 2))
    with pytest.raises(TypeError, match="op = 3; expected an op or its name"):
        narrows.to_tvm_ffi(3)
    with pytest.raises(ValueError, match="nothing/1"):
        narrows.to_tvm_ffi("vendor.nothing/1")


def test_there_and_back():
    """An op as a function of tvm-ffi, on a framework's arrays."""
    call = narrows.from_tvm_ffi(narrows.to_tvm_ffi("elementwise", function="add"))
    out = call(np.arange(3, dtype="float32"), np.ones(3, "float32"))
    assert type(out) is np.ndarray and out.tolist() == [1, 2, 3]


@pytest.mark.skipif(not GPU, reason="no GPU of NVIDIA's")
def test_streams_on_a_gpu(torch):
    """The function sees torch's current stream as tvm-ffi's, and an op runs on tvm-ffi's."""
    seen = []
    call = narrows.from_tvm_ffi(tvm_ffi.convert(lambda x: seen.append((tvm_ffi.get_raw_stream(x.device), x.data_ptr()))))
    x, stream = torch.ones(1000, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(x)
    assert seen == [(stream.cuda_stream, x.data_ptr())]
    double = narrows.to_tvm_ffi("elementwise", function="mul")
    with tvm_ffi.use_torch_stream(torch.cuda.stream(stream)):
        out = importlib.import_module("torch").from_dlpack(double(x, 2.0))
    stream.synchronize()
    assert out.eq(2).all()
