# SPDX-License-Identifier: Apache-2.0
"""libnarrows_onnxruntime: ops as ONNX Runtime's custom ops. NARROWS_ONNXRUNTIME names the library; ./run check onnxruntime builds it."""

import os

import numpy as np
import pytest

LIBRARY = os.environ.get("NARROWS_ONNXRUNTIME", "")
if not LIBRARY:
    pytest.skip("NARROWS_ONNXRUNTIME names no library: ./run check onnxruntime builds it", allow_module_level=True)
onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")

import narrows  # noqa: E402

TYPES = {
    "float32": onnx.TensorProto.FLOAT,
    "float64": onnx.TensorProto.DOUBLE,
    "float16": onnx.TensorProto.FLOAT16,
    "int32": onnx.TensorProto.INT32,
    "bool": onnx.TensorProto.BOOL,
}


def session(op, inputs, outputs, **attributes):
    """Of a model of one node. inputs: {name: dtype}, "" is absent; outputs: {name: dtype}."""
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node(op, list(inputs), list(outputs), domain="narrows", **attributes)
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [info(name, TYPES[dtype], None) for name, dtype in inputs.items() if name],
        [info(name, TYPES[dtype], None) for name, dtype in outputs.items() if name],
    )
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("narrows", 1)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(LIBRARY)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(op, inputs, outputs=None, **attributes):
    """The outputs of a node; inputs: {name: array}, by default one output of the first input's dtype."""
    arrays = {name: x for name, x in inputs.items() if name}
    outputs = outputs or {"y": next(iter(arrays.values())).dtype.name}
    made = session(op, {name: x.dtype.name if name else "float32" for name, x in inputs.items()}, outputs, **attributes)
    return made.run(None, arrays)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_conv1d(dtype):
    x, w = np.arange(15, dtype=dtype), np.array([0, 1, 2, 3], dtype)
    (y,) = run("conv1d", {"x": x, "w": w}, stride=2)
    np.testing.assert_array_equal(y, np.correlate(x, w)[::2].astype(dtype))
    (y,) = run("conv1d", {"x": x, "w": w}, pad_right=3)
    np.testing.assert_array_equal(y, np.correlate(np.append(x, np.zeros(3, dtype)), w).astype(dtype))


def test_params_of_each_kind():
    x = np.array([-2.0, 0.5, 3.0])
    (y,) = run("elementwise", {"a": x, "b": x}, function="mul")
    np.testing.assert_array_equal(y, x * x)


@pytest.mark.parametrize("factor", [2.5, 3])  # an integer is a number
def test_a_plugin_s_op(scale_plugin, factor):
    x = np.arange(6, dtype="float32").reshape(2, 3)
    (y,) = run("test_scale_1", {"x": x}, factor=factor)
    np.testing.assert_array_equal(y, np.float32(factor) * x)


def test_a_plugin_that_is_loaded_between_two_sessions():
    x = np.ones(3, "float32")
    with pytest.raises(Exception, match="late_negate_1"):
        run("late_negate_1", {"x": x})
    narrows.load_inline("late", LATE)
    assert run("late_negate_1", {"x": x})[0].tolist() == [-1, -1, -1]


LATE = """
#include <narrows/plugin.hpp>
void negate(const narrows::plugin::Launch& call) {
  const float* x = call.input<float>(0);
  float* y = call.output<float>(0);
  for (int64_t i = 0; i < call.size(0); ++i) y[i] = -x[i];
}
NARROWS_PLUGIN("late", {.name = "late.negate/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = negate})
"""

COUNT = """
#include <narrows/plugin.hpp>
void count(const narrows::plugin::Launch& call) {
  const bool* x = call.input<bool>(0);
  const float* weight = call.has_input(1) ? call.input<float>(1) : nullptr;
  for (int64_t i = 0; i < call.size(0); ++i) call.output<int32_t>(0)[i] = x[i] ? 7 : 0;
  for (int64_t i = 0; i < call.size(1); ++i) call.output<float>(1)[i] = weight ? weight[i] : -1;
}
NARROWS_PLUGIN("count", {.name = "count.both/1", .inputs = {"x: bool", "weight?: f32"}, .outputs = {"n: i32", "w: f32"},
                         .shape_rule = "N ; N? -> N ; N", .kernel = count})
"""


def test_dtypes_of_single_tensors_and_an_absent_input():
    narrows.load_inline("count", COUNT)
    x, weight, outputs = np.array([True, False]), np.array([3, 4], "float32"), {"n": "int32", "w": "float32"}
    n, w = run("count_both_1", {"x": x, "weight": weight}, outputs)
    assert n.tolist() == [7, 0] and w.tolist() == [3, 4]
    n, w = run("count_both_1", {"x": x}, outputs)
    assert n.tolist() == [7, 0] and w.tolist() == [-1, -1]


def test_several_outputs_and_one_that_is_not_wanted():
    """An LLTM's; gates is for the gradient alone."""
    shapes = {"input": (2, 3), "weights": (12, 7), "bias": (12,), "old_h": (2, 4), "old_cell": (2, 4)}
    inputs = {name: np.random.default_rng(len(name)).normal(size=shape) for name, shape in shapes.items()}
    gates = np.concatenate([inputs["old_h"], inputs["input"]], 1) @ inputs["weights"].T + inputs["bias"]
    write, show, candidate = gates[:, :4], gates[:, 4:8], gates[:, 8:]
    cell = inputs["old_cell"] + np.where(candidate > 0, candidate, np.expm1(candidate)) / (1 + np.exp(-write))
    expected = [np.tanh(cell) / (1 + np.exp(-show)), cell, gates]
    for names in (["h", "cell"], ["h", "cell", "gates"]):
        out = run("lltm", inputs, dict.fromkeys(names, "float64"))
        for got, want in zip(out, expected, strict=False):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_sizes_that_are_known_at_the_call_alone():
    made = session("elementwise", {"a": "float32"}, {"y": "float32"}, function="square")
    for shape in ((), (0,), (3, 0), (2, 3), (100_003,)):
        x = np.random.default_rng(0).normal(size=shape).astype("float32")
        np.testing.assert_array_equal(made.run(None, {"a": x})[0], x * x)


@pytest.mark.parametrize(
    "op, inputs, attributes, words",
    [
        ("conv1d", ("float32", (5,), (2, 2, 2, 2)), {}, "conv1d: w"),
        ("conv1d", ("float32", (5,), (9,)), {}, "conv1d"),
        ("conv1d", ("float32", (5,), (2,)), {"stride": 1.5}, "attribute stride is of the wrong type or length; expected 1 integer"),
        (
            "conv1d",
            ("float32", (5,), (2,)),
            {"stride": [1, 2]},
            "attribute stride is of the wrong type or length; expected 1 integer",
        ),
        ("conv1d", ("int32", (5,), (2,)), {}, "dtype int32"),
        ("elementwise", ("float32", (5,), (5,)), {"function": "maximun"}, "function is 'maximun'.*did you mean 'maximum'"),
        ("elementwise", ("float32", (5,), (5,)), {"function": 3}, "attribute function is of the wrong type; expected a string"),
        ("elementwise", ("float32", (5,), (5,)), {"function": "lt"}, "has another dtype than the inputs"),
        ("test_scale_1", ("float32", (5,)), {"factor": "2"}, "attribute factor is of the wrong type or length; expected 1 number"),
        ("test_scale_1", ("int32", (5,)), {}, "float32"),
    ],
)
def test_errors_have_the_library_s_words(scale_plugin, op, inputs, attributes, words):
    dtype, *shapes = inputs
    with pytest.raises(Exception, match=words):
        run(op, dict(zip("xw", (np.ones(s, dtype) for s in shapes), strict=False)), **attributes)


def test_a_model_of_several_nodes():
    """Between two of ONNX's own operators."""
    info, f = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    nodes = [
        onnx.helper.make_node("Neg", ["x"], ["a"]),
        onnx.helper.make_node("conv1d", ["a", "w"], ["b"], domain="narrows", pad_right=2),
        onnx.helper.make_node("elementwise", ["b"], ["c"], domain="narrows", function="square"),
        onnx.helper.make_node("Add", ["c", "x"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "four", [info("x", f, ["L"]), info("w", f, [3])], [info("y", f, None)])
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("narrows", 1)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(LIBRARY)
    x, w = np.arange(7, dtype="float32"), np.array([1, -2, 3], "float32")
    made = onnxruntime.InferenceSession(model.SerializeToString(), options)
    expected = np.correlate(np.append(-x, [0, 0]), w) ** 2 + x
    np.testing.assert_array_equal(made.run(None, {"x": x, "w": w})[0], expected)
