#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""judge.py -- whether the conformance suite sees the faults of faults.txt, and says what is wrong.

The verdict on a mutant is good when the suite's right test ran through its plugin and failed; that it hung or did not begin counts for
the faults of the process alone. Where the table says "passes", nothing may have failed and something must have been run.

  judge.py conv1d.flipped_taps --narrows .../narrows --plugins DIR                                      one fault, on the CPU
  judge.py --all --jobs 16 --narrows .../narrows --plugins DIR --real .../narrows_cuda.so       all of them, on a GPU
  judge.py suite.none --jobs 14 --narrows .../narrows --plugins DIR --real .../narrows_cuda.so  the correct one, in 14 parts

Exit codes: 0 judged well, 1 not caught, 3 no such plugin or device (as narrows conform says it), 77 the fault is not one of this
place: the CPU's alone, or of devices alone.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

TABLE = pathlib.Path(__file__).with_name("faults.txt")
PASSES = "passes: "
COMPLAINT = "complaint: "
WHOLE = "*"
# How a test fails that told nothing of the plugin's results, in narrows conform's words.
UNTOLD = re.compile(r"not run: |it was asked for, and did not report|the process gave no sign of life")
UNAVAILABLE = 3
NOT_HERE = 77


class Mutant(NamedTuple):
    name: str
    plugin: str
    fault: str
    right: str  # the test that must fail; or PASSES, or what begins with COMPLAINT
    tests: str  # what is run, in Catch2's words, or WHOLE
    alone: dict[str, str]  # "cpu", "device": why it can only be judged there


class Place(NamedTuple):
    """Where mutants are judged."""

    narrows: str
    plugins: str
    real: str  # the plugin of the device; "": the CPU

    def not_here(self, mutant: Mutant) -> str:
        """Why the mutant cannot be judged here; "": it can."""
        if self.real and "cpu" in mutant.alone:
            return f"a fault of the CPU alone: {mutant.alone['cpu']}"
        if not self.real and "device" in mutant.alone:
            return f"a fault of devices alone: {mutant.alone['device']}"
        return ""

    def plugin(self, name: str) -> pathlib.Path:
        return pathlib.Path(self.plugins, name, f"narrows_{name}.so")

    def environment(self, fault: str) -> dict[str, str]:
        real = {"NARROWS_TEST_REAL_PLUGIN": os.path.abspath(self.real)} if self.real else {}
        return os.environ | {"NARROWS_TEST_FAULT": fault} | real


class Report(NamedTuple):
    exit_code: int
    backend: str
    results: dict[str, str]  # test: "passed", "failed" or "skipped"
    reasons: dict[str, str]  # test: why it was skipped
    failures: dict[str, str]  # test: what was wrong
    complaints: list[str]
    text: str


def read_table() -> dict[str, Mutant]:
    mutants, alone = {}, {}
    for line in TABLE.read_text().splitlines():
        columns = [column.strip() for column in line.split("|", 2)]
        if match := re.fullmatch(r"(cpu|device) ([a-z0-9_.]+) *: *(.+)", line):
            alone[match[2]] = {match[1]: match[3]}
        elif len(columns) == 3 and not line.startswith("#"):
            plugin, name, right = columns
            tests = WHOLE if right.startswith(COMPLAINT) else escaped(right)
            if right.startswith(PASSES):
                right, tests = PASSES, right.removeprefix(PASSES)
            mutants[name] = Mutant(name, plugin, name.split(".")[1], right, tests, {})
        elif line and not line.startswith("#"):
            sys.exit(f"{TABLE.name}: cannot read '{line}'")
    if unknown := alone.keys() - mutants.keys():
        sys.exit(f"{TABLE.name}: no fault {', '.join(sorted(unknown))}, which is said to be of one place alone")
    return {name: mutant._replace(alone=alone.get(name, {})) for name, mutant in mutants.items()}


def escaped(test: str) -> str:
    """A test's name as a Catch2 test specification."""
    return re.sub(r"([,\[\]\\])", r"\\\1", test)


def conform(place: Place, mutant: Mutant) -> Report:
    """The verdict of `narrows conform` on the mutant."""
    tests = [] if mutant.tests == WHOLE else [mutant.tests]
    timeout = "600" if mutant.fault != "hangs" else "30" if place.real else "5"  # the first sign of life is after a driver's start
    done = subprocess.run(
        [place.narrows, "conform", "--plugin", place.plugin(mutant.plugin), "--json", "--timeout", timeout, *tests],
        env=place.environment(mutant.fault),
        capture_output=True,
        text=True,
        errors="replace",
    )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        text = f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}\nexit code {done.returncode}"
        return Report(done.returncode, "", {}, {}, {}, [], text)
    tests_run = [test for run in said["runs"] for test in run["tests"]]
    failures = {test["name"]: "\n".join(failure["text"] for failure in test.get("failures", [])) for test in tests_run}
    return Report(
        done.returncode,
        said["plugin"]["name"],
        {test["name"]: test["status"] for test in tests_run},
        {test["name"]: test.get("reason", "") for test in tests_run},
        failures,
        said["complaints"],
        "\n".join(f"{test}: {text}" for test, text in failures.items() if text),
    )


def verdict(mutant: Mutant, report: Report) -> str:
    """What is wrong with the suite; empty when it judged well."""
    failed = [test for test, status in report.results.items() if status == "failed"]
    complaints = "; ".join([*failed, *report.complaints]) or "nothing"
    passed = report.exit_code == 0
    if not report.backend:
        return f"no verdict: {' '.join(report.text.split())}"
    if report.backend != mutant.plugin:
        return f"the suite ran through backend '{report.backend}'; expected '{mutant.plugin}'"
    if mutant.right == PASSES:
        return "" if passed and "passed" in report.results.values() else f"the plugin is right, and failed: {complaints}"
    if passed:
        return "the verdict is that it passed"
    if mutant.right.startswith(COMPLAINT):
        wanted = mutant.right.removeprefix(COMPLAINT)
        return "" if fnmatch.filter(report.complaints, wanted) else f"the verdict complains of: {complaints}"
    status = report.results.get(mutant.right, "not run")
    if UNTOLD.match(report.failures.get(mutant.right, "")) and not mutant.name.startswith("process."):
        return f"'{mutant.right}' told nothing: {report.failures[mutant.right]}"
    reason = f" ({report.reasons[mutant.right]})" if report.reasons.get(mutant.right) else ""
    return "" if status == "failed" else f"'{mutant.right}': {status}{reason}; failed: {complaints}"


def judge_one(place: Place, mutant: Mutant) -> int:
    if reason := place.not_here(mutant):
        print(f"skipped: {mutant.name} is {reason}")
        return NOT_HERE
    report = conform(place, mutant)
    if report.exit_code == UNAVAILABLE:
        print(report.text)
        return UNAVAILABLE
    failed = sum(status == "failed" for status in report.results.values())
    wanted = "none may" if mutant.right == PASSES else f"right test: {mutant.right}"
    print(f"{mutant.plugin}, fault {mutant.fault}: {len(report.results)} tests, {failed} failed; {wanted}")
    if wrong := verdict(mutant, report):
        print(f"NOT CAUGHT: {wrong}\n{report.text}")
        return 1
    return 0


def in_parts(mutant: Mutant, tests: list[str], count: int) -> list[Mutant]:
    """The whole suite in so many parts, each of every count-th test: for a plugin that must pass, since its loops are slow."""
    if mutant.tests != WHOLE or mutant.right != PASSES:
        return [mutant]
    shares = [tests[i::count] for i in range(min(count, len(tests)))]
    return [
        mutant._replace(name=f"{mutant.name}, part {i + 1} of {len(shares)}", tests=",".join(map(escaped, share)))
        for i, share in enumerate(shares)
    ]


def judge_several(place: Place, mutants: list[Mutant], jobs: int) -> int:
    """A line for each mutant as its verdict is in, and one for all."""
    looked = [place.narrows, "conform", "--plugin", place.plugin("naive"), "--list"]
    found = subprocess.run(looked, env=place.environment("none"), capture_output=True, text=True, errors="replace")
    tests = [re.sub(r"( \[[^\]]+\])+$", "", line) for line in found.stdout.splitlines()]
    if found.returncode != 0 or not tests:
        print(found.stdout + found.stderr or "the suite lists no tests", end="")
        return found.returncode or 1
    alone = [mutant for mutant in mutants if place.not_here(mutant)]
    for mutant in alone:
        print(f"not judged: {mutant.name}: {place.not_here(mutant)}")
    judged = [mutant for mutant in mutants if mutant not in alone]
    judged.sort(key=lambda mutant: mutant.tests != WHOLE)  # the long ones begin first
    if place.real:  # on the CPU it is judged whole: then what no single test can tell is judged too
        judged = [part for mutant in judged for part in in_parts(mutant, tests, jobs)]
    os.environ.setdefault("NARROWS_NUM_THREADS", str(max(2, (os.cpu_count() or 2) // jobs)))
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        reports = {pool.submit(conform, place, mutant): mutant for mutant in judged}
        for done in concurrent.futures.as_completed(reports):
            if wrong := verdict(reports[done], done.result()):
                missed += 1
            name = reports[done].name
            print(f"NOT CAUGHT: {name}: {wrong}" if wrong else f"as it should be: {name}", flush=True)
    print(f"{len(judged)} judged, {len(judged) - missed} as they should be, {missed} not caught; {len(alone)} not judged")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mutants", nargs="*", metavar="mutant", help="<family>.<fault>, as in faults.txt")
    parser.add_argument("--all", action="store_true", help="every line of faults.txt")
    parser.add_argument("--jobs", type=int, default=1, help="of several: processes side by side")
    parser.add_argument("--narrows", required=True, help="the narrows command")
    parser.add_argument("--plugins", required=True, help="the folder that has a folder for each plugin")
    parser.add_argument("--real", default="", help="the plugin on whose device the mutants work; else it is the CPU")
    parser.add_argument("--tests", help="of a mutant that passes: what is run instead of what faults.txt says")
    arguments = parser.parse_args()
    mutants = read_table()
    if arguments.all == bool(arguments.mutants) or not mutants.keys() >= set(arguments.mutants):
        parser.error("expected --all, or faults of faults.txt")
    place = Place(arguments.narrows, arguments.plugins, arguments.real)
    chosen = [mutants[name] for name in arguments.mutants or mutants]
    if arguments.tests:
        if any(mutant.right != PASSES for mutant in chosen):
            parser.error("--tests is for mutants that pass; the others have their right test")
        chosen = [mutant._replace(tests=arguments.tests) for mutant in chosen]
    return judge_one(place, chosen[0]) if len(chosen) == arguments.jobs == 1 else judge_several(place, chosen, arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
