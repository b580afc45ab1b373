# SPDX-License-Identifier: Apache-2.0
"""Schedule.tune: what it finds computes the same, is kept, and is what later builds have; spoilt files are ignored aloud."""

import json
import pathlib
import threading
import warnings

import numpy as np
import pytest

from narrows.program import PrimFunc, Schedule, _tuning

TEXTS = pathlib.Path(__file__).parents[3] / "examples" / "programs"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NARROWS_CACHE_DIR", str(tmp_path / "cache"))


DEFAULT = "default"


def mm_relu():
    return PrimFunc((TEXTS / "mm_relu.program").read_text())


def operands():
    return np.random.default_rng(3).standard_normal((2, 128, 128), dtype="float32")


def kept_file():
    (found,) = (_tuning._folder()).iterdir()
    return found


def loaded_text(monkeypatch, build):
    """How the program is scheduled that build() makes an op of: its text, or DEFAULT, which is every backend's own."""
    seen = []
    load = _tuning._library.Program.load

    def watched(self, backend, *how):
        seen.append(DEFAULT if backend is None else self.text())
        return load(self, backend, *how)

    monkeypatch.setattr(_tuning._library.Program, "load", watched)
    op = build()
    return seen[-1], op


def timed(monkeypatch, seconds_of):
    """Results are computed; the seconds of a schedule are those of its text. Gives the list of what is loaded."""
    loaded, load = [], _tuning._library.Program._load
    monkeypatch.setattr(_tuning._library.Program, "_load", lambda self, *how: (loaded.append(self.text()), load(self, *how))[1])
    monkeypatch.setattr(_tuning, "run", lambda op, inputs, how, _: (op(*inputs, **how), seconds_of(loaded[-1])))
    return loaded


def scheduled(*lines):
    """The text with these steps, or with those of the default schedule."""
    program = mm_relu().program.copy()
    for line in lines:
        program.step(line)
    if not lines:
        program.auto("cpu")
    return program.text()


def test_it_computes_the_same_and_is_kept(monkeypatch):
    a, b = operands()
    sch, default = Schedule(mm_relu()), scheduled()
    with monkeypatch.context() as patch:
        timed(patch, lambda text: 1.0 if text == default else 0.5)
        found = sch.tune(a, b, budget=1e-9)
    assert (found.tried, found.failed, found.seconds, found.default_seconds) == (2, 0, 0.5, 1.0)
    kept = json.loads(kept_file().read_text())
    assert found.path == kept_file() and kept["trace"] == list(sch.trace) and kept["shapes"] == [[128, 128], [128, 128]]
    text, op = loaded_text(monkeypatch, mm_relu().build)
    assert text == sch.mod["mm_relu"].text != default
    np.testing.assert_allclose(op(a, b), np.maximum(a.astype("float64") @ b, 0), rtol=1e-4, atol=1e-4)


def test_by_the_clock():
    found = Schedule(mm_relu()).tune(*operands(), budget=0.3)
    assert found.tried >= 2 and 0 < found.seconds <= found.default_seconds
    assert (found.path is None) == (found.seconds == found.default_seconds)


def test_where_the_default_is_fastest_nothing_is_kept(monkeypatch):
    kept_by_hand(['parallel(loop="j1")'])
    default, own = scheduled(), scheduled('parallel(loop="i")')
    loaded = timed(monkeypatch, lambda text: {default: 1.0, own: 3.0}.get(text, 2.0))
    sch = Schedule(mm_relu())
    sch.parallel("i")
    found = sch.tune(*operands(), budget=1e-9)
    assert (found.seconds, found.default_seconds, found.path) == (1.0, 1.0, None)
    assert not list(_tuning._folder().iterdir()) and sch.mod["mm_relu"].text == loaded[-1] == default


def test_what_was_kept_stays_while_it_is_the_fastest(monkeypatch):
    step = 'parallel(loop="j1")'
    kept_by_hand([step])
    default, kept = scheduled(), scheduled(step)
    loaded = timed(monkeypatch, lambda text: {default: 1.0, kept: 0.1}.get(text, 0.5))
    assert Schedule(mm_relu()).tune(*operands(), budget=0.5).seconds == 0.1
    assert json.loads(kept_file().read_text())["trace"] == [step] and loaded[-1] == kept


@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError, MemoryError])
def test_candidates_that_fail_are_counted(monkeypatch, error):
    default = scheduled()

    def seconds_of(text):
        if text != default:
            raise error("no")
        return 1.0

    loaded = timed(monkeypatch, seconds_of)
    found = Schedule(mm_relu()).tune(*operands(), budget=1e-9)
    assert (found.tried, found.failed, found.seconds) == (1, 1, 1.0) and "1 failed" in repr(found)
    assert loaded[-1] == default


def test_an_interrupted_search_leaves_the_best(monkeypatch):
    default = scheduled()

    def seconds_of(text):
        if text != default:
            raise KeyboardInterrupt
        return 1.0

    loaded = timed(monkeypatch, seconds_of)
    with pytest.raises(KeyboardInterrupt):
        Schedule(mm_relu()).tune(*operands(), budget=60)
    assert set(loaded) > {default} and loaded[-1] == default
    assert not list(_tuning._folder().iterdir())


def test_out_is_refused():
    a, b = operands()
    for measure in (Schedule(mm_relu()).tune, Schedule(mm_relu()).evaluate):
        with pytest.raises(ValueError, match="out is given; expected none"):
            measure(a, b, out=np.empty_like(a))


def test_a_search_that_is_refused_changes_no_schedule():
    a, b = operands()
    f = mm_relu().build()
    before, sch = f.source(), Schedule(mm_relu())
    sch.bind("i", "threadIdx.x")
    with pytest.raises(NotImplementedError, match="is bound to thread"):
        sch.tune(a, b, budget=1e-9)
    assert f.source() == before
    f(a, b)


def test_threads_keep_results_at_one_place(tmp_path):
    path, errors = tmp_path / "kept.json", []

    def keep():
        try:
            for i in range(50):
                _tuning._keep(path, {"seconds": i})
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=keep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and list(tmp_path.iterdir()) == [path] and json.loads(path.read_text()) == {"seconds": 49}


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
    assert text == DEFAULT


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
    assert text == DEFAULT


def test_a_step_that_is_not_offered_is_ignored_aloud(monkeypatch):
    kept_by_hand(['parallel(loop="j1")'])

    def refuse(self, line):
        raise NotImplementedError(f"{line} is not offered")

    monkeypatch.setattr(_tuning._library.Program, "step", refuse)
    with pytest.warns(RuntimeWarning, match="j1.* is not offered"):
        text, _ = loaded_text(monkeypatch, mm_relu().build)
    assert text == DEFAULT


@pytest.mark.parametrize("error", [RuntimeError("Could not determine home directory."), PermissionError(13, "denied")])
def test_without_a_home_a_build_has_the_default(monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(_tuning, "_folder", refuse)
    text, _ = loaded_text(monkeypatch, mm_relu().build)
    assert text == DEFAULT
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
    with pytest.raises(ValueError, match="backend = 'metal'"):
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
