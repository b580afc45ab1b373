# SPDX-License-Identifier: Apache-2.0
"""A batch of calls as one call, for vmap of torch and JAX: which axis of each tensor the batch may join.

The op's declaration says it (`nw_op.batch`, docs/abi.md). Its ways are tried in order: conv1d's batch of signals joins N, and one of filters
too makes a convolution of more groups. What no way fits is one call for each.
"""

import ast
import functools
import keyword
from typing import NamedTuple

from narrows import _rules


class Way:
    """(rank, axis) of each input and output, where `axis` may take the batch, or is None. An input of rank None is taken as it is.
    `fields`: integer params that are multiplied by the size of the batch."""

    def __init__(self, op, names, alternative, shapes):
        inputs, outputs = alternative
        given = [(dims, len(s)) for (dims, _), s in zip(inputs, shapes, strict=False) if dims and s is not None]
        leading = max([0, *(_rules.leading_rank(dims, rank) for dims, rank in given)])
        self.inputs = [_place(dims, names, leading) for dims, _ in inputs]
        self.inputs += [(None, None)] * (len(op.inputs) - len(inputs))
        self.outputs = [self.inputs[o] if isinstance(o, int) else _place(o, names, leading) for o in outputs]
        self.fields = tuple(name for name in names if name in {field[0] for field in op.fields})
        self._known = op.params

    def fits(self, batched, wanted):
        """Whether every input that is mapped over, and every output that is wanted, has an axis for the batch."""
        mapped = all(axis is not None for (_, axis), b in zip(self.inputs, batched, strict=True) if b)
        return mapped and all(axis is not None for j, (_, axis) in enumerate(self.outputs) if wanted >> j & 1)

    def params(self, params, size):
        """The params of the one call. torch leaves out those that have their initial value; 0 groups are one."""
        values = {**self._known, **params}
        return {**params, **{name: (values[name] or 1) * size for name in self.fields}}


def _place(dims, names, leading):
    """(rank, axis) of a tensor of these dims; "..." stands for `leading` dimensions, ahead of which the batch is one more."""
    if dims is None:
        return None, None
    if not _rules.has_leading(dims):
        return len(dims), _axis(dims, names)
    if "..." in names:
        return leading + len(dims), 0
    axis = _axis(dims, names)
    return leading + len(dims) - 1, None if axis is None else leading - 1 + axis


def _axis(dims, names):
    """The first of the dims that has one of the names; "..." has its own."""
    if "..." in names and _rules.has_leading(dims):
        return 0
    return next((i for i, dim in enumerate(dims) if isinstance(dim, ast.Name) and dim.id in names), None)


class Condition(NamedTuple):
    """On an integer field of the params."""

    field: str
    most: int
    exactly: bool  # else: at most

    def holds(self, params):
        value = params[self.field]
        return value == self.most or (value < self.most and not self.exactly)


class Declared(NamedTuple):
    """A way of `nw_op.batch`: sizes and integer fields, the tensors that count once, and the calls that it is for (None: all)."""

    names: tuple[str, ...]
    once: tuple[str, ...]
    condition: Condition | None


@functools.cache
def _declared(batch):
    return [_way(text) for text in batch.split("|")]


def _way(text):
    text, _, condition = text.partition(" where ")
    text, _, once = text.partition(" once ")
    names = lambda part: tuple(_spelt(name.strip()) for name in part.split(",") if name.strip())  # noqa: E731
    return Declared(names(text), names(once), _condition(condition) if condition else None)


def _condition(text):
    field, _, number = text.partition("=")
    return Condition(_spelt(field.removesuffix("<").strip()), int(number), not field.endswith("<"))


def _spelt(name):
    """As Op spells its params."""
    return name + "_" * keyword.iskeyword(name)


def takes_leading_axis(op):
    """Whether a new leading axis of every tensor is a batch: NW_OP_BATCHABLE, or an element-wise op."""
    return bool(op.flags & 2) or op.batch == "*"


def ways(op) -> list[Declared]:
    """The ways that the op declares; none where it declares no batch, or is element-wise."""
    return _declared(op.batch) if op.batch not in (None, "*") else []


def sizes(op):
    """The names of each of the op's ways along which any batch of calls is one call."""
    return [way.names for way in ways(op) if not way.once and way.condition is None]


def has_way(op):
    """Whether batches of the op may be one call."""
    return bool(sizes(op))


def find_way(op, shapes, batched, wanted):
    """The Way of a batch of calls of such shapes (None: absent) that maps over these inputs; None: one call for each."""
    for names in sizes(op):
        alternative = _alternative(op, names, shapes)
        way = Way(op, names, alternative, shapes) if alternative else None
        if way is not None and way.fits(batched, wanted):
            return way
    return None


def _alternative(op, names, shapes):
    """The shape rule's alternative that has these sizes: the one that fits the shapes, else the first."""
    having = [a for a in _rules._parse(op.shape_rule) if a[0] is not None and _has(a, names)]
    return next((a for a in having if _rules._fits(a[0], shapes)), having[0] if having else None)


def _has(alternative, names):
    return any(dims is not None and _axis(dims, names) is not None for dims, _ in alternative[0])


def joined(shape, rank, axis):
    """Shapes on the way of a tensor whose first axis is the batch: with the rank's leading ones, and, the batch moved to `axis`, merged."""
    size, example = shape[0], tuple(shape[1:])
    example = (1,) * (rank - len(example)) + example
    return (size, *example), (*example[:axis], size * example[axis], *example[axis + 1 :])


def parted(shape, axis, size):
    """The shape of an output whose `axis` holds the batch, with an axis of its own for it ahead of that."""
    return (*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :])
