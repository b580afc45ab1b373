# SPDX-License-Identifier: Apache-2.0
"""The tool behind `./run check mutate`: its changes, which ones a seed draws, its record, how it goes on. Nothing is compiled."""

import json
import pathlib
import sys

import pytest

pytest.importorskip("tree_sitter_cpp")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check"))

import mutate
import mutations

CODE = """// a < b
#include <vector>
#if FEATURE > 2
static_assert(sizeof(int) == 4);
#endif
namespace n {
HWY_INLINE int f(std::vector<int> v, int a, bool b) {
  if (a < 3 && b) return v[0];
  while (a) {
    a -= 2;
    continue;
  }
  for (int i = 0; i != a; ++i) g(i, a);
  const double half = 0.5;
  const V x = hn::Sub(v, half), y = hn::Add(v, half);
  fail(NW_INVALID, 1, "expected %d + 1", a + 1);
  return b ? a : 7;
}
}  // namespace n
"""


def source(text=CODE, file="core/f.cpp"):
    return mutations.Source(file, text.encode())


def made(line, text=CODE):
    """What the changes of a line make of it."""
    s = source(text)
    return {s.changed(change).decode().split("\n")[line - 1].strip() for change in s.changes().get(line, [])}


def test_each_kind_of_change():
    assert made(8) == {
        "if (a <= 3 && b) return v[0];", "if (a > 3 && b) return v[0];", "if (a < 3 || b) return v[0];", "if (!(a < 3 && b)) return v[0];",
        "if (a < (3 + 1) && b) return v[0];", "if (a < (3 - 1) && b) return v[0];", "if (a < 3 && b) return v[(0 + 1)];",
    }  # fmt: skip
    assert made(9) == {"while (!(a)) {"}
    assert made(10) == {"a += 2;", "a -= (2 + 1);", "a -= (2 - 1);", ";"}
    assert made(11) == {"break;"}
    assert made(14) == {"const double half = (0.5 * 2);"}
    assert "return b ? 7 : 7;" in made(17) and "return !(b) ? a : 7;" in made(17)


def test_a_loop_is_not_turned_round_and_arguments_are_exchanged():
    assert made(13) == {
        "for (int i = (0 + 1); i != a; ++i) g(i, a);", "for (int i = 0; i == a; ++i) g(i, a);",
        "for (int i = 0; i != a; ++i) g(a, i);", "for (int i = 0; i != a; ++i) ;",
    }  # fmt: skip


def test_a_function_is_taken_for_its_like():
    assert made(15) == {
        "const V x = hn::Add(v, half), y = hn::Add(v, half);",
        "const V x = hn::Sub(half, v), y = hn::Add(v, half);",
        "const V x = hn::Sub(v, half), y = hn::Sub(v, half);",
    }


def test_comments_texts_conditions_of_the_preprocessor_and_wording_are_left_alone():
    assert not any(made(line) for line in (1, 2, 3, 4, 6, 7))
    assert made(16) == {
        ";",
        'fail(NW_INVALID, 0, "expected %d + 1", a + 1);',
        'fail(NW_INVALID, (1 + 1), "expected %d + 1", a + 1);',
    }  # fmt: skip


def test_lines_stay_where_they_are():
    text = "void f() {\n  g(1,\n    2);\n  h(3);\n}\n"
    s = source(text)
    for changes in s.changes().values():
        for change in changes:
            lines = s.changed(change).decode().split("\n")
            assert len(lines) == len(s.lines) and (change.line == 4 or lines[3] == "  h(3);")


def test_a_seed_draws_the_same_and_each_line_once():
    sources = [source(), source(file="core/g.cpp")]
    drawn = mutations.drawn(sources, "1")
    assert drawn == mutations.drawn(sources[::-1], "1") and drawn != mutations.drawn(sources, "2")
    places = [(change.file, change.line) for change in drawn]
    assert len(set(places)) == len(places) == 2 * len(source().changes())


def test_an_edit_elsewhere_leaves_the_order_of_the_others():
    before = mutations.drawn([source()], 1)
    after = mutations.drawn([source("// one more\n" + CODE.replace("a -= 2;", "a -= 9;"))], 1)
    assert [c.key for c in before if "a -=" not in c.text] == [c.key for c in after if "a -=" not in c.text]


def test_lines_that_read_alike_are_told_apart():
    text = "void f() {\n  g(1);\n}\nvoid h() {\n  g(1);\n}\n"
    first, second = (source(text).changes()[line][0] for line in (2, 5))
    assert first.key != second.key and first.text == second.text
    assert source("\n" + text).find(second) == 5 and source(text).changed(second).decode().split("\n")[1] == "  g(1);"


# ---- the record ----


def entry(change, verdict="caught", note="test_core: a test"):
    return mutate.Entry(change, verdict, note)


def test_the_record_is_read_as_it_was_written(tmp_path):
    sources = {"core/f.cpp": source()}
    drawn = mutations.drawn(sources.values(), 1)
    record = mutate.Record(tmp_path / "r/record.jsonl", sources)
    entries = [entry(drawn[0]), entry(drawn[1], "survived", ""), entry(drawn[2], "equivalent", "It is one.")]
    for each in entries:
        record.put(each)
    record.save()
    lines = record.path.read_text().splitlines()
    assert {"file", "line", "text", "old", "new", "verdict"} < set(json.loads(lines[0]))
    assert [json.loads(line)["line"] for line in lines] == sorted(each.change.line for each in entries)
    again = mutate.Record(record.path, sources)
    assert again.entries == {each.change.key: each for each in entries} and again.counts() == record.counts()


@pytest.mark.parametrize("verdict, note", [("caught", ""), ("equivalent", ""), ("fine", "so it is")])
def test_a_verdict_needs_what_shows_it(verdict, note):
    line = entry(mutations.drawn([source()], 1)[0], verdict, note).line()
    with pytest.raises(ValueError, match=r"record\.jsonl: expected"):
        mutate.Entry.of(line)


def test_a_line_that_moved_stays_and_one_that_was_edited_goes(tmp_path):
    changes = source().changes()
    record = mutate.Record(tmp_path / "record.jsonl", {"core/f.cpp": source()})
    record.put(entry(changes[10][0]))
    record.put(entry(changes[14][0]))
    record.save()
    after = mutate.Record(record.path, {"core/f.cpp": source("\n\n" + CODE.replace("0.5", "0.25"))})
    assert [e.change.line for e in after.entries.values()] == [12] and after.gone == 1


# ---- how it goes on ----


class FakeJudge:
    def __init__(self, verdicts):
        self.verdicts, self.seen = iter(verdicts), []

    def judge(self, change):
        self.seen.append(change.key)
        verdict = next(self.verdicts)
        return entry(change, verdict, "why") if verdict else None


def attempt(record, verdicts, *words):
    judge = FakeJudge(verdicts)
    mutate.try_points(mutate.parse(["--seed", "1", *words]), record, record.sources, judge)
    return judge.seen


def test_points_are_those_that_compile_and_a_run_goes_on(tmp_path, capsys):
    record = mutate.Record(tmp_path / "record.jsonl", {"core/f.cpp": source()})
    order = [change.key for change in mutations.drawn(record.sources.values(), "1")]
    assert attempt(record, ["uncompiled", "caught", "survived"], "--points", "2") == order[:3]
    record = mutate.Record(record.path, record.sources)
    assert attempt(record, [], "--points", "2") == []
    assert attempt(record, ["unseen", "equivalent"], "--points", "3") == order[3:5]
    assert attempt(record, ["caught"], "--points", "3", "--again", "survived") == [order[2]]
    assert "survived" not in record.counts()
    mutate.show(record)
    assert "3 points: 2 caught, 0 survived, 1 equivalent" in capsys.readouterr().out


def test_a_change_without_a_verdict_is_not_recorded(tmp_path, capsys):
    record = mutate.Record(tmp_path / "record.jsonl", {"core/f.cpp": source()})
    assert len(attempt(record, [None, "caught"], "--points", "1")) == 2
    assert len(record.entries) == 1 and "undecided" in capsys.readouterr().out


def test_a_run_ends_in_time(tmp_path, capsys):
    record = mutate.Record(tmp_path / "record.jsonl", {"core/f.cpp": source()})
    assert attempt(record, [], "--points", "2", "--seconds", "-1") == []
    assert "broken off" in capsys.readouterr().out


def test_survivors_are_named(tmp_path, capsys):
    record = mutate.Record(tmp_path / "record.jsonl", {"core/f.cpp": source()})
    change = source().changes()[10][0]
    record.put(entry(change, "survived", ""))
    mutate.show(record)
    assert f"survived  core/f.cpp:10:{change.column}" in capsys.readouterr().out


# ---- tests ----


def test_every_file_has_tests_that_are_about_it():
    root = pathlib.Path(mutate.__file__).resolve().parents[2]
    for file in mutate.sources_in(root, mutate.SETS, []):
        commands = mutate.tests_of(file, "avx2")
        assert commands and all(command[0] in (*mutate.PROGRAMS, "narrows-conform") for command in commands)
    assert "[lltm]~[large]~[trap]~[.]" in mutate.tests_of("backends/cpu/ops/lltm/lltm-inl.h", "avx2")[0]
    assert mutate.tests_of("core/ops/conv1d.cpp", "avx2")[1][-1] == "[conv1d][bad]~[.],[conv1d][refusal]~[.]"


def heading(*lines):
    dashes = "-" * 79
    return "\n".join([dashes, *lines, dashes, "tests/file.cpp:1", "." * 79, "", ""])


def test_the_first_test_that_failed_is_named():
    warning = heading("a test that warns") + "tests/file.cpp:2: warning:\n  this machine has no AVX-512\n\n"
    failure = heading("a plan outlives the cache", "  deeper") + "tests/file.cpp:3: FAILED:\n  CHECK( false )\n\n"
    assert mutate.failed_test("~~~\n" + warning + failure) == "a plan outlives the cache"
    assert mutate.failed_test("~~~\n" + failure + warning) == "a plan outlives the cache"
    assert mutate.failed_test(warning) == ""
    assert mutate.failed_test("Segmentation fault") == ""
    assert mutate.one_test(("test_core",), "a, [b] and c") == ("test_core", r"a\, \[b\] and c*")
    assert mutate.one_test((*mutate.CONFORM, "avx2", "[lltm]"), "lltm: x") == (*mutate.CONFORM, "avx2", "lltm: x*")
    assert mutate.one_test(("test_core",), "") == ("test_core",)
    assert mutate.target_of(("test_core", "a*")) == "test_core"
    assert mutate.target_of((*mutate.CONFORM, "avx2", "[lltm]")) == "narrows_conformance_tests"


def test_a_test_that_hangs_is_ended(tmp_path):
    with (tmp_path / "log").open("wb") as log:
        assert mutate.run(["sleep", "60"], log, None, 0.1) is None
        assert mutate.run(["sh", "-c", "kill -SEGV $$"], log, None) == -11
        assert mutate.run(["true"], log, None, 5, 1 << 30) == 0


def test_a_command_may_take_some_times_as_long_as_where_it_passed(tmp_path):
    copy = mutate.Copy(tmp_path, "avx2", tmp_path / "log")
    program = copy.build_folder / "bin/test_core"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n[ $1 != wrong ]\n")
    program.chmod(0o755)
    assert copy.test(("test_core", "wrong"), tmp_path / "out") == 1 and copy.test(("test_core", "right"), tmp_path / "out") == 0
    for each in (copy, mutate.Copy(tmp_path, "avx2", tmp_path / "log")):
        assert each.limit(("test_core", "wrong")) == mutate.TEST_SECONDS
        assert mutate.SECONDS_MORE < each.limit(("test_core", "right")) < mutate.TEST_SECONDS


class FakeCopy:
    """Tests fail if `fails` says so of the command and of whether the file is changed."""

    def __init__(self, tree, fails):
        self.tree, self.tier, self.fails, self.changed, self.ran = tree, "avx2", fails, False, []
        self.original = source(file="core/error.cpp").data

    def build(self, targets, seconds=None):
        return True

    def artifacts(self):
        return [self.changed]

    def write(self, file, data):
        self.changed = data != self.original

    def test(self, command, output):
        self.ran.append((command[0], self.changed))
        output.write_text(heading("a test") + "tests/file.cpp:3: FAILED:\n")
        return 42 if self.fails(command[0], self.changed) else 0


@pytest.mark.parametrize(
    "fails, verdict, ran",
    [
        (lambda name, changed: False, "survived", [("test_core", True), ("test_abi", True), ("narrows-conform", True)]),
        (lambda name, changed: changed, "caught", [("test_core", True), ("test_core", False)]),
        (lambda name, changed: True, None, [("test_core", True), ("test_core", False)]),
    ],
)
def test_a_failure_counts_where_the_tree_as_it_is_has_none(tmp_path, fails, verdict, ran):
    original = source(file="core/error.cpp")
    change = mutations.drawn([original], "1")[0]
    copy = FakeCopy(tmp_path, fails)
    judge = mutate.Judge(copy, {"core/error.cpp": original})
    judged = judge.judge(change)
    assert (judged and judged.verdict) == verdict and copy.ran == ran and not copy.changed
    if verdict == "caught":
        judge.judge(change)
        assert copy.ran == [*ran, ("test_core", True)]  # known to pass without a change
