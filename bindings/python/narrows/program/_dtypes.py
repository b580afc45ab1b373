# SPDX-License-Identifier: Apache-2.0
"""The element types of tensor programs: TVM's and NumPy's names, and the short ones of the text."""

import math
import operator
import struct

SHORT = {
    "bool": "bool",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
}
LONG = {short: long for long, short in SHORT.items()}
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
# Of sizes, loop variables, axes and integer params: what may stand in a subscript. It is no type of an element.
INDEX = "index"
_PACKED = {"f16": "<e", "f32": "<f", "f64": "<d"}


def short(dtype: object, what: str) -> str:
    """The text's name of a dtype, from a string or from an object that says its name: ``numpy.float32``, ``torch.float32``."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(name).removeprefix("torch.")
    if name in LONG:
        return name
    if name not in SHORT:
        raise ValueError(f"{what}: dtype = {dtype!r}; expected one of {', '.join(SHORT)}")
    return SHORT[name]


def shown(dtype: str) -> str:
    """A dtype for messages: 'float32', or what an index is."""
    return LONG.get(dtype, "an index")


def bounds(dtype: str) -> tuple[float, float]:
    """The lowest and the highest finite number of a dtype."""
    if dtype == "bool":
        return 0, 1
    if dtype in INTEGERS:
        bits = int(dtype[1:])
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype[0] == "i" else (0, (1 << bits) - 1)
    precision, exponent = {"f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}[dtype]
    most = math.ldexp(2 - math.ldexp(1, 1 - precision), exponent)
    return -most, most


def constant(value: object, dtype: str) -> str:
    """The text of a number as a constant of a dtype; ValueError: the dtype does not hold it."""
    if dtype == "bool":
        if not isinstance(value, bool) and value not in (0, 1):
            raise ValueError(f"{value!r} is no constant of bool; expected True or False")
        return f"bool({int(bool(value))})"
    if dtype in INTEGERS:
        return f"{dtype}({_integer(value, dtype)})"
    return f"{dtype}({_real(value, dtype)})"


def _integer(value: object, dtype: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{value!r} is no constant of {LONG[dtype]}; expected an integer") from None
    low, high = bounds(dtype)
    if not low <= number <= high:
        raise ValueError(f"{number} is no constant of {LONG[dtype]}; expected {low} to {high}")
    return number


def _real(value: object, dtype: str) -> str:
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number) or math.isinf(number):
        return str(number)
    rounded = _rounded(number, dtype)
    if rounded.is_integer() and abs(rounded) < 2**53 and str(rounded) != "-0.0":
        return str(int(rounded))
    mantissa, exponent = rounded.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


def _rounded(number: float, dtype: str) -> float:
    """To nearest in the dtype; ValueError: it overflows."""
    try:
        if dtype != "bf16":
            return float(struct.unpack(_PACKED[dtype], struct.pack(_PACKED[dtype], number))[0])
        mantissa, exponent = math.frexp(number)
        bits = min(8, exponent + 133)  # of its significand: fewer below the least normal number, 2**-126
        rounded = math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)  # to nearest, ties to even
    except OverflowError:
        rounded = math.inf
    if abs(rounded) > bounds(dtype)[1]:
        raise ValueError(f"{number!r} is no constant of {LONG[dtype]}: it is too large")
    return math.copysign(rounded, number)
