#!/usr/bin/env python3
"""judge.py -- whether the conformance suite sees one fault of faults.txt, and says what is wrong.

The verdict on a mutant is good when the suite ran through its plugin, failed, and the right test is among those that failed. Where
the table says "passes", nothing may have failed and something must have been run.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple

TABLE = pathlib.Path(__file__).with_name("faults.txt")
PASSES = "passes"


class Mutant(NamedTuple):
    plugin: str
    fault: str
    tests: str
    right: str


class Report(NamedTuple):
    backend: str
    exit_code: int
    results: dict[str, bool]  # test: whether it passed
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


def run_suite(suite: str, plugins: str, mutant: Mutant) -> Report:
    """The one place where the suite is called."""
    tests = [mutant.tests] if mutant.right == PASSES else [*filter(None, [mutant.tests]), escaped(mutant.right)]
    environment = os.environ | {
        "NARROWS_TEST_BACKEND": mutant.plugin,
        "NARROWS_PLUGIN_PATH": str(pathlib.Path(plugins, mutant.plugin)),
        "NARROWS_TEST_FAULT": mutant.fault,
    }
    done = subprocess.run(
        [suite, "--reporter", "xml", ",".join(tests)], env=environment, capture_output=True, text=True, errors="replace"
    )
    head, mark, xml = done.stdout.partition("<?xml")
    ran = re.search(r"^backend (\S+) on ", head, re.MULTILINE)
    text = f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}\nexit code {done.returncode}"
    return Report(ran[1] if ran else "", done.returncode, read_results(mark + xml), text)


def read_results(xml: str) -> dict[str, bool]:
    """Test cases of a Catch2 XML report. A suite that is ended in the middle leaves it unfinished: those that were done count."""
    results: dict[str, bool] = {}
    name = ""
    parser = ElementTree.XMLPullParser(["start", "end"])
    try:
        parser.feed(xml)
        for event, element in parser.read_events():
            if event == "start" and element.tag == "TestCase":
                name = element.get("name", "")
            elif event == "end" and element.tag == "OverallResult":
                results[name] = element.get("success") == "true"
    except ElementTree.ParseError as error:
        print(f"the report cannot be read to its end: {error}")
    return results


def verdict(mutant: Mutant, report: Report) -> str:
    """What is wrong with the suite; empty when it judged well."""
    failed = [test for test, passed in report.results.items() if not passed]
    if report.backend != mutant.plugin:
        return f"the suite ran through backend '{report.backend}'; expected '{mutant.plugin}'"
    if mutant.right == PASSES:
        if failed or report.exit_code != 0:
            return f"nothing is wrong with the plugin, and the suite failed, exit code {report.exit_code}: {'; '.join(failed)}"
        return "" if report.results else "no test ran"
    if mutant.right not in report.results:
        return f"'{mutant.right}' was not run to its end"
    if mutant.right not in failed:
        return f"'{mutant.right}' passed; failed: {'; '.join(failed) or 'none'}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mutant", help="<family>.<fault>, as in faults.txt")
    parser.add_argument("--suite", required=True, help="narrows_conformance_tests")
    parser.add_argument("--plugins", required=True, help="the folder that has a folder for each plugin")
    arguments = parser.parse_args()
    mutant = read_table()[arguments.mutant]
    report = run_suite(arguments.suite, arguments.plugins, mutant)
    failed = sum(not passed for passed in report.results.values())
    print(f"{mutant.plugin}, fault {mutant.fault}: {len(report.results)} tests, {failed} failed; right test: {mutant.right}")
    if wrong := verdict(mutant, report):
        print(f"NOT CAUGHT: {wrong}\n{report.text}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
