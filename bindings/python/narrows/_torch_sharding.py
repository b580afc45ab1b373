# SPDX-License-Identifier: Apache-2.0
"""torch: sharding rules of every op on DTensors, made of its declaration (_splits.py). torch chooses among them by what the inputs' layouts
cost, and redistributes inputs that fit none.

The rules say what stands along one axis of a mesh; meshes of more axes combine them. `narrows.torch` imports this once somebody
has imported torch.distributed.tensor.
"""

import collections
import functools
import itertools
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSpec, OpStrategy, RuntimeSchemaInfo, TupleStrategy
from torch.distributed.tensor._ops.utils import generate_redistribute_costs, is_tensor_shardable

from narrows import _batching, _splits, _torch_ops, _torch_programs, _torch_shapes, _torch_spread

_dispatcher: Any = DTensor._op_dispatcher


def register():
    """Gives torch a rule for each op, those to come too, and for tensor programs. ImportError: this torch has not what they need."""
    if not hasattr(_dispatcher, "_dispatch_get_local_results_slow_path"):
        raise ImportError(f"the DTensor of torch {torch.__version__}; expected that of 2.11 or later")
    _torch_ops.listen(_register_op)
    _torch_ops.call_spread = _torch_spread.call
    _register(_torch_programs.op(), _call_of_program, ["integers", "reals", "present", "wanted"], needs_pytree=True)


def _register_op(reg):
    names = [*reg.params, *(["wanted"] if reg.masked else [])]
    _register(reg.call, functools.partial(_call_of_op, reg), names)
    if any(name in reg.op.params for way in _batching.ways(reg.op) for name in way.names):
        _dispatcher._custom_op_handlers[reg.call] = functools.partial(_run_divided, reg)


def _register(op, call_of, names, needs_pytree=False):
    info = RuntimeSchemaInfo(static_argnum=0, static_kwargkey=names, needs_pytree=needs_pytree)
    _dispatcher.sharding_propagator.register_op_strategy(op, functools.partial(_strategy, call_of), info)


# ---- a call, as the rules see it ----


class _Call:
    """A call of an op: `inputs` has an OpStrategy or None for each declared input."""

    def __init__(self, reg, inputs, params):
        params = dict(params)
        self.op, wanted = reg.bound(params)
        self.is_listed = reg.masked or reg.is_listed
        self.specs = [None if x is None else (_torch_shapes.dtype_of(x.tensor_meta), tuple(x.shape)) for x in inputs]
        mask = reg.mask(wanted)
        outputs = self._infer(self.specs)
        self.outputs = [y if mask >> j & 1 else None for j, y in enumerate(outputs)]

    def _infer(self, specs):
        return [None if y is None else tuple(y[1]) for y in _torch_shapes.inferred(self.op, specs, "meta")]

    def _infer_shapes(self, shapes):
        return self._infer([None if s is None else (s[0], shape) for s, shape in zip(self.specs, shapes, strict=True)])

    def may_be_summed(self, split):
        """Whether torch makes shares of what counts once: it divides, and integers become others."""
        places = zip(self.specs, split.inputs, strict=True)
        return all("float" in spec[0] for spec, place in places if spec is not None and place == _splits.SUM)

    def splits(self):
        shapes = [None if s is None else s[1] for s in self.specs]
        return _splits.splits(self.op, shapes, self.outputs, self._infer_shapes)


def _call_of_op(reg, args, params):
    return _Call(reg, reg.filled(args), params)


def _call_of_program(args, params):
    tensors, program = args
    reg = _torch_programs.of(program)
    inputs, named = _torch_programs.unpacked(reg, tensors.children if isinstance(tensors, TupleStrategy) else tensors, **params)
    return _Call(reg, inputs, named)


# ---- rules ----


def _placements(places):
    """Of each tensor that is there, along one axis of a mesh."""
    known = {_splits.WHOLE: Replicate(), _splits.SUM: Partial()}
    return [known[p] if isinstance(p, str) else Shard(p) for p in places if p is not None]


def _strategy(call_of, schema):
    call = call_of(schema.args_schema, schema.kwargs_schema)
    inputs = sum(s is not None for s in call.specs)
    outputs = sum(y is not None for y in call.outputs)
    rules: list[Any] = [[Replicate()] * (outputs + inputs)]
    splits = [split for split in call.splits() if call.may_be_summed(split)]
    rules += [_placements(split.outputs) + _placements(split.inputs) for split in splits]
    given = schema.args_strategy + schema.kwargs_strategy
    mesh, found = given[0].mesh, []
    for combination in itertools.product(rules, repeat=mesh.ndim):
        spec = _spec(mesh, given, list(zip(*combination, strict=True)), outputs)
        if spec is not None and _is_divisible(call.op, splits, mesh, [s.placements for s in spec.input_specs or ()]):
            found.append(spec)
    return OpStrategy([_listed(spec) for spec in found] if call.is_listed and outputs == 1 else found)


def _spec(mesh, given, placements, outputs):
    """The OpSpec of one rule for each axis of the mesh, or None: an input is too short to be cut so. One that lies so already is not."""
    inputs = [DTensorSpec(mesh, p, tensor_meta=x.tensor_meta) for x, p in zip(given, placements[outputs:], strict=True)]
    for x, wanted in zip(given, inputs, strict=True):
        if not is_tensor_shardable(x.shape, wanted) and x.strategies[0].output_spec.placements != wanted.placements:
            return None
    made = tuple(DTensorSpec(mesh, p) for p in placements[:outputs])
    costs = [generate_redistribute_costs(x, wanted) for x, wanted in zip(given, inputs, strict=True)]
    return OpSpec(output_specs=made[0] if outputs == 1 else made, input_specs=inputs, redistribute_cost=costs)


def _listed(spec):
    """torch takes one output for a tensor, and no list of one."""
    outputs = spec.output_specs if isinstance(spec.output_specs, tuple) else (spec.output_specs,)
    return OpSpec(output_specs=outputs, input_specs=spec.input_specs, redistribute_cost=spec.redistribute_cost)


def _is_divisible(op, splits, mesh, placements):
    return all(_splits.divides(op, (name,), number) for name, number in _divisors(splits, mesh, placements).items())


def _divisors(splits, mesh, placements):
    """{param: by what it is divided} for inputs of these placements."""
    found: dict[str, int] = {}
    for split in splits:
        wanted = _placements(split.inputs) if split.fields else []
        for d, along in enumerate(zip(*placements, strict=True)):
            if split.fields and list(along) == wanted:
                found.update({name: found.get(name, 1) * mesh.size(d) for name in split.fields})
    return found


# ---- ops of which a param is divided: the groups of a convolution ----


def _run_divided(reg, op, args, kwargs):
    """As torch runs an op of a rule, but that each device has its part of the params."""
    info = _dispatcher.unwrap_to_op_info(op, args, kwargs)
    _dispatcher.sharding_propagator.propagate(info)
    info.local_kwargs.update(divided_params(reg, info.schema, info.output_sharding))
    results = _dispatcher._dispatch_get_local_results_slow_path(op, args, info)
    return _dispatcher.wrap(results, info.output_sharding.output_spec)


_known_params: Any = collections.OrderedDict()  # by the op and the call


def divided_params(reg, schema, sharding):
    """{param: its value on each device} of a call."""
    try:
        found = _known_params.get((reg, schema))
    except TypeError:  # torch.compile traces it with symbolic sizes
        return _find_divided(reg, schema, sharding)
    if found is None:
        found = _known_params[reg, schema] = _find_divided(reg, schema, sharding)
        if len(_known_params) > 4096:
            _known_params.popitem(last=False)
    return found


def _find_divided(reg, schema, sharding):
    given = sharding.redistribute_schema if sharding.needs_redistribute else schema
    call = _Call(reg, reg.filled(given.args_schema), schema.kwargs_schema)
    specs = [spec for spec in given.args_schema if spec is not None]
    found = _divisors(call.splits(), specs[0].mesh, [spec.placements for spec in specs])
    return {name: value for key, number in found.items() for name, value in _splits.divided(call.op, (key,), number).items()}
