# SPDX-License-Identifier: Apache-2.0
"""JAX: jax.vmap of a call. XLA's own call has no batching that knows an op: a batch is one call where _batching.py says so, else one for each,
and on several devices it may be split as the op's own axes are, so that each device has its part of it.

A batch of batches is one of more elements. `levels` says of each, the innermost first, which of a call's arrays it maps over: those have its axis in
front, the outermost level's first.
"""

import math

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from narrows import _batching


def with_batches(call, place, again, levels=()):
    """place(levels, arrays), under vmap as well; of a batch of element-wise calls again(arrays)."""
    wrapped = custom_vmap(lambda *arrays: place(levels, arrays))

    @wrapped.def_vmap
    def rule(size, batched, *arrays):
        if _batching.takes_leading_axis(call.op):
            outputs = _broadcast(call, again, size, batched, arrays)
        else:
            outputs = with_batches(call, place, again, (*levels, tuple(batched)))(*arrays)
        return outputs, (True,) * len(outputs)

    return wrapped


def examples(levels, arrays):
    """The arrays of one call of the batch."""
    depth = [sum(flags) for flags in zip(*levels, strict=True)] if levels else [0] * len(arrays)
    return [jax.ShapeDtypeStruct(a.shape[n:], a.dtype) for a, n in zip(arrays, depth, strict=True)]


def run_batch(call, levels, run, arrays):
    """run(call)(*arrays), where the arrays are those of a batch."""
    if not levels:
        return run(call)(*arrays)
    sizes = _sizes(levels, arrays)
    flags = list(zip(*levels, strict=True))
    batched = [any(f) for f in flags]
    rows = [_rows(a, f, sizes) if b else a for a, f, b in zip(arrays, flags, batched, strict=True)]
    places = [i for i in range(len(call.op.inputs)) if call.present >> i & 1]
    mapped = dict(zip(places, batched, strict=True))
    known = dict(zip(places, (tuple(e.shape) for e in examples(levels, arrays)), strict=True))
    every = range(len(call.op.inputs))
    way = _batching.find_way(call.op, [known.get(i) for i in every], [mapped.get(i, False) for i in every], call.wanted)
    if way is None or 0 in sizes:
        outputs = _one_by_one(run(call), batched, rows)
    else:
        outputs = _at_once(call, way, run, places, batched, math.prod(sizes), rows, call.outputs(examples(levels, arrays)))
    return tuple(y.reshape(*sizes, *y.shape[1:]) for y in outputs)


def _at_once(call, way, run, places, batched, size, rows, known):
    """One call; `rows` have the whole batch as their first axis where they are mapped over."""
    moved = [_joined(a, b, size, *way.inputs[i]) for a, b, i in zip(rows, batched, places, strict=True)]
    if way.fields:
        call = call.with_params(**way.params(call.op.params, size))
    axes = [way.outputs[j][1] for j, _ in known]
    apart = [y.reshape(_batching.parted(y.shape, axis, size)) for y, axis in zip(run(call)(*moved), axes, strict=True)]
    return [jnp.moveaxis(y, axis, 0).reshape(size, *spec.shape) for y, axis, (_, spec) in zip(apart, axes, known, strict=True)]


def _one_by_one(function, batched, rows):
    def one(mapped):
        given = iter(mapped)
        return function(*(next(given) if b else a for a, b in zip(rows, batched, strict=True)))

    return jax.lax.map(one, [a for a, b in zip(rows, batched, strict=True) if b])


def _sizes(levels, arrays):
    """Of each level's batch, the outermost first."""
    sizes: list[int] = []
    for n, flags in enumerate(levels):
        i = flags.index(True)
        sizes.insert(0, arrays[i].shape[sum(level[i] for level in levels[n + 1 :])])
    return sizes


def _rows(a, flags, sizes):
    """An array that some level maps over, with one axis for all of them."""
    example = a.shape[sum(flags) :]
    mine = [n if b else 1 for n, b in zip(sizes, reversed(flags), strict=True)]
    return jnp.broadcast_to(a.reshape(*mine, *example), (*sizes, *example)).reshape(math.prod(sizes), *example)


def _joined(a, batched, size, rank, axis):
    """The array as the one call takes it: the batch, if it is not one for all, is part of `axis`."""
    if axis is None:
        return a if rank is None else a.reshape((1,) * (rank - a.ndim) + a.shape)
    a = a if batched else jnp.broadcast_to(a, (size, *a.shape))
    apart, together = _batching.joined(a.shape, rank, axis)
    return jnp.moveaxis(a.reshape(apart), 0, axis).reshape(together)


def _broadcast(call, again, size, batched, arrays):
    """A batch of element-wise calls: one of arrays with an axis more."""
    rank = max(a.ndim - b for a, b in zip(arrays, batched, strict=True))
    shapes = [spec.shape for _, spec in call.outputs(examples((tuple(batched),), arrays))]
    outputs = again(*(_leading(a, b, size, rank) for a, b in zip(arrays, batched, strict=True)))
    return tuple(y.reshape(size, *shape) for y, shape in zip(outputs, shapes, strict=True))


def _leading(a, batched, size, rank):
    """A batch of arrays of that rank."""
    rest = a.shape[1:] if batched else a.shape
    a = a.reshape(size if batched else 1, *(1,) * (rank - len(rest)), *rest)
    return jnp.broadcast_to(a, (size, *a.shape[1:]))
