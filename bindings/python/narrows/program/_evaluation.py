# SPDX-License-Identifier: Apache-2.0
"""What Schedule.evaluate finds: whether a schedule computes what its program does, and how long both take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_MOST_SECONDS = 0.3  # of timing, for each of the two
# Sums are added up in another order: what that may change, relative to the largest magnitude of an output.
_TOLERANCE = {"float64": 1e-11, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


class Evaluation:
    """``seconds`` and ``unscheduled_seconds`` are those of one call, the best of several; ``error`` is the largest difference,
    relative to the largest magnitude."""

    def __init__(self, seconds: float, unscheduled_seconds: float, error: float) -> None:
        self.seconds, self.unscheduled_seconds, self.error = seconds, unscheduled_seconds, error

    def __repr__(self) -> str:
        took = f"{self.seconds * 1e6:.1f} us, unscheduled {self.unscheduled_seconds * 1e6:.1f} us"
        return f"{took}; the results differ by {self.error:.1e} at most"


def _numbers(array: Any) -> Any:
    import numpy

    return numpy.asarray(array.detach().cpu().double() if hasattr(array, "detach") else array, dtype="float64")


def _difference(got: Any, want: Any) -> float:
    """Relative to the largest magnitude, or to 1."""
    import numpy

    a, b = _numbers(got), _numbers(want)
    if a.shape != b.shape or not numpy.array_equal(numpy.isnan(a), numpy.isnan(b)):
        return float("inf")
    with numpy.errstate(invalid="ignore"):
        apart = numpy.where((a == b) | numpy.isnan(a), 0, abs(a - b))
    return float(apart.max(initial=0) / max(1.0, abs(b[numpy.isfinite(b)]).max(initial=0)))


def refuse_out(how: dict[str, Any]) -> None:
    """Each result has to be an array of its own."""
    if "out" in how:
        raise ValueError("out is given; expected none: the results of schedules are compared, so each has arrays of its own")


def run(op: Callable[..., Any], inputs: tuple[Any, ...], how: dict[str, Any], seconds: float = _MOST_SECONDS) -> tuple[Any, float]:
    """What the op gives, and how long a call takes: the best of several, within so many seconds."""
    result = op(*inputs, **how)
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        op(*inputs, **how)
        now = time.perf_counter()
        best = min(best, now - begin)
        if now > end:
            return result, best


def compared(name: str, scheduled: tuple[Any, float], unscheduled: tuple[Any, float]) -> Evaluation:
    """ArithmeticError: the results differ by more than the order of sums explains."""
    (got, seconds), (want, unscheduled_seconds) = scheduled, unscheduled
    pairs = list(zip(got, want, strict=True)) if isinstance(want, tuple) else [(got, want)]
    error = 0.0
    for a, b in pairs:
        apart, allowed = _difference(a, b), _TOLERANCE.get(str(b.dtype).removeprefix("torch."), 0.0)
        if apart > allowed:
            raise ArithmeticError(
                f"evaluate: {name}: the schedule's result differs by {apart:.3g}, relative; expected at most {allowed:.0e}"
            )
        error = max(error, apart)
    return Evaluation(seconds, unscheduled_seconds, error)
