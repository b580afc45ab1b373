"""An op with an optional input, whose backward says of the gradient for it that no call leaves it out, or does not get the input: what has
a shape is computed, and of what has none the error says so before anything runs. In torch and in JAX alike."""

import numpy as np
import pytest

import narrows

SUM = """
#include <narrows/plugin.hpp>
using narrows::plugin::Launch;
void sum(const Launch& call) {  // y = 3 a + 2 b, of which b may be one number
  const double *a = call.input<double>(0), *b = call.has_input(1) ? call.input<double>(1) : nullptr;
  const int64_t n = b == nullptr ? 1 : call.in(1).shape[0];
  call.parallel_for(call.size(0), [=, y = call.output<double>(0)](int64_t i) { y[i] = 3 * a[i] + (b == nullptr ? 0 : 2 * b[i % n]); });
}
void backward(const Launch& call) {  // grad_y?, a, b?, y? -> those that are there
  const double *g = call.has_input(0) ? call.input<double>(0) : nullptr, factors[] = {3, 2};
  for (uint32_t j = 0; j < 2; ++j) {
    if (!call.has_output(j)) continue;
    call.parallel_for(call.size(j), [=, f = factors[j], out = call.output<double>(j)](int64_t i) { out[i] = g == nullptr ? 0 : g[i] * f; });
  }
}
const std::vector<DLDataType> kDouble = {narrows::plugin::dtype<double>()};
NARROWS_PLUGIN("VENDOR", {.name = "VENDOR.sum/1", .inputs = {"a", "b?"}, .outputs = {"y"}, .shape_rule = "like 0", .kernel = sum,
                          .dtypes = kDouble, .backward = "VENDOR.sum_backward/1", .saved = SAVED},
               {.name = "VENDOR.sum_backward/1", .inputs = {"grad_y?", "a", "b?", "y?"}, .outputs = {"grad_a", "GRADIENT"},
                .shape_rule = "like 1 ; like PLACE", .kernel = backward, .dtypes = kDouble})
"""


def load(vendor, gradient, place, saved):
    source = SUM.replace("VENDOR", vendor).replace("GRADIENT", gradient).replace("PLACE", place).replace("SAVED", saved)
    return narrows.load_inline(vendor, source).sum


@pytest.fixture(params=["torch", "torch.ops", "torch.func", "jax", "jax.jit"])
def gradients(request):
    """A function of an op and whether b is there: the gradients for what is there."""
    framework = pytest.importorskip(request.param.partition(".")[0])
    if framework.__name__ == "jax":
        framework.config.update("jax_enable_x64", True)
    yield {"torch": of_torch, "torch.ops": of_torch_ops, "torch.func": of_torch_func, "jax": of_jax, "jax.jit": of_jitted}[
        request.param
    ]
    if framework.__name__ == "jax":
        framework.config.update("jax_enable_x64", False)


def of_torch(op, with_b, b=3):
    import torch

    inputs = [torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (3, b)[: 1 + with_b]]
    return torch.autograd.grad(op(*inputs).sum(), inputs)


def of_torch_ops(op, with_b, b=3):
    import torch

    return of_torch(getattr(torch.ops.narrows, op.op.replace(".", "_").replace("/", "_")), with_b, b)


def of_torch_func(op, with_b, b=3):
    import torch

    inputs = [torch.ones(n, dtype=torch.float64) for n in (3, b)[: 1 + with_b]]
    return torch.func.grad(lambda *inputs: op(*inputs).sum(), tuple(range(1 + with_b)))(*inputs)


def of_jax(op, with_b, transform=lambda f: f):
    import jax

    inputs = [jax.numpy.ones(3) for _ in range(1 + with_b)]
    return transform(jax.grad(lambda *inputs: op(*inputs).sum(), tuple(range(1 + with_b))))(*inputs)


def of_jitted(op, with_b):
    import jax

    return of_jax(op, with_b, jax.jit)


def check(found, *expected):
    np.testing.assert_array_equal(found, [[e] * 3 for e in expected])


def test_a_gradient_that_is_always_there_has_the_shape_of_another(gradients):
    op = load("shaped", "grad_b", "1", "0b11")
    check(gradients(op, True), 3, 2)
    check(gradients(op, False), 3)


def test_a_gradient_that_is_always_there_has_no_shape(gradients):
    op = load("shapeless", "grad_b", "2", "0b11")
    check(gradients(op, True), 3, 2)
    with pytest.raises(ValueError, match=r"shapeless\.sum_backward/1: grad_b has no shape, .* is absent; expected that input"):
        gradients(op, False)


def test_an_input_that_has_the_shape_is_not_saved(gradients):
    op = load("unsaved", "grad_b?", "2", "0b01")
    check(gradients(op, False), 3)
    with pytest.raises(
        ValueError, match=r"unsaved\.sum_backward/1: grad_b has no shape, .*; expected b among what unsaved\.sum/1 saves"
    ):
        gradients(op, True)


@pytest.mark.parametrize("through", [of_torch, of_torch_ops, of_torch_func])
def test_torch_is_not_given_a_gradient_of_another_size(through):
    pytest.importorskip("torch")
    op = load("sized", "grad_b", "1", "0b11")
    with pytest.raises(RuntimeError, match=r"shape '\[1\]' is invalid for input of size 3"):
        through(op, True, 1)


@pytest.mark.parametrize("gradient,saved", [("grad_b", "0b11"), ("grad_b?", "0b01")], ids=["always", "unsaved"])
def test_torch_says_so_while_it_compiles(gradient, saved):
    torch = pytest.importorskip("torch")
    op = load("compiled" + saved[2:], gradient, "2", saved)
    compiled = torch.compile(lambda *inputs: op(*inputs), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"sum_backward/1: grad_b has no shape, because .* absent"):
        of_torch(compiled, saved == "0b01")
