# SPDX-License-Identifier: Apache-2.0
"""Gradients of programs: torch's gradcheck and JAX's grad, through the adjoint program."""

import pathlib
import re

import numpy as np
import pytest

from narrows.program import PrimFunc

TEXTS = pathlib.Path(__file__).parent.parent / "program" / "texts"
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


def test_what_has_no_gradient_is_named():
    with pytest.raises(NotImplementedError, match="'table' is read at"):
        PrimFunc((TEXTS / "gather.program").read_text()).vjp()
