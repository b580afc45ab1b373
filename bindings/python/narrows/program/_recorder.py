# SPDX-License-Identifier: Apache-2.0
"""What a function in TVMScript's spelling records while it runs as ordinary Python: buffers, loops, blocks and stores."""

from __future__ import annotations

import ast
import keyword
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from narrows.program import _dtypes, _expressions
from narrows.program._expressions import Expr, Load, Named, Number, Variable

# What may stand in an extent that is a string.
_SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub)
_OF_EXTENTS = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Load, *_SIGNS)
_SCOPES = {"global": "", "shared": " shared", "shared.dyn": " shared", "local": " local"}


class Buffer(Named):
    """A tensor or an allocation: ``B[i, j]`` is an element, ``B[i, j] = x`` stores one, inside a block."""

    def __init__(self, shape: tuple[Expr, ...], dtype: str, hint: str | None, scope: str = "") -> None:
        self._shape, self.short, self.hint, self.scope = shape, dtype, hint, scope
        self.name, self.place = None, None
        self.is_optional = False
        self.stores = 0  # how many were recorded: a load that is older than the last one is not what it seems
        self.is_read_first = False
        self.is_carried = False  # read by the block that stores it first, along an axis whose points run in order

    @property
    def shape(self) -> tuple[Any, ...]:
        """Integers and sizes."""
        return tuple(extent.value if isinstance(extent, Number) else extent for extent in self._shape)

    @property
    def dtype(self) -> str:
        return _dtypes.LONG[self.short]

    def text(self) -> str:
        return self.named("buffer")

    def declared(self, role: str = "") -> str:
        extents = ", ".join(extent.text() for extent in self._shape)
        return f"{self.text()}{'?' * self.is_optional}: {role}{self.short}[{extents}]{self.scope}"

    def _indices(self, at: Any) -> tuple[Expr, ...]:
        indices = at if isinstance(at, tuple) else (at,)
        if len(indices) != len(self._shape):
            raise IndexError(f"{self.text()}[{', '.join(map(str, indices))}]: {len(indices)} subscripts; it has {len(self._shape)}")
        return tuple(_expressions.as_index(index, f"a subscript of {self.text()}") for index in indices)

    def __getitem__(self, at: Any) -> Any:
        indices = at if isinstance(at, tuple) else (at,)
        if any(isinstance(index, slice) for index in indices):
            return Region(self)
        return Load(self, self._indices(at))

    def __setitem__(self, at: Any, value: Any) -> None:
        current().store(self, self._indices(at), value)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"buffer '{self.text()}' cannot be iterated over; write T.grid or T.serial over its shape")

    def __repr__(self) -> str:
        return self.declared()


class HandleArgument:
    """What an argument of T.handle is until T.match_buffer makes a tensor of it."""

    def __init__(self, name: str, is_optional: bool) -> None:
        self.name, self.is_optional = name, is_optional


class Region:
    """Part of a buffer, as T.reads and T.writes name it."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    def _refused(self, *operands: Any) -> NoReturn:
        raise TypeError(
            f"a slice of '{self._buffer.text()}' stands in T.reads and T.writes only; an element has one subscript for each axis"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __getattr__ = _refused


class Loop:
    def __init__(self, variable: Variable, extent: Expr, kind: str, notes: dict[str, str]) -> None:
        self.variable, self.extent, self.kind, self.notes = variable, extent, kind, notes
        self.body: list[Loop | Block] = []


class Axis:
    def __init__(self, variable: Variable, kind: str, extent: Expr, binding: Expr) -> None:
        self.variable, self.kind, self.extent, self.binding = variable, kind, extent, binding


class Store:
    def __init__(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> None:
        self.buffer, self.indices, self.value = buffer, indices, value

    def text(self) -> str:
        return f"{self.buffer.text()}[{', '.join(index.text() for index in self.indices)}] = {self.value.text()}"


def note(value: object) -> str:
    """The text of a note's value: a backend looks for "true", not for Python's "True"."""
    value = value.value if isinstance(value, Number) else value
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def quoted(text: str) -> str:
    """As it stands in the text of a program and in steps. ValueError: it has a character that no string there has."""
    wrong = next((c for c in text if (c < " " or c == "\x7f") and c not in _ESCAPES), None)
    if wrong is not None:
        raise ValueError(f"{text!r} has the control character {wrong!r}; expected none but newlines and tabs")
    return '"' + "".join(_ESCAPES.get(c, c) for c in text) + '"'


class Block:
    def __init__(self, name: str) -> None:
        self.name = name
        self.axes: list[Axis] = []
        self.predicate: Expr | None = None
        self.notes: dict[str, str] = {}
        self.init: list[Store] = []
        self.body: list[Store] = []
        self.is_in_init = False


def caller() -> FrameType:
    """The frame of whoever called this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("narrows.program."):
        frame = frame.f_back
    assert frame is not None
    return frame


def _from(start: Any, variable: Variable, step: int) -> Any:
    """What a loop variable of the text, which begins at 0, is to the caller."""
    value: Any = variable if step == 1 else variable * step
    return value if isinstance(start, int) and start == 0 else start + value


class Recorder:
    """One run of one function."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensors: dict[str, Buffer | None] = {}  # by argument; None: of T.handle, and not matched yet
        self.params: list[tuple[Variable, str, Any]] = []  # with dtype and default
        self.sizes: list[Variable] = []
        self.allocations: list[Buffer] = []
        self.body: list[Loop | Block] = []
        self.around: list[Loop] = []
        self.block: Block | None = None
        self.failure: Exception | None = None
        self._unnamed: list[Variable | Buffer] = []

    # ---- names, as they stand in the caller's frame ----

    def named_later(self, seen: object, thing: Variable | Buffer) -> None:
        """`seen` is what the caller gives a name: the thing, or what is made of it."""
        thing.sought(caller(), seen)
        self._unnamed.append(thing)

    def look(self) -> None:
        """Finds names before the caller uses them for something else."""
        if self.failure is not None:
            raise self.failure
        self._unnamed = [thing for thing in self._unnamed if not thing.find_name()]

    # ---- shapes ----

    def extent(self, value: Any, what: str) -> Expr:
        if isinstance(value, str):
            if value.isidentifier() and not keyword.iskeyword(value):
                return self.size_named(value)
            value = self._sizes_in(value, what)
        extent = self.checked(_expressions.as_index(value, what))
        if isinstance(extent, Number) and extent.value < 0:
            raise ValueError(f"{what}: {extent.value}; expected 0 or more")
        return extent

    def _sizes_in(self, text: str, what: str) -> Any:
        """What a string such as "(N - 3) // 2 + 1" says of sizes."""
        wrong = ValueError(f"{what}: {text!r}; expected an integer, a size by its name, or a sum of such with + - * // %")
        try:
            tree = ast.parse(text, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise wrong from None
        nodes = list(ast.walk(tree))
        if not all(isinstance(node, _OF_EXTENTS) for node in nodes):
            raise wrong
        if not all(type(node.value) is int for node in nodes if isinstance(node, ast.Constant)):
            raise wrong
        sizes = {node.id: self.size_named(node.id) for node in nodes if isinstance(node, ast.Name)}
        try:
            return eval(compile(tree, what, "eval"), {"__builtins__": {}}, sizes)
        except ZeroDivisionError:
            raise wrong from None

    def size_named(self, name: str) -> Variable:
        for size in self.sizes:
            if size.hint == name:
                return size
        self.sizes.append(Variable("size", hint=name))
        return self.sizes[-1]

    def shape(self, shape: Any, what: str) -> tuple[Expr, ...]:
        extents = shape if isinstance(shape, (tuple, list)) else (shape,)
        return tuple(self.extent(extent, f"{what}: an extent") for extent in extents)

    def handle(self, argument: str, is_optional: bool) -> HandleArgument:
        self.tensors[argument] = None
        return HandleArgument(argument, is_optional)

    def match(self, argument: Any, shape: Any, dtype: object, scope: str) -> Buffer:
        self.look()
        if not isinstance(argument, HandleArgument):
            raise TypeError(f"match_buffer: {argument!r}; expected an argument that is annotated with T.handle")
        if self.tensors[argument.name] is not None or scope != "global":
            raise ValueError(f"match_buffer: argument '{argument.name}'; expected it once, in the scope global")
        tensor = Buffer(self.shape(shape, "match_buffer"), _dtypes.short(dtype, "match_buffer"), None)
        tensor.is_optional = argument.is_optional
        self.tensors[argument.name] = tensor
        self.named_later(tensor, tensor)
        return tensor

    def param(self, dtype: object, default: Any, name: str | None, what: str = "T.param") -> Variable:
        short = _dtypes.short(dtype, what)
        if default is None or isinstance(default, str):
            only = "; only a T.Buffer may be None" if default is None else ""
            raise TypeError(f"{what}: default {default!r}; expected a number{only}")
        is_integer = short in _dtypes.INTEGERS  # of whatever width: the text has one for params
        made = Variable("param", _dtypes.INDEX if is_integer else short, name)
        self.params.append((made, "i64" if is_integer else short, default))
        self.named_later(made, made)
        return made

    def finish(self) -> None:
        if self.failure is not None:
            raise self.failure
        missing = [name for name, tensor in self.tensors.items() if tensor is None]
        if missing:
            raise SyntaxError(f"argument '{missing[0]}' is T.handle, and T.match_buffer makes no tensor of it")

    def allocate(self, shape: Any, dtype: object, scope: str, name: str | None) -> Buffer:
        self.look()
        if scope not in _SCOPES:
            raise ValueError(f"alloc_buffer: scope = {scope!r}; expected one of {', '.join(_SCOPES)}")
        if self.block is not None:
            raise SyntaxError(f"alloc_buffer stands before the loops, not inside block '{self.block.name}'")
        buffer = Buffer(self.shape(shape, "alloc_buffer"), _dtypes.short(dtype, "alloc_buffer"), name, _SCOPES[scope])
        self.allocations.append(buffer)
        self.named_later(buffer, buffer)
        return buffer

    # ---- loops ----

    def loops(
        self, extents: list[Any], kind: str = "", notes: dict[str, str] | None = None, start: Any = 0, step: int = 1
    ) -> Iterator[Any]:
        """Runs the caller's body once, with a variable for each loop."""
        self.look()
        if self.block is not None:
            raise SyntaxError(f"a loop inside block '{self.block.name}'; a block holds stores, and loops stand around it")
        made = [self._enter(extent, kind, notes or {}) for extent in extents]
        seen = [_from(start, loop.variable, step) for loop in made]
        for value, loop in zip(seen, made, strict=True):
            self.named_later(value, loop.variable)
        try:
            yield seen[0] if len(seen) == 1 else tuple(seen)
        except GeneratorExit:
            self.failure = self.failure or SyntaxError(
                f"break or return leaves the loop over '{made[0].variable.text()}'; a program's loops run to their ends"
            )
            raise
        self.look()
        if not made[-1].body:
            raise SyntaxError(
                f"the loop over '{made[-1].variable.text()}' holds no block; write T.static_range for a loop of Python's own"
            )
        for loop in made:
            loop.variable.is_open = False
        del self.around[len(self.around) - len(made) :]

    def _enter(self, extent: Any, kind: str, notes: dict[str, str]) -> Loop:
        loop = Loop(Variable("loop"), self.extent(extent, "a loop's extent"), kind, notes)
        self._inside().append(loop)
        self.around.append(loop)
        return loop

    def _inside(self) -> list[Loop | Block]:
        return self.around[-1].body if self.around else self.body

    # ---- blocks ----

    def enter_block(self, name: str) -> Block:
        self.look()
        if self.block is not None:
            raise SyntaxError(f"block '{name}' inside block '{self.block.name}'; a block holds stores alone")
        self.block = Block(name)
        self._inside().append(self.block)
        return self.block

    def leave_block(self) -> None:
        self.look()
        block = self.in_block("block")
        if not block.body:
            raise SyntaxError(f"block '{block.name}' stores nothing")
        for axis in block.axes:
            axis.variable.is_open = False
        self.block = None

    def in_block(self, what: str) -> Block:
        if self.block is None:
            raise SyntaxError(f'{what} stands inside a block: with T.block("name"):')
        return self.block

    def axis(self, kind: str, extent: Any, binding: Any) -> Variable:
        self.look()
        block = self.in_block("an axis")
        if block.init or block.body:
            raise SyntaxError(f"block '{block.name}': an axis after a store; axes come first")
        what = f"block '{block.name}': an axis"
        variable = Variable("axis")
        value = self.checked(_expressions.as_index(binding, f"{what}'s value"))
        block.axes.append(Axis(variable, kind, self.extent(extent, f"{what}'s extent"), value))
        self.named_later(variable, variable)
        return variable

    def extent_of(self, variable: Any) -> Expr:
        """Of the loop around that has this variable."""
        for loop in self.around:
            if loop.variable is variable:
                return loop.extent
        raise TypeError(
            f"T.axis.remap: {variable!r}; expected the variables of the loops around; else write T.axis.spatial(extent, value)"
        )

    def restrict(self, condition: Any) -> None:
        block = self.in_block("T.where")
        value = self.checked(_expressions.condition(condition, "T.where"))
        block.predicate = value if block.predicate is None else _expressions.logic("and", (block.predicate, value))

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Any) -> None:
        self.look()
        block = self.in_block(f"a store into '{buffer.text()}'")
        what = f"block '{block.name}': the value stored into '{buffer.text()}'"
        is_index = isinstance(value, Expr) and value.dtype == _dtypes.INDEX and not isinstance(value, Number)
        if is_index and not _expressions.casts_indices.get():
            raise TypeError(
                f"{what}: '{value.text()}' is an index; write T.cast({value.text()}, \"{buffer.dtype}\") to store it as a number"
            )
        stored = self.checked(_expressions.as_value(value, buffer.short, what))
        for index in indices:
            self.checked(index)
        for part in [p for e in (stored, *indices) for p in e.walk()]:
            if isinstance(part, Load) and part.buffer.stores == 0:
                if part.buffer is buffer and any(axis.kind == "C" for axis in block.axes):
                    buffer.is_carried = True
                else:
                    part.buffer.is_read_first = True
        buffer.stores += 1
        (block.init if block.is_in_init else block.body).append(Store(buffer, indices, stored))

    # ---- what may stand in an expression here ----

    def checked(self, e: Expr) -> Expr:
        for part in e.walk():
            if isinstance(part, Variable) and not part.is_open:
                raise SyntaxError(f"{part.kind} variable '{part.text()}' is used after its {part.kind} ended")
            if isinstance(part, Variable) and part.kind == "size" and all(part is not size for size in self.sizes):
                self.sizes.append(part)
                self.named_later(part, part)
            if isinstance(part, Load) and part.age != part.buffer.stores:
                raise SyntaxError(
                    f"'{part.text()}' was read before a store into '{part.buffer.text()}', and would now give what was stored; "
                    "read it again where it is used, or keep the old value in a buffer of its own"
                )
        return e


_running = threading.local()


def current() -> Recorder:
    """The run that is under way in this thread."""
    found: Recorder | None = getattr(_running, "recorder", None)
    if found is None:
        raise RuntimeError("this stands inside a function under @T.prim_func, which runs it")
    return found


def is_recording() -> bool:
    """Whether this thread runs a function under @T.prim_func."""
    return getattr(_running, "recorder", None) is not None


def record(recorder: Recorder, run: Callable[[], Any]) -> None:
    """Calls run(), which records into `recorder`."""
    before = getattr(_running, "recorder", None)
    _running.recorder = recorder
    try:
        given = run()
        recorder.finish()
        if given is not None:
            raise SyntaxError(f"'{recorder.name}' returns {given!r}; a program stores its results into its tensors")
        if not recorder.body:
            raise SyntaxError(f"'{recorder.name}' computes nothing; expected blocks that store, as T.block makes them")
    finally:
        _running.recorder = before
