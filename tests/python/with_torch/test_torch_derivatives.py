# SPDX-License-Identifier: Apache-2.0
"""torch: forward mode and second derivatives of conv1d, elementwise and lltm, against finite differences and torch's own functions in
float64; and that they are refused of an op that declares none."""

import pytest

torch = pytest.importorskip("torch")
import torch.autograd.forward_ad as forward_ad  # noqa: E402
from torch.autograd import functional, gradcheck, gradgradcheck  # noqa: E402

import narrows  # noqa: E402
from differentiable import FUNCTIONS, of_function  # noqa: E402
from torch_inputs import DEVICES, cells, double, on_device  # noqa: E402


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    yield from on_device(request.param)


MASK = torch.tensor([[True, False, True], [False, False, True]])
CALLS = {name: (lambda name=name: of_function(name, double)) for name in FUNCTIONS} | {
    "fma": lambda: (narrows.fma, (double(2, 1), double(1, 3), double(3))),
    "clip": lambda: (narrows.clip, (double(2, 3), double(3, low=0.3, high=0.4), double(1, low=0.6, high=0.7))),
    "where": lambda: (lambda b, c: narrows.where(MASK.to(b.device), b, c), (double(2, 3), double(3))),
    "pow of a number": lambda: (lambda a: narrows.pow(a, 3), (double(3),)),
    "pow of 1": lambda: (lambda a: narrows.pow(a, 1), (double(3),)),
    "conv1d": lambda: (
        lambda x, w, b: narrows.conv1d(x, w, b, stride=2, padding=1, groups=2),
        (double(2, 4, 7), double(4, 2, 3), double(4)),
    ),
    "conv1d unbatched": lambda: (lambda x, w, b: narrows.conv1d(x, w, b, dilation=2), (double(2, 6), double(3, 2, 2), double(3))),
    "conv1d of a signal": lambda: (narrows.conv1d, (double(7), double(3), double(1))),
    "conv1d without bias": lambda: (narrows.conv1d, (double(7), double(3))),
    "lltm": lambda: (narrows.lltm, tuple(x.requires_grad_() for x in cells(dtype=torch.float64))),
    "lltm, bias (1, 3S)": lambda: (narrows.lltm, tuple(x.requires_grad_() for x in row_bias())),
}
CHECKED_ALONE = {"lltm", "lltm, bias (1, 3S)", "conv1d", "atan2", "pow"}  # batches of gradients take their time


def row_bias():
    x = cells(dtype=torch.float64)
    return [*x[:2], x[2].reshape(1, -1), *x[3:]]


@pytest.mark.parametrize("name", CALLS)
def test_against_finite_differences(name):
    call, inputs = CALLS[name]()
    fast = name in CHECKED_ALONE
    batched = {"check_batched_grad": True} if not fast else {}
    assert gradcheck(call, inputs, check_forward_ad=True, fast_mode=fast, check_batched_forward_grad=not fast, **batched)
    assert gradgradcheck(call, inputs, check_fwd_over_rev=True, check_rev_over_rev=True, fast_mode=fast, **batched)


# ---- every entry, beside torch's own functions ----


def ours(x, w, b):
    return (narrows.tanh(narrows.conv1d(x, w, b, padding=1, groups=2)) ** 2).sum()


def theirs(x, w, b):
    return (torch.tanh(torch.nn.functional.conv1d(x, w, b, padding=1, groups=2)) ** 2).sum()


def two_steps(cell, input, weights, bias, h, c):
    h, c = cell(input, weights, bias, h, c)
    h, c = cell(input, weights, bias, h, c)
    return (h * h).sum() + c.sum()


def lltm(*inputs):
    return two_steps(narrows.lltm, *inputs)


def lltm_of_torch(*inputs):
    def cell(input, weights, bias, h, c):
        i, o, g = (torch.cat([h, input], 1) @ weights.T + bias).chunk(3, 1)
        c = c + torch.nn.functional.elu(g) * torch.sigmoid(i)
        return torch.tanh(c) * torch.sigmoid(o), c

    return two_steps(cell, *inputs)


def signals():
    shapes = (2, 4, 7), (6, 2, 3), (6,)
    return [torch.randn(*s, dtype=torch.float64) for s in shapes]


PAIRS = {"conv1d and tanh": (ours, theirs, signals), "lltm": (lltm, lltm_of_torch, lambda: cells(dtype=torch.float64))}
T = torch.func


def along(inputs):
    return tuple(torch.cos(x + 1) for x in inputs)


def every(inputs):
    return tuple(range(len(inputs)))


def dual(f, inputs):
    with forward_ad.dual_level():
        y = f(*(forward_ad.make_dual(x, t) for x, t in zip(inputs, along(inputs), strict=True)))
        return tuple(forward_ad.unpack_dual(y))


def backward_in_forward(f, inputs):
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x.clone().requires_grad_(), t) for x, t in zip(inputs, along(inputs), strict=True)]
        return [forward_ad.unpack_dual(g).tangent for g in torch.autograd.grad(f(*duals), duals)]


def backward_of_forward(f, inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(dual(f, inputs)[1], inputs)


def gradient_penalty(f, inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    (g,) = torch.autograd.grad(f(*inputs), inputs[0], create_graph=True)
    ((g.norm() - 1) ** 2).backward()
    return [x.grad for x in inputs if x.grad is not None]


def third(f, inputs):
    once = lambda *a: T.grad(f)(*a).square().sum()  # noqa: E731
    return T.grad(lambda *a: T.grad(once, 1)(*a).square().sum())(*inputs)


def batch(inputs):
    return [torch.stack([x, 2 * x, x - 1]) for x in inputs]


ENTRIES = {
    "jvp": lambda f, x: T.jvp(f, tuple(x), along(x)),
    "jacfwd": lambda f, x: T.jacfwd(f, every(x))(*x),
    "hessian": lambda f, x: T.hessian(f, every(x))(*x),
    "jvp of grad": lambda f, x: T.jvp(T.grad(f, every(x)), tuple(x), along(x)),
    "grad of jvp": lambda f, x: T.grad(lambda *a: T.jvp(f, a, along(a))[1], every(x))(*x),
    "jvp of jvp": lambda f, x: T.jvp(lambda *a: T.jvp(f, a, along(a))[1], tuple(x), along(x)),
    "jacrev of jacrev": lambda f, x: T.jacrev(T.jacrev(f))(*x),
    "linearize": lambda f, x: T.linearize(f, *x)[1](*along(x)),
    "third": third,
    "vmap of hessian": lambda f, x: torch.vmap(T.hessian(f))(*batch(x)),
    "jvp of vmap": lambda f, x: T.jvp(torch.vmap(f), tuple(batch(x)), along(batch(x))),
    "functional.hessian": lambda f, x: functional.hessian(f, tuple(x)),
    "functional.hessian, vectorized": lambda f, x: functional.hessian(f, tuple(x), vectorize=True),
    "functional.hessian, forward": lambda f, x: functional.hessian(
        f, tuple(x), vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "functional.hvp": lambda f, x: functional.hvp(f, tuple(x), along(x)),
    "functional.vhp": lambda f, x: functional.vhp(f, tuple(x), along(x)),
    "functional.jvp": lambda f, x: functional.jvp(f, tuple(x), along(x)),
    "dual numbers": dual,
    "dual numbers without gradients": torch.no_grad()(dual),
    "backward inside forward": backward_in_forward,
    "backward of forward": backward_of_forward,
    "gradient penalty": gradient_penalty,
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("pair", PAIRS)
def test_every_entry(pair, entry):
    mine, others, inputs = PAIRS[pair]
    inputs = inputs()
    torch.testing.assert_close(ENTRIES[entry](mine, inputs), ENTRIES[entry](others, inputs))


@pytest.mark.parametrize("entry", ["jvp of grad"])
def test_compiled(entry):
    x = signals()
    torch._dynamo.reset()
    run = torch.compile(lambda *a: ENTRIES[entry](ours, a), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(*x), ENTRIES[entry](theirs, x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lower_precision(dtype):
    """What goes in is rounded, what comes out is near to float64's."""
    for pair in PAIRS.values():
        inputs = [(x / 2).to(dtype) for x in pair[2]()]
        expected = gradient_penalty(pair[1], [x.double() for x in inputs])
        for g, e in zip(gradient_penalty(pair[0], inputs), expected, strict=True):
            assert g.dtype == dtype
            bound = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-4}[dtype]
            assert (g.double() - e).abs().max() <= bound * e.abs().max()


def test_a_first_gradient_is_the_fused_one_where_a_graph_of_it_is_made():
    """Of 1e20 / 1e-10 and a gradient of 1e-20 every composition of products overflows."""
    a, b = (torch.tensor([v], requires_grad=True) for v in (1e20, 1e-10))
    g = torch.tensor([1e-20])
    once = torch.autograd.grad(narrows.divide(a, b), (a, b), g, create_graph=True)
    again = torch.autograd.grad(narrows.divide(a, b), (a, b), g)
    assert [x.item() for x in once] == [x.item() for x in again]
    tangent = torch.func.jvp(lambda b: narrows.divide(a.detach(), b), (b.detach(),), (g,))[1]
    assert tangent.item() == again[1].item()


def second(call, value):
    x = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(call(x), x, create_graph=True)
    return torch.autograd.grad(g, x)[0].item()


@pytest.mark.parametrize(
    "name", ["atan", "asinh", "acosh", "tanh", "sigmoid", "gelu", "gelu_tanh", "silu", "softplus", "erf", "erfc", "sinc"]
)
def test_second_derivatives_at_infinity_are_their_limits(name):
    call = narrows.op("elementwise", function=name)
    for value in (float("inf"), *([float("-inf")] if name != "acosh" else [])):
        assert second(call, value) == 0


def test_second_derivatives_at_kinks():
    for call in (narrows.abs, narrows.relu, lambda x: narrows.maximum(x, 0.0), lambda x: narrows.clip(x, 0.0, 1.0)):
        assert second(call, 0.0) == 0
    assert second(narrows.elu, 0.0) == 1 and second(lambda x: narrows.pow(x, 2), 0.0) == 2
    assert second(lambda x: narrows.pow(x, 1), 0.0) == 0 and second(narrows.sqrt, 0.0) == float("-inf")
    minus = torch.tensor([-torch.inf], requires_grad=True)
    (g,) = torch.autograd.grad(narrows.logaddexp(minus, minus.detach()), minus, create_graph=True)
    assert torch.autograd.grad(g, minus)[0].item() == 0.25


# ---- refused ----


def test_forward_mode_through_an_op_that_declares_none(scale_plugin):
    x = torch.ones(3, device="cpu")
    scale = lambda a: scale_plugin.scale(a, factor=2.0)  # noqa: E731
    with forward_ad.dual_level():
        torch.testing.assert_close(scale(x), 2 * x)  # no tangent, nothing to lose
        with pytest.raises(NotImplementedError, match=r"test\.scale/1: no forward-mode derivative"):
            scale(forward_ad.make_dual(x, x))
    for forward in (
        lambda: torch.func.jvp(scale, (x,), (x,)),
        lambda: torch.func.jacfwd(scale)(x),
        lambda: torch.func.hessian(lambda a: scale(a).sum())(x),
    ):
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            forward()


def test_a_second_derivative_of_an_op_whose_backward_declares_none(scale_plugin):
    x, a = (torch.rand(3, dtype=torch.float64, device="cpu", requires_grad=True) for _ in range(2))
    (g,) = torch.autograd.grad(scale_plugin.affine(x, a).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        (g.sum() + x.sum()).backward()  # there is another way to x: a penalty on the gradient must not be lost
