# SPDX-License-Identifier: Apache-2.0
"""TVMScript's spelling of tensor programs, run as ordinary Python: no source is parsed.

    >>> from narrows.program import script as T
    >>> @T.prim_func
    ... def double(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    ...     for i in T.parallel(8):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(8, i)
    ...             B[vi] = A[vi] * 2
    >>> double.show()
    program 1 double(A: f32[8], B: out f32[8]):
      for i in 8 parallel:
        block B(vi: S(8) = i):
          B[vi] = A[vi] * f32(2)
    <BLANKLINE>

``@T.prim_func`` calls the function once. Loops yield variables, blocks and stores are recorded, and the text of the program is made
of them. Functions are those of docs/ops.md, by its names and by TVM's: ``T.exp(x)``, ``T.max(a, b)``.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from narrows import _function_table
from narrows.program import _dtypes, _expressions
from narrows.program import ir as ir
from narrows.program._expressions import Expr, Number, Operand, Variable
from narrows.program._function import PrimFunc as PrimFunc
from narrows.program._function import prim_func as prim_func
from narrows.program._recorder import Buffer as _Buffer
from narrows.program._recorder import current, note
from narrows.program._types import BufferType, DType, Handle

Buffer = BufferType
handle = Handle()

bool = boolean = DType("bool")
int8, int16, int32, int64 = DType("i8"), DType("i16"), DType("i32"), DType("i64")
uint8, uint16, uint32, uint64 = DType("u8"), DType("u16"), DType("u32"), DType("u64")
float16, bfloat16, float32, float64 = DType("f16"), DType("bf16"), DType("f32"), DType("f64")


# ---- buffers, sizes and params ----


def match_buffer(param: Any, shape: Any, dtype: object = "float32", *, scope: str = "global") -> _Buffer:
    """The tensor that an argument of T.handle stands for; its shape may hold sizes made by T.int32()."""
    return current().match(param, shape, dtype, scope)


def alloc_buffer(shape: Any, dtype: object = "float32", scope: str = "global", *, name: str | None = None) -> _Buffer:
    """Memory of the program's own. Its name is the variable's; inside a list it needs `name`."""
    return current().allocate(shape, dtype, scope, name)


sblock_alloc_buffer = alloc_buffer


def param(dtype: object, default: Any, *, name: str | None = None) -> Variable:
    """A number that the caller passes by its name, or else the default; integers may stand in subscripts and shapes."""
    return current().param(dtype, default, name)


def present(buffer: _Buffer) -> Expr:
    """Whether a tensor was given whose argument has the default None; it is read as T.if_then_else(T.present(A), A[i], x)."""
    if not isinstance(buffer, _Buffer) or not buffer.is_optional:
        raise TypeError(f"present: {buffer!r}; expected a tensor whose argument has the default None")
    return _expressions.Present(buffer)


def Var(name: str, dtype: object) -> Variable:
    """A size by its name."""
    return Variable("size", hint=name)


SizeVar = Var


def func_attr(attributes: dict[str, Any]) -> None:
    """Of TVM's attributes of a function, "global_symbol" becomes the program's name; the others are ignored."""
    current().name = str(attributes.get("global_symbol", current().name))


# ---- loops ----


def grid(*extents: Any) -> Iterator[Any]:
    """Nested loops: one variable for each extent."""
    if not extents:
        raise TypeError("T.grid() has no extents; expected one for each loop")
    return current().loops(list(extents))


def _loop(what: str, start: Any, stop: Any, step: Any, kind: str, annotations: dict[str, Any] | None) -> Iterator[Any]:
    if stop is None:
        start, stop = 0, start
    if not isinstance(step, int) or step < 1:
        raise ValueError(f"{what}: step = {step!r}; expected a positive integer")
    extent = stop if isinstance(start, int) and start == 0 else stop - start
    extent = extent if step == 1 else (extent + step - 1) // step
    notes = {key: note(value) for key, value in (annotations or {}).items()}
    return current().loops([extent], kind, notes, start, step)


def serial(start: Any, stop: Any = None, step: Any = 1, *, annotations: dict[str, Any] | None = None) -> Iterator[Any]:
    """A loop, as Python's range; inside @T.prim_func `range` itself is this."""
    return _loop("serial", start, stop, step, "", annotations)


def parallel(start: Any, stop: Any = None, step: Any = 1, *, annotations: dict[str, Any] | None = None) -> Iterator[Any]:
    """A loop whose iterations the threads of the device share."""
    return _loop("parallel", start, stop, step, "parallel", annotations)


def vectorized(start: Any, stop: Any = None, step: Any = 1, *, annotations: dict[str, Any] | None = None) -> Iterator[Any]:
    """A loop whose iterations are the lanes of vectors."""
    return _loop("vectorized", start, stop, step, "vectorize", annotations)


def unroll(start: Any, stop: Any = None, step: Any = 1, *, annotations: dict[str, Any] | None = None) -> Iterator[Any]:
    """A loop that is written out."""
    return _loop("unroll", start, stop, step, "unroll", annotations)


def thread_binding(start: Any, stop: Any = None, thread: str = "", *, annotations: dict[str, Any] | None = None) -> Iterator[Any]:
    """A loop over a GPU's blocks or threads: "blockIdx.x" to "threadIdx.z"."""
    return _loop("thread_binding", start, stop, 1, f"bind {thread_axis(thread)}", annotations)


def thread_axis(thread: str) -> str:
    """The text's name of one of CUDA's axes; it may be given, too."""
    kind, _, axis = str(thread).partition(".")
    kinds = {"blockIdx": "block", "threadIdx": "thread", "block": "block", "thread": "thread"}
    if kind not in kinds or axis not in ("x", "y", "z"):
        raise ValueError(f"thread = {thread!r}; expected blockIdx or threadIdx, and .x, .y or .z")
    return f"{kinds[kind]}.{axis}"


static_range = range


# ---- blocks ----


class _Block:
    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        # TVM's printer puts a block of that name around the whole function.
        if self._name != "root" or current().around:
            current().enter_block(self._name or "block")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and current().block is not None:
            current().leave_block()


class _Init:
    def __enter__(self) -> None:
        block = current().in_block("T.init")
        if block.body:
            raise SyntaxError(f"block '{block.name}': T.init after a store; it comes first")
        block.is_in_init = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        current().in_block("T.init").is_in_init = False


def block(name: str = "") -> _Block:
    """``with T.block("name"):`` holds axes, then stores."""
    return _Block(name)


sblock = block


def init() -> _Init:
    """``with T.init():`` holds what a reduction begins with."""
    return _Init()


class _Axes:
    """T.axis"""

    def spatial(self, extent: Any, value: Any, dtype: object = None) -> Variable:
        """An axis whose points may be computed in any order."""
        return current().axis("S", self._extent(extent), value)

    def reduce(self, extent: Any, value: Any, dtype: object = None) -> Variable:
        """An axis that is reduced over."""
        return current().axis("R", self._extent(extent), value)

    def scan(self, extent: Any, value: Any, dtype: object = None) -> Variable:
        """An axis that keeps its order, as of a running sum."""
        return current().axis("C", self._extent(extent), value)

    S, R, C = spatial, reduce, scan

    def opaque(self, extent: Any, value: Any, dtype: object = None) -> Variable:
        raise NotImplementedError("T.axis.opaque is not offered: nothing can be proven about it; write spatial, reduce or scan")

    def remap(self, kinds: str, values: list[Any] | tuple[Any, ...]) -> Any:
        """An axis for each of these loop variables: "S", "R" or "C" (scan) in `kinds`."""
        if len(kinds) != len(values) or set(kinds) - set("SRC"):
            raise ValueError(f"T.axis.remap: {kinds!r} for {len(values)} loops; expected one of S, R, C for each")
        axes = [current().axis(kind, current().extent_of(value), value) for kind, value in zip(kinds, values, strict=True)]
        return axes[0] if len(axes) == 1 else axes

    @staticmethod
    def _extent(extent: Any) -> Any:
        if not isinstance(extent, tuple):
            return extent
        begin, end = extent
        if not isinstance(begin, int) or begin != 0:
            raise ValueError(f"an axis over {extent!r}; expected one that begins at 0")
        return end


axis = _Axes()


def where(condition: Any, *values: Any) -> Expr | None:
    """``T.where(cond)`` in a block: its loops' iterations run where it holds. With three operands docs/ops.md's function."""
    if values:
        return _expressions.where(condition, *values)
    current().restrict(condition)
    return None


def reads(*regions: Any) -> None:
    """What a block reads is found in its stores: TVM's word for it says nothing more."""


def writes(*regions: Any) -> None:
    """As :func:`reads`."""


def block_attr(attributes: dict[str, Any]) -> None:
    """Notes of a block, which a backend may read."""
    found = current().in_block("T.block_attr")
    found.notes.update({key: note(value) for key, value in attributes.items()})


sblock_attr = block_attr


# ---- expressions ----


def cast(value: Operand, dtype: object) -> Expr:
    """The value in another dtype, as docs/ops.md's cast."""
    return _expressions.cast(value, dtype)


def Cast(dtype: object, value: Operand) -> Expr:
    """``T.cast(value, dtype)``, as TVM prints it."""
    return _expressions.cast(value, dtype)


def if_then_else(condition: Any, then: Any, otherwise: Any) -> Expr:
    """One of two values; the other one is not read."""
    return _expressions.where(condition, then, otherwise)


Select = if_then_else


def And(*conditions: Any) -> Expr:
    return _expressions.logic("and", conditions)


def Or(*conditions: Any) -> Expr:
    return _expressions.logic("or", conditions)


def Not(condition: Any) -> Expr:
    return _expressions.Not(_expressions.condition(condition, "not"))


def clamp(value: Any, low: Any, high: Any) -> Expr:
    """An integer that was read, held between two indices, is an index: ``A[T.clamp(I[vi], 0, n - 1)]`` gathers."""
    return _expressions.clamp(value, low, high)


def floordiv(a: Any, b: Any) -> Expr:
    return _expressions.infix("//", a, b)


def floormod(a: Any, b: Any) -> Expr:
    return _expressions.infix("%", a, b)


def truncdiv(a: Any, b: Any) -> Expr:
    """Of integers, towards 0."""
    return _expressions.call("div", a, b)


def truncmod(a: Any, b: Any) -> Expr:
    """Of integers, with the sign of `a`."""
    return _expressions.call("fmod", a, b)


def ceildiv(a: Any, b: Any) -> Any:
    """Of indices, upwards."""
    return (a + b - 1) // b


def infinity(dtype: object) -> Expr:
    return Number(float("inf"), _dtypes.short(dtype, "infinity"))


def nan(dtype: object) -> Expr:
    return Number(float("nan"), _dtypes.short(dtype, "nan"))


def _bound(dtype: object, which: int) -> Expr:
    short = _dtypes.short(dtype, "a bound")
    return Number(_dtypes.bounds(short)[which], short)


def min_value(dtype: object) -> Expr:
    """The lowest finite number of a dtype."""
    return _bound(dtype, 0)


def max_value(dtype: object) -> Expr:
    """The highest finite number of a dtype."""
    return _bound(dtype, 1)


def elu(a: Operand, alpha: Operand = 1.0) -> Expr:
    return _expressions.call("elu", a, alpha)


# TVM's names beside docs/ops.md's and the array API's, which narrows._function_table has.
_FUNCTIONS: dict[str, tuple[str, int]] = {name: (row[0], row[1]) for name, row in _function_table.TABLE.items()}
_FUNCTIONS |= {row[0]: (row[0], row[1]) for row in _function_table.TABLE.values()}
_FUNCTIONS |= {
    other: _FUNCTIONS[name]
    for other, name in {"max": "maximum", "min": "minimum", "power": "pow", "fabs": "abs", "nearbyint": "round"}.items()
}
_NOT_OFFERED = {
    "calls of functions outside of the program": "call_extern call_packed call_intrin call_llvm_intrin evaluate tvm_call_packed",
    "a value has no name of its own: keep it in a Python variable": "Let let LetStmt bind",
    "loops have an extent that is known before they begin": "While",
    "a reduction is a store in a block with a reduce axis: C[i] = C[i] + x, or T.max(C[i], x)": "comm_reducer CommReducer sum",
    "memory comes by T.alloc_buffer": "allocate decl_buffer Allocate buffer_decl allocate_const",
    "a value keeps its bits in no other dtype": "reinterpret",
}


def __getattr__(name: str) -> Any:
    if name in ("tir", "tirx"):
        return sys.modules[__name__]
    if name in _FUNCTIONS:
        function = _made(name, *_FUNCTIONS[name])
        return globals().setdefault(name, function)
    for reason, names in _NOT_OFFERED.items():
        if name in names.split():
            raise AttributeError(f"T.{name} is not offered: {reason}")
    near = difflib.get_close_matches(name, [*globals(), *_FUNCTIONS], 1)
    raise AttributeError(f"there is no T.{name}" + (f"; did you mean T.{near[0]}?" if near else ""))


def _made(name: str, function: str, operands: int) -> Callable[..., Expr]:
    def made(*values: Any) -> Expr:
        if len(values) != operands:
            raise TypeError(f"T.{name} takes {operands} operands, not {len(values)}")
        return _expressions.call(function, *values)

    made.__name__ = made.__qualname__ = name
    return made
