# SPDX-License-Identifier: Apache-2.0
"""JAX on several devices: along which axes an op may be split, so that ``jax.jit`` over sharded arrays gathers nothing.

Axes of a mesh may be explicit (jax.set_mesh): there the types of arrays say how they lie, and those of outputs are said here.

_splits.py says how, from the op's declaration (docs/abi.md): an element-wise op is split along every axis, conv1d along batch, channels,
filters or groups. What is a sum over a split axis is summed over the devices (one all-reduce of its own size). Ops that say nothing, and
any op before JAX had sharding rules, run on whole arrays: wrap them in ``jax.shard_map``.
"""

import contextlib
import functools
import inspect
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from narrows import _jax_batching, _jax_call, _splits

HAS_RULES = "need_replication_factors" in inspect.signature(custom_partitioning.def_partition).parameters


def may_be_split(op):
    """Whether this module knows the op's axes, there is more than one device, and this JAX has sharding rules."""
    return _splits.may_be(op) and HAS_RULES and jax.device_count() > 1


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
    _, shardings, _ = _Labels(call, arrays).plan(mesh, types, ())
    return jax.sharding.auto_axes(run, out_sharding=shardings)(*arrays)


def as_primal(gradient, primal):
    """The gradient, which has to lie as the primal's type says."""
    if not _HAS_EXPLICIT or not _is_explicit(primal) or jax.typeof(gradient).sharding == jax.typeof(primal).sharding:
        return gradient
    return jax.sharding.reshard(gradient, jax.typeof(primal).sharding)


def split(call, levels, run, arrays):
    """run(call, *arrays), each device with its own part; `levels` of a batch are those of _jax_batching.py."""
    partitioned: Any = custom_partitioning(functools.partial(run, call))
    labels = _Labels(call, _jax_batching.examples(levels, arrays))
    labels.add_lanes(levels)

    def infer(mesh, arguments, results):  # for the partitioner before Shardy
        return labels.plan(mesh, arguments, ())[1]

    def partition(mesh, arguments, results):
        given, returned, axes = labels.plan(mesh, arguments, results)

        def on_one_device(*parts):
            with _no_mesh():
                ys = run(labels.divided(mesh, axes), *labels.counted_once(axes, parts))
                return tuple(_summed(y, labels.sums(axes, j)) for j, y in enumerate(ys))

        return mesh, on_one_device, returned, given

    rule, factors = labels.rule()
    partitioned.def_partition(partition, infer, sharding_rule=rule, need_replication_factors=labels.whole(), **factors)
    return partitioned(*arrays)


class _Labels:
    """A label of each axis of each input and output that is there. Axes of one label are split alike; "whole..." are not split."""

    def __init__(self, call, arrays):
        self._call = call
        given = iter(arrays)
        shapes = [tuple(next(given).shape) if call.present >> i & 1 else None for i in range(len(call.op.inputs))]
        found = dict(call.outputs(arrays))
        outputs = [tuple(found[j].shape) if j in found else None for j in range(len(call.op.outputs))]
        dtypes = [str(a.dtype) for a in arrays]
        infer = functools.partial(_infer, call, dtypes)
        fields = [name for name, kind, *_ in call.op.fields if kind == "int"]
        every = _splits.splits(call.op, shapes, outputs, infer)
        self._splits = {f"s{k}": s for k, s in enumerate(every) if all(call.op.params[f] > 1 for f in s.fields if f in fields)}
        self._count = iter(range(1_000_000))
        self.inputs = [self._of(i, s, "inputs") for i, s in enumerate(shapes) if s is not None]
        self.outputs = [self._of(j, s, "outputs") for j, s in enumerate(outputs) if s is not None]
        self._given = [i for i, s in enumerate(shapes) if s is not None]
        self._returned = [j for j, s in enumerate(outputs) if s is not None]
        self._shapes = [[s for s in side if s is not None] for side in (shapes, outputs)]

    def _of(self, i, shape, side):
        labels = [f"whole{next(self._count)}" for _ in shape]
        for name, split in self._splits.items():
            axis = getattr(split, side)[i]
            if isinstance(axis, int) and labels[axis].startswith("whole"):
                labels[axis] = name
        return labels

    def add_lanes(self, levels):
        """Of the batches of a batch, the outermost first."""
        lanes = [f"lane{n}" for n in reversed(range(len(levels)))]
        self.outputs = [[*lanes, *labels] for labels in self.outputs]
        mine = lambda i: [lane for lane, level in zip(lanes, reversed(levels), strict=True) if level[i]]  # noqa: E731
        self.inputs = [[*mine(i), *labels] for i, labels in enumerate(self.inputs)]

    def _parts(self, label):
        """What is divided of a label that divides params: their least value; None: the label's axes are divided alone."""
        split = self._splits.get(label)
        return min(self._call.op.params[f] for f in split.fields) if split is not None and split.fields else None

    def rule(self):
        """Shardy's rule and the sizes of its factors. An axis of groups is groups by what is in one."""
        factors: dict[str, int] = {}

        def axis(label, extent):
            size = self._parts(label)
            if size is None:
                return label
            inner = f"whole{next(self._count)}"
            factors.update({label: size, inner: extent // size})
            return f"({label} {inner})"

        def side(tensors, shapes):
            extents = [[*(0 for _ in labels[len(shape) :]), *shape] for labels, shape in zip(tensors, shapes, strict=True)]
            return ", ".join(" ".join(map(axis, labels, sizes)) for labels, sizes in zip(tensors, extents, strict=True))

        return f"{side(self.inputs, self._shapes[0])} -> {side(self.outputs, self._shapes[1])}", factors

    def whole(self):
        """The factors that are not split."""
        return tuple(dict.fromkeys(n for labels in (*self.inputs, *self.outputs) for n in labels if n.startswith("whole")))

    def plan(self, mesh, arguments, results):
        """(shardings of the inputs, of the outputs, mesh axes of each label): as the arrays already lie, where that is possible."""
        axes: dict[str, tuple[str, ...]] = {}
        for shape, labels in [*zip(arguments, self.inputs, strict=True), *zip(results, self.outputs, strict=False)]:
            if isinstance(shape.sharding, NamedSharding):
                for label, extent, part in zip(labels, shape.shape, (*shape.sharding.spec, *(None,) * len(labels)), strict=False):
                    _add(axes, label, self._parts(label) or extent, part, mesh)
        sharding = lambda labels: NamedSharding(mesh, P(*(axes.get(label) for label in labels)))  # noqa: E731
        return tuple(map(sharding, self.inputs)), tuple(map(sharding, self.outputs)), axes

    def divided(self, mesh, axes):
        """The call on one device, of its part of the params."""
        found = {}
        for label, names in axes.items():
            split = self._splits.get(label)
            if split is not None and split.fields:
                found.update(_splits.divided(self._call.op, split.fields, _devices(mesh, names)))
        return self._call.with_params(**found) if found else self._call

    def counted_once(self, axes, parts):
        """The parts; of an input that counts once zeros on all devices but the first."""
        parts = list(parts)
        for label, names in axes.items():
            split = self._splits.get(label)
            for n, i in enumerate(self._given):
                if split is not None and split.inputs[i] == _splits.SUM:
                    parts[n] = jnp.where(jax.lax.axis_index(names) == 0, parts[n], jnp.zeros_like(parts[n]))
        return parts

    def sums(self, axes, number):
        """The mesh axes over which an output is summed: of labels that it has not, unless it is the same on all devices."""
        j = self._returned[number]
        is_sum = lambda label: label not in self._splits or self._splits[label].outputs[j] == _splits.SUM  # noqa: E731
        return tuple(n for label, names in axes.items() if label not in self.outputs[number] and is_sum(label) for n in names)


def _infer(call, dtypes, shapes):
    given = iter(dtypes)
    specs = [None if s is None else (next(given), tuple(s)) for s in shapes]
    device_type = next(iter(_jax_call.device_types(call.op).values()), 1)
    found = call.op._infer(specs, device_type)
    return [tuple(y[1]) if y is not None and call.wanted >> j & 1 else None for j, y in enumerate(found)]


def _devices(mesh, names):
    return math.prod(mesh.shape[name] for name in names)


def _add(axes, label, extent, part, mesh):
    """Takes over how an axis lies, unless its mesh axes are used for another, or it cannot be split evenly."""
    part = () if part is None or part is P.UNCONSTRAINED else part if isinstance(part, tuple) else (part,)
    used = {name for names in axes.values() for name in names}
    if part and not label.startswith("whole") and label not in axes and not used & set(part) and extent % _devices(mesh, part) == 0:
        axes[label] = part


def _no_mesh():
    """What one device runs lies nowhere else: with a mesh's explicit axes in its types XLA refuses the sum of an all-reduce."""
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())) if _HAS_EXPLICIT else contextlib.nullcontext()


def _summed(y, names):
    """The sum of the devices' parts, along these axes of the mesh."""
    return jax.lax.psum(y, names) if names else y
