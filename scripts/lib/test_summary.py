#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads ctest's JUnit file and prints what a person wants to know in ten seconds.

Exit code 1 if a test failed, if none ran, or if a test was skipped without a reason. A reason is what the test printed:
"skipped: the reason" (a program that ends with ctest's SKIP_RETURN_CODE), the message of Catch2's SKIP, or what `narrows conform`
says of a test or an environment.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter

REASONS = (
    re.compile(r"^\s*(?:--\s*)?skipped:[ \t]*(\S.*)$", re.IGNORECASE | re.MULTILINE),
    re.compile(r"SKIPPED:\s*\n\s*explicitly with message:\s*\n\s*(\S.*)"),
    re.compile(r"^\s*skipped \d+ tests?: (\S.*)$", re.MULTILINE),
    re.compile(r"^\s*\S+, \S+\.so: (?!is another backend)(\S.*)$", re.MULTILINE),  # after "no usable backend"
    re.compile(r"not here: (\S.*)$", re.MULTILINE),
)
CASES = (
    re.compile(r"All tests passed \([\d,]+ assertions? in (\d+) test cases?\)"),
    re.compile(r"^test cases:\s*(\d+)", re.MULTILINE),
    re.compile(r"^(?:PASSED|FAILED)  (\d+) passed, \d+ failed", re.MULTILINE),
)
CASES_SKIPPED = re.compile(r"^(?:test cases:|PASSED|FAILED).*?(\d+) skipped", re.MULTILINE)
FAILED_OUTPUT_LINES = 60


def output_of(case):
    return (case.findtext("system-out") or "").strip()


def ctest_says(case):
    """ "Unable to find executable", "disabled" and the like."""
    skipped = case.find("skipped")
    return (skipped.get("message") if skipped is not None else None) or case.get("status")


def reasons_of(output):
    return list(dict.fromkeys(match.strip() for pattern in REASONS for match in pattern.findall(output)))


def verdict(case):
    status = case.get("status")
    if status == "run":
        return "passed"
    return "failed" if status == "fail" else "skipped"


def cases_in(output):
    """The cases that a program counted as run: (run, skipped)."""
    counts = [int(n) for pattern in CASES for n in pattern.findall(output)]
    return sum(counts), sum(int(n) for n in CASES_SKIPPED.findall(output))


def print_failures(cases):
    for case in cases:
        lines = output_of(case).splitlines() or ["(no output; the log says how it ended)"]
        print(f"\n--- {case.get('name')} failed " + "-" * 40)
        if len(lines) > FAILED_OUTPUT_LINES:
            print(f"    ({len(lines) - FAILED_OUTPUT_LINES} earlier lines are in the log)")
        print("\n".join("    " + line for line in lines[-FAILED_OUTPUT_LINES:]))


def print_groups(cases):
    """One line for each part of the tests: what stands before the first dot of their names."""
    groups = {}
    for case in cases:
        groups.setdefault(case.get("name").split(".")[0], Counter())[verdict(case)] += 1
    print()
    for name, counts in groups.items():
        print(f"  {name:<14}" + ", ".join(f"{counts[v]} {v}" for v in ("passed", "failed", "skipped") if counts[v]))


def print_skips(cases):
    """Prints every skip with its reason; returns how many tests have none."""
    nameless = 0
    for case in cases:
        output = output_of(case)
        skipped_inside = cases_in(output)[1]
        if verdict(case) != "skipped" and not skipped_inside:
            continue
        reasons = reasons_of(output)
        nameless += not reasons
        print(f"  skipped: {case.get('name')}: " + ("; ".join(reasons) or f"NO REASON GIVEN ({ctest_says(case)})"))
    return nameless


def main(path):
    try:
        cases = ElementTree.parse(path).getroot().findall("testcase")
    except (OSError, ElementTree.ParseError) as error:
        print(f"run: no results: {error}")
        return 1
    counts = Counter(verdict(case) for case in cases)
    print_failures([case for case in cases if verdict(case) == "failed"])
    print_groups(cases)
    nameless = print_skips(cases)
    inside = sum(cases_in(output_of(case))[0] for case in cases)
    if inside:
        print(f"  {inside} cases inside them")
    if nameless:
        print(f"  {nameless} skipped without a reason: that counts as a failure")
    if counts["passed"] == 0:
        print("  no test passed: that counts as a failure")
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 0 if counts["passed"] and not counts["failed"] and not nameless else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: test_summary.py results.xml")
    sys.exit(main(sys.argv[1]))
