# SPDX-License-Identifier: Apache-2.0
"""Expressions of tensor programs: what Python's operators on a buffer's elements and on loop variables make. Each knows its text.
docs/programs.md says what it means."""

from __future__ import annotations

import contextvars
import numbers
import operator
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from narrows import _function_table
from narrows.program import _dtypes
from narrows.program._dtypes import FLOATS, INDEX, INTEGERS

if TYPE_CHECKING:
    from narrows.program._recorder import Buffer

Operand: TypeAlias = "Expr | int | float | bool"

# How strongly an operator binds, as in Python.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _MINUS, _ATOM = range(8)
_STRENGTH = {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
_STRENGTH |= dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), _COMPARE)
# Functions of bool, whatever their operands are.
PREDICATES = frozenset("eq ne lt le gt ge isnan isinf isfinite logical_not logical_and logical_or logical_xor".split())


class Expr:
    """A number that the program computes: an element, a loop variable, or made of such."""

    __slots__ = ("dtype", "parts")
    dtype: str  # a short name, or 'index'
    parts: tuple[Expr, ...]

    def __init__(self, dtype: str, parts: tuple[Expr, ...] = ()) -> None:
        self.dtype, self.parts = dtype, parts

    def text(self) -> str:
        raise NotImplementedError

    def strength(self) -> int:
        return _ATOM

    def within(self, least: int) -> str:
        """The text, in brackets where it binds more weakly than what is around."""
        return self.text() if self.strength() >= least else f"({self.text()})"

    def walk(self) -> Iterator[Expr]:
        yield self
        for part in self.parts:
            yield from part.walk()

    def __repr__(self) -> str:
        return self.text()

    # ---- operators ----

    def __add__(self, other: Operand) -> Expr:
        return infix("+", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return infix("+", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return infix("-", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return infix("-", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return infix("*", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return infix("*", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return infix("/", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return infix("/", other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return infix("//", self, other)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return infix("//", other, self)

    def __mod__(self, other: Operand) -> Expr:
        return infix("%", self, other)

    def __rmod__(self, other: Operand) -> Expr:
        return infix("%", other, self)

    def __pow__(self, other: Operand) -> Expr:
        return call("pow", self, other)

    def __rpow__(self, other: Operand) -> Expr:
        return call("pow", other, self)

    def __neg__(self) -> Expr:
        return Minus(self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return call("abs", self)

    def __and__(self, other: Operand) -> Expr:
        return call("bitwise_and", self, other)

    def __rand__(self, other: Operand) -> Expr:
        return call("bitwise_and", other, self)

    def __or__(self, other: Operand) -> Expr:
        return call("bitwise_or", self, other)

    def __ror__(self, other: Operand) -> Expr:
        return call("bitwise_or", other, self)

    def __xor__(self, other: Operand) -> Expr:
        return call("bitwise_xor", self, other)

    def __rxor__(self, other: Operand) -> Expr:
        return call("bitwise_xor", other, self)

    def __invert__(self) -> Expr:
        return call("bitwise_not", self)

    def __lshift__(self, other: Operand) -> Expr:
        return call("bitwise_left_shift", self, other)

    def __rshift__(self, other: Operand) -> Expr:
        return call("bitwise_right_shift", self, other)

    def __lt__(self, other: Operand) -> Expr:
        return infix("<", self, other)

    def __le__(self, other: Operand) -> Expr:
        return infix("<=", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return infix(">", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return infix(">=", self, other)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return infix("==", self, other)

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return infix("!=", self, other)

    __hash__ = object.__hash__

    def astype(self, dtype: object) -> Expr:
        """``T.cast(self, dtype)``"""
        return cast(self, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **how: Any) -> Expr:
        """What stands beside a scalar of NumPy; its other functions are T's."""
        name = ufunc.__name__
        if method == "__call__" and not how and name in _NUMPY:
            make, by = _NUMPY[name]
            return make(by, *(x[()] if getattr(x, "shape", None) == () else x for x in operands))  # it makes 0-d arrays of some
        instead = f"write T.{name}" if name in _function_table.TABLE else "T has the functions of docs/ops.md"
        raise TypeError(f"numpy.{name} of '{self.text()}', which is no number yet; {instead}")

    # ---- what Python would ask, and no symbol can answer ----

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"'{self.text()}' is known when the program runs, not while it is written: Python cannot choose by it. For if and else "
            "write T.if_then_else(cond, a, b), for and, or, not T.And(a, b), T.Or(a, b), T.Not(a), "
            "for a < b < c T.And(a < b, b < c), "
            "for max and min T.max(a, b) and T.min(a, b)"
        )

    def _no_number(self) -> NoReturn:
        raise TypeError(
            f"'{self.text()}' is no number yet: write T.exp(x) and the like for functions of Python's math or NumPy, "
            "T.cast(x, dtype) for int(x) and float(x), T.serial(x) for range(x) in a helper function"
        )

    def __index__(self) -> NoReturn:
        self._no_number()

    def __int__(self) -> NoReturn:
        self._no_number()

    def __float__(self) -> NoReturn:
        self._no_number()

    def __iter__(self) -> NoReturn:
        raise TypeError(f"'{self.text()}' is one number, and cannot be iterated over")


class Number(Expr):
    """A constant. One of T.int32(…) or T.int64(…) beside an index is an index."""

    __slots__ = ("value",)

    def __init__(self, value: int | float | bool, dtype: str) -> None:
        super().__init__(dtype)
        self.value = value
        if dtype != INDEX:
            _dtypes.constant(value, dtype)  # fits, or raises

    def text(self) -> str:
        return str(self.value) if self.dtype == INDEX else _dtypes.constant(self.value, self.dtype)

    def strength(self) -> int:
        return _MINUS if self.dtype == INDEX and self.value < 0 else _ATOM


class Named:
    """What has the name that its author gave it, found in the frame where it was made."""

    hint: str | None
    name: str | None  # in the text, once that is written
    place: tuple[FrameType, object] | None

    def sought(self, frame: FrameType, seen: object) -> None:
        """`seen` is what stands in the frame: the thing, or what is made of it."""
        self.place = (frame, seen)

    def find_name(self) -> bool:
        if self.hint is None and self.place is not None:
            frame, seen = self.place
            found = (name for space in (frame.f_locals, frame.f_globals) for name, value in space.items() if value is seen)
            self.hint = next(found, None)
        return self.hint is not None

    def named(self, otherwise: str) -> str:
        self.find_name()
        return self.name or self.hint or otherwise


class Variable(Expr, Named):
    """A loop variable, an axis, a size or a param."""

    def __init__(self, kind: str, dtype: str = INDEX, hint: str | None = None) -> None:
        super().__init__(dtype)
        self.kind, self.hint, self.is_open = kind, hint, True
        self.name, self.place = None, None

    def text(self) -> str:
        return self.named(self.kind)


class Load(Expr):
    """An element of a buffer."""

    __slots__ = ("age", "buffer")

    def __init__(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        super().__init__(buffer.short, indices)
        self.buffer, self.age = buffer, buffer.stores

    def text(self) -> str:
        return f"{self.buffer.text()}[{', '.join(index.text() for index in self.parts)}]"


class Present(Expr):
    """Whether an optional tensor was given."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Buffer) -> None:
        super().__init__("bool")
        self.buffer = buffer

    def text(self) -> str:
        return f"present({self.buffer.text()})"


class Infix(Expr):
    __slots__ = ("sign",)

    def __init__(self, sign: str, left: Expr, right: Expr, dtype: str) -> None:
        super().__init__(dtype, (left, right))
        self.sign = sign

    def strength(self) -> int:
        return _STRENGTH[self.sign]

    def text(self) -> str:
        own = self.strength()
        left, right = self.parts
        return f"{left.within(own + (own == _COMPARE))} {self.sign} {right.within(own + 1)}"


class Minus(Expr):
    __slots__ = ()

    def __init__(self, value: Expr) -> None:
        super().__init__(value.dtype, (value,))

    def strength(self) -> int:
        return _MINUS

    def text(self) -> str:
        return f"-{self.parts[0].within(_MINUS)}"


class Not(Expr):
    __slots__ = ()

    def __init__(self, value: Expr) -> None:
        super().__init__("bool", (value,))

    def strength(self) -> int:
        return _NOT

    def text(self) -> str:
        return f"not {self.parts[0].within(_NOT)}"


class Call(Expr):
    """A function by its name in the text, or a cast by its dtype."""

    __slots__ = ("name",)

    def __init__(self, name: str, operands: tuple[Expr, ...], dtype: str) -> None:
        super().__init__(dtype, operands)
        self.name = name

    def text(self) -> str:
        return f"{self.name}({', '.join(part.text() for part in self.parts)})"


# ---- operands of one type ----

# Whether an index beside an integer that was read is cast to its dtype, as TVM's functions mean it.
casts_indices: contextvars.ContextVar[bool] = contextvars.ContextVar("casts_indices", default=False)


def is_literal(value: object) -> bool:
    """A number of Python or NumPy, which takes the type of what stands beside it."""
    return isinstance(value, (bool, numbers.Real)) or type(value).__name__ == "bool_"


def is_index(value: object) -> bool:
    """May it stand in a subscript?"""
    if isinstance(value, Expr):
        return value.dtype == INDEX or _is_integer_number(value)
    return is_literal(value) and hasattr(value, "__index__") and not isinstance(value, bool)


def _is_integer_number(value: Expr) -> bool:
    return isinstance(value, Number) and value.dtype in INTEGERS


def as_index(value: Any, what: str) -> Expr:
    """What may stand in a subscript, or as an extent; TypeError."""
    if isinstance(value, Expr) and value.dtype == INDEX:
        return value
    if isinstance(value, Expr) and value.dtype in INTEGERS:
        index = _without_casts(value)
        if index is not None:
            return index
        raise TypeError(
            f"{what}: '{value.text()}' is data; hold it in bounds by T.clamp(x, 0, n - 1), so that no read can leave the buffer"
        )
    if is_index(value):
        return Number(operator.index(value), INDEX)
    shown = f"'{value.text()}' of {_dtypes.shown(value.dtype)}" if isinstance(value, Expr) else repr(value)
    raise TypeError(f"{what}: {shown}; expected an integer, a size, a loop variable, an axis, or a sum of such")


def _without_casts(value: Expr) -> Expr | None:
    """The index that TVM's programs cast to int64 before they compute with it; None: data are in it."""
    if value.dtype == INDEX:
        return value
    if isinstance(value, Number):
        return Number(value.value, INDEX) if value.dtype in INTEGERS else None
    if isinstance(value, Call) and value.name == "i64" and value.parts[0].dtype == INDEX:
        return value.parts[0]
    if isinstance(value, Infix) and value.sign in ("+", "-", "*", "%"):
        left, right = map(_without_casts, value.parts)
        return None if left is None or right is None else Infix(value.sign, left, right, INDEX)
    return None


def as_value(value: Any, dtype: str, what: str) -> Expr:
    """A value of that element type: a number takes the type, all else has it already; TypeError."""
    if not isinstance(value, Expr):
        if not is_literal(value):
            raise TypeError(f"{what}: {value!r}; expected an expression or a number")
        return Number(value, dtype)
    if value.dtype == dtype:
        return value
    if isinstance(value, Number) and value.dtype == INDEX:
        return Number(value.value, dtype)
    if value.dtype == INDEX and dtype in INTEGERS and casts_indices.get():
        return cast(value, dtype)
    raise TypeError(
        f"{what}: '{value.text()}' is {_dtypes.shown(value.dtype)}, not {_dtypes.shown(dtype)}; types are never mixed, write "
        f'T.cast({value.text()}, "{_dtypes.LONG[dtype]}")'
    )


def alike(operands: tuple[Any, ...], what: str) -> tuple[Expr, ...]:
    """The operands as expressions of one type: all of index where each can be, else of the first one's type that has one."""
    if all(is_index(operand) for operand in operands) and any(
        isinstance(operand, Expr) and operand.dtype == INDEX for operand in operands
    ):
        return tuple(as_index(operand, what) for operand in operands)
    typed = [o for o in operands if isinstance(o, Expr) and not (isinstance(o, Number) and o.dtype == INDEX)]
    if not typed:
        raise TypeError(
            f"{what}: {', '.join(map(repr, operands))}; expected a dtype for one of them, as T.float32({operands[0]!r})"
        )
    dtype = next((o.dtype for o in typed if o.dtype != INDEX), INDEX)
    if dtype == INDEX:  # an index beside a number of floating point
        other = next(o for o in operands if not is_index(o))
        raise TypeError(
            f"{what}: '{typed[0].text()}' is an index, and {other!r} is none; write "
            f'T.cast({typed[0].text()}, "float32") to compute with it'
        )
    return tuple(as_value(operand, dtype, what) for operand in operands)


# ---- what makes expressions ----

_PYTHON: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def infix(sign: str, left: Any, right: Any) -> Expr:
    a, b = alike((left, right), f"'{sign}'")
    if sign == "/" and a.dtype not in FLOATS:
        raise TypeError(
            f"'{a.text()} / {b.text()}': '{a.text()}' is {_dtypes.shown(a.dtype)}; expected floating point: write // to round "
            "down, T.truncdiv(a, b) to round towards 0"
        )
    if sign == "//" and a.dtype in INTEGERS:
        return _floor_divided(a, b)
    if sign == "//" and a.dtype != INDEX:
        raise TypeError(
            f"'{a.text()} // {b.text()}': '{a.text()}' is {_dtypes.shown(a.dtype)}; expected an index or an integer: "
            "write T.floor(a / b)"
        )
    if sign in _PYTHON and a.dtype == INDEX and isinstance(a, Number) and isinstance(b, Number):
        return Number(_PYTHON[sign](a.value, b.value), INDEX)
    if a.dtype == "bool" and sign in ("+", "-", "*", "/"):
        raise TypeError(f"'{a.text()} {sign} {b.text()}': bool; write T.cast(x, dtype) to compute with it")
    return Infix(sign, a, b, "bool" if _STRENGTH[sign] == _COMPARE else a.dtype)


def _floor_divided(a: Expr, b: Expr) -> Expr:
    """Of integers. The text has a division that truncates: it gives 1 too many where both remainders differ. Nothing overflows."""
    differ = infix("!=", call("remainder", a, b), call("fmod", a, b))
    return infix("-", call("div", a, b), where(differ, Number(1, a.dtype), Number(0, a.dtype)))


def call(name: str, *operands: Any) -> Expr:
    """A function of docs/ops.md on operands of one type."""
    values = alike(operands, name)
    if values[0].dtype == INDEX:
        extremes = {"maximum": "max", "minimum": "min"}
        if name not in extremes:
            raise TypeError(f"{name}: '{values[0].text()}' is an index; write T.cast(x, dtype) to make it a value")
        return Call(extremes[name], values, INDEX)
    return Call(name, values, "bool" if name in PREDICATES else values[0].dtype)


def cast(value: Any, dtype: object) -> Expr:
    short = _dtypes.short(dtype, "cast")
    if not isinstance(value, Expr):
        return Number(value, short)
    if value.dtype == short:
        return value
    if isinstance(value, Number) and (value.dtype == INDEX or short in FLOATS):
        return Number(value.value, short)
    return Call(short, (value,), short)


def condition(value: Any, what: str) -> Expr:
    """Of bool."""
    if isinstance(value, bool):
        return Number(value, "bool")
    if not isinstance(value, Expr) or value.dtype != "bool":
        shown = f"'{value.text()}'" if isinstance(value, Expr) else repr(value)
        raise TypeError(f"{what}: {shown}; expected a condition, such as i < n")
    return value


def logic(word: str, operands: tuple[Any, ...]) -> Expr:
    values = [condition(operand, word) for operand in operands]
    if len(values) < 2:
        raise TypeError(f"'{word}' of {len(values)} conditions; expected two or more")
    made = values[0]
    for value in values[1:]:
        made = Infix(word, made, value, "bool")
    return made


def where(chosen: Any, then: Any, otherwise: Any) -> Expr:
    first = condition(chosen, "if_then_else")
    a, b = alike((then, otherwise), "if_then_else")
    if a.dtype == INDEX:
        raise TypeError(
            f"if_then_else: '{a.text()}' and '{b.text()}' are indices; write T.max and T.min for them, or cast them to make values"
        )
    return Call("where", (first, a, b), a.dtype)


def clamp(value: Any, low: Any, high: Any) -> Expr:
    """Data between two indices is an index, which may choose what is read; else docs/ops.md's clamp."""
    is_data = isinstance(value, Expr) and value.dtype in INTEGERS and not isinstance(value, Number)
    if is_data and is_index(low) and is_index(high):
        return Call("clamp", (value, as_index(low, "clamp"), as_index(high, "clamp")), INDEX)
    if is_index(value) and is_index(low) and is_index(high):
        return call("minimum", call("maximum", value, low), high)
    values = alike((value, low, high), "clamp")
    return Call("clamp", values, values[0].dtype)


# What NumPy's scalars call for an operator.
_NUMPY: dict[str, tuple[Callable[..., Expr], str]] = {
    name: (infix, sign)
    for name, sign in {
        "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%",
        "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
    }.items()
}  # fmt: skip
_NUMPY |= {
    name: (call, function)
    for name, function in {
        "power": "pow", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
        "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
    }.items()
}  # fmt: skip
