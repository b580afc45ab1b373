#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TVM's own tests of schedules as a list from outside: does each step that they take or that they expect to be refused end here alike?

    tvm_tests.py CHECKOUT/tests/python/s_tir/schedule --csv tests/program/tvm_tests.csv

Not a part of the test suite: it needs apache-tvm and pytest beside narrows, and TVM's sources. TVM's tests run as they are. Before each
step the program of TVM's schedule is taken over by from_tvm, and the step is asked of it too. The file has a line for each step: what TVM
and what Narrows said, and where they differ why, in the words of the one that refuses. What Narrows takes is run before and after the
step, and both results are compared."""

from __future__ import annotations

import argparse
import collections
import csv
import functools
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from narrows.program import Schedule, ScheduleError, from_tvm

# Of each step that there is here: which arguments are loops, and which are blocks.
STEPS = {
    "split": "loop",
    "fuse": "*loops",
    "reorder": "*loops",
    "parallel": "loop",
    "vectorize": "loop",
    "unroll": "loop",
    "bind": "loop",
    "compute_at": "block loop",
    "reverse_compute_at": "block loop",
    "compute_inline": "block",
    "reverse_compute_inline": "block",
    "decompose_reduction": "block loop",
    "rfactor": "loop",
    "cache_read": "block",
    "cache_write": "block",
    "set_scope": "block",
    "transform_layout": "block",
}


class NotHere(Exception):
    """The step has no counterpart: why."""


def blocks_below(node: Any) -> Iterator[str]:
    """The names of the blocks in a statement of TVM."""
    kind = type(node).__name__
    if kind in ("SBlock", "Block"):
        yield node.name_hint
    for part in ("body", "block", "then_case"):
        if hasattr(node, part):
            yield from blocks_below(getattr(node, part))
    for statement in node.seq if kind == "SeqStmt" else ():
        yield from blocks_below(statement)


def block_name(theirs: Any, block: Any) -> str:
    return block if isinstance(block, str) else theirs.get(block).name_hint


def place_of(theirs: Any, loop: Any) -> tuple[str, int]:
    """A block below the loop, and which of its loops it is."""
    wanted = theirs.get_sref(loop)
    for name in blocks_below(theirs.get(loop)):
        around = theirs.get_loops(name)
        for index, other in enumerate(around):
            if theirs.get_sref(other).same_as(wanted):
                return name, index
    raise NotHere("a loop without a block of its own name")


def number(value: Any) -> Any:
    if value is None or isinstance(value, (int, str, bool)):
        return value
    try:
        return int(value)
    except TypeError:
        raise NotHere("a factor that is not a number") from None


class Step:
    """One call: asked of TVM's schedule, and of ours of the same program."""

    def __init__(self, theirs: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.name = name
        self.ours, self.call = self._translated(theirs.copy(), arguments, named)  # what is asked of a schedule is in its trace

    def _translated(self, theirs: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        try:
            ours = Schedule(from_tvm(theirs))
        except Exception as error:  # what a program has no word for
            raise NotHere(f"the program: {rule(str(error))}") from error
        kinds = STEPS[self.name].split()
        if kinds == ["*loops"]:
            kinds = ["loop"] * len(arguments)
        given = list(arguments)
        for kind, key in zip(kinds[len(given) :], kinds[len(given) :], strict=True):
            given.append(named.pop(key)) if kind in named else None
        words = []
        for at, value in enumerate(given):
            kind = kinds[at] if at < len(kinds) else ""
            if kind == "loop":
                words.append(self._loop(theirs, ours, value))
            elif kind == "block":
                words.append(block_name(theirs, value))
            else:
                words.append([number(v) for v in value] if isinstance(value, (list, tuple)) else self._other(value))
        rest = {
            key: [number(v) for v in value] if isinstance(value, (list, tuple)) else self._other(value)
            for key, value in named.items()
        }
        return ours, functools.partial(getattr(ours, self.name), *words, **rest)

    @staticmethod
    def _other(value: Any) -> Any:
        return value if callable(value) or isinstance(value, dict) else number(value)

    @staticmethod
    def _loop(theirs: Any, ours: Any, value: Any) -> Any:
        block, index = place_of(theirs, value)
        here = ours.get_loops(block)
        if len(here) != len(theirs.get_loops(block)):
            raise NotHere("a block with other loops here")
        return here[index]

    def ask(self) -> tuple[str, str]:
        """What Narrows says: taken or refused, and why."""
        try:
            self.call()
        except TypeError as error:
            raise NotHere(f"an argument: {rule(str(error))}") from error
        except (ScheduleError, ValueError, IndexError, NotImplementedError, AttributeError) as error:
            return "refused", rule(str(error))
        return "taken", ""

    def has_its_values(self) -> bool:
        """Whether the step keeps what the program computes, of random inputs."""
        text = self.ours.mod.only().text
        try:
            self.ours.evaluate(*inputs_of(text.partition("\n")[0]))
        except ArithmeticError:
            return False
        return True


NUMPY = {"i": "int", "u": "uint", "f": "float", "b": "bool"}


def inputs_of(header: str) -> list[np.ndarray]:
    """Arrays for the inputs in the first line of a program's text; every size is 8."""
    random, out = np.random.default_rng(0), []
    for role, kind, bits, shape in re.findall(r"\w+\??: (out |inout |)(bf|[a-z])[a-z]*(\d*)\[(.*?)\](?=[,)])", header):
        if role == "out ":
            continue
        sizes = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", shape), 8)
        extents = eval(f"({shape},)" if shape else "()", {"__builtins__": {}}, sizes)
        out.append(random.integers(-3, 4, extents).astype(NUMPY[kind] + bits))
    return out


def rule(message: str) -> str:
    """A refusal without the names and numbers in it."""
    return re.sub(
        r"'[^']*'|\b\w+\[[^]]*\]|\b[a-z_0-9]+=-?\d+|\d+", "_", message.split("): ", 1)[-1].removeprefix("from_tvm: ")
    ).split("\n")[0][:100]


def their_rule(error: BaseException) -> str:
    """The same of TVM's first sentence about what it refuses."""
    words = str(error).rpartition("Error message: ")[2]
    return rule(re.sub(r"\b(s_)?tirx?\.\w+#\d+", "_", words)).partition(". ")[0]


class Recorder:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self.test, self.inside = "", False
        self.rows: dict[tuple[Any, ...], None] = {}  # in their order, each once: tests take the steps of a trace again

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Any:
        self.test = f"{item.path.stem.removeprefix('test_tir_schedule_')}::{item.name.replace('block_obj', 'block_name')}"
        return (yield)

    def pytest_configure(self, config: Any) -> None:
        import tvm

        schedule = (tvm.s_tir if hasattr(tvm, "s_tir") else tvm.tir).Schedule
        for name in STEPS:
            setattr(schedule, name, self._watched(name, getattr(schedule, name)))

    def _watched(self, name: str, theirs: Any) -> Any:
        @functools.wraps(theirs)
        def step(schedule: Any, *arguments: Any, **named: Any) -> Any:
            if self.inside:
                return theirs(schedule, *arguments, **named)
            self.inside = True
            try:
                there, here, why = "taken", "", ""
                try:
                    asked = Step(schedule, name, arguments, dict(named))
                except NotHere as error:
                    asked, here, why = None, "not asked", str(error)
                except Exception as error:  # TVM has no such block or loop
                    asked, here, why = None, "not asked", f"{type(error).__name__}: {rule(str(error))}"
                asks = ""
                try:
                    return theirs(schedule, *arguments, **named)
                except BaseException as error:
                    there, asks = "refused", f"TVM: {their_rule(error)}"
                    raise
                finally:
                    if asked is not None:
                        try:
                            here, why = asked.ask()
                            if here == "taken":
                                why = asks if asked.has_its_values() else "WRONG VALUES"
                        except NotHere as error:
                            here, why = "not asked", str(error)
                    self.rows[self.test, name, there, here, why if here != there or here == "taken" else ""] = None
            finally:
                self.inside = False

        return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="+", help="TVM's tests: files or folders")
    parser.add_argument("--csv", help="a file for a line of each step")
    arguments = parser.parse_args()
    recorder = Recorder()
    pytest.main(["-q", "-p", "no:cacheprovider", "--tb=no", *arguments.tests], plugins=[recorder])
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["test", "step", "TVM", "Narrows", "why"])
            writer.writerows(recorder.rows)
    totals = collections.Counter((there, here) for *_, there, here, _ in recorder.rows)
    for (there, here), count in sorted(totals.items()):
        print(f"{count:6d}  {there} by TVM, {here} here")
    reasons = collections.Counter((here, why) for *_, there, here, why in recorder.rows if here != there and why)
    for (here, why), count in reasons.most_common(60):
        print(f"{count:6d}  {here}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
