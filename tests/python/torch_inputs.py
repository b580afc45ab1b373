# SPDX-License-Identifier: Apache-2.0
"""What the tests of torch share: the device that each runs on, and inputs."""

import itertools

import torch

import present

torch.set_num_threads(1)


DEVICES = present.of_torch(torch)


def on_device(name):
    """What a module's autouse fixture `device` yields from: each test runs on each of DEVICES, where torch makes its tensors then."""
    if name == "cpu":
        yield name
        return
    torch.set_default_device(name)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # torch's own results are the reference
        yield name
    torch.set_default_device(None)


def double(*shape, low=0.2, high=0.9):
    return (torch.rand(*shape, dtype=torch.float64) * (high - low) + low).requires_grad_()


def cells(*batch, dtype=torch.float32):
    """Inputs of lltm: for each of a batch an input and a state of its own, the parameters shared."""
    shapes = (*batch, 2, 3), (12, 7), (12,), (*batch, 2, 4), (*batch, 2, 4)
    return [torch.randn(*s, dtype=dtype) for s in shapes]


def numbers(dtype):
    """Special values of a dtype, and some in between."""
    if dtype == torch.bool:
        return torch.tensor([0, 1, 2, 255, 128], dtype=torch.uint8).view(torch.bool)
    if not dtype.is_floating_point:
        of = torch.iinfo(dtype)
        return torch.tensor([0, 1, 2, 7, of.max, of.max - 1, of.min, of.min + 1, *([-1, -2, -7] if of.min else [])], dtype=dtype)
    of = torch.finfo(dtype)
    found = [0.0, 1, 0.5, 1.5, 2.5, 3.1415, 0.1, torch.inf, of.max, of.tiny, of.tiny / 3, of.tiny * of.eps, 1 / of.eps, 1 - of.eps]
    return torch.tensor([*found, *(-x for x in found), torch.nan], dtype=torch.float64).to(dtype)


def pairs(dtype):
    """Three tensors, in the first two of which each number meets each."""
    a, b = zip(*itertools.product(numbers(dtype), repeat=2), strict=True)
    return torch.stack(a), torch.stack(b), torch.stack(b).flip(0)
