# SPDX-License-Identifier: Apache-2.0
"""torch: calls of ops on DTensors of which none has to be redistributed, and nobody looks on: each device runs its part at once, and no
dispatcher of torch is gone through. _torch_sharding.py has the rules, and every other call."""

import functools
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from narrows import _torch_ops

_private: Any = torch  # for what no type checker finds there
_dispatcher: Any = DTensor._op_dispatcher
_new: Any = DTensor.__new__
_plans: dict[
    Any, Any
] = {}  # (each device's op, the layouts of the outputs) of a call by its op, outputs and layouts; None: it has none
_MOST = 4096
_UNKNOWN: Any = object()


def call(op, inputs, numbers=None):
    """The main outputs, or None: the call has to go by torch's dispatcher. numbers: params to be bound; of plain tensors they may be
    symbolic, and binding would make a graph for each value."""
    if not _are_spread(inputs) or _is_seen():
        return None
    op = op.bind(**numbers) if numbers else op
    reg, op = _torch_ops.registered(op.op), _torch_ops.one(op)
    inputs = reg.filled(inputs)
    plan = _plan(reg, op, inputs, -1)
    if plan is None:
        return None
    if not (torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in inputs])):
        return _outputs(reg, plan, inputs)[: reg.num_main]
    return None if reg.backward is None else _apply(plan, reg, op, *inputs)


def _are_spread(inputs):
    """Whether all that are there are DTensors, and one is."""
    there = False
    for x in inputs:
        if type(x) is DTensor:
            there = True
        elif x is not None:
            return False
    return there


def _is_seen():
    """Whether somebody looks on at the dispatcher, or transforms what it does."""
    return (
        _torch_ops.is_observed()
        or _private.autograd.forward_ad._current_level >= 0
        or _private._C._are_functorch_transforms_active()
        or _private.autograd._profiler_enabled()
    )


class _Recorded(torch.autograd.Function):
    """A call of which one input needs a gradient."""

    @staticmethod
    def forward(ctx, plan, reg, op, *inputs):
        outputs = _outputs(reg, plan, inputs)
        ctx.reg, ctx.params = reg, _torch_ops.differing(op)
        reg.keep(ctx, inputs, outputs)
        main = tuple(outputs[: reg.num_main])
        reg.mark(ctx, main)
        return main

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[override] # pyright: ignore
        run = functools.partial(_run_backward, ctx.reg)
        return None, None, None, *ctx.reg.gradients(ctx, gradients, ctx.needs_input_grad[3:], ctx.params, run)


_without_transforms: Any = super(torch.autograd.Function, _Recorded)
_apply = _without_transforms.apply  # no transform of torch.func is on


def _run_backward(reg, *inputs, wanted, **params):
    """The backward op, by torch's dispatcher where it has to be differentiated, too."""
    if not (torch.is_grad_enabled() or _is_seen()):
        op = reg.backward.op
        plan = _plan(reg.backward, _torch_ops.one(op.bind(**params)) if params else op, inputs, wanted)
        if plan is not None:
            return _outputs(reg.backward, plan, inputs)
    return _torch_ops._call_backward(reg, *inputs, wanted=wanted, **params)


def _outputs(reg, plan, inputs):
    """Every output that is there."""
    here, mask, specs = plan
    parts = tuple([None if x is None else x._local_tensor for x in inputs])
    found = _torch_ops._gradients(here, parts, mask) if reg.is_backward else here._run(parts, mask)
    return [_wrapped(y, spec) for y, spec in zip([y for y in found if y is not None], specs, strict=True)]


def _wrapped(y, spec):
    """As torch's dispatcher wraps it, but for DTensor.__init__, which does nothing, and a frame of torch._dynamo's around that."""
    return _dispatcher.wrap(y, spec) if spec is None else _new(DTensor, y, spec, requires_grad=y.requires_grad)


def _plan(reg, op, inputs, wanted):
    for x in inputs:
        if x is not None and (type(x) is not DTensor or type(x._local_tensor) is not torch.Tensor or x._local_tensor.is_neg()):
            return None  # a gradient of torch's may be any tensor
    key = op, wanted, *[None if x is None else x._spec for x in inputs]
    plan = _plans.get(key, _UNKNOWN)
    if plan is _UNKNOWN:
        if len(_plans) >= _MOST:
            _plans.clear()
        plan = _plans[key] = _made(reg, op, inputs, wanted)
    return plan


def _made(reg, op, inputs, wanted):
    from narrows import _torch_sharding

    given = _torch_ops.differing(op)
    called, arguments, named = reg.node(inputs, {**given, "wanted": wanted} if reg.masked else given)
    info = _dispatcher.unwrap_to_op_info(called, arguments, named)
    _dispatcher.sharding_propagator.propagate(info)
    sharding, mesh = info.output_sharding, info.compute_mesh
    if sharding.needs_redistribute or mesh.get_coordinate() is None:
        return None
    specs = sharding.output_spec if isinstance(sharding.output_spec, (tuple, list)) else (sharding.output_spec,)
    if not reg.is_backward and len(specs) != len(reg.outputs):
        return None  # an output is absent
    divided = _torch_sharding.divided_params(reg, info.schema, sharding) if called is reg.call else {}
    return _torch_ops.one(op.bind(**divided)) if divided else op, reg.mask(wanted), specs
