# SPDX-License-Identifier: Apache-2.0
"""A dropped-in plugin's op in every framework with no glue: one in C without a backward, one in C++ with."""

import inspect
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import narrows

HERE = pathlib.Path(__file__).parents[1]
AFFINE = {"x": (3, 4), "a": (3, 4), "b": (3, 4)}


def arrays(dtype="float32"):
    rng = np.random.default_rng(0)
    return [rng.uniform(size=s).astype(dtype) for s in AFFINE.values()]


def test_numpy(minimal_plugin, scale_plugin):
    b, c = np.arange(128, dtype="float32"), np.ones(200, "float32")
    expected = b[np.arange(200) % 128] + 1
    np.testing.assert_array_equal(minimal_plugin.mod_add(b, c), expected)  # 128 is what the declaration has as initial
    np.testing.assert_array_equal(narrows.ops["example.mod_add/1"](b=b, c=c, modulus=4), b[np.arange(200) % 4] + 1)
    assert narrows.op("example.mod_add").op == "example.mod_add/1"
    assert minimal_plugin.mod_add.params == {"modulus": 128} and "mod_add" in dir(minimal_plugin)
    np.testing.assert_allclose(scale_plugin.scale(b), 2 * b)
    x, a, b = arrays("float64")
    np.testing.assert_allclose(scale_plugin.affine(x, a, b), a * x + b)
    np.testing.assert_allclose(scale_plugin.affine(x, a), a * x)


KEYWORDS = """
#include <narrows/plugin.hpp>
using namespace narrows::plugin;
struct Params { double lambda_value; int64_t kind; };
void pick(const Launch& call) {
  const Params p = call.params<Params>();
  const float* const x = call.input<float>(p.kind == 1 && call.has_input(1) ? 1 : 0);
  call.parallel_for(call.size(0), [=, y = call.output<float>(0)](int64_t i) { y[i] = float(p.lambda_value) * x[i]; });
}
NARROWS_PLUGIN("words", {.name = "words.pick/1", .inputs = {"in", "is?"}, .outputs = {"y"}, .shape_rule = "in,N ; in,N? -> in,N",
                         .kernel = pick, .params = {field("lambda", &Params::lambda_value, 1.0), field("class", &Params::kind)},
                         .params_size = sizeof(Params)})
"""


def test_names_that_are_words_of_python():
    """Each has an underscore behind it, in the call, the signature, the params and torch's schema."""
    pick = narrows.load_inline("words", KEYWORDS).pick
    x = np.ones((2, 3), "float32")
    assert list(inspect.signature(pick).parameters)[:4] == ["in_", "is_", "lambda_", "class_"]
    assert pick.inputs == ("in_", "is_?") and pick.params == {"lambda_": 1.0, "class_": 0}
    assert "Inputs: in_, is_ (may be absent)." in pick.__doc__ and "lambda_: float; 1.0 unless given." in pick.__doc__
    np.testing.assert_array_equal(pick(in_=x, is_=3 * x, lambda_=2, class_=1), 6)
    np.testing.assert_array_equal(narrows.op("words.pick", lambda_=4).bind(class_=1)(x), 4)
    assert repr(pick.bind(lambda_=2)) == "narrows.op('words.pick/1', lambda_=2.0)"
    with pytest.raises(ValueError, match=r"in has shape \(3,\)"):
        pick(x[0])
    torch = pytest.importorskip("torch")
    op, t = torch.ops.narrows.words_pick_1, torch.ones(2, 3)
    assert (
        str(op.default._schema)
        == "narrows::words_pick_1(Tensor in_, Tensor? is_=None, *, Scalar lambda_=1., SymInt class_=0) -> Tensor"
    )
    torch.testing.assert_close(op(in_=t, is_=2 * t, lambda_=3, class_=1), 6 * t)
    compiled = torch.compile(
        lambda x: pick(x, is_=x, lambda_=2, class_=x.shape[0] // 2), fullgraph=True, backend="aot_eager", dynamic=True
    )
    torch.testing.assert_close(compiled(t), 2 * t)


def test_errors_come_with_the_plugins_words(minimal_plugin, scale_plugin):
    b = np.ones(4, "float32")
    with pytest.raises(ValueError, match="modulus is 9; expected 1 to 4"):
        minimal_plugin.mod_add(b, b, modulus=9)
    with pytest.raises(NotImplementedError, match="dtype is code 2, bits 64"):
        minimal_plugin.mod_add(b.astype("float64"), b.astype("float64"), modulus=1)
    with pytest.raises(RuntimeError, match="mode 2 always fails"):
        scale_plugin.scale(b, mode=2)
    with pytest.raises(
        NotImplementedError, match=r"input x has shape \(2, 4\) and strides \(1, 4\); expected a C-contiguous tensor"
    ):
        scale_plugin.scale(np.ones((4, 4), "float32").T[:2])
    with pytest.raises(NotImplementedError, match="input x has dtype int32; expected float32 or float64"):
        scale_plugin.scale(np.ones(4, "int32"))
    unaligned = np.frombuffer(bytes(17), "uint8")[1:].view("float32")
    with pytest.raises(NotImplementedError, match="input x has an address that is no multiple of 4 bytes"):
        scale_plugin.scale(unaligned)
    with pytest.raises(ValueError, match="has shape"):
        scale_plugin.affine(b, np.ones(5, "float32"))


def test_torch(minimal_plugin, scale_plugin):
    torch = pytest.importorskip("torch")
    b, c = torch.arange(4.0), torch.ones(6)
    expected = torch.tensor([1.0, 2, 3, 4, 1, 2])
    torch.testing.assert_close(minimal_plugin.mod_add(b, c, modulus=4), expected)
    torch.testing.assert_close(torch.ops.narrows.example_mod_add_1(b, c, modulus=4), expected)
    compiled = torch.compile(lambda b, c: minimal_plugin.mod_add(b, c, modulus=4) * 2, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(b, c), expected * 2)
    torch.library.opcheck(torch.ops.narrows.example_mod_add_1.default, (b, c), {"modulus": 4})
    with pytest.raises(NotImplementedError, match="declares no backward op"):
        minimal_plugin.mod_add(b.requires_grad_(), c, modulus=4).sum().backward()


def mod_add_reference(b, c, modulus):
    return b[np.arange(c.shape[-1]) % modulus] + c


def test_torch_sees_the_minimal_plugin(minimal_plugin, tmp_path):
    """Under vmap, with sizes that change, exported: an op with a rule, without a backward, that knows no batch."""
    torch = pytest.importorskip("torch")
    from torch._dynamo.testing import CompileCounterWithBackend

    mod_add = lambda b, c: minimal_plugin.mod_add(b, c, modulus=4)  # noqa: E731
    b, c = torch.randn(5), torch.randn(3, 7)
    expected = torch.stack([torch.from_numpy(mod_add_reference(b.numpy(), row.numpy(), 4)) for row in c])
    torch.testing.assert_close(torch.vmap(mod_add, in_dims=(None, 0))(b, c), expected)
    torch.testing.assert_close(torch.vmap(mod_add, in_dims=(None, 1), out_dims=1)(b, c.T.contiguous()), expected.T)
    torch.testing.assert_close(torch.vmap(mod_add)(b.expand(3, 5), c), expected)
    assert torch.vmap(mod_add, in_dims=(None, 0))(b, c[:0]).shape == (0, 7)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda b, c: mod_add(b, c) * 2, backend=counter, fullgraph=True)
    for n in (5, 6, 9, 30):
        c = torch.randn(n)
        torch._dynamo.mark_dynamic(c, 0)
        torch.testing.assert_close(compiled(b, c).numpy(), 2 * mod_add_reference(b.numpy(), c.numpy(), 4))
    assert counter.frame_count == 1

    class Model(torch.nn.Module):
        def forward(self, b, c):
            return mod_add(b, c) + 1

    program = torch.export.export(Model(), (b, torch.randn(6)), dynamic_shapes={"b": None, "c": {0: torch.export.Dim("n", min=2)}})
    assert "narrows.example_mod_add_1" in str(program.graph)
    torch.export.save(program, tmp_path / "model.pt2")
    c = torch.randn(11)
    again = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(again(b, c).numpy(), mod_add_reference(b.numpy(), c.numpy(), 4) + 1)


def test_jax_sees_the_minimal_plugin(minimal_plugin):
    jax = pytest.importorskip("jax")
    b, c = (
        np.random.default_rng(0).normal(size=(3, 5)).astype("float32"),
        np.random.default_rng(1).normal(size=(3, 7)).astype("float32"),
    )
    mod_add = lambda b, c: minimal_plugin.mod_add(b, c, modulus=4)  # noqa: E731
    expected = np.stack([mod_add_reference(*rows, 4) for rows in zip(b, c, strict=True)])
    b, c = map(jax.numpy.asarray, (b, c))
    for transform in (jax.vmap, lambda f: jax.jit(jax.vmap(f)), lambda f: jax.vmap(jax.jit(f))):
        np.testing.assert_array_equal(transform(mod_add)(b, c), expected)
    np.testing.assert_array_equal(
        jax.vmap(mod_add, in_axes=(None, 1), out_axes=1)(b[0], c.T), jax.vmap(mod_add, in_axes=(None, 0))(b[0], c).T
    )
    assert jax.vmap(mod_add)(b[:0], c[:0]).shape == (0, 7)


def test_torch_with_a_backward(scale_plugin):
    torch = pytest.importorskip("torch")
    x, a, b = (torch.from_numpy(n).requires_grad_() for n in arrays("float64"))
    scale, affine = scale_plugin.scale, scale_plugin.affine
    assert torch.autograd.gradcheck(lambda x: scale(x, factor=2.5), (x,))
    assert torch.autograd.gradcheck(affine, (x, a, b)) and torch.autograd.gradcheck(lambda x: affine(x, a.detach()), (x,))
    assert torch.autograd.gradcheck(torch.ops.narrows.test_affine_1, (x, a, b))
    torch.library.opcheck(torch.ops.narrows.test_affine_1.default, (x, a, b))
    gradient = torch.func.grad(lambda x: scale(x, factor=3.0).sum())
    torch.testing.assert_close(gradient(x.detach()), torch.full_like(x, 3))
    torch.testing.assert_close(torch.vmap(gradient)(x.detach()), torch.full_like(x, 3))
    compiled = torch.compile(lambda x, a, b: affine(scale(x, factor=2.0), a, b).sum(), fullgraph=True, backend="aot_eager")
    (g,) = torch.autograd.grad(compiled(x, a, b), x)
    torch.testing.assert_close(g, 2 * a.detach())


def test_a_second_derivative_where_it_is_declared(scale_plugin):
    torch = pytest.importorskip("torch")
    x, a, _ = (torch.from_numpy(n).requires_grad_() for n in arrays("float64"))
    scale = scale_plugin.scale
    for call in (lambda x: scale(x, factor=2.5), lambda x: torch.ops.narrows.test_scale_1(x, factor=2.5)):
        assert torch.autograd.gradgradcheck(call, (x,))
        cube = lambda x, call=call: (call(x) ** 3).sum()  # noqa: E731
        second = torch.func.grad(lambda x, cube=cube: torch.func.grad(cube)(x).sum())(x.detach())
        torch.testing.assert_close(second, 6 * 2.5**3 * x.detach())
    with pytest.raises(NotImplementedError, match=r"test\.affine_backward/1 declares no backward op, so there is no second"):
        torch.autograd.gradgradcheck(scale_plugin.affine, (x, a))


PRODUCT = """
#include <narrows/plugin.hpp>
using narrows::plugin::Launch;
void product(const Launch& call) {
  const double *a = call.input<double>(0), *b = call.input<double>(1);
  call.parallel_for(call.size(0), [=, y = call.output<double>(0)](int64_t i) { y[i] = a[i] * b[i]; });
}
void backward(const Launch& call) {  // grad_y?, a, b, y? -> those that are there
  const double *g = call.has_input(0) ? call.input<double>(0) : nullptr, *const factors[] = {call.input<double>(2), call.input<double>(1)};
  for (uint32_t j = 0; j < 2; ++j) {
    if (!call.has_output(j)) continue;
    call.parallel_for(call.size(j), [=, f = factors[j], out = call.output<double>(j)](int64_t i) { out[i] = g == nullptr ? 0 : g[i] * f[i]; });
  }
}
const std::vector<DLDataType> kDouble = {narrows::plugin::dtype<double>()};
NARROWS_PLUGIN("VENDOR", {.name = "VENDOR.product/1", .inputs = {"a", "b"}, .outputs = {"y"}, .shape_rule = "...;...->...", .kernel = product,
                          .dtypes = kDouble, .backward = "VENDOR.product_backward/1", .saved = 0b11},
               {.name = "VENDOR.product_backward/1", .inputs = {"grad_y?", "a", "b", "y?"}, .outputs = {OUTPUTS},
                .shape_rule = "...? ; ... ; ... ; ...? -> ... ; ...", .kernel = backward, .dtypes = kDouble})
"""


ALWAYS = {"both": '"grad_a", "grad_b"', "first": '"grad_a", "grad_b?"', "second": '"grad_a?", "grad_b"'}


@pytest.fixture(params=ALWAYS)
def product(request):
    """An op whose backward has gradients that no call may leave out: they are declared without '?'."""
    return narrows.load_inline(
        request.param, PRODUCT.replace("VENDOR", request.param).replace("OUTPUTS", ALWAYS[request.param])
    ).product


@pytest.mark.parametrize("needed", [(0, 1), (0,), (1,)], ids=["ab", "a", "b"])
def test_torch_with_gradients_that_are_always_there(product, needed):
    torch = pytest.importorskip("torch")
    op = getattr(torch.ops.narrows, product.op.replace(".", "_").replace("/", "_"))
    values = [torch.rand(3, 4, dtype=torch.float64) for _ in range(2)]
    inputs = [x.clone().requires_grad_(i in needed) for i, x in enumerate(values)]
    wanted, expected = [inputs[i] for i in needed], tuple(values[1 - i] for i in needed)
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: product(a, b).sum(), fullgraph=True, backend="aot_eager")
    for call in (product, op, compiled):
        torch.testing.assert_close(torch.autograd.grad(call(*inputs).sum(), wanted), expected)
        assert torch.autograd.gradcheck(call, inputs)
    for call in (product, op):  # by torch's older vmap
        y = call(*inputs)
        rows = torch.autograd.grad(y, wanted, torch.stack([torch.ones_like(y), 2 * torch.ones_like(y)]), is_grads_batched=True)
        torch.testing.assert_close(rows, tuple(torch.stack([e, 2 * e]) for e in expected))
    torch.library.opcheck(op.default, inputs)
    gradient = torch.func.grad(lambda *x: product(*x).sum(), argnums=needed)
    torch.testing.assert_close(gradient(*values), expected)
    torch.testing.assert_close(torch.vmap(gradient)(*values), expected)


def test_jax_with_gradients_that_are_always_there(product):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    try:
        a, b = (jax.numpy.asarray(x) for x in arrays("float64")[:2])
        gradient = jax.grad(lambda a, b: product(a, b).sum(), (0, 1))
        for transformed in (gradient, jax.jit(gradient), jax.vmap(gradient)):
            np.testing.assert_array_equal(transformed(a, b), (b, a))
    finally:
        jax.config.update("jax_enable_x64", False)


WHERE_AND_TWICE = """
#include <narrows/plugin.hpp>
using namespace narrows::plugin;
void forward(const Launch& call) {  // where x > 1 as 0 or 1, and 2 x
  const double* const x = call.input<double>(0);
  call.parallel_for(call.size(0), [=, at = call.output<int64_t>(0)](int64_t i) { at[i] = x[i] > 1; });
  call.parallel_for(call.size(1), [=, y = call.output<double>(1)](int64_t i) { y[i] = 2 * x[i]; });
}
void backward(const Launch& call) {  // grad_at?, grad_y?, x, at?, y? -> grad_x?: NaN where there is a gradient of `at`
  const double* const g = call.has_input(1) ? call.input<double>(1) : nullptr;
  call.parallel_for(call.size(0), [=, out = call.output<double>(0), wrong = call.has_input(0)](int64_t i) {
    out[i] = wrong ? 0.0 / 0.0 : g == nullptr ? 0 : 2 * g[i];
  });
}
struct Mixed : Plugin {
  explicit Mixed(std::vector<Op> ops) : Plugin("mixed", std::move(ops)) {
    table_.infer = [](void*, const nw_sig* sig, nw_spec* out, uint32_t, nw_error*) -> int32_t {
      const bool is_forward = std::strcmp(sig->op, "mixed.pair/1") == 0;
      out[0].dtype = is_forward ? dtype<int64_t>() : dtype<double>();
      if (is_forward) out[1].dtype = dtype<double>();
      return NW_OK;
    };
  }
};
const nw_plugin* narrows_plugin_query(uint32_t, nw_error*) {
  static const std::vector<DLDataType> dtypes = {dtype<double>(), dtype<int64_t>()};
  static const auto* const plugin = new Mixed({
      {.name = "mixed.pair/1", .inputs = {"x"}, .outputs = {"at", "y"}, .shape_rule = "like 0 ; like 0", .kernel = forward,
       .dtypes = dtypes, .backward = "mixed.pair_backward/1"},
      {.name = "mixed.pair_backward/1", .inputs = {"grad_at?: i64", "grad_y?", "x", "at?: i64", "y?"},
       .outputs = {"grad_x?"}, .kernel = backward, .dtypes = dtypes}});
  return plugin->table();
}
"""


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_gradient_beside_an_output_of_integers(framework):
    module, pair = pytest.importorskip(framework), narrows.load_inline("mixed", WHERE_AND_TWICE).pair
    if framework == "torch":
        for transform in (lambda f: f, lambda f: module.compile(f, backend="aot_eager", fullgraph=True)):
            x = module.tensor([1.0, 2.0], dtype=module.float64, requires_grad=True)
            at, y = transform(lambda x: pair(x))(x)
            assert at.tolist() == [0, 1] and at.dtype == module.int64 and not at.requires_grad
            y.sum().backward()
            assert x.grad.tolist() == [2, 2]
        return
    module.config.update("jax_enable_x64", True)
    try:
        for transform in (lambda f: f, module.jit):
            (at, y), gradient = module.vjp(transform(lambda x: pair(x)), module.numpy.asarray([1.0, 2.0]))
            assert at.tolist() == [0, 1] and at.dtype == "int64" and y.tolist() == [2, 4]
            assert gradient((np.zeros(2, module.dtypes.float0), y))[0].tolist() == [4, 8]
            total = module.grad(transform(lambda x: pair(x)[1].sum()))
            assert total(module.numpy.asarray([1.0, 2.0])).tolist() == [2, 2]
    finally:
        module.config.update("jax_enable_x64", False)


def test_torch_sees_dynamic_sizes_through_the_rule(scale_plugin):
    torch = pytest.importorskip("torch")
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: scale_plugin.affine(x, x) + 1, backend=counter, fullgraph=True)
    for n in (5, 6, 7, 8, 9):
        x = torch.ones(n)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), x + 1)
    assert counter.frame_count == 1


def test_torch_exports_it(scale_plugin, tmp_path):
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def forward(self, x, a):
            return scale_plugin.affine(scale_plugin.scale(x, factor=3.0), a) + 1

    x, a = torch.rand(3, 4), torch.rand(3, 4)
    rows = torch.export.Dim.AUTO
    program = torch.export.export(Model(), (x, a), dynamic_shapes={"x": {0: rows}, "a": {0: rows}})
    assert "narrows.test_affine_1" in str(program.graph) and "narrows.test_scale_1" in str(program.graph)
    torch.export.save(program, tmp_path / "model.pt2")
    again = torch.export.load(tmp_path / "model.pt2").module()
    x, a = torch.rand(7, 4), torch.rand(7, 4)
    torch.testing.assert_close(again(x, a), 3 * x * a + 1)


def test_inductor_compiles_around_it(scale_plugin):
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    x, a, b = map(torch.from_numpy, arrays("float64"))
    compiled = torch.compile(lambda x, a, b: torch.sin(scale_plugin.affine(torch.exp(x), a, b)), fullgraph=True)
    torch.testing.assert_close(compiled(x, a, b), torch.sin(a * torch.exp(x) + b))


def test_jax(minimal_plugin, scale_plugin):
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    mod_add = jax.jit(lambda b, c: minimal_plugin.mod_add(b, c, modulus=4))
    np.testing.assert_array_equal(mod_add(jnp.arange(4.0), jnp.ones(6)), [1, 2, 3, 4, 1, 2])
    x, a, b = map(jnp.asarray, arrays())
    f = lambda x, a, b: scale_plugin.affine(scale_plugin.scale(x, factor=3.0), a, b).sum()  # noqa: E731
    g = lambda x, a, b: (a * 3 * x + b).sum()  # noqa: E731
    for ours, theirs in zip(jax.jit(jax.grad(f, argnums=(0, 1, 2)))(x, a, b), jax.grad(g, argnums=(0, 1, 2))(x, a, b), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    batched = jax.vmap(lambda x: scale_plugin.scale(x, factor=3.0))(x)
    np.testing.assert_allclose(batched, 3 * x, rtol=1e-6)


def test_outputs_that_share_memory(scale_plugin):
    x, o = np.ones((3, 4), "float32"), np.zeros((3, 4), "float32")
    scale, backward = scale_plugin.scale, narrows.op("test.affine_backward/1")
    for call, words in (
        (lambda: backward(x, x, x, None, None, out=(o, o, None)), r"grad_a of shape \(3, 4\) .*overlaps grad_x"),
        (lambda: scale(x[0], out=np.lib.stride_tricks.as_strided(o, (4,), (0,))), "two elements share a place"),
        (lambda: scale(o[0, :3], out=o[0, 1:]), r"y of shape \(3,\) .*overlaps x"),
        (lambda: scale(o, out=o), "y is the same memory as x; this op does not work in place"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert not o.any()


# ---- an op that no CPU has ----


def with_far(code):
    """Runs code in a process of its own, since the plugin says that it serves CUDA's device; gives its output."""
    start = f"import narrows; narrows.load({narrows.build(HERE / 'plugins' / 'far.cpp')!r}); far = narrows.ops.far.scale\n"
    done = subprocess.run([sys.executable, "-c", start + textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_op_of_another_device_in_torch():
    """Shapes are inferred for the device where the tensors are, not for the CPU: fake tensors, compile, export, vmap, meta."""
    pytest.importorskip("torch")
    out = with_far("""
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode() as mode:
            x = torch.empty(3, 4, device="cuda")
            y = torch.ops.narrows.far_scale_1(x, factor=3.0)
            print(tuple(y.shape), y.dtype, y.device)
            print(tuple(torch.vmap(lambda x: torch.ops.narrows.far_scale_1(x))(x).shape))
            class Net(torch.nn.Module):
                def forward(self, x): return far(x, factor=3.0) + 1
            program = torch.export.export(Net(), (x,))
            print([n.target.__name__ for n in program.graph.nodes if "narrows" in str(n.target)])
        print(tuple(far(torch.empty(5, device="meta")).shape))
        try: far(torch.ones(2))
        except NotImplementedError as error: print(error)
    """)
    assert out.splitlines() == [
        "(3, 4) torch.float32 cuda:0",
        "(3, 4)",
        "['far_scale_1.default']",
        "(5,)",
        "far.scale/1: not among the ops of cpu",
    ]


def test_an_op_of_another_device_in_jax():
    """Traced for the platforms that have the op. There is no GPU here: the program is lowered for one, and not run."""
    pytest.importorskip("jax")
    out = with_far("""
        import jax, narrows.jax
        narrows._jax_call._platforms = lambda: frozenset(["cpu", "cuda"])
        x = jax.numpy.ones((3, 4))
        f = lambda x: narrows.jax.call("far.scale/1", x, factor=3.0)
        print(jax.eval_shape(f, x).shape, jax.eval_shape(jax.vmap(f), x).shape, jax.eval_shape(jax.grad(lambda x: f(x).sum()), x).shape)
        text = jax.jit(f).trace(x).lower(lowering_platforms=("cuda",)).as_text()
        print("far.scale/1" in text, "case" in text)
        backward = jax.jit(jax.grad(lambda x: f(x).sum())).trace(x).lower(lowering_platforms=("cuda",)).as_text()
        for program in (text, backward):  # the plan of the forward op says that it may be captured, the backward op's does not
            print(*[line.split("@")[1].split("(")[0] for line in program.splitlines() if "custom_call" in line])
    """)
    assert out == "(3, 4) (3, 4) (3, 4)\nTrue False\nnarrows_capturable\nnarrows\n"


PAIR = """
#include <cmath>
#include <narrows/plugin.hpp>
struct Params {
  double v[2];
};
void sum(const narrows::plugin::Launch& call) {
  const Params p = call.params<Params>();
  call.parallel_for(call.size(0), [=, y = call.output<float>(0)](int64_t i) { y[i] = std::copysign(100.0, p.v[0]) + p.v[1]; });
}
nw_param field() {
  nw_param p{};
  p.name = "v";
  p.dtype = {kDLFloat, 64, 2};
  return p;
}
NARROWS_PLUGIN("pair", {.name = "pair.sum/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = sum,
                        .params = {field()}, .params_size = sizeof(Params)})
"""


def test_torch_is_given_several_numbers_as_one_param():
    torch = pytest.importorskip("torch")
    op, x = narrows.load_inline("pair", PAIR).sum, torch.ones(1, 1)
    assert str(torch.ops.narrows.pair_sum_1.default._schema) == "narrows::pair_sum_1(Tensor x, *, float[2]? v=None) -> Tensor"
    for v, expected in (((-0.0, 1), -99), ((0.0, 1), 101), ((-0.0, 0.0), -100), ((0.0, 0.0), 100)):
        for call in (lambda x, v=v: op(x, v=v), lambda x, v=v: torch.ops.narrows.pair_sum_1(x, v=list(map(float, v)))):
            assert torch.vmap(call)(x).item() == call(x).item() == expected
    assert torch.ops.narrows.pair_sum_1(x).item() == 100
