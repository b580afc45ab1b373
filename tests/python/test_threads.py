# SPDX-License-Identifier: Apache-2.0
"""Many threads at once on the same ops, tensors and tables: with the GIL, and, in a free-threaded Python, without one."""

import concurrent.futures
import os
import subprocess
import sys
import sysconfig
import textwrap
import threading

import numpy as np
import pytest

import narrows

THREADS = 12
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def together(work):
    """work(index) in every thread, begun at once; what one of them raises is raised here."""
    begin = threading.Barrier(THREADS)

    def run(index):
        begin.wait()
        work(index)

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(run, i) for i in range(THREADS)]:
            done.result()


def python(code, **environment):
    """A new interpreter, where nothing has been used yet; its output."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHON_GIL" or k in environment}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env={**clean, **environment}, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not FREE_THREADED, reason="this Python has a GIL")
def test_the_gil_stays_off():
    code = "import narrows, sys; narrows.add(narrows.empty((3,)), 1); print(sys._is_gil_enabled())"
    assert python(code) == "False\n"
    assert python("import numpy, sys;" + code) == "False\n"


@pytest.mark.skipif(not FREE_THREADED, reason="this Python has a GIL")
def test_the_tests_run_without_the_gil():
    assert os.environ.get("PYTHON_GIL") == "0" and not sys._is_gil_enabled()


def test_one_op_with_many_shapes():
    """More shapes than the op remembers: entries are read and replaced at once."""
    bound, w = narrows.op("conv1d", stride=2), np.float32([1, 2, 3])
    arrays = [np.arange(n, dtype="float32") for n in range(3, 200)]
    expected = [np.correlate(x, w, "valid")[::2] for x in arrays]

    def work(index):
        for i in range(3 * len(arrays)):
            i = (i * 7 + index * 13) % len(arrays)
            np.testing.assert_array_equal(bound(arrays[i], w), expected[i])

    together(work)


def test_one_tensor():
    x = np.arange(12, dtype="float32").reshape(3, 4)
    t = narrows.from_dlpack(x.copy())

    def work(index):
        for _ in range(100):
            np.testing.assert_array_equal(narrows.add(t, index).numpy(), x + np.float32(index))
            np.testing.assert_array_equal(np.from_dlpack(t), x)
            assert t.view("int32").shape == (3, 4) and np.asarray(t).nbytes == t.nbytes == 48 and t.to("cpu").strides == (4, 1)

    together(work)


def test_outputs_of_their_own_from_one_input():
    x = np.random.default_rng(0).normal(size=5000).astype("float32")

    def work(index):
        out = np.empty_like(x)
        for i in range(50):
            assert narrows.add(x, index * i, out=out) is out
            np.testing.assert_array_equal(out, x + np.float32(index * i))

    together(work)


def test_binding_and_naming_ops():
    """One object for equal ops, whoever made it."""
    found = [[] for _ in range(THREADS)]

    def work(index):
        for i in range(100):
            found[index].append(narrows.op("conv1d", stride=1 + i % 50, dilation=37))
            assert narrows.ops.conv1d.bind(stride=3).params["stride"] == 3

    together(work)
    assert len({id(op) for ops in found for op in ops}) == 50


def first_uses(preparation, body):
    """Runs body in every thread of a new interpreter, begun at once, after preparation; what failed, as text."""
    return python(
        f"import threading\nbegin, failed = threading.Barrier({THREADS}), []\n"
        + textwrap.dedent(preparation)
        + "\ndef work():\n    begin.wait()\n    try:\n"
        + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
        + "\n    except BaseException as error:\n        failed.append(repr(error))\n"
        + f"threads = [threading.Thread(target=work) for _ in range({THREADS})]\n"
        + "[t.start() for t in threads]\n[t.join() for t in threads]\nprint(failed)\n"
    )


def test_the_first_use_of_everything():
    for _ in range(3):
        out = first_uses(
            'import numpy as np\nx = np.ones(5, "float32")',
            """
            import narrows
            assert narrows.exp(narrows.add(x, x)).shape == (5,)
            assert narrows.conv1d(x, x).tolist() == [5] and narrows.ops.conv1d(x, x).tolist() == [5]
            assert narrows.info()["backends"] and narrows.devices()
            """,
        )
        assert out == "[]\n"


def test_the_first_use_of_torchs_ops():
    pytest.importorskip("torch")
    out = first_uses(
        "import torch, narrows\ntorch.set_num_threads(1)\nx, g = torch.ones(5), torch.ones(5, requires_grad=True)",
        """
        assert torch.ops.narrows.elementwise(x, x, function="add").tolist() == [2] * 5
        assert torch.ops.narrows.conv1d(x, x).tolist() == [5]
        assert torch.autograd.grad(narrows.multiply(g, x).sum(), g)[0].tolist() == [1] * 5
        assert torch.func.vmap(narrows.exp)(x).shape == (5,)
        """,
    )
    assert out == "[]\n"


def test_torchs_tensors():
    torch = pytest.importorskip("torch")
    x, w = torch.randn(2, 3, 50), torch.randn(4, 3, 3)
    expected = torch.nn.functional.conv1d(x, w)

    def work(index):
        g = torch.full((7,), float(index), requires_grad=True)
        for _ in range(50):
            torch.testing.assert_close(narrows.conv1d(x, w), expected)
            assert torch.autograd.grad(narrows.square(g).sum(), g)[0].tolist() == [2 * index] * 7

    together(work)


def test_jaxs_arrays():
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(6.0)

    def work(index):
        for _ in range(5):
            assert narrows.add(x, index).tolist() == [i + index for i in range(6)]
            assert jax.jit(lambda a: narrows.multiply(a, a))(x).tolist() == [i * i for i in range(6)]

    together(work)


def test_more_types_than_are_remembered():
    """Of arrays: each thread brings its own, and the table of types is filled by all."""
    out = python(f"""
        import threading, numpy as np, narrows
        x, begin, failed = np.ones(3, "float32"), threading.Barrier({THREADS}), []
        def producer(i):
            return type(f"Array{{i}}", (), {{
                "__dlpack__": lambda self, **keywords: x.__dlpack__(**keywords),
                "__dlpack_device__": lambda self: (1, 0),
            }})()
        def work(index):
            arrays = [producer(i) for i in range(30)]
            begin.wait()
            try:
                for array in 3 * arrays:
                    assert np.from_dlpack(narrows.add(array, index)).tolist() == [1 + index] * 3
            except BaseException as error:
                failed.append(repr(error))
        threads = [threading.Thread(target=work, args=(i,)) for i in range({THREADS})]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(failed)
    """)
    assert out == "[]\n"


def test_a_plugin_is_loaded_while_ops_are_looked_up(scale_plugin):
    path = next(b["path"] for b in narrows.info()["backends"] if b["name"] == "test")
    x = np.ones(3, "float32")

    def work(index):
        for _ in range(20):
            if index == 0:
                narrows.load(path)
            assert narrows.ops.test.scale(x, factor=2.0).tolist() == [2, 2, 2]
            assert narrows.ops.elementwise(x, x, function="add").tolist() == [2, 2, 2]

    together(work)
