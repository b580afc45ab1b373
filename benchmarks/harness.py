# SPDX-License-Identifier: Apache-2.0
"""What every comparison of the benchmarks does alike: a case is two statements on the same tensors, ours and theirs. Both results are checked
first; then the statements are timed in turns, and judged by their goals.

A statement is compiled into the loop that times it, so neither side pays for a wrapper. Turns are blocks of samples: after a change of sides the
other library's threads may spin for some milliseconds (libgomp's do, for about ten), so that each block begins with a pause and a warm-up.
Nothing in here knows a device: `sync` is for those that work behind the caller's back."""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import time
import timeit


def last_level_cache():
    """Bytes of the largest cache that a core sees; at least 64 MiB, which also stands for what the system does not say."""
    sizes = pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max([64 << 20, *(int(s.read_text().strip().removesuffix("K")) << 10 for s in sizes)])


@dataclasses.dataclass(frozen=True)
class Goal:
    """measure: "ratio" (their time over ours), "copy" (our bytes per second over the copy's), "scaling" (our time on one thread over this one)."""

    measure: str
    least: float


@dataclasses.dataclass
class Problem:
    """What a case works on. results of a statement: one tensor, or a tuple; exact and bound: one tensor or number for each of them."""

    names: dict  # what the statements see
    exact: list  # in float64; of the first part alone where a result repeats itself
    bound: list  # how far each element may be off
    nbytes: float = 0  # read and written, each element once
    operations: float = 0


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    family: str
    ours: str
    theirs: str
    make: object  # () -> Problem
    goals: tuple = ()
    beyond_cache: bool = False  # then a copy is timed beside it
    gradients: bool = False  # torch's grad mode
    line: str = ""  # where a page shows several cases as one line, its name and the case's column
    column: str = ""


@dataclasses.dataclass
class Effort:
    """How long a row is measured. A round is a block of each side."""

    rounds: int = 5
    block: float = 0.06  # seconds of samples
    sample: float = 0.001  # seconds, at least
    pause: float = 0.02
    warm: float = 0.01
    tries: int = 3  # of a row that others disturb


DISTURBED = 0.1  # of a core that others kept busy
QUICK = Effort(rounds=3, block=0.02)


class WrongResult(Exception):
    pass


# ---- statistics ----


@dataclasses.dataclass
class Spread:
    """Seconds per call: the median of the samples and their quartiles."""

    median: float
    low: float
    high: float
    samples: int

    @classmethod
    def of(cls, samples):
        if len(samples) < 2:
            return cls(samples[0], samples[0], samples[0], 1)
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, low, high, len(samples))


def _calls_for(timer, seconds):
    """How many calls last as long; at least one."""
    calls = 1
    while (spent := timer.timeit(calls)) < seconds / 4 and calls < 1 << 24:
        calls *= 4
    return max(1, round(calls * seconds / spent)) if spent < seconds else calls if calls == 1 else calls // 2


class Neighbours:
    """How many cores other processes, and a hypervisor, keep busy while we measure."""

    def __init__(self):
        self.busy, self.wall = 0.0, 0.0

    @staticmethod
    def _now():
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
            int, pathlib.Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
        )
        everyone = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return everyone - time.process_time(), time.perf_counter()

    def __enter__(self):
        self.begin = self._now()

    def __exit__(self, *_):
        busy, wall = self._now()
        self.busy, self.wall = self.busy + busy - self.begin[0], self.wall + wall - self.begin[1]

    def cores(self):
        return max(0.0, self.busy / self.wall)


def _block(timer, calls, effort):
    """The samples of one turn. A call that lasts longer than the warm-up needs none."""
    begin = time.perf_counter()
    samples = [timer.timeit(calls) / calls]
    while time.perf_counter() < begin + effort.warm:
        samples = [timer.timeit(calls) / calls]
    end = time.perf_counter() + effort.block
    while time.perf_counter() < end:
        samples.append(timer.timeit(calls) / calls)
    return samples


def measure(statements, names, effort, sync=None, clock=time.perf_counter):
    """{side: statement} -> ({side: Spread}, cores that others kept busy), in turns; who begins changes with every round."""
    suffix = "\nsync()" if sync is not None else ""
    timers = {side: timeit.Timer(s + suffix, timer=clock, globals={**names, "sync": sync}) for side, s in statements.items()}
    calls = {side: _calls_for(timer, effort.sample) for side, timer in timers.items()}
    samples, neighbours = {side: [] for side in timers}, Neighbours()
    for i in range(effort.rounds):
        for side in list(timers) if i % 2 == 0 else reversed(list(timers)):
            time.sleep(effort.pause)
            with neighbours:
                samples[side] += _block(timers[side], calls[side], effort)
    return {side: Spread.of(s) for side, s in samples.items()}, neighbours.cores()


# ---- is it right? ----


def off(result, exact, bound):
    """The largest error of a tensor, in bounds; the bound is a number or a tensor like exact. NaN and infinity where none belongs count as
    infinite. A result longer than `exact` repeats it."""
    import torch

    worst = 0.0
    for part in result.detach().reshape(-1, exact.numel()):
        difference = (part.double() - exact.reshape(-1)).abs() / torch.as_tensor(bound, dtype=torch.float64).reshape(-1)
        worst = max(worst, float(torch.nan_to_num(difference, nan=torch.inf).max()))
    return worst


def check(statement, problem):
    """The largest error in bounds of all results of the statement, whose outputs hold nonsense before."""
    for tensor in problem.names.get("outputs", ()):
        tensor.fill_(77)
    results = eval(statement, problem.names)
    results = results if isinstance(results, (tuple, list)) else (results,)
    if len(results) != len(problem.exact):
        raise WrongResult(f"{len(results)} results of '{statement}'; expected {len(problem.exact)}")
    for result, exact in zip(results, problem.exact, strict=True):
        if result.numel() % exact.numel() or result.numel() == 0:
            raise WrongResult(f"a result of '{statement}' has shape {tuple(result.shape)}; expected {tuple(exact.shape)}")
    return max(off(*each) for each in zip(results, problem.exact, problem.bound, strict=True))


# ---- a row ----


def run_case(case, effort, copy=None, sync=None):
    """One row, as JSON keeps it. Raises WrongResult before anything is timed if ours is wrong; that theirs is off is only noted."""
    import torch

    with torch.set_grad_enabled(case.gradients):
        return _run_problem(case, case.make(), effort, copy, sync)


def _run_problem(case, problem, effort, copy, sync):
    errors = {"ours": check(case.ours, problem), "theirs": check(case.theirs, problem)}
    if not errors["ours"] <= 1:
        raise WrongResult(f"{case.name}: '{case.ours}' is off by {errors['ours']:.3g} times what is allowed")
    statements = {"ours": case.ours, "theirs": case.theirs}
    if case.beyond_cache and copy is not None:
        statements["copy"] = "copy()"
    for _ in range(effort.tries):
        times, others = measure(statements, {**problem.names, "copy": copy}, effort, sync)
        if others < DISTURBED:
            break
    row = {
        **{k: getattr(case, k) for k in ("name", "family", "line", "column")},
        "statements": [case.ours, case.theirs],
        "bytes": problem.nbytes,
        "operations": problem.operations,
        "goals": [[g.measure, g.least] for g in case.goals],
        "errors": errors,
        "others": others,
        **{side: dataclasses.asdict(t) for side, t in times.items()},
    }
    if "copy" in times:
        row["copy_rate"] = copy.nbytes / times["copy"].median
    return row


def reached(row, measure, alone=None):
    """What a row reaches of a measure, or None where it was not measured. alone: the same case on one thread."""
    ours = row["ours"]["median"]
    if measure == "ratio":
        return row["theirs"]["median"] / ours
    if measure == "copy":
        return row["bytes"] / ours / row["copy_rate"] if "copy_rate" in row else None
    if measure == "scaling":
        return alone["ours"]["median"] / ours if alone and alone is not row else None
    raise ValueError(f"unknown measure '{measure}'; expected ratio, copy or scaling")


def verdicts(row, alone=None):
    """[(measure, least, reached, met)] of the goals that were measured."""
    found = [(m, least, reached(row, m, alone)) for m, least in row["goals"]]
    return [(m, least, value, value >= least) for m, least, value in found if value is not None]


def slower_with_threads(row, alone):
    """Beyond the spread of both, three quarters of the samples on several threads being slower than three quarters of those on one; or by a tenth."""
    several, one = row["ours"], alone["ours"]
    return several["median"] > 1.1 * one["median"] or (several["low"] > one["high"] and several["median"] > 1.02 * one["median"])


# ---- the results of several runs, in one file ----


def commit():
    """What was measured, where git knows: a short hash, with -dirty if files differ from it."""
    folder = pathlib.Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "-C", folder, "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True
        )
    except OSError:  # there is no git
        return ""
    return described.stdout.strip()


def origin(of):
    """What python_calls.measured() says, as the last columns of a table in docs/internals."""
    versions = ", ".join(" ".join(pair) for pair in of["versions"].items())
    return {"machine": f"{of['machine']}, {of['date']}", "versions": versions, "commit": of["commit"]}


def key(row):
    return row["name"], row["threads"], row["isa"]


def load(path):
    path = pathlib.Path(path)
    return json.loads(path.read_text()) if path.exists() else {"machine": {}, "rows": []}


def merge(results, rows, machine, names=()):
    """The newer of each row, in the order of the names; others at the end. Rows of another processor are left out: one table is of one machine."""
    same = results["machine"].get("cpu") in (None, machine.get("cpu", results["machine"].get("cpu")))
    results = results if same else {"machine": {}, "rows": []}
    kept = {key(r): r for r in results["rows"]}
    kept.update({key(r): r for r in rows})
    place = {name: i for i, name in enumerate(names)}
    ordered = sorted(kept.values(), key=lambda r: place.get(r["name"], len(place)))
    return {"machine": {**results["machine"], **machine}, "rows": ordered}


def save(path, results):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + f".{os.getpid()}")
    temporary.write_text(json.dumps(results, indent=1) + "\n")
    temporary.replace(path)
