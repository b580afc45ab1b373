# SPDX-License-Identifier: Apache-2.0
"""torch: the dtypes and shapes of an op's outputs, symbolic where those of its inputs are."""

from typing import Any

import torch

from narrows import _ops, _rules


class _Symbolic(_rules.Numbers):
    maximum: Any = staticmethod(torch.sym_max)
    minimum: Any = staticmethod(torch.sym_min)
    check: Any = staticmethod(torch._check)


def _hint(extent, unknown=64):
    """A size that may stand for a symbolic one."""
    if isinstance(extent, int):
        return extent
    hint = extent.node.hint if extent.node.has_hint() else None
    return int(hint) if isinstance(hint, int) else unknown


def concrete(value):
    """A param's value that may stand for a symbolic one."""
    if isinstance(value, torch.SymInt):
        return _hint(value, 1)
    if isinstance(value, torch.SymFloat):
        return float(value.node.hint) if value.node.has_hint() else 1.0
    return value


def inferred(op, present, device):
    """The same of the outputs as of the inputs, `present`: (dtype, shape) or None; `device`: torch's name of the kind of device."""
    return _inferred(op, present, _known_type(op, device))


def _inferred(op, present, device_type):
    """Unknown sizes are such as fit the others."""
    known = [n for p in present if p is not None for n in p[1] if isinstance(n, int) or n.node.has_hint()]
    first: Any = None
    for unknown in dict.fromkeys([64, *map(_hint, known), 4096, 1]):
        try:
            return op._infer([None if p is None else (p[0], tuple(_hint(n, unknown) for n in p[1])) for p in present], device_type)
        except ValueError as error:
            first = first or error
            if all(isinstance(n, int) or n.node.has_hint() for p in present if p is not None for n in p[1]):
                break
    raise first


def hinted_specs(op, inputs) -> tuple[list[Any], list[Any]]:
    """[(dtype, shape) or None, ...] of the inputs, and of the outputs, which have sizes that may stand for symbolic ones."""
    present = [None if x is None else (dtype_of(x), tuple(x.shape)) for x in inputs]
    return present, _inferred(op, present, _device_type(op, next(x.device for x in inputs if x is not None)))


def specs_of(op, inputs, symbolic=None) -> list[Any]:
    """[(dtype, shape) or None, ...] of the outputs; shapes symbolic where those of the inputs are."""
    present, specs = hinted_specs(op, inputs)
    if not symbolic and all(isinstance(n, int) for p in present if p is not None for n in p[1]):
        return specs
    if op.shape_rule is not None:
        shapes = _rules.evaluate(op, [None if p is None else p[1] for p in present], _Symbolic, symbolic or {})
        return [None if spec is None else (spec[0], shape) for spec, shape in zip(specs, shapes, strict=True)]
    context = torch.library.get_ctx()
    return [None if s is None else (s[0], tuple(context.new_dynamic_size() for _ in s[1])) for s in specs]


def _device_type(op, device):
    """DLPack's number of torch's device. Tensors without one ("meta") may become those of any that has the op."""
    return _known_type(op, device.type)


def _known_type(op, kind):
    known = {"cpu": 1, "cuda": 10 if torch.version.hip else 2}.get(kind)
    return known or next(iter(_ops.device_types(op.op)), 1)


def dtype_of(x):
    return str(x.dtype).removeprefix("torch.")
