# SPDX-License-Identifier: Apache-2.0
"""Checks by JAX's arrays: values, jax.jit, gradients and jax.vmap."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from narrows.testing import _compare
from narrows.testing._run import Run
from narrows.testing._subject import Case, Subject

_BATCH = 3


def check(run: Run, subject: Subject, cases: Sequence[Case], gradients: bool) -> None:
    narrow = not jax.config.read("jax_enable_x64")
    usable = [c for c in cases if not (narrow and any(d.endswith("64") for d in c.dtypes))]
    if len(usable) < len(cases):
        run.leave_out("JAX with dtypes of 64 bits: jax_enable_x64 is off")
    firsts = list({case.dtypes: case for case in reversed(usable)}.values())
    for case in usable:
        run.check(f"values: jax; {case}", _values, subject, case, False)
        run.check(f"jit: jax; {case}", _values, subject, case, True)
        if gradients and any(map(_compare.is_float, case.dtypes)):
            run.check(f"gradient: jax; {case}", _gradient, subject, case)
    for case in firsts:
        run.check(f"vmap: jax; {case}", _vmap, subject, case)


def _arrays(arrays: Sequence[Any]) -> list[Any]:
    return [None if x is None else jnp.asarray(x) for x in arrays]


def _judge(subject: Subject, case: Case, made: Sequence[Any], arrays: Sequence[Any], expected: Sequence[Any]) -> None:
    subject.compare([None if y is None else np.asarray(y) for y in made], arrays, expected, case)


def _values(subject: Subject, case: Case, jitted: bool) -> None:
    arrays = subject.arrays(case)

    def call(*inputs: Any) -> Any:
        return tuple(subject(inputs, case))

    _judge(subject, case, (jax.jit(call) if jitted else call)(*_arrays(arrays)), arrays, subject.expected(case))


def _gradient(subject: Subject, case: Case) -> None:
    arrays = subject.arrays(case)
    weights = subject.weights(case, subject.expected(case))
    given = _arrays(arrays)
    wanted = tuple(i for i, x in enumerate(given) if x is not None and jnp.issubdtype(x.dtype, jnp.floating))

    def loss(*inputs: Any) -> Any:
        made = subject(inputs, case)
        return sum((jnp.asarray(w) * y).sum() for w, y in zip(weights, made, strict=True) if w is not None)

    expected = subject.derivatives(case, arrays, weights)
    for function in (jax.grad(loss, wanted), jax.jit(jax.grad(loss, wanted))):
        found: list[Any] = [None] * len(given)
        for i, g in zip(wanted, function(*given), strict=True):
            found[i] = np.asarray(g)
        subject.compare_derivatives(found, expected, case, 1)


def _vmap(subject: Subject, case: Case) -> None:
    places = tuple(None if s is None else 0 for s in case.shapes)
    each = [subject.arrays(case, f"example {b}" if b else "") for b in range(_BATCH)]
    made = [subject.refer(arrays, case) for arrays in each]
    expected = [None if ys[0] is None else np.stack(ys) for ys in zip(*made, strict=True)]
    stacked = [None if p is None else np.stack([arrays[i] for arrays in each]) for i, p in enumerate(places)]
    got = jax.vmap(lambda *inputs: tuple(subject(inputs, case)), in_axes=places)(*_arrays(stacked))
    _judge(subject, case, got, stacked, expected)
