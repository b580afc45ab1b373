# SPDX-License-Identifier: Apache-2.0
"""How ops come into torch.ops.narrows: by this package, or by libnarrows_torch, which has them in C++ for programs and processes without
this package. Here Python defines the ops: a number that stands for an operand is a Scalar in their schemas, which may be made of
sizes; torch's C shim knows none."""

import os
from typing import Any

import torch

_private: Any = torch  # for what no type checker finds there


def path():
    """Of the library in this package."""
    return os.path.join(os.path.dirname(__file__), "lib", "libnarrows_torch.so")


def has(name):
    """Whether torch.ops.narrows.<name> is there, by this package or the library."""
    return _private._C._dispatch_has_kernel(f"narrows::{name}")


fragment = torch.library.Library("narrows", "FRAGMENT")


def define(name, schema, run, fake):
    """An op of torch.ops.narrows. ``run``: its kernel; ``fake``: gives tensors of the right shapes."""
    if not has(name):  # the library was loaded before the package
        fragment.define(schema)
        for key in ("CPU", "CUDA"):
            fragment.impl(name, run, key)
    torch.library.register_fake(f"narrows::{name}", fake, lib=fragment)
    return getattr(torch.ops.narrows, name).default
