# SPDX-License-Identifier: Apache-2.0
"""The element-wise functions under the array API's names, conv1d and lltm: names and words; what they compute is the ops'."""

import operator

from narrows import _errors, _narrows, _ops
from narrows._function_table import TABLE

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

NAMES = (*TABLE, "astype")
OPS = ("conv1d", "lltm")  # functions that have an op's name
WRITTEN = ("astype", *OPS)  # in Python; the others are ops

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

    if name in WRITTEN:
        return _with_signature(globals()[name])
    function, operands, kinds, what, arguments, example = TABLE[name]
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


def _with_signature(function):
    """The function, whose signature has no **unknown, which it only refuses, and no default where an argument must be given."""
    import inspect

    every = [p for p in inspect.signature(function).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = inspect.Signature([p.replace(default=p.empty) if p.default is _MISSING else p for p in every])
    return function


class _Missing:
    """The default of an argument that must be given: a mistyped keyword is refused before its absence is."""

    def __dlpack__(self, **_):
        raise TypeError("the argument is missing; expected an array")

    __dlpack_device__ = __dlpack__


_MISSING: "Any" = _Missing()


_CLIP_PLACES = {"a": 0, "b": 1, "min": 1, "c": 2, "max": 2}


def _clip(*operands, **how):
    """narrows.clip where a bound is absent, or named as the array API names it."""
    try:
        return _clipped(operands, how)
    except _errors.PLAIN as error:  # of the function that computes it
        _errors.rename(error, "astype", "clip")
        _errors.rename(error, "minimum", "clip", {"a": "x", "b": "max"})
        _errors.rename(error, "maximum", "clip", {"a": "x", "b": "min"})
        raise


def _clipped(operands, how):
    given: dict = dict(enumerate(operands))
    named = [name for name in _CLIP_PLACES if name in how]
    for name in named:
        if _CLIP_PLACES[name] in given:
            raise TypeError(f"clip: {name} is given twice")
        given[_CLIP_PLACES[name]] = how.pop(name)
    unknown = how.keys() - public("clip").__signature__.parameters.keys()
    if unknown:
        raise _errors.unexpected(public("clip"), unknown)
    x, low, high = (given.get(i) for i in range(3))
    if x is None:
        raise TypeError("clip: no array is given")
    _refuse_others((x, low, high))
    if low is None and high is None:
        return _same(x, how)
    if low is None or high is None:
        return _clip_on_one_side(x, low, high, how)
    return public("clip")(x, low, high, **how)


def _refuse_others(operands):
    """What is surely no array is refused here, where the function is known to be clip."""
    from narrows import _operands

    for i, x in enumerate(operands):
        if x is not None and type(x).__module__ == "builtins" and not _operands.is_number(x):
            raise _operands.no_array(public("clip"), i, x)


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
        raise TypeError(f"clip: {_errors.NO_ARRAY}")
    if type(x).__name__ == "Proxy":
        raise NotImplementedError("clip: neither min nor max under torch.fx.symbolic_trace; expected one: x's dtype is unknown")
    return _cast(x.dtype if hasattr(x, "dtype") else _device.from_dlpack(x).dtype)(x, **how)


def astype(x=_MISSING, dtype=_MISSING, *, out=None, device=None, **unknown):
    """x in another dtype, named or as any framework's object: a float to an integer truncates and saturates, NaN gives 0.

    The result has x's shape and framework. ValueError: no dtype by that name, or ``out`` does not fit; TypeError: x is no array.

    >>> import numpy, narrows
    >>> narrows.astype(numpy.float32([1.5, -300]), "int8")
    array([   1, -128], dtype=int8)
    """
    if unknown:
        raise _errors.unexpected(astype, unknown)
    if dtype is _MISSING:
        raise TypeError("astype: dtype is missing; expected the name of one, or a framework's object")
    return _cast(dtype)(x, out=out, device=device)


def _cast(dtype):
    try:
        op = _ops.op("elementwise", function="cast", out_dtype=dtype)
    except (TypeError, ValueError) as error:
        _errors.rename(error, "elementwise", "astype", {"out_dtype": "dtype"})
        raise
    op.__name__ = "astype"  # which errors show
    return op


def dtypes():
    """The names of the dtypes that arrays may have."""
    return frozenset(next(values for name, _, _, values, _ in _ops.op("elementwise").fields if name == "out_dtype")) - {""}


# What torch and NumPy call functions that have another name in the array API; those of the ops are in TABLE.
_ALIASES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "bitwise_not": "bitwise_invert",
    "cast": "astype",
    "clamp": "clip",
    "conv2d": "conv1d",
    "convolve": "conv1d",
    "correlate": "conv1d",
    "fmax": "maximum",
    "fmin": "minimum",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "mod": "remainder",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "swish": "silu",
    "to": "astype",
    "true_divide": "divide",
}


def known_as():
    """The functions by the names that ops and frameworks have for them."""
    return {function: public for public, (function, *_) in TABLE.items()} | _ALIASES


def public(name):
    """narrows.<name>, made and kept; for conv1d and lltm the op below."""
    import narrows

    return _op_of(name) if name in OPS else getattr(narrows, name)


_made: dict = {}


def _op_of(name):
    return _made.get(name) or _made.setdefault(name, _ops.op(name))


def _padding(padding, w, dilation, stride):
    if isinstance(padding, str):
        if padding == "same" and stride != 1:  # torch refuses it; where frameworks have it, they do not mean the same
            raise ValueError(f"conv1d: padding = 'same' with stride = {stride}; expected stride 1, or numbers: (left, right)")
        if _torch is not None and isinstance(w, _torch.fx.Proxy):
            raise NotImplementedError(
                f"conv1d: padding = {padding!r} under torch.fx.symbolic_trace; expected numbers: w's shape is unknown"
            )
        if not getattr(w, "shape", None):
            raise TypeError(
                f"conv1d: w is {type(w).__name__}; expected an array of one dimension or three, as numpy.asarray(w) gives"
            )
        whole = dilation * (w.shape[-1] - 1)
        known = {"valid": (0, 0), "same": (whole // 2, whole - whole // 2), "causal": (whole, 0)}
        if padding not in known:
            raise ValueError(f"conv1d: padding = {padding!r}; expected a number, (left, right), {', '.join(map(repr, known))}")
        return known[padding]
    if not isinstance(padding, (tuple, list)):
        both = _integer(padding)
        if both is not None:
            if type(both) is int and both < 0:
                raise _negative(padding)
            return both, both
    ordered = hasattr(padding, "__len__") and hasattr(padding, "__getitem__") and not isinstance(padding, (dict, bytes))
    sides = [_integer(p) for p in padding] if ordered else []
    if not 1 <= len(sides) <= 2 or None in sides:
        raise TypeError(f"conv1d: padding = {padding!r}; expected a number, (left, right), 'valid', 'same', 'causal'")
    if any(type(side) is int and side < 0 for side in sides):
        raise _negative(padding)
    return sides[0], sides[-1]


def _negative(padding):
    return ValueError(f"conv1d: padding = {padding!r}; expected 0 or more")


def conv1d(
    x=_MISSING,
    w=_MISSING,
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
    **unknown,
):
    """Cross-correlation, as torch.nn.functional.conv1d and ONNX's Conv.

    x (N, C, L), (C, L) or (L); w (O, C/groups, K) or, for a signal, (K); bias (O). The result is (N, O, T), (O, T) or (T) with
    T = (L + left + right - dilation*(K - 1) - 1)//stride + 1.

    padding: zeros on both sides, (left, right), "valid": none, "same": T = L, with stride 1 alone, "causal": all on the left.
    Dtypes: float16, bfloat16, float32, float64; all arrays the same. Products of 16-bit ones are summed in float32.
    Errors: ValueError for shapes, dtypes and params that do not fit, with the argument, its value and what was expected;
    TypeError for what is no array. Differentiable in torch and JAX.

        >>> import numpy, narrows
        >>> narrows.conv1d(numpy.float32([1, 2, 3, 4]), numpy.float32([1, 0, -1]), padding="same")
        array([-2., -2., -2.,  3.], dtype=float32)
    """
    if unknown:
        raise _errors.unexpected(conv1d, unknown)
    if not (type(stride) is type(dilation) is type(groups) is int and stride > 0 and dilation > 0 and groups > 0):
        stride, dilation, groups = _at_least_1("stride", stride), _at_least_1("dilation", dilation), _at_least_1("groups", groups)
    left, right = _padding(padding, w, dilation, stride)
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
    number = _integer(value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value)
    if number is None:
        static = ", which jax.jit takes by static_argnames" if type(value).__name__.endswith("Tracer") else ""
        raise TypeError(f"conv1d: {name} = {value!r}; expected an integer{static}")
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
    input=_MISSING,
    weights=_MISSING,
    bias=_MISSING,
    old_h=_MISSING,
    old_cell=_MISSING,
    *,
    out=None,
    device=None,
    stream=None,
    backend=None,
    kernel=None,
    deterministic=False,
    **unknown,
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
    if unknown:
        raise _errors.unexpected(lltm, unknown)
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


def run_lltm_sequence(input, weights, bias, old_h, old_cell, lengths, **params):
    """lltm over the steps of a sequence, for narrows.torch.LLTM: (h, new_h, new_cell)."""
    return _op_of("lltm_sequence")(input, weights, bias, old_h, old_cell, lengths, **params)
