# SPDX-License-Identifier: Apache-2.0
"""Numbers as operands: one rule whatever the framework, the place, the order and the transform. A real number is rounded once to the
operands' dtype, past the largest to an infinity, as NumPy, JAX and torch's own functions do; an integer has to fit."""

import math
import warnings

import numpy as np
import pytest

import narrows


def numpy_routes():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has bfloat16 from ml_dtypes, which is not installed")
    of = lambda values, dtype: np.array(values, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)  # noqa: E731
    values = lambda y: np.asarray(y).astype("float64").tolist()  # noqa: E731
    return {
        "numpy": (of, lambda f: f, values),
        "device": (of, lambda f: lambda x: f(x, device="cpu"), values),
        "own": (lambda v, d: narrows.from_dlpack(of(v, d)), lambda f: f, lambda y: values(y.numpy())),
    }


def torch_routes():
    torch = pytest.importorskip("torch", reason="torch is not installed; ./run check python installs it")

    def of(values, dtype):
        return torch.tensor(values, dtype=getattr(torch, dtype))

    def with_grad(f):
        return lambda x: f(x.requires_grad_() if x.is_floating_point() else x)

    def into(f):
        return lambda x: f(x, out=torch.empty_like(x))

    def compiled(f):
        torch.compiler.reset()
        return torch.compile(lambda x: f(x), backend="aot_eager", fullgraph=True)

    wraps = {"torch": lambda f: f, "autograd": with_grad, "vmap": torch.vmap, "compile": compiled, "torch out": into}
    values = lambda y: y.detach().double().tolist()  # noqa: E731
    return {name: (of, wrap, values) for name, wrap in wraps.items()}


def jax_routes():
    jax = pytest.importorskip("jax", reason="JAX is not installed; ./run check python installs it")
    wraps = {"jax": lambda f: f, "jit": jax.jit, "jax vmap": jax.vmap}
    values = lambda y: np.asarray(y).astype("float64").tolist()  # noqa: E731
    return {name: (lambda v, d: jax.numpy.array(v, d), wrap, values) for name, wrap in wraps.items()}


ROUTES = {"numpy": numpy_routes, "torch": torch_routes, "jax": jax_routes}
NAMES = [("numpy", "numpy"), ("numpy", "device"), ("numpy", "own"), ("torch", "torch"), ("torch", "autograd"), ("torch", "vmap"),
         ("torch", "compile"), ("torch", "torch out"), ("jax", "jax"), ("jax", "jit"), ("jax", "jax vmap")]  # fmt: skip

# A call with the number in each place that an op has; the array is of ones.
PLACES = {
    "second": lambda x, n, **how: narrows.maximum(x, n, **how),
    "first": lambda x, n, **how: narrows.maximum(n, x, **how),
    "first of three": lambda x, n, **how: narrows.fma(n, x, -0.0 if isinstance(n, float) else 0, **how),
    "third": lambda x, n, **how: narrows.clip(x, 0, n, **how),
}
REALS = {
    "float16": (70000.0, 65519.0, 1e39, 1 + 2**-11 + 2**-40, 10**39),
    "bfloat16": (1e39, 1 + 2**-8 + 2**-40, 10**39, 3.3961775292304957e38),
    "float32": (1e39, 1e308, 10**39, 1 + 2**-24 + 2**-50, 3.4028235677973366e38),
    "float64": (1e308, 1 + 2**-52, math.inf),
}
SIGNED = {
    "copysign": lambda x, n, **how: narrows.copysign(x, n, **how),
    "clip": lambda x, n, **how: narrows.copysign(x, narrows.clip(narrows.multiply(x, n), n, n), **how),
    "divide": lambda x, n, **how: narrows.divide(x, n, **how),
}
LARGEST = {"float16": 65504.0, "bfloat16": math.ldexp(255, 120), "float32": float(np.finfo("float32").max), "float64": math.inf}
PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def rounded(number, dtype):
    """By integers: half to even at the dtype's precision. Numbers here are 1 or more."""
    if number == math.inf:
        return number
    numerator, denominator = float(number).as_integer_ratio()
    exponent = math.frexp(number)[1] - PRECISION[dtype]
    unit = (1 << exponent, 1) if exponent >= 0 else (1, 1 << -exponent)
    quotient, rest = divmod(numerator * unit[1], denominator * unit[0])
    twice, whole = 2 * rest, denominator * unit[0]
    quotient += twice > whole or (twice == whole and quotient % 2)
    return math.inf if math.ldexp(quotient, exponent) > LARGEST[dtype] else math.ldexp(quotient, exponent)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("framework, route", NAMES, ids=[n for _, n in NAMES])
def test_real_numbers_are_rounded_once(framework, route, place):
    of, wrap, values = ROUTES[framework]()[route]
    for dtype, numbers in REALS.items():
        if framework == "jax" and dtype == "float64":
            continue  # outside of its x64 mode
        for number in numbers:
            if place == "third" and route == "compile" and isinstance(number, int):
                continue  # the same constant as in second place
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                y = wrap(lambda x, n=number, **how: PLACES[place](x, n, **how))(of([1.0, 1.0], dtype))
            expected = [1.0, 1.0] if place == "third" else [rounded(number, dtype)] * 2
            assert values(y) == expected, (dtype, number)


@pytest.mark.parametrize("place", ["second", "first"])
@pytest.mark.parametrize("framework, route", [n for n in NAMES if n[1] != "compile"], ids=[n for _, n in NAMES if n != "compile"])
@pytest.mark.parametrize(
    "dtype, number, error, words",
    [
        ("uint8", 256, ValueError, "{} = 256 does not fit uint8; expected 0 to 255"),
        ("uint8", -1, ValueError, "{} = -1 does not fit uint8; expected 0 to 255"),
        ("int8", 128, ValueError, "{} = 128 does not fit int8; expected -128 to 127"),
        ("int32", 2**70, ValueError, "{} = 1180591620717411303424 does not fit int32; expected -2147483648 to 2147483647"),
        ("int32", 2.5, TypeError, "{} is 2.5 beside int32 operands; expected an integer"),
        ("int32", np.float32(2.5), TypeError, r"{} is .*2.5\)? beside int32 operands; expected an integer"),
        ("float32", 10**400, ValueError, "{} is 1000.*; expected a real number that float64 holds"),
        ("float32", np.datetime64(3, "s"), TypeError, "{} is .*1970.*; expected a real number"),
        ("float32", np.str_("1"), TypeError, "{} is .*'1'.*; expected a real number"),
    ],
)
def test_what_does_not_fit_is_refused(framework, route, place, dtype, number, error, words):
    of, wrap, _ = ROUTES[framework]()[route]
    with pytest.raises(error, match="maximum: " + words.format("a" if place == "first" else "b")):
        wrap(lambda x, **how: PLACES[place](x, number, **how))(of([1, 1], dtype))


@pytest.mark.parametrize("framework, route", NAMES, ids=[n for _, n in NAMES])
def test_numbers_that_just_fit(framework, route):
    of, wrap, values = ROUTES[framework]()[route]
    for number in (255, True, np.uint8(255), np.True_):
        if route == "compile" and number is np.True_:
            continue  # which torch.compile takes for an array of bool
        for place in ("second", "first"):
            y = wrap(lambda x, n=number, p=place, **how: PLACES[p](x, n, **how))(of([1, 1], "uint8"))
            assert values(y) == [float(number)] * 2


def test_bool_takes_0_and_1():
    x = np.array([True, False])
    np.testing.assert_array_equal(narrows.logical_and(x, np.True_), x)
    np.testing.assert_array_equal(narrows.logical_and(1, x), x)
    for call in (lambda: narrows.logical_and(x, 2), lambda: narrows.logical_and(2, x)):
        with pytest.raises(ValueError, match="= 2 does not fit bool; expected 0 to 1"):
            call()


def test_integers_beyond_int64():
    x, large = np.array([1], "uint64"), 2**63 + 5
    np.testing.assert_array_equal(narrows.maximum(large, x), [large])
    with pytest.raises(ValueError, match="b = 9223372036854775813 does not fit uint64; expected 0 to 9223372036854775807"):
        narrows.maximum(x, large)  # which the params have as an int64
    np.testing.assert_array_equal(narrows.maximum(x, np.array(large, "uint64")), [large])


@pytest.mark.parametrize("call", SIGNED)
@pytest.mark.parametrize("framework, route", NAMES, ids=[n for _, n in NAMES])
def test_zeros_have_signs(framework, route, call):
    """Which == does not see, by which params are left out, remembered and looked up."""
    of, wrap, values = ROUTES[framework]()[route]
    for number in (-0.0, 0.0, -0.0):
        y = values(wrap(lambda x, n=number, **how: SIGNED[call](x, n, **how))(of([1.0, 1.0], "float32")))
        assert [math.copysign(1, v) for v in y] == [math.copysign(1, number)] * 2


def test_zeros_have_signs_in_gradients():
    torch = pytest.importorskip("torch", reason="torch is not installed; ./run check python installs it")
    x = torch.ones(3, requires_grad=True)
    for zero in (-0.0, 0.0, -0.0):
        for graph in (False, True):
            (gradient,) = torch.autograd.grad(narrows.copysign(x, zero).sum(), x, create_graph=graph)
            assert gradient.tolist() == [math.copysign(1, zero)] * 3
        assert torch.ops.narrows.elementwise(x, function="copysign", b_real=zero).tolist() == [math.copysign(1, zero)] * 3


class Theirs:
    """An array of a framework that has a namespace, known by DLPack alone."""

    def __init__(self, data):
        self.data = data

    def __dlpack__(self, **keywords):
        return self.data.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.data.__dlpack_device__()

    def __array_namespace__(self, api_version=None):
        return Theirs

    @staticmethod
    def from_dlpack(x):
        return Theirs(np.from_dlpack(x))


def test_a_number_ahead_of_an_array_decides_nothing():
    """Not even in the place of an operand that every call has: results are of the array's framework."""
    y = narrows.subtract(3, Theirs(np.float32([1, 2])))
    assert type(y) is Theirs and y.data.tolist() == [2, 1]
    assert type(narrows.fma(3, Theirs(np.float32([1, 2])), 1)) is Theirs
    out = np.zeros(2, "float32")
    assert narrows.subtract(3, Theirs(np.float32([1, 2])), out=out) is out and out.tolist() == [2, 1]
    own = narrows.subtract(3, narrows.from_dlpack(np.float32([1, 2])))
    assert type(own) is narrows.Tensor and own.numpy().tolist() == [2, 1]


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_number_ahead_of_a_subclass_of_torchs_tensor(needs_gradient):
    torch = pytest.importorskip("torch", reason="torch is not installed; ./run check python installs it")

    class Tensor(torch.Tensor):
        pass

    x = torch.ones(3).as_subclass(Tensor).requires_grad_(needs_gradient)
    y = narrows.subtract(2, x)
    assert isinstance(y, torch.Tensor) and y.tolist() == [1, 1, 1] and y.requires_grad == needs_gradient
    assert type(y) is type(narrows.subtract(x, 2))
    with torch.no_grad():
        out = torch.zeros(3)
        assert narrows.subtract(2, x, out=out) is out and out.tolist() == [1, 1, 1]
