# SPDX-License-Identifier: Apache-2.0
"""How many threads a call may use: set_num_threads, get_num_threads, what a process starts with, torch's number, forks."""

import os
import pathlib
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import narrows

CAPACITY = narrows.get_num_threads()
several = pytest.mark.skipif(CAPACITY < 2, reason="a call may use one thread here, by its processors or the environment")

# Threads of a process that were not there before, and a call on so much that it is given to all that it may use.
HELPERS = """
import os, time
def count():
    return len(os.listdir("/proc/self/task"))
def started(call):
    before = count()
    for _ in range(3):
        call()
    return count() - before
"""


@pytest.fixture(autouse=True)
def all_threads():
    yield
    narrows.set_num_threads(CAPACITY)


def python(code, *, affinity=None, **environment):
    """What a new interpreter prints, and its stderr. No variable about threads is set but those that are given."""
    clean = {k: v for k, v in os.environ.items() if k not in ("NARROWS_NUM_THREADS", "OMP_NUM_THREADS")}
    command = [sys.executable, "-c", HELPERS + textwrap.dedent(code)]
    limit = None if affinity is None else lambda: os.sched_setaffinity(0, affinity)
    done = subprocess.run(command, capture_output=True, text=True, env={**clean, **environment}, timeout=300, preexec_fn=limit)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


# ---- what a process starts with ----

PRINT = "import narrows; print(narrows.get_num_threads())"


def fake_root(folder, version):
    """A folder that stands in for '/', where this process's cgroup has a quota of half a processor by its parent."""
    groups, mount, files = {
        1: ("4:cpu,cpuacct:/pod/app\n0::/\n", "cgroup cgroup rw,cpu,cpuacct", {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}),
        2: ("0::/pod/app\n", "cgroup2 cgroup2 rw", {"cpu.max": "50000 100000"}),
    }[version]  # fmt: skip
    for name, text in {"cgroup": groups, "mountinfo": f"31 24 0:27 / /sys/fs/cgroup rw - {mount}\n"}.items():
        path = pathlib.Path(folder, "proc", "self", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    group = pathlib.Path(folder, "sys", "fs", "cgroup", "pod")
    (group / "app").mkdir(parents=True)
    for name, text in files.items():
        (group / name).write_text(text)
    return str(folder)


@several
@pytest.mark.parametrize("version", [1, 2])
def test_a_throttled_container(version, tmp_path):
    assert python(PRINT, NARROWS_TEST_ROOT=fake_root(tmp_path, version)) == ("1", "")


@several
@pytest.mark.parametrize("limit", ["NARROWS_NUM_THREADS", "OMP_NUM_THREADS", "affinity"])
def test_the_smallest_limit_counts(limit):
    others = {"NARROWS_NUM_THREADS": "99", "OMP_NUM_THREADS": "98"}
    affinity = {min(os.sched_getaffinity(0))} if limit == "affinity" else None
    others.update({limit: "1"} if limit in others else {})
    assert python(PRINT, affinity=affinity, **others) == ("1", "")


def test_a_variable_that_is_no_number():
    out, err = python("import narrows; narrows.get_num_threads(); print('done')", NARROWS_NUM_THREADS="all", OMP_NUM_THREADS="-2")
    assert out == "done"
    assert "NARROWS_NUM_THREADS = 'all' is ignored; expected a number of 1 or more" in err and "OMP_NUM_THREADS = '-2'" in err


# ---- the setting ----


def test_the_number_is_what_was_set():
    for threads in range(1, CAPACITY + 1):
        assert narrows.set_num_threads(threads) is None and narrows.get_num_threads() == threads
        shown = f", {threads} of {CAPACITY} threads" if threads < CAPACITY else f", {CAPACITY} thread"
        assert shown in narrows.Device("cpu").info["arch"]
    narrows.set_num_threads(np.int64(1))
    assert narrows.get_num_threads() == 1


@pytest.mark.parametrize("number", [0, -1, CAPACITY + 1, 2**31, 2**32 + 1, 2**63, 2**70, -(2**70)])
def test_a_number_out_of_range(number):
    narrows.set_num_threads(1)
    with pytest.raises(ValueError, match=f"set_num_threads: num_threads = {number}; expected 1 to {CAPACITY}, "):
        narrows.set_num_threads(number)
    assert narrows.get_num_threads() == 1


@pytest.mark.parametrize("number", [True, False, 1.0, "1", None, np.float32(1), np.bool_(True), [1], 1 + 0j])
def test_what_is_no_number(number):
    with pytest.raises(TypeError, match=rf"set_num_threads: num_threads = .*, a {type(number).__name__}; expected an int$"):
        narrows.set_num_threads(number)
    assert narrows.get_num_threads() == CAPACITY


def test_an_index_that_raises():
    class Odd:
        def __index__(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        narrows.set_num_threads(Odd())
    for wrong in ((), (1, 2)):
        with pytest.raises(TypeError):
            narrows.set_num_threads(*wrong)


@several
def test_threads_are_started_when_a_call_may_use_them():
    code = """
        import numpy as np, narrows
        x = np.ones(1 << 18, "float32")
        call = lambda: narrows.exp(x)
        narrows.set_num_threads(1)
        one = started(call)
        narrows.set_num_threads(2)
        print(one, started(call))
    """
    assert python(code)[0] == "0 1"


def results(seed=0):
    """Bits of calls that are given to all threads: products, sums over rows, functions."""
    random = np.random.default_rng(seed)
    x, w, b = (random.normal(size=s).astype("float32") for s in ((4, 8, 3000), (16, 8, 5), (16,)))
    g = random.normal(size=(4, 16, 2996)).astype("float32")
    rows, row = random.normal(size=(300, 400)).astype("float32"), random.normal(size=(400,)).astype("float32")
    product = narrows.op("elementwise_backward", function="mul")
    outputs = [narrows.conv1d(x, w, b), *narrows.ops.conv1d_backward(g, x, w), narrows.tanh(rows), *product(rows, rows, row)]
    return [o.tobytes() for o in outputs if o is not None]


def test_results_do_not_depend_on_it():
    expected = results()
    for threads in range(1, CAPACITY):
        narrows.set_num_threads(threads)
        assert results() == expected


def test_it_is_set_while_calls_run_in_other_threads():
    expected, failed, done = results(), [], threading.Event()

    def work():
        for _ in range(3):
            if results() != expected:
                failed.append("other results")

    def change():
        while not done.is_set():
            for threads in (1, CAPACITY):
                narrows.set_num_threads(threads)
                if not 1 <= narrows.get_num_threads() <= CAPACITY:
                    failed.append(narrows.get_num_threads())

    changing, working = threading.Thread(target=change), [threading.Thread(target=work) for _ in range(3)]
    for thread in [changing, *working]:
        thread.start()
    for thread in working:
        thread.join()
    done.set()
    changing.join()
    assert not failed


def test_a_forked_child_has_a_number_of_its_own():
    code = """
        import os, numpy as np, narrows
        x = np.ones(1 << 18, "float32")
        narrows.exp(x)
        capacity = narrows.get_num_threads()
        narrows.set_num_threads(1)
        child = os.fork()
        if child == 0:
            good = narrows.get_num_threads() == 1 and started(lambda: narrows.exp(x)) == 0
            try:
                narrows.set_num_threads(capacity + 1)
            except ValueError as error:
                good = good and f"expected 1 to {capacity}" in str(error)
            narrows.set_num_threads(capacity)
            good = good and started(lambda: narrows.exp(x)) == capacity - 1 and narrows.get_num_threads() == capacity
            os._exit(0 if good else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), narrows.get_num_threads())
    """
    assert python(code)[0] == "0 1"


# ---- torch's number ----


@several
def test_torchs_number_is_followed_where_its_tensors_are_computed():
    pytest.importorskip("torch")
    code = """
        import threading, numpy as np, torch, narrows
        x, g = torch.ones(1 << 18), torch.ones(1 << 18, requires_grad=True)
        signal = torch.ones(1025)
        torch.set_num_threads(1)
        def calls():
            narrows.exp(x)
            narrows.exp(x, out=torch.empty_like(x))
            torch.ops.narrows.elementwise(x, x, function="add")
            narrows.square(g).sum().backward()
            torch.func.vmap(narrows.exp)(x.reshape(2, -1))
            narrows.conv1d(signal, signal, padding=1024)
        print(started(calls), narrows.get_num_threads() > 1)
        def in_a_thread():  # of torch's own number: that of the calling thread
            torch.set_num_threads(1)
            print(torch.get_num_threads(), started(calls))
        torch.set_num_threads(2)
        alone = count()
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        while count() > alone:  # Linux lists a thread a little longer than Python
            time.sleep(0.01)
        print(started(lambda: narrows.exp(x)))
    """
    assert python(code)[0].splitlines() == ["0 True", "1 0", "1"]
    code = """
        import numpy as np, torch, narrows
        torch.set_num_threads(1)
        x = torch.ones(1 << 18)
        print(started(lambda: narrows.exp(x)), started(lambda: narrows.exp(x.numpy())))  # NumPy's arrays follow our number alone
    """
    assert python(code)[0] == "0 1"


@several
def test_a_worker_of_torchs_data_loader():
    pytest.importorskip("torch")
    code = """
        import torch, narrows
        x = torch.ones(1 << 18)
        narrows.exp(x)
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 2
            def __getitem__(self, index):
                return started(lambda: narrows.exp(x)), torch.get_num_threads(), float(narrows.exp(x).sum())
        for worker in torch.utils.data.DataLoader(Data(), num_workers=1, batch_size=None):
            print(worker[0], worker[1], worker[2] == float(narrows.exp(x).sum()))
    """
    assert python(code)[0].split() == ["0", "1", "True"] * 2
