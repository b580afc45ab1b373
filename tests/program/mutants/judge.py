#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""judge.py -- whether the tests or a short search see the faults of faults.txt.

  judge.py BUILD [NAME...] [--jobs N]      of the build folder where the target narrows_program_mutants was made; no name: all

A fault of schedules is given to the tests of schedules, and where these pass, to the search; one of the plugin to test_cpu_program. In
a build with the backend for a GPU that the CPU plays, the faults are those of GPUs, and are given to test_hip_program.
It is seen when a test fails, or when the search finds what is computed wrongly; a crash does not count. Without a fault all must pass.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

import spoil

SEARCHED = "600"  # programs


def run(fault: str, command: list[str | pathlib.Path], **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NARROWS_TEST_FAULT": fault} | more
    return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")


def has_gpu(build: pathlib.Path) -> bool:
    return (build / "tests/program/mutants/narrows_spoilt_hip.so").exists()


def run_plugin(fault: str, build: pathlib.Path, tests: str) -> subprocess.CompletedProcess[str]:
    """These tests of test_cpu_program or test_hip_program, with the spoilt plugin."""
    backend, plugin = ("hip", "narrows_spoilt_hip.so") if has_gpu(build) else ("cpu", "narrows_spoilt.so")
    path = build / "tests/program/mutants" / plugin
    return run(fault, [build / f"bin/test_{backend}_program", tests], NARROWS_TEST_CPU_PLUGIN=str(path))


def failed_tests(done: subprocess.CompletedProcess[str]) -> str:
    """The end of what Catch2 says where tests failed."""
    summary = [line for line in done.stdout.splitlines() if line.startswith(("test cases:", "assertions:"))]
    return " ".join(summary) if done.returncode > 0 and any(" failed" in line for line in summary) else ""


def seen(fault: spoil.Fault, build: pathlib.Path) -> str:
    """What saw it; empty: nothing did."""
    program = build / "bin"
    if fault.tests:
        return failed_tests(run_plugin(fault.name, build, fault.tests))
    if summary := failed_tests(run(fault.name, [program / "test_program_spoilt"])):
        return summary
    found = run(fault.name, [program / "narrows_search_spoilt", "--count", SEARCHED, "--findings", "1"])
    lines = [line for line in found.stdout.splitlines() if line.startswith("FINDING")]
    return lines[0] if found.returncode == 1 and lines else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    gpu = has_gpu(arguments.build)
    faults = {fault.name: fault for fault in spoil.read_table()}
    if unknown := set(arguments.names) - faults.keys():
        parser.error(f"no fault {', '.join(sorted(unknown))}")
    chosen = [faults[name] for name in arguments.names or faults if faults[name].on_gpu == gpu]
    right = [] if gpu else [run("none", [arguments.build / "bin/test_program_spoilt"])]
    if tests := sorted({fault.tests for fault in chosen if fault.tests}):
        right.append(run_plugin("none", arguments.build, ",".join(tests)))
    if wrong := [done.stdout for done in right if done.returncode != 0]:
        print(f"without a fault the tests fail:\n{wrong[0][-4000:]}")
        return 1
    unseen = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for fault, by in zip(chosen, pool.map(lambda fault: seen(fault, arguments.build), chosen), strict=True):
            print(f"{'seen  ' if by else 'UNSEEN'} {fault.name}: {fault.what}: {by or 'nothing saw it'}", flush=True)
            if not by:
                unseen.append(fault.name)
    print(f"{len(chosen) - len(unseen)} of {len(chosen)} faults were seen{'; not ' if unseen else ''}{', '.join(unseen)}")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
