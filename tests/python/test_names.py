# SPDX-License-Identifier: Apache-2.0
"""Names: errors say the function that was called, and its own arguments; a mistyped name is told the nearest; no op's name decides
what the package does, but in the files that docs/internals/python.md lists."""

import ast
import importlib
import inspect
import pathlib
import re

import numpy as np
import pytest

import narrows

X = np.ones(3, "float32")
DOUBLE = np.ones(3)
READ_ONLY = np.ones(3, "float32")
READ_ONLY.flags.writeable = False

# A call that fails, and how its message begins.
CALLED = {
    "too many operands": (lambda: narrows.add(X, X, X, X), "add takes 2 operands; 4 were given"),
    "one more operand": (lambda: narrows.add(X, X, X), "add takes 2 operands; 3 were given"),
    "a number too many": (lambda: narrows.exp(X, 2.0), "exp takes 1 operand; 2 were given"),
    "another's param": (lambda: narrows.add(X, X, alpha=2), "add has no argument 'alpha'; it has a, b, out, device"),
    "the op's param": (lambda: narrows.exp(X, function="sin"), "exp has no argument 'function'; it has a, out, device"),
    "a number's param": (lambda: narrows.add(X, 2, b_real=3.0), "add has no argument 'b_real'; it has a, b, out"),
    "clip's number": (lambda: narrows.clip(X, 0, 1, c_real=3.0), "clip has no argument 'c_real'; it has x, min, max, out"),
    "floats alone": (lambda: narrows.exp(X.astype(int)), "exp: a has dtype int64; expected float16, bfloat16, float32, float64"),
    "no bool": (lambda: narrows.add(X > 0, X > 0), "add: a has dtype bool; expected float16, bfloat16, float32, float64 or an int"),
    "padding": (lambda: narrows.conv1d(X, X, padding=-1), "conv1d: padding = -1; expected 0 or more"),
    "paddings": (lambda: narrows.conv1d(X, X, padding=(0, -2)), "conv1d: padding = (0, -2); expected 0 or more"),
    "an operand twice": (lambda: narrows.add(X, X, a=X), "add: a is given twice"),
    "out": (lambda: narrows.add(X, X, out=[1]), "add: out: int is no array; expected an array, as numpy.asarray"),
    "read-only": (lambda: narrows.add(X, X, out=READ_ONLY), "add: out is read-only"),
    "complex": (lambda: narrows.add(X.astype("complex64"), X), "add: a: a NumPy array of dtype complex64"),
    "dtypes": (lambda: narrows.multiply(X, DOUBLE), "multiply: b has dtype float64; expected float32 as a has"),
    "shapes": (lambda: narrows.add(X, np.ones(4, "float32")), "add: a of shape (3,) and b of shape (4,) do not broadcast"),
    "a number": (lambda: narrows.add(np.int8([1]), 300), "add: b = 300 does not fit int8"),
    "numbers": (lambda: narrows.add(1, 2), "add: no input is an array; expected an array among them, as numpy.asarray"),
    "numbers and device": (lambda: narrows.add(1, 2, device="cpu"), "add: no input is an array; expected an array among them"),
    "a parameter": (lambda: narrows.elu(X, alpha="a"), "elu: alpha is 'a'; expected a real number"),
    "stream": (lambda: narrows.add(X, X, stream="a"), "add: stream is 'a'"),
    "backend": (lambda: narrows.add(X, X, backend=3), "add: backend is 3; expected a str"),
    "kernel": (lambda: narrows.add(X, X, kernel="none"), "add: cpu: no kernel 'none'"),
    "clip a list": (lambda: narrows.clip([1.0], 0, 1), "clip: x: list is no array"),
    "clip by a list": (lambda: narrows.clip(X, 0, [1.0]), "clip: max: list is no array"),
    "clip's dtypes": (lambda: narrows.clip(X, DOUBLE, 1), "clip: min has dtype float64; expected float32 as x has"),
    "clip's shapes": (lambda: narrows.clip(X, 0, np.ones(4, "float32")), "clip: x of shape (3,) and max of shape (4,) do not broadcast"),
    "clip above": (lambda: narrows.clip(X, max=DOUBLE), "clip: max has dtype float64; expected float32 as x has"),
    "clip integers below": (lambda: narrows.clip(np.int32([1]), min=1.5), "clip: min is 1.5 beside int32 operands"),
    "clip nothing": (lambda: narrows.clip(X, out=[1]), "clip: out: int is no array"),
    "clip numbers": (lambda: narrows.clip(1, 0, 2), "clip: no input is an array; expected an array among them"),
    "astype's dtype": (lambda: narrows.astype(X, "flaot32"), "astype: dtype = 'flaot32'; expected one of 'float32'"),
    "astype of text": (lambda: narrows.astype("a", "int8"), "astype: x: str is no array"),
    "an absent argument": (lambda: narrows.lltm(X, bias=X, old_h=X, old_cell=X), "lltm: weights: the argument is missing"),
    "an absent dtype": (lambda: narrows.astype(X), "astype: dtype is missing"),
}  # fmt: skip


@pytest.mark.parametrize("call, words", CALLED.values(), ids=CALLED)
def test_errors_name_the_function_that_was_called(call, words):
    with pytest.raises((TypeError, ValueError, NotImplementedError), match="^" + re.escape(words)):
        call()


def test_none_stands_for_an_operand_that_a_function_does_not_have():
    """As generated code calls it."""
    np.testing.assert_array_equal(narrows.add(X, X, None), X + X)
    np.testing.assert_array_equal(narrows.exp(X, None, None), narrows.exp(X))
    with pytest.raises(TypeError, match="add takes 2 operands; 4 were given"):
        narrows.add(X, X, None, X)


def test_errors_of_an_op_have_its_name():
    with pytest.raises(ValueError, match=r"^elementwise: add: b has dtype"):
        narrows.op("elementwise", function="add")(X, DOUBLE)
    with pytest.raises(TypeError, match=r"^elementwise takes 3 tensors; 4 were given"):
        narrows.op("elementwise", function="add")(X, X, X, X)


def test_an_ops_name_is_a_string():
    op = narrows.op("elementwise", function="add")
    for name, shown in ((None, "None"), (3, "3")):
        with pytest.raises(TypeError, match=rf"elementwise: __name__ is {shown}; expected a string"):
            op.__name__ = name
    with pytest.raises(TypeError, match="elementwise: __name__ is deleted; expected a string"):
        del op.__name__
    op.__name__ = "plus"
    with pytest.raises(ValueError, match=r"^plus: b has dtype"):
        op(X, DOUBLE)


def test_an_input_that_is_named_as_a_word_of_every_call():
    """Given by its place it leaves the word to the call: where a forward op's output is named out, its backward op has such an input."""
    backward = narrows.op("elementwise_backward", function="exp")
    assert backward.inputs[4] == "out?"
    grad = np.empty_like(X)
    backward(X, X, None, None, np.exp(X), out=(grad, None, None))
    np.testing.assert_allclose(grad, X * np.exp(X), rtol=1e-6)


def test_others_errors_stay_as_they_are():
    class Mine(TypeError):
        pass

    class Refusing:
        def __dlpack__(self, **_):
            raise Mine("elementwise: mine")

        __dlpack_device__ = __dlpack__

    with pytest.raises(Mine, match=r"^elementwise: mine$"):
        narrows.add(X, Refusing())


NEAR = {
    "conv1d": (lambda: narrows.conv1d(X, X, strides=2), "conv1d has no argument 'strides'", "stride"),
    "lltm": (lambda: narrows.lltm(X, weigths=X, bias=X, old_h=X, old_cell=X), "lltm has no argument 'weigths'", "weights"),
    "astype": (lambda: narrows.astype(X, dtpye="int8"), "astype has no argument 'dtpye'", "dtype"),
    "clip": (lambda: narrows.clip(X, minn=0), "clip has no argument 'minn'", "min"),
    "clip with bounds": (lambda: narrows.clip(X, 0, 1, devcie="cpu"), "clip has no argument 'devcie'", "device"),
    "elu": (lambda: narrows.elu(X, alhpa=1), "elu has no argument 'alhpa'", "alpha"),
    "load_inline": (lambda: narrows.load_inline("a", cpp_source=""), "load_inline has no argument 'cpp_source'", "cpp_sources"),
    "build": (lambda: narrows.build(file="a.c"), "build has no argument 'file'", "files"),
    "narrows": (lambda: narrows.Conv1d, "module 'narrows' has no attribute 'Conv1d'", "conv1d"),
    "narrows.program": (lambda: narrows.program.prim_fun, "module 'narrows.program' has no attribute 'prim_fun'", "prim_func"),
    "narrows.testing": (lambda: narrows.testing.chek_op, "module 'narrows.testing' has no attribute 'chek_op'", "check_op"),
    "hip": (lambda: narrows.Device("hip"), "device 'hip'; expected one of cpu, cuda, ", "rocm"),
    "cdua": (lambda: narrows.add(X, X, device="cdua:0"), "device 'cdua:0'; expected one of cpu, cuda, ", "cuda"),
}  # fmt: skip


@pytest.mark.parametrize("call, words, instead", NEAR.values(), ids=NEAR)
def test_mistyped_names_are_told_the_nearest(call, words, instead):
    with pytest.raises((TypeError, ValueError, AttributeError), match=f"^{words}.*; did you mean '{instead}'\\?$"):
        call()


@pytest.mark.parametrize("framework, name, instead", [("torch", "LLMT", "LLTM"), ("jax", "cal", "call")])
def test_mistyped_attributes_of_frameworks_modules(framework, name, instead):
    pytest.importorskip(framework)
    module = importlib.import_module(f"narrows.{framework}")
    with pytest.raises(AttributeError, match=f"module 'narrows.{framework}' has no attribute '{name}'; did you mean '{instead}'"):
        getattr(module, name)


@pytest.mark.parametrize("module", ["program", "testing"])
def test_dir_shows_what_is_public(module):
    shown = dir(importlib.import_module(f"narrows.{module}"))
    assert [n for n in shown if n.startswith("_")] == ["__doc__"]
    public = {"program": {"prim_func", "Schedule", "script", "from_tvm"}, "testing": {"check_op", "conform", "Report"}}
    assert public[module] <= set(shown) and not {"importlib", "os", "Any", "TYPE_CHECKING"} & set(shown)


def test_signatures_show_what_has_to_be_given():
    required = lambda f: [p.name for p in inspect.signature(f).parameters.values() if p.default is p.empty]  # noqa: E731
    assert required(narrows.conv1d) == ["x", "w"] and required(narrows.astype) == ["x", "dtype"]
    assert required(narrows.lltm) == ["input", "weights", "bias", "old_h", "old_cell"]
    for function in (narrows.conv1d, narrows.lltm, narrows.astype):
        assert "unknown" not in inspect.signature(function).parameters


ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "bindings/python/narrows"


def string_constants(path):
    """The strings of a Python file, or those of a C++ file that are one word."""
    text = path.read_text()
    if path.suffix == ".py":
        return {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    return set(re.findall(r'"(\w+)"', text))


def test_no_ops_name_decides_outside_of_the_sugar():
    text = (ROOT / "docs/internals/python.md").read_text().partition("## Sugar")[2].partition("\n## ")[0]
    sugar = {PACKAGE / name for name in re.findall(r"^\| `([\w/]+\.py)`", text, re.M)}
    ops = set(re.findall(r"^NARROWS_OP\((\w+)\)$", (ROOT / "core/ops/ops.inc").read_text(), re.M))
    assert sugar and ops and ops <= set(narrows.ops)
    files = list(PACKAGE.rglob("*.py"))
    for folder in ("python/src", "torch", "xla"):
        found = [path for path in (ROOT / "bindings" / folder).rglob("*") if path.suffix in (".h", ".hpp", ".cpp")]
        assert found, folder
        files += found
    named = {path: words for path in files if (words := string_constants(path) & ops)}
    assert named.keys() == sugar, named
