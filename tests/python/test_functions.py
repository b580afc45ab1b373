# SPDX-License-Identifier: Apache-2.0
"""Every element-wise function against NumPy, its docstring, its signature, and the names in the stub."""

import ast
import doctest
import importlib
import inspect
import json
import math
import pathlib

import numpy as np
import pytest

import narrows
import present
from function_table import GIVES_BOOL, interval
from narrows import _functions

erf = np.vectorize(math.erf, otypes=[float])
erfc = np.vectorize(math.erfc, otypes=[float])


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


# What NumPy calls by another name, or does not have.
REFERENCE = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "round": np.rint,
    "bitwise_invert": np.invert,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sigmoid": sigmoid,
    "relu": lambda a: np.maximum(a, 0),
    "elu": lambda a: np.where(a > 0, a, np.expm1(a)),
    "gelu": lambda a: a * (1 + erf(a / np.sqrt(2))) / 2,
    "gelu_tanh": lambda a: a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))) / 2,
    "silu": lambda a: a * sigmoid(a),
    "softplus": lambda a: np.log1p(np.exp(a)),
    "erf": erf,
    "erfc": erfc,
    "fma": lambda a, b, c: a * b + c,
}


def reference(name):
    """NumPy's function. What it lacks is the op's of that name: conformance tests compare it with a reference of its own."""
    op = narrows.op("elementwise", function=_functions.TABLE[name][0])
    return REFERENCE[name] if name in REFERENCE else getattr(np, name, op)


def operands(name, dtype, rng):
    """Arrays that the function is defined on; the second and third broadcast."""
    count = _functions.TABLE[name][1]
    low, high = interval(_functions.TABLE[name][0], -3, 4)
    shapes = [(5, 7), (7,), (5, 1)][:count]
    if np.issubdtype(dtype, np.floating):
        arrays = [rng.uniform(low, high, s).astype(dtype) for s in shapes]
    else:
        arrays = [rng.integers(0, 6, s).astype(dtype) for s in shapes]
    if name == "where":
        arrays[0] = arrays[0] > 0
    if name in ("divide", "fmod", "remainder"):
        arrays[1][arrays[1] == 0] = 1
    return arrays


@pytest.mark.parametrize("device", present.DEVICES)
@pytest.mark.parametrize("name", _functions.TABLE)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
def test_against_numpy(name, dtype, device):
    kinds = _functions.TABLE[name][2]
    if {"f": "FNA", "i": "NBIA", "u": "NBIA", "b": "BA"}[np.dtype(dtype).kind].find(kinds) < 0:
        with pytest.raises(ValueError, match="dtype"):
            getattr(narrows, name)(*operands(name, dtype, np.random.default_rng(1)))
        return
    arrays = operands(name, dtype, np.random.default_rng(1))
    result = present.brought(getattr(narrows, name)(*(present.sent(a, device) for a in arrays)))
    with np.errstate(all="ignore"):
        expected = reference(name)(*(a.astype("float64") if a.dtype.kind == "f" else a for a in arrays))
    assert result.shape == expected.shape
    if name == "divide" and np.dtype(dtype).kind in "iu":
        expected = np.trunc(expected)
    assert result.dtype == (bool if name in GIVES_BOOL else np.dtype(dtype))
    np.testing.assert_allclose(
        result.astype("float64"), expected.astype("float64"), rtol=1e-5 if dtype == "float32" else 1e-11, atol=1e-6
    )


def bool_bytes(kind, values):
    array = np.array(values, "uint8").view(bool)
    if kind == "numpy":
        return array
    if kind == "torch":
        torch = pytest.importorskip("torch")
        return torch.tensor(values, dtype=torch.uint8).view(torch.bool)
    return pytest.importorskip("jax").dlpack.from_dlpack(array)


@pytest.mark.parametrize("kind", ["numpy", "torch", "jax"])
def test_any_byte_but_0_is_true(kind):
    a, b = bool_bytes(kind, [0, 1, 2, 255] * 9), bool_bytes(kind, [1, 2, 2, 1] * 9)
    zeros = bool_bytes(kind, [0] * 36)
    expected = {
        "equal": [0, 1, 1, 1],
        "not_equal": [1, 0, 0, 0],
        "logical_and": [0, 1, 1, 1],
        "logical_or": [1, 1, 1, 1],
        "logical_xor": [1, 0, 0, 0],
        "bitwise_and": [0, 1, 1, 1],
        "bitwise_or": [1, 1, 1, 1],
        "bitwise_xor": [1, 0, 0, 0],
    }
    results = {name: getattr(narrows, name)(a, b) for name in expected}
    for name in ("logical_not", "bitwise_invert"):
        results[name], expected[name] = getattr(narrows, name)(a), [1, 0, 0, 0]
    results["where"], expected["where"] = narrows.where(a, a, zeros), [0, 1, 1, 1]
    for dtype in ("bool", "uint8", "float32"):
        results[dtype], expected[dtype] = narrows.astype(a, dtype), [0, 1, 1, 1]
    for name, result in results.items():
        array = np.asarray(result)
        stored = array.view("uint8") if array.dtype == bool else array
        assert stored.tolist() == expected[name] * 9, name


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "less", "pow"])
def test_numbers_as_operands(name):
    x = np.linspace(1, 2, 5, dtype="float32")
    function, expected = getattr(narrows, name), reference(name)
    np.testing.assert_allclose(function(x, 2), expected(x, np.float32(2)), rtol=1e-6)
    np.testing.assert_allclose(function(3.5, x), expected(np.float32(3.5), x), rtol=1e-6)
    np.testing.assert_allclose(function(x, np.float32(2)), expected(x, np.float32(2)), rtol=1e-6)
    i = np.arange(1, 6, dtype="int16")
    np.testing.assert_array_equal(function(i, 3), expected(i, np.int16(3)))


def test_numbers_of_where_and_clip():
    x = np.array([-1, 0.5, 3], "float32")
    np.testing.assert_array_equal(narrows.where(x > 0, x, 0), [0, 0.5, 3])
    np.testing.assert_array_equal(narrows.where(x > 0, 1, x), [-1, 1, 1])
    np.testing.assert_array_equal(narrows.clip(x, 0, 1), [0, 0.5, 1])
    np.testing.assert_array_equal(narrows.where(x > 0, np.int32([1, 2, 3]), -7), [-7, 2, 3])


CLIPS = {  # what is given of min = 0 and max = 1: the arguments, and which bounds hold
    "no bound": (lambda f, x, low, high: f(x), False, False),
    "min by place": (lambda f, x, low, high: f(x, low), True, False),
    "min by name": (lambda f, x, low, high: f(x, min=low), True, False),
    "max by place": (lambda f, x, low, high: f(x, None, high), False, True),
    "max by name": (lambda f, x, low, high: f(x, max=high), False, True),
    "both by name": (lambda f, x, low, high: f(x, min=low, max=high), True, True),
    "one by place": (lambda f, x, low, high: f(x, low, max=high), True, True),
    "by the op's names": (lambda f, x, low, high: f(a=x, b=low, c=high), True, True),
}


@pytest.mark.parametrize("kind", ["numpy", "own", "torch", "torch with a gradient", "torch.compile", "jax", "jax.jit"])
@pytest.mark.parametrize("bounds", ["numbers", "arrays"])
@pytest.mark.parametrize("call, low, high", CLIPS.values(), ids=CLIPS)
def test_clip_is_the_array_apis(call, low, high, bounds, kind):
    values = np.array([-1, 0.5, 3, np.nan], "float32")
    as_kind, function = lambda x: x, narrows.clip
    if kind == "own":
        as_kind = narrows.from_dlpack
    elif kind.startswith("torch"):
        as_kind = pytest.importorskip("torch").from_numpy
    elif kind.startswith("jax"):
        as_kind = pytest.importorskip("jax.numpy").asarray
    x = as_kind(values)
    limits = (0, 1) if bounds == "numbers" else (as_kind(np.zeros(4, "float32")), as_kind(np.ones(1, "float32")))
    run = lambda x: call(function, x, *limits)  # noqa: E731
    if kind == "torch.compile":
        import torch

        torch._dynamo.reset()
        run = torch.compile(run, fullgraph=True, backend="aot_eager")
    elif kind == "jax.jit":
        import jax

        run = jax.jit(run)
    y = run(x.requires_grad_() if kind == "torch with a gradient" else x)
    if kind == "torch with a gradient":
        y[:3].sum().backward()
        np.testing.assert_array_equal(x.grad[:3], [not low, 1, not high])
        y = y.detach()
    assert type(y) is type(x)
    expected = np.array([0 if low else -1, 0.5, 1 if high else 3, np.nan], "float32")
    np.testing.assert_array_equal(np.asarray(y), expected)


ONE_BOUND = {
    "min": lambda x, b: narrows.clip(x, min=b),
    "max": lambda x, b: narrows.clip(x, max=b),
    "both": lambda x, b: narrows.clip(x, b, b),
}


@pytest.mark.parametrize("kind", ["torch", "torch.func", "torch.fx", "torch.compile", "jax"])
@pytest.mark.parametrize("bound", ["number", "array"])
@pytest.mark.parametrize("call", ONE_BOUND.values(), ids=ONE_BOUND)
def test_the_gradient_on_a_bound_is_1(call, bound, kind):
    """As that of two bounds, and of torch.clamp."""
    if kind == "jax":
        jax = pytest.importorskip("jax")
        b = 2.0 if bound == "number" else jax.numpy.full(3, 2.0)
        assert jax.grad(lambda x: call(x, b).sum())(jax.numpy.full(3, 2.0)).tolist() == [1, 1, 1]
        return
    torch = pytest.importorskip("torch")
    b = 2.0 if bound == "number" else torch.full((3,), 2.0)
    x, run = torch.full((3,), 2.0, requires_grad=True), lambda x: call(x, b)
    if kind == "torch.func":
        assert torch.func.grad(lambda x: run(x).sum())(x.detach()).tolist() == [1, 1, 1]
        return
    if kind == "torch.fx":
        import torch.fx

        run = torch.fx.symbolic_trace(run)
    elif kind == "torch.compile":
        torch._dynamo.reset()
        run = torch.compile(run, fullgraph=True, backend="aot_eager")
    run(x).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int16", "uint8"])
def test_a_clip_on_one_side_is_a_maximum_or_minimum(dtype):
    x, b = np.array([1, 5, 0, 3], dtype), np.array([2, 2, 3, 0], dtype)
    if dtype.startswith("float"):
        x[0], b[1], x[2] = np.nan, np.nan, -np.inf
    for low in (b, 3, b[:1]):
        np.testing.assert_array_equal(narrows.clip(x, low), np.maximum(x, np.asarray(low, dtype)))
        np.testing.assert_array_equal(narrows.clip(x, max=low), np.minimum(x, np.asarray(low, dtype)))
    np.testing.assert_array_equal(narrows.clip(2, x), np.maximum(np.asarray(2, dtype), x))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda x: narrows.clip(), "no array is given"),
        (lambda x: narrows.clip(min=x), "no array is given"),
        (lambda x: narrows.clip(2.0), "no input is an array"),
        (lambda x: narrows.clip(x, 0, min=0), "min is given twice"),
        (lambda x: narrows.clip(x, min=0, b=0), "given twice"),
        (lambda x: narrows.clip(x, 0, 1, 2), "takes 3 operands; 4 were given"),
        (lambda x: narrows.clip(x, 0, 1, lowest=0), "has no argument 'lowest'"),
        (lambda x: narrows.clip(x, min=0, max=1, lowest=0), "has no argument 'lowest'"),
        (lambda x: narrows.clip(x, lowest=0), "has no argument|no parameter 'lowest'"),
        (lambda x: narrows.clip(x, min="a"), "str"),
    ],
)
def test_clip_refuses(call, words):
    with pytest.raises(TypeError, match=words):
        call(np.ones(3, "float32"))


def test_clip_goes_where_it_is_sent():
    x, out = np.array([-1, 3], "float32"), np.empty(2, "float32")
    assert narrows.clip(x, min=0, out=out) is out and out.tolist() == [0, 3]
    assert narrows.clip(x, max=1, device="cpu").tolist() == [-1, 1]
    assert narrows.clip(x, out=out, kernel=None) is out and out.tolist() == [-1, 3]
    fx = pytest.importorskip("torch.fx")
    import torch

    traced = fx.symbolic_trace(lambda x: narrows.clip(narrows.clip(x, min=0, max=4), max=2))
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"] == [narrows.clip, narrows.clip]
    assert traced(torch.tensor([-1.0, 3])).tolist() == [0, 2]
    with pytest.raises(NotImplementedError, match="neither min nor max"):
        fx.symbolic_trace(lambda x: narrows.clip(x))


def test_elu_takes_alpha():
    x = np.float32([-1, 1])
    np.testing.assert_allclose(narrows.elu(x, alpha=0.5), [0.5 * np.expm1(-1), 1], rtol=1e-6)


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "int8", "bool"])
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float64", "int64", "uint8", "bool"])
def test_astype(source, target):
    import ml_dtypes

    types = {"bfloat16": ml_dtypes.bfloat16}
    x = np.array([0, 1, 2], types.get(source, source))
    result = narrows.astype(x, target)
    assert result.dtype == types.get(target, np.dtype(target))
    np.testing.assert_array_equal(result.astype("float32"), x.astype(types.get(target, target)).astype("float32"))


def test_signatures_and_names():
    words = "out=None, device=None, stream=None, backend=None, kernel=None, deterministic=False)"
    assert str(inspect.signature(narrows.add)) == f"(a, b, *, {words}"
    assert narrows.elu.__doc__.startswith(f"elu{inspect.signature(narrows.elu)} -> array\n")
    assert narrows.clip.__name__ == "clip" and "minimum(maximum(x, min), max)" in narrows.clip.__doc__.lower()
    assert {name for name in dir(narrows) if not name.startswith("_")} == {*narrows.__all__, "torch", "jax", "program", "testing"}
    for name, near in (
        ("mul", "multiply"),
        ("conv2d", "conv1d"),
        ("Sinh", "sinh"),
        ("reciprocl", "reciprocal"),
        ("load_inlin", "load_inline"),
    ):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; did you mean '{near}'\\?"):
            getattr(narrows, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = narrows.nothing


def test_an_ops_signature_and_docstring_are_its_declaration():
    found = inspect.signature(narrows.ops.conv1d).parameters
    assert list(found)[:6] == ["x", "w", "bias", "stride", "dilation", "groups"]
    assert found["w"].default is inspect.Parameter.empty and found["bias"].default is None and found["stride"].default == 1
    assert inspect.signature(narrows.op("conv1d", stride=2)).parameters["stride"].default == 2
    for name in narrows.ops:
        assert inspect.signature(narrows.ops[name]).parameters and narrows.ops[name].__doc__
    backward = list(inspect.signature(narrows.ops.lltm_backward).parameters)
    assert backward[:3] == ["grad_h", "grad_cell", "input"]
    text = narrows.ops.conv1d.__doc__
    for words in ("bias (may be absent)", "padding_mode: one of 'zeros'; 'zeros' unless given", "conv1d_backward", "N,C,L"):
        assert words in text
    assert json.loads(json.dumps(narrows.info()))["abi"] == 1


def test_every_function_of_the_op_has_a_name():
    functions = next(f for f in narrows.op("elementwise").fields if f[0] == "function")[3]
    named = {row[0] for row in _functions.TABLE.values()} | {"cast"}
    assert named == set(functions) - {""}


def test_the_stub_has_the_same_names():
    tree = ast.parse((pathlib.Path(narrows.__file__).parent / "__init__.pyi").read_text())
    names = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    names |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}
    names |= {alias.asname for n in tree.body if isinstance(n, ast.ImportFrom) for alias in n.names if alias.asname}
    assert set(narrows.__all__) <= names
    assert all(hasattr(narrows, n) for n in names if not n.startswith("_"))


def typed_dicts():
    """{name: {key: type}} of the stub's dictionaries, types in the stub's words."""
    tree = ast.parse((pathlib.Path(narrows.__file__).parent / "__init__.pyi").read_text())
    found: dict = {"TypedDict": {}}
    for c in tree.body:
        if isinstance(c, ast.ClassDef) and c.bases and ast.unparse(c.bases[0]) in found:
            own = {f.target.id: ast.unparse(f.annotation) for f in c.body if isinstance(f, ast.AnnAssign)}
            found[c.name] = {**found[ast.unparse(c.bases[0])], **own}
    return found


def check_type(value, written, dicts):
    if written in dicts:
        assert set(value) == set(dicts[written])
        for key, item in value.items():
            check_type(item, dicts[written][key], dicts)
    elif written.endswith(" | None"):
        if value is not None:
            check_type(value, written.removesuffix(" | None"), dicts)
    elif written.startswith("list["):
        assert type(value) is list
        for item in value:
            check_type(item, written[5:-1], dicts)
    else:
        assert type(value).__name__ == written


def test_info_is_of_the_stubs_types(scale_plugin):
    dicts = typed_dicts()
    check_type(narrows.info(), "_Info", dicts)
    check_type(narrows.Device("cpu").info, "_DeviceInfo", dicts)
    times = narrows.bench({"exp": narrows.exp}, np.ones(2, "float32"), seconds=0.001)
    assert list(times) == ["exp"] and type(times["exp"]) is float


@pytest.mark.parametrize(
    "module",
    [
        "narrows",
        "narrows._ops",
        "narrows._functions",
        "narrows._device",
        "narrows._bench",
        "narrows._build",
        "narrows.testing",
        "narrows.torch",
        "narrows.jax",
    ],
)
def test_examples_in_docstrings(module):
    if module in ("narrows.torch", "narrows.jax"):
        framework = module.partition(".")[2]
        pytest.importorskip(framework, reason=f"{framework} is not installed; ./run check python installs it")
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0 and result.failed == 0


def run_examples(name, text):
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert examples.examples, f"{name} has no example"
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(examples)
    assert runner.failures == 0


@pytest.mark.parametrize("name", sorted(set(narrows.__all__) - {"Op"}))  # what narrows.op makes has the docstring of narrows.op
def test_every_public_name_has_an_example_that_runs(name):
    if name.endswith("_tvm_ffi"):
        pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed; ./run check python installs it")
    value = getattr(narrows, name)
    text = inspect.getdoc(type(value) if name == "ops" else value)
    assert len(text) > 40
    run_examples(name, text)


@pytest.mark.parametrize("method", ["to", "numpy", "view"])
def test_examples_of_tensors(method):
    run_examples(method, getattr(narrows.Tensor, method).__doc__)


def test_where_says_which_operands_may_be_numbers():
    assert "b and c share one; a is an array of bool, and one of b and c may be a number" in narrows.where.__doc__
    x = np.ones(2, "float32")
    with pytest.raises(ValueError, match="a has dtype float32; expected bool"):
        narrows.where(True, x, x)
