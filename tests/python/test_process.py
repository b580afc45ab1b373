# SPDX-License-Identifier: Apache-2.0
"""What a process goes through: references and memory, threads, fork, exit, imports in any order."""

import collections
import ctypes
import gc
import importlib.util
import itertools
import os
import pathlib
import pty
import re
import resource
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
import wave
from typing import ClassVar

import numpy as np
import pytest

import narrows

CALLS = int(os.environ.get("NARROWS_TEST_CALLS", "100000"))  # of each route; fewer where one version of many is tried


def python(code, **environment):
    """A new interpreter; its output."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def raises(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except (TypeError, ValueError, NotImplementedError):
        return
    raise AssertionError("no error")


def routes():
    """(name, call, an array whose references are counted) of each way through the package."""
    x = np.ones(16, "float32")
    out = np.empty_like(x)
    t = narrows.from_dlpack(x)
    bound = narrows.op("conv1d", stride=2)
    lltm, h = narrows.op("lltm"), np.zeros((1, 2), "float32")
    out_h = h.copy()
    cell = h, np.zeros((6, 4), "float32"), np.zeros(6, "float32"), h.copy(), h.copy()
    yield "numpy", lambda: narrows.add(x, x), x
    yield "numpy out", lambda: narrows.add(x, 2, out=out), out
    yield "numpy bound", lambda: bound(x, x), x
    yield "numpy keywords", lambda: bound(x, x, dilation=1, pad_left=3), x
    yield "own", lambda: narrows.add(t, t), t
    yield "own memory", lambda: narrows.empty((4, 4)), t
    yield "own copy", lambda: t.to("cpu"), t
    yield "from_dlpack", lambda: narrows.from_dlpack(x), x
    yield "error", lambda: raises(narrows.add, x, x[:3]), x
    yield "error of python", lambda: raises(narrows.add, x, "a"), x
    yield "operands", lambda: narrows.subtract(2, x), x
    yield "device", lambda: narrows.add(x, 2, device="cpu"), x
    yield "dlpack out and in", lambda: np.from_dlpack(t), t
    yield "dlpack copy", lambda: t.__dlpack__(copy=True, max_version=(1, 0)), t
    yield "numpy.asarray", lambda: np.asarray(t), t
    yield "outputs in a list", lambda: lltm(*cell, out=[out_h, h.copy()]), out_h
    yield "op by name", lambda: narrows.op("conv1d", stride=3)(x, x), x
    yield "build and load", lambda: narrows.load_inline("flat", PLUGIN), x


def torch_routes():
    torch = pytest.importorskip("torch")
    import narrows.torch

    y, z, g = torch.ones(16), torch.empty(16), torch.ones(16, requires_grad=True)
    op = torch.ops.narrows.elementwise
    x = np.ones(16, "float32")
    cell, state = narrows.torch.LLTM(3, 2), (torch.zeros(1, 2), torch.zeros(1, 2))
    compiled = torch.compile(lambda a: narrows.add(narrows.exp(a), 1), backend="aot_eager", fullgraph=True)
    negated = torch.complex(y, y).conj().imag
    yield "torch", lambda: narrows.add(y, y), y
    yield "torch out", lambda: narrows.add(y, 2, out=z), y
    yield "torch dispatcher", lambda: op(y, y, function="add"), y
    yield "torch autograd", lambda: torch.autograd.grad(narrows.multiply(g, y), g, y), g
    yield "torch dispatcher autograd", lambda: torch.autograd.grad(op(g, y, function="mul"), g, y), g
    yield "torch module", lambda: cell(y[None, :3], state)[0].sum().backward(), state[0]
    yield "torch compiled", lambda: compiled(y), y
    yield "torch error", lambda: raises(narrows.add, y, y[:3]), y
    yield "torch functional", lambda: torch.func.grad(lambda a: narrows.exp(a).sum())(y), y
    yield "torch vmap", lambda: torch.vmap(narrows.exp)(y), y
    yield "torch mixed", lambda: narrows.add(y, x), y
    yield "torch lazily negated", lambda: narrows.add(negated, 1), negated


def jax_routes():
    jax = pytest.importorskip("jax")
    import narrows.jax

    a = jax.numpy.ones(16)
    jitted, gradient = jax.jit(lambda a: narrows.add(a, a)), jax.jit(jax.grad(lambda a: narrows.exp(a).sum()))
    mapped = jax.jit(jax.vmap(lambda a: narrows.multiply(a, 2)))
    given = [jax.numpy.ones(16)]

    def donate():
        given[0] = narrows.jax.call("elementwise", given[0], 0, function="add", donate=(0,))

    yield "jax", lambda: narrows.add(a, a), a
    yield "jax jit", lambda: jitted(a), a
    yield "jax gradient", lambda: gradient(a), a
    yield "jax jit of vmap", lambda: mapped(a), a
    yield "jax vmap", lambda: jax.vmap(narrows.exp)(a), a
    yield "jax donation", donate, a
    yield "jax error", lambda: raises(narrows.add, a, a[:3]), a
    yield "jax read", lambda: narrows.add(np.ones(16, "float32"), a), a


PLUGIN = """
#include <narrows/plugin.hpp>
void copy(const narrows::plugin::Launch& call) {
  call.parallel_for(call.size(0), [x = call.input<float>(0), y = call.output<float>(0)](int64_t i) { y[i] = x[i]; });
}
NARROWS_PLUGIN("flat", {.name = "flat.copy/1", .inputs = {"x"}, .outputs = {"y"}, .shape_rule = "like 0", .kernel = copy})
"""

# What CALLS is divided by: 10^5 calls of each of these would take minutes. `./run check python --long` makes them all.
SLOW = {"operands": 10, "torch dispatcher": 10, "torch autograd": 20, "from_dlpack": 4, "torch error": 2, "torch functional": 100,
        "torch vmap": 100, "torch lazily negated": 20, "device": 10, "own copy": 2, "op by name": 4, "build and load": 1000,
        "torch dispatcher autograd": 50, "torch module": 50, "torch compiled": 20, "torch mixed": 4, "jax": 5,
        "jax gradient": 5, "jax jit of vmap": 5, "jax vmap": 200, "jax donation": 20, "jax error": 200, "jax read": 10}  # fmt: skip
NAMES = ["numpy", "numpy out", "numpy bound", "numpy keywords", "own", "own memory", "own copy", "from_dlpack", "error",
         "error of python", "operands", "device", "dlpack out and in", "dlpack copy", "numpy.asarray", "outputs in a list", "op by name",
         "build and load"]  # fmt: skip
TORCH_NAMES = ["torch", "torch out", "torch dispatcher", "torch autograd", "torch dispatcher autograd", "torch module",
               "torch compiled", "torch error", "torch functional", "torch vmap", "torch mixed", "torch lazily negated"]  # fmt: skip
JAX_NAMES = ["jax", "jax jit", "jax gradient", "jax jit of vmap", "jax vmap", "jax donation", "jax error", "jax read"]


class Allocated(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_: ClassVar = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]  # fmt: skip


_mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)  # glibc 2.33
if _mallinfo is not None:
    _mallinfo.restype = Allocated


def memory():
    """What is in use now: blocks of Python's own allocator, bytes of malloc's, and resident bytes."""
    gc.collect()
    with open("/proc/self/statm") as f:
        resident = int(f.read().split()[1]) * resource.getpagesize()
    allocated = _mallinfo() if _mallinfo is not None else Allocated()
    return np.array([sys.getallocatedblocks(), allocated.uordblks + allocated.hblkhd, resident])


KEEPS_CLASSES = sys.version_info < (3, 14) and sysconfig.get_config_var("Py_GIL_DISABLED") == 1
OF_NONE = {"torch functional", "torch vmap", "torch compiled"}  # where torch itself leaks references to None
ROUNDS, MOST_ROUNDS = 4, 24  # glibc counts what threads keep for their next malloc as in use: up to some 200 KiB each
GROWTH = np.array([10, 4 << 10, 512 << 10])  # of memory() in a round, beside a block for 50 calls: JAX keeps one for 100


def check_flat(name, call, array):
    """Neither references nor memory grow with the calls each time: what is kept once is no leak.

    CALLS calls are made in ROUNDS; where memory was flat in none, more rounds follow, since only a leak grows in each of MOST_ROUNDS;
    where references grew, as many calls once and twice more.
    """
    slow = SLOW.get(name, 1) if name == "build and load" or os.environ.get("NARROWS_TEST_SLOW") != "1" else 1
    calls = CALLS // slow  # 100,000 starts of a compiler would take hours
    for _ in range(min(500, calls)):
        call()
    watched = [array, narrows.add]
    if name not in OF_NONE:
        watched.append(None)
    gc.collect()
    references = [[sys.getrefcount(o) for o in watched]]
    bound = GROWTH + np.array([calls // ROUNDS // 50, 0, 0])

    def after_a_round():
        for _ in range(max(1, calls // ROUNDS)):
            call()
        return memory()

    def each_was_flat_once(states):
        return (np.diff(states, axis=0).min(axis=0) < bound).all()

    def grew():
        references.append([sys.getrefcount(o) for o in watched])
        return max(np.subtract(*references[:-3:-1])) >= min(50, 10 + calls // 50)

    states = [memory(), *(after_a_round() for _ in range(ROUNDS))]
    for _ in range(2):
        if not grew():
            break
        states += [after_a_round() for _ in range(ROUNDS)]
    else:
        assert not grew(), references
    while not each_was_flat_once(states) and len(states) <= MOST_ROUNDS:
        states.append(after_a_round())
    assert each_was_flat_once(states), (
        f"blocks, bytes of malloc, resident bytes in each round of {calls // ROUNDS}:\n{np.diff(states, axis=0)}"
    )


def route(found, name):
    return next(r for r in found if r[0] == name)


@pytest.mark.parametrize("name", NAMES)
def test_references_and_memory_stay_flat(name):
    check_flat(*route(routes(), name))


@pytest.mark.parametrize("name", TORCH_NAMES)
def test_references_and_memory_of_torch_stay_flat(name):
    if name == "torch functional" and KEEPS_CLASSES:
        pytest.skip("CPython 3.13 without the GIL never frees a class (3.14 does), and torch.func.grad makes one for each call")
    check_flat(*route(torch_routes(), name))


@pytest.mark.parametrize("name", JAX_NAMES)
def test_references_and_memory_of_jax_stay_flat(name):
    check_flat(*route(jax_routes(), name))


def test_every_route_is_tried():
    assert [r[0] for r in routes()] == NAMES
    for module, found, names in (("torch", torch_routes, TORCH_NAMES), ("jax", jax_routes, JAX_NAMES)):
        if importlib.util.find_spec(module) is not None:
            assert [r[0] for r in found()] == names


@pytest.mark.parametrize("lost", ["a reference", "a block", "memory of malloc"])
def test_a_leak_in_every_eighth_call_is_found(lost, monkeypatch):
    if os.environ.get("NARROWS_TEST_ALONE") != "1":  # in a process of its own: what earlier tests left frees memory meanwhile
        name = f"{__file__}::test_a_leak_in_every_eighth_call_is_found[{lost}]"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", name]
        environment = {**os.environ, "NARROWS_TEST_ALONE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
        assert done.returncode == 0 and ("1 passed" in done.stdout or "1 skipped" in done.stdout), done.stdout
        return
    kept, x, calls = [], np.ones(1, "float32"), itertools.count(1)
    malloc = ctypes.CDLL(None).malloc
    leak = {
        "a reference": lambda: kept.append(x),
        "a block": lambda: kept.append(object()),
        "memory of malloc": lambda: malloc(1 << 10),
    }
    if lost == "memory of malloc" and _mallinfo is None:
        pytest.skip("this C library has no mallinfo2")
    monkeypatch.delenv("NARROWS_TEST_SLOW", raising=False)
    monkeypatch.setattr(sys.modules[__name__], "CALLS", 100_000)
    monkeypatch.setattr(sys.modules[__name__], "MOST_ROUNDS", 8)
    with pytest.raises(AssertionError):
        check_flat("jax vmap", lambda: next(calls) % 8 == 0 and leak[lost](), x)  # of the fewest calls but one


def growth_of(call):
    """Of the resident memory in 100 calls, after some."""
    for _ in range(3):
        call()
    before = memory()[2]
    for _ in range(100):
        call()
    return memory()[2] - before


def test_memory_of_outputs_is_given_back():
    x = narrows.from_dlpack(np.ones(1 << 20, "float32"))
    grown_by = lambda kept: growth_of(lambda: kept.append(np.from_dlpack(narrows.add(x, 1))))  # noqa: E731
    np.ones(200 << 20, "uint8").sum()  # which a process's high-water mark would hold against what is lost later
    assert grown_by(collections.deque(maxlen=1)) < 64 << 20  # of 400 MiB
    assert grown_by([]) > 300 << 20


def test_threads():
    rng = np.random.default_rng(0)
    failures = []

    def work(seed):
        x = rng.normal(size=(2, 3, 50 + seed)).astype("float32")
        w = np.ones((4, 3, 3), "float32")
        expected = narrows.conv1d(x, w, stride=1 + seed % 3)
        for i in range(300):
            bound = narrows.op("conv1d", stride=1 + seed % 3)
            if not np.array_equal(bound(x, w), expected) or not np.array_equal(narrows.add(x, i), x + np.float32(i)):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures


@pytest.mark.skipif(sysconfig.get_config_var("Py_GIL_DISABLED") == 1, reason="this Python has no GIL")
def test_the_gil_is_released():
    w = np.ones((256, 64, 33), "float32")
    x = np.ones((4, 64, 4096), "float32")
    seconds = 0.0
    while seconds < 0.2:  # of a call: enough turns for a thread, whatever the machine
        x = np.concatenate([x, x])
        start = time.perf_counter()
        narrows.conv1d(x, w)
        seconds = time.perf_counter() - start
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(1)
            done.wait(0.001)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    while not ticks:
        time.sleep(0.001)
    count = len(ticks)
    narrows.conv1d(x, w)
    grown = len(ticks) - count
    done.set()
    thread.join()
    assert grown > 5


def test_after_fork():
    x = np.ones(8, "float32")
    t = narrows.from_dlpack(x)
    narrows.add(x, x)
    pid = os.fork()
    if pid == 0:
        ok = np.array_equal(narrows.add(x, 1), x + 1) and np.array_equal(narrows.add(t, 1).numpy(), x + 1)
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_torchs_tensors_after_fork():
    pytest.importorskip("torch")
    python("""
        import os, torch, narrows
        torch.set_num_threads(1)
        x, w = torch.rand(2, 3, 900), torch.rand(4, 3, 9)
        before = narrows.conv1d(x, w)
        pid = os.fork()
        if pid == 0:
            same = torch.equal(narrows.conv1d(x, w), before) and torch.equal(narrows.add(before, 1), before + 1)
            g = narrows.exp(x.requires_grad_()).sum().backward()
            os._exit(0 if same and x.grad is not None else 1)
        assert os.waitpid(pid, 0)[1] == 0
    """)


def test_exit_with_jaxs_arrays_alive():
    pytest.importorskip("jax")
    python("""
        import builtins, jax, narrows
        x = jax.numpy.ones(4)
        builtins.kept = narrows.add(x, x), narrows.from_dlpack(x), jax.jit(lambda a: narrows.exp(a))(x), narrows.Stream()
    """)


def test_plugins_are_loaded_while_torch_compiles(scale_plugin, minimal_plugin):
    pytest.importorskip("torch")
    paths = {b["name"]: b["path"] for b in narrows.info()["backends"]}
    out = python(f"""
        import threading, torch, narrows
        torch.set_num_threads(1)
        started, failed = threading.Event(), []
        def load():
            started.wait()
            try:
                for path in {[paths["test"], paths["example"]]!r}:
                    narrows.load(path)
            except Exception as error:
                failed.append(error)
        thread = threading.Thread(target=load)
        thread.start()
        for i in range(12):
            torch._dynamo.reset()
            f = torch.compile(lambda x: narrows.add(narrows.exp(x), i), fullgraph=True, backend="aot_eager")
            assert torch.allclose(f(torch.zeros(3)), torch.full((3,), 1.0 + i))
            started.set()
        thread.join()
        f = torch.compile(lambda x: narrows.ops.test.scale(x, factor=3.0) * 2, fullgraph=True, backend="aot_eager")
        print(failed, f(torch.ones(2)).tolist(), torch.ops.narrows.test_scale_1(torch.ones(2)).tolist())
    """)
    assert out == "[] [6.0, 6.0] [2.0, 2.0]\n"


def test_exit_with_results_alive():
    python("""
        import narrows, numpy
        t = narrows.add(narrows.from_dlpack(numpy.ones(4, "float32")), 1)
        import builtins
        builtins.kept = t, numpy.from_dlpack(t), numpy.asarray(t), narrows.Stream(), t.__dlpack__()
    """)
    pytest.importorskip("torch")
    python("""
        import narrows, torch, builtins
        builtins.kept = torch.from_dlpack(narrows.empty((3,))), narrows.add(torch.ones(3, requires_grad=True), 1)
    """)


def test_import_takes_few_modules_and_no_framework():
    """How long it takes is a row of benchmarks/python_calls.py: no test depends on the clock."""
    out = python("""
        import sys
        before = set(sys.modules)  # an environment may import some at every start
        import narrows
        print(*sorted(set(sys.modules) - before))
    """).split()
    assert "narrows._narrows" in out and not {"torch", "jax", "numpy", "cupy", "inspect", "subprocess"} & set(out)
    assert len(out) < 20, out


@pytest.mark.parametrize(
    "order",
    [
        "import narrows, torch",
        "import torch, narrows",
        "import torch, torch._dynamo, narrows",
        "import narrows, importlib.util; importlib.util.find_spec('torch'); import torch",  # who asks first whether torch is there
    ],
)
def test_torch_has_the_ops_in_any_order(order):
    pytest.importorskip("torch")
    out = python(f"""
        {order}
        print(torch.ops.narrows.elementwise(torch.ones(2), torch.ones(2), function="add").tolist())
        print(torch.compile(lambda x: narrows.exp(x) * 1, fullgraph=True, backend="eager")(torch.zeros(2)).tolist())
        print(hasattr(torch.ops.narrows, "nothing_of_that_name"))
    """)
    assert out == "[2.0, 2.0]\n[1.0, 1.0]\nFalse\n"


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="what NumPy imports is read-only")
def test_cupy_by_its_specification():
    """There is no GPU here: a module of CuPy's names over NumPy shows which of them are called, and with what."""
    out = python("""
        import sys, types, numpy as np
        class ndarray:
            def __init__(self, data): self.data, self.dtype = data, data.dtype
            def __dlpack__(self, **keywords): print("given", keywords.get("max_version")); return self.data.__dlpack__(**keywords)
            def __dlpack_device__(self): return self.data.__dlpack_device__()
        def from_dlpack(x):
            x.__dlpack__(stream=7)  # whatever CuPy asks for, nothing has to wait
            return ndarray(np.from_dlpack(x))
        cupy = types.ModuleType("cupy")
        cupy.ndarray, cupy.from_dlpack, cupy.asarray = ndarray, from_dlpack, lambda x, dtype: ndarray(np.asarray(x, dtype))
        ndarray.__module__ = "cupy"
        sys.modules["cupy"] = cupy
        import narrows
        y = narrows.add(ndarray(np.float32([1, 2])), 1)
        print(type(y) is ndarray, y.data.tolist())
        print(narrows.subtract(3, ndarray(np.float32([1, 2]))).data.tolist())
        print(narrows.add(ndarray(np.float32([1])), np.float32([2])).data.tolist())
    """)
    lines = out.splitlines()
    assert [line for line in lines if "given" not in line] == ["True [2.0, 3.0]", "[2.0, 1.0]", "[3.0]"]
    assert lines[0] == "given (1, 3)"


def test_plugins_of_the_environment(scale_plugin, tmp_path):
    path = next(b["path"] for b in narrows.info()["backends"] if b["name"] == "test")
    (tmp_path / "narrows_test.so").symlink_to(path)
    out = python(
        'import narrows, numpy; print(narrows.ops.test.scale(numpy.ones(2, "float32"), factor=3))',
        NARROWS_PLUGIN_PATH=str(tmp_path),
    )
    assert out == "[3. 3.]\n"


def test_info_is_data_and_a_table():
    info = narrows.info()
    cpu = next(b for b in info["backends"] if b["name"] == "cpu")
    assert cpu["status"] == "ok" and cpu["devices"][0]["device"] == "cpu" and {"conv1d", "lltm"} <= {o["name"] for o in cpu["ops"]}
    assert "<table>" in info._repr_html_() and "cpu" in repr(info)


def test_bench():
    times = narrows.bench({"a": lambda: 1, "b": lambda: sum(range(1000))}, seconds=0.02)
    assert times["b"] > times["a"] > 0 and "<table>" in times._repr_html_() and "b" in repr(times)


def test_help_names_the_subcommands_of_python():
    source = (pathlib.Path(narrows.__file__).parent / "__main__.py").read_text()
    own = set(re.findall(r'words\[:1\] == \["(\w+)"\]', source)) - {"info"}  # which becomes the binary's
    said = subprocess.run([sys.executable, "-m", "narrows", "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"`{word}`" in said for word in own) and f"has {['no', 'one', 'two', 'three', 'four'][len(own)]} more" in said


def test_the_command():
    done = subprocess.run([sys.executable, "-m", "narrows", "info"], capture_output=True, text=True)
    assert done.returncode == 0 and "cpu" in done.stdout


@pytest.mark.parametrize("terminal", [True, False])
def test_the_demo_shows_its_progress_on_a_terminal_only(terminal, tmp_path):
    sound = np.int16(9000 * np.sin(np.arange(3 * 8000) ** 1.1 / 9))
    with wave.open(str(tmp_path / "tone.wav"), "wb") as f:
        f.setparams((1, 2, 8000, len(sound), "NONE", ""))
        f.writeframes(sound.tobytes())
    command = [sys.executable, "-m", "narrows", "demo", "--wav", "tone.wav", "--epochs", "2"]
    ours, theirs = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # a terminal whose other end is closed
        pass
    os.close(ours)
    assert process.wait() in (0, 1)  # 1: the tone was not learnt
    assert ("█".encode() in shown and b"%" in shown) if terminal else shown == b""


def test_a_second_import():
    """The extension is loaded once: tensors and ops of the first import are those of the second."""
    out = python("""
        import sys, numpy, narrows
        x = numpy.ones(2, "float32")
        t, add = narrows.from_dlpack(x), narrows.add
        for name in [name for name in sys.modules if name.partition(".")[0] == "narrows"]:
            del sys.modules[name]
        import narrows as again
        assert again is not narrows and type(t) is again.Tensor and type(add) is again.Op
        print(again.add(t, 1).numpy(), add(again.from_dlpack(x), t).numpy(), t.to("cpu").numpy(), again.subtract(2, t).numpy(), t)
        del t, again, narrows
    """)
    assert out == "[2. 2.] [2. 2.] [1. 1.] [1. 1.] narrows.Tensor(shape=(2,), dtype='float32', device='cpu')\n"


def test_frameworks_that_may_not_be_imported():
    """By None in sys.modules, and one whose module says nothing of itself."""
    out = python("""
        import sys, types
        sys.modules.update(torch=None, jax=None, cupy=None)
        import narrows, numpy
        x = numpy.float32([1])
        print(narrows.add(x, 1), narrows.subtract(2, x), narrows.add(narrows.from_dlpack(x), 1).numpy())
        for name in [name for name in sys.modules if name.partition(".")[0] == "narrows"]:
            del sys.modules[name]
        sys.modules["torch._dynamo"] = types.SimpleNamespace()
        from narrows import _when
        _when.imported("torch._dynamo", lambda: print("there"))
        _when.imported("torch", lambda: print("never"))
    """)
    assert out == "[2.] [1.] [2.]\nthere\n"
