# SPDX-License-Identifier: Apache-2.0
"""What tools see of our ops in torch: FlopCounterMode, where torch's own op of the same work is the reference, and torch.profiler."""

import itertools

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import narrows  # noqa: E402
import narrows.torch  # noqa: E402


def flops(function, *arguments, **params):
    with FlopCounterMode(display=False) as mode:
        function(*arguments, **params)
    return mode.get_total_flops()


def backward_flops(function, inputs, params):
    """Of a call and its backward."""
    return flops(lambda: function(*inputs, **params).sum().backward())


def test_every_op_with_a_product_has_a_formula():
    from torch.utils.flop_counter import flop_registry

    for name in ("conv1d", "conv1d_backward", "lltm", "lltm_backward"):
        assert getattr(torch.ops.narrows, name) in flop_registry


@pytest.mark.parametrize("stride, padding, dilation, groups", [*itertools.product((1, 2), (0, 3), (1, 2), (1, 2))])
def test_conv1d_counts_as_torch_counts(stride, padding, dilation, groups):
    x, w, bias = torch.randn(2, 4, 20), torch.randn(6, 4 // groups, 3), torch.randn(6)
    params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    expected = flops(F.conv1d, x, w, bias, **params)
    assert expected > 0
    assert flops(narrows.conv1d, x, w, bias, **params) == expected
    assert flops(narrows.conv1d, x[0], w, **params) == flops(F.conv1d, x[0], w, **params) == expected // 2
    for needed in ((0,), (1,), (2,), (0, 1), (0, 1, 2)):
        inputs = [t.clone().requires_grad_(i in needed) for i, t in enumerate((x, w, bias))]
        ours = backward_flops(narrows.conv1d, inputs, params)
        assert ours == backward_flops(F.conv1d, inputs, params)
        outside = narrows.conv1d(*inputs, **params).sum()  # recorded by a call that bypassed the dispatcher
        assert flops(outside.backward) == ours - expected


def test_a_signal_counts_as_a_batch_of_one_channel():
    x, w = torch.randn(20), torch.randn(3, requires_grad=True)
    of_torch = x[None, None], w.detach().reshape(1, 1, 3).requires_grad_()
    assert flops(narrows.conv1d, x, w) == flops(F.conv1d, *of_torch) == 18 * 3 * 2
    assert backward_flops(narrows.conv1d, (x, w), {}) == backward_flops(F.conv1d, of_torch, {})


def lltm_of_torch(x, weights, bias, old_h, old_cell):
    i, o, c = F.linear(torch.cat([old_h, x], 1), weights, bias).chunk(3, 1)
    new_cell = old_cell + F.elu(c) * torch.sigmoid(i)
    return torch.tanh(new_cell) * torch.sigmoid(o), new_cell


@pytest.mark.parametrize("needed", [(), (0,), (1,), (2,), (3,), (4,), (0, 1, 2, 3, 4)])
def test_lltm_counts_as_torch_counts(needed):
    shapes = (3, 4), (15, 9), (15,), (3, 5), (3, 5)
    inputs = [torch.randn(*s, requires_grad=i in needed) for i, s in enumerate(shapes)]

    def run(function):
        h, cell = function(*inputs)
        (h + cell).sum().backward() if needed else None

    assert flops(lambda: run(narrows.lltm)) == flops(lambda: run(lltm_of_torch)) >= 3 * 9 * 15 * 2


def test_elementwise_functions_count_as_nothing():
    x = torch.randn(8)
    assert flops(lambda: narrows.exp(narrows.add(x, 2))) == 0


def test_modules_compiled_and_exported_graphs_count_alike():
    model, x = torch.nn.Sequential(narrows.torch.Conv1d(4, 6, 3), torch.nn.ReLU()), torch.randn(2, 4, 20)
    with FlopCounterMode(display=False) as mode:
        expected = model(x)
    total = 2 * 18 * 3 * 4 * 6 * 2
    assert mode.get_flop_counts()["Sequential.0"] == {torch.ops.narrows.conv1d: total}
    exported = torch.export.export(model, (x,)).module()
    graphs = []
    compiled = torch.compile(lambda x: model(x), backend=lambda graph, _: graphs.append(graph) or graph)
    torch.testing.assert_close(compiled(x), expected)
    (graph,) = graphs
    parameters = list(model.parameters())
    inputs = [x if n.name.endswith("x_") else parameters.pop(0) for n in graph.graph.nodes if n.op == "placeholder"]
    for run in (lambda: exported(x), lambda: compiled(x), lambda: graph(*inputs)):
        assert flops(run) == total


# ---- torch.profiler ----


def shown(function):
    """The names of our events while it runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        function()
    return {e.key for e in profiler.key_averages() if e.key.startswith("narrows::")}


MUL, MUL_BACKWARD = ({f"narrows::elementwise{suffix}", f"narrows::elementwise{suffix}(mul)"} for suffix in ("", "_backward"))


def test_the_profiler_shows_calls_that_bypass_the_dispatcher():
    x, out = torch.randn(16), torch.empty(16)
    assert shown(lambda: narrows.multiply(x, x)) >= {"narrows::elementwise"}
    assert shown(lambda: narrows.conv1d(torch.randn(2, 8), torch.randn(3, 2, 3))) == {"narrows::conv1d"}
    assert shown(lambda: narrows.multiply(x, 2, out=out)) >= {"narrows::elementwise"}
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):  # else every call goes by the dispatcher, which takes no deterministic=
        assert shown(lambda: narrows.multiply(x, x)) == MUL
        assert shown(lambda: narrows.multiply(x, 2, out=out, deterministic=True)) == MUL


def test_the_profiler_shows_every_other_path_and_backward():
    x, needs = torch.randn(16), torch.randn(16, requires_grad=True)
    assert shown(lambda: narrows.multiply(needs, x).sum().backward()) >= {"narrows::elementwise", "narrows::elementwise_backward"}
    assert shown(lambda: torch.ops.narrows.elementwise(x, x, function="mul")) >= {"narrows::elementwise"}
    under_func = shown(lambda: torch.func.grad(lambda x: narrows.multiply(x, x).sum())(x))
    assert under_func >= {"narrows::elementwise", "narrows::elementwise_backward"}
    cell, h = narrows.torch.LLTM(3, 5), torch.zeros(2, 5)
    run = lambda: cell(torch.randn(2, 3), (h, h))[0].sum().backward()  # noqa: E731
    assert shown(run) == {"narrows::lltm", "narrows::lltm_backward"}


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch's calls go by its dispatcher")
def test_the_profiler_is_given_shapes():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        narrows.conv1d(torch.randn(1, 2, 8), torch.randn(3, 2, 3))
    shapes = [e.input_shapes for e in profiler.key_averages(group_by_input_shape=True) if e.key == "narrows::conv1d"]
    assert shapes == [[[1, 2, 8], [3, 2, 3]]]


def test_the_profiler_ends_the_event_of_a_call_that_fails():
    def run():
        with pytest.raises(ValueError, match="w has shape"):
            narrows.conv1d(torch.randn(1, 2, 8), torch.randn(3, 3, 3))
        return narrows.exp(torch.ones(3))

    assert shown(run) >= {"narrows::conv1d", "narrows::elementwise"}
    assert shown(lambda: torch.ones(3) + 1) == set()
