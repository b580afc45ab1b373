# SPDX-License-Identifier: Apache-2.0
"""What was checked and how it went: labels, failures, and the line that repeats one."""

import collections
import dataclasses
import os
import shlex
from collections.abc import Callable
from typing import Any

from narrows.testing._compare import Mismatch

REFUSALS = (ValueError, NotImplementedError)  # and TypeError, of dtypes
_MOST_FAILURES = 6


@dataclasses.dataclass
class Report:
    """What :func:`check_op` did: numbers of checks by kind, calls that the op declined, and what was left out and why."""

    op: str
    passed: collections.Counter[str]
    declined: collections.Counter[str]
    left_out: list[str]

    def __str__(self) -> str:
        lines = [f"{self.op}: {sum(self.passed.values())} checks passed"]
        lines += [f"  {kind}: {n}{self._declined(kind)}" for kind, n in self.passed.items()]
        lines += [f"  left out: {what}" for what in self.left_out]
        return "\n".join(lines)

    def _declined(self, kind: str) -> str:
        return f", of which the op declined {self.declined[kind]}" if self.declined[kind] else ""


class Declined(Exception):
    """The op refused a call that it may refuse: the check has passed."""


class Run:
    """Runs checks, keeps the first failure of each kind, and goes on."""

    def __init__(self, op: Any, only: str | None):
        self.op, self.only = op, only
        self.report = Report(op.op, collections.Counter(), collections.Counter(), [])
        self._failures: list[str] = []
        self._failed: set[str] = set()

    def wants(self, label: str) -> bool:
        """Whether it is asked for, and no other of its kind has failed."""
        kind = label.partition(":")[0]
        return kind not in self._failed and (self.only is None or label == self.only or kind == self.only)

    def check(self, label: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls the function with the arguments. Mismatch, and what the op raises, are failures of that label."""
        if not self.wants(label):
            return
        kind = label.partition(":")[0]
        try:
            function(*arguments)
        except Declined:
            self.report.declined[kind] += 1
        except Mismatch as error:
            return self.fail(label, str(error))
        except Exception as error:
            return self.fail(label, f"{type(error).__name__}: {error}")
        self.report.passed[kind] += 1

    def fail(self, label: str, how: str) -> None:
        self._failed.add(label.partition(":")[0])
        self._failures.append(f"{self.op.op}: {label}\n    {how}\n    again: {self._again(label)}")

    def leave_out(self, what: str) -> None:
        if what not in self.report.left_out and self.only is None:
            self.report.left_out.append(what)

    def raise_failures(self) -> None:
        if self._failures:
            more = len(self._failures) - _MOST_FAILURES
            text = "\n".join(self._failures[:_MOST_FAILURES]) + (f"\nand {more} more kinds of checks failed" if more > 0 else "")
            raise AssertionError(text)

    def end(self) -> Report:
        self.raise_failures()
        if not self.report.passed and self.only is not None:
            raise ValueError(f"check_op: only = {self.only!r}; expected a kind of check, or a check as a failure names it")
        return self.report

    def _again(self, label: str) -> str:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        if test:
            return f"NARROWS_TEST_ONLY={shlex.quote(label)} python -m pytest {shlex.quote(test)}"
        return f"narrows.testing.check_op(narrows.op({self.op.op!r}), …, only={label!r})"
