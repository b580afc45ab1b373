# SPDX-License-Identifier: Apache-2.0
"""torch.vmap of an op: one call where the batch may be an axis of it, else one for each example."""

import torch

from narrows import _batching, _torch_shapes


def _single_shapes(reg, size, in_dims, inputs, params):
    """Shapes of one example's outputs."""
    op, _ = reg.bound(dict(params))
    examples = [
        x if d is None else x.select(d, 0) if size else x.new_empty(_without(x.shape, d))
        for x, d in zip(inputs, in_dims, strict=True)
    ]
    return _torch_shapes.specs_of(op, examples)


def _without(shape, d):
    return tuple(shape[:d]) + tuple(shape[d % len(shape) + 1 :])


def mapped(reg, size, in_dims, inputs, params):
    """One call where the batch may be an axis of it, else one for each."""
    if _batching.takes_leading_axis(reg.op):
        return _batched(reg, size, in_dims, inputs, params)
    absent = [None] * (len(reg.inputs) - len(inputs))
    batched = [d is not None for d in (*in_dims, *absent)]
    shapes = [None if x is None else x.shape if d is None else _without(x.shape, d) for x, d in zip(inputs, in_dims, strict=True)]
    way = _batching.find_way(reg.op, [*shapes, *absent], batched, reg.mask(params.get("wanted", -1))) if size else None
    return _joined(reg, size, in_dims, inputs, params, way) if way else _one_by_one(reg, size, in_dims, inputs, params)


def _joined(reg, size, in_dims, inputs, params, way):
    """The batch joins an axis of each tensor that has one for it."""
    specs = _single_shapes(reg, size, in_dims, inputs, params)
    moved = []
    for x, d, (rank, axis) in zip(inputs, in_dims, way.inputs, strict=False):
        if x is not None and axis is not None:
            x = x.movedim(d, 0) if d is not None else x.expand(size, *x.shape)
            apart, together = _batching.joined(x.shape, rank, axis)
            x = x.reshape(apart).movedim(0, axis).reshape(together)
        elif x is not None and rank is not None:
            x = x.reshape((1,) * (rank - x.dim()) + tuple(x.shape))
        moved.append(x)
    result = reg.call(*moved, **way.params(params, size))
    mask = reg.mask(params.get("wanted", -1))
    known = [
        (s[1], axis) for j, (s, (_, axis)) in enumerate(zip(specs, way.outputs, strict=True)) if s is not None and mask >> j & 1
    ]
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    outputs = tuple(
        y.reshape(_batching.parted(y.shape, axis, size)).movedim(axis, 0).reshape(size, *shape)
        for y, (shape, axis) in zip(outputs, known, strict=True)
    )
    result = reg.as_returned(outputs)
    return result, 0 if isinstance(result, torch.Tensor) else type(result)(0 for _ in result)


def _batched(reg, size, in_dims, inputs, params):
    specs = _single_shapes(reg, size, in_dims, inputs, params)
    rank = max(x.dim() - (d is not None) for x, d in zip(inputs, in_dims, strict=True) if x is not None)
    moved = []
    for x, d in zip(inputs, in_dims, strict=True):
        if x is not None:
            x = x.movedim(d, 0) if d is not None else x.unsqueeze(0).expand(size, *x.shape)
            x = x.reshape(size, *(1,) * (rank - x.dim() + 1), *x.shape[1:])
        moved.append(x)
    result = reg.call(*moved, **params)
    mask = reg.mask(params.get("wanted", -1))
    shapes = [s[1] for j, s in enumerate(specs) if s is not None and mask >> j & 1]
    if isinstance(result, torch.Tensor):
        return result.reshape(size, *shapes[0]), 0
    result = type(result)(y.reshape(size, *shape) for y, shape in zip(result, shapes, strict=True))
    return result, type(result)(0 for _ in result)


def _one_by_one(reg, size, in_dims, inputs, params):
    if size == 0:
        specs = _single_shapes(reg, size, in_dims, inputs, params)
        mask = reg.mask(params.get("wanted", -1))
        like = next(x for x in inputs if x is not None)
        outputs = [
            like.new_empty(0, *s[1], dtype=getattr(torch, s[0])) for j, s in enumerate(specs) if s is not None and mask >> j & 1
        ]
        result = reg.as_returned(tuple(outputs))
        return result, 0 if isinstance(result, torch.Tensor) else type(result)(0 for _ in result)
    results = [
        reg.call(*(x if d is None else x.select(d, i) for x, d in zip(inputs, in_dims, strict=True)), **params) for i in range(size)
    ]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results), 0
    kind = type(results[0])
    return kind(torch.stack(ys) for ys in zip(*results, strict=True)), kind(0 for _ in results[0])
