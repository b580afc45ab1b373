# SPDX-License-Identifier: Apache-2.0
"""The harness of benchmarks/: its statistics, what it lets pass as right, its goals, its file, its table and its page. Nothing is measured
but a few microseconds."""

import dataclasses
import itertools
import json
import pathlib
import platform
import subprocess
import sys
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import harness  # noqa: E402
import report  # noqa: E402

SHORT = harness.Effort(rounds=2, block=0.001, sample=0.0001, pause=0, warm=0)


def side(median, low=None, high=None):
    return {"median": median, "low": low or median, "high": high or median, "samples": 9}


def row(name="add f32 1 K", ours=1.0, theirs=2.0, threads=2, goals=(("ratio", 1.5),), **more):
    """A row as harness.run_case makes it; times in seconds."""
    return {"name": name, "family": "element-wise, contiguous", "line": "add f32", "column": "1 K", "isa": "native", "threads": threads,
            "statements": ["ours", "theirs"], "others": 0.0, "bytes": 3e9, "operations": 1e9, "goals": [list(g) for g in goals],
            "errors": {"ours": 0.5, "theirs": 0.5}, "ours": side(ours), "theirs": side(theirs), **more}  # fmt: skip


def results(*rows):
    return {"machine": {"cpu": "a CPU", "cores": 2, "date": "today", "torch": "2.13"}, "rows": list(rows)}


def problem(**more):
    a, y = torch.arange(8.0), torch.empty(8)
    return harness.Problem({"torch": torch, "a": a, "y": y, "outputs": [y]}, [a.double() * 2], [1e-6], **more)


def case(ours="torch.mul(a, 2, out=y)", theirs="torch.add(a, a, out=y)", make=problem, **more):
    return harness.Case("double", "element-wise", ours, theirs, make, **more)


# ---- statistics ----


def test_spread_is_the_median_and_the_quartiles():
    spread = harness.Spread.of([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (spread.low, spread.median, spread.high, spread.samples) == (2.0, 3.0, 4.0, 5)
    assert harness.Spread.of([7.0]) == harness.Spread(7.0, 7.0, 7.0, 1)


def test_sides_take_turns_and_who_begins_changes():
    turns = []
    names = {"note": turns.append}
    times, _ = harness.measure({"ours": "note('o')", "theirs": "note('t')"}, names, SHORT)
    changes = [turns[0]] + [b for a, b in itertools.pairwise(turns) if a != b]
    # Calibration of both first; then ours, theirs, and theirs, ours.
    assert "".join(changes) == "ototo"
    assert set(times) == {"ours", "theirs"} and all(0 < t.median < 0.1 for t in times.values())


def test_the_time_of_a_call_does_not_depend_on_the_calls_of_a_sample():
    spread = harness.measure({"ours": "sleep(0.002)"}, {"sleep": time.sleep}, SHORT)[0]["ours"]
    assert 0.002 <= spread.low < 0.02


def test_neighbours_are_seen():
    neighbours = harness.Neighbours()
    with neighbours, subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        time.sleep(0.5)
        other.kill()
    assert neighbours.cores() > 0.2
    found = row()
    assert "disturbed" in report.verdict({**found, "others": 0.5}) and "disturbed" not in report.verdict(found)
    assert report.headline(results(found, row("b", others=0.5))).endswith("; other processes disturbed 1 rows")


def test_our_own_time_is_no_neighbour(monkeypatch):
    ours = iter([0.0, -10000.0])
    monkeypatch.setattr(harness.time, "process_time", lambda: next(ours))
    neighbours = harness.Neighbours()
    with neighbours:
        time.sleep(0.1)
    assert neighbours.cores() > 100


def test_a_disturbed_row_is_measured_again(monkeypatch):
    counts = iter([0.9, 0.5, 0.01, 0.9])
    real = harness.measure
    monkeypatch.setattr(harness, "measure", lambda *a: (real(*a)[0], next(counts)))
    assert harness.run_case(case(), SHORT)["others"] == 0.01 and next(counts) == 0.9
    counts = iter([0.9, 0.5])
    assert harness.run_case(case(), dataclasses.replace(SHORT, tries=2))["others"] == 0.5


def test_a_sample_is_seconds_per_call():
    class TwoSeconds:
        def timeit(self, calls):
            return 2.0 * calls

    for warm in (0, 0.001):
        assert set(harness._block(TwoSeconds(), 5, dataclasses.replace(SHORT, warm=warm))) == {2.0}


def test_sync_is_timed_with_every_call():
    calls, syncs = [], []
    harness.measure({"ours": "call(1)"}, {"call": calls.append}, SHORT, sync=lambda: syncs.append(1))
    assert len(calls) == len(syncs) > 0


# ---- is it right? ----


def test_a_right_case_gives_a_row():
    found = harness.run_case(case(), SHORT)
    assert found["errors"] == {"ours": 0.0, "theirs": 0.0} and found["ours"]["median"] > 0 and "copy" not in found


@pytest.mark.parametrize(
    "ours",
    [
        "torch.mul(a, 2.001, out=y)",
        "torch.full((8,), torch.nan)",
        "torch.full((8,), torch.inf)",
        "torch.mul(a, 2)[:4]",
        "(torch.mul(a, 2), a)",
        "y",  # nothing is written: what was there before does not count
    ],
)
def test_what_is_wrong_is_not_measured(ours):
    with pytest.raises(harness.WrongResult):
        harness.run_case(case(ours), SHORT)


def test_what_an_output_held_before_does_not_count():
    made = problem()
    made.names["y"].copy_(made.names["a"] * 2)
    assert harness.check("y", made) > 1


def test_a_peer_that_is_off_is_noted():
    found = harness.run_case(case(theirs="torch.mul(a, 2.001, out=y)"), SHORT)
    assert found["errors"]["theirs"] > 1
    assert "*" in report.cells({**found, "threads": 2, "isa": "native"})[3]


def test_a_result_that_repeats_the_exact_part_is_compared_to_its_end():
    exact = torch.arange(4.0, dtype=torch.float64)
    long = exact.repeat(3).float()
    assert harness.off(long, exact, 1e-3) == 0
    long[-1] += 1
    assert harness.off(long, exact, 1e-3) == pytest.approx(1000)


def test_a_copy_is_timed_beside_what_comes_from_memory():
    def copy():
        pass

    copy.nbytes = 100.0
    found = harness.run_case(
        case(beyond_cache=True, goals=(harness.Goal("copy", 0.5),), make=lambda: problem(nbytes=1e12)), SHORT, copy
    )
    assert found["copy_rate"] > 0 and [v[3] for v in harness.verdicts(found)] == [True]


# ---- goals ----


@pytest.mark.parametrize(("ours", "met"), [(1.0, True), (2.0 / 1.5, True), (1.34, False)])
def test_a_ratio_is_their_time_over_ours(ours, met):
    [(measure, least, value, found)] = harness.verdicts(row(ours=ours))
    assert (measure, least, found) == ("ratio", 1.5, met) and value == pytest.approx(2.0 / ours)


def test_goals_that_were_not_measured_are_neither_met_nor_missed():
    lone = row(goals=(("copy", 0.95), ("scaling", 1.8)))
    assert harness.verdicts(lone) == [] and report.verdict(lone) == ""
    assert harness.verdicts(lone, lone) == []  # on one thread itself


def test_scaling_is_the_time_on_one_thread_over_this():
    goals = (("scaling", 1.8),)
    assert harness.verdicts(row(ours=1.0, goals=goals), row(ours=1.9, threads=1)) == [("scaling", 1.8, 1.9, True)]
    assert harness.verdicts(row(ours=1.0, goals=goals), row(ours=1.7, threads=1)) == [("scaling", 1.8, 1.7, False)]


def test_an_unknown_measure_is_an_error():
    with pytest.raises(ValueError, match="unknown measure 'speed'"):
        harness.reached(row(), "speed")


def test_slower_with_threads_only_beyond_the_spread_of_both():
    one = row(threads=1, ours=1.0)
    one["ours"] = side(1.0, 0.9, 1.2)
    two = row(ours=1.3)
    two["ours"] = side(1.09, 1.1, 1.5)
    assert not harness.slower_with_threads(two, one)
    two["ours"] = side(1.11, 0.8, 1.5)
    assert harness.slower_with_threads(two, one)  # by a tenth
    two["ours"] = side(1.05, 1.21, 1.5)
    assert harness.slower_with_threads(two, one) and "slower with threads" in report.verdict(two, one)
    two["ours"] = side(1.05, 0.8, 1.3)
    assert not harness.slower_with_threads(two, one)


# ---- the file ----


def test_merging_keeps_the_newer_of_each_row_in_the_order_of_the_cases(tmp_path):
    path = tmp_path / "folder" / "results.json"
    harness.save(path, harness.merge(harness.load(path), [row("b"), row("a", threads=1)], {"cpu": "x", "cores": 2}))
    merged = harness.merge(harness.load(path), [row("a", ours=9.0), row("b", ours=5.0)], {"cores": 4}, ["a", "b"])
    harness.save(path, merged)
    again = harness.load(path)
    assert [(r["name"], r["threads"], r["ours"]["median"]) for r in again["rows"]] == [("a", 1, 1.0), ("a", 2, 9.0), ("b", 2, 5.0)]
    assert again["machine"] == {"cpu": "x", "cores": 4}
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]


def test_rows_of_another_processor_are_left_out():
    first = harness.merge({"machine": {}, "rows": []}, [row("a")], {"cpu": "x"})
    assert len(harness.merge(first, [row("b")], {"cpu": "x"})["rows"]) == 2
    other = harness.merge(first, [row("b")], {"cpu": "y"})
    assert [r["name"] for r in other["rows"]] == ["b"] and other["machine"] == {"cpu": "y"}


# ---- what is shown ----


@pytest.mark.parametrize(
    ("value", "text"), [(2.5, "2.5 s"), (0.1234, "123 ms"), (4.56e-5, "45.6 us"), (9.99e-7, "999 ns"), (1e-12, "0.001 ns")]
)
def test_seconds(value, text):
    assert report.seconds(value) == text


def test_goals_are_about_the_rows_on_most_threads():
    one, two = row(threads=1, ours=1.9, theirs=1.0), row(goals=(("ratio", 1.5), ("scaling", 1.8)))
    [(judged, alone)] = report.judged(results(one, two))
    assert judged is two and alone is one
    assert report.headline(results(one, two)) == "1 rows; 2 of 2 goals met; slower with threads than without: 0"


def test_the_table_names_what_was_missed():
    text = report.table(results(row("good"), row("bad", ours=2.0)))
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert lines["good"].endswith("met") and "MISSED" not in lines["good"]
    assert lines["bad"].endswith("MISSED ratio 1 of 1.5")
    assert "1 of 2 goals met" in text and [r["name"] for r, _ in report.missed(results(row("good"), row("bad", ours=2.0)))] == [
        "bad"
    ]


def test_the_page_gets_the_table_and_the_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; ./run check python installs it")
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    conv = row("conv1d K3", family="conv1d", line="", column="")
    slow = row("add f32 4 K", ours=9.0, column="4 K", copy_rate=1e8, goals=(("ratio", 1.0), ("copy", 0.95)))
    found = results(row(), slow, conv, row(isa="avx2"))
    report.write(found, page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert (
        "| add f32 | 2.00 | **0.22** / 3.33 |" in text and "| conv1d K3 | 1 s | 2 s | 2.00 x | 1.5 |" in text and "1 of 1" in text
    )
    assert (tmp_path / "performance.svg").read_text().count("<svg") == 1
    before = text, (tmp_path / "performance.svg").read_text()
    data = json.loads((tmp_path / "performance.json").read_text())
    assert data["goals"] == {"element-wise, contiguous": [1.333, 0.2222], "conv1d": [1.333]}
    report.draw(data, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == before[1]
    report.write(found, page)
    assert before == (page.read_text(), (tmp_path / "performance.svg").read_text())


def test_a_page_is_made_where_there_is_none(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; ./run check python installs it")
    report.write(results({**row(), "commit": "abc"}), tmp_path / "new.md")
    assert "measured at abc" in (tmp_path / "new.md").read_text() and (tmp_path / "new.svg").exists()


@pytest.mark.parametrize("goals", [(("ratio", 1.5),), ()])
def test_a_page_of_other_rows_than_those_of_the_first_picture(tmp_path, goals):
    pytest.importorskip("matplotlib")
    lltm = row("LLTM forward", family="LLTM", line="", column="", goals=goals)
    report.write(results(lltm), tmp_path / "new.md")
    assert "LLTM forward" in (tmp_path / "new.md").read_text()
    picture = (tmp_path / "new.svg").read_text()
    assert "divided by its goal" in picture and "GB/s" not in picture


def test_a_page_without_markers_is_left_alone(tmp_path):
    with pytest.raises(ValueError, match="lacks the markers"):
        report.between_markers("a page", "new")


# ---- the cases ----


def test_the_tables_of_cases():
    import cpu_cases

    cases = list(cpu_cases.cases())
    assert len({c.name for c in cases}) == len(cases) > 300
    assert {g.measure for c in cases for g in c.goals} == {"ratio", "copy", "scaling"}
    assert all("out=y" in c.theirs or c.family in ("conv1d", "conv1d backward", "conv1d, few outputs", "LLTM") for c in cases)


def test_the_words_of_a_filter():
    import cpu

    name, family = "add f32 4 K", "element-wise, contiguous"
    for wanted in ("", "f32 add", "contiguous", '"f32 4 K"', "LLTM | add"):
        assert cpu.fits(name, family, wanted)
    for wanted in ("f64", "add LLTM", '"4 K f32"', "LLTM | f64"):
        assert not cpu.fits(name, family, wanted)


@pytest.mark.parametrize(
    "name",
    [
        "pow bf16 4 K",
        "gelu f64 4 K",
        "divide f16 256 K",
        "add i32 4 K",
        "add f64, column 64 x 64",
        "LLTM backward B16 F32 S128 f32",
        "product 256 x 256 x 256 f32",
    ],
)
def test_a_case_of_each_kind_is_right(name):
    import cpu_cases

    [found] = [c for c in cpu_cases.cases() if c.name == name]
    with torch.set_grad_enabled(found.gradients):
        made = found.make()
        assert harness.check(found.ours, made) <= 1
        assert harness.check(found.theirs, made) <= 1 or name.startswith("gelu")  # torch cancels there


@pytest.mark.parametrize(
    "shape", [{"stride": 2}, {"dilation": 3}, {"groups": 2}, {"padding": 2}, {"stride": 3, "padding": 1, "groups": 2}]
)
def test_the_reference_of_conv1d_is_torchs_in_float64(shape):
    import cpu_cases

    s = cpu_cases.Shape(2, 4, 6, 20, 3, **shape)
    x, w, g = (torch.rand(*t, dtype=torch.float64) for t in (s.x, s.w, s.y))
    x.requires_grad_(), w.requires_grad_()
    y = torch.nn.functional.conv1d(x, w, padding=s.padding, **s.params())
    torch.testing.assert_close(s.exact(x.detach(), w.detach()), y.detach())
    gx, gw, gb = s.exact_backward(x.detach(), w.detach(), g)
    torch.testing.assert_close((gx, gw), torch.autograd.grad(y, (x, w), g))
    torch.testing.assert_close(gb, g.sum((0, 2)))


# ---- python_calls.py: what a call costs ----


def python_calls(code, *arguments):
    """What that prints where benchmarks/python_calls.py is imported as p; a process of its own, since that decides about threads."""
    code = f"import python_calls as p; {code}"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=BENCHMARKS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_calls_from_python_say_of_what_they_are(tmp_path):
    kept = tmp_path / "rows.json"
    arguments = ["--only", "numpy add, goal", "--seconds", "0.01", "--json", kept]
    out = python_calls("p.GROUPS['cpu'] = (('numpy', p.numpy_rows),); p.main()", *arguments)
    found = json.loads(kept.read_text())
    of, [row] = found["of"], found["rows"]
    assert of["machine"] and of["commit"] == harness.commit()
    assert of["versions"]["NumPy"] == np.__version__ and of["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    first, second = out.splitlines()
    assert first.startswith(f"{of['machine']}; Python {platform.python_version()}, ")
    assert all(f"{name} {version}" in first for name, version in of["versions"].items())
    assert row["ratio"] == round(row["narrows"] / row["numpy"], 2) and f"ratio {row['ratio']:.2f}" in second


def test_calls_from_python_reach_a_goal_before_they_are_rounded():
    out = python_calls("print([p.verdict('a row, goal 1.5', r) for r in (1.5, 1.504)], p.verdict('another', 1.0))")
    assert out == "['reached', 'missed'] None\n"
