# SPDX-License-Identifier: Apache-2.0
"""Schedule.tune: measures schedules on real tensors, and keeps the fastest one for later builds of the program on this machine.

A candidate is the trace of the one before with a line changed: another tile, another order, another loop that is parallel or
unrolled. Every step is proven as always, so a candidate can be slow, and not wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import random
import re
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import narrows
from narrows import _narrows
from narrows.program import _library
from narrows.program._evaluation import backend_of, compared, refuse_out, run

_FORMAT = 1
_SECONDS = 0.02  # of timing a candidate; those that are close are timed again
_WORTH = 0.98  # a candidate is better that takes less than this part of the best one's time
_MOST_FACTOR = 1024
_MOST_ADJOINTS = 7


class Tuned:
    """``seconds`` and ``default_seconds`` are those of a call; ``tried`` counts the schedules that were measured, and ``failed``
    those that could not be compiled or run. ``path``: where the result is kept, if it is."""

    def __init__(self, seconds: float, default_seconds: float, tried: int, failed: int, path: pathlib.Path | None) -> None:
        self.seconds, self.default_seconds, self.tried, self.failed, self.path = seconds, default_seconds, tried, failed, path

    def __repr__(self) -> str:
        counts = f"{self.tried} schedules tried" + (f", {self.failed} failed" if self.failed else "")
        kept = f"; kept in {self.path}" if self.path is not None else ""
        return f"{self.seconds * 1e6:.1f} us, default {self.default_seconds * 1e6:.1f} us; {counts}{kept}"


# ---- what is kept ----


def _folder() -> pathlib.Path:
    """Beside the folder of compiled objects."""
    if base := os.environ.get("NARROWS_CACHE_DIR"):
        return pathlib.Path(base) / "tuned"
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "narrows" / "tuned"


def _machine(backend: str) -> dict[str, str]:
    """What results are for: the processor, its instruction set, the number of threads. Empty: the backend is not here."""
    for found in _narrows.backends():
        if found["name"] == backend and found["status"] == "ok" and found["device_count"]:
            device = narrows.Device(found["device_type"], 0).info
            return {"backend": backend, "name": device["name"], "arch": device["arch"]}
    return {}


def _place(digest: str, machine: dict[str, str]) -> pathlib.Path:
    key = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:16]
    return _folder() / f"{digest}_{key}.json"


def _keep(path: pathlib.Path, kept: dict[str, Any]) -> None:
    number, half = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with open(number, "w") as file:
            file.write(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        os.replace(half, path)
    except BaseException:
        os.unlink(half)
        raise


def _make_folder() -> None:
    """OSError, before anything is measured, if results cannot be kept."""
    folder = _folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise type(error)(
            error.errno, f"tune: results cannot be kept in {folder}: {error.strerror}; set NARROWS_CACHE_DIR, or keep=False"
        ) from None


def _read(path: pathlib.Path, digest: str, machine: dict[str, str]) -> list[str]:
    kept = json.loads(path.read_text())
    if not isinstance(kept, dict) or kept.get("format") != _FORMAT:
        raise ValueError(f"it is not of format {_FORMAT}")
    if kept.get("program") != digest or kept.get("machine") != machine:
        raise ValueError("it is of another program or machine")
    trace = kept.get("trace")
    if not isinstance(trace, list) or not all(isinstance(line, str) for line in trace):
        raise ValueError("its trace is no list of lines")
    return trace


def _is_anything_kept() -> bool:
    """False, too, where there is no home folder, or it is not to be looked into."""
    try:
        return _folder().is_dir()
    except (OSError, RuntimeError):
        return False


def _kept(program: _library.Program, backend: str, stacklevel: int) -> _library.Program | None:
    """The program with the steps that tune() kept for it and this machine. None: it kept none."""
    if not _is_anything_kept():
        return None
    digest, machine = program.digest(), _machine(backend)
    path = _place(digest, machine)
    if not machine or not os.path.exists(path):
        return None
    try:
        replayed = program.copy().taken(_read(path, digest, machine))
    except (OSError, ValueError, RuntimeError) as error:  # NotImplementedError is a RuntimeError
        warnings.warn(f"{path} is ignored: {error}; tune again, or remove it", RuntimeWarning, stacklevel=stacklevel)
        return None
    return replayed


def kept(program: _library.Program) -> Iterator[tuple[str, _library.Program]]:
    """The names of the backends for which tune() kept steps, and the program with these. It has none itself."""
    if not _is_anything_kept() or not any(_folder().glob(f"{program.digest()}_*.json")):
        return  # no plugin is opened for it
    for backend in dict.fromkeys(found["name"] for found in _narrows.backends()):
        tuned = _kept(program, backend, 5)
        if tuned is not None:
            yield backend, tuned


def schedule(program: _library.Program, backend: str) -> None:
    """Takes the steps that tune() kept, else those of the default schedule."""
    tuned = None if program.trace() else _kept(program, backend, 4)
    if tuned is None:
        program.auto(backend)
        return
    program.taken(tuned.trace())


def adjoints(program: _library.Program, count: int, backend: str) -> list[_library.Program]:
    """Of the program, of its adjoint, and so on, each scheduled as a build of it is. An exported plugin has 8 programs at most."""
    if not 0 <= count <= _MOST_ADJOINTS:
        raise ValueError(f"gradient = {count}; expected False, True, or a number from 0 to {_MOST_ADJOINTS}")
    made = [program]
    for _ in range(count):
        made.append(made[-1].vjp())
        schedule(made[-1], backend)
    return made[1:]


# ---- candidates ----


def _changed_numbers(line: str) -> Iterator[str]:
    for number in re.finditer(r"(?<=[\[ ])\d+(?=[,\]])", line):
        for other in {int(number[0]) * 2, int(number[0]) // 2, int(number[0]) * 4} - {0, 1}:
            if other <= _MOST_FACTOR:
                yield line[: number.start()] + str(other) + line[number.end() :]


def _changed_order(line: str) -> Iterator[str]:
    loops = json.loads(line[line.index("[") : line.rindex("]") + 1])
    for i in range(len(loops) - 1):
        swapped = [*loops[:i], loops[i + 1], loops[i], *loops[i + 2 :]]
        yield f"reorder(loops={json.dumps(swapped)})"


def _neighbours(program: _library.Program) -> Iterator[list[str]]:
    """Traces that differ from the program's in one line."""
    trace = program.trace()
    loops = list(dict.fromkeys(loop for block in program.blocks() for loop in program.loops(block)))
    for i, line in enumerate(trace):
        step, others = line.partition("(")[0], []
        if step == "split":
            others = list(_changed_numbers(line))
        elif step == "reorder":
            others = list(_changed_order(line))
        elif step == "parallel":
            others = [f'parallel(loop="{loop}")' for loop in loops]
        for other in others:
            yield [*trace[:i], other, *trace[i + 1 :]]
        if step in ("parallel", "unroll", "vectorize"):
            yield trace[:i] + trace[i + 1 :]
    for loop in loops:
        if any(line.startswith(("parallel(", "unroll(", "vectorize(", "bind(")) and f'(loop="{loop}"' in line for line in trace):
            continue  # these steps would take the loop's kind
        yield [*trace, f'unroll(loop="{loop}")']
        yield [*trace, f'split(loop="{loop}", factors=[None, 8])']


def _taken(original: _library.Program, trace: list[str]) -> _library.Program:
    """The program with these steps; one that is refused is left out."""
    program = original.copy()
    for line in trace:
        try:
            program.step(line)
        except _library.ScheduleError:
            continue
    return program


# ---- the search ----


class _Search:
    """Measures schedules of a program on the same arrays, and has the fastest so far in ``best``."""

    def __init__(
        self, begin: _library.Program, default: _library.Program, inputs: tuple[Any, ...], backend: str, how: dict[str, Any]
    ) -> None:
        self.best, self.tried, self.failed = begin, 0, 0
        self._default, self._inputs, self._backend, self._how = default, inputs, backend, how
        self._seen: set[str] = set()

    def _measured(self, program: _library.Program, seconds: float) -> tuple[Any, float]:
        with program.lent(self._backend) as name:
            return run(narrows.Op(name), self._inputs, self._how, seconds)

    def _seconds(self, program: _library.Program) -> float:
        return self._measured(program, 5 * _SECONDS)[1]

    def begin(self) -> None:
        """What cannot be measured at all is raised here."""
        self._want = self._measured(self._default, _SECONDS)
        result = self._measured(self.best, 5 * _SECONDS)
        compared(self.best.name(), result, self._want)
        self._fastest = result[1]
        self._seen = {self._default.text(), self.best.text()}
        self.tried = len(self._seen)

    def take_if_faster(self, candidate: _library.Program) -> bool:
        """A candidate that cannot be compiled or run is not."""
        if candidate.text() in self._seen:
            return False
        self._seen.add(candidate.text())
        try:
            result = self._measured(candidate, _SECONDS)
            self.tried += 1
            compared(candidate.name(), result, self._want)
            if result[1] >= _WORTH * self._fastest or self._seconds(candidate) >= _WORTH * self._seconds(self.best):
                return False
        except (RuntimeError, MemoryError):  # NotImplementedError is a RuntimeError
            self.failed += 1
            return False
        self.best, self._fastest = candidate, result[1]
        return True

    def improve(self, queue: list[list[str]], original: _library.Program, budget: float) -> None:
        """The candidates at the end of the queue come first; the first of all is measured whatever the budget is."""
        choices, end, tried = random.Random(0), time.perf_counter() + budget, self.tried + self.failed
        queue = [*self._next(choices), *queue]
        while queue and (self.tried + self.failed == tried or time.perf_counter() < end):
            if self.take_if_faster(_taken(original, queue.pop())):
                queue = self._next(choices)

    def _next(self, choices: random.Random) -> list[list[str]]:
        queue = list(_neighbours(self.best))
        choices.shuffle(queue)
        return queue

    def result(self) -> tuple[float, float]:
        """The seconds of the best and of the default one, which is the best unless another is faster."""
        default_seconds = self._seconds(self._default)
        if self.best.text() != self._default.text():
            seconds = self._seconds(self.best)
            if seconds < default_seconds:
                return seconds, default_seconds
        self.best = self._default
        return default_seconds, default_seconds


def _kept_trace(path: pathlib.Path, digest: str, machine: dict[str, str]) -> list[list[str]]:
    try:
        return [_read(path, digest, machine)]
    except (OSError, ValueError, RuntimeError):  # none, or one that is written anew
        return []


def tune(
    begin: _library.Program,
    inputs: tuple[Any, ...],
    budget: float,
    backend: str | None,
    keep: bool,
    how: dict[str, Any],
) -> tuple[_library.Program, Tuned]:
    """The fastest program that was found in `budget` seconds, from the steps of `begin` or from the default ones on. What was kept
    before is a candidate, too. Where the default schedule is the fastest, nothing is kept."""
    if not budget > 0:
        raise ValueError(f"budget = {budget!r}; expected seconds, more than 0")
    refuse_out(how)
    backend, how = backend_of(begin, inputs, how, backend)
    if keep:
        _make_folder()
    original, default = begin.original(), begin.original()
    default.auto(backend)
    digest, machine = original.digest(), _machine(backend)
    search = _Search(begin if begin.trace() else default, default, inputs, backend, how)
    search.begin()
    try:
        search.improve(_kept_trace(_place(digest, machine), digest, machine) if keep else [], original, budget)
        seconds, default_seconds = search.result()
    finally:
        search.best.load(backend)  # the ops that there are run it
    path = _place(digest, machine) if keep else None
    if path is not None and search.best is default:
        path.unlink(missing_ok=True)
        path = None
    elif path is not None:
        shapes = [list(map(int, x.shape)) for x in inputs if hasattr(x, "shape")]
        kept = {"format": _FORMAT, "program": digest, "name": original.name(), "machine": machine, "shapes": shapes}
        _keep(path, {**kept, "seconds": seconds, "default_seconds": default_seconds, "trace": search.best.trace()})
    return search.best, Tuned(seconds, default_seconds, search.tried, search.failed, path)
