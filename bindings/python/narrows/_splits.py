# SPDX-License-Identifier: Apache-2.0
"""How one call of an op may be split over devices, by its declaration (`nw_op.batch`, docs/abi.md): what each device has of each tensor.

torch's sharding rules and JAX's partitions are made of it. Every way of the declaration is a split; so is every axis of an element-wise op, and every leading
axis of an op that takes some.
"""

import ast
from typing import Any, NamedTuple

from narrows import _batching, _built_in, _rules

WHOLE = "whole"  # every device has all of it, the same
SUM = "sum"  # what the devices have is summed


class Split(NamedTuple):
    """Of each input and output that is there the axis of which a device has its part, WHOLE or SUM; None: it is absent. An input that is
    a SUM is zeros on all devices but one, or any other such parts. `fields`: integer params that are divided by the number of devices."""

    inputs: list[Any]
    outputs: list[Any]
    fields: tuple[str, ...] = ()


def splits(op, shapes, outputs, infer) -> list[Split]:
    """Those of a call of such shapes (None: absent). `infer`: the outputs' shapes by those of inputs; ValueError or NotImplementedError:
    there is no such call."""
    if op.batch == "*":
        return _element_wise(shapes, outputs) + _linear(op, shapes, outputs)
    if op.batch is not None:
        found = [_by_way(op, way, shapes, outputs) for way in _batching.ways(op)]
        return [split for splits_of_way in found for split in splits_of_way]
    return _leading(shapes, outputs, infer) if _batching.takes_leading_axis(op) else []


def divided(op, fields, number) -> dict[str, int]:
    """The values of these params on each of that many devices; 0 groups are one."""
    return {name: (op.params[name] or 1) // number for name in fields}


def divides(op, fields, number):
    """Whether each of the params can be divided by the number of devices."""
    return all((op.params[name] or 1) % number == 0 for name in fields)


def _element_wise(shapes, outputs):
    full = _broadcast([s for s in shapes if s is not None])

    def axis(shape, d, otherwise):
        at = d - len(full) + len(shape)
        return at if at >= 0 and shape[at] == full[d] else otherwise

    return [
        Split(
            [None if s is None else axis(s, d, WHOLE) for s in shapes],
            [None if s is None else axis(s, d, SUM) for s in outputs],
        )
        for d in range(len(full))
    ]


def _linear(op, shapes, outputs):
    """A sum of sums is a sum, and its gradients read no operand."""
    operands = _built_in.linear_operands(op)
    if operands is None:
        return []
    first = op.inputs.index("a")
    given = [s is not None for s in shapes]
    if sum(given[first:]) != operands or not all(given[:first]):
        return []  # a number is no sum
    places = [(SUM if i >= first else WHOLE) if g else None for i, g in enumerate(given)]
    return [Split(places, [None if s is None else WHOLE if first else SUM for s in outputs])]


def _broadcast(shapes):
    rank = max(map(len, shapes))
    extents = lambda d: (s[d - rank] for s in shapes if len(s) >= rank - d)  # noqa: E731
    return tuple(next((n for n in extents(d) if not (isinstance(n, int) and n == 1)), 1) for d in range(rank))


def may_be(op):
    """Whether some call of the op may be split."""
    return _batching.takes_leading_axis(op) or bool(_batching.ways(op))


def _leading(shapes, outputs, infer):
    """Leading axes that every tensor has, without which the call is one too, of outputs without them."""
    found: list[Split] = []
    while True:
        given = [s for s in shapes if s is not None]
        if not all(given) or len({(len(s), s[0]) for s in given}) != 1:
            return found
        shapes = [None if s is None else tuple(s[1:]) for s in shapes]
        try:
            rest = infer(shapes)
        except (ValueError, NotImplementedError):
            return found
        size = given[0][0]
        if any(
            (y is None) != (e is None) or (y is not None and tuple(y) != (size, *e)) for y, e in zip(outputs, rest, strict=True)
        ):
            return found
        axis = len(found)
        place = lambda s, axis=axis: None if s is None else axis  # noqa: E731
        found.append(Split([place(s) for s in shapes], [place(s) for s in outputs]))
        outputs = rest


def _by_way(op, way, shapes, outputs):
    fields = tuple(name for name in way.names if name in op.params)
    if way.condition is not None and not way.condition.holds(op.params):
        return []
    rule = next(((i, o) for i, o in _rules._parse(op.shape_rule) if _rules._fits(i, shapes)), None)
    if rule is None or rule[0] is None:
        return []
    known = {name: value for name, value in op.params.items() if isinstance(value, int) and name not in way.names}
    given = [_dims(dims, known) for dims, _ in rule[0]]
    given += [None] * (len(shapes) - len(given))
    returned = [given[o] if isinstance(o, int) else _dims(o, known) for o in rule[1]]
    if "broadcast" in rule[1] or (not fields and any(_is_part_of(dims, way.names) for dims in (*given, *returned))):
        return []
    leading = max([0, *(_rules.leading_rank(d, len(s)) for d, s in zip(given, shapes, strict=True) if d and s is not None)])
    return [
        Split(
            _placed(given, shapes, op.inputs, way, at, leading, WHOLE, SUM),
            _placed(returned, outputs, op.outputs, way, at, leading, SUM, WHOLE),
            fields,
        )
        for at in range(leading if "..." in way.names else 1)
        if any(_axis(dims, way.names, at, leading) is not None for dims in given)
    ]


def _placed(dims, shapes, names, way, at, leading, otherwise, once):
    """Of each tensor what a device has; `otherwise` of one without the way's sizes, and `once` if that counts once."""

    def place(d, shape, name):
        if shape is None:
            return None
        if 0 in map(_value, d or ()):
            return WHOLE  # there is nothing to share
        axis = _axis(d, way.names, at, leading)
        if axis is not None:
            return axis
        return once if _batching._spelt(name.rstrip("?")) in way.once else otherwise

    return [place(d, s, n) for d, s, n in zip(dims, shapes, names, strict=True)]


def _axis(dims, names, at, leading):
    """The axis that is split of a tensor of these dims; of leading ones, the one of number `at`."""
    if dims is None:
        return None
    if "..." in names and _rules.has_leading(dims):
        return at
    axis = _batching._axis(dims, names)
    return axis if axis is None or not _rules.has_leading(dims) else axis + leading - 1


def _is_part_of(dims, names):
    """Whether some dimension is computed of a size, so that a part of that size does not give a part of this one."""
    computed = [d for d in dims or () if not isinstance(d, ast.Name)]
    return any(isinstance(node, ast.Name) and node.id in names for d in computed for node in ast.walk(d))


def _dims(dims, known):
    """The dims of calls with these values of integer params."""
    return [_folded(d, known) for d in dims] if isinstance(dims, list) else dims


def _folded(node, known):
    """The expression where these names have values: `C//max(groups,1)` is C where groups is 1."""
    if isinstance(node, ast.Name):
        return ast.Constant(known[node.id]) if node.id in known else node
    if isinstance(node, ast.Call):
        function: Any = node.func
        arguments = [_folded(a, known) for a in node.args]
        values = [_value(a) for a in arguments]
        return ast.Call(node.func, arguments, []) if None in values else ast.Constant(_FUNCTIONS[function.id](*values))
    if isinstance(node, ast.BinOp):
        return _folded_operator(node.op, _folded(node.left, known), _folded(node.right, known))
    return node


_FUNCTIONS: dict[str, Any] = {"max": max, "min": min}


def _value(node):
    return node.value if isinstance(node, ast.Constant) else None


def _folded_operator(operator, left, right):
    a, b = _value(left), _value(right)
    if isinstance(operator, ast.Mult) and 0 in (a, b):
        return ast.Constant(0)
    if b == (0 if isinstance(operator, (ast.Add, ast.Sub)) else 1):
        return left
    if (isinstance(operator, ast.Add) and a == 0) or (isinstance(operator, ast.Mult) and a == 1):
        return right
    if a is None or b is None:
        return ast.BinOp(left, operator, right)
    return ast.Constant(_rules._OPERATORS[type(operator)](a, b))
