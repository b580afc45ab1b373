# SPDX-License-Identifier: Apache-2.0
"""torch: compile, export, opcheck, autocast and torch.fx, which see a call without its values."""

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import narrows  # noqa: E402
import narrows.torch  # noqa: E402
from narrows import _rules  # noqa: E402
from torch_inputs import DEVICES, cells, double, on_device  # noqa: E402


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    yield from on_device(request.param)


# ---- compile, export, opcheck, autocast ----


def steps(x, w):
    return narrows.add(narrows.conv1d(x, w, padding=1), 1) * 2


def test_a_padding_may_be_made_of_sizes():
    compiled = torch.compile(lambda x, w: narrows.conv1d(x, w, padding=x.shape[-1] // 4), backend="aot_eager", fullgraph=True)
    for length in (16, 20, 24, 28):
        x, w = torch.randn(1, 1, length), torch.randn(1, 1, 3)
        torch.testing.assert_close(compiled(x, w), narrows.conv1d(x, w, padding=length // 4))


def graphs(call, make, lengths):
    """How many graphs there are after calls with inputs of these lengths, whose results are right."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(call, backend=counter, fullgraph=True)
    for n in lengths:
        inputs = make(n)
        torch.testing.assert_close(compiled(*inputs), call(*inputs))
    return counter.frame_count


ON_THE_CPU = pytest.mark.parametrize("device", ["cpu"], indirect=True)  # the plugins' only one
LENGTHS = (16, 20, 24, 28, 31, 40, 44, 48, 52, 56, 61, 67)
OF_SIZES = {
    "a padding": (lambda x, w: narrows.conv1d(x, w, padding=x.shape[-1] // 4), lambda n: (torch.randn(1, 1, n), torch.randn(1, 1, 3))),
    "same": (lambda x, w: narrows.conv1d(x, w, padding="same"), lambda n: (torch.randn(1, 1, 99), torch.randn(1, 1, n))),
    "causal": (lambda x, w: narrows.conv1d(x, w, padding="causal"), lambda n: (torch.randn(1, 1, 99), torch.randn(1, 1, n))),
    "a right operand": (lambda x: narrows.add(x, x.shape[0]), lambda n: (torch.randn(n),)),
    "a left operand": (lambda x: narrows.subtract(x.shape[0], x), lambda n: (torch.randn(n),)),
    "beside integers": (lambda x: narrows.add(x, x.shape[0]), lambda n: (torch.arange(n),)),
}  # fmt: skip


@pytest.mark.parametrize("call, make", OF_SIZES.values(), ids=OF_SIZES)
def test_one_graph_for_every_number_made_of_sizes(call, make):
    assert graphs(call, make, LENGTHS) == 2  # of the first sizes, and of every other


OF_PARAMS = {
    "a size": lambda p, b, c: p.mod_add(b, c, modulus=b.shape[0]),
    "made of sizes": lambda p, b, c: p.mod_add(b, c, modulus=c.shape[0] // 2 - 1),
    "by torch's name": lambda p, b, c: torch.ops.narrows.example_mod_add_1(b, c, modulus=b.shape[0]),
    "inputs by name": lambda p, b, c: p.mod_add(c=c, b=b, modulus=b.shape[0]),
    "a real one": lambda p, b, c: p.scale(b, factor=b.shape[0] / 2),
    "an integer for a real one": lambda p, b, c: p.scale(b, factor=c.shape[0]),
    "two": lambda p, b, c: p.scale(b, factor=b.shape[0], mode=b.shape[0] // 100),
    "of an op of core": lambda p, b, c: p.conv1d(b, c[:3], pad_left=c.shape[0] // 4),
}  # fmt: skip


class Ops:
    """Bound outside of what is compiled."""

    def __init__(self):
        self.mod_add, self.scale, self.conv1d = narrows.ops.example.mod_add, narrows.ops.test.scale, narrows.op("conv1d", stride=2)


@ON_THE_CPU
@pytest.mark.parametrize("call", OF_PARAMS.values(), ids=OF_PARAMS)
def test_one_graph_for_params_made_of_sizes(call, scale_plugin, minimal_plugin):
    plugins, inputs = Ops(), lambda n: (torch.arange(float(n)), torch.ones(2 * n))
    assert graphs(lambda b, c: call(plugins, b, c), inputs, LENGTHS) == 2


@ON_THE_CPU
def test_gradients_of_params_made_of_sizes(scale_plugin, minimal_plugin):
    plugins, make = Ops(), lambda n: (torch.ones(n, requires_grad=True),)

    def squared(x):
        wide = plugins.conv1d(x, x, pad_left=x.shape[0] // 2, pad_right=x.shape[0])
        return plugins.scale(x, factor=x.shape[0]) * wide.sum()

    gradient = lambda x: torch.autograd.grad(squared(x).sum(), x)[0]  # noqa: E731
    compiled = torch.compile(squared, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in LENGTHS[:4]:
        (x,) = make(n)
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], gradient(x))


@ON_THE_CPU
def test_params_read_from_a_tensor_and_of_the_wrong_kind(scale_plugin, minimal_plugin):
    plugins, inputs = Ops(), lambda n: (torch.arange(float(n)), torch.tensor(n - 1))
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert graphs(lambda b, n: plugins.mod_add(b, b, modulus=n.item()), inputs, LENGTHS) <= 2
    wrong = torch.compile(
        lambda b: plugins.mod_add(b, b, modulus=b.shape[0] / 2), backend="aot_eager", fullgraph=True, dynamic=True
    )
    with pytest.raises(Exception, match=r"modulus is .*; expected an integer"):  # torch's own class
        wrong(torch.ones(4))


UNKNOWN = {
    "an operand": (lambda x, n: narrows.add(x, n.item()), lambda n: (torch.randn(9), torch.tensor(n))),
    "a mask": (lambda x, n: narrows.add(x[x > 0], torch.ones(3)), lambda n: (torch.tensor([1.0, -2, 3, n]), torch.tensor(n))),
    "a slice": (lambda x, n: narrows.conv1d(x[:, :, : n.item()], torch.ones(1, 1, 101)), lambda n: (torch.randn(1, 1, 300), torch.tensor(180 + n))),
}  # fmt: skip


if torch.__version__.startswith("2.8"):  # which cannot slice to a size that is not known
    del UNKNOWN["a slice"]


@pytest.mark.parametrize("call, make", UNKNOWN.values(), ids=UNKNOWN)
def test_sizes_that_nobody_knows(call, make):
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        assert graphs(call, make, LENGTHS) == 1


def test_a_cast_is_compiled():
    compiled = torch.compile(lambda x: narrows.astype(x, "float16") * 2, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2, dtype=torch.float16))


@pytest.mark.parametrize("dynamic", ["marked", "automatic"])
def test_one_graph_for_every_length(dynamic):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(steps, backend=counter, fullgraph=True)
    w = torch.randn(5, 3, 3)
    for length in (17, 18, 19, 30, 31, 64, 65, 101, 8, 9, 10, 11):
        x = torch.randn(4, 3, length)
        if dynamic == "marked":
            torch._dynamo.mark_dynamic(x, 2)
        torch.testing.assert_close(compiled(x, w), steps(x, w))
    assert counter.frame_count == (1 if dynamic == "marked" else 2)


def test_gradients_through_compile():
    torch._dynamo.reset()
    x, w = torch.randn(4, 3, 9, requires_grad=True), torch.randn(5, 3, 3, requires_grad=True)
    compiled = torch.compile(steps, backend="aot_eager", fullgraph=True)
    for a, b in zip(torch.autograd.grad(compiled(x, w).sum(), (x, w)), torch.autograd.grad(steps(x, w).sum(), (x, w)), strict=True):
        torch.testing.assert_close(a, b)


DYNAMIC = {
    "conv1d": (lambda x, w, b: narrows.conv1d(x, w, b, stride=2, padding=1), lambda n: ((4, 3, n), (5, 3, 3), (5,)), {0: 2}),
    "a batch of conv1d": (lambda x, w: narrows.conv1d(x, w), lambda n: ((n, 3, 9), (5, 3, 3)), {0: 0}),
    "lltm": (lambda *a: torch.cat(narrows.lltm(*a)), lambda n: ((n, 3), (12, 7), (12,), (n, 4), (n, 4)), {0: 0, 3: 0, 4: 0}),
    "broadcast": (narrows.multiply, lambda n: ((3, n), (4, 1, n)), {0: 1, 1: 2}),
    "broadcast of 1": (narrows.multiply, lambda n: ((3, n), (3, 1)), {0: 1}),
}  # fmt: skip


@pytest.mark.parametrize("call, shapes, dynamic", DYNAMIC.values(), ids=DYNAMIC)
def test_gradients_of_every_size_in_one_graph(call, shapes, dynamic):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda *a: call(*a) * 2, backend=counter, fullgraph=True)
    for n in (9, 10, 17, 33, 64):
        inputs = [torch.randn(*s).requires_grad_() for s in shapes(n)]
        for i, axis in dynamic.items():
            torch._dynamo.mark_dynamic(inputs[i], axis)
        results = [compiled(*inputs), call(*inputs) * 2]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*[torch.autograd.grad(y.sin().sum(), inputs) for y in results])
    assert counter.frame_count == 1


def test_compile_sees_operands_and_outputs_of_every_kind():
    torch._dynamo.reset()
    h = torch.randn(2, 4)

    def f(x, s):
        a, b = narrows.lltm(x, torch.ones(12, 7), torch.ones(12), h, h)
        return narrows.where(narrows.greater(a, 0), b, 0) + narrows.subtract(1, a) + narrows.multiply(a, s)

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    for s in (0.5, 0.75, 2.5):
        x = torch.randn(2, 3)
        torch.testing.assert_close(compiled(x, s), f(x, s))


def test_inductor_runs_it():
    torch._dynamo.reset()
    x, w = torch.randn(2, 3, 9, requires_grad=True), torch.randn(5, 3, 3)
    compiled = torch.compile(lambda x, w: torch.sin(steps(x, w)).sum(), fullgraph=True)
    expected = torch.sin(steps(x, w)).sum()
    torch.testing.assert_close(compiled(x, w), expected)
    for a, b in zip(torch.autograd.grad(compiled(x, w), x), torch.autograd.grad(expected, x), strict=True):
        torch.testing.assert_close(a, b)


def test_graphs_name_the_op_as_users_do():
    from torch.fx.experimental.proxy_tensor import make_fx

    assert "torch.ops.narrows.elementwise.default(" in make_fx(lambda a: narrows.exp(a))(torch.ones(3)).code


def test_torch_jit_trace():
    """A call is a node, with and without a gradient, written to an output of one's own, and beside an array of NumPy's."""
    x, w = torch.ones(1, 1, 9), torch.ones(1, 1, 3)
    cell = cells()
    calls = {
        "add": lambda a: narrows.add(a, 1) * a,
        "out": lambda a: narrows.add(a, 1, out=torch.empty_like(a)) * a,
        "numpy": lambda a: narrows.subtract(np.float32([5]), a.cpu()),
        "conv1d": lambda a: narrows.conv1d(a, w, stride=2, padding=1),
        "lltm": lambda a: narrows.lltm(cell[0] * a.sum(), *cell[1:])[1],
    }
    for name, call in calls.items():
        for needs_grad in (False, name != "out"):
            leaf = x.clone().requires_grad_(needs_grad)
            traced = torch.jit.trace(call, (leaf,), check_trace=False)
            assert "narrows::" in str(traced.graph), name
            torch.testing.assert_close(traced(2 * leaf), torch.as_tensor(call(2 * leaf), device=traced(2 * leaf).device), msg=name)
            if needs_grad:
                ours, theirs = (torch.autograd.grad(f(2 * leaf).sum(), leaf)[0] for f in (traced, call))
                torch.testing.assert_close(ours, theirs, msg=name)


@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_make_fx(pre_dispatch):
    from torch.fx.experimental.proxy_tensor import make_fx

    for x in (torch.ones(3), torch.ones(3, requires_grad=True)):
        for call in (narrows.exp, lambda a: narrows.add(a, 1), lambda a: narrows.subtract(2, a) * a):
            traced = make_fx(call, pre_dispatch=pre_dispatch)(x)
            assert "torch.ops.narrows.elementwise.default(" in traced.code and "_tensor_constant" not in traced.code
            torch.testing.assert_close(traced(2 * x), call(2 * x))


def test_opcheck():
    x, w, b = (t.detach().float().requires_grad_() for t in (double(2, 3, 8), double(4, 3, 3), double(4)))
    torch.library.opcheck(torch.ops.narrows.conv1d.default, (x, w, b), {"stride": 2})
    torch.library.opcheck(torch.ops.narrows.elementwise.default, (x, x.detach()), {"function": "mul"})
    lltm = [t.detach().float().requires_grad_() for t in (double(2, 3), double(12, 7), double(12), double(2, 4), double(2, 4))]
    torch.library.opcheck(torch.ops.narrows.lltm.default, tuple(lltm))


def test_opcheck_of_the_backward_ops():
    x, w, b = torch.rand(2, 3, 8), torch.rand(4, 3, 3), torch.rand(4)
    for wanted in (-1, 0b101, 0b010):
        torch.library.opcheck(torch.ops.narrows.conv1d_backward.default, (torch.rand(2, 4, 6), x, w, b), {"wanted": wanted})
        arguments = (torch.rand(2, 3, 8), x, torch.rand(3, 8))
        torch.library.opcheck(torch.ops.narrows.elementwise_backward.default, arguments, {"function": "mul", "wanted": wanted & 3})
    cell = cells()
    outputs = torch.ops.narrows.lltm(*cell)
    op = torch.ops.narrows.lltm_backward.default
    count = len([a for a in op._schema.arguments if not a.kwarg_only])
    arguments = [*(torch.rand_like(y) for y in outputs[:2]), *cell, *outputs]
    assert len(arguments) == count
    torch.library.opcheck(op, tuple(arguments), {"wanted": 0b11111})


def test_export():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = narrows.torch.Conv1d(3, 5, 3, padding=1)

        def forward(self, x):
            return narrows.relu(self.conv(x))

    model = Model()
    program = torch.export.export(model, (torch.randn(4, 3, 8),), dynamic_shapes={"x": {2: torch.export.Dim.AUTO}})
    assert "narrows.conv1d" in str(program.graph)
    x = torch.randn(4, 3, 33)
    torch.testing.assert_close(program.module()(x), model(x))


def test_autocast(device):
    x, w = torch.randn(2, 3, 9, requires_grad=True), torch.randn(4, 3, 3)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = narrows.conv1d(x, w)
        assert y.dtype == torch.bfloat16 and narrows.add(x, 1).dtype == torch.float32
    (g,) = torch.autograd.grad(y.float().sum(), x)
    assert g.dtype == torch.float32
    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
        assert narrows.conv1d(x, w).dtype == torch.bfloat16


@pytest.mark.parametrize("mode", ["no_grad", "grad", "torch.func"])
@pytest.mark.parametrize(
    "dtypes", [("float16", "float16"), ("float32", "float16"), ("bfloat16", "float32"), ("float64", "float64")]
)
def test_autocast_casts_what_torchs_does(dtypes, mode, device):
    x, w = (torch.rand(s, dtype=getattr(torch, d)) for s, d in zip(((1, 2, 9), (4, 2, 3)), dtypes, strict=True))
    x.requires_grad_(mode == "grad")
    wrap = (lambda f: lambda x: torch.func.vjp(f, x)[0]) if mode == "torch.func" else lambda f: f
    with torch.autocast(device, dtype=torch.bfloat16):
        theirs = torch.nn.functional.conv1d(x, w)
        for ours in (wrap(lambda x: narrows.conv1d(x, w))(x), wrap(lambda x: torch.ops.narrows.conv1d(x, w))(x)):
            assert ours.dtype == theirs.dtype == (torch.float64 if dtypes[0] == "float64" else torch.bfloat16)
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("mode", ["eager", "compiled", "grad", "vmap"])
def test_autocast_of_torchs_ops(mode, device):
    """By their names in torch.ops they heed it as by narrows' own."""
    torch._dynamo.reset()
    x, w = torch.randn(2, 3, 9, requires_grad=mode != "vmap"), torch.randn(4, 3, 3)
    call = lambda x: torch.ops.narrows.conv1d(x, w, stride=2)  # noqa: E731
    f = {"compiled": torch.compile(call, fullgraph=True, backend="aot_eager"), "vmap": torch.vmap(call)}.get(mode, call)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = f(x)
        cell = torch.ops.narrows.lltm(*cells())
        assert {z.dtype for z in (y, *cell[:2])} == {torch.bfloat16}
        assert torch.ops.narrows.elementwise(x, function="exp").dtype == torch.float32
        assert torch.ops.narrows.conv1d(x.double(), w.double()).dtype == torch.float64
        if mode == "grad":
            g = torch.func.grad(lambda x: call(x).float().sum())(x.detach())
    assert torch.ops.narrows.conv1d(x, w).dtype == torch.float32
    torch.testing.assert_close(y, narrows.conv1d(x, w, stride=2).bfloat16(), rtol=0.05, atol=0.1)
    if mode == "vmap":
        return
    expected = torch.autograd.grad(narrows.conv1d(x, w, stride=2).sum(), x)[0]
    for found in (torch.autograd.grad(y.float().sum(), x)[0], *([g] if mode == "grad" else [])):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_autocast_of_the_cell(mode, device):
    torch._dynamo.reset()
    cell, inputs = narrows.torch.LLTM(3, 4), cells()

    def step(x, h, c):
        with torch.autocast(device, dtype=torch.bfloat16):
            h, c = cell(x, (h, c))
            return h, narrows.add(c, 1), narrows.add(x, 1)

    f = torch.compile(step, fullgraph=True, backend="aot_eager") if mode == "compiled" else step
    results = f(inputs[0], *inputs[3:])
    assert [y.dtype for y in results] == [torch.bfloat16, torch.bfloat16, torch.float32]
    h, c = narrows.lltm(inputs[0], cell.weights, cell.bias, *inputs[3:])
    torch.testing.assert_close(results[:2], (h.bfloat16(), (c + 1).bfloat16()), rtol=0.05, atol=0.05)
    (results[0].float().sum() + results[1].float().sum()).backward()
    (h.sum() + c.sum()).backward(inputs=[cell.weights])  # adds to what autocast's backward gave
    assert cell.weights.grad.dtype == torch.float32
    reference = torch.autograd.grad(
        sum(y.sum() for y in narrows.lltm(inputs[0], cell.weights, cell.bias, *inputs[3:])), cell.weights
    )[0]
    torch.testing.assert_close(cell.weights.grad, 2 * reference, rtol=0.05, atol=0.1)


def test_a_scaled_loss_trains(device):
    """torch.amp's GradScaler: the gradients are scaled back, and a step with an infinite one is left out."""
    cell, inputs = narrows.torch.LLTM(3, 4), cells()
    optimiser, scaler = torch.optim.SGD(cell.parameters(), lr=0.5), torch.amp.GradScaler(device, init_scale=2.0**10)
    losses = []
    for i in range(8):
        optimiser.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            h, _ = cell(inputs[0], (inputs[3], inputs[4]))
        loss = (h.float() ** 2).mean() * (torch.inf if i == 4 else 1)
        before = cell.weights.detach().clone()
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        assert i == 4 or cell.weights.grad.abs().max() < 10
        scaler.step(optimiser)
        scaler.update()
        assert torch.equal(before, cell.weights) == (i == 4)
        losses.append(loss.item())
    assert losses[-1] < losses[0] and scaler.get_scale() == 2.0**9


def test_symbolic_rules_agree_with_the_library():
    op = narrows.op("conv1d", stride=2, pad_left=3, dilation=2)
    for x, w in (((2, 3, 20), (4, 3, 3)), ((3, 20), (4, 3, 2)), ((20,), (5,))):
        assert _rules.evaluate(op, [x, w, None]) == [op._infer([("float32", x), ("float32", w), None])[0][1]]
    add = narrows.op("elementwise", function="add")
    assert _rules.evaluate(add, [(5, 1), (3,)]) == [(5, 3)]
    with pytest.raises(ValueError, match="do not broadcast"):
        _rules.evaluate(add, [(5, 2), (3,)])
    with pytest.raises(ValueError, match="fit none"):
        _rules.evaluate(op, [(2, 3), (4,), None])


# ---- torch.jit ----


@pytest.mark.parametrize(
    "make",
    [
        lambda: narrows.torch.Conv1d(4, 2, 3),
        lambda: narrows.torch.Conv1d(4, 2, 3, stride=2, padding=2, bias=False),
        lambda: narrows.torch.Conv1d(4, 4, 4, padding="same", dilation=3, groups=2),
        lambda: narrows.torch.Conv1d(4, 2, 3, padding=2, padding_mode="circular"),
    ],
)
def test_script_of_conv1d(make, tmp_path):
    net, x = make(), torch.randn(2, 4, 11)
    scripted = torch.jit.script(torch.nn.Sequential(net, torch.nn.ReLU()))
    torch.jit.save(scripted, tmp_path / "net.pt")
    for call in (scripted, torch.jit.load(tmp_path / "net.pt")):
        y, expected = call(x), net(x).relu()
        torch.testing.assert_close(y, expected)
        gradients = [torch.autograd.grad(z.sum(), list(f.parameters())) for z, f in ((y, call), (expected, net))]
        torch.testing.assert_close(*gradients)


def test_script_of_lltm():
    cell, x, state = narrows.torch.LLTM(3, 5), torch.randn(2, 3), (torch.randn(2, 5), torch.randn(2, 5))
    torch.testing.assert_close(torch.jit.script(cell)(x, state), cell(x, state))


# ---- torch.fx ----


def test_symbolic_trace():
    every_second = narrows.op("conv1d", stride=2)

    def call(x, w, state):
        y = narrows.clip(narrows.add(narrows.exp(x), 2), 0.5, x) - narrows.astype(x, "int8")
        y = every_second(y, w) + narrows.conv1d(x, w, stride=2)
        new_h, new_cell = narrows.lltm(x[0, :, :3], state[0], state[1], state[2], state[2])
        return y, new_h * new_cell

    x, w, state = torch.randn(1, 4, 9), torch.randn(2, 4, 3), [torch.randn(6, 5), torch.randn(6), torch.randn(4, 2)]
    traced = torch.fx.symbolic_trace(call)
    torch.testing.assert_close(traced(x, w, state), call(x, w, state))
    targets = {node.target for node in traced.graph.nodes if node.op == "call_function"}
    assert {narrows.add, torch.ops.narrows.conv1d.default} <= targets
    kept = pickle.loads(pickle.dumps(traced))
    torch.testing.assert_close(kept(x, w, state), call(x, w, state))
    leaves = [t.clone().requires_grad_() for t in (x, w)]
    gradients = [torch.autograd.grad(f(*leaves, state)[0].sum(), leaves) for f in (traced, call)]
    torch.testing.assert_close(*gradients)


def test_symbolic_trace_of_a_plugins_op(scale_plugin):
    x = torch.randn(4, device="cpu")  # where the plugin is
    traced = torch.fx.symbolic_trace(lambda x: scale_plugin.scale(x, factor=3.0))
    torch.testing.assert_close(traced(x), 3 * x)
    assert torch.ops.narrows.test_scale_1.default in {node.target for node in traced.graph.nodes}


def test_symbolic_trace_of_modules():
    convolution = [
        narrows.torch.Conv1d(4, 4, 3, padding="same", dilation=2),
        narrows.torch.Conv1d(4, 2, 3, padding=1, padding_mode="circular"),
    ]
    net, x = torch.nn.Sequential(*convolution), torch.randn(2, 4, 11)
    torch.testing.assert_close(torch.fx.symbolic_trace(net)(x), net(x))
    cell, h = narrows.torch.LLTM(4, 3), torch.randn(2, 3)
    torch.testing.assert_close(torch.fx.symbolic_trace(cell)(x[..., 0], (h, h)), cell(x[..., 0], (h, h)))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: narrows.add(x, 1, out=torch.empty(3)),
        lambda x: narrows.add(torch.ones(3), 1, out=x),
        lambda x: narrows.op("elementwise", function="add")(x, 2),
        lambda x: narrows.conv1d(x, x, padding="same"),
        lambda x: narrows.add(x, 1, device="cpu"),
        lambda x: narrows.op("elementwise", function="exp")(x, kernel="scalar"),
    ],
)
def test_symbolic_trace_refuses_what_a_graph_cannot_hold(call):
    with pytest.raises((NotImplementedError, TypeError), match=r"symbolic_trace|needs a direct call|device= is for NumPy"):
        torch.fx.symbolic_trace(call)
