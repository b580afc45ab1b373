# SPDX-License-Identifier: Apache-2.0
"""JAX on several devices: along which axes an op may be split, so that ``jax.jit`` over sharded arrays gathers nothing.

Axes of a mesh may be explicit (jax.set_mesh): there the types of arrays say how they lie, and those of outputs are said here.

An op's declaration says how (`nw_op.batch`, docs/abi.md): an element-wise one is split along every axis, conv1d and lltm along their
batch. A gradient that is summed over a split axis is summed over the devices (one all-reduce of its own size). An op of NW_OP_BATCHABLE
that says no more is split along the leading axes that are a batch by that flag. Ops that say nothing, and any op before JAX had sharding
rules, run on whole arrays: wrap them in ``jax.shard_map``.
"""

import ast
import contextlib
import functools
import inspect
from typing import Any

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from narrows import _batching, _jax_batching, _rules

HAS_RULES = "need_replication_factors" in inspect.signature(custom_partitioning.def_partition).parameters


def may_be_split(op):
    """Whether this module knows the op's axes, there is more than one device, and this JAX has sharding rules."""
    known = _batching.takes_leading_axis(op) or _split_size(op)
    return bool(known) and HAS_RULES and jax.device_count() > 1


def _split_size(op):
    """The size along which a call is split over devices: of the op's first way that needs no other params; None: there is none."""
    fields = {field[0] for field in op.fields}
    return next((names[0] for names in _batching.sizes(op) if len(names) == 1 and names[0] not in fields), None)


def varying(x):
    """The axes of a jax.shard_map along which x differs from device to device, where this JAX's types say so."""
    aval = jax.typeof(x) if hasattr(jax, "typeof") else None
    kind = getattr(aval, "manual_axis_type", None)
    return frozenset(getattr(aval, "vma", None) or getattr(kind, "varying", None) or ())


def vary(arrays, axes):
    """The arrays as ones that differ along these axes. The gradient of one that did not is summed over them."""
    cast: Any = functools.partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else getattr(jax.lax, "pvary", None)
    return tuple(cast(a, tuple(sorted(axes - varying(a)))) if axes - varying(a) else a for a in arrays)


_HAS_EXPLICIT = hasattr(jax, "typeof") and hasattr(jax.sharding, "auto_axes") and hasattr(jax.sharding, "reshard")


def _is_explicit(x):
    """Whether x's type says how it lies."""
    return any(kind == jax.sharding.AxisType.Explicit for kind in jax.typeof(x).sharding.mesh.axis_types)


def with_types(call, run, arrays):
    """run(*arrays), whose outputs lie as the inputs do, by their types where those say it."""
    if not _HAS_EXPLICIT or not any(map(_is_explicit, arrays)):
        return run(*arrays)
    types = [jax.typeof(a) for a in arrays]
    mesh = next(t.sharding.mesh for a, t in zip(arrays, types, strict=True) if _is_explicit(a))
    inputs, outputs = _labels(call, arrays)
    _, shardings, _ = _plan(inputs, outputs, mesh, types, ())
    return jax.sharding.auto_axes(run, out_sharding=shardings)(*arrays)


def as_primal(gradient, primal):
    """The gradient, which has to lie as the primal's type says."""
    if not _HAS_EXPLICIT or not _is_explicit(primal) or jax.typeof(gradient).sharding == jax.typeof(primal).sharding:
        return gradient
    return jax.sharding.reshard(gradient, jax.typeof(primal).sharding)


def split(call, levels, run, arrays):
    """run(*arrays), each device with its own part; `levels` of a batch are those of _jax_batching.py."""
    partitioned = custom_partitioning(run)
    inputs, outputs = _labels(call, _jax_batching.examples(levels, arrays))
    lanes = [f"lane{n}" for n in reversed(range(len(levels)))]
    outputs = [[*lanes, *labels] for labels in outputs]
    inputs = [
        [*(lane for lane, level in zip(lanes, reversed(levels), strict=True) if level[i]), *labels]
        for i, labels in enumerate(inputs)
    ]
    plan = functools.partial(_plan, inputs, outputs)

    def infer(mesh, arguments, results):  # for the partitioner before Shardy
        return plan(mesh, arguments, ())[1]

    def partition(mesh, arguments, results):
        given, returned, axes = plan(mesh, arguments, results)

        def on_one_device(*parts):
            with _no_mesh():
                ys = run(*parts)
                return tuple(_summed(y, axes, labels) for y, labels in zip(ys, outputs, strict=True))

        return mesh, on_one_device, returned, given

    whole = tuple(dict.fromkeys(label for labels in (*inputs, *outputs) for label in labels if label.startswith("whole")))
    partitioned.def_partition(partition, infer, sharding_rule=_rule(inputs, outputs), need_replication_factors=whole)
    return partitioned(*arrays)


def _labels(call, arrays):
    """A label of each axis of each input and output; axes of one label are split alike, "whole..." are not."""
    given = iter(arrays)
    shapes = [tuple(next(given).shape) if call.present >> i & 1 else None for i in range(len(call.op.inputs))]
    results = [spec.shape for _, spec in call.outputs(arrays)]
    count = iter(range(1_000_000))
    if call.op.batch == "*":
        full = _broadcast([s for s in shapes if s is not None])
        of_shape = functools.partial(_aligned, full, count)
        return [of_shape(s) for s in shapes if s is not None], [of_shape(s) for s in results]
    batch = _split_size(call.op)
    if batch is None:
        batches = _count_batches(call, arrays)
        lead = lambda shape: [f"d{i}" if i < batches else f"whole{next(count)}" for i in range(len(shape))]  # noqa: E731
        return [lead(s) for s in shapes if s is not None], [lead(s) for s in results]
    inputs, outputs = next((i, o) for i, o in _rules._parse(call.op.shape_rule) if _rules._fits(i, shapes))
    dims = [d for d, _ in inputs or ()]
    by_output: list[Any] = [outputs[j] for j, _ in call.outputs(arrays)]
    rules = [dims[o] if isinstance(o, int) else o for o in by_output]

    def mark(dims, shape):  # dims: the rule's, or none where it leaves the shape open
        known = _rules.spread(dims, _rules.leading_rank(dims, len(shape))) if isinstance(dims, list) else [None] * len(shape)
        return [_label(d, batch) or f"whole{next(count)}" for d in known]

    return [mark(d, s) for d, s in zip(dims, shapes, strict=False) if s is not None], [
        mark(d, s) for d, s in zip(rules, results, strict=True)
    ]


def _label(dim, batch):
    """The label of a dimension that is split; None: it stays whole. Leading ones are split each for itself."""
    if not isinstance(dim, ast.Name):
        return None
    if dim.id == batch:
        return batch
    return f"lead{dim.id[3:]}" if batch == "..." and dim.id.startswith("...") else None


def _count_batches(call, arrays):
    """How many leading axes of a call of NW_OP_BATCHABLE are a batch: all tensors have one, and the call without it is one too, of outputs
    without it. The flag says that jax.vmap of that may be this call."""
    outputs, count = [spec for _, spec in call.outputs(arrays)], 0
    while all(a.ndim for a in arrays) and len({(a.ndim, a.shape[0]) for a in arrays}) == 1:
        arrays = [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in arrays]
        try:
            examples = [spec for _, spec in call.outputs(arrays)]
        except (ValueError, NotImplementedError):
            break
        if [y.shape for y in outputs] != [(y.shape[0], *e.shape) for y, e in zip(outputs, examples, strict=True) if y.shape]:
            break
        outputs, count = examples, count + 1
    return count


def _broadcast(shapes):
    rank = max(map(len, shapes))
    extents = lambda d: (s[d - rank] for s in shapes if len(s) >= rank - d)  # noqa: E731
    return tuple(next((n for n in extents(d) if not (isinstance(n, int) and n == 1)), 1) for d in range(rank))


def _aligned(full, count, shape):
    offset = len(full) - len(shape)
    return [f"d{offset + i}" if n == full[offset + i] and n != 1 else f"whole{next(count)}" for i, n in enumerate(shape)]


def _rule(inputs, outputs):
    side = lambda tensors: ", ".join(" ".join(labels) for labels in tensors)  # noqa: E731
    return f"{side(inputs)} -> {side(outputs)}"


def _plan(inputs, outputs, mesh, arguments, results):
    """(shardings of the inputs, of the outputs, mesh axes of each label): as the arrays already lie, where that is possible."""
    axes: dict[str, tuple[str, ...]] = {}
    for shape, labels in [*zip(arguments, inputs, strict=True), *zip(results, outputs, strict=False)]:
        if isinstance(shape.sharding, NamedSharding):
            for label, extent, part in zip(labels, shape.shape, (*shape.sharding.spec, *(None,) * len(labels)), strict=False):
                _add(axes, label, extent, part, mesh)
    sharding = lambda labels: NamedSharding(mesh, P(*(axes.get(label) for label in labels)))  # noqa: E731
    return tuple(map(sharding, inputs)), tuple(map(sharding, outputs)), axes


def _add(axes, label, extent, part, mesh):
    """Takes over how an axis lies, unless its mesh axes are used for another, or it cannot be split evenly."""
    part = () if part is None or part is P.UNCONSTRAINED else part if isinstance(part, tuple) else (part,)
    parts = 1
    for name in part:
        parts *= mesh.shape[name]
    used = {name for names in axes.values() for name in names}
    if part and not label.startswith("whole") and label not in axes and not used & set(part) and extent % parts == 0:
        axes[label] = part


def _no_mesh():
    """What one device runs lies nowhere else: with a mesh's explicit axes in its types XLA refuses the sum of an all-reduce."""
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())) if _HAS_EXPLICIT else contextlib.nullcontext()


def _summed(y, axes, labels):
    """A gradient's parts, each of a part of the batch, are summed."""
    names = tuple(name for label, part in axes.items() if label not in labels for name in part)
    return jax.lax.psum(y, names) if names else y
