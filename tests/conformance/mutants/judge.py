#!/usr/bin/env python3
"""judge.py -- whether the conformance suite sees one fault of faults.txt, and says what is wrong.

The verdict on a mutant is good when the suite ran through its plugin, failed, and the right test is among those that failed. Where
the table says "passes", nothing may have failed and something must have been run.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

TABLE = pathlib.Path(__file__).with_name("faults.txt")
PASSES = "passes"
COMPLAINT = "complaint: "
WHOLE = "*"


class Mutant(NamedTuple):
    plugin: str
    fault: str
    tests: str
    right: str


class Report(NamedTuple):
    backend: str
    passed: bool
    results: dict[str, str]  # test: "passed", "failed" or "skipped"
    complaints: list[str]
    text: str


def read_table() -> dict[str, Mutant]:
    families, mutants = {}, {}
    for line in TABLE.read_text().splitlines():
        columns = [column.strip() for column in line.split("|")]
        if match := re.fullmatch(r"tests ([a-z0-9_]+) *: *(.+)", line):
            families[match[1]] = match[2]
        elif len(columns) == 4 and not line.startswith("#"):
            plugin, name, tests, right = columns
            family, fault = name.split(".")
            mutants[name] = Mutant(plugin, fault, tests or families.get(family, ""), right)
        elif line and not line.startswith("#"):
            sys.exit(f"{TABLE.name}: cannot read '{line}'")
    return mutants


def escaped(test: str) -> str:
    """A test's name as a Catch2 test specification."""
    return re.sub(r"([,\[\]\\])", r"\\\1", test)


def conform(narrows: str, plugins: str, mutant: Mutant) -> Report:
    """The verdict of `narrows conform` on the mutant."""
    plugin = pathlib.Path(plugins, mutant.plugin, f"narrows_{mutant.plugin}.so")
    right = [] if mutant.right == PASSES or mutant.right.startswith(COMPLAINT) else [escaped(mutant.right)]
    tests = [] if mutant.tests == WHOLE else [*filter(None, [mutant.tests]), *right]
    done = subprocess.run(
        [narrows, "conform", "--plugin", plugin, "--json", "--timeout", "5" if mutant.fault == "hangs" else "600", *tests],
        env=os.environ | {"NARROWS_TEST_FAULT": mutant.fault},
        capture_output=True,
        text=True,
        errors="replace",
    )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return Report("", False, {}, [], f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}\nexit code {done.returncode}")
    tests_run = [test for run in said["runs"] for test in run["tests"]]
    text = "\n".join(f"{test['name']}: {failure['text']}" for test in tests_run for failure in test.get("failures", []))
    return Report(
        said["plugin"]["name"], done.returncode == 0, {test["name"]: test["status"] for test in tests_run}, said["complaints"], text
    )


def verdict(mutant: Mutant, report: Report) -> str:
    """What is wrong with the suite; empty when it judged well."""
    failed = [test for test, status in report.results.items() if status == "failed"]
    complaints = "; ".join([*failed, *report.complaints]) or "nothing"
    if report.backend != mutant.plugin:
        return f"the suite ran through backend '{report.backend}'; expected '{mutant.plugin}'"
    if mutant.right == PASSES:
        return "" if report.passed and "passed" in report.results.values() else f"the plugin is right, and failed: {complaints}"
    if report.passed:
        return "the verdict is that it passed"
    if mutant.right.startswith(COMPLAINT):
        return "" if mutant.right.removeprefix(COMPLAINT) in report.complaints else f"the verdict complains of: {complaints}"
    status = report.results.get(mutant.right, "not run")
    return "" if status == "failed" else f"'{mutant.right}': {status}; failed: {complaints}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mutant", help="<family>.<fault>, as in faults.txt")
    parser.add_argument("--narrows", required=True, help="the narrows command")
    parser.add_argument("--plugins", required=True, help="the folder that has a folder for each plugin")
    arguments = parser.parse_args()
    mutant = read_table()[arguments.mutant]
    report = conform(arguments.narrows, arguments.plugins, mutant)
    failed = sum(status == "failed" for status in report.results.values())
    print(f"{mutant.plugin}, fault {mutant.fault}: {len(report.results)} tests, {failed} failed; right test: {mutant.right}")
    if wrong := verdict(mutant, report):
        print(f"NOT CAUGHT: {wrong}\n{report.text}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
