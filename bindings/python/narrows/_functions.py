"""The element-wise functions under the array API's names, conv1d and lltm: names and words; what they compute is the ops'."""

import operator

from narrows import _narrows, _ops

TYPE_CHECKING = False  # as in _ops.py
if TYPE_CHECKING:
    from typing import Any

# torch, once narrows.torch is there. Dynamo traces conv1d: of sys.modules it would copy all, while torch goes on importing.
_torch: "Any" = None

_DTYPES = {
    "F": "floating point",
    "N": "floating point or integers",
    "B": "integers or bool",
    "I": "integers",
    "A": "any",
}

# name -> (the op's name of the function, operands, dtypes, what it gives, arguments of an example, what it prints)
_TABLE = {
    "negative": ("neg", 1, "N", "-a", "numpy.array([1, -0.25])", "[-1.    0.25]"),
    "abs": ("abs", 1, "N", "|a|", "numpy.array([1, -0.25])", "[1.   0.25]"),
    "sign": ("sign", 1, "N", "-1, 0 or 1", "numpy.array([1, -0.25])", "[ 1. -1.]"),
    "square": ("square", 1, "N", "a*a", "numpy.array([1, -0.25])", "[1.     0.0625]"),
    "sqrt": ("sqrt", 1, "F", "the square root", "numpy.array([1, 0.25])", "[1.  0.5]"),
    "rsqrt": ("rsqrt", 1, "F", "1/sqrt(a)", "numpy.array([1, 0.25])", "[1. 2.]"),
    "cbrt": ("cbrt", 1, "F", "the cube root", "numpy.array([1, 0.25])", "[1.         0.62996052]"),
    "exp": ("exp", 1, "F", "e**a", "numpy.array([1, 0.25])", "[2.71828183 1.28402542]"),
    "exp2": ("exp2", 1, "F", "2**a", "numpy.array([1, 0.25])", "[2.         1.18920712]"),
    "expm1": ("expm1", 1, "F", "e**a - 1", "numpy.array([1, 0.25])", "[1.71828183 0.28402542]"),
    "log": ("log", 1, "F", "the natural logarithm", "numpy.array([1, 0.25])", "[ 0.         -1.38629436]"),
    "log2": ("log2", 1, "F", "the logarithm to base 2", "numpy.array([1, 0.25])", "[ 0. -2.]"),
    "log10": ("log10", 1, "F", "the logarithm to base 10", "numpy.array([1, 0.25])", "[ 0.         -0.60205999]"),
    "log1p": ("log1p", 1, "F", "log(1 + a)", "numpy.array([1, 0.25])", "[0.69314718 0.22314355]"),
    "sin": ("sin", 1, "F", "the sine", "numpy.array([1, 0.25])", "[0.84147098 0.24740396]"),
    "cos": ("cos", 1, "F", "the cosine", "numpy.array([1, 0.25])", "[0.54030231 0.96891242]"),
    "tan": ("tan", 1, "F", "the tangent", "numpy.array([1, 0.25])", "[1.55740772 0.25534192]"),
    "asin": ("asin", 1, "F", "the inverse sine", "numpy.array([1, 0.25])", "[1.57079633 0.25268026]"),
    "acos": ("acos", 1, "F", "the inverse cosine", "numpy.array([1, 0.25])", "[0.         1.31811607]"),
    "atan": ("atan", 1, "F", "the inverse tangent", "numpy.array([1, 0.25])", "[0.78539816 0.24497866]"),
    "sinh": ("sinh", 1, "F", "the hyperbolic sine", "numpy.array([1, 0.25])", "[1.17520119 0.25261232]"),
    "cosh": ("cosh", 1, "F", "the hyperbolic cosine", "numpy.array([1, 0.25])", "[1.54308063 1.0314131 ]"),
    "tanh": ("tanh", 1, "F", "the hyperbolic tangent", "numpy.array([1, 0.25])", "[0.76159416 0.24491866]"),
    "asinh": ("asinh", 1, "F", "the inverse hyperbolic sine", "numpy.array([1, 0.25])", "[0.88137359 0.24746646]"),
    "acosh": ("acosh", 1, "F", "the inverse hyperbolic cosine", "numpy.array([1, 0.25])", "[ 0. nan]"),
    "atanh": ("atanh", 1, "F", "the inverse hyperbolic tangent", "numpy.array([1, 0.25])", "[       inf 0.25541281]"),
    "sigmoid": ("sigmoid", 1, "F", "1/(1 + e**-a)", "numpy.array([1, 0.25])", "[0.73105858 0.5621765 ]"),
    "relu": ("relu", 1, "N", "a where a > 0, else 0; NaN stays", "numpy.array([1, -0.25])", "[1. 0.]"),
    "elu": ("elu", 1, "F", "a where a > 0, else alpha*(e**a - 1)", "numpy.array([1, 0.25])", "[1.   0.25]"),
    "gelu": ("gelu", 1, "F", "a*(1 + erf(a/sqrt(2)))/2", "numpy.array([1, 0.25])", "[0.84134475 0.14967658]"),
    "gelu_tanh": (
        "gelu_tanh",
        1,
        "F",
        "a*(1 + tanh(sqrt(2/pi)*(a + 0.044715*a**3)))/2",
        "numpy.array([1, 0.25])",
        "[0.84119199 0.14967535]",
    ),
    "silu": ("silu", 1, "F", "a*sigmoid(a)", "numpy.array([1, 0.25])", "[0.73105858 0.14054413]"),
    "softplus": ("softplus", 1, "F", "log(1 + e**a)", "numpy.array([1, 0.25])", "[1.31326169 0.82593942]"),
    "erf": ("erf", 1, "F", "the error function", "numpy.array([1, 0.25])", "[0.84270079 0.27632639]"),
    "erfc": ("erfc", 1, "F", "1 - erf(a)", "numpy.array([1, 0.25])", "[0.15729921 0.72367361]"),
    "floor": ("floor", 1, "N", "the largest integer that is not above a", "numpy.array([1, -0.25])", "[ 1. -1.]"),
    "ceil": ("ceil", 1, "N", "the smallest integer that is not below a", "numpy.array([1, -0.25])", "[ 1. -0.]"),
    "round": ("round", 1, "N", "the nearest integer, half to even", "numpy.array([1, -0.25])", "[ 1. -0.]"),
    "trunc": ("trunc", 1, "N", "towards 0", "numpy.array([1, -0.25])", "[ 1. -0.]"),
    "reciprocal": ("reciprocal", 1, "F", "1/a", "numpy.array([1, 0.25])", "[1. 4.]"),
    "logical_not": ("logical_not", 1, "A", "a == 0, as bool", "numpy.array([4, 0])", "[False  True]"),
    "bitwise_invert": ("bitwise_not", 1, "B", "all bits inverted", "numpy.array([12, 10])", "[-13 -11]"),
    "isnan": ("isnan", 1, "N", "whether a is NaN, as bool", "numpy.array([1, -0.25])", "[False False]"),
    "isinf": ("isinf", 1, "N", "whether a is infinite, as bool", "numpy.array([1, -0.25])", "[False False]"),
    "isfinite": ("isfinite", 1, "N", "whether a is neither NaN nor infinite, as bool", "numpy.array([1, -0.25])", "[ True  True]"),
    "add": ("add", 2, "N", "a + b", "numpy.array([1, -0.25]), 2", "[3.   1.75]"),
    "subtract": ("sub", 2, "N", "a - b", "numpy.array([1, -0.25]), numpy.array([0.5, 2])", "[ 0.5  -2.25]"),
    "multiply": ("mul", 2, "N", "a*b", "numpy.array([1, -0.25]), 2", "[ 2.  -0.5]"),
    "divide": (
        "div",
        2,
        "N",
        "a/b; integers truncate, and by 0 give 0",
        "numpy.array([1, -0.25]), numpy.array([0.5, 2])",
        "[ 2.    -0.125]",
    ),
    "pow": ("pow", 2, "N", "a**b", "numpy.array([1, 0.25]), 0.5", "[1.  0.5]"),
    "atan2": (
        "atan2",
        2,
        "F",
        "the angle of the point (x = b, y = a)",
        "numpy.array([1, 0.25]), numpy.array([0.5, 2])",
        "[1.10714872 0.12435499]",
    ),
    "hypot": (
        "hypot",
        2,
        "F",
        "sqrt(a*a + b*b) without overflow",
        "numpy.array([1, 0.25]), numpy.array([0.5, 2])",
        "[1.11803399 2.01556444]",
    ),
    "maximum": ("maximum", 2, "N", "the larger; NaN if either is", "numpy.array([1, -0.25]), numpy.array([0.5, 2])", "[1. 2.]"),
    "minimum": (
        "minimum",
        2,
        "N",
        "the smaller; NaN if either is",
        "numpy.array([1, -0.25]), numpy.array([0.5, 2])",
        "[ 0.5  -0.25]",
    ),
    "fmod": ("fmod", 2, "N", "the remainder with the sign of a", "numpy.array([1, -0.25]), numpy.array([0.5, 2])", "[ 0.   -0.25]"),
    "remainder": (
        "remainder",
        2,
        "N",
        "the remainder with the sign of b, as Python's %",
        "numpy.array([1, -0.25]), numpy.array([0.5, 2])",
        "[0.   1.75]",
    ),
    "copysign": ("copysign", 2, "F", "|a| with the sign of b", "numpy.array([1, 0.25]), numpy.array([0.5, 2])", "[1.   0.25]"),
    "logaddexp": (
        "logaddexp",
        2,
        "F",
        "log(e**a + e**b)",
        "numpy.array([1, 0.25]), numpy.array([0.5, 2])",
        "[1.47407698 2.16022415]",
    ),
    "equal": ("eq", 2, "A", "a == b, as bool", "numpy.array([4, 0]), numpy.array([4, 7])", "[ True False]"),
    "not_equal": ("ne", 2, "A", "a != b, as bool", "numpy.array([4, 0]), numpy.array([4, 7])", "[False  True]"),
    "less": ("lt", 2, "N", "a < b, as bool", "numpy.array([1, -0.25]), 2", "[ True  True]"),
    "less_equal": ("le", 2, "N", "a <= b, as bool", "numpy.array([1, -0.25]), numpy.array([0.5, 2])", "[False  True]"),
    "greater": ("gt", 2, "N", "a > b, as bool", "numpy.array([1, -0.25]), numpy.array([0.5, 2])", "[ True False]"),
    "greater_equal": ("ge", 2, "N", "a >= b, as bool", "numpy.array([1, -0.25]), numpy.array([0.5, 2])", "[ True False]"),
    "logical_and": (
        "logical_and",
        2,
        "A",
        "a != 0 and b != 0, as bool",
        "numpy.array([4, 0]), numpy.array([4, 7])",
        "[ True False]",
    ),
    "logical_or": ("logical_or", 2, "A", "a != 0 or b != 0, as bool", "numpy.array([4, 0]), numpy.array([4, 7])", "[ True  True]"),
    "logical_xor": (
        "logical_xor",
        2,
        "A",
        "either a != 0 or b != 0, as bool",
        "numpy.array([4, 0]), numpy.array([4, 7])",
        "[False  True]",
    ),
    "bitwise_and": ("bitwise_and", 2, "B", "bit by bit", "numpy.array([12, 10]), numpy.array([10, 3])", "[8 2]"),
    "bitwise_or": ("bitwise_or", 2, "B", "bit by bit", "numpy.array([12, 10]), numpy.array([10, 3])", "[14 11]"),
    "bitwise_xor": ("bitwise_xor", 2, "B", "bit by bit", "numpy.array([12, 10]), numpy.array([10, 3])", "[6 9]"),
    "bitwise_left_shift": (
        "bitwise_left_shift",
        2,
        "I",
        "a * 2**b; 0 where b is the width or more",
        "numpy.array([4, 7]), numpy.array([1, 2])",
        "[ 8 28]",
    ),
    "bitwise_right_shift": ("bitwise_right_shift", 2, "I", "a // 2**b", "numpy.array([4, 7]), numpy.array([1, 2])", "[2 1]"),
    "fma": ("fma", 3, "N", "a*b + c, rounded once", "numpy.array([1, 0.25]), 0.5, 0.75", "[1.25  0.875]"),
    "where": ("where", 3, "A", "b where a, else c; a is bool", "numpy.array([True, False]), numpy.array([1, 2]), 0", "[1 0]"),
    "clip": (
        "clamp",
        3,
        "N",
        "minimum(maximum(x, min), max) without a bound that is None",
        "numpy.array([1, 0.25]), max=0.75",
        "[0.75 0.25]",
    ),
}
NAMES = (*_TABLE, "astype")

_DOC = """{name}({operands}, *, {extra}out=None, device=None, stream=None, backend=None, kernel=None, deterministic=False) -> array

{what}, element by element; NumPy's broadcasting.

Dtypes: {dtypes}; {share} one{numbers}. {outcome}
``out``, ``device``, ``stream``, ``backend``, ``kernel`` and ``deterministic`` are those of :func:`narrows.op`.
Errors: ValueError for other dtypes, for shapes that do not broadcast and for a read-only ``out``; TypeError for what is no array.

    >>> import numpy, narrows
    >>> print(narrows.{name}({arguments}))
    {example}
"""

_NUMBERS = {"where": "; a is an array of bool, and one of b and c may be a number"}


def make(name):
    """The callable narrows.<name>."""
    import inspect

    if name == "astype":
        return astype
    function, operands, kinds, what, arguments, example = _TABLE[name]
    op = _narrows.Op("elementwise", function=function)
    op.__name__, op._operands = name, operands
    names = ("a", "b", "c")[:operands]
    op.__doc__ = _DOC.format(
        name=name,
        operands="x, /, min=None, max=None" if name == "clip" else ", ".join(names),
        extra="alpha=1.0, " if name == "elu" else "",
        what=what[0].upper() + what[1:],
        dtypes=_DTYPES[kinds],
        share="b and c share" if name == "where" else "operands share",
        numbers="" if operands == 1 else _NUMBERS.get(name, "; any but one may be a number"),
        outcome="The result is bool." if "as bool" in what else "The result has it too.",
        arguments=arguments,
        example=example,
    )
    keyword, both = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(n, both) for n in names]
    if name == "clip":
        op._otherwise = _clip
        parameters = [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]
        parameters += [inspect.Parameter(n, both, default=None) for n in ("min", "max")]
    parameters += [inspect.Parameter("alpha", keyword, default=1.0)] if name == "elu" else []
    parameters += [inspect.Parameter(n, keyword, default=None) for n in ("out", "device", "stream", "backend", "kernel")]
    parameters.append(inspect.Parameter("deterministic", keyword, default=False))
    op.__signature__ = inspect.Signature(parameters)
    return _ops.remember(op)


_CLIP_PLACES = {"a": 0, "b": 1, "min": 1, "c": 2, "max": 2}


def _clip(*operands, **how):
    """narrows.clip where a bound is absent, or named as the array API names it."""
    given: dict = dict(enumerate(operands))
    named = [name for name in _CLIP_PLACES if name in how]
    for name in named:
        if _CLIP_PLACES[name] in given:
            raise TypeError(f"clip: {name} is given twice")
        given[_CLIP_PLACES[name]] = how.pop(name)
    x, low, high = (given.get(i) for i in range(3))
    if x is None:
        raise TypeError("clip: no array is given")
    if not named and low is not None and high is not None:
        unknown = how.keys() - _ops.signature_of(public("clip")).parameters.keys()
        raise TypeError(f"clip has no argument '{min(unknown)}'")
    if low is None and high is None:
        return _same(x, how)
    if low is None or high is None:
        return _clip_on_one_side(x, low, high, how)
    return public("clip")(x, low, high, **how)


_INFINITE = frozenset(("float16", "bfloat16", "float32", "float64"))


def _clip_on_one_side(x, low, high, how):
    """By an infinite bound on the other side: the gradient on a bound is 1, where maximum and minimum have a half."""
    given = [a for a in (x, low, high) if a is not None]
    if not how and any(type(a).__name__ == "Proxy" for a in given):
        from narrows import torch

        return torch._traced(public("clip"), [x, low, high], None)
    dtype = next((str(a.dtype).removeprefix("torch.") for a in given if hasattr(a, "dtype")), "")
    if dtype in _INFINITE:
        infinity = float("inf")
        return public("clip")(x, -infinity if low is None else low, infinity if high is None else high, **how)
    return public("minimum" if low is None else "maximum")(x, high if low is None else low, **how)


def _same(x, how):
    """x as a call's output."""
    from narrows import _device, _operands

    if _operands.is_number(x):
        raise TypeError("clip: no input is an array")
    if type(x).__name__ == "Proxy":
        raise NotImplementedError("clip: neither min nor max under torch.fx.symbolic_trace; expected one: x's dtype is unknown")
    return _cast(x.dtype if hasattr(x, "dtype") else _device.from_dlpack(x).dtype)(x, **how)


def astype(x, dtype, *, out=None, device=None):
    """x in another dtype, named or as any framework's object: a float to an integer truncates and saturates, NaN gives 0.

    The result has x's shape and framework. ValueError: no dtype by that name, or ``out`` does not fit; TypeError: x is no array.

    >>> import numpy, narrows
    >>> narrows.astype(numpy.float32([1.5, -300]), "int8")
    array([   1, -128], dtype=int8)
    """
    return _cast(dtype)(x, out=out, device=device)


def _cast(dtype):
    return _ops.op("elementwise", function="cast", out_dtype=dtype)


def public(name):
    """narrows.<name>, made and kept; for conv1d and lltm the op below."""
    import narrows

    return _op_of(name) if name in ("conv1d", "lltm") else getattr(narrows, name)


_made: dict = {}


def _op_of(name):
    return _made.get(name) or _made.setdefault(name, _ops.op(name))


def _padding(padding, w, dilation):
    if isinstance(padding, str):
        if _torch is not None and isinstance(w, _torch.fx.Proxy):
            raise NotImplementedError(
                f"conv1d: padding = {padding!r} under torch.fx.symbolic_trace; expected numbers: w's shape is unknown"
            )
        if not getattr(w, "shape", None):
            raise TypeError(f"conv1d: w is {type(w).__name__}; expected an array of one dimension or three")
        whole = dilation * (w.shape[-1] - 1)
        known = {"valid": (0, 0), "same": (whole // 2, whole - whole // 2), "causal": (whole, 0)}
        if padding not in known:
            raise ValueError(f"conv1d: padding = {padding!r}; expected a number, (left, right), {', '.join(map(repr, known))}")
        return known[padding]
    if not isinstance(padding, (tuple, list)):
        both = _integer(padding)
        if both is not None:
            return both, both
    ordered = hasattr(padding, "__len__") and hasattr(padding, "__getitem__") and not isinstance(padding, (dict, bytes))
    sides = [_integer(p) for p in padding] if ordered else []
    if not 1 <= len(sides) <= 2 or None in sides:
        raise TypeError(f"conv1d: padding = {padding!r}; expected a number, (left, right), 'valid', 'same', 'causal'")
    return sides[0], sides[-1]


def conv1d(
    x,
    w,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    *,
    out=None,
    device=None,
    stream=None,
    backend=None,
    kernel=None,
    deterministic=False,
):
    """Cross-correlation, as torch.nn.functional.conv1d and ONNX's Conv.

    x (N, C, L), (C, L) or (L); w (O, C/groups, K) or, for a signal, (K); bias (O). The result is (N, O, T), (O, T) or (T) with
    T = (L + left + right - dilation*(K - 1) - 1)//stride + 1.

    padding: zeros on both sides, (left, right), "valid": none, "same": T = L where stride is 1, "causal": all on the left.
    Dtypes: float16, bfloat16, float32, float64; all arrays the same. Products of 16-bit ones are summed in float32.
    Errors: ValueError for shapes, dtypes and params that do not fit, with the argument, its value and what was expected;
    TypeError for what is no array. Differentiable in torch and JAX.

        >>> import numpy, narrows
        >>> narrows.conv1d(numpy.float32([1, 2, 3, 4]), numpy.float32([1, 0, -1]), padding="same")
        array([-2., -2., -2.,  3.], dtype=float32)
    """
    stride, dilation, groups = _at_least_1("stride", stride), _at_least_1("dilation", dilation), _at_least_1("groups", groups)
    left, right = _padding(padding, w, dilation)
    if _torch is not None and _torch.compiler.is_compiling() and not deterministic:
        plain = out is None and device is None and stream is None and backend is None and kernel is None
        if plain and all(isinstance(a, _torch.Tensor) for a in ((x, w) if bias is None else (x, w, bias))):
            numbers = {"stride": stride, "dilation": dilation, "groups": groups, "pad_left": left, "pad_right": right}
            return _torch.ops.narrows.conv1d.default(x, w, bias, **numbers)  # where numbers made of sizes stay symbolic
    return _op_of("conv1d")(
        x,
        w,
        bias,
        stride=stride,
        dilation=dilation,
        groups=groups,
        pad_left=left,
        pad_right=right,
        out=out,
        device=device,
        stream=stream,
        backend=backend,
        kernel=kernel,
        deterministic=deterministic,
    )


def _at_least_1(name, value):
    """torch writes a stride as a number or a tuple of one."""
    if type(value) is int and value >= 1:
        return value
    number = _integer(value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value)
    if number is None:
        raise TypeError(f"conv1d: {name} = {value!r}; expected an integer")
    if number < 1:
        raise ValueError(f"conv1d: {name} = {number}; expected 1 or more")
    return number


def _integer(value) -> "Any":
    """An integer of any kind, symbolic ones as they are; None: it is none."""
    if type(value) is int or type(value).__name__ == "SymInt":
        return value
    try:
        return operator.index(value)
    except TypeError:
        return None


def lltm(
    input,
    weights,
    bias,
    old_h,
    old_cell,
    *,
    out=None,
    device=None,
    stream=None,
    backend=None,
    kernel=None,
    deterministic=False,
):
    """One step of the recurrent cell of PyTorch's C++ extension tutorial; (new_h, new_cell).

    input (B, F), weights (3S, S + F), bias (3S) or (1, 3S), old_h and old_cell (B, S); new_h and new_cell (B, S).
    Dtypes: float16, bfloat16, float32, float64; all arrays the same. ``out``: (new_h, new_cell), as a tuple or a list.
    Errors: ValueError for shapes and dtypes that do not fit; TypeError for what is no array. Differentiable in torch and JAX.

        >>> import numpy, narrows
        >>> zeros = numpy.zeros((1, 2), "float32")
        >>> new_h, new_cell = narrows.lltm(zeros, numpy.zeros((6, 4), "float32"), numpy.ones(6, "float32"), zeros, zeros)
        >>> new_cell.round(3)
        array([[0.731, 0.731]], dtype=float32)
    """
    return _op_of("lltm")(
        input,
        weights,
        bias,
        old_h,
        old_cell,
        out=out,
        device=device,
        stream=stream,
        backend=backend,
        kernel=kernel,
        deterministic=deterministic,
    )
