# SPDX-License-Identifier: Apache-2.0
"""conform.py -- drives `narrows conform` as a user would; cases as in command.py.

usage: conform.py NARROWS CASE [ARGUMENT ...]
"""

import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from command import NARROWS, on_a_terminal, run

QUICK = ("--environment", "baseline", "[memory]", "[harness]")


def conform(*arguments, expect=0, environment=None):
    """The verdict as data, and what was said on stderr."""
    out, err = run("conform", "--json", *arguments, expect=expect, environment=environment)
    return json.loads(out), err


def tests_of(verdict):
    return {test["name"]: test for run_ in verdict["runs"] for test in run_["tests"]}


def manifest(folder, **content):
    path = pathlib.Path(folder, "manifest.json")
    path.write_text(json.dumps(content))
    return str(path)


def case_text():
    out, err = run("conform", *QUICK)
    assert err == ""
    assert re.search(r"^cpu \S+ on CPU 0\n  plugin    \S+/narrows_cpu.so\n", out), out
    assert re.search(r"^  baseline    baseline, \d+ threads? +\d+ passed  0 failed +0 skipped", out, re.MULTILINE), out
    assert re.search(r"^PASSED  \d+ passed, 0 failed, 0 skipped, in ", out, re.MULTILINE), out


def case_json_and_junit():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.xml")
        verdict, err = conform(*QUICK, "--junit", path, "--seed", 7)
        suites = xml.etree.ElementTree.parse(path).getroot().findall("testsuite")
    assert err == "" and verdict["verdict"] == "passed" and verdict["seed"] == 7 and verdict["failed"] == 0
    assert verdict["plugin"]["name"] == "cpu" and verdict["device"]["type"] == 1 and verdict["complaints"] == []
    assert [run_["environment"] for run_ in verdict["runs"]] == ["baseline"]
    tests = tests_of(verdict)
    assert len(tests) == verdict["passed"] > 20
    assert all(test["status"] == "passed" and test["assertions"] > 0 for test in tests.values())
    assert suites[0].get("failures") == "0" and int(suites[0].get("tests")) == len(suites[0].findall("testcase")) == len(tests)


def case_every_environment():
    verdict, _ = conform("[memory]")
    runs = verdict["runs"]
    assert len(runs) > 1 and any("arch" in run_ and "not_here" not in run_ for run_ in runs)
    for run_ in runs:
        assert run_.get("not_here", "").startswith("this CPU has no ") or run_["tests"], run_


def case_list():
    out, _ = run("conform", "--list", "[calls]")
    lines = out.splitlines()
    assert lines and all("[calls]" in line for line in lines), out
    everything, _ = run("conform", "--list")
    assert len(everything.splitlines()) > 200 and "bench: " not in everything and "huge: " not in everything
    huge, _ = run("conform", "--list", "--huge", "[huge]")
    assert len(huge.splitlines()) == 13, huge


def case_refused():
    """Nothing run is a failure, and says why."""
    with tempfile.TemporaryDirectory() as folder:
        for arguments, code, word in (
            (("no such test",), 2, "no test matches 'no such test'"),
            (("--frobnicate",), 2, "--frobnicate"),
            (("--timeout", "0"), 2, "--timeout"),
            *(
                (("--jobs", jobs), 2, f"--jobs: '{jobs}' is not a number from 1 to 256")
                for jobs in ("0", "-1", "257", "2.5", "x", "")
            ),
            (("--jobs", "2", "--list"), 2, "--jobs"),
            (("--list", "--support"), 2, "--support"),
            (("--backend", "abacus"), 3, "no usable backend 'abacus'"),
            (("--plugin", "/nowhere/narrows_x.so"), 3, "/nowhere/narrows_x.so"),
            (("--plugin", __file__), 3, __file__),
            (("--device", "1"), 3, "device is '1'; expected DLDeviceType:id"),
            (("--device", "1:77"), 3, "77"),
            (("--device", "12:0"), 3, "no usable backend for device type 12"),
            (("--environment", "z80"), 2, "no environment 'z80'"),
            (("--plugin", ""), 2, "may not be empty"),
            (("--seed", "-1"), 2, "-1 is not a number from 0 to 2^64 - 1"),
            (("--seed", "18446744073709551616"), 2, "18446744073709551616"),
            (("--list", "--json"), 2, "--json"),
            (("--junit", "/nowhere/results.xml", "[memory]"), 2, "/nowhere/results.xml cannot be written: No such file"),
            (("--manifest", "/nowhere.json"), 3, "/nowhere.json: cannot be read"),
            (("--manifest", __file__), 3, "is not a JSON object"),
            (("--manifest", manifest(folder, exclusion=[])), 3, "unknown key 'exclusion'"),
        ):
            out, err = run("conform", *arguments, expect=code)
            assert out == "" and word in err and err.startswith("narrows"), (arguments, out, err)
        for entry, word in (
            ({"op": "lltm"}, "without 'reason'"),
            ({"reason": "x"}, "without 'op'"),
            ({"op": 3, "reason": "x"}, "'op' is 3; expected a string"),
            ({"op": "lltm", "reason": "x", "dtypes": "f64"}, "unknown key 'dtypes'"),
            ({"op": "lltm", "reason": "x", "without": "libm.so.6"}, "'without' one of libraries' names"),
            ({"op": "lltm", "reason": "x", "arch": "AVX2"}, "'arch' has to be a list"),
            ({"op": "lltm", "reason": "x", "variables": ["A"]}, "'variables' an object of strings"),
            ({"op": "lltm", "reason": "x", "dtype": "float64"}, "unknown dtype 'float64'"),
        ):
            _, err = run("conform", "--manifest", manifest(folder, exclusions=[entry]), expect=3)
            assert word in err, (entry, err)


def case_environments_are_real():
    """An environment that the machine lacks is no pass; nor one that changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        absent = manifest(folder, environments=[{"name": "far", "cpu": ["no_such_feature"]}])
        out, _ = run("conform", "--manifest", absent, "[memory]", expect=1)
        assert "not here: this CPU has no no_such_feature" in out and "nothing was run" in out and "FAILED  0 passed" in out, out
        real = {"name": "real"}
        idle = {"name": "idle", "variables": {"NARROWS_NOTHING": "1"}, "arch": "Z80"}
        verdict, _ = conform("--manifest", manifest(folder, environments=[real, idle]), "[memory]", expect=1)
        assert all(test["status"] == "passed" for test in verdict["runs"][0]["tests"])
        assert "expected 'Z80" in verdict["runs"][1]["tests"][0]["failures"][0]["text"], verdict["runs"][1]["tests"][0]


def case_stale_exclusion():
    """What the manifest excludes and the backend accepts fails the verdict, in part of the suite too."""
    with tempfile.TemporaryDirectory() as folder:
        path = manifest(folder, exclusions=[{"op": "conv1d", "dtype": "f64", "reason": "no doubles"}])
        verdict, _ = conform("--manifest", path, "conv1d: puzzle*", expect=1)
        assert verdict["failed"] == 0 and verdict["verdict"] == "failed"
        assert re.search(r"stale exclusion: \d+ calls were accepted as conv1d f64 \(no doubles\)", verdict["complaints"][0])
        for where, code in (
            ({"arch": ["Z80"]}, 0),  # it holds elsewhere
            ({"arch": ["Z80", ""]}, 1),
            ({"without": ["libnowhere.so.1"]}, 1),
            ({"without": ["libnowhere.so.1", "libc.so.6"]}, 0),  # one of them is there
            ({"variables": {"NARROWS_NOTHING": "0"}}, 0),
            ({"variables": {"NARROWS_SOMETHING": "0"}}, 1),
            ({"variables": {"NARROWS_SOMETHING": "1"}}, 0),
        ):
            path = manifest(folder, exclusions=[{"op": "conv1d", "dtype": "f64", "reason": "no doubles"} | where])
            conform("--manifest", path, "conv1d: puzzle*", expect=code, environment={"NARROWS_SOMETHING": "0"})


def case_own_ops(plugin):
    """A plugin that brings only ops of its own gets a verdict; an exclusion that covers nothing is noticed."""
    out, _ = run("conform", "--plugin", plugin)
    assert "PASSED" in out and "does not offer conv1d" in out, out
    out, _ = run("bench", "--plugin", plugin)
    assert "FAILED" not in out and out.count("  example.mod_add/1 (") > 1, out
    with tempfile.TemporaryDirectory() as folder:
        path = manifest(
            folder, exclusions=[{"op": "example.mod_add/1", "dtype": "u64", "out_dtype": "i8", "reason": "never asked"}]
        )
        verdict, _ = conform("--plugin", plugin, "--manifest", path, expect=1)
        tests = tests_of(verdict)
        assert verdict["failed"] == 0 and sum(test["calls_accepted"] > 0 for test in tests.values()) > 3
        assert any("no call was declined as example.mod_add/1 u64 -> i8" in c for c in verdict["complaints"]), verdict["complaints"]


def case_own_faults(plugin):
    """A load past the end of an own op's tensor fails a test. What is told of a call names the params."""
    name = "own: loads and stores past the end, at the edge of a page"
    verdict, _ = conform("--plugin", plugin, "[own][guard]")
    assert tests_of(verdict)[name]["status"] == "passed", verdict
    # On the calling thread: a report from another one is cut short.
    alone = {"ACME_FAULT": "past", "NARROWS_NUM_THREADS": "1"}
    out, _ = run("conform", "--plugin", plugin, "[own][guard]", expect=1, environment=alone)
    assert name in out and "SIGSEGV" in out and "with alpha = 1, mode = 'plain'" in out, out
    out, _ = run("conform", "--plugin", plugin, "own: the backward op is the*", expect=1, environment={"ACME_FAULT": "backward"})
    assert re.search(r"with alpha = \S+, mode = 'negated'", out), out


def case_plugin_of_the_header(plugin):
    """What plugin.hpp makes of a few lines is a plugin in every slot."""
    verdict, _ = conform("--plugin", plugin)
    assert verdict["failed"] == 0 and not verdict["complaints"], verdict
    assert sum(test["calls_accepted"] > 0 for test in tests_of(verdict).values()) > 3


def case_isolated(plugin):
    """A plugin that kills or stops the process fails the test that it did it in, and the others go on."""
    name = "conv1d: puzzle 17's exact example"
    for fault, words, options in (
        ("crashes", "SIGSEGV", ()),
        ("breaks_the_heap", "a fatal signal could not be reported", ()),
        ("exits", "ended with exit code 3", ()),
        ("hangs", "no sign of life for 10 s", ("--timeout", "10")),
    ):
        start = time.monotonic()
        verdict, _ = conform(
            "--plugin", plugin, "conv1d: puzzle*", "[memory]", *options, expect=1, environment={"NARROWS_TEST_FAULT": fault}
        )
        assert time.monotonic() - start < 60
        tests = tests_of(verdict)
        assert tests[name]["status"] == "failed" and words in tests[name]["failures"][0]["text"], (fault, tests[name])
        assert "narrows conform --plugin" in tests[name]["repeat"] and name.replace("'", "'\\''") in tests[name]["repeat"]
        others = [test for test in tests.values() if test["name"] != name]
        assert len(others) > 5 and all(test["status"] == "passed" for test in others), fault


def counted(verdict):
    """All of a verdict that has to be the same however many processes it took."""
    runs = [(run_["environment"], [{**test, "seconds": 0} for test in run_["tests"]]) for run_ in verdict["runs"]]
    return {**verdict, "runs": runs, "seconds": 0}


def case_jobs():
    """Several processes come to the verdict that one comes to: passed, or failed by a manifest that no single test proves wrong."""
    with tempfile.TemporaryDirectory() as folder:
        stale = manifest(
            folder, exclusions=[{"op": "conv1d", "dtype": "f64", "reason": "x"}], environments=[{"name": "a"}, {"name": "b"}]
        )
        absent = os.path.join(folder, "absent.json")
        pathlib.Path(absent).write_text(json.dumps({"environments": [{"name": "far", "cpu": ["no_such_feature"]}]}))
        idle = os.path.join(folder, "idle.json")
        pathlib.Path(idle).write_text(json.dumps({"environments": [{"name": "idle", "arch": "Z80"}]}))
        for arguments, code in (
            ((*QUICK, "conv1d: puzzle*"), 0),
            (("--manifest", stale, "[memory]", "conv1d: puzzle*"), 1),
            (("--manifest", absent, "[memory]"), 1),
            (("--manifest", idle, "[memory]"), 1),
        ):
            alone, _ = conform(*arguments, expect=code)
            assert counted(conform(*arguments, "--jobs", "3", expect=code)[0]) == counted(alone), arguments
    text, _ = run("conform", *QUICK, "--jobs", "3")
    assert re.search(rf"^PASSED  {conform(*QUICK)[0]['passed']} passed, 0 failed, 0 skipped, in ", text, re.MULTILINE), text


def case_jobs_fail(plugin):
    """A wrong plugin, one that crashes and one that hangs fail by several processes in the test that fails by one."""
    name = "conv1d: puzzle 17's exact example"
    tests = ("--plugin", plugin, "conv1d: puzzle*", "[memory]", "--timeout", "10")
    for fault, words in (
        ("flipped_taps", ""),
        ("crashes", "SIGSEGV"),
        ("exits", "exit code 3"),
        ("hangs", "no sign of life for 10 s"),
    ):
        faulty = {"NARROWS_TEST_FAULT": fault}
        verdict, _ = conform(*tests, "--jobs", "3", expect=1, environment=faulty)
        assert counted(verdict) == counted(conform(*tests, expect=1, environment=faulty)[0]), fault
        assert words in tests_of(verdict)[name]["failures"][0]["text"], (fault, tests_of(verdict)[name])
        text, _ = run("conform", *tests, "--jobs", "3", expect=1, environment=faulty)
        assert f"FAILED {name}" in text, text


def case_jobs_whole(plugin):
    """A variant is complained of when no process ran it, and only then."""
    arguments = ("--plugin", plugin, "--jobs", "3")
    verdict, _ = conform(*arguments, expect=None)
    assert len(tests_of(verdict)) > 200 and verdict["complaints"] == [], verdict["complaints"]
    verdict, _ = conform(*arguments, expect=1, environment={"ACME_FAULT": "no_variant"})
    assert sum("is listed and never ran" in c for c in verdict["complaints"]) == 1, verdict["complaints"]


def case_jobs_interrupted(plugin):
    """Who ends the command ends the processes that it has started."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(
            [NARROWS, "conform", "--plugin", plugin, "conv1d: puzzle*", "[memory]", "--jobs", "3"],
            env={**os.environ, "NARROWS_TEST_FAULT": "hangs"},
            stdout=subprocess.DEVNULL,
        ) as command:
            until = time.monotonic() + 30
            while not (children := suites_of(command.pid)) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(1)  # the one that hangs is left
            children = suites_of(command.pid)
            command.send_signal(number)
            assert command.wait(10) == -number
            assert children
            while any(is_alive(child) for child in children) and time.monotonic() < until:
                time.sleep(0.05)
            assert not any(is_alive(child) for child in children), children


def suites_of(pid):
    """The processes that a command's threads have started."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def case_ends_badly(plugin):
    """What a plugin does when every test has passed, or to the stream of events, fails the verdict too, and soon."""
    for fault, words in (
        ("aborts_at_exit", "ended by signal 6"),
        ("exits_at_exit", "ended with exit code 5"),
        ("hangs_at_exit", "no sign of life for 10 s"),
        ("spoils_events", "did not report"),
        ("closes_files", "ended with exit code 0"),
        ("exits_with_77", "ended with exit code 77"),
    ):
        start = time.monotonic()
        verdict, _ = conform(
            "--plugin", plugin, "memory: *", "--timeout", "10", expect=1, environment={"NARROWS_TEST_RUDENESS": fault}
        )
        assert time.monotonic() - start < 60
        said = [f["text"] for test in tests_of(verdict).values() for f in test.get("failures", [])]
        assert any(words in text for text in said), (fault, said, verdict["complaints"])
    start = time.monotonic()
    conform("--plugin", plugin, "memory: *", environment={"NARROWS_TEST_RUDENESS": "leaves_a_child"})
    assert time.monotonic() - start < 45, "the suite waited for a child of the plugin"


def case_bench():
    out, _ = run("bench", "--backend", "cpu", "--json", "bench: smallest")
    verdict = json.loads(out)
    measured = verdict["runs"][0]["measured"]
    assert measured and all(m["seconds"] > 0 and m["runs"] > 0 and m["bytes"] + m["operations"] > 0 for m in measured), measured
    assert not any(m["graphs"] for m in measured), measured
    out, _ = run("bench", "--backend", "cpu", "bench: smallest")
    assert "GB/s" in out and "GFLOP/s" in out, out
    out, _ = run("bench", "--list")
    assert "bench: smallest" in out and all(line.startswith("bench: ") for line in out.splitlines()), out
    _, err = run("bench", "--backend", "cpu", "conv1d: *", expect=2)
    assert "no test matches" in err, err


def case_bench_cuda():
    """On a GPU graphs are replayed, and each rate stands beside one that the device reached in the same run: a copy's, and cuBLAS's
    where it is installed."""
    out, err = run("bench", "--backend", "cuda", "--json", "bench: smallest", expect=None)
    if found := re.search(r"the NVIDIA driver (is missing|is older|sees no GPU)[^\n]*", err):
        print(f"skipped: {found[0]}")
        sys.exit(77)
    measured = json.loads(out)["runs"][0]["measured"]
    copies = [m for m in measured if m["bytes"] > 0]
    products = [m for m in measured if m["operations"] > 0]
    assert copies and products and all(m["seconds"] > 0 and m["graphs"] for m in measured), measured
    assert all(m["ceiling"] > 1e11 for m in copies), copies
    for library in ("libcublas.so.13", "libcublas.so.12"):
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        assert all(m["ceiling"] > 1e11 for m in products), products
        break


def case_support(docs):
    """The table in the docs is what the backend answers today."""
    out, _ = run("conform", "--support", "--backend", "cpu")
    assert out.startswith("| cpu |") and "| `lltm` |" in out
    assert out in pathlib.Path(docs).read_text(encoding="utf-8"), "docs/support.md is not what `narrows conform --support` prints"


def case_terminal():
    output = on_a_terminal("conform", *QUICK)
    assert "█" in output and "\033[32mPASSED" in output, output


if __name__ == "__main__":
    globals()["case_" + sys.argv[2]](*sys.argv[3:])
