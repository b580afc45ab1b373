# SPDX-License-Identifier: Apache-2.0
"""What torch's tools are told of our ops: FLOP formulas, for torch.utils.flop_counter. They are torch's own for the same work."""

from typing import Any

import torch


def register_flop_formulas():
    """Makes FlopCounterMode count conv1d, lltm and their backward ops. Element-wise functions count as 0, as torch's do."""
    from torch.utils import flop_counter

    register: Any = flop_counter.register_flop_formula
    formulas = {"conv1d": _conv1d, "conv1d_backward": _conv1d_backward, "lltm": _lltm, "lltm_backward": _lltm_backward}
    for name, formula in formulas.items():
        packet = getattr(torch.ops.narrows, name)
        if packet not in flop_counter.flop_registry:  # else the user's own formula stays
            register(packet)(formula)


def _batched(shape):
    """A shape of conv1d as torch's convolution sees it: (L) is (1, 1, L), (C, L) is (1, C, L)."""
    return (1,) * (3 - len(shape)) + tuple(shape)


def _conv1d(x, w, bias=None, *, out_shape, **params) -> int:
    from torch.utils import flop_counter

    return flop_counter.conv_flop_count(_batched(x), _batched(w), _batched(out_shape))  # pyright: ignore[reportArgumentType]


def _conv1d_backward(grad_y, x, w, bias=None, y=None, *, wanted=-1, groups=1, out_shape=None, **params) -> int:
    if grad_y is None:
        return 0
    from torch.utils import flop_counter

    shapes: Any = [_batched(s) for s in (grad_y, x, w)]
    mask = [bool(wanted >> i & 1) for i in range(3)]
    unread = None, None, None, None  # bias, stride, padding, dilation
    backward: Any = flop_counter.conv_backward_flop
    return backward(*shapes, *unread, False, None, groups, mask, out_val=[*shapes[1:], None])


def _lltm(input, weights, bias, old_h, old_cell, *, out_shape=None, **params) -> int:
    return _product(input[0], weights[1], weights[0])


def _lltm_backward(grad_h, grad_cell, input, weights, *others, wanted=-1, out_shape=None, **params) -> int:
    """d_weights is one product; d_input and d_old_h are parts of another."""
    if grad_h is None and grad_cell is None:
        return 0
    d_input, d_weights, _, d_old_h, _ = (bool(wanted >> i & 1) for i in range(5))
    rows, (gates, features) = input[0], weights
    flops = _product(gates, rows, features) if d_weights else 0
    return flops + (_product(rows, gates, features) if d_input or d_old_h else 0)


def _product(m, k, n) -> int:
    """Of a matrix (m, k) with one (k, n)."""
    from torch.utils import flop_counter

    return flop_counter.mm_flop((m, k), (k, n))
