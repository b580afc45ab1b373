# SPDX-License-Identifier: Apache-2.0
"""Backward ops called in a child process, before torch and JAX call them in this one: a crash is a failure with a name."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from narrows import _narrows, _ops
from narrows.testing import _compare, _isolated
from narrows.testing._compare import Mismatch
from narrows.testing._run import Declined, Run
from narrows.testing._subject import Case, Subject

Arrays = list[Any]  # None: an absent one


def check(run: Run, subject: Subject, cases: Sequence[Case]) -> bool:
    """Each call of a backward op, and of the backward op of that one, beside memory that may not be touched. Whether one crashed."""
    asked: list[tuple[str, Callable[[], object]]] = []
    for case in cases:
        if any(map(_compare.is_float, case.dtypes)):
            asked += [one for one in _calls(subject, case) if run.wants(one[0])]
    answers = _isolated.run([call for _, call in asked], until_crash=True)
    for (label, _), answer in zip(asked, answers, strict=False):
        run.check(label, _judge, answer)
    return _isolated.crashed(answers)


def _judge(answer: Any) -> None:
    if isinstance(answer, _isolated.Crash):
        raise Mismatch(f"the call {answer}: a byte beside a tensor was touched, or the kernel fails by itself")
    if isinstance(answer, NotImplementedError):  # the checks of gradients have it
        raise Declined
    if isinstance(answer, Exception):
        raise answer


def _calls(subject: Subject, case: Case) -> Iterator[tuple[str, Callable[[], object]]]:
    floats = [i for i, (s, d) in enumerate(zip(case.shapes, case.dtypes, strict=True)) if s is not None and _compare.is_float(d)]
    ways = [("first byte at a page", "first", floats), ("last byte at a page", "last", floats)]
    ways += [(f"of {subject.names[i]} alone", "last", [i]) for i in floats if len(floats) > 1]
    for name, edge, wanted in ways:
        yield f"gradient: in a child process, {name}; {case}", functools.partial(_first, subject, case, edge, wanted)
    if _ops.op(subject.op.backward).backward is not None:
        for name, edge, wanted in ways:
            yield f"second gradient: in a child process, {name}; {case}", functools.partial(_second, subject, case, edge, wanted)


def _first(subject: Subject, case: Case, edge: str, wanted: Sequence[int]) -> tuple[Any, Arrays, Arrays]:
    """The backward op, what it was given, and what it gave: the gradients of the wanted inputs."""
    op, inputs = subject.op.bind(**dict(case.params)), _moved(subject.arrays(case), edge)
    outputs = _run(op, inputs, edge, range(len(op.outputs)))
    return _differentiated(op, inputs, outputs, subject.rng(case, "weights"), edge, wanted)


def _second(subject: Subject, case: Case, edge: str, wanted: Sequence[int]) -> None:
    op, inputs, outputs = _first(subject, case, edge, wanted)
    floats = [i for i, x in enumerate(inputs) if x is not None and _compare.is_float(x.dtype.name)]
    _differentiated(op, inputs, outputs, subject.rng(case, "directions"), edge, floats)


def _differentiated(
    op: Any, inputs: Arrays, outputs: Arrays, rng: Any, edge: str, wanted: Sequence[int]
) -> tuple[Any, Arrays, Arrays]:
    """Calls the backward op of `op` as bindings do: what it does not read is absent, where it may be."""
    backward = _narrows._op_from_blob(op.backward, op.blob, op.backward)
    main = len(outputs) - op.num_aux
    given: Arrays = [
        None if y is None or not _compare.is_float(y.dtype.name) else rng.uniform(-1, 1, y.shape).astype(y.dtype)
        for y in outputs[:main]
    ]
    given = _moved([*given, *saved(op, backward, inputs, outputs)], edge)
    return backward, given, _run(backward, given, edge, wanted)


def saved(op: Any, backward: Any, inputs: Arrays, outputs: Arrays) -> Arrays:
    """What the backward op is given behind the gradients of the outputs."""
    tensors = [(x, op.saved >> i & 1) for i, x in enumerate(inputs)] + [(y, op.saved >> 32 + j & 1) for j, y in enumerate(outputs)]
    names = backward.inputs[len(outputs) - op.num_aux :]
    return [None if not is_read and name.endswith("?") else x for name, (x, is_read) in zip(names, tensors, strict=True)]


def _moved(arrays: Sequence[Any], edge: str) -> Arrays:
    moved: Arrays = []
    for x in arrays:
        moved.append(None if x is None else _isolated.guarded(x.shape, x.dtype, edge))
        if x is not None:
            moved[-1][...] = x
    return moved


def _run(op: Any, inputs: Arrays, edge: str, wanted: Sequence[int]) -> Arrays:
    """The wanted outputs, and those that no call may leave out; None for the others."""
    specs = op._infer([None if x is None else (np.asarray(x).dtype.name, x.shape) for x in inputs])
    outputs: Arrays = [
        None if s is None or not (j in wanted or name[-1] != "?") else _isolated.guarded(s[1], _compare.numpy_dtype(s[0]), edge)
        for j, (name, s) in enumerate(zip(op.outputs, specs, strict=True))
    ]
    op(*inputs, out=tuple(outputs) if len(outputs) > 1 else outputs[0])
    return outputs
