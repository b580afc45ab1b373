# SPDX-License-Identifier: Apache-2.0
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
NARROWS_PLUGIN("VENDOR", {.name = "VENDOR.sum/1", .inputs = {"a", "b?"}, .outputs = {"y"}, .shape_rule = "... ; ? -> ...", .kernel = sum,
                          .dtypes = kDouble, .backward = "VENDOR.sum_backward/1", .saved = SAVED},
               {.name = "VENDOR.sum_backward/1", .inputs = {"grad_y?", "a", "b?", "y?"}, .outputs = {"grad_a", "GRADIENT"},
                .shape_rule = "...? ; ... ; ? ; ...? -> like 1 ; like PLACE", .kernel = backward, .dtypes = kDouble})
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


PARTS = """
#include <narrows/plugin.hpp>
using narrows::plugin::Launch;
void parts(const Launch& call) {  // z = 2 b where b is there, y = 3 a, and 4 a for backward
  const double factors[] = {2, 3, 4};
  const double* const inputs[] = {call.has_input(1) ? call.input<double>(1) : nullptr, call.input<double>(0)};
  for (uint32_t j = 0; j < 3; ++j) {
    if (!call.has_output(j)) continue;
    const double f = factors[j], *const x = inputs[j > 0];
    call.parallel_for(call.size(j), [=, y = call.output<double>(j)](int64_t i) { y[i] = f * x[i]; });
  }
}
void backward(const Launch& call) {  // grad_z?, grad_y?, a, b?, z?, y?, four? -> those that are there; grad_a is four + 3 grad_y
  for (uint32_t j = 0; j < 2; ++j) {
    if (!call.has_output(j)) continue;
    const double* const g = call.has_input(1 - j) ? call.input<double>(1 - j) : nullptr;
    const double* const four = call.has_input(6) ? call.input<double>(6) : nullptr;
    call.parallel_for(call.size(j), [=, out = call.output<double>(j)](int64_t i) {
      out[i] = (j == 0 ? four[i] : 0) + (g == nullptr ? 0 : (j == 0 ? 3 : 2) * g[i]);
    });
  }
}
const std::vector<DLDataType> kDouble = {narrows::plugin::dtype<double>()};
NARROWS_PLUGIN("parts", {.name = "parts.parts/1", .inputs = {"a", "b?"}, .outputs = {"z?", "y", "four"},
                         .shape_rule = "like 1 ; like 0 ; like 0", .kernel = parts, .dtypes = kDouble,
                         .backward = "parts.backward/1", .saved = (uint64_t{1} << 34) | 0b11, .num_aux = 1},
               {.name = "parts.backward/1", .inputs = {"grad_z?", "grad_y?", "a", "b?", "z?", "y?", "four?"},
                .outputs = {"grad_a?", "grad_b?"}, .shape_rule = "?;?;*;?;?;?;? -> like 2 ; like 3", .kernel = backward, .dtypes = kDouble})
"""


def run_torch(op, transform, *arrays):
    """The outputs, and the gradients of all that are there."""
    torch = pytest.importorskip("torch")
    inputs = [torch.tensor(a, requires_grad=True) for a in arrays]
    if transform == "out":
        outs = tuple(torch.full((3,), -1.0, dtype=torch.float64) for _ in range(3))
        given = op(
            torch._neg_view(-inputs[0].detach()),
            *[x.detach() for x in inputs[1:]],
            out=(outs[0] if arrays[1:] else None, *outs[1:]),
        )
        assert outs[2].tolist() == [4, 8, 12]
        return given[:2], None
    if transform == "func":
        total = lambda *xs: sum(y.sum() for y in op(*xs) if y is not None)  # noqa: E731
        return op(*inputs), torch.func.grad(total, tuple(range(len(inputs))))(*[x.detach() for x in inputs])
    if transform == "vmap":
        mapped = torch.vmap(lambda *xs: tuple(y for y in op(*xs) if y is not None))
        found = [y.squeeze(0) for y in mapped(*[x.detach()[None] for x in inputs])]
        return (*[None] * (2 - len(found)), *found), None
    if transform == "compile":
        torch._dynamo.reset()
        found = torch.compile(lambda *xs: op(*xs), fullgraph=True, backend="aot_eager")(*inputs)
    elif transform == "dispatcher":
        every = torch.ops.narrows.parts_parts_1(*inputs)
        assert len(every) == len(inputs) + 1 and not every[-1].requires_grad
        found = (None, every[0]) if len(every) == 2 else tuple(every[:2])
    else:
        found = op(torch._neg_view(-inputs[0]) if transform == "lazily negated" else inputs[0], *inputs[1:])
    return found, torch.autograd.grad(sum(y.sum() for y in found if y is not None), inputs)


def run_jax(op, transform, *arrays):
    jax = pytest.importorskip("jax")
    with jax.experimental.enable_x64() if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(True):
        inputs = [jax.numpy.asarray(a) for a in arrays]
        wrap = jax.jit if transform == "jit" else lambda f: f
        total = lambda *xs: sum(y.sum() for y in op(*xs) if y is not None)  # noqa: E731
        return wrap(op)(*inputs), wrap(jax.grad(total, tuple(range(len(inputs)))))(*inputs)


TRANSFORMS = ["plain", "lazily negated", "dispatcher", "func", "vmap", "compile", "out"]


@pytest.mark.parametrize("with_b", [True, False], ids=["all", "one absent"])
@pytest.mark.parametrize("run, transform", [*((run_torch, t) for t in TRANSFORMS), (run_jax, "plain"), (run_jax, "jit")])
def test_an_output_that_is_absent_keeps_its_place(run, transform, with_b):
    op = narrows.load_inline("parts", PARTS).parts
    a, b = np.array([1.0, 2, 3]), np.array([1.0, 1, 1])
    assert op(a)[0] is None and op(a)[1].tolist() == [3, 6, 9]
    outputs, gradients = run(op, transform, *((a, b) if with_b else (a,)))
    assert (outputs[0] is None) == (not with_b) and (not with_b or outputs[0].tolist() == [2, 2, 2])
    assert len(outputs) == 2 and outputs[1].tolist() == [3, 6, 9]
    if gradients is not None:
        assert gradients[0].tolist() == [7, 11, 15] and [g.tolist() for g in gradients[1:]] == [[2, 2, 2]] * with_b
