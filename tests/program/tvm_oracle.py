#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random steps through TVM and through Narrows: how often is refused here what TVM takes and gets right?

    tvm_oracle.py --sequences 200 --seed 1 --json out.json

Not a part of the test suite: it needs apache-tvm beside narrows. Both schedules take the same steps on the same program. TVM is asked
first. What it takes and Narrows refuses is built by TVM and run: if its result is NumPy's, that is a refusal of what is right, and is
counted by step and rule; if not, TVM computed wrong numbers. What both take is run by both at the end.

What was seen at 48099853, 2026-11-29 (TVM 0.27, seeds 1 and 2, 200 sequences, 1,200 results): 0 wrong here, 9 wrong in TVM; 8 of 2,002 steps that TVM gets
right are refused, 0.4 %:

- reverse_compute_at of a reduction into the loop that writes what it adds up (5): TVM reads elements that are not written yet, and
  the last iteration mends the sums
- fuse and reorder of a nest that rfactor leaves with a second block (2)
- split of a part of a split by more than its extent (1): the init would run where no update does
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import pathlib
import random
import re
import subprocess
import sys
from typing import Any

import numpy as np

from narrows.program import Schedule, ScheduleError, from_tvm

MOST_STEPS = 6


def programs() -> dict[str, tuple[Any, list[np.ndarray], Any]]:
    """By name: TVM's function, its inputs, and what NumPy gives."""
    from tvm import te

    numbers = np.random.default_rng(0).standard_normal
    found = {}

    a, b = te.placeholder((12, 20), name="A"), te.placeholder((20, 16), name="B")
    k = te.reduce_axis((0, 20), "k")
    y = te.compute((12, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="Y")
    c = te.compute((12, 16), lambda i, j: te.if_then_else(y[i, j] > 0, y[i, j], 0.0), name="C")
    x, w = numbers((12, 20)).astype("float32"), numbers((20, 16)).astype("float32")
    found["mm_relu"] = te.create_prim_func([a, b, c]), [x, w], np.maximum(x.astype("float64") @ w, 0)

    a = te.placeholder((24, 10), name="A")
    y = te.compute((24, 10), lambda i, j: a[i, j] * 2.0, name="Y")
    c = te.compute((24, 10), lambda i, j: y[i, j] + 1.0, name="C")
    x = numbers((24, 10)).astype("float32")
    found["chain"] = te.create_prim_func([a, c]), [x], x.astype("float64") * 2 + 1

    a = te.placeholder((9, 14), name="A")
    k = te.reduce_axis((0, 14), "k")
    q = te.compute((9, 14), lambda i, j: a[i, j] * a[i, j], name="Y")
    s = te.compute((9,), lambda i: te.sum(q[i, k], axis=k), name="S")
    c = te.compute((9, 14), lambda i, j: q[i, j] / (s[i] + 1.0), name="C")
    x = numbers((9, 14)).astype("float32")
    squares = x.astype("float64") ** 2
    found["rows"] = te.create_prim_func([a, c]), [x], squares / (squares.sum(1, keepdims=True) + 1)
    return found


class Both:
    """One program with the steps that both took."""

    def __init__(self, function: Any) -> None:
        import tvm

        self._space = tvm.s_tir if hasattr(tvm, "s_tir") else tvm.tir
        self.theirs, self.ours = self._space.Schedule(function), Schedule(from_tvm(function))

    def block(self, name: str) -> Any:
        return self.theirs.get_sblock(name) if hasattr(self.theirs, "get_sblock") else self.theirs.get_block(name)

    def names(self, choices: random.Random, blocks: list[str]) -> list[Any]:
        """A step: its name and a function for each schedule."""
        name = choices.choice(blocks)
        loops = len(self.theirs.get_loops(self.block(name)))
        if loops != len(self.ours.get_loops(name)):
            raise RuntimeError(f"block {name} has {loops} loops in TVM and {len(self.ours.get_loops(name))} here")
        at = choices.randrange(loops) if loops else 0
        step = choices.choice(
            "split reorder fuse parallel vectorize unroll compute_at reverse_compute_at compute_inline "
            "reverse_compute_inline decompose_reduction rfactor".split()
        )
        return [step, name, at, choices.randrange(max(loops, 1)), choices.choice([2, 3, 4, 8]), choices.choice(blocks)]

    def take(self, sch: Any, drawn: list[Any], block: Any) -> None:
        step, name, at, other, factor, target = drawn
        loops = sch.get_loops(block(name))
        if step == "split":
            sch.split(loops[at], [None, factor])
        elif step == "reorder":
            sch.reorder(loops[max(at, other)], loops[min(at, other)])
        elif step == "fuse":
            sch.fuse(loops[at], loops[at + 1])
        elif step in ("parallel", "vectorize", "unroll"):
            getattr(sch, step)(loops[at])
        elif step in ("compute_at", "reverse_compute_at"):
            getattr(sch, step)(block(name), sch.get_loops(block(target))[at])
        elif step in ("compute_inline", "reverse_compute_inline"):
            getattr(sch, step)(block(name))
        elif step == "decompose_reduction":
            sch.decompose_reduction(block(name), loops[at])
        else:
            sch.rfactor(loops[at], 0)


def run_theirs(sch: Any, inputs: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    import tvm

    built = tvm.compile(sch.mod, target="llvm")
    tensor = tvm.runtime.tensor if hasattr(tvm.runtime, "tensor") else tvm.nd.array
    given = [tensor(x) for x in inputs] + [tensor(np.full(shape, np.nan, "float32"))]
    built["main"](*given)
    return given[-1].numpy()


def is_right(got: np.ndarray, want: np.ndarray) -> bool:
    return bool(np.allclose(got, want, rtol=1e-4, atol=1e-4))


def rule(message: str) -> str:
    """A refusal without the names and numbers in it."""
    return re.sub(r"'[^']*'|\b\w+\[[^]]*\]|\b[a-z_0-9]+=-?\d+|\d+", "_", message.split("): ", 1)[-1])[:90]


def sequence(name: str, data: tuple[Any, list[np.ndarray], Any], choices: random.Random, totals: collections.Counter) -> None:
    function, inputs, want = data
    both, blocks = Both(function), ["Y", "C"] + (["S"] if name == "rows" else [])
    for _ in range(choices.randrange(1, MOST_STEPS + 1)):
        before = both.theirs.copy()
        try:
            drawn = both.names(choices, blocks)
            both.take(both.theirs, drawn, both.block)
        except Exception:  # TVM refuses by several kinds of error, and by get_block of what was inlined
            both.theirs = before
            totals["refused by TVM"] += 1
            continue
        try:
            both.take(both.ours, drawn, lambda block: block)
            totals["taken by both"] += 1
        except (ScheduleError, IndexError) as error:
            right = is_right(run_theirs(both.theirs, inputs, want.shape), want)
            totals["refused here, right in TVM" if right else "refused here, wrong in TVM"] += 1
            if right:
                totals[f"  {drawn[0]}: {rule(str(error))}"] += 1
            both.theirs = before
    totals["results"] += 1
    if not is_right(both.ours.build()(*inputs), want):
        totals["WRONG HERE"] += 1
        print(f"{name}: {both.ours.trace}", file=sys.stderr)
    if not is_right(run_theirs(both.theirs, inputs, want.shape), want):
        totals["taken by both, wrong in TVM"] += 1


def seen_by() -> dict[str, str]:
    """Which code gave the totals, and when."""
    import tvm

    describe = ["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty"]
    code = subprocess.run(describe, capture_output=True, text=True).stdout.strip() or "unknown"
    return {"code": code, "date": datetime.date.today().isoformat(), "tvm": tvm.__version__}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="a file for the totals")
    arguments = parser.parse_args()
    totals: collections.Counter = collections.Counter()
    for number in range(arguments.sequences):
        for name, data in programs().items():
            try:
                sequence(name, data, random.Random(f"{arguments.seed} {number} {name}"), totals)
            except RuntimeError as error:
                totals[f"given up: {str(error)[:60]}"] += 1
    right = totals["refused here, right in TVM"]
    share = right / max(1, right + totals["taken by both"])
    for key, count in totals.items():
        print(f"{count:7d}  {key}")
    print(f"refused here of what TVM gets right: {share:.1%}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            seen = {"seed": arguments.seed, "sequences": arguments.sequences, "share": share, "totals": totals}
            json.dump(seen_by() | seen, file, indent=1)
    return 1 if totals["WRONG HERE"] else 0


if __name__ == "__main__":
    sys.exit(main())
