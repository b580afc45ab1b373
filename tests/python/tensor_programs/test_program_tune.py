# SPDX-License-Identifier: Apache-2.0
"""Schedule.tune: what it finds computes the same, is kept, and is what later builds have; spoilt files are ignored aloud."""

import json
import pathlib
import warnings

import numpy as np
import pytest

from narrows.program import PrimFunc, Schedule, _tuning

TEXTS = pathlib.Path(__file__).parents[2] / "program" / "texts"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NARROWS_CACHE_DIR", str(tmp_path / "cache"))


def mm_relu():
    return PrimFunc((TEXTS / "mm_relu.program").read_text())


def operands():
    return np.random.default_rng(3).standard_normal((2, 128, 128), dtype="float32")


def kept_file():
    (found,) = (_tuning._folder()).iterdir()
    return found


def loaded_text(monkeypatch, build):
    """How the program is scheduled that build() makes an op of."""
    seen = []
    load = _tuning._library.Program.load
    monkeypatch.setattr(_tuning._library.Program, "load", lambda self, *how: (seen.append(self.text()), load(self, *how))[1])
    op = build()
    return seen[-1], op


def test_it_computes_the_same_and_is_kept(monkeypatch):
    a, b = operands()
    sch = Schedule(mm_relu())
    found = sch.tune(a, b, budget=0.5)
    assert found.tried >= 2 and 0 < found.seconds <= found.default_seconds and found.path == kept_file()
    kept = json.loads(kept_file().read_text())
    assert kept["trace"] == list(sch.trace) and kept["shapes"] == [[128, 128], [128, 128]]
    text, op = loaded_text(monkeypatch, mm_relu().build)
    assert text == sch.mod["mm_relu"].text
    np.testing.assert_allclose(op(a, b), np.maximum(a.astype("float64") @ b, 0), rtol=1e-4, atol=1e-4)


def kept_by_hand(trace, **changed):
    """A result as tune() keeps it, of one step."""
    digest, machine = mm_relu().program.digest(), _tuning._machine("cpu")
    path = _tuning._place(digest, machine)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"format": 1, "program": digest, "machine": machine, "trace": trace, **changed}))
    return path


def test_what_was_kept_is_what_a_build_has(monkeypatch):
    kept_by_hand(['parallel(loop="j1")'])
    text, _ = loaded_text(monkeypatch, mm_relu().build)
    assert "for j1 in 128 parallel:" in text and "for i in 128:" in text


@pytest.mark.parametrize(
    "spoil, reason",
    [
        (lambda path: path.write_text("{"), "Expecting"),
        (lambda path: path.write_text("[]"), "it is not of format 1"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "decode"),
        (lambda path: path.write_text("[" * 100_000), "recursion"),  # a RuntimeError
    ],
)
def test_a_spoilt_file_is_ignored_aloud(monkeypatch, spoil, reason):
    path = kept_by_hand([])
    spoil(path)
    with pytest.warns(RuntimeWarning, match=f"{path.name} is ignored: .*{reason}"):
        text, _ = loaded_text(monkeypatch, mm_relu().build)
    assert "vectorize" in text  # the default schedule


@pytest.mark.parametrize(
    "trace, changed, reason",
    [
        (['parallel(loop="k")'], {}, "loop 'k' is parallel"),
        (["nonsense"], {}, "nonsense"),
        ([], {"program": "0" * 32}, "it is of another program or machine"),
        ([], {"machine": {"name": "another"}}, "it is of another program or machine"),
        ([], {"format": 2}, "it is not of format 1"),
        ([1], {}, "its trace is no list of lines"),
    ],
)
def test_a_foreign_file_is_ignored_aloud(monkeypatch, trace, changed, reason):
    kept_by_hand(trace, **changed)
    with pytest.warns(RuntimeWarning, match=reason):
        text, _ = loaded_text(monkeypatch, mm_relu().build)
    assert "vectorize" in text


def test_a_step_that_is_not_offered_is_ignored_aloud(monkeypatch):
    kept_by_hand(['parallel(loop="j1")'])

    def refuse(self, line):
        raise NotImplementedError(f"{line} is not offered")

    monkeypatch.setattr(_tuning._library.Program, "step", refuse)
    with pytest.warns(RuntimeWarning, match="j1.* is not offered"):
        text, _ = loaded_text(monkeypatch, mm_relu().build)
    assert "vectorize" in text


@pytest.mark.parametrize("error", [RuntimeError("Could not determine home directory."), PermissionError(13, "denied")])
def test_without_a_home_a_build_has_the_default(monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(_tuning, "_folder", refuse)
    text, _ = loaded_text(monkeypatch, mm_relu().build)
    assert "vectorize" in text
    with pytest.raises(type(error)):
        Schedule(mm_relu()).tune(*operands(), budget=60)


def test_where_nothing_is_kept_the_default_stays():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mm_relu().build()
    sch, (a, b) = Schedule(mm_relu()), operands()
    assert sch.tune(a, b, budget=0.01, keep=False).path is None
    assert not _tuning._folder().exists()


def test_a_folder_that_cannot_be_is_said_before_anything_runs(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NARROWS_CACHE_DIR", str(tmp_path / "file"))
    a, b = operands()
    sch = Schedule(mm_relu())
    with pytest.raises(OSError, match=r"tune: results cannot be kept in .*file/tuned"):
        sch.tune(a, b, budget=60)
    assert len(sch.trace) == 0


def test_bad_arguments():
    a, b = operands()
    with pytest.raises(ValueError, match="budget = 0; expected seconds, more than 0"):
        Schedule(mm_relu()).tune(a, b, budget=0)
    with pytest.raises(NotImplementedError, match="'metal'"):
        Schedule(mm_relu()).tune(a, b, backend="metal")
    with pytest.raises((ValueError, TypeError), match=r"B|b"):
        Schedule(mm_relu()).tune(a, budget=0.1, keep=False)


def test_neighbours_change_one_line():
    program = mm_relu().program.copy()
    program.step('split(loop="j", factors=[None, 8])')
    program.step('reorder(loops=["j_0", "k", "j_1"])')
    found = [tuple(trace) for trace in _tuning._neighbours(program)]
    assert ('split(loop="j", factors=[None, 16])', program.trace()[1]) in found
    assert (program.trace()[0], 'reorder(loops=["k", "j_0", "j_1"])') in found
    assert len(set(found)) == len(found)
