# SPDX-License-Identifier: Apache-2.0
"""JAX: the derivatives of a call, of any order and in both modes.

A call's rule of forward mode binds one linear primitive: the tangents of the outputs from those of the inputs. Forward mode runs it by
the formulas of _derivatives.py. Reverse mode transposes it instead, and then it is one call of the op's backward kernel, for the
gradients that are wanted. A linear primitive under jax.vmap is one of the same kind.
"""

import functools
import sys
from typing import Any

import jax
import jax.core
import jax.extend.core
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad, batching, mlir

from narrows import _derivatives, _jax_call, _jax_placed, _jax_sharding, _ops, _programs

_core: Any = jax.core  # for what no type checker finds there


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def run(call, aliases, *arrays):
    """The outputs of the call; ``aliases``: (input, output) pairs that share memory."""
    return _jax_placed.run(call, aliases, *arrays)


def _differentiate(call, aliases, arrays, tangents):
    if aliases:
        raise NotImplementedError(f"{call.op.op}: a call that donates has no derivative; expected donate=()")
    if call.op.backward is None and _derivatives.rule_of(call.op.op) is None:
        raise NotImplementedError(_derivatives.missing(call.op, _programs.is_adjoint(call.op.op)))
    whole = call.with_saved()
    outputs = run(whole, (), *arrays)
    there = [j for j, _ in whole.outputs(arrays)]
    kept = [y for j, y in zip(there, outputs, strict=True) if call.op.saved >> (32 + j) & 1]
    linear, given = _Tangents.of(whole, there, outputs, tangents)
    moved: dict = {}
    if linear.moving and linear.moved:
        results = tuple(_tangent_aval(outputs[n]) for n in linear.moved)
        moved = dict(zip(linear.moved, _linear.bind(*arrays, *kept, *given, linear=linear, results=results), strict=True))
    wanted = [n for n, j in enumerate(there) if call.wanted >> j & 1]
    zero = lambda y: SymbolicZero(_tangent_aval(y))  # noqa: E731
    return tuple(outputs[n] for n in wanted), tuple(moved[n] if n in moved else zero(outputs[n]) for n in wanted)


# jax.shard_map refuses symbolic zeros before 0.6. There each gradient of a call is computed, wanted or not.
run.defjvp(_differentiate, symbolic_zeros=hasattr(jax, "shard_map"))


def _tangent_aval(y):
    aval = jax.typeof(y) if hasattr(jax, "typeof") else _core.get_aval(y)
    return aval.strip_weak_type().to_tangent_aval()


def _alike(arrays, others=()):
    """Under jax.shard_map arrays of a call are taken to differ from device to device, if one does of them or of the others."""
    return _jax_sharding.vary(arrays, frozenset().union(*map(_jax_sharding.varying, (*arrays, *others))))


def _is_floating(x):
    return jnp.issubdtype(x.dtype, jnp.floating)


# ---- the linear map of a call ----


class _Tangents:
    """From the tangents of some inputs to those of some outputs, at given arrays; hashable, as JAX wants it of a primitive's params.

    ``moving``: places of the inputs among the arrays; ``there``: indices of the outputs that the call has; ``moved``: places of outputs
    among those.
    """

    def __init__(self, call, there, moved, moving):
        self.call, self.there, self.moved, self.moving = call, there, moved, moving
        self.key = call, there, moved, moving

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return type(other) is type(self) and self.key == other.key

    def __repr__(self):
        return f"{self.call}"

    @classmethod
    def of(cls, call, there, outputs, tangents):
        """And the tangents of its inputs. The formulas of a rule hold a saved output for what the op gives for its inputs."""
        op, rule = call.op, _derivatives.rule_of(call.op.op)
        main = len(op.outputs) - op.num_aux
        moved = tuple(n for n, j in enumerate(there) if _is_floating(outputs[n]) and (rule is None or j < main))
        read = len(op.inputs)
        if isinstance(rule, _derivatives.BackwardRule):
            read = rule.rule.num_outputs + rule.rule.num_inputs
        moving = tuple(
            n
            for n, (i, t) in enumerate(zip(call.places, tangents, strict=True))
            if i < read and type(t) is not SymbolicZero and t.dtype != jax.dtypes.float0
        )
        return cls(call, tuple(there), moved, moving), [tangents[n] for n in moving]

    def only(self, indices):
        """The same for these of its tangents."""
        return _Tangents(self.call, self.there, self.moved, tuple(self.moving[n] for n in indices))

    def _spread(self, arrays, places, count):
        """In their places, None elsewhere."""
        found = [None] * count
        for i, a in zip(places, arrays, strict=True):
            found[i] = a
        return found

    def _inputs(self, arrays):
        return self._spread(arrays[: len(self.call.places)], self.call.places, len(self.call.op.inputs))

    def forward(self, residuals, tangents, results):
        """By the formulas."""
        op, rule = self.call.op, _derivatives.rule_of(self.call.op.op)
        if rule is None:
            raise NotImplementedError(_derivatives.missing_forward(op))
        arrays = residuals[: len(self.call.places)]
        places = [self.call.places[n] for n in self.moving]
        shapes = self._spread([s.shape for _, s in self.call.outputs(arrays)], self.there, len(op.outputs))
        inputs, moving = self._inputs(arrays), self._spread(tangents, places, len(op.inputs))
        found = rule.tangents(_this, op.params, inputs, moving, shapes[: len(op.outputs) - op.num_aux])
        chosen = [found[self.there[n]] for n in self.moved]
        zero = lambda result: jnp.zeros(result.shape, result.dtype)  # noqa: E731
        chosen = [zero(result) if y is None else y for y, result in zip(chosen, results, strict=True)]
        return _alike(chosen, arrays)

    def transposed(self, residuals, cotangents):
        """A gradient for each tangent; a cotangent may be None, for zero."""
        op = self.call.op
        rule = _derivatives.rule_of(op.op)
        places = [self.call.places[n] for n in self.moving]
        cotangents = self._spread(cotangents, [self.there[n] for n in self.moved], len(op.outputs))
        if isinstance(rule, _derivatives.BackwardRule):
            needed = [i in places for i in range(len(op.inputs))]
            found = rule.gradients(_this, op.params, self._inputs(residuals), cotangents, needed)
        else:
            found = _backward(self.call, self._inputs(residuals), self._saved(residuals), cotangents, places)
        primals = [residuals[n] for n in self.moving]
        found = _alike([found[i].reshape(x.shape) for i, x in zip(places, primals, strict=True)], primals)
        return list(map(_jax_sharding.as_primal, found, primals))

    def _saved(self, residuals):
        op = self.call.op
        places = [j for j in self.there if op.saved >> (32 + j) & 1]
        return self._spread(residuals[len(self.call.places) :], places, len(op.outputs))


class _Batch:
    """A batch of linear maps. ``mapped``: which arrays it maps over; all tangents have it."""

    def __init__(self, one, mapped):
        self.one, self.mapped, self.moving = one, mapped, one.moving
        self.key = one, mapped

    __hash__, __eq__ = _Tangents.__hash__, _Tangents.__eq__

    def __repr__(self):
        return f"{self.one}"

    def only(self, indices):
        """The same for these of its tangents."""
        return _Batch(self.one.only(indices), self.mapped)

    def _over(self, function, residuals, others):
        axes = [0 if m else None for m in self.mapped]
        return jax.vmap(function, in_axes=(axes, 0))(list(residuals), list(others))

    def forward(self, residuals, tangents, results):
        """One call for the batch where _batching.py knows how."""
        one = tuple(jax.ShapeDtypeStruct(r.shape[1:], r.dtype) for r in results)
        return self._over(lambda arrays, t: self.one.forward(arrays, t, one), residuals, tangents)

    def transposed(self, residuals, cotangents):
        """The same."""
        return self._over(self.one.transposed, residuals, cotangents)


# ---- the backward kernel ----


def _filled(call, inputs, cotangents):
    """The cotangents, zeros for those of floating-point outputs that are not there."""
    outputs = dict(call.outputs([x for x in inputs if x is not None]))
    has_zero = lambda j, g: g is None and j in outputs and _is_floating(outputs[j])  # noqa: E731
    return [jnp.zeros(outputs[j].shape, outputs[j].dtype) if has_zero(j, g) else g for j, g in enumerate(cotangents)]


def _backward(call, inputs, saved, cotangents, places):
    """The gradients of the inputs of these places, by the declared backward op; the others are None."""
    op, rule = call.op, _derivatives.rule_of(call.op.op)
    backward = _ops.op(op.backward)
    backward = backward.bind(**op.params) if op.fields else backward
    main = len(op.outputs) - op.num_aux
    if any(g is not None for g in cotangents[main:]):
        raise NotImplementedError(f"{op.op}: no derivative of its output {op.outputs[main]}, which only its backward op reads")
    every = rule is not None and rule.reads_all  # and so are second derivatives
    needed = [not name.endswith("?") for name in backward.inputs]
    read = [*_filled(call, inputs, cotangents[:main])]
    read += [x if every or op.saved >> i & 1 or needed[main + i] else None for i, x in enumerate(inputs)]
    read += saved
    required = {j for j, name in enumerate(backward.outputs[: len(inputs)]) if not name.endswith("?")}  # which no call leaves out
    wanted = _jax_call.Call.of(backward, read, required.union(places))
    arrays = _alike([x for x in read if x is not None])
    for j, spec in enumerate(wanted.specs(arrays)):
        if spec is None and j in required:
            raise ValueError(_ops.without_shape(backward, j))
        if spec is None and j in places:
            raise ValueError(_ops.without_saved(op, backward, j))
    found = dict(zip([j for j, _ in wanted.outputs(arrays)], run(wanted, (), *arrays), strict=True))
    return [found.get(i) if i in places else None for i in range(len(inputs))]


# ---- the primitive ----


def _bind(*arrays, linear, results):
    count = len(arrays) - len(linear.moving)
    return linear.forward(list(arrays[:count]), list(arrays[count:]), results)


def _jvp(arrays, tangents, *, linear, results):
    """Linear in its last arrays. What it is in the others the formulas say, whose ops are differentiable."""
    count = len(arrays) - len(linear.moving)
    moving = [n for n, t in enumerate(tangents) if type(t) is not ad.Zero and t.dtype != jax.dtypes.float0]
    outputs = _linear.bind(*arrays, linear=linear, results=results)
    if not moving:
        return outputs, list(map(ad.Zero, results))
    if moving[0] >= count:
        given = [tangents[n] for n in moving]
        moved = _linear.bind(*arrays[:count], *given, linear=linear.only([n - count for n in moving]), results=results)
        return outputs, moved

    def function(*some):
        every = dict(enumerate(arrays)) | dict(zip(moving, some, strict=True))
        return tuple(_bind(*every.values(), linear=linear, results=results))

    _, moved = jax.jvp(function, tuple(arrays[n] for n in moving), tuple(tangents[n] for n in moving))
    return outputs, list(moved)


def _transpose(cotangents, *arrays, linear, results):
    count = len(arrays) - len(linear.moving)
    if all(type(g) is ad.Zero for g in cotangents):
        return [None] * count + [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in arrays[count:]]
    given = [None if type(g) is ad.Zero else g for g in cotangents]
    found = linear.transposed(list(arrays[:count]), given)
    return [None] * count + [y if ad.is_undefined_primal(x) else None for x, y in zip(arrays[count:], found, strict=True)]


def _batch(arrays, axes, *, linear, results):
    count = len(arrays) - len(linear.moving)
    moved = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(arrays, axes, strict=True)]
    mapped = next(a for a, d in zip(moved, axes, strict=True) if d is not None)
    size = mapped.shape[0]
    tangents = [jnp.broadcast_to(a, (size, *a.shape)) if d is None else a for a, d in zip(moved[count:], axes[count:], strict=True)]
    batch = _Batch(linear, tuple(d is not None for d in axes[:count]))
    results = tuple(_batched(r, mapped) for r in results)
    return _linear.bind(*moved[:count], *tangents, linear=batch, results=results), [0] * len(results)


def _batched(aval, mapped):
    """Of a batch that lies as this array's first axis does."""
    shape, sharding = (mapped.shape[0], *aval.shape), getattr(aval, "sharding", None)
    if sharding is None:
        return aval.update(shape=shape)
    spec: Any = jax.typeof(mapped).sharding.spec
    return aval.update(shape=shape, sharding=sharding.update(spec=(spec[0] if len(spec) else None, *sharding.spec)))


def _made():
    primitive: Any = jax.extend.core.Primitive("narrows.tangent")
    primitive.multiple_results = True
    primitive.def_impl(_bind)
    primitive.def_abstract_eval(lambda *_, linear, results: list(results))
    ad.primitive_jvps[primitive] = _jvp
    ad.primitive_transposes[primitive] = _transpose
    batching.primitive_batchers[primitive] = _batch
    mlir.register_lowering(primitive, mlir.lower_fun(_bind, multiple_results=True))
    _jax_call.register_replication(primitive)
    return primitive


_linear = _made()


# ---- what the formulas of _derivatives.py call ----


def call(name, params, inputs, wanted=-1):
    """Every output of the op, None where `wanted` leaves it out."""
    op = _ops.op(name)
    op = op.bind(**params) if params else op
    indices = [j for j in range(len(op.outputs) - op.num_aux) if wanted >> j & 1]
    made = _jax_call.Call.of(op, [*inputs, *[None] * (len(op.inputs) - len(inputs))], indices)
    arrays = _alike([x for x in inputs if x is not None])
    found = dict(zip([j for j, _ in made.outputs(arrays)], run(made, (), *arrays), strict=True))
    return [found.get(j) for j in range(len(op.outputs))]


def broadcast(x, shape):
    return x if x is None or x.shape == tuple(shape) else jnp.broadcast_to(x, shape)


def summed(x, shape):
    """x, summed over the axes along which an array of that shape was repeated."""
    lead = x.ndim - len(shape)
    axes = [*range(lead), *(lead + i for i, n in enumerate(shape) if n != x.shape[lead + i])]
    return x.sum(axes).reshape(shape) if axes else x


def concatenated(tensors):
    return jnp.concatenate(tuple(tensors), 1)


def zeros_like(x):
    return jnp.zeros_like(x)


def cast(x, dtype):
    return x.astype(dtype)


def widened(x):
    """float16 and bfloat16 as float32, in which the ops compute them."""
    return x.astype("float32") if x is not None and x.dtype in (jnp.float16, jnp.bfloat16) else x


_this = sys.modules[__name__]
