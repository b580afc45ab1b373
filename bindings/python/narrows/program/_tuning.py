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
import time
import warnings
from collections.abc import Iterator
from typing import Any

import narrows
from narrows import _narrows
from narrows.program import _library
from narrows.program._evaluation import compared, run

_FORMAT = 1
_SECONDS = 0.02  # of timing a candidate; those that are close are timed again
_WORTH = 0.98  # a candidate is better that takes less than this part of the best one's time
_MOST_FACTOR = 1024
_MOST_ADJOINTS = 7


class Tuned:
    """``seconds`` and ``default_seconds`` are those of a call; ``tried`` counts the schedules that were measured."""

    def __init__(self, seconds: float, default_seconds: float, tried: int, path: pathlib.Path | None) -> None:
        self.seconds, self.default_seconds, self.tried, self.path = seconds, default_seconds, tried, path

    def __repr__(self) -> str:
        kept = f"; kept in {self.path}" if self.path is not None else ""
        return f"{self.seconds * 1e6:.1f} us, default {self.default_seconds * 1e6:.1f} us; {self.tried} schedules tried{kept}"


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
    half = path.with_name(f"{path.name}.{os.getpid()}")
    half.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    half.replace(path)


def _make_folder() -> None:
    """OSError, before anything is measured, if results cannot be kept."""
    folder = _folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}"
        probe.touch()
        probe.unlink()
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


def schedule(program: _library.Program, backend: str) -> bool:
    """Takes the steps that tune() kept for the program and this machine, else those of the default schedule: True."""
    if program.trace() or not _is_anything_kept():
        return _default(program, backend)
    digest, machine = program.digest(), _machine(backend)
    path = _place(digest, machine)
    if not machine or not os.path.exists(path):
        return _default(program, backend)
    try:
        replayed = program.copy()
        for line in _read(path, digest, machine):
            replayed.step(line)
    except (OSError, ValueError, RuntimeError) as error:  # NotImplementedError is a RuntimeError
        warnings.warn(f"{path} is ignored: {error}; tune again, or remove it", RuntimeWarning, stacklevel=4)
        return _default(program, backend)
    for line in replayed.trace():
        program.step(line)
    return False


def _default(program: _library.Program, backend: str) -> bool:
    program.auto(backend)
    return True


def adjoints(program: _library.Program, count: int, backend: str) -> list[_library.Program]:
    """Of the program, of its adjoint, and so on, each scheduled as a build of it is. An exported plugin has 8 programs at most."""
    if not 0 <= count <= _MOST_ADJOINTS:
        raise ValueError(f"gradient is {count}; expected False, True, or a number from 0 to {_MOST_ADJOINTS}")
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


def tune(
    begin: _library.Program,
    inputs: tuple[Any, ...],
    budget: float,
    backend: str,
    keep: bool,
    how: dict[str, Any],
) -> tuple[_library.Program, Tuned]:
    """The fastest program that was found in `budget` seconds, from the steps of `begin` or from the default ones on."""
    if not budget > 0:
        raise ValueError(f"budget = {budget!r}; expected seconds, more than 0")
    if keep:
        _make_folder()
    original = begin.original()
    if not begin.trace():
        begin.auto(backend)

    def measured(program: _library.Program, seconds: float = _SECONDS) -> tuple[Any, float]:
        return run(narrows.Op(program.load(backend)), inputs, how, seconds)

    first = measured(begin, 5 * _SECONDS)
    best, fastest, tried, seen = begin, first[1], 1, {begin.text()}
    choices = random.Random(0)
    queue = list(_neighbours(best))
    choices.shuffle(queue)
    end = time.perf_counter() + budget
    while queue and (tried == 1 or time.perf_counter() < end):
        candidate = _taken(original, queue.pop())
        if candidate.text() in seen:
            continue
        seen.add(candidate.text())
        tried += 1
        result = measured(candidate)
        compared(candidate.name(), result, first)
        if result[1] < _WORTH * fastest and measured(candidate, 5 * _SECONDS)[1] < _WORTH * measured(best, 5 * _SECONDS)[1]:
            best, fastest = candidate, result[1]
            queue = list(_neighbours(best))
            choices.shuffle(queue)
    best.load(backend)  # the ops that there are run it
    path = None
    if keep:
        digest, machine = original.digest(), _machine(backend)
        path = _place(digest, machine)
        shapes = [list(map(int, x.shape)) for x in inputs if hasattr(x, "shape")]
        kept = {"format": _FORMAT, "program": digest, "name": original.name(), "machine": machine, "shapes": shapes}
        _keep(path, {**kept, "seconds": fastest, "default_seconds": first[1], "trace": best.trace()})
    return best, Tuned(fastest, first[1], tried, path)
