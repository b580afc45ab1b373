# SPDX-License-Identifier: Apache-2.0
"""Saved models of tensor programs: written by one process and run by another that has never built the program; what is refused there."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest

import narrows
from narrows import _programs
from narrows.program import PrimFunc, Schedule, _library

PROGRAM = '''
    import numpy, narrows
    from narrows.program import PrimFunc, Schedule

    SCALED = """program 1 scaled(x: f32[n], y: out f32[n], bias?: f32[n], alpha: param f32 = 1.5, times: param i64 = 1):
      for i in n:
        block y(vi: S(n) = i):
          y[vi] = sin(x[vi]) * alpha * f32(times) + where(present(bias), bias[vi], f32(0))
    """
    MATMUL = """program 1 matmul(A: f32[M, K], B: f32[K, N], C: out f32[M, N]):
      for i in M:
        for j in N:
          for k in K:
            block C(vi: S(M) = i, vj: S(N) = j, vk: R(K) = k):
              init:
                C[vi, vj] = f32(0)
              C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    """
    scaled = PrimFunc(SCALED).build(gradient=True)
    schedule = Schedule(MATMUL)
    i, j, k = schedule.get_loops(schedule.get_block("C"))
    outer, inner = schedule.split(j, factors=[None, 8])
    schedule.reorder(outer, k, inner)
    schedule.parallel(i)
    matmul = schedule.build(gradient=True)
'''
# What the models compute of x, in NumPy.
WEIGHTS = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


def expected(x):
    return 2 * len(x) * np.sin(x @ WEIGHTS.astype("float64")).ravel() + 0.25


def gradient(x):
    return 2 * len(x) * np.cos(x @ WEIGHTS.astype("float64")) @ WEIGHTS.T.astype("float64")


def arrays(rows):
    return np.random.default_rng(rows).standard_normal((rows, 4)).astype("float32")


def python(code, folder, succeeds=True, path=None):
    """What a fresh process prints, or writes to stderr where it is to fail."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode == 0) == succeeds, done.stderr[-3000:]
    return done.stdout if succeeds else done.stderr


@pytest.fixture(scope="module")
def package_without_programs(tmp_path_factory):
    """A folder with this package as it is built where there is no isl."""
    folder, package = tmp_path_factory.mktemp("package"), pathlib.Path(narrows.__file__).parent
    (folder / "narrows" / "lib").mkdir(parents=True)
    for file in package.iterdir():
        if file.name != "lib":
            (folder / "narrows" / file.name).symlink_to(file.resolve())
    for file in (package / "lib").iterdir():
        if not file.name.startswith("libnarrows_program"):
            (folder / "narrows" / "lib" / file.name).symlink_to(file.resolve())
    return folder


def test_a_program_that_was_built_keeps_its_schedule():
    text = """program 1 doubled(x: f32[n], y: out f32[n]):
  for i in n:
    block y(vi: S(n) = i):
      y[vi] = x[vi] * f32(2)
"""
    schedule = Schedule(text)
    schedule.split(schedule.get_loops(schedule.get_block("y"))[0], factors=[None, 24])
    op = schedule.build()
    carried, source = _programs.saved(op.op), op.source()
    assert "factors=[None, 24]" in carried
    other = carried.replace("24]", "40]")
    assert _programs.op_of(other) == op.op
    assert _programs.scheduled(op.op, "cpu")[1] == ['split(loop="i", factors=[None, 24])']
    assert op.source() == source and _programs.saved(op.op) == carried
    code = f"import narrows; from narrows import _programs as p; print(p.scheduled(p.op_of({other!r}), 'cpu')[1])"
    assert "40]" in python(code, ".")


def test_text_with_a_nul_is_refused():
    text = "program 1 doubled(x: f32[n], y: out f32[n]):\n  for i in n:\n    block y(vi: S(n) = i):\n      y[vi] = x[vi] * f32(2)\n"
    carried = _programs.saved(PrimFunc(text).build().op)
    with pytest.raises(ValueError, match=r"the saved program has a NUL at .*; expected text without one"):
        _programs.op_of(carried + "\0schedule cpu\n")
    with pytest.raises(ValueError, match="text has a NUL at "):
        _library.Program(text + "\0")


# ---- torch ----

SAVE_TORCH = (
    PROGRAM
    + f"""
    import torch
    weights = torch.tensor({WEIGHTS.tolist()})
    class Model(torch.nn.Module):
        def forward(self, x):
            y = matmul(x, weights).ravel()
            return scaled(y, torch.full_like(y, 0.25), alpha=2.0, times=x.shape[0])
    x = torch.from_numpy(numpy.load("x3.npy"))
    torch.jit.trace(Model(), (x,)).save("model.pt")
    rows = torch.export.Dim("rows")
    torch.export.save(torch.export.export(Model(), (x,), dynamic_shapes={{"x": {{0: rows}}}}), "model.pt2")
"""
)
LOAD_TORCH = """
    import numpy, sys, {order}
    assert "narrows.program" not in sys.modules
    for load, file, sizes in ((torch.jit.load, "model.pt", [3]), (lambda f: torch.export.load(f).module(), "model.pt2", [3, 7])):
        model = load(file)
        for rows in sizes:
            x = torch.from_numpy(numpy.load(f"x{{rows}}.npy")).requires_grad_()
            y = model(x)
            y.sum().backward()
            numpy.testing.assert_allclose(y.detach(), numpy.load(f"y{{rows}}.npy"), rtol=1e-5, atol=1e-5)
            numpy.testing.assert_allclose(x.grad, numpy.load(f"g{{rows}}.npy"), rtol=1e-5, atol=1e-5)
    print("loaded")
"""


def folder_with_arrays(folder):
    for rows in (3, 7):
        x = arrays(rows)
        for name, values in (("x", x), ("y", expected(x)), ("g", gradient(x))):
            np.save(folder / f"{name}{rows}.npy", values)
    return folder


@pytest.fixture(scope="module")
def torch_models(tmp_path_factory):
    """A folder with a traced and an exported model, and what they are to compute."""
    pytest.importorskip("torch")
    folder = folder_with_arrays(tmp_path_factory.mktemp("torch"))
    python(textwrap.dedent(SAVE_TORCH), folder)
    return folder


@pytest.mark.parametrize("order", ["torch, narrows", "narrows, torch"])
def test_torch_loads_and_differentiates_a_saved_model(order, torch_models):
    assert python(textwrap.dedent(LOAD_TORCH.format(order=order)), torch_models) == "loaded\n"


def changed(archive, into, old, new):
    """A copy of a model, with another text in it."""
    found = False
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(into, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            found = found or old in content
            target.writestr(name, content.replace(old, new))
    assert found


# Old, new, what is said then; of equal lengths, as JAX's files have offsets.
SPOILT = {
    "a newer narrows": (
        "saved programs 1",
        "saved programs 2",
        "begins with 'saved programs 2'; expected 'saved programs 1': a newer",
    ),
    "a newer text": (
        "program 1 matmul",
        "program 2 matmul",
        "text at line 3: line 1, column 9: the text is of version 2; this library",
    ),
    "another number": ("f32(0)", "f32(1)", "saved program, text at line 3: 'matmul' was changed: its digest is "),
    "no program": ("block C(", "block 1(", "saved program, text at line 3: line 5, column "),
    "no step": ("None, 8]", "None, 0]", 'step at line 12: split(loop="j", factors=[None, 0]): a factor is at least 1'),
}


@pytest.mark.parametrize("old, new, words", SPOILT.values(), ids=SPOILT)
def test_torch_refuses_a_spoilt_program(old, new, words, torch_models, tmp_path):
    torch = pytest.importorskip("torch")
    changed(torch_models / "model.pt2", tmp_path / "model.pt2", old.encode(), new.encode())
    with pytest.raises(RuntimeError, match="the model has a tensor program that cannot be loaded: .*" + re.escape(words)):
        torch.export.load(tmp_path / "model.pt2")
    changed(torch_models / "model.pt", tmp_path / "model.pt", old.encode(), new.encode())
    with pytest.raises(RuntimeError, match=re.escape(words)):
        torch.jit.load(tmp_path / "model.pt")(torch.ones(3, 4))


SAVE_COMPILED = """
    exported = torch.export.load("model.pt2")
    torch._inductor.aoti_compile_and_package(exported, package_path="compiled.pt2")
"""
LOAD_COMPILED = """
    import numpy, narrows, torch
    model = torch._inductor.aoti_load_package("compiled.pt2")
    for rows in (3, 7):
        y = model(torch.from_numpy(numpy.load(f"x{rows}.npy")))
        numpy.testing.assert_allclose(y, numpy.load(f"y{rows}.npy"), rtol=1e-5, atol=1e-5)
    print("loaded")
"""


def test_torch_runs_a_compiled_model(torch_models, tmp_path):
    inductor = pytest.importorskip("torch._inductor")
    if not hasattr(inductor, "aoti_compile_and_package"):
        pytest.skip("torch has no AOTInductor packages before 2.6")
    python("import narrows, torch" + textwrap.dedent(SAVE_COMPILED), torch_models)
    assert python(textwrap.dedent(LOAD_COMPILED), torch_models) == "loaded\n"
    old, new, words = SPOILT["another number"]
    changed(torch_models / "compiled.pt2", tmp_path / "compiled.pt2", old.encode(), new.encode())
    with pytest.raises(RuntimeError, match="the model has a tensor program that cannot be loaded: .*" + re.escape(words)):
        inductor.aoti_load_package(str(tmp_path / "compiled.pt2"))


def test_torch_without_the_library_of_programs(torch_models, package_without_programs):
    code = "import torch, narrows\nprint(narrows.add(torch.ones(2), 1).tolist())\ntorch.export.load('model.pt2')"
    printed = python(code, torch_models, False, package_without_programs)
    assert "RuntimeError: the model has a tensor program that cannot be loaded: there is no libnarrows_program.so.1 in " in printed
    assert "they need isl" in printed


# ---- torch.ops.narrows.program, by the package and by libnarrows_torch ----

CALLS = """
    import os, sys
    carried, a, call = open("carried").read(), torch.ones(3), torch.ops.narrows.program
    assert call([a, a], carried)[0].tolist() == [3, 3, 3]
    assert call([a, a], carried, integers=[2], reals=[0.5])[0].tolist() == [2, 2, 2]
    assert call([a], carried, present=1)[0].tolist() == [1.5, 1.5, 1.5]
    for tensors, text, given, words in (
        ([a], carried, {}, "tensors has 1 values; expected 2, one for each input"),
        ([a, a, a], carried, {}, "tensors has 3 values; expected 2"),
        ([a, a], carried, {"present": 1}, "tensors has 2 values; expected 1"),
        ([a], carried, {"present": 2}, "a is absent (NULL); expected a tensor"),
        ([a, a], carried, {"integers": [1, 2]}, "integers has 2 values; expected 1, one for each param"),
        ([a, a], carried, {"reals": [1.0, 2.0]}, "reals has 2 values; expected 1"),
        ([a, a.double()], carried, {}, "b has dtype float64; expected float32"),
        ([a, a], carried.replace("* alpha", "+ alpha"), {}, "saved program, text at line 3: 'added' was changed"),
        ([a, a], carried + "\\0", {}, "has a NUL at "),
        ([a, a], "program.other_1/1", {}, "program.other_1/1"),
    ):
        try:
            call(tensors, text, **given)
        except (ValueError, RuntimeError) as error:
            assert words in str(error), f"{error}: expected {words}"
        else:
            raise AssertionError(f"no error: {words}")
    print("narrows" in sys.modules, end="")
"""


@pytest.mark.parametrize("way", ["package", "library"])
def test_torch_calls_programs_and_refuses_what_does_not_fit(way, tmp_path):
    torch = pytest.importorskip("torch")
    if way == "library" and not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("the library needs torch 2.10")
    text = """program 1 added(a: f32[n], b?: f32[n], y: out f32[n], times: param i64 = 1, alpha: param f32 = 1.5):
  for i in n:
    block y(vi: S(n) = i):
      y[vi] = (a[vi] + where(present(b), b[vi], f32(0))) * alpha * f32(times)
"""
    (tmp_path / "carried").write_text(_programs.saved(PrimFunc(text).build().op))
    library = pathlib.Path(narrows.__file__).parent / "lib" / "libnarrows_torch.so"
    first = "import narrows, torch" if way == "package" else f"import torch; torch.ops.load_library({str(library)!r})"
    assert python(first + textwrap.dedent(CALLS), tmp_path) == str(way == "package")


# ---- JAX ----

SAVE_JAX = (
    PROGRAM
    + f"""
    import jax, jax.numpy as jnp, narrows.jax, pickle
    from jax import export
    from jax.experimental import serialize_executable
    weights = jnp.array({WEIGHTS.tolist()}, "float32")
    def model(x):
        y = matmul(x, weights).ravel()
        return scaled(y, jnp.full_like(y, 0.25), alpha=2.0 * 3, times=1) / 3 * x.shape[0] + 0.25 * (1 - x.shape[0] / 3)
    x = jnp.asarray(numpy.load("x3.npy"))
    rows, = export.symbolic_shape("rows")
    exported = export.export(jax.jit(model), disabled_checks=narrows.jax.disabled_checks)(jax.ShapeDtypeStruct((rows, 4), "float32"))
    open("model.export", "wb").write(exported.serialize(vjp_order=1))
    pickle.dump(serialize_executable.serialize(jax.jit(model).lower(x).compile()), open("model.executable", "wb"))
"""
)
LOAD_JAX = """
    import numpy, pickle, sys, {order}
    from jax import export
    from jax.experimental import serialize_executable
    exported = export.deserialize(bytearray(open("model.export", "rb").read()))
    for rows in (3, 7):
        x = jax.numpy.asarray(numpy.load(f"x{{rows}}.npy"))
        numpy.testing.assert_allclose(exported.call(x), numpy.load(f"y{{rows}}.npy"), rtol=1e-5, atol=1e-5)
        gradient = jax.grad(lambda x: exported.call(x).sum())(x)
        numpy.testing.assert_allclose(gradient, numpy.load(f"g{{rows}}.npy"), rtol=1e-5, atol=1e-5)
    assert "narrows.jax" not in sys.modules and "narrows.program" not in sys.modules
    print("loaded")
"""
RUN_EXECUTABLE = """
    import numpy, pickle, {order}
    from jax.experimental import serialize_executable
    run = serialize_executable.deserialize_and_load(*pickle.load(open("model.executable", "rb")))
    y = run(jax.numpy.asarray(numpy.load("x3.npy")))
    numpy.testing.assert_allclose(y, numpy.load("y3.npy"), rtol=1e-5, atol=1e-5)
    print("loaded")
"""


@pytest.fixture(scope="module")
def jax_models(tmp_path_factory):
    """The same of an exported function, with its gradient and an open size, and of a compiled one."""
    for module in ("jax", "flatbuffers", "jax.export"):
        pytest.importorskip(module, exc_type=ImportError)
    folder = folder_with_arrays(tmp_path_factory.mktemp("jax"))
    python(textwrap.dedent(SAVE_JAX), folder)
    return folder


@pytest.mark.parametrize("order", ["jax, narrows", "narrows, jax"])
@pytest.mark.parametrize("load", [LOAD_JAX, RUN_EXECUTABLE], ids=["exported", "compiled"])
def test_jax_runs_a_saved_function(load, order, jax_models):
    assert python(textwrap.dedent(load.format(order=order)), jax_models) == "loaded\n"


RUN_SPOILT = """
    import jax, narrows
    from jax import export
    content = open("model.export", "rb").read()
    for old, new, words in {spoilt}:
        assert old.encode() in content
        exported = export.deserialize(bytearray(content.replace(old.encode(), new.encode())))
        try:
            jax.block_until_ready(exported.call(jax.numpy.ones((3, 4))))
        except Exception as error:
            assert "INVALID_ARGUMENT: narrows: " in str(error) and words in str(error), error
        else:
            raise AssertionError(words)
    print(exported.fun_name)
"""


def test_jax_refuses_a_spoilt_program(jax_models):
    assert python(textwrap.dedent(RUN_SPOILT.format(spoilt=[*SPOILT.values()])), jax_models) == "model\n"


def test_jax_without_the_library_of_programs(jax_models, package_without_programs):
    printed = python(textwrap.dedent(RUN_EXECUTABLE.format(order="jax, narrows")), jax_models, False, package_without_programs)
    for words in ("UNAVAILABLE: narrows: program.", "this process has no libnarrows_program.so.1", "built where isl is"):
        assert words in printed


# ---- the text ----


def test_a_saved_program_is_its_op_again():
    text = "program 1 twice(x: f32[n], y: out f32[n]):\n  for i in n:\n    block y(vi: S(n) = i):\n      y[vi] = x[vi] + x[vi]\n"
    f = PrimFunc(text).build(gradient=2)
    saved = _programs.saved(f.op)
    assert _programs.op_of(saved) == f.op and saved.count("\ndigest ") == 3 and "schedule" not in saved
    assert _programs._loaded(saved) == f.op and _programs.saved(f.op) == saved
    schedule = Schedule(text)
    schedule.split("i", factors=[None, 4])
    g = schedule.build(gradient=2)
    assert g.op == f.op and 'schedule cpu\n  split(loop="i", factors=[None, 4])\ndigest' in _programs.saved(f.op)
    assert f(np.ones(3, "float32")).tolist() == [2, 2, 2]


def test_an_op_that_others_loaded_is_carried_by_its_name():
    name = "program.of_others_0/1"
    assert _programs.saved(name) == name == _programs.op_of(name)
    with pytest.raises(ValueError, match=r"unknown op 'program\.of_others_0/1'"):
        narrows.op(_programs.op_of(name))


def test_the_text_in_the_docs_is_one():
    page = (pathlib.Path(__file__).parents[3] / "docs" / "programs.md").read_text()
    f = narrows.op(_programs.op_of(re.findall(r"```\n(saved programs 1\n.*?)```", page, re.DOTALL)[0]))
    assert f.op.startswith("program.scaled_") and f.backward.startswith("program.scaled_adjoint_")
    assert f(np.ones(3, "float32"), alpha=2).tolist() == [2, 2, 2]
