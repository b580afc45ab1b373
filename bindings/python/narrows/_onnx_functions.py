# SPDX-License-Identifier: Apache-2.0
"""Each element-wise function by ONNX's operators of opset 18, with the special values of docs/ops.md.

A translation is a function of (operators, the operands that it takes); ``operators.Add`` and the like make nodes.
"""

import math

from narrows._function_table import ONNX, ONNX_LACKS, TABLE

_OPERANDS = {row[0]: row[1] for row in TABLE.values()} | {"cast": 1}
_BOOL = {row[0] for row in TABLE.values() if "as bool" in row[3]}


def operands_of(function):
    return _OPERANDS[function]


def gives_bool(function):
    return function in _BOOL


def find(function, operators):
    """The translation. NotImplementedError: ONNX cannot say the function, or not for this dtype."""
    reason = ONNX_LACKS.get(function)
    if function == "fma" and operators.is_float:
        reason = "Mul and Add round twice; use multiply and add, where that may be"
    if reason is None and function not in _FUNCTIONS:
        reason = "this version of Narrows has no translation of it"
    if reason is not None:
        raise NotImplementedError(
            f"elementwise: function {function} of {operators.dtype} cannot be said by ONNX's operators: {reason}"
        )
    return _FUNCTIONS[function]


# ---- functions that ONNX has, or nearly ----


def _plain(name):
    """An operator that is the function, as core/ops/elementwise_functions.toml says."""
    return lambda on, *operands: getattr(on, name)(*operands)


def _of_floats(name):
    """One that leaves integers as they are."""
    return lambda on, a: getattr(on, name)(a) if on.is_float else on.Identity(a)


def _neg(on, a):
    return on.Neg(a) if on.is_float else on.Sub(on.constant(0), a)


def _relu(on, a):
    return on.Relu(a) if on.is_signed else on.Identity(a)


def _trunc(on, a):
    return on.Where(on.Less(a, on.constant(0)), on.Ceil(a), on.Floor(a)) if on.is_float else on.Identity(a)


def _rsqrt(on, a):
    return on.Reciprocal(on.Sqrt(a))


def _square(on, a):
    return on.Mul(a, a)


def _quotient(value):
    """A logarithm to another base."""
    return lambda on, a: on.Div(on.Log(a), on.constant(math.log(value)))


# ---- functions that are composed ----


def _is_between(on, a, low, high):
    return on.And(on.Greater(a, on.constant(low)), on.Less(a, on.constant(high)))


def _cbrt(on, a):
    """Of |a| by a power, whose exponent is not exact, and one step of Newton's; then with a's sign."""
    x = on.Abs(a)
    y = on.Pow(x, on.constant(1 / 3))
    y = on.Sub(y, on.Div(on.Sub(y, on.Div(x, on.Mul(y, y))), on.constant(3)))
    y = on.Where(on.Less(a, on.constant(0)), on.Neg(y), y)
    return on.Where(_is_between(on, x, 0, math.inf), y, a)


def _expm1(on, a):
    """sinh(a)·(1 + tanh(a/2)) near zero, where e^a - 1 cancels."""
    small = on.Mul(on.Sinh(a), on.Add(on.constant(1), on.Tanh(on.Mul(a, on.constant(0.5)))))
    return on.Where(on.Less(on.Abs(a), on.constant(1)), small, on.Sub(on.Exp(a), on.constant(1)))


def _log1p(on, a):
    """log(u)·a/(u - 1) with u = 1 + a as it is rounded: what the rounding took is given back."""
    one = on.constant(1)
    u = on.Add(one, a)
    found = on.Mul(on.Log(u), on.Div(a, on.Sub(u, one)))
    return on.Where(on.Or(on.Equal(u, one), on.Equal(u, on.constant(math.inf))), a, found)


def _elu(on, a, alpha):
    if _is_float32(alpha):
        return on.Elu(a, alpha=float(alpha))
    below = on.Mul(on.constant(alpha), _expm1(on, a))  # ONNX's alpha is a float32
    return on.Where(on.Greater(a, on.constant(0)), a, below)


def _is_float32(value):
    import struct

    return math.isfinite(value) and abs(value) < 3e38 and struct.unpack("f", struct.pack("f", value))[0] == value


def _limit_below(on, a, y):
    """0 at -inf, where a product would be NaN."""
    return on.Where(on.Equal(a, on.constant(-math.inf)), on.constant(0), y)


def _gelu(on, a):
    half = on.Mul(a, on.constant(0.5))
    return _limit_below(on, a, on.Mul(half, on.Add(on.constant(1), on.Erf(on.Mul(a, on.constant(math.sqrt(0.5)))))))


def _gelu_tanh(on, a):
    cube = on.Mul(on.constant(0.044715), on.Mul(a, on.Mul(a, a)))
    u = on.Mul(on.constant(math.sqrt(2 / math.pi)), on.Add(a, cube))
    return _limit_below(on, a, on.Mul(on.Mul(a, on.constant(0.5)), on.Add(on.constant(1), on.Tanh(u))))


def _silu(on, a):
    return _limit_below(on, a, on.Mul(a, on.Sigmoid(a)))


def _hypot(on, a, b):
    """By the quotient of the smaller and the larger one, which does not overflow."""
    a, b, infinity = on.Abs(a), on.Abs(b), on.constant(math.inf)
    large = on.Max(a, b)
    ratio = on.Div(on.Min(a, b), large)
    found = on.Mul(large, on.Sqrt(on.Add(on.constant(1), on.Mul(ratio, ratio))))
    found = on.Where(on.Greater(large, on.constant(0)), found, large)
    return on.Where(on.Or(on.Equal(a, infinity), on.Equal(b, infinity)), infinity, found)


def _is_negative(on, a):
    """The sign of a number, of -0 too; false of NaN."""
    zero = on.constant(0)
    return on.Or(on.Less(a, zero), on.Less(on.Reciprocal(a), zero))


def _atan2(on, a, b):
    infinity, zero = on.constant(math.inf), on.constant(0)
    infinite = on.And(on.Equal(on.Abs(a), infinity), on.Equal(on.Abs(b), infinity))
    angle = on.Atan(on.Div(on.Where(infinite, on.Sign(a), a), on.Where(infinite, on.Sign(b), b)))
    angle = on.Where(on.And(on.Equal(a, zero), on.Equal(b, zero)), a, angle)
    turn = on.Where(_is_negative(on, a), on.constant(-math.pi), on.constant(math.pi))
    return on.Where(_is_negative(on, b), on.Add(angle, turn), angle)


def _logaddexp(on, a, b):
    distance = on.Where(on.Equal(a, b), on.constant(0), on.Abs(on.Sub(a, b)))
    return on.Add(on.Max(a, b), _log1p(on, on.Exp(on.Neg(distance))))


def _maximum(on, a, b):
    """A number comes first: where it is last, onnxscript may make a Clip of two such operators, and gives bounds of two the same name."""
    return on.Max(b, a)


def _minimum(on, a, b):
    return on.Min(b, a)


def _clamp(on, a, b, c):
    return _minimum(on, _maximum(on, a, b), c)


def _fma(on, a, b, c):
    return on.Add(on.Mul(a, b), c)


def _where(on, a, b, c):
    """Of bool by what every runtime has."""
    return on.Or(on.And(a, b), on.And(on.Not(a), c)) if on.is_bool else on.Where(a, b, c)


# ---- truth ----


def _is_true(on, a):
    return a if on.is_bool else on.Not(on.Equal(a, on.constant(0)))


def _logical_not(on, a):
    return on.Not(a) if on.is_bool else on.Equal(a, on.constant(0))


def _of_truths(name):
    return lambda on, a, b: getattr(on, name)(_is_true(on, a), _is_true(on, b))


def _isnan(on, a):
    return on.IsNaN(a) if on.is_float else on.Not(on.Equal(a, a))


def _isinf(on, a):
    return on.IsInf(a) if on.is_float else on.Not(on.Equal(a, a))


def _isfinite(on, a):
    return on.Less(on.Abs(a), on.constant(math.inf)) if on.is_float else on.Equal(a, a)


def _bits(name):
    """bitwise_and and the like; of bool ONNX has them by another name."""
    return lambda on, *operands: getattr(on, name if on.is_bool else f"Bitwise{name}")(*operands)


# ---- integers ----


def _divisor(on, b):
    """1 in the place of 0 and -1, by which some machines cannot divide every number."""
    found = on.Equal(b, on.constant(0))
    found = on.Or(found, on.Equal(b, on.constant(-1))) if on.is_signed else found
    return on.Where(found, on.constant(1), b)


def _div(on, a, b):
    if on.is_float:
        return on.Div(a, b)
    y = on.Div(a, _divisor(on, b))
    y = on.Where(on.Equal(b, on.constant(-1)), on.Sub(on.constant(0), a), y) if on.is_signed else y
    return on.Where(on.Equal(b, on.constant(0)), on.constant(0), y)


def _have_other_signs(on, r, b):
    """Of a remainder that is not 0, and the divisor."""
    zero = on.constant(0)
    return on.And(on.Not(on.Equal(r, zero)), on.Xor(on.Less(r, zero), on.Less(b, zero)))


def _fmod(on, a, b):
    if on.is_float:
        return on.Mod(a, b, fmod=1)
    divisor = _divisor(on, b)
    r = on.Mod(a, divisor, fmod=0)  # which runtimes compute with integers, others with floats
    return on.Where(_have_other_signs(on, r, a), on.Sub(r, divisor), r) if on.is_signed else r


def _remainder(on, a, b):
    if not on.is_float:
        return on.Mod(a, _divisor(on, b), fmod=0)
    r = on.Mod(a, b, fmod=1)
    of_b = on.Where(on.Less(b, on.constant(0)), on.constant(-0.0), on.constant(0.0))
    r = on.Where(_have_other_signs(on, r, b), on.Add(r, b), r)
    return on.Where(on.Equal(r, on.constant(0)), of_b, r)


def _pow(on, a, b, exponent):
    if on.is_float:
        return on.Pow(a, b)
    if not isinstance(exponent, int):
        raise NotImplementedError(
            f"elementwise: function pow of {on.dtype} by a tensor cannot be said by ONNX's operators: Pow may compute with floats; "
            "expected a number as exponent"
        )
    return _integer_power(on, a, exponent)


def _integer_power(on, a, exponent):
    """By squares; a negative exponent leaves something of 1 and -1 alone."""
    if exponent < 0:
        of_minus_one = on.Where(on.Equal(a, on.constant(-1)), on.constant(-1 if exponent % 2 else 1), on.constant(0))
        return on.Where(on.Equal(a, on.constant(1)), on.constant(1), of_minus_one)
    y = on.Where(on.Equal(a, a), on.constant(1), a)  # in a's shape
    while exponent:
        y = on.Mul(y, a) if exponent % 2 else y
        a, exponent = on.Mul(a, a), exponent // 2
    return y


def _shift(on, a, b, direction):
    """BitShift is for unsigned integers, and says nothing of a shift by the width or more."""
    unsigned = f"uint{on.bits}"
    inside = on.And(on.GreaterOrEqual(b, on.constant(0)), on.Less(b, on.constant(on.bits)))
    bits, by = (on.cast(x, unsigned) if on.is_signed else x for x in (a, on.Where(inside, b, on.constant(0))))
    y = on.BitShift(bits, by, direction=direction)
    return inside, on.cast(y, on.dtype) if on.is_signed else y


def _left_shift(on, a, b):
    inside, y = _shift(on, a, b, "LEFT")
    return on.Where(inside, y, on.constant(0))


def _right_shift(on, a, b):
    if not on.is_signed:
        inside, y = _shift(on, a, b, "RIGHT")
        return on.Where(inside, y, on.constant(0))
    negative = on.Less(a, on.constant(0))  # whose other bits are those of a number that is not negative
    inside, y = _shift(on, on.Where(negative, on.BitwiseNot(a), a), b, "RIGHT")
    y = on.Where(inside, y, on.constant(0))
    return on.Where(negative, on.BitwiseNot(y), y)


# ---- cast ----


def _bounds(dtype):
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _cast(on, a, to):
    if to == "bool":
        return on.Identity(a) if on.is_bool else _is_true(on, a)
    if on.is_bool or "float" in to:
        return on.cast(a, to)
    low, high = _bounds(to)
    return _saturated(on, a, to, low, high) if on.is_float else _narrowed(on, a, to, low, high)


def _saturated(on, a, to, low, high):
    """A float as an integer: ONNX says nothing of what does not fit."""
    if high < 2**on.digits:  # both bounds are floats
        fit = _clamp(on, a, on.constant(low), on.constant(high))
        return on.cast(on.Where(on.IsNaN(a), on.constant(0), fit), to)
    y = on.cast(on.Where(_is_between(on, a, low, high + 1), a, on.constant(0)), to)  # high + 1 is a power of two
    y = on.Where(on.LessOrEqual(a, on.constant(low)), on.of(low, to), y)
    return on.Where(on.GreaterOrEqual(a, on.constant(high + 1)), on.of(high, to), y)


def _narrowed(on, a, to, low, high):
    own_low, own_high = _bounds(on.dtype)
    a = _maximum(on, a, on.constant(low)) if low > own_low else a
    a = _minimum(on, a, on.constant(high)) if high < own_high else a
    return on.cast(a, to)


_FUNCTIONS = {name: _plain(operator) for name, operator in ONNX.items()} | {
    "neg": _neg,
    "square": _square,
    "rsqrt": _rsqrt,
    "cbrt": _cbrt,
    "exp2": lambda on, a: on.Pow(on.constant(2), a),
    "expm1": _expm1,
    "log2": _quotient(2),
    "log10": _quotient(10),
    "log1p": _log1p,
    "relu": _relu,
    "elu": _elu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "floor": _of_floats("Floor"),
    "ceil": _of_floats("Ceil"),
    "round": _of_floats("Round"),
    "trunc": _trunc,
    "logical_not": _logical_not,
    "bitwise_not": _bits("Not"),
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
    "cast": _cast,
    "div": _div,
    "pow": _pow,
    "atan2": _atan2,
    "hypot": _hypot,
    "maximum": _maximum,
    "minimum": _minimum,
    "fmod": _fmod,
    "remainder": _remainder,
    "logaddexp": _logaddexp,
    "ne": lambda on, a, b: on.Not(on.Equal(a, b)),
    "logical_and": _of_truths("And"),
    "logical_or": _of_truths("Or"),
    "logical_xor": _of_truths("Xor"),
    "bitwise_and": _bits("And"),
    "bitwise_or": _bits("Or"),
    "bitwise_xor": _bits("Xor"),
    "bitwise_left_shift": _left_shift,
    "bitwise_right_shift": _right_shift,
    "fma": _fma,
    "where": _where,
    "clamp": _clamp,
}
