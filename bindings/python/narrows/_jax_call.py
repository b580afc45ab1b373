# SPDX-License-Identifier: Apache-2.0
"""JAX: one call of an op as a JAX primitive of its name, which XLA runs by the handlers of libnarrows_xla.

A primitive of its own gives the op's name to jaxprs, to XLA's instructions and so to profilers. The attributes of the call are those
that bindings/xla/src/handler.cpp reads; they are the same on every platform, and a saved program may run on any.
"""

import functools
from typing import Any

import jax
import jax.core
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.interpreters import batching, mlir

from narrows import _batching, _built_in, _jax_symbolic, _narrows, _ops, _programs, _xla

_FORMAT = 1  # of the attributes
_DEVICE_TYPES = {"cpu": 1, "cuda": 2, "rocm": 10}


class Call:
    """An op with its params and which inputs are there; hashable, so that JAX compiles each once."""

    def __init__(self, op, present, wanted):
        self.op, self.present, self.wanted = op, present, wanted
        self.key = op.op, op.blob, present, wanted

    @functools.cached_property
    def places(self):
        """Of its arrays among the inputs. Eager calls do not ask for it."""
        return [i for i in range(len(self.op.inputs)) if self.present >> i & 1]

    @classmethod
    def of(cls, op, inputs, wanted):
        """With these inputs, None where one is absent, for the outputs of these indices."""
        return cls(op, sum(1 << i for i, x in enumerate(inputs) if x is not None), sum(1 << j for j in wanted))

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return isinstance(other, Call) and self.key == other.key

    def __repr__(self):
        return name_of(self.op)

    def with_params(self, **params):
        """The same call with these values."""
        return Call(self.op.bind(**params), self.present, self.wanted)

    def with_saved(self):
        """The same call for the outputs that its backward op reads, too."""
        return self if self.op.backward is None else Call(self.op, self.present, self.wanted | self.op.saved >> 32)

    def inputs(self, arrays):
        """(dtype, shape) or None for every input."""
        given = iter(arrays)
        return [
            (lambda a: (str(a.dtype), tuple(a.shape)))(next(given)) if self.present >> i & 1 else None
            for i in range(len(self.op.inputs))
        ]

    def specs(self, arrays):
        """The same for every output; with symbolic sizes where the inputs have them."""
        inputs, device_type = self.inputs(arrays), next(iter(device_types(self.op).values()), 1)
        if _jax_symbolic.has_symbols(inputs):
            return _jax_symbolic.specs(self.op, inputs, device_type)
        return self.op._infer(inputs, device_type)

    def outputs(self, arrays):
        """The outputs that the handler is to fill: (index, ShapeDtypeStruct)."""
        return [
            (j, jax.ShapeDtypeStruct(spec[1], jnp.dtype(spec[0])))
            for j, spec in enumerate(self.specs(arrays))
            if spec is not None and self.wanted >> j & 1
        ]


def name_of(op):
    """As profilers and jaxprs show it: "narrows.conv1d", "narrows.add", "narrows.vendor_name_1"."""
    return "narrows." + _built_in.public_name(op).replace(".", "_").replace("/", "_")


def run(call, aliases, *arrays):
    """The outputs of one call of the op."""
    _xla.register()
    if _batching.takes_leading_axis(call.op) and len({a.ndim for a in arrays}) > 1:
        shapes = [spec.shape for _, spec in call.outputs(arrays)]
        outputs = run(call, aliases, *_equal_ranks(arrays))
        return tuple(y.reshape(shape) for y, shape in zip(outputs, shapes, strict=True))
    outputs = call.outputs(arrays)
    mask = sum(1 << j for j, _ in outputs)
    target = _target(call, mask, arrays)
    results = tuple(spec for _, spec in outputs)
    bind = _primitive(name_of(call.op)).bind
    return tuple(bind(*arrays, call=call, mask=mask, target=target, aliases=tuple(aliases), results=results))


def _equal_ranks(arrays):
    """A batch axis may be put before inputs of equal rank only: those of a lower one get axes of 1."""
    rank = max(a.ndim for a in arrays)
    return [a.reshape((1,) * (rank - a.ndim) + a.shape) for a in arrays]


def _target(call, mask, arrays):
    """The handlers by their name. XLA may put what is capturable into a graph; of a batch under vmap, where shapes change behind
    this, only what never needs a workspace. Of symbolic sizes nobody knows."""
    inputs = call.inputs(arrays)
    gpu = next((n for n in device_types(call.op).values() if n != 1), None)
    may_grow = _batching.takes_leading_axis(call.op) and not _built_in.is_elementwise(call.op)
    if gpu is None or may_grow or _jax_symbolic.has_symbols(inputs) or not call.op._capturable(inputs, mask, gpu):
        return "narrows"
    return "narrows_capturable"


# ---- the primitive ----


@functools.cache
def _primitive(name):
    primitive: Any = jax.extend.core.Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(functools.partial(_compute, primitive))
    primitive.def_abstract_eval(lambda *_, results, **__: [jax.core.ShapedArray(r.shape, r.dtype) for r in results])
    mlir.register_lowering(primitive, _lower)
    batching.primitive_batchers[primitive] = functools.partial(_batch, primitive)
    register_replication(primitive)
    return primitive


def register_replication(primitive):
    """Says that an output is the same on devices where all inputs are. jax.shard_map before 0.6 asks each primitive for that."""
    if hasattr(jax, "shard_map"):
        return
    from jax.experimental import shard_map

    found: Any = shard_map
    for name in ("register_standard_check", "register_standard_rewrite"):
        if hasattr(found, name):
            getattr(found, name)(primitive)


def _compute(primitive, *arrays, **how):
    """Outside of jax.jit, as under jax.disable_jit."""
    with jax.disable_jit(False):
        return jax.jit(lambda *a: primitive.bind(*a, **how))(*arrays)


def _lower(context, *operands, call, mask, target, aliases, results):
    layout = [_FORMAT, call.present, mask, len(call.op.inputs), len(call.op.outputs)]
    lowering = _xla.ffi().ffi_lowering(target, operand_output_aliases=dict(aliases) or None)
    program = {"program": _programs.saved(call.op.op)} if _programs.is_program(call.op.op) else {}
    return lowering(
        context,
        *operands,
        op=call.op.op,
        params=np.frombuffer(call.op.blob, np.uint8),
        layout=np.array(layout, np.int64),
        narrows=_narrows.abi()[0],
        **program,
    )


def _batch(primitive, arrays, axes, *, results, **how):
    """A batch is one call of an op that takes a leading axis, of another one a call for each."""
    size = next(a.shape[d] for a, d in zip(arrays, axes, strict=True) if d is not None)
    arrays = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(arrays, axes, strict=True)]
    if _batching.takes_leading_axis(how["call"].op):
        whole = [jnp.broadcast_to(a, (size, *a.shape)) if d is None else a for a, d in zip(arrays, axes, strict=True)]
        batch = tuple(jax.ShapeDtypeStruct((size, *r.shape), r.dtype) for r in results)
        outputs = primitive.bind(*whole, results=batch, **how)
    else:

        def one(mapped):
            given = iter(mapped)
            return primitive.bind(
                *(a if d is None else next(given) for a, d in zip(arrays, axes, strict=True)), results=results, **how
            )

        outputs = jax.lax.map(one, [a for a, d in zip(arrays, axes, strict=True) if d is not None])
    return outputs, (0,) * len(results)


# ---- platforms ----


def device_types(op):
    """{platform: its device type} of those that a program may run on and that have the op. Built-in ones are everywhere."""
    serving = _ops.device_types(op.op) if "." in op.op else _DEVICE_TYPES.values()
    return {p: n for p, n in _DEVICE_TYPES.items() if p in _platforms() and n in serving}


@functools.cache
def _platforms():
    """Those that a program may run on, and not the default one alone: ``jax.devices()`` has no other."""
    return frozenset(name for name in _DEVICE_TYPES if _has(name))


def _has(platform):
    try:
        return bool(jax.devices(platform))
    except RuntimeError:
        return False
