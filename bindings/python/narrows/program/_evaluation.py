# SPDX-License-Identifier: Apache-2.0
"""What Schedule.evaluate finds: whether a schedule computes what its program does, and how long both take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import narrows
from narrows import _narrows
from narrows.program import _library

_MOST_SECONDS = 0.3  # of timing, for each of the two
# Sums are added up in another order: what that may change, relative to the largest magnitude of an output.
_TOLERANCE = {"float64": 1e-11, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}

_SERVED_BY = {3: (1, 0), 11: (1, 0), 13: (2, 0)}  # memory that a GPU's driver made on the host, or for both


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


def _device_of(inputs: tuple[Any, ...], how: dict[str, Any]) -> narrows.Device:
    """Where a call runs: where its device= says, else where its first array lies."""
    if how.get("device") is not None:
        return narrows.Device(how["device"])
    for array in inputs:
        if hasattr(array, "__dlpack_device__"):
            kind, number = map(int, array.__dlpack_device__())
            return narrows.Device(*_SERVED_BY.get(kind, (kind, number)))
        if hasattr(array, "__cuda_array_interface__"):
            return narrows.Device("cuda")
    return narrows.Device("cpu")


def _has_default(program: _library.Program, backend: str) -> bool:
    try:
        program.original().auto(backend)
    except NotImplementedError:
        return False
    return True


def backend_of(
    program: _library.Program, inputs: tuple[Any, ...], how: dict[str, Any], given: str | None
) -> tuple[str, dict[str, Any]]:
    """The backend that runs a call: the given one, else the first that has default schedules on the device of the call. And what
    the op is called with for it."""
    device, found = _device_of(inputs, how), _narrows.backends()
    usable = list(dict.fromkeys(b["name"] for b in found if b["status"] == "ok" and b["device_type"] == device.type))
    if given is not None:
        _library.c_string("backend", given)
        if given not in (b["name"] for b in found):
            names = ", ".join(dict.fromkeys(b["name"] for b in found))
            raise ValueError(f"backend = {given!r}; expected the name of a plugin that was found: {names}")
        if given not in usable:
            raise ValueError(
                f"backend = {given!r}, and the arrays are on {device}, or go there by device=; usable there: "
                f"{', '.join(usable) or 'none'}"
            )
    wanted = os.environ.get("NARROWS_BACKEND")
    own = next((name for name in ([wanted] if wanted in usable else usable) if name and _has_default(program, name)), None)
    if given is not None:
        return given, how if given == own else {**how, "backend": given}
    if own is None:
        raise RuntimeError(
            f"no backend runs tensor programs on {device}, where the call runs; usable there: {', '.join(usable) or 'none'}"
        )
    return own, how


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
