# SPDX-License-Identifier: Apache-2.0
"""torch: forward mode and second derivatives by the formulas of _derivatives.py. What those call goes by torch's dispatcher, and is recorded
where a gradient is wanted.
"""

import sys
from typing import Any

import torch

from narrows import _derivatives, _torch_library, _torch_ops


def is_forward_mode():
    """Whether a tensor may have a tangent. torch.compile does not count levels."""
    return torch.autograd.forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def tangent(x):
    """Of the innermost level, None where there is none."""
    return torch._VF._unpack_dual(x, level=0)[1] if isinstance(x, torch.Tensor) else None


def has_tangent(inputs):
    return torch.autograd.forward_ad._current_level >= 0 and any(tangent(x) is not None for x in inputs)


def gradients(reg, ctx, cotangents, needed, params):
    """A gradient for each input of a backward op, None where it is not needed."""
    if reg.rule is None:
        return _refused(_derivatives.missing(reg.op, reg.is_backward), ctx.shapes, cotangents, needed)
    if all(u is None for u in cotangents):
        return (None,) * len(needed)
    return tuple(reg.rule.gradients(_this, params, ctx.saved_tensors, cotangents, needed))


def _refused(why, shapes, cotangents, needed):
    """NotImplementedError; where the call is only traced, as ahead of a backward that may never run, then in that."""
    given = next((u for u in cotangents if u is not None), None)
    if given is None or not torch._C._len_torch_dispatch_stack():
        raise NotImplementedError(why)
    return tuple(_no_derivative(given, why, list(shapes[i])) if need else None for i, need in enumerate(needed))


def _raise(gradient, why, shape):
    raise NotImplementedError(why)


_no_derivative: Any = _torch_library.define(
    "no_derivative",
    "no_derivative(Tensor gradient, str why, SymInt[] shape) -> Tensor",
    run=_raise,
    fake=lambda gradient, why, shape: gradient.new_empty(shape),
)


def keep(ctx, inputs, outputs):
    """Keeps what `tangents` reads. Of the outputs that is how they look: the tensors would keep themselves alive."""
    ctx.save_for_forward(*inputs)
    ctx.outputs = [None if y is None else (y.shape, y.dtype) for y in outputs]


def tangents(ctx, tangents):
    """Of each output that torch's dispatcher returned."""
    reg = ctx.reg
    if reg.rule is None:
        raise NotImplementedError(_derivatives.missing_forward(reg.op))
    outputs = ctx.outputs
    with torch.autograd.forward_ad._set_fwd_grad_enabled(
        True
    ):  # torch calls this without: jvp of jvp would lose the outer tangents
        inputs = [x if tangent(x) is None else torch._VF._unpack_dual(x, level=0)[0] for x in ctx.saved_tensors]
        shapes = [None if y is None else y[0] for y in outputs]
        found = reg.rule.tangents(_this, ctx.params, inputs, tangents, shapes)
        given = next(t for t in tangents if t is not None)
        main = [_of_output(t, given, *y) for t, y in zip(found, outputs, strict=False) if y is not None]
    return (*main, *[None] * (len(outputs) - len(found)))


def _of_output(tangent, given, shape, dtype):
    """The tangent, which torch wants of every output that may have one."""
    return given.new_zeros(shape, dtype=dtype) if tangent is None and dtype.is_floating_point else tangent


def call(name, params, inputs, wanted=-1):
    """Every output of the op, None where `wanted` leaves it out."""
    reg = _torch_ops.registered(name)
    params = {**params, "wanted": wanted} if reg.masked else params
    outputs = _torch_ops.dispatched(reg, inputs, params)
    return reg.spread(outputs, reg.mask(wanted)) if reg.masked else outputs


def broadcast(x, shape):
    return x if x is None or x.shape == shape else x.expand(shape)


def summed(x, shape):
    """x, summed over the axes along which a tensor of that shape was repeated."""
    return x if x.shape == shape else x.sum_to_size(shape)


def concatenated(tensors):
    return torch.cat(tuple(tensors), 1)


def zeros_like(x):
    return torch.zeros_like(x)


def cast(x, dtype):
    return x.to(dtype)


def widened(x):
    """float16 and bfloat16 as float32, in which the ops compute them."""
    return x.float() if x is not None and x.dtype in (torch.float16, torch.bfloat16) else x


_this = sys.modules[__name__]
