# SPDX-License-Identifier: Apache-2.0
"""Programs that run: built by Python, called with arrays, compared with NumPy in float64."""

import copy
import gc
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import narrows
from narrows.program import PrimFunc, Schedule, _evaluation, _source
from narrows.program import script as T

F32 = "float32"
TEXTS = pathlib.Path(__file__).parents[3] / "examples" / "programs"


@T.prim_func
def mm_relu(A: T.Buffer(("M", "K"), F32), B: T.Buffer(("K", "N"), F32), C: T.Buffer(("M", "N"), F32)):
    (M, K), N = A.shape, B.shape[1]
    Y = T.alloc_buffer((M, N), F32)
    for i, j, k in T.grid(M, N, K):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(M, N):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


@T.prim_func
def scaled(
    x: T.Buffer(("n",), F32),
    y: T.Buffer(("n",), F32),
    alpha: T.float32 = 1.5,
    times: T.int64 = 1,
    bias: T.Buffer(("n",), F32) = None,
):
    for i in T.serial(x.shape[0]):
        with T.block("y"):
            vi = T.axis.spatial(x.shape[0], i)
            y[vi] = x[vi] * alpha * T.cast(times, F32) + T.if_then_else(T.present(bias), bias[vi], 0.0)


def tutorial():
    sch = Schedule(mm_relu)
    block = sch.get_block("Y")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 8])
    sch.reorder(j0, k, j1)
    sch.reverse_compute_at(sch.get_block("C"), j0)
    sch.decompose_reduction(block, k)
    sch.parallel(i)
    return sch


def operands(m, n, k):
    random = np.random.default_rng(1)
    return random.standard_normal((m, k), dtype=F32), random.standard_normal((k, n), dtype=F32)


def check(f, a, b):
    want = np.maximum(a.astype("float64") @ b.astype("float64"), 0)
    np.testing.assert_allclose(f(a, b), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m, n, k", [(128, 128, 128), (5, 7, 3), (1, 1, 1), (3, 9, 0), (0, 4, 4)])
def test_a_program_and_its_schedule_are_ops(m, n, k):
    a, b = operands(m, n, k)
    for f in (mm_relu.build(), tutorial().build()):
        assert isinstance(f, narrows.Op) and f.op.startswith("program.mm_relu_")
        check(f, a, b)


def test_tensors_of_frameworks():
    torch = pytest.importorskip("torch")
    a, b = operands(16, 24, 8)
    f = tutorial().build()
    got = f(torch.from_numpy(a), torch.from_numpy(b))
    assert isinstance(got, torch.Tensor) and np.array_equal(got.numpy(), f(a, b))
    check(f, np.asfortranarray(a), b[::-1][::-1])


def test_params_and_absent_tensors():
    f = scaled.build()
    x = np.arange(3, dtype=F32)
    assert f(x).tolist() == [0, 1.5, 3] and f(x, alpha=2, times=3).tolist() == [0, 6, 12]
    assert f(x, np.ones(3, F32), alpha=1).tolist() == [1, 2, 3]


def test_a_later_schedule_is_the_one_of_later_ops():
    a, b = operands(8, 8, 8)
    first = mm_relu.build()
    want = first(a, b)
    for sch in (tutorial(), Schedule(mm_relu)):
        np.testing.assert_allclose(sch.build()(a, b), want, rtol=1e-5)
    np.testing.assert_allclose(first(a, b), want, rtol=1e-5)


def test_an_evaluation_compares_and_times():
    found = tutorial().evaluate(*operands(32, 32, 32))
    assert 0 < found.seconds < 1 and 0 < found.unscheduled_seconds < 1 and found.error < 1e-5
    assert "us, unscheduled" in repr(found)


@pytest.mark.parametrize("steps", [None, ['parallel(loop="i")']], ids=["default", "scheduled"])
def test_an_evaluation_changes_no_op_that_there_is(steps):
    f = mm_relu.build() if steps is None else taken(steps).build()
    a, b = operands(32, 32, 32)
    before, expected = f.source(), f(a, b)
    taken(['split(loop="j", factors=[None, 8])', 'unroll(loop="j_1")']).evaluate(a, b)
    assert f.source() == before
    with pytest.raises(NotImplementedError, match="is bound to thread"):
        taken(['bind(loop="i", thread="thread.x")']).evaluate(a, b)
    with pytest.raises(ValueError, match="K"):
        taken(['parallel(loop="j")']).evaluate(a, b[1:])
    assert f.source() == before
    np.testing.assert_array_equal(f(a, b), expected)


def taken(steps):
    sch = Schedule(mm_relu)
    for line in steps:
        sch.apply(line)
    return sch


def test_a_backend_that_cannot_run_a_call_is_refused():
    a, b = operands(4, 4, 4)
    for measure in (Schedule(mm_relu).evaluate, Schedule(mm_relu).tune):
        with pytest.raises(
            RuntimeError, match="no backend runs tensor programs on metal:0, where the call runs; usable there: none"
        ):
            measure(a, b, device="metal")
        with pytest.raises(ValueError, match="backend = 'nonsense'; expected the name of a plugin that was found"):
            measure(a, b, backend="nonsense")
        with pytest.raises(TypeError, match="backend = 1; expected a string"):
            measure(a, b, backend=1)
    with pytest.raises(TypeError, match="backend = 1; expected a string"):
        Schedule(mm_relu).auto(1)
    with pytest.raises(TypeError, match="backend = None; expected a string"):
        Schedule(mm_relu).build(None)


@pytest.mark.parametrize("kind", [1, 3, 11])
def test_pinned_memory_is_the_cpu_s(kind):
    pinned = type("Pinned", (), {"__dlpack_device__": lambda self: (kind, 0)})()
    assert _evaluation.backend_of(mm_relu.program, (pinned,), {}, None) == ("cpu", {})


def test_an_evaluation_finds_a_difference():
    one, two = np.ones(3, F32), np.array([1, 1, 1.01], F32)
    assert _evaluation.compared("f", ((one,), 1.0), ((one,), 2.0)).error == 0
    with pytest.raises(ArithmeticError, match=r"differs by 0\.0099, relative; expected at most 1e-04"):
        _evaluation.compared("f", (one, 1.0), (two, 2.0))
    nan = np.array([1, 1, np.nan], F32)
    assert _evaluation.compared("f", (nan, 1.0), (nan, 2.0)).error == 0
    with pytest.raises(ArithmeticError, match="differs by inf"):
        _evaluation.compared("f", (nan, 1.0), (one, 2.0))
    with pytest.raises(ArithmeticError, match="expected at most 0e\\+00"):
        _evaluation.compared("f", (np.array([1]), 1.0), (np.array([2]), 2.0))


def test_calls_that_are_refused():
    f = mm_relu.build()
    a, b = operands(4, 4, 4)
    with pytest.raises(ValueError, match="K"):
        f(a, b[:3])
    with pytest.raises(ValueError, match="float64"):
        f(a.astype("float64"), b.astype("float64"))


@T.prim_func
def add_to(A: T.Buffer(("n",), F32), B: T.Buffer(("n",), F32)):
    for i in T.serial(A.shape[0]):
        with T.block("B"):
            vi = T.axis.spatial(A.shape[0], i)
            B[vi] = B[vi] + A[vi]


def test_a_tensor_that_is_read_first_changes_only_as_out():
    f, a, b = add_to.build(), np.ones(3, F32), np.arange(3, dtype=F32)
    assert f(a, b).tolist() == [1, 2, 3] and b.tolist() == [0, 1, 2]
    assert f(a, b, out=b) is b and b.tolist() == [1, 2, 3]


def test_strided_inputs_and_outputs():
    f, (a, b), out = mm_relu.build(), operands(12, 20, 8), np.zeros((9, 6), F32).T
    a, b = a[::-2, ::4], b.T[::5, :2].T
    assert f(a, b, out=out[:, 1::2]) is not None
    np.testing.assert_allclose(out[:, 1::2], np.maximum(a @ b, 0), rtol=1e-5, atol=1e-6)
    assert not out[:, ::2].any()


def test_torch_compiles_and_exports():
    torch = pytest.importorskip("torch")
    f, b = mm_relu.build(), torch.randn(3, 6)
    compiled = torch.compile(lambda x: f(x.sin(), b) + 1, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (4, 7):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), (x.sin() @ b).relu() + 1)

    class Model(torch.nn.Module):
        def forward(self, x):
            return f(x, b)

    exported = torch.export.export(Model(), (x,), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
    x = torch.randn(9, 3)
    torch.testing.assert_close(exported.module()(x), (x @ b).relu())
    batch = torch.randn(2, 4, 3)
    torch.testing.assert_close(torch.func.vmap(f, in_dims=(0, None))(batch, b), (batch @ b).relu())


def test_dynamo_keeps_no_op_of_a_program():
    gc.collect()  # what other tests left
    before = len(narrows._ops._fresh)
    f = mm_relu.build()
    assert len(narrows._ops._fresh) == before + 1
    del f
    gc.collect()
    assert len(narrows._ops._fresh) == before


def test_a_program_is_an_op_by_its_name():
    f, (a, b) = mm_relu.build(), operands(3, 4, 5)
    attribute = f.op.removeprefix("program.").removesuffix("/1")
    assert f.op in list(narrows.ops) and attribute in dir(narrows.ops.program)
    for named in (
        narrows.op(f.op),
        narrows.ops[f.op],
        getattr(narrows.ops.program, attribute),
        narrows.op(f.op.removesuffix("/1")),
    ):
        assert named.op == f.op and np.array_equal(named(a, b), f(a, b))
    assert narrows.op(scaled.build().op, alpha=2)(np.ones(2, F32)).tolist() == [2, 2]
    assert f"The op {f.op}" in f.__doc__ and "Inputs: A, B." in f.__doc__ and "Gradients: none." in f.__doc__
    with pytest.raises(KeyError, match=r"unknown op 'program\.mm_relu_0/1'; no program of that name was loaded"):
        narrows.ops["program.mm_relu_0/1"]


def test_torch_and_jax_call_a_program_by_its_name():
    f, (a, b) = mm_relu.build(), operands(3, 4, 5)
    torch = pytest.importorskip("torch")
    (y,) = torch.ops.narrows.program([torch.from_numpy(a), torch.from_numpy(b)], f.op)
    assert np.array_equal(y.numpy(), f(a, b))
    jax = pytest.importorskip("jax")
    narrows_jax = pytest.importorskip("narrows.jax")
    np.testing.assert_array_equal(narrows_jax.call(f.op, jax.numpy.asarray(a), jax.numpy.asarray(b)), f(a, b))


def test_torch_has_no_gradient():
    torch = pytest.importorskip("torch")
    f, x = mm_relu.build(), torch.randn(4, 3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="declares no backward op, so there is no derivative"):
        f(x, torch.randn(3, 6)).sum().backward()
    assert x.grad is None


def test_jax():
    jax = pytest.importorskip("jax")
    f, (a, b) = mm_relu.build(), operands(4, 6, 3)
    want = np.maximum(a @ b, 0)
    x, y = jax.numpy.asarray(a), jax.numpy.asarray(b)
    np.testing.assert_allclose(jax.jit(f)(x, y), want, rtol=1e-5, atol=1e-6)
    batch = jax.vmap(f, in_axes=(0, None))(jax.numpy.stack([x, 2 * x]), y)
    np.testing.assert_allclose(batch, [want, 2 * want], rtol=1e-5, atol=1e-6)
    for function in (f, jax.jit(f)):
        with pytest.raises(NotImplementedError, match="declares no backward op, so there is no derivative"):
            jax.grad(lambda x, function=function: function(x, y).sum())(x)


def test_the_source_of_a_program():
    sch = Schedule(mm_relu)
    plain = sch.build().source()
    assert plain.startswith("// cpu: kernel '") and "narrows_program(" in plain and "mm_relu" not in plain
    scheduled = tutorial().build().source(backend="cpu")
    assert scheduled != plain and "parallel(" in scheduled.partition("narrows_program(")[2]
    with pytest.raises(NotImplementedError, match="backend 'metal' gives no source of programs; expected one of cpu"):
        mm_relu.build().source("metal")
    with pytest.raises(ValueError, match="conv1d is no tensor program"):
        narrows.op("conv1d").source()


def test_the_source_says_what_became_of_a_loop_of_lanes():
    sch = Schedule((TEXTS / "mm_relu.program").read_text())
    sch.vectorize(sch.get_loops("Y")[0])
    source = sch.build().source()
    assert "// vectors of a loop that the program has further out" in source and "// no vectors" not in source
    sch.reverse_compute_at("C", sch.get_loops("Y")[0])  # each lane has a row of Y of its own
    assert "// no vectors: the loop is not the innermost, or stores at one place" in sch.build().source()


@pytest.mark.parametrize("name", sorted(path.stem for path in TEXTS.glob("*.program")))
def test_every_program_has_a_source(name):
    assert "narrows_program(" in PrimFunc((TEXTS / f"{name}.program").read_text()).build().source()


@pytest.mark.parametrize("dtype, most", [("float16", 2048), ("bfloat16", 256), (F32, 4096)])
def test_a_sum_is_rounded_to_its_buffer_s_dtype_each_time(dtype, most):
    @T.prim_func
    def count(A: T.Buffer(("n",), "int8"), C: T.Buffer((1,), F32)):
        total = T.alloc_buffer((1,), dtype)
        for k in range(A.shape[0]):
            with T.block("total"):
                vk = T.axis.reduce(A.shape[0], k)
                with T.init():
                    total[0] = T.cast(0, dtype)
                total[0] += T.cast(A[vk], dtype)
        with T.block("C"):
            C[0] = T.cast(total[0], F32)

    assert Schedule(count).build()(np.ones(4096, "int8")) == [most]  # the next odd number has no place


def test_the_compiler_of_a_backend(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "gcc")
    assert _source.compiler("cpu").startswith("gcc ")
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    assert _source.compiler("cpu") == _source.compiler("metal") == ""


def test_a_source_needs_no_sizes():
    text = """program 1 strided(x: f32[L], w: f32[128], y: out f32[(L + stride - 128) // stride], stride: param i64 = 0):
  for i in (L + stride - 128) // stride:
    block y(vi: S((L + stride - 128) // stride) = i):
      y[vi] = w[0]
"""
    assert "narrows_program(" in PrimFunc(text).build().source()


def test_a_program_is_copied_and_pickled_with_its_text():
    f, x = scaled.build(gradient=True).bind(alpha=2), np.arange(3, dtype=F32)
    for again in (copy.copy(f), copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        assert again == f and again.params == f.params and again(x).tolist() == [0, 2, 4]
    assert id(again) in narrows._ops._fresh  # Dynamo was told of it
    code = f"import pickle; f = pickle.loads({pickle.dumps(f)!r}); import numpy; print(f.backward, f(numpy.arange(3, dtype='float32')))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == f"{f.backward} [0. 2. 4.]\n"


def row_sums(has_init):
    @T.prim_func
    def sq(x: T.Buffer(("N", "M"), "float32"), y: T.Buffer(("N",), "float32")):
        for i, j in T.grid(*x.shape):
            with T.block("y"):
                vi, vj = T.axis.remap("SR", [i, j])
                if has_init:
                    with T.init():
                        y[vi] = T.float32(0)
                y[vi] = y[vi] + x[vi, vj]

    return sq.build()


def arrays(framework):
    """Of 2 x 3 ones, and a function that compiles an op."""
    if framework == "numpy":
        return np.ones((2, 3), "float32"), lambda f: f
    module = pytest.importorskip(framework)
    if framework == "jax":
        return module.numpy.ones((2, 3)), module.jit
    return module.ones(2, 3), lambda f: module.compile(lambda *given: f(*given), fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_errors_call_a_program_by_its_own_name(framework):
    x, compiled = arrays(framework)
    f = row_sums(True)
    for g in (f, narrows.op(f.op), copy.copy(f)):
        with pytest.raises(TypeError, match=r"^sq takes 1 tensor; 2 were given"):
            g(x, x)
        with pytest.raises(ValueError, match=r"^sq: x has shape \(3,\) \(1 dimensions\); expected \(N, M\)"):
            g(x[0])
        with pytest.raises(TypeError, match=r"^sq has no argument 'alpha'"):
            g(x, alpha=1)
    with pytest.raises(Exception, match="sq takes 1 tensor; 2 were given"):
        compiled(f)(x, x)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_an_absent_tensor_that_is_read_first_is_explained(framework):
    x, compiled = arrays(framework)
    f = row_sums(False)
    for g in (f, compiled(f)):
        with pytest.raises(
            Exception, match=r"sq: y is read before it is stored, so it is an input, too, and it is absent; .*T\.init"
        ):
            g(x)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_a_program_that_is_called_as_a_function_of_ours_keeps_its_names(framework):
    f = PrimFunc(
        "program 1 clip(a: f32[n], b: f32[n], y: out f32[n]):\n  for i in n:\n    block y(v: S(n) = i):\n      y[v] = a[v] + b[v]\n"
    )
    x, _ = arrays(framework)
    given = [x[0], x[0].clone().requires_grad_()] if framework == "torch" else [x[0]]
    for a in given:
        with pytest.raises(TypeError, match=r"^clip: b: list is no array"):
            f.build()(a, [1.0])
