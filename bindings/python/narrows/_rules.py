# SPDX-License-Identifier: Apache-2.0
"""Shape rules (docs/abi.md) over anything that calculates: ints, torch's SymInts.

``narrows.torch`` says by `Numbers` how a maximum is taken and how an equality is checked.
"""

import ast
import functools
import keyword
import operator
import re
from collections.abc import Callable
from typing import Any

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def _check(truth, message):
    """Raises ValueError(message()) where truth is false."""
    if not truth:
        raise ValueError(message())


class Numbers:
    """Plain ints."""

    maximum: Callable[[Any, Any], Any] = staticmethod(max)
    minimum: Callable[[Any, Any], Any] = staticmethod(min)
    check: Callable[[Any, Callable[[], str]], None] = staticmethod(_check)


@functools.cache
def _parse(rule):
    """[(inputs or None, outputs), ...]; an input is (dims or None for any shape, may be absent), an output 'broadcast', int or dims.

    dims are syntax trees; "..." is the constant Ellipsis, ahead of the others.
    """
    return [_parse_alternative(text) for text in rule.split("|")]


def _parse_alternative(text):
    inputs, arrow, outputs = text.rpartition("->")
    parsed = [_parse_input(t.strip()) for t in inputs.split(";")] if arrow else None
    return parsed, [_parse_output(t.strip()) for t in outputs.split(";")]


def _parse_input(text):
    if text in ("*", "?"):
        return None, text == "?"
    optional = text.endswith("?")
    return _parse_dims(text.removesuffix("?").strip()), optional


def _parse_output(text):
    if text == "broadcast":
        return text
    return int(text[4:]) if text.startswith("like") else _parse_dims(text)


def _parse_dims(text):
    if text == "()":
        return []
    text = re.sub(r"[A-Za-z_]\w*", lambda name: name[0] + "_" * keyword.iskeyword(name[0]), text)  # as Op spells its params
    dims = ast.parse(f"[{text}]", mode="eval").body
    assert isinstance(dims, ast.List)
    return dims.elts


def has_leading(dims):
    """Whether dims begin with "..."."""
    return bool(dims) and isinstance(dims[0], ast.Constant) and dims[0].value is ...


def leading_rank(dims, rank):
    """How many dimensions of a tensor of that rank "..." stands for."""
    return rank - len(dims) + 1 if has_leading(dims) else 0


def spread(dims, leading):
    """dims with names, "...0" and so on, for that many leading dimensions in the place of "..."."""
    return [ast.Name(f"...{i}") for i in range(leading)] + dims[1:] if has_leading(dims) else dims


def _rank_fits(dims, rank):
    return len(dims) - 1 <= rank if has_leading(dims) else len(dims) == rank


def _value(node, names, numbers):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, names, numbers), _value(node.right, names, numbers))
    function = {"max": numbers.maximum, "min": numbers.minimum}[node.func.id]
    return function(*(_value(a, names, numbers) for a in node.args))


def _fits(inputs, shapes):
    if inputs is None:
        return True
    for i, shape in enumerate(shapes):
        dims, optional = inputs[i] if i < len(inputs) else (None, True)
        if shape is None and not optional:
            return False
        if shape is not None and (i >= len(inputs) or (dims is not None and not _rank_fits(dims, len(shape)))):
            return False
    return all(optional for _, optional in inputs[len(shapes) :])


def _bind(inputs, shapes, fields):
    """The names of the dimensions: those of inputs that must be there first."""
    names: dict = {}
    for wanted in (False, True):
        for (dims, optional), shape in zip(inputs or [], shapes, strict=False):
            if shape is None or dims is None or optional != wanted:
                continue
            leading = leading_rank(dims, len(shape))
            if has_leading(dims):
                names.setdefault("...", leading)
            for dim, extent in zip(spread(dims, leading), shape, strict=True):
                if isinstance(dim, ast.Name) and dim.id not in fields:
                    names.setdefault(dim.id, extent)
    return {**fields, **names}


def _broadcast(shapes, numbers):
    rank = max(len(s) for s in shapes)
    result = []
    for d in range(rank):
        extent = 1
        for shape in shapes:
            at = d - rank + len(shape)
            if at < 0 or (isinstance(shape[at], int) and shape[at] == 1):
                continue
            if isinstance(extent, int) and extent == 1:
                extent = shape[at]
            else:
                other = shape[at]
                numbers.check(extent == other, lambda e=extent, o=other: f"shapes do not broadcast: {e} against {o}")
        result.append(extent)
    return tuple(result)


def evaluate(op, shapes, numbers=Numbers, symbolic=None):
    """Shapes of the op's outputs from those of its inputs (None: absent); ValueError: none of the rule's alternatives fits."""
    fields = {**_integers(op), **(symbolic or {})}
    for inputs, outputs in _parse(op.shape_rule):
        if not _fits(inputs, shapes):
            continue
        names = _bind(inputs, shapes, fields)
        for (dims, _), shape in zip(inputs or [], shapes, strict=False):
            if dims is None or shape is None:
                continue
            leading = leading_rank(dims, len(shape))
            wanted = names["..."] if has_leading(dims) else 0
            numbers.check(leading == wanted, lambda n=leading, w=wanted: f"{op.op}: '...' is {n} dimensions; expected {w}")
            for dim, extent in zip(spread(dims, leading), shape, strict=True):
                expected = _value(dim, names, numbers)
                numbers.check(extent == expected, lambda e=extent, x=expected: f"{op.op}: a dimension is {e}; expected {x}")
        return [_output(o, names, shapes, numbers) for o in outputs]
    raise ValueError(f"{op.op}: shapes {shapes} fit none of the alternatives of the rule {op.shape_rule!r}")


def _output(output, names, shapes, numbers):
    if output == "broadcast":
        return _broadcast([s for s in shapes if s is not None], numbers)
    if isinstance(output, int):
        return None if output >= len(shapes) or shapes[output] is None else tuple(shapes[output])
    if has_leading(output) and "..." not in names:
        raise ValueError("an output's shape has '...', and every input with '...' is absent")
    return tuple(_value(d, names, numbers) for d in spread(output, names.get("...", 0)))


def _integers(op):
    """Values of the integer fields: of named ones their numbers."""
    params = op.params
    values = {}
    for name, kind, lanes, named, _ in op.fields:
        if kind == "int" and lanes == 1:
            value = params[name]
            values[name] = named.index(value) if named is not None and isinstance(value, str) else value
    return values
