# SPDX-License-Identifier: Apache-2.0
"""NumPy in and out: layouts, dtypes, out=, device=, against NumPy's own results; and narrows.Tensor."""

import gc
import pathlib
import copy
import pickle
import re
import subprocess
import sys
import sysconfig
import weakref

import numpy as np
import pytest

import narrows


def conv1d_reference(x, w, bias, stride, left, right, dilation, groups):
    x = np.pad(x.astype("float64"), [(0, 0), (0, 0), (left, right)])
    n, _, length = x.shape
    o, per_group, k = w.shape
    t = (length - dilation * (k - 1) - 1) // stride + 1
    y = np.zeros((n, o, t))
    for i in range(o):
        first = i // (o // groups) * per_group
        for j in range(t):
            at = j * stride + dilation * np.arange(k)
            y[:, i, j] = np.einsum("nck,ck->n", x[:, first : first + per_group][:, :, at], w[i].astype("float64"))
    return y + (0 if bias is None else bias[None, :, None])


@pytest.mark.parametrize("stride, padding, dilation, groups", [(1, 0, 1, 1), (2, 1, 1, 1), (1, (0, 3), 2, 1), (3, (2, 1), 1, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_conv1d(stride, padding, dilation, groups, bias):
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(2, 4, 19)), rng.normal(size=(6, 4 // groups, 3)), rng.normal(size=6)
    left, right = (padding, padding) if isinstance(padding, int) else padding
    expected = conv1d_reference(x, w, b if bias else None, stride, left, right, dilation, groups)
    y = narrows.conv1d(x, w, b if bias else None, stride=stride, padding=padding, dilation=dilation, groups=groups)
    np.testing.assert_allclose(y, expected, rtol=1e-10)


def test_conv1d_paddings_by_name():
    x, w = np.arange(8, dtype="float32"), np.float32([1, 2, 3])
    np.testing.assert_allclose(narrows.conv1d(x, w, padding="same"), np.correlate(x, w, "same"))
    np.testing.assert_allclose(narrows.conv1d(x, w, padding="valid"), np.correlate(x, w, "valid"))
    np.testing.assert_allclose(narrows.conv1d(x, w, padding="causal"), np.correlate(np.append([0, 0], x), w, "valid"))
    with pytest.raises(ValueError, match="expected a number"):
        narrows.conv1d(x, w, padding="full")
    with pytest.raises(ValueError, match="stride = 0"):
        narrows.conv1d(x, w, stride=0)


def test_lltm():
    rng = np.random.default_rng(0)
    x, w, b, h, c = (
        rng.normal(size=(3, 5)),
        rng.normal(size=(12, 9)),
        rng.normal(size=12),
        rng.normal(size=(3, 4)),
        rng.normal(size=(3, 4)),
    )
    gates = np.concatenate([h, x], 1) @ w.T + b
    i, o, z = 1 / (1 + np.exp(-gates[:, :4])), 1 / (1 + np.exp(-gates[:, 4:8])), gates[:, 8:]
    cell = c + np.where(z > 0, z, np.expm1(z)) * i
    new_h, new_cell = narrows.lltm(x, w, b, h, c)
    np.testing.assert_allclose(new_cell, cell, rtol=1e-10)
    np.testing.assert_allclose(new_h, np.tanh(cell) * o, rtol=1e-10)


def test_lltm_sequence():
    rng = np.random.default_rng(0)
    x, w, b, h, c = (rng.normal(size=s) for s in ((3, 5, 6), (12, 10), 12, (3, 4), (3, 4)))
    got, new_h, new_cell = narrows.ops.lltm_sequence(x, w, b, h, c, batch_first=1, reverse=1)
    for t in reversed(range(5)):
        h, c = narrows.lltm(np.ascontiguousarray(x[:, t]), w, b, h, c)
        np.testing.assert_allclose(got[:, t], h, rtol=1e-10)
    np.testing.assert_allclose(new_h, h, rtol=1e-10)
    np.testing.assert_allclose(new_cell, c, rtol=1e-10)
    with pytest.raises(ValueError, match="lengths has dtype int64; expected int32"):
        narrows.ops.lltm_sequence(x, w, b, h, c, np.zeros(3, "int64"), batch_first=1)


def test_square_roots_are_correctly_rounded():
    """As NumPy's, which are the processor's: every mantissa of f32, and f64's hardest, next to squares of what lies halfway between two."""
    x = (np.arange(1 << 24, dtype="uint32") + np.uint32(0x3F800000)).view("float32")  # 1 to 4, which stand for all
    np.testing.assert_array_equal(narrows.sqrt(x), np.sqrt(x))
    halfway = (np.random.default_rng(0).integers(1 << 52, 1 << 53, 1 << 20) + np.longdouble(0.5)) / (1 << 52)
    near = (halfway * halfway).astype("float64")
    for x in (np.nextafter(near, 0), near, np.nextafter(near, 5)):
        np.testing.assert_array_equal(narrows.sqrt(x), np.sqrt(x))
    if np.finfo(np.longdouble).nmant == 63:  # hard they are: rounded twice, some are wrong
        assert (np.sqrt(near.astype(np.longdouble)).astype("float64") != np.sqrt(near)).any()


@pytest.mark.parametrize("layout", ["transposed", "reversed", "every second", "broadcast", "offset by a byte", "0-d", "empty"])
def test_layouts(layout):
    base = np.arange(24, dtype="float32").reshape(4, 6)
    x = {
        "transposed": base.T,
        "reversed": base[::-1, ::-1],
        "every second": base[::2, 1::2],
        "broadcast": np.broadcast_to(base[0], (3, 6)),
        "offset by a byte": np.frombuffer(b"\0" + base.tobytes(), "float32", offset=1),
        "0-d": np.array(3, "float32"),
        "empty": base[:0],
    }[layout]
    y = narrows.add(x, x)
    assert y.shape == x.shape and y.flags.c_contiguous
    np.testing.assert_array_equal(y, x + x)


def test_what_was_inferred_is_for_its_shape_and_params_only():
    for n in [*range(1, 150), *range(1, 150)]:
        assert narrows.add(np.ones(n, "float32"), 1).shape == (n,)
        assert narrows.op("conv1d")(np.ones(200, "float32"), np.ones(1, "float32"), stride=n).shape == ((199 // n) + 1,)
    for dtype in ("float32", "int32", "float32"):
        assert narrows.add(np.ones(7, dtype), 1).dtype == dtype


def test_out():
    x = np.ones(6, "float32")
    out = np.zeros(12, "float32")[::2]
    assert narrows.add(x, 1, out=out) is out
    np.testing.assert_array_equal(out, 2)
    assert narrows.add(x, x, out=x) is x  # in place
    h, c = np.zeros((1, 2)), np.zeros((1, 2))
    given = np.empty((1, 2)), np.empty((1, 2))
    assert narrows.lltm(np.zeros((1, 3)), np.zeros((6, 5)), np.zeros(6), h, c, out=given) is given
    assert given[0][0, 0] == 0


def test_device_sends_and_brings_back():
    x = np.arange(6, dtype="float32").reshape(2, 3).T
    for device in narrows.devices():
        np.testing.assert_array_equal(narrows.add(x, 1, device=device), x + 1)
        out = np.empty_like(x)
        assert narrows.multiply(x, x, out=out, device=str(device)) is out
        np.testing.assert_array_equal(out, x * x)
    with pytest.raises(ValueError, match="device 'moon'"):
        narrows.add(x, 1, device="moon")
    with pytest.raises(RuntimeError, match="no plugin serves Metal:3"):
        narrows.add(x, 1, device="metal:3")


def test_named_arguments_and_options():
    x = np.ones(3, "float32")
    np.testing.assert_array_equal(narrows.op("elementwise")(a=x, b=x, function="sub"), 0)
    np.testing.assert_array_equal(narrows.op("conv1d")(w=x, x=x), [3])
    np.testing.assert_array_equal(narrows.add(x, x, backend="cpu", deterministic=True), 2)
    with pytest.raises(NotImplementedError, match="kernel"):
        narrows.add(x, x, kernel="none of that name")


def test_ops_are_values():
    every_second = narrows.op("conv1d", stride=2)
    assert every_second is narrows.op("conv1d", stride=2)
    assert repr(every_second) == "narrows.op('conv1d', stride=2)"
    assert every_second.params["stride"] == 2 and every_second.params["dilation"] == 1
    assert every_second.inputs == ("x", "w", "bias?") and every_second.backward == "conv1d_backward"
    for again in (pickle.loads(pickle.dumps(every_second)), copy.copy(every_second), copy.deepcopy(every_second)):
        assert again == every_second and again.__name__ == "conv1d"
    assert narrows.ops["conv1d"].op == "conv1d" and "lltm" in list(narrows.ops)
    with pytest.raises(KeyError, match="nope"):
        narrows.ops["nope"]
    with pytest.raises(AttributeError, match="unknown op 'nope'"):
        _ = narrows.ops.nope


@pytest.mark.parametrize("name", ["clip", "add", "elu", "where"])
def test_a_function_is_one_object_in_pickles_and_copies(name):
    function = getattr(narrows, name)
    assert copy.copy(function) is function and copy.deepcopy([function])[0] is function
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(function, protocol)) is function
    bound = narrows.elu.bind(alpha=0.5)
    assert pickle.loads(pickle.dumps(bound)) == bound == copy.copy(bound)


# ---- narrows.Tensor ----


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint64", "bool"])
def test_tensor_round_trip(dtype):
    x = narrows.astype(np.float32([0, 1, 2]), dtype)
    t = narrows.from_dlpack(x)
    assert (t.shape, t.strides, t.dtype, str(t.device), t.nbytes) == ((3,), (1,), dtype, "cpu", 3 * x.itemsize)
    np.testing.assert_array_equal(t.numpy(), x)
    np.testing.assert_array_equal(t.to("cpu").numpy(), x)
    assert t.data_ptr == x.ctypes.data and t.to("cpu").data_ptr != t.data_ptr


def test_tensor_in_and_out():
    t = narrows.from_dlpack(np.float32([1, 2]))
    y = narrows.add(t, 1)
    assert type(y) is narrows.Tensor
    np.testing.assert_array_equal(np.from_dlpack(y), [2, 3])
    np.testing.assert_array_equal(np.asarray(y), [2, 3])
    out = narrows.empty((2,))
    assert narrows.add(t, t, out=out) is out
    np.testing.assert_array_equal(out.numpy(), [2, 4])


def test_tensor_keeps_its_memory():
    x = np.arange(1000, dtype="float32")
    t = narrows.from_dlpack(x)
    del x
    view = t.view("int32").view("float32").numpy()
    del t
    gc.collect()
    np.testing.assert_array_equal(view, np.arange(1000))


def test_strided_tensor_moves():
    t = narrows.from_dlpack(np.arange(6, dtype="int64").reshape(2, 3).T)
    assert not t.contiguous
    np.testing.assert_array_equal(t.to("cpu").numpy(), [[0, 3], [1, 4], [2, 5]])


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy exports no read-only arrays")
def test_read_only_comes_through():
    x = np.arange(3, dtype="float32")
    x.flags.writeable = False
    t = narrows.from_dlpack(x)
    assert t.read_only
    with pytest.raises(ValueError, match="read-only"):
        narrows.add(t, 1, out=t)
    with pytest.raises(BufferError, match=r"read-only .* needs DLPack 1\.0"):
        t.__dlpack__()  # the old kind cannot say it
    assert not np.from_dlpack(t).flags.writeable


def test_stream_and_device():
    s = narrows.Stream("cpu")
    s.sync()
    s.wait(narrows.Stream())
    assert s.handle == 0
    np.testing.assert_array_equal(narrows.add(np.float32([1]), 1, stream=s), [2])
    d = narrows.Device("cuda", 1)
    assert str(d) == "cuda:1" and d == narrows.Device(2, 1) and narrows.Device("cpu").info["name"]
    for bad in ("cuda:x", "planet"):
        with pytest.raises(ValueError, match="expected one of"):
            narrows.Device(bad)


def test_a_stream_lives_as_long_as_what_was_made_on_it():
    stream = narrows.Stream("cpu")
    alive = weakref.ref(stream)
    made = [narrows.empty(3, stream=stream), narrows.from_dlpack(np.ones(3, "float32")).to("cpu", stream)]
    made += [narrows.add(made[0], 1), narrows.add(narrows.empty(3), 1, stream=stream)]
    made += [made[0].view("int32"), narrows.add(made[0].view("int32"), 1)]
    del stream
    while made:
        gc.collect()
        assert alive() is not None
        made.pop(0)
    gc.collect()
    assert alive() is None


def test_the_structs_and_numbers_are_numpys():
    source = pathlib.Path(__file__).parents[2] / "bindings" / "python" / "src"
    fields = {"NumpyArray": ("PyArrayObject_fields", "data nd:ndim dimensions:shape strides base descr:descriptor flags"),
              "Descriptor": ("PyArray_Descr", "typeobj:type kind type:type_char byteorder:byte_order type_num:type_number")}  # fmt: skip
    lines = []
    for ours, (theirs, pairs) in fields.items():
        for pair in pairs.split():
            their_name, _, our_name = pair.partition(":")
            lines.append(
                f"static_assert(offsetof(narrows::numpy::{ours}, {our_name or their_name}) == offsetof({theirs}, {their_name}));"
            )
    numbers = {"kFloat": "NPY_FLOAT", "kDouble": "NPY_DOUBLE", "kHalf": "NPY_HALF", "kWriteable": "NPY_ARRAY_WRITEABLE", "0": "NPY_BOOL", "7": "NPY_LONG", "10": "NPY_ULONGLONG"}  # fmt: skip
    lines += [f"static_assert({ours} == {theirs});" for ours, theirs in numbers.items()]
    includes = [f"-I{np.get_include()}", f"-I{sysconfig.get_path('include')}", f"-I{source}"]
    text = (
        '#include <cstddef>\n#include "numpy_api.h"\n#include <numpy/ndarraytypes.h>\nusing namespace narrows::numpy;\n'
        + "\n".join(lines)
    )
    command = ["c++", "-std=c++20", "-fsyntax-only", "-x", "c++", *includes, "-"]
    subprocess.run(command, input=text, text=True, check=True)
    wrong = text.replace("NumpyArray, data)", "NumpyArray, ndim)")
    assert wrong != text and subprocess.run(command, input=wrong, text=True, capture_output=True).returncode != 0
    table = (pathlib.Path(np.get_include()) / "numpy" / "__multiarray_api.h").read_text()
    assert re.search(r"#define PyArray_New \\\n.*\n\s*PyArray_API\[93\]\)", table)
    assert "PyArray_Type (*(PyTypeObject *)PyArray_API[2])" in table


def test_asarray_of_tensors_without_a_buffer(monkeypatch):
    """Never an array of one object: bfloat16 by ml_dtypes, a GPU's tensor not at all."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    t = narrows.astype(narrows.from_dlpack(np.float32([1, 2.5])), "bfloat16")
    x = np.asarray(t)
    assert x.dtype == ml_dtypes.bfloat16 and x.tolist() == [1, 2.5] and x.ctypes.data == t.data_ptr
    assert np.array(t, copy=True).ctypes.data != t.data_ptr and np.asarray(t, "float32").dtype == np.float32
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for call in (lambda: np.asarray(t), t.numpy):
        with pytest.raises(NotImplementedError, match="install ml_dtypes"):
            call()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_has_one_owner(again):
    with pytest.raises(TypeError, match="is neither copied nor pickled"):
        again(narrows.Stream())
