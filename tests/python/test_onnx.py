# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend tests, those of one node that we have an op for: models, inputs and outputs are the package's."""

import glob
import os
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed; ./run check python installs it")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed; ./run check python installs it")
backend_tests = pytest.importorskip("onnx.backend.test", reason="this onnx came without its backend tests")
from onnx import helper, numpy_helper  # noqa: E402

import narrows  # noqa: E402
import present  # noqa: E402
from narrows._function_table import ONNX, TABLE  # noqa: E402


def chained(function):
    """max and min of any number of inputs."""

    def run(*inputs):
        result = inputs[0]
        for x in inputs[1:]:
            result = function(result, x)
        return result

    return run


def clip(x, low=None, high=None, *, min=None, max=None):
    """Both ends may be absent; before opset 11 they were attributes."""
    low, high = (min, max) if low is None and high is None else (low, high)
    y = x if low is None else narrows.maximum(x, low)
    return y if high is None else narrows.minimum(y, high)


def conv(x, w, b=None, *, pads=(0, 0), strides=(1,), dilations=(1,), group=1, kernel_shape=None):
    return narrows.conv1d(x, w, b, stride=strides[0], padding=tuple(pads), dilation=dilations[0], groups=group)


def mod(a, b, *, fmod=0):
    return (narrows.fmod if fmod else narrows.remainder)(a, b)


def bit_shift(a, b, *, direction):
    return (narrows.bitwise_left_shift if direction == b"LEFT" else narrows.bitwise_right_shift)(a, b)


def is_inf(x, *, detect_negative=1, detect_positive=1):
    found = narrows.isinf(x)
    if not detect_negative:
        found = narrows.logical_and(found, narrows.greater(x, 0))
    return found if detect_positive else narrows.logical_and(found, narrows.less(x, 0))


def gelu(x, *, approximate=b"none"):
    return (narrows.gelu_tanh if approximate == b"tanh" else narrows.gelu)(x)


def cast(x, *, to, saturate=1, round_mode=b""):
    return narrows.astype(x, helper.tensor_dtype_to_np_dtype(to).name)


# Functions that are an operator of ONNX by the table, and those that are one by another name, by its arguments or by more than one.
OPS = {ONNX[row[0]]: getattr(narrows, name) for name, row in TABLE.items() if row[0] in ONNX} | {
    "And": narrows.logical_and,
    "BitShift": bit_shift,
    "BitwiseAnd": narrows.bitwise_and,
    "BitwiseNot": narrows.bitwise_invert,
    "BitwiseOr": narrows.bitwise_or,
    "BitwiseXor": narrows.bitwise_xor,
    "Cast": cast,
    "Ceil": narrows.ceil,
    "Clip": clip,
    "Conv": conv,
    "Div": narrows.divide,
    "Elu": narrows.elu,
    "Floor": narrows.floor,
    "Gelu": gelu,
    "IsInf": is_inf,
    "IsNaN": narrows.isnan,
    "Max": chained(narrows.maximum),
    "Min": chained(narrows.minimum),
    "Mod": mod,
    "Neg": narrows.negative,
    "Not": narrows.logical_not,
    "Or": narrows.logical_or,
    "Pow": narrows.pow,
    "Relu": narrows.relu,
    "Round": narrows.round,
    "Swish": lambda x, *, alpha=1.0: narrows.silu(x),
    "Where": narrows.where,
    "Xor": narrows.logical_xor,
}

# What is refused here, with the error's words; everything else must give ONNX's result.
REFUSED = {
    "test_pow_types_": "expected",  # operands of two dtypes: never promoted in silence
    "test_equal_string": "expected",
    "FLOAT8": "dtype",
    "FLOAT4": "dtype",
    "INT4": "dtype",
    "INT2": "dtype",
}
# ONNX says otherwise there, or leaves it open; docs/ops.md says what is done.
DIFFERENT = {
    "negative_shift": "ONNX leaves a negative shift open",
}


def single_nodes():
    """Cases that the package makes, of one node that OPS has."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        nodes = case.model.graph.node
        two_dimensional = nodes[0].op_type == "Conv"
        if len(nodes) == 1 and nodes[0].op_type in OPS and not case.name.startswith("test_castlike") and not two_dimensional:
            yield case.name, case.model, case.data_sets, case.rtol, case.atol


def converted():
    """Models that were exported from torch, with their data in files: conv1d and activations."""
    root = os.path.join(os.path.dirname(backend_tests.__file__), "data")
    for folder in sorted(glob.glob(os.path.join(root, "pytorch-*", "test_*"))):
        model = onnx.load(os.path.join(folder, "model.onnx"))
        nodes = model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in OPS:
            continue
        if nodes[0].op_type == "Conv" and "onv1d" not in folder:
            continue
        sets = []
        for data in sorted(glob.glob(os.path.join(folder, "test_data_set_*"))):
            inputs = [onnx.load_tensor(f) for f in sorted(glob.glob(os.path.join(data, "input_*.pb")))]
            sets.append((inputs, [onnx.load_tensor(f) for f in sorted(glob.glob(os.path.join(data, "output_*.pb")))]))
        yield os.path.basename(folder), model, sets, 1e-3, 1e-6


CASES = [*single_nodes(), *converted()]


def array(x):
    return np.asarray(numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x)


def run(model, inputs, device):
    node = model.graph.node[0]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if attributes.pop("broadcast", 0):  # before opset 7 broadcasting was asked for
        attributes.pop("axis", None)
    given = dict(zip([i.name for i in model.graph.input], map(array, inputs), strict=False))
    given |= {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    arrays = (present.sent(given.get(name), device) if name else None for name in node.input)
    return present.brought(OPS[node.op_type](*arrays, **attributes))


def same(result, expected, rtol, atol):
    expected = array(expected)
    assert result.dtype == expected.dtype and result.shape == expected.shape
    if result.dtype.kind not in "fV":
        np.testing.assert_array_equal(result, expected)
    else:
        rtol = {"bfloat16": 1e-2, "float16": 2e-3}.get(result.dtype.name, rtol)
        np.testing.assert_allclose(result.astype("float64"), expected.astype("float64"), rtol=rtol, atol=atol)


@pytest.mark.parametrize("device", present.DEVICES)
@pytest.mark.parametrize("name, model, sets, rtol, atol", CASES, ids=[c[0] for c in CASES])
def test_node(name, model, sets, rtol, atol, device):
    for part, reason in DIFFERENT.items():
        if part in name:
            pytest.skip(reason)
    words = next((w for part, w in REFUSED.items() if part in name and not name.endswith(("int64_int64", "int32_int32"))), None)
    assert sets
    for inputs, outputs in sets:
        if words is not None:
            with pytest.raises((ValueError, TypeError, NotImplementedError), match=words):
                run(model, inputs, "cpu")  # whatever the device, nothing gets there
        else:
            same(run(model, inputs, device), outputs[0], rtol, atol)


def test_the_package_has_what_we_look_for():
    nodes = {c[1].graph.node[0].op_type for c in CASES}
    assert len(CASES) > 250 and set(OPS) - nodes == set()
    assert sum("onv1d" in c[0] for c in CASES) >= 8
