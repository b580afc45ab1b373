# SPDX-License-Identifier: Apache-2.0
"""torch.onnx.export(dynamo=True) with narrows.torch.onnx_table(): the model's values, by ONNX's reference evaluator and by onnxruntime."""

import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx", reason="onnx is not installed; ./run check python installs it")
pytest.importorskip("onnxscript", reason="onnxscript is not installed; ./run check python installs it")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed; ./run check python installs it")
from onnx.reference import ReferenceEvaluator  # noqa: E402

import narrows  # noqa: E402
import narrows.torch  # noqa: E402
from narrows import _function_table, _functions  # noqa: E402
from torch_inputs import pairs  # noqa: E402

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

REFUSED = {name for name, row in _functions.TABLE.items() if row[0] in _function_table.ONNX_LACKS}
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


class Module(torch.nn.Module):
    """Of a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def exported(call, *inputs, **how):
    """The ONNX model."""
    module = call if isinstance(call, torch.nn.Module) else Module(call)
    how = {"verbose": False, "optimize": False, **how}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        table = narrows.torch.onnx_table()
        return torch.onnx.export(module.eval(), inputs, dynamo=True, custom_translation_table=table, **how).model_proto


def as_numpy(x):
    x = x.detach()
    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def by_reference(model, *inputs):
    """The outputs by the package onnx."""
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(
            None, dict(zip((i.name for i in model.graph.input), map(as_numpy, inputs), strict=True))
        )


def by_onnxruntime(model, *inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in model.graph.input), map(as_numpy, inputs), strict=True)))


RUNTIMES = [by_reference, *([by_onnxruntime] if onnxruntime is not None else [])]


# ---- every function ----

EPSILON = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}
LEAST = {"float16": 2**-24, "bfloat16": 2**-133, "float32": 2**-149, "float64": 2**-1074}
# Formulas of which a part cancels, also in runtimes' Elu: exact beside 1.
CANCELS = {"gelu", "gelu_tanh", "logaddexp", "elu", "elu 0.3"}


def all_calls(dtype):
    """{name: a call of three tensors and a bool one}, of every function that ONNX can say of the dtype."""
    kinds = "FNA" if dtype.is_floating_point else "BA" if dtype == torch.bool else "NBIA"
    refused = REFUSED | ({"fma"} if dtype.is_floating_point else {"pow"})
    call = lambda f, n: lambda a, b, c, condition: f(*(a, b, c)[:n])  # noqa: E731
    table = {name: row for name, row in _functions.TABLE.items() if row[2] in kinds and name not in refused}
    found = {name: call(getattr(narrows, name), row[1]) for name, row in table.items()}
    found["where"] = lambda a, b, c, condition: narrows.where(condition, a, b)
    for to in (*INTEGERS, "float16", "float32", "float64", "bool"):
        found[f"astype {to}"] = lambda a, b, c, condition, to=to: narrows.astype(a, to)
    if dtype != torch.bool:
        found["add a number"] = lambda a, b, c, condition: narrows.add(a, 3)
        found["subtract from 1"] = lambda a, b, c, condition: narrows.subtract(1, a)
        found["pow 5"] = lambda a, b, c, condition: narrows.pow(a, 5)
        found["clip"] = lambda a, b, c, condition: narrows.clip(a, min=1)
        found["clip by two numbers"] = lambda a, b, c, condition: narrows.clip(narrows.minimum(a, 5), 2, 1)
    if dtype.is_floating_point:
        found["elu 0.3"] = lambda a, b, c, condition: narrows.elu(a, alpha=0.3)
        found["each sum is rounded"] = lambda a, b, c, condition: narrows.subtract(narrows.add(a, 3e-4), 1)
    elif dtype in (torch.int32, torch.int64):
        found["pow -3"] = lambda a, b, c, condition: narrows.pow(a, -3)
    return found


def assert_near(name, ours, expected, operands, runtime):
    """Equal, or within 8 units in the last place; the sign of a zero is not compared. onnxruntime's own tanh, sigmoid and elu are less
    exact where the result is small."""
    assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape), name
    kind = str(expected.dtype)
    if kind not in EPSILON:
        np.testing.assert_array_equal(ours, expected, err_msg=name)
        return
    ours, expected = (x.astype("float64") for x in (ours, expected))
    size = np.abs(expected)
    if name in CANCELS or runtime is by_onnxruntime:
        size = np.maximum(size, 1)
    same = (ours == expected) | (np.isnan(ours) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        same |= np.isfinite(expected) & (np.abs(ours - expected) <= np.maximum(8 * EPSILON[kind] * size, 2 * LEAST[kind]))
    assert same.all(), f"{name}: {ours[~same][:3]}; expected {expected[~same][:3]}, of {[x[~same][:3] for x in operands]}"


SOME = ["add", "add a number", "elu 0.3", "expm1", "cbrt", "log2", "each sum is rounded", "isfinite", "less", "where", "clip"]
SOME += [f"astype {to}" for to in ("int8", "uint32", "int64", "uint64", "float32", "bool")]


@pytest.mark.parametrize("dtypes", [("float32",), ("int32", "uint8", "bool"), ("float64", "bfloat16")], ids="-".join)
def test_values_are_those_of_our_kernels(dtypes):
    """All functions of each dtype, in one model. What only the reference computes is float64 and bfloat16."""
    calls, inputs = {}, []
    for dtype in dtypes:
        given = pairs(getattr(torch, dtype))
        given = [x.view(torch.uint8) != 0 for x in given] if dtype == "bool" else given  # runtimes read no other bytes
        found = all_calls(given[0].dtype)
        found = {name: found[name] for name in SOME} if len(dtypes) == 2 else found
        place = slice(len(inputs), len(inputs) + 4)
        inputs += (*given, torch.arange(len(given[0])) % 3 == 0)
        calls |= {(dtype, name): lambda *all, f=f, place=place: f(*all[place]) for name, f in found.items()}
    calls.pop(("float32", "astype uint64"), None)  # onnxruntime has no Where of uint64
    model = exported(lambda *inputs: tuple(f(*inputs) for f in calls.values()), *inputs)
    expected = [as_numpy(f(*inputs)) for f in calls.values()]
    for runtime in [by_reference] if "float64" in dtypes else RUNTIMES:
        for (dtype, name), ours, theirs in zip(calls, runtime(model, *inputs), expected, strict=True):
            operands = inputs[4 * dtypes.index(dtype) :][:2]
            assert_near(name, ours, theirs, list(map(as_numpy, operands)), runtime)


def test_every_function_is_translated_or_refused_with_a_reason():
    from narrows import _onnx_functions

    names = {row[0] for row in _functions.TABLE.values()} | {"cast"}
    assert names == _onnx_functions._FUNCTIONS.keys() | _function_table.ONNX_LACKS.keys()
    assert not _onnx_functions._FUNCTIONS.keys() & _function_table.ONNX_LACKS.keys()


# ---- models ----


class Network(torch.nn.Module):
    """Calls of conv1d and lltm, and numbers that are made of sizes."""

    def __init__(self):
        super().__init__()
        self.conv = narrows.torch.Conv1d(4, 6, 3, padding=1, padding_mode="reflect")
        self.cell = narrows.torch.LLTM(6, 5)

    def forward(self, x, w, bias, signal, taps, h, cell):
        y = narrows.relu(self.conv(x)).mean(2)
        return (
            *self.cell(y, (h, cell)),
            narrows.conv1d(x, w, bias, stride=2, padding=(1, 3), dilation=2),
            narrows.conv1d(x, w[:, :2], groups=2),
            narrows.conv1d(x[0], w, bias, padding="same"),
            narrows.conv1d(signal, taps, padding="causal"),
            narrows.conv1d(signal, taps, bias[:1]),
            narrows.conv1d(x[:0], w),
            narrows.multiply(narrows.add(x, x.shape[2]), x.shape[0] / 4),
            narrows.maximum(x[0], x),
            *(narrows.minimum(narrows.maximum(x, -bound), bound) for bound in (0.5, 1)),  # two clips of one tensor
        )


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float16", 4e-3)])
def test_models_with_open_sizes(dtype, tolerance):
    shapes = (2, 4, 20), (6, 4, 3), (6,), (15,), (4,), (2, 5), (2, 5)
    network, inputs = Network().to(getattr(torch, dtype)), [torch.randn(*s, dtype=getattr(torch, dtype)) for s in shapes]
    n, length = torch.export.Dim("n"), torch.export.Dim("length", min=6)
    sizes = {0: n, 2: length}, None, None, None, None, {0: n}, {0: n}
    model = exported(network, *inputs, dynamic_shapes=sizes, optimize=dtype == "float32")
    others = [torch.randn(3, 4, 31), *inputs[1:5], torch.randn(3, 5), torch.randn(3, 5)]
    for given in (inputs, [x.to(inputs[0].dtype) for x in others]):
        with torch.no_grad():
            expected = network(*given)
        for runtime in RUNTIMES:
            for ours, theirs in zip(runtime(model, *given), expected, strict=True):
                theirs = as_numpy(theirs)
                assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
                np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


# ---- what is refused ----

WRONG = {
    "function erfc of float32 cannot be said": lambda x: narrows.erfc(x),
    "conv1d: pad_left is made of sizes": lambda x: narrows.conv1d(x, x[:2], padding=x.shape[0]),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_onnx_cannot_say_is_refused(words):
    with pytest.raises(torch.onnx.errors.OnnxExporterError, match=f"NotImplementedError'>: .*{words}"):
        exported(WRONG[words], torch.randn(5), dynamic_shapes=(({0: torch.export.Dim("n", min=3)},),))


@pytest.mark.parametrize("function, dtype", [("copysign", "float64"), ("fma", "float32"), ("pow", "int64")])
def test_what_onnx_cannot_say_of_a_dtype_is_refused(function, dtype):
    from narrows import _onnx_functions, _torch_onnx

    operators = _torch_onnx.Operators(dtype)
    with pytest.raises(NotImplementedError, match=f"function {function} of {dtype} .*cannot be said by ONNX's operators: "):
        _onnx_functions.find(function, operators)(operators, None, None, exponent=None)


def test_a_missing_onnxscript_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "narrows._torch_onnx", raising=False)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match="onnx_table: onnxscript is missing; pip install onnxscript"):
        narrows.torch.onnx_table()
