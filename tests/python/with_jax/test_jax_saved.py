# SPDX-License-Identifier: Apache-2.0
"""JAX's saved programs: written by one process and run by another, which only imports narrows and JAX; symbolic sizes; a handler that
is registered by its symbol; programs of a newer Narrows and of a plugin that is missing; names in profiles."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

export = pytest.importorskip(
    "jax.export", reason="jax.export of 0.4.38 needs absl, which JAX does not require", exc_type=ImportError
)

import narrows  # noqa: E402
import narrows.jax  # noqa: E402
from narrows import _xla  # noqa: E402

CHECKS = narrows.jax.disabled_checks


def python(code, folder, path=""):
    """Runs it in a fresh process, in that folder."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "NARROWS_PLUGIN_PATH": path, "XLA_FLAGS": ""}  # one device
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    return done


def ran(code, folder, path=""):
    done = python(code, folder, path)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


MODEL = """
x, w = jnp.arange(22.0).reshape(1, 2, 11), jnp.ones((3, 2, 3))
def model(x, w):
    y = narrows.exp(narrows.multiply(narrows.conv1d(x, w), -0.01))
    return narrows.ops.test.scale(y, factor=2.0) if PLUGIN else y
"""
SAVE = (
    """
import jax, jax.numpy as jnp, narrows, narrows.jax, numpy, pickle, sys
from jax import export
from jax.experimental import serialize_executable
PLUGIN = {plugin}
"""
    + MODEL
    + """
numpy.save("expected.npy", model(x, w))
if {exported}:
    open("exported", "wb").write(export.export(jax.jit(model), disabled_checks=narrows.jax.disabled_checks)(x, w).serialize())
else:
    pickle.dump(serialize_executable.serialize(jax.jit(model).lower(x, w).compile()), open("executable", "wb"))
"""
)
LOAD = """
{imports}
import jax.numpy as jnp, numpy, pickle, sys
x, w = jnp.arange(22.0).reshape(1, 2, 11), jnp.ones((3, 2, 3))
from jax import export
from jax.experimental import serialize_executable
if {exported}:
    y = export.deserialize(bytearray(open("exported", "rb").read())).call(x, w)
else:
    y = serialize_executable.deserialize_and_load(*pickle.load(open("executable", "rb")))(x, w)
numpy.testing.assert_allclose(y, numpy.load("expected.npy"), rtol=1e-6)
assert "narrows.jax" not in sys.modules
"""


@pytest.mark.parametrize("plugin", [False, True])
@pytest.mark.parametrize("exported", [False, True])
def test_a_fresh_process_runs_a_saved_program(plugin, exported, scale_folder, tmp_path):
    if exported:
        pytest.importorskip("flatbuffers", reason="JAX serialises what it exports by flatbuffers")
    path = scale_folder if plugin else ""
    ran(SAVE.format(plugin=plugin, exported=exported), tmp_path, path)
    for imports in ("import jax, narrows", "import narrows, jax")[: 1 if plugin else 2]:
        ran(LOAD.format(imports=imports, exported=exported), tmp_path, path)
    if plugin:
        done = python(LOAD.format(imports="import jax, narrows", exported=exported), tmp_path, str(tmp_path))
        assert done.returncode != 0
        for word in ("unknown op 'test.scale/1'", "Plugins were looked for in", str(tmp_path)):
            assert word in done.stderr


def test_importing_narrows_starts_no_backend(tmp_path):
    ran(
        "import jax, narrows, os\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge._backends\n"
        "os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=3'\n"
        "assert jax.device_count() == 3\n",
        tmp_path,
    )


def test_a_handler_that_is_refused_leaves_jax_as_it_is(tmp_path):
    """XLA refuses one that answers no version of its interface, at once and without a word of JAX's."""
    out = ran(
        "import ctypes, narrows\n"
        "from narrows import _xla\n"
        "bad = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda frame: None)\n"
        "good = _xla._handlers\n"
        "_xla._handlers = lambda platform: {t: _xla.ffi().pycapsule(bad) for t in good(platform)}\n"
        "import jax, jax.numpy as jnp\n"
        "print(jnp.ones(2) + 1)\n"
        "try: narrows.add(jnp.ones(2), 1)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "print(jnp.ones(2) + 2)\n",
        tmp_path,
    )
    assert out.startswith("[2. 2.]\n") and "narrows" in out and out.endswith("[3. 3.]\n")


def test_the_handler_registered_by_its_symbol(tmp_path):
    """In a process that never imports narrows, as a C++ program with XLA has none."""
    ran(SAVE.format(plugin=False, exported=False), tmp_path)
    load = LOAD.format(
        imports="import ctypes, jax\n"
        "try: from jax import ffi\n"
        "except ImportError: from jax.extend import ffi\n"
        f"handler = ctypes.CDLL({_xla.library()!r}).nw_xla_cpu\n"
        "for target in ('narrows', 'narrows_capturable'): ffi.register_ffi_target(target, ffi.pycapsule(handler), platform='cpu')\n",
        exported=False,
    )
    ran(load + "\nassert 'narrows' not in sys.modules\n", tmp_path)


# ---- symbolic sizes ----


def exported(function, *shapes, constraints=()):
    scope = export.SymbolicScope(constraints)
    specs = [jax.ShapeDtypeStruct(export.symbolic_shape(s, scope=scope) if isinstance(s, str) else s, "float32") for s in shapes]
    return export.export(jax.jit(function), disabled_checks=CHECKS, platforms=["cpu"])(*specs)


def square_sum(f):
    return lambda *a: jax.tree.reduce(lambda s, y: s + (y * y).sum(), f(*a), 0.0)


CELL = ("b, 3", (12, 7), (12,), "b, 4", "b, 4")
SYMBOLIC = {
    "add": (narrows.add, ("b, 3", "b, 3"), ()),
    "a number": (lambda x: narrows.add(x, 2), ("b, c",), ()),
    "broadcast": (narrows.multiply, ("b, c", "b, 1"), ()),
    "other ranks": (narrows.multiply, ("b, 3", "a, b, 3"), ()),
    "conv1d": (lambda x, w: narrows.conv1d(x, w, stride=2), ("b, 3, l", (5, 3, 3)), ("l >= 3",)),
    "conv1d, same": (lambda x, w: narrows.conv1d(x, w, padding="same"), ("b, c, l", "o, c, 3"), ()),
    "lltm": (narrows.lltm, CELL, ()),
    "vmap": (jax.vmap(narrows.conv1d, in_axes=(0, None)), ("b, 3, l", (4, 3, 3)), ("l >= 3",)),
    "grad of conv1d": (jax.grad(square_sum(narrows.conv1d), argnums=(0, 1)), ("b, 3, l", (5, 3, 3)), ("l >= 3",)),
    "grad of multiply": (jax.grad(square_sum(narrows.multiply), argnums=(0, 1)), ("b, 3", (3,)), ()),
    "grad of lltm": (jax.grad(square_sum(narrows.lltm), argnums=(0, 1, 3)), CELL, ()),
}


@pytest.mark.parametrize("function, shapes, constraints", SYMBOLIC.values(), ids=SYMBOLIC)
def test_symbolic_sizes(function, shapes, constraints):
    program = exported(function, *shapes, constraints=constraints)
    for sizes in ({"a": 2, "b": 4, "c": 3, "l": 11, "o": 5}, {"a": 3, "b": 1, "c": 7, "l": 3, "o": 2}):
        numbers = [tuple(sizes.get(n, n) for n in ([m.strip() for m in s.split(",")] if isinstance(s, str) else s)) for s in shapes]
        arrays = [np.random.default_rng(i).uniform(-1, 1, [int(n) for n in s]).astype("float32") for i, s in enumerate(numbers)]
        arrays = list(map(jnp.asarray, arrays))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), program.call(*arrays), function(*arrays))


REFUSED = {
    "another batch": (narrows.add, ("b, 3", "c, 3"), ValueError, "do not broadcast: b against c.*expected one name for both"),
    "a symbol and a number": (narrows.add, ("b, 3", (4, 3)), ValueError, "do not broadcast: b against 4"),
    "no output": (
        narrows.conv1d,
        ("b, 3, l", (5, 3, 3)),
        ValueError,
        r"conv1d: y has a size of l - 2, which JAX cannot show.*'l - 2 >= 0'",
    ),
    "other channels": (narrows.conv1d, ("b, c, 9", (5, 3, 3)), ValueError, "conv1d: a dimension is 3; expected c"),
    "a wrong call": (
        lambda x, w: narrows.conv1d(x, w, groups=7),
        ("b, 6, 9", (7, 0, 3)),
        ValueError,
        "groups = 7 does not divide the 6",
    ),
}


@pytest.mark.parametrize("function, shapes, error, words", REFUSED.values(), ids=REFUSED)
def test_sizes_that_the_rule_cannot_prove(function, shapes, error, words):
    with pytest.raises(error, match=words):
        exported(function, *shapes)


# ---- other versions ----


class Newer:
    """The attributes that a newer Narrows might write."""

    def __init__(self, monkeypatch, **changed):
        lowering = _xla.ffi().ffi_lowering
        changing = lambda *a, **k: lambda c, *o, **p: lowering(*a, **k)(c, *o, **{**p, **changed})  # noqa: E731
        found = _xla.ffi()
        monkeypatch.setattr(
            _xla, "ffi", lambda: type("Ffi", (), {"ffi_lowering": staticmethod(changing), "pycapsule": found.pycapsule})
        )


@pytest.mark.parametrize(
    "changed, words",
    [
        (
            {"layout": np.array([7, 1, 1, 1, 1], np.int64)},
            "the program's calls are of format 7, made by Narrows 9.9.9; this is Narrows",
        ),
        ({"op": "conv9d"}, "unknown op 'conv9d'.*the program was made by Narrows 9.9.9, and this is"),
        ({"params": np.full(4096, 1, np.uint8)}, "made by Narrows 9.9.9"),
    ],
)
def test_a_program_of_a_newer_narrows(changed, words, monkeypatch):
    Newer(monkeypatch, narrows="9.9.9", **changed)
    program = jax.jit(lambda x: narrows.negative(x)).lower(jnp.ones(3)).compile()
    with pytest.raises(Exception, match=words):
        jax.block_until_ready(program(jnp.ones(3)))


# ---- profiles ----


def test_profiles_and_programs_name_each_op(tmp_path):
    f = jax.jit(lambda x, w: narrows.add(narrows.conv1d(x, w), 1))
    x, w = jnp.ones((1, 2, 9)), jnp.ones((3, 2, 3))
    assert "narrows.conv1d" in str(jax.make_jaxpr(f)(x, w)) and "narrows.add" in f.lower(x, w).compile().as_text()
    jax.block_until_ready(f(x, w))
    with jax.profiler.trace(str(tmp_path)):
        jax.block_until_ready(f(x, w))
    trace = json.loads(gzip.decompress(next(tmp_path.rglob("*.trace.json.gz")).read_bytes()))
    names = " ".join(e.get("name", "") for e in trace["traceEvents"])
    if jax.__version_info__ >= (0, 8):  # before, XLA names each custom call "custom-call"
        assert "narrows_conv1d" in names and "narrows_add" in names
