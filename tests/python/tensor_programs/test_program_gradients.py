# SPDX-License-Identifier: Apache-2.0
"""Gradients of programs, through the adjoint program, of first and second order: torch's gradcheck, JAX's own derivatives; and what is
said where there is none."""

import pathlib
import re

import numpy as np
import pytest

from narrows.program import PrimFunc, Schedule

TEXTS = pathlib.Path(__file__).parents[3] / "examples" / "programs"
SHAPES = {
    "mm_relu": [(5, 5), (5, 5)],
    "conv1d": [(1, 8, 7), (6, 4, 2), (6,)],
    "softmax": [(2, 5)],
    "layer_norm": [(2, 5), (5,), (5,)],
}


def in_f64(name):
    text = (TEXTS / f"{name}.program").read_text()
    return PrimFunc(re.sub(r"\bf(16|32)\b", "f64", text).replace("128", "5"))


def operands(name):
    random = np.random.default_rng(3)
    return [random.standard_normal(shape) for shape in SHAPES[name]]


@pytest.mark.parametrize("name", SHAPES)
def test_gradcheck(name):
    torch = pytest.importorskip("torch")
    f = in_f64(name).build(gradient=True)
    assert torch.autograd.gradcheck(f, [torch.tensor(x, requires_grad=True) for x in operands(name)])


def test_jax_grad_of_mm_relu_is_its_formula():
    jax = pytest.importorskip("jax")
    f = in_f64("mm_relu").build(gradient=True)
    a, b = operands("mm_relu")
    with jax.enable_x64(True):
        da, db = jax.grad(lambda a, b: f(a, b).sum(), argnums=(0, 1))(jax.numpy.asarray(a), jax.numpy.asarray(b))
    g = (a @ b > 0).astype("float64")
    np.testing.assert_allclose(da, g @ b.T, rtol=1e-12)
    np.testing.assert_allclose(db, a.T @ g, rtol=1e-12)


@pytest.mark.parametrize("name", SHAPES)
def test_second_derivatives(name):
    torch = pytest.importorskip("torch")
    f, tensors = in_f64(name).build(gradient=2), [torch.tensor(x, requires_grad=True) for x in operands(name)]
    assert torch.autograd.gradgradcheck(f, tensors)
    if len(tensors) == 3:
        assert torch.autograd.gradgradcheck(f, tensors[:2])  # without what may be absent


def test_jax_second_derivatives_are_its_own():
    jax = pytest.importorskip("jax")
    f, (x,) = in_f64("softmax").build(gradient=2), operands("softmax")

    def bent(function):
        return jax.grad(lambda x: (jax.grad(lambda x: (function(x) ** 2).sum())(x) ** 2).sum())(jax.numpy.asarray(x))

    with jax.enable_x64(True):
        np.testing.assert_allclose(bent(jax.jit(f)), bent(jax.nn.softmax), rtol=1e-10, atol=1e-12)


CUBE = "program 1 cube(x: f32[n], y: out f32[n]):\n  for i in n:\n    block y(vi: S(n) = i):\n      y[vi] = x[vi] * x[vi] * x[vi]\n"
NONE = r"cube declares no backward op, so there is no derivative; expected build\(gradient=True\)"
NO_SECOND = r"cube_adjoint declares no backward op, so there is no second derivative; expected build\(gradient=2\)"
NO_FORWARD = r"cube: no forward-mode derivative \(jvp, jacfwd, hessian\); expected reverse mode \(grad, vjp, jacrev\)"


def test_torch_says_what_has_no_derivative():
    torch = pytest.importorskip("torch")
    plain, once, x = PrimFunc(CUBE).build(), PrimFunc(CUBE).build(gradient=True), torch.ones(3, requires_grad=True)
    for y in (plain(x), torch.compile(lambda x: plain(x), fullgraph=True, backend="aot_eager")(x)):  # only backward is refused
        assert y.tolist() == [1, 1, 1]
        with pytest.raises(NotImplementedError, match=NONE):
            y.sum().backward()
    with pytest.raises(NotImplementedError, match=NONE):
        torch.func.grad(lambda x: plain(x).sum())(x.detach())
    with pytest.raises(NotImplementedError, match=NO_SECOND):
        torch.autograd.grad(torch.autograd.grad(once(x).sum(), x, create_graph=True)[0].sum(), x)
    for forward in (torch.func.jacfwd(once), torch.func.hessian(lambda x: once(x).sum())):
        with pytest.raises(NotImplementedError, match=NO_FORWARD):
            forward(x.detach())


def test_jax_says_what_has_no_derivative():
    jax = pytest.importorskip("jax")
    plain, once, x = PrimFunc(CUBE).build(), PrimFunc(CUBE).build(gradient=True), jax.numpy.ones(3)
    for function in (plain, jax.jit(plain)):
        with pytest.raises(NotImplementedError, match=NONE):
            jax.grad(lambda x, function=function: function(x).sum())(x)
    with pytest.raises(NotImplementedError, match=NO_SECOND):
        jax.grad(lambda x: jax.grad(lambda x: once(x).sum())(x).sum())(x)
    for forward in (jax.jacfwd(once), jax.hessian(lambda x: once(x).sum())):
        with pytest.raises(NotImplementedError, match=NO_FORWARD):
            forward(x)


def test_the_order_of_a_derivative_that_there_is_none_of_is_said():
    torch = pytest.importorskip("torch")
    twice, x = PrimFunc(CUBE).build(gradient=2), torch.ones(3, requires_grad=True)
    first = torch.autograd.grad(twice(x).sum(), x, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x, create_graph=True)[0]
    with pytest.raises(NotImplementedError, match=r"no derivative of order 3; expected build\(gradient=3\)"):
        torch.autograd.grad(second.sum(), x)


@pytest.mark.parametrize(
    ("gradient", "kind"), [(-1, ValueError), (1.5, TypeError), ("yes", TypeError), (None, TypeError), ([1], TypeError)]
)
def test_how_many_derivatives_is_checked(gradient, kind, tmp_path):
    f, wrong = PrimFunc(CUBE), re.escape(f"gradient = {gradient!r}; expected False, True, or how many derivatives: 0, 1, 2, ...")
    for make in (
        f.build,
        Schedule(f).build,
        lambda gradient: f.export(tmp_path / "narrows_f.so", gradient=gradient),
        lambda gradient: Schedule(f).export(tmp_path / "narrows_f.so", gradient=gradient),
    ):
        with pytest.raises(kind, match=wrong):
            make(gradient=gradient)
    assert not list(tmp_path.iterdir())
    assert f.build(gradient=np.int64(1)).backward


def test_what_has_no_gradient_is_named():
    with pytest.raises(NotImplementedError, match="'table' is read at"):
        PrimFunc((TEXTS / "gather.program").read_text()).vjp()
