# SPDX-License-Identifier: Apache-2.0
"""The text of what was recorded: names that are unique, then lines (docs/programs.md)."""

from __future__ import annotations

import re
from typing import Any

from narrows import _ops
from narrows.program import _dtypes
from narrows.program._expressions import Variable
from narrows.program._recorder import Block, Buffer, Loop, Recorder, quoted

# What no name may be: the words of the text.
_WORDS = frozenset("and or not for in if inf nan".split()) | frozenset(_dtypes.LONG)


class _Names:
    def __init__(self, taken: set[str] | None = None) -> None:
        self.taken = set(taken or ())

    def give(self, thing: Variable | Buffer, otherwise: str) -> None:
        name = thing.hint or ""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in _WORDS:
            name = otherwise
        thing.name, count = name, 0
        while thing.name in self.taken:
            count += 1
            thing.name = f"{name}{'_' * name[-1].isdigit()}{count}"  # i1; j_1 is what a step makes of j
        self.taken.add(thing.name)

    def give_argument(self, thing: Variable | Buffer, otherwise: str) -> None:
        """Callers say this name, so it is no other than the function's."""
        self.give(thing, otherwise)
        if thing.hint is not None and thing.name != thing.hint:
            raise SyntaxError(
                f"argument '{thing.hint}': the text of a program has another meaning for this name; "
                "expected ASCII letters, digits and _, no word of the text such as inf or f32, and each name once"
            )


def _tensors(program: Recorder) -> list[Buffer]:
    return [tensor for tensor in program.tensors.values() if tensor is not None]


def _name_all(program: Recorder) -> None:
    names = _Names()
    for buffer in _tensors(program):
        names.give_argument(buffer, "tensor")
    for param, _, _ in program.params:
        names.give_argument(param, "param")
        if param.name in _ops.CALL_WORDS:
            raise SyntaxError(f"param '{param.name}': every op takes this word by keyword; expected another name")
    for size in program.sizes:
        names.give(size, "n")
    for buffer in program.allocations:
        names.give(buffer, "buffer_0")
    _name_loops(program.body, names)
    _name_axes(program.body, names)


def _name_loops(body: list[Loop | Block], names: _Names) -> None:
    for statement in body:
        if isinstance(statement, Loop):
            names.give(statement.variable, "i")
            _name_loops(statement.body, names)


def _name_axes(body: list[Loop | Block], names: _Names) -> None:
    for statement in body:
        if isinstance(statement, Loop):
            _name_axes(statement.body, names)
            continue
        own = _Names(names.taken)
        for axis in statement.axes:
            own.give(axis.variable, "v")


def _notes(notes: dict[str, str]) -> str:
    return " {" + ", ".join(f"{quoted(key)}: {quoted(value)}" for key, value in notes.items()) + "}" if notes else ""


def _statements(body: list[Loop | Block], depth: int) -> list[str]:
    lines: list[str] = []
    for statement in body:
        if isinstance(statement, Loop):
            kind = " " * bool(statement.kind) + statement.kind
            lines.append(
                f"{'  ' * depth}for {statement.variable.text()} in {statement.extent.text()}{kind}{_notes(statement.notes)}:"
            )
            lines += _statements(statement.body, depth + 1)
        else:
            lines += _block(statement, depth)
    return lines


def _block(block: Block, depth: int) -> list[str]:
    axes = ", ".join(f"{a.variable.text()}: {a.kind}({a.extent.text()}) = {a.binding.text()}" for a in block.axes)
    condition = f" if {block.predicate.text()}" if block.predicate is not None else ""
    indent = "  " * depth
    lines = [f"{indent}block {re.sub(r'[^A-Za-z0-9_]', '_', block.name)}({axes}){condition}{_notes(block.notes)}:"]
    if block.init:
        lines.append(f"{indent}  init:")
    lines += [f"{indent}    {store.text()}" for store in block.init]
    lines += [f"{indent}  {store.text()}" for store in block.body]
    return lines


def _param(param: Variable, dtype: str, default: Any) -> str:
    value = _dtypes.constant(default, dtype)
    return f"{param.text()}: param {dtype} = {value[len(dtype) + 1 : -1]}"


def _role(tensor: Buffer, carried: str) -> str:
    if not tensor.stores:
        return ""
    if tensor.is_read_first:
        return "inout "
    return f"{carried} " if tensor.is_carried else "out "


def write(program: Recorder, carried: str = "inout") -> str:
    """``carried``: the role of tensors whose block reads them along a carried axis, "out" or "inout"."""
    _name_all(program)
    items = []
    for buffer in _tensors(program):
        items.append(buffer.declared(_role(buffer, carried)))
    items += [_param(*param) for param in program.params]
    lines = [f"program 1 {program.name}({', '.join(items)}):"]
    lines += [f"  alloc {buffer.declared()}" for buffer in program.allocations]
    lines += _statements(program.body, 1)
    return "\n".join(lines) + "\n"
