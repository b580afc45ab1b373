# SPDX-License-Identifier: Apache-2.0
"""Checks by torch's tensors: values, layouts, first and second derivatives, vmap and torch.compile."""

import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from narrows import _ops
from narrows.testing import _compare
from narrows.testing._run import Declined, Run
from narrows.testing._subject import Case, Subject

_BATCH = 3


def check(run: Run, subject: Subject, cases: Sequence[Case], gradients: bool, strict: bool) -> None:
    firsts = list({case.dtypes: case for case in reversed(cases)}.values())
    for case in cases:
        run.check(f"values: torch; {case}", _values, subject, case)
    for case in cases:
        for name, tensors in _layouts(_tensors(subject.arrays(case))):
            run.check(f"layouts: torch, {name}; {case}", _layout, subject, case, tensors, strict)
    for case in cases if gradients else ():
        if any(map(_compare.is_float, case.dtypes)):
            run.check(f"gradient: torch; {case}", _gradient, subject, case)
            run.check(f"gradient: torch, of a sum; {case}", _gradient_of_sum, subject, case)
            if has_second(subject):
                run.check(f"second gradient: torch; {case}", _second, subject, case)
    for case in firsts:
        for name, places in _batches(case):
            may_decline = not strict and -1 in places  # each call's tensors have strides
            run.check(
                f"vmap: torch, {name}; {case}",
                _vmap,
                subject,
                case,
                places,
                may_decline,
            )
        run.check(f"compile: torch; {case}", _compile, subject, case, gradients)


def has_second(subject: Subject) -> bool:
    return subject.op.backward is not None and _ops.op(subject.op.backward).backward is not None


def to_torch(x: Any) -> Any:
    """A tensor with memory of its own."""
    if x is None:
        return None
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def to_numpy(t: Any) -> Any:
    if t is None:
        return None
    t = t.detach()
    if t.dtype is torch.bfloat16:
        return t.to(torch.float32).numpy().astype(_compare.numpy_dtype("bfloat16"))
    return np.array(t.resolve_conj().numpy())


def _tensors(arrays: Sequence[Any]) -> list[Any]:
    return [to_torch(x) for x in arrays]


def _judge(subject: Subject, case: Case, made: Any, arrays: Sequence[Any], expected: Sequence[Any]) -> None:
    outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    subject.compare([to_numpy(y) for y in outputs], arrays, expected, case)


def _values(subject: Subject, case: Case) -> None:
    arrays = subject.arrays(case)
    _judge(subject, case, subject(_tensors(arrays), case), arrays, subject.expected(case))


def _layouts(tensors: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    def sliced(t: Any) -> Any:
        longer = torch.zeros((*t.shape[:-1], 2 * t.shape[-1]), dtype=t.dtype)
        longer[..., ::2] = t
        return longer[..., ::2]

    def offset(t: Any) -> Any:
        return torch.cat([torch.zeros(1, dtype=t.dtype), t.reshape(-1)])[1:].view(t.shape)

    ways: dict[str, tuple[int, Callable[[Any], Any]]] = {
        "transposed": (2, lambda t: t.transpose(0, -1).contiguous().transpose(0, -1)),
        "sliced": (1, sliced),
        "one element into its storage": (0, offset),
        "expanded": (1, lambda t: t[:1].expand(t.shape)),
    }
    for name, (rank, make) in ways.items():
        able = [i for i, t in enumerate(tensors) if t is not None and t.dim() >= rank and t.numel()]
        if able:
            yield name, [make(t) if i in able else t for i, t in enumerate(tensors)]


def _layout(subject: Subject, case: Case, tensors: Sequence[Any], strict: bool) -> None:
    try:
        made = subject(tensors, case)
    except NotImplementedError:
        if strict:
            raise
        raise Declined from None
    arrays = [to_numpy(t) for t in tensors]
    _judge(subject, case, made, arrays, subject.refer(arrays, case))


# ---- derivatives ----


def _differentiable(subject: Subject, case: Case) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """The arrays; their tensors, which need a gradient where they are floats; those; and the outputs' weights."""
    arrays = subject.arrays(case)
    tensors = _tensors(arrays)
    wanted = [t for t in tensors if t is not None and t.is_floating_point()]
    for t in wanted:
        t.requires_grad_()
    return arrays, tensors, wanted, subject.weights(case, subject.expected(case))


def _in_places(tensors: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """For each input its gradient as a NumPy array, or None."""
    rest = iter(found)
    return [to_numpy(next(rest)) if t is not None and t.is_floating_point() else None for t in tensors]


def _loss(outputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    return sum((to_torch(w) * y).sum() for w, y in zip(weights, outputs, strict=True) if w is not None)


def _gradient(subject: Subject, case: Case) -> None:
    arrays, tensors, wanted, weights = _differentiable(subject, case)
    made = subject(tensors, case)
    pairs = [(y, to_torch(w)) for y, w in zip(made, weights, strict=True) if w is not None]
    found = torch.autograd.grad([y for y, _ in pairs], wanted, [w for _, w in pairs], allow_unused=True)
    subject.compare_derivatives(_in_places(tensors, found), subject.derivatives(case, arrays, weights), case, 1)


def _gradient_of_sum(subject: Subject, case: Case) -> None:
    """The outputs' gradients come with stride 0, as those of .sum() do; and one input alone needs one."""
    arrays, tensors, wanted, weights = _differentiable(subject, case)
    ones = [None if w is None else np.ones_like(w) for w in weights]
    expected = subject.derivatives(case, arrays, ones)
    for alone in range(len(wanted)):
        for i, t in enumerate(wanted):
            t.requires_grad_(i == alone)
        total: Any = sum(y.sum() for y, w in zip(subject(tensors, case), ones, strict=True) if w is not None)
        found: list[Any] = [None] * len(wanted)
        found[alone] = torch.autograd.grad(total, wanted[alone], allow_unused=True)[0]
        got = _in_places(tensors, found)
        place = next(i for i, t in enumerate(tensors) if t is wanted[alone])
        subject.compare_derivatives(got, [e if i == place else None for i, e in enumerate(expected)], case, 1)


def _second(subject: Subject, case: Case) -> None:
    """Of the slope of the loss along directions, by the inputs and by the outputs' gradients."""
    arrays, tensors, wanted, weights = _differentiable(subject, case)
    directions = subject.directions(case)
    pairs = [(y, to_torch(w).requires_grad_()) for y, w in zip(subject(tensors, case), weights, strict=True) if w is not None]
    given = [w for _, w in pairs]
    first = torch.autograd.grad([y for y, _ in pairs], wanted, given, create_graph=True, allow_unused=True)
    along = [to_torch(v) for v in directions if v is not None]
    slope = sum((g * v).sum() for g, v in zip(first, along, strict=True) if g is not None)
    found: Sequence[Any] = [None] * (len(wanted) + len(given))
    if torch.is_tensor(slope) and slope.requires_grad:
        found = torch.autograd.grad(slope, [*wanted, *given], allow_unused=True)
    expected = subject.derivatives(case, arrays, weights, directions)
    subject.compare_derivatives(_in_places(tensors, found[: len(wanted)]), expected, case, 2)
    subject.compare_tangents([to_numpy(t) for t in found[len(wanted) :]], arrays, weights, directions, case)


# ---- transforms ----


def _batches(case: Case) -> Iterator[tuple[str, list[int | None]]]:
    """The axis of each input that holds the batch, or None."""
    present = [i for i, s in enumerate(case.shapes) if s is not None]
    yield "all inputs", [0 if i in present else None for i in range(len(case.shapes))]
    yield "the last axis", [-1 if i in present else None for i in range(len(case.shapes))]
    if len(present) > 1:
        yield "the first input alone", [0 if i == present[0] else None for i in range(len(case.shapes))]


def batch(subject: Subject, case: Case, places: Sequence[int | None]) -> tuple[list[Any], list[Any], list[list[Any]]]:
    """The stacked arrays, and the expected outputs, stacked in front; and the arrays of each call."""
    each = [subject.arrays(case, f"example {b}" if b else "") for b in range(_BATCH)]
    calls = [[x if places[i] is not None else each[0][i] for i, x in enumerate(arrays)] for arrays in each]
    made = [subject.refer(arrays, case) for arrays in calls]
    expected = [None if ys[0] is None else np.stack(ys) for ys in zip(*made, strict=True)]
    stacked = [calls[0][i] if p is None else np.stack([c[i] for c in calls], p) for i, p in enumerate(places)]
    return stacked, expected, calls


def _vmap(subject: Subject, case: Case, places: Sequence[int | None], may_decline: bool) -> None:
    stacked, expected, _ = batch(subject, case, places)
    tensors = _tensors(stacked)
    used = [i for i, p in enumerate(places) if p is not None]

    def one(*some: Any) -> Any:
        inputs = list(tensors)
        for i, t in zip(used, some, strict=True):
            inputs[i] = t
        return tuple(subject(inputs, case))

    try:
        made = torch.func.vmap(one, tuple(places[i] for i in used))(*(tensors[i] for i in used))
    except NotImplementedError:
        if not may_decline:
            raise
        raise Declined from None
    _judge(subject, case, made, stacked, expected)


def _compile(subject: Subject, case: Case, gradients: bool) -> None:
    op, params = subject.op, dict(case.params)

    def call(*inputs: Any) -> Any:
        return op(*inputs, **params)

    # A code object of its own: torch counts how often each is compiled.
    own = types.FunctionType(call.__code__.replace(), call.__globals__, "call", None, call.__closure__)
    compiled = torch.compile(own, fullgraph=True, backend="aot_eager")
    arrays, expected = subject.arrays(case), subject.expected(case)
    tensors = _tensors(arrays)
    _judge(subject, case, compiled(*tensors), arrays, expected)
    if not gradients or not any(map(_compare.is_float, case.dtypes)):
        return
    arrays, tensors, wanted, weights = _differentiable(subject, case)
    made = compiled(*tensors)
    outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    found = torch.autograd.grad(_loss(outputs, weights), wanted, allow_unused=True)
    subject.compare_derivatives(_in_places(tensors, found), subject.derivatives(case, arrays, weights), case, 1)
