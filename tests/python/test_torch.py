"""torch: the gate, the dispatcher, autograd, functorch, modules; against torch's own ops."""

import ctypes
import pathlib
import re
import warnings
import weakref
from typing import ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.autograd.forward_ad as forward_ad  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import narrows  # noqa: E402
import narrows.torch  # noqa: E402
from narrows import _functions  # noqa: E402
from torch_inputs import DEVICES, cells, double, on_device  # noqa: E402


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    yield from on_device(request.param)


NAMES = {"astype": None, "elu": F.elu, "gelu": F.gelu, "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"), "silu": F.silu,
         "softplus": F.softplus, "equal": torch.eq, "bitwise_invert": torch.bitwise_not, "cbrt": lambda a: a.sign() * a.abs() ** (1 / 3),
         "fma": lambda a, b, c: a * b + c, "divide": torch.div}  # fmt: skip


def reference(name):
    return NAMES.get(name) or getattr(torch, name)


# ---- values and gradients ----


@pytest.mark.parametrize("name", [n for n, row in _functions._TABLE.items() if row[2] in "FNA" and n != "where"])
def test_functions(name):
    count = _functions._TABLE[name][1]
    low, high = (1.1, 2.0) if name == "acosh" else (0.2, 0.9)
    inputs = [double(*s, low=low, high=high) for s in ((3, 4), (4,), (3, 1))[:count]]
    plain = [x.detach() for x in inputs]
    result = getattr(narrows, name)(*plain)
    expected = reference(name)(*plain)
    assert type(result) is torch.Tensor and result.dtype == expected.dtype
    torch.testing.assert_close(result, expected)
    if not result.is_floating_point():
        return
    ours = torch.autograd.grad(getattr(narrows, name)(*inputs).sum(), inputs, allow_unused=True)
    theirs = torch.autograd.grad(reference(name)(*inputs).sum(), inputs, allow_unused=True)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b)
    if name not in ("sign", "floor", "ceil", "round", "trunc", "fmod", "remainder", "copysign"):
        assert torch.autograd.gradcheck(getattr(narrows, name), inputs, check_batched_grad=True)


@pytest.mark.parametrize("call", ["narrows", "torch.ops"])
def test_conv1d_gradients(call):
    x, w, b = double(2, 4, 9), double(6, 2, 3), double(6)
    ours = {
        "narrows": lambda x, w, b: narrows.conv1d(x, w, b, stride=2, padding=1, groups=2),
        "torch.ops": lambda x, w, b: torch.ops.narrows.conv1d(x, w, b, stride=2, pad_left=1, pad_right=1, groups=2),
    }[call]
    torch.testing.assert_close(ours(x, w, b), F.conv1d(x, w, b, stride=2, padding=1, groups=2))
    assert torch.autograd.gradcheck(ours, (x, w, b), check_batched_grad=True)
    assert torch.autograd.gradcheck(lambda w: ours(x.detach(), w, b.detach()), (w,))


@pytest.mark.parametrize("batch, features, state", [(2, 3, 4), (3, 17, 5)], ids=["small", "the tutorial's"])
def test_lltm_gradients(batch, features, state):
    shapes = (batch, features), (3 * state, features + state), (1, 3 * state), (batch, state), (batch, state)
    inputs = [double(*shape) for shape in shapes]
    assert torch.autograd.gradcheck(narrows.lltm, inputs, check_batched_grad=True)
    assert torch.autograd.gradcheck(lambda *a: narrows.lltm(*a)[0], inputs)


EXPS = {"narrows": narrows.exp, "torch.ops": lambda a: torch.ops.narrows.elementwise(a, function="exp")}


@pytest.mark.parametrize("exp", EXPS.values(), ids=EXPS)
def test_a_second_derivative_is_refused_and_not_zero(exp):
    x = double(3)
    (g,) = torch.autograd.grad(exp(x).sum(), x, create_graph=True)
    torch.testing.assert_close(g, x.exp())
    with pytest.raises(NotImplementedError, match="no second derivative"):
        (g.sum() + x.sum()).backward()  # there is another way to x: a penalty on the gradient must not be lost
    grad, plain = torch.func.grad, x.detach()
    for twice in (
        lambda: grad(lambda a: grad(lambda b: exp(b).sum())(a).sum())(plain),
        lambda: torch.func.jacrev(torch.func.jacrev(exp))(plain),
        lambda: torch.vmap(grad(grad(exp)))(plain),
    ):
        with pytest.raises(NotImplementedError, match="no second derivative"):
            twice()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lltm_as_the_tutorial_checks_it(dtype):
    """Its own formula, written with torch's functions: the same values forward, the same gradients backward."""

    def reference(x, w, b, h, c):
        gates = F.linear(torch.cat([h, x], 1), w, b.reshape(-1))
        i, o, z = gates.chunk(3, 1)
        cell = c + torch.sigmoid(i) * F.elu(z)
        return torch.tanh(cell) * torch.sigmoid(o), cell

    torch.manual_seed(0)
    shapes = (3, 17), (3 * 5, 17 + 5), (1, 3 * 5), (3, 5), (3, 5)
    inputs = [torch.randn(*s, dtype=dtype, requires_grad=True) for s in shapes]
    results = [f(*inputs) for f in (narrows.lltm, reference)]
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(*results, **tolerance)
    gradients = [torch.autograd.grad(h.sum() + (c * c).sum(), inputs) for h, c in results]
    torch.testing.assert_close(*gradients, **tolerance)


def test_what_was_saved_may_not_change():
    x = double(3)
    y = narrows.multiply(x, w := double(3))
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# ---- the gate: every case in which a call must not bypass the dispatcher ----


needs_exchange = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch has no exchange API: every call takes the detour"
)


@needs_exchange
def test_plain_calls_go_straight_to_the_library(monkeypatch):
    def refuse(op, *_):
        raise AssertionError(f"{op.op} was sent to Python")

    monkeypatch.setattr(narrows.torch, "_call", refuse)
    monkeypatch.setattr(narrows.torch, "_eager", refuse)
    t, out, g = torch.ones(4), torch.empty(4), torch.ones(4, requires_grad=True)
    straight = {
        "allocated": lambda: narrows.add(t, t),
        "out": lambda: narrows.add(t, t, out=out),
        "a number": lambda: narrows.add(t, 1, out=out),
        "strided": lambda: narrows.add(torch.ones(4, 3)[:, 1], t),
        "bound": lambda: narrows.op("elementwise", function="add")(t, t),
        "detached": lambda: narrows.add(g.detach(), t),
        "a parameter without gradient": lambda: torch.no_grad()(narrows.add)(torch.nn.Parameter(t), t),
    }
    for name, call in straight.items():
        torch.testing.assert_close(call(), t + t, msg=name)
    cell = [torch.zeros(s) for s in ((1, 3), (6, 5), (6,), (1, 2), (1, 2))]
    assert not narrows.lltm(*cell)[0].any() and narrows.conv1d(t, t).item() == 4
    for call in (lambda: narrows.add(g, t), lambda: narrows.add(torch._neg_view(t), 1)):  # and the others do not
        with pytest.raises(AssertionError, match="elementwise was sent to Python"):
            call()


def test_lazily_negated_and_conjugated_views():
    z = torch.complex(torch.ones(2), torch.ones(2) * 3)
    assert z.conj().imag.is_neg()
    torch.testing.assert_close(narrows.add(z.conj().imag, 1), torch.full((2,), -2.0))
    torch.testing.assert_close(narrows.add(z.conj().imag[0], 1), torch.tensor(-2.0))
    dense = z.conj().imag.as_strided((2,), (1,))
    assert dense.is_neg() and dense.is_contiguous()
    torch.testing.assert_close(narrows.add(dense, 1), dense + 1)
    torch.testing.assert_close(narrows.add(torch._neg_view(torch.arange(3)), 1), torch.tensor([1, 0, -1]))
    dense = torch._neg_view(torch.ones(3, 2))
    assert dense.is_neg() and dense.is_contiguous()
    torch.testing.assert_close(narrows.add(dense, 1), torch.zeros(3, 2))
    narrows.add(torch.ones(3, 2), 1, out=dense)
    torch.testing.assert_close(dense, torch.full((3, 2), 2.0))
    with pytest.raises(ValueError, match="complex64"):
        narrows.add(z.conj(), z)
    with pytest.raises(BufferError, match="resolve_neg"):
        narrows.from_dlpack(dense.neg() if not dense.is_neg() else torch._neg_view(torch.ones(2)))


@pytest.mark.parametrize("exp", [narrows.exp, lambda x: torch.ops.narrows.elementwise(x, function="exp")])
def test_gradients_that_are_lazily_negated(exp):
    x = double(3)
    z = torch.complex(torch.zeros(3, dtype=torch.float64), exp(x)).conj() * torch.tensor(1 + 1j)
    torch.testing.assert_close(torch.autograd.grad(z.real.sum(), x)[0], x.exp())
    torch.testing.assert_close(torch.autograd.grad(exp(x), x, torch._neg_view(torch.ones_like(x)))[0], -x.exp())


def test_a_tensor_of_zeros_without_memory():
    here = torch.get_default_device()  # which this function does not ask for
    zeros = torch._efficientzerotensor(4, device=here)
    assert zeros._is_zerotensor()
    torch.testing.assert_close(narrows.add(zeros, 1), torch.ones(4))
    torch.testing.assert_close(narrows.add(torch.ones(4), zeros), torch.ones(4))
    x = double(4)
    y = narrows.exp(x)
    torch.testing.assert_close(
        torch.autograd.grad(y, x, torch._efficientzerotensor(4, dtype=torch.float64, device=here))[0], torch.zeros_like(x)
    )


@pytest.mark.parametrize("exp", EXPS.values(), ids=EXPS)
def test_functionalize_sees_the_call(exp):
    """It holds values behind wrappers: what is written to a view of one is there when the call reads it."""

    def f(x):
        y = x * 1
        y[:2].fill_(3)
        z = exp(y)
        assert torch._is_functional_tensor(y) and torch._is_functional_tensor(z)
        y.fill_(9)
        return z.add_(1)

    x = torch.zeros(4)
    torch.testing.assert_close(torch.func.functionalize(f)(x), torch.tensor([3.0, 3, 0, 0]).exp() + 1)
    functionalize, grad = torch.func.functionalize, torch.func.grad
    square = lambda x: (exp(x) ** 2).sum()  # noqa: E731
    torch.testing.assert_close(grad(functionalize(square))(x + 1), 2 * (x + 1).exp() ** 2)
    for mapped in (torch.vmap(functionalize(exp)), functionalize(torch.vmap(exp))):
        torch.testing.assert_close(mapped(x + 1), (x + 1).exp())
    with pytest.raises(RuntimeError, match="Functionalize rule"):  # torch has none for an autograd.Function within
        functionalize(grad(square))(x)
    out = torch.func.functionalize(lambda x: narrows.add(x, x, out=torch.empty(4)))(x + 1)
    torch.testing.assert_close(out, torch.full((4,), 2.0))


def test_parameters_and_no_grad():
    p = torch.nn.Parameter(torch.ones(3))
    assert narrows.add(p, 1).requires_grad
    with torch.no_grad():
        assert not narrows.add(p, 1).requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(narrows.add(torch.ones(2), 1), torch.full((2,), 2.0))


def test_a_tensor_that_only_torch_held():
    x = torch.ones(3, requires_grad=True)
    weak, y = weakref.ref(x), (x * x).sum()
    del x
    assert narrows.add(weak(), 1).requires_grad  # back from y's graph
    with torch.no_grad():
        torch.testing.assert_close(narrows.add(weak(), 1), torch.full((3,), 2.0))
    y.backward()


@pytest.mark.parametrize("exp", EXPS.values(), ids=EXPS)
def test_forward_mode_is_refused_and_not_ignored(exp):
    x = torch.ones(3)
    with forward_ad.dual_level():
        torch.testing.assert_close(exp(x), x.exp())  # no tangent, nothing to lose
        with pytest.raises(NotImplementedError, match="forward-mode"):
            exp(forward_ad.make_dual(x, x))
    for forward in (
        lambda: torch.func.jvp(exp, (x,), (x,)),
        lambda: torch.func.jacfwd(exp)(x),
        lambda: torch.func.hessian(lambda a: exp(a).sum())(x),
        lambda: torch.func.linearize(exp, x)[1](x),
        lambda: torch.autograd.gradcheck(exp, (double(3),), check_forward_ad=True),
    ):
        with pytest.raises(NotImplementedError, match="forward-mode"):
            forward()


def test_a_real_tensor_beside_a_fake_one():
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode, real = FakeTensorMode(), torch.ones(3)
    fake = mode.from_tensor(real)
    assert type(narrows.add(fake, 1)) is type(fake)
    for call, name in (
        (lambda: narrows.add(fake, real), "b"),
        (lambda: narrows.add(real, fake), "a"),
        *([(lambda: narrows.add(fake, real.numpy()), "b")] if real.device.type == "cpu" else []),
        (lambda: narrows.conv1d(fake, real), "w"),
    ):
        with pytest.raises(ValueError, match=f": {name} is real beside fake tensors, or under their mode; expected a fake one"):
            call()
    with mode, pytest.raises(ValueError, match="elementwise: a is real"):
        narrows.add(real, 1)


def test_fake_and_meta_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        y = narrows.conv1d(torch.ones(2, 3, 9), torch.ones(4, 3, 2), stride=2)
        assert y.shape == (2, 4, 4)
    assert narrows.equal(torch.ones(3, device="meta"), torch.ones(3, device="meta")).dtype == torch.bool
    with pytest.raises((ValueError, RuntimeError), match="do not broadcast"):
        narrows.add(torch.ones(3, device="meta"), torch.ones(4, device="meta"))
    for real in (torch.ones(3), np.ones(3, "float32")):
        with pytest.raises(ValueError, match=r"b is on meta; expected .*, where a is"):
            narrows.add(real, torch.ones(3, device="meta"))
    with FakeTensorMode():
        fake = torch.ones(4)
    with pytest.raises(ValueError, match="data NULL"):
        narrows.from_dlpack(fake)


@pytest.mark.parametrize("kind", ["sparse", "nested", "jagged", "quantised", "mkldnn"])
def test_tensors_that_are_not_strided(kind, device):
    if kind == "mkldnn" and device != "cpu":
        pytest.skip("MKL-DNN's tensors are the CPU's")
    x = torch.ones(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = {
            "sparse": x.to_sparse,
            "nested": lambda: torch.nested.nested_tensor([x[0], x[1]]),
            "jagged": lambda: torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged),
            "quantised": lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
            "mkldnn": x.to_mkldnn,
        }[kind]()
    name = {"sparse": "torch.sparse_coo", "mkldnn": "torch._mkldnn", "jagged": "nested"}.get(kind, kind)
    for argument, arguments in (("a", (other, 1)), ("b", (x, other)), ("b", (np.ones((2, 3), "float32"), other))):
        with pytest.raises(
            NotImplementedError, match=f"elementwise: {argument} is a tensor that is {name}; expected a strided one"
        ):
            narrows.add(*arguments)
    with pytest.raises(NotImplementedError, match=f"out is a tensor that is {name}; expected a strided one"):
        narrows.add(x, x, out=other)


class Wrapped(torch.Tensor):
    """A subclass that holds a tensor and sees every op."""

    calls: ClassVar[list] = []

    @staticmethod
    def __new__(cls, inner):
        wrapped = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        wrapped.inner = inner
        return wrapped

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(str(function))
        return function(*(a.inner if isinstance(a, Wrapped) else a for a in args), **(kwargs or {}))


def test_subclasses_see_the_call():
    y = narrows.add(Wrapped(torch.ones(3)), 1)
    torch.testing.assert_close(y, torch.full((3,), 2.0))
    assert "narrows.elementwise.default" in Wrapped.calls


class Plain(torch.Tensor):
    """A subclass that changes nothing."""


def test_outputs_of_plain_subclasses():
    x = torch.randn(2, 3, 8)
    w = torch.randn(4, 3, 3)
    torch.testing.assert_close(narrows.add(x.as_subclass(Plain), 1).as_subclass(torch.Tensor), x + 1)
    ours = x.as_subclass(Plain).requires_grad_()
    y = narrows.conv1d(ours, w)
    (gradient,) = torch.autograd.grad(y.sum(), ours)
    theirs = x.clone().requires_grad_()
    expected = torch.nn.functional.conv1d(theirs, w)
    torch.testing.assert_close(y.detach().as_subclass(torch.Tensor), expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        gradient.as_subclass(torch.Tensor), torch.autograd.grad(expected.sum(), theirs)[0], rtol=1e-5, atol=1e-5
    )


def test_modes_see_the_call():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        seen: ClassVar[list] = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Mode():
        narrows.add(torch.ones(3), 1)
    assert any("narrows.elementwise" in f for f in Mode.seen)
    y = narrows.exp(torch.ones(3, requires_grad=True)).sum()
    with Mode():
        y.backward()
    assert any("narrows.elementwise_backward" in f for f in Mode.seen)


def test_modes_of_torch_functions_see_the_call(monkeypatch):
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        seen: ClassVar[list] = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))

    for x in (torch.ones(3), torch.ones(3, requires_grad=True)):
        Mode.seen.clear()
        with torch.device("cpu"), Mode():
            y = narrows.exp(x)
        torch.testing.assert_close(y, x.exp())
        assert "narrows.elementwise.default" in Mode.seen
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):  # a default device is such a mode, which concerns no op
        monkeypatch.setattr(narrows.torch, "_call", None)
        with torch.device("cpu"):
            assert narrows.add(x.detach(), 1).tolist() == [2, 2, 2]


# ---- functorch ----


def test_vmap():
    a, b = torch.randn(5, 3, 4), torch.randn(4)
    torch.testing.assert_close(torch.vmap(narrows.add, in_dims=(0, None))(a, b), a + b)
    torch.testing.assert_close(
        torch.vmap(narrows.add, in_dims=(2, 0), out_dims=1)(a, b), torch.vmap(torch.add, in_dims=(2, 0), out_dims=1)(a, b)
    )
    x, w = torch.randn(5, 2, 3, 9), torch.randn(4, 3, 3)
    torch.testing.assert_close(torch.vmap(narrows.conv1d, in_dims=(0, None))(x, w), torch.vmap(F.conv1d, in_dims=(0, None))(x, w))
    ops = torch.ops.narrows.elementwise
    torch.testing.assert_close(torch.vmap(lambda a: ops(a, b, function="mul"))(a), a * b)


@pytest.mark.parametrize("call", ["narrows", "torch.ops"])
def test_vmap_of_several_outputs(call):
    lltm = narrows.lltm if call == "narrows" else torch.ops.narrows.lltm
    inputs, in_dims = cells(5), (0, None, None, 0, 0)
    one_by_one = [narrows.lltm(inputs[0][i], inputs[1], inputs[2], inputs[3][i], inputs[4][i]) for i in range(5)]
    results = torch.vmap(lltm, in_dims=in_dims)(*inputs)
    for j in range(2):
        torch.testing.assert_close(results[j], torch.stack([r[j] for r in one_by_one]))
    loss = lambda *a: sum((y * y).sum() for y in lltm(*a)[:2])  # noqa: E731
    gradients = torch.vmap(torch.func.grad(loss, argnums=(0, 1, 4)), in_dims=in_dims)(*inputs)
    for i in (0, 4):
        alone = torch.func.grad(loss, argnums=(0, 1, 4))(inputs[0][i], inputs[1], inputs[2], inputs[3][i], inputs[4][i])
        torch.testing.assert_close(tuple(g[i] for g in gradients), alone, rtol=1e-5, atol=1e-5)


def test_vmap_over_no_elements():
    x, w = torch.ones(0, 2, 3, 9), torch.ones(4, 3, 3)
    assert torch.vmap(narrows.exp)(x).shape == x.shape
    assert torch.vmap(narrows.conv1d, in_dims=(0, None))(x, w).shape == (0, 2, 4, 7)
    assert torch.vmap(narrows.conv1d, in_dims=(1, None))(x.movedim(0, 1).double(), w.double()).dtype == torch.float64
    h, c = torch.vmap(narrows.lltm, in_dims=(0, None, None, 0, 0))(*cells(0))
    assert h.shape == c.shape == (0, 2, 4)
    gradients = torch.func.grad(lambda w: torch.vmap(narrows.conv1d, in_dims=(0, None))(x, w).sum())(w)
    torch.testing.assert_close(gradients, torch.zeros_like(w))


@pytest.mark.parametrize("call", ["narrows", "torch.ops"])
def test_transforms_compose(call):
    ops = torch.ops.narrows.elementwise
    f = {
        "narrows": lambda a, b: narrows.multiply(narrows.tanh(a), b).sum(),
        "torch.ops": lambda a, b: ops(ops(a, function="tanh"), b, function="mul").sum(),
    }[call]
    g = lambda a, b: (torch.tanh(a) * b).sum()  # noqa: E731
    a, b = torch.randn(5, 3, 4), torch.randn(4)
    for transform in (
        lambda f: torch.func.grad(f, argnums=(0, 1)),
        lambda f: torch.vmap(torch.func.grad(f, argnums=(0, 1)), in_dims=(0, None)),
        lambda f: torch.func.jacrev(f),
        lambda f: lambda a, b: torch.func.vjp(f, a, b)[1](torch.tensor(2.0)),
        lambda f: torch.func.grad(lambda a, b: torch.vmap(f, in_dims=(0, None))(a, b).sum(), argnums=(0, 1)),
    ):
        for ours, theirs in zip(transform(f)(a, b), transform(g)(a, b), strict=True):
            torch.testing.assert_close(ours, theirs)


# ---- modules ----


@pytest.mark.parametrize("kind", ["numpy", "own"])
def test_arrays_of_others_beside_a_gradient(kind):
    """Negative strides, at which torch ends the process, and NumPy's bfloat16, which it cannot export."""
    as_kind = narrows.from_dlpack if kind == "own" else lambda x: x
    with torch.device("cpu"):
        r = torch.ones(4, 6, requires_grad=True)
        x = np.arange(24, dtype="float32").reshape(4, 6)
        for flipped in (x[::-1], x[:, ::-2].repeat(2, 1)[:, ::-1], x.T[::-1].T):
            y = narrows.multiply(r, as_kind(flipped))
            y.sum().backward()
            np.testing.assert_array_equal(y.detach().numpy(), flipped)
            np.testing.assert_array_equal(r.grad.numpy(), flipped)
            r.grad = None
        b = narrows.astype(x, "bfloat16")
        y = narrows.multiply(torch.ones(4, 6, dtype=torch.bfloat16, requires_grad=True), as_kind(b))
        np.testing.assert_array_equal(y.detach().float().numpy(), x)


def test_an_output_with_negative_strides_beside_what_the_dispatcher_sees():
    with torch.device("cpu"):
        out = np.zeros((2, 3), "float32")
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):  # else the dispatcher sees every call
            narrows.add(torch.ones(2, 3), 1, out=out[::-1])
            np.testing.assert_array_equal(out, 2)
        with pytest.raises(ValueError, match=r"out has strides \(-3, 1\), and torch none below 0"):
            narrows.add(torch._neg_view(torch.ones(2, 3)), 1, out=out[::-1])


def test_conv1d_module_is_a_drop_in():
    for arguments in (
        {},
        {"stride": 2, "padding": 1},
        {"padding": "same", "dilation": 2},
        {"padding": 2, "padding_mode": "circular"},
        {"groups": 2, "bias": False},
    ):
        ours, theirs = narrows.torch.Conv1d(4, 6, 3, **arguments), torch.nn.Conv1d(4, 6, 3, **arguments)
        ours.load_state_dict(theirs.state_dict())
        assert repr(ours) == repr(theirs)
        for x in (torch.randn(2, 4, 11), torch.randn(4, 11)):
            torch.testing.assert_close(ours(x), theirs(x))
    double_precision = narrows.torch.Conv1d(4, 6, 3).double()
    assert double_precision(torch.randn(1, 4, 8, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("make", [lambda **k: narrows.torch.Conv1d(3, 4, 2, **k), lambda **k: narrows.torch.LLTM(3, 4, **k)])
def test_modules_move(make, device):
    """Devices and dtypes at construction and later, and the way from meta tensors to real ones by a state dict."""
    module = make(dtype=torch.float64)
    assert {(p.dtype, p.device.type) for p in module.parameters()} == {(torch.float64, device)}
    for move, dtype in (
        (lambda: module.to(torch.bfloat16), torch.bfloat16),
        (module.half, torch.float16),
        (module.float, torch.float32),
    ):
        assert move() is module and {p.dtype for p in module.parameters()} == {dtype}
        x, state = torch.randn(2, 3, dtype=dtype), torch.randn(2, 4, dtype=dtype)
        results = module(x, (state, state)) if isinstance(module, narrows.torch.LLTM) else (module(x[..., None].expand(2, 3, 5)),)
        assert {y.dtype for y in results} == {dtype}
    meta = make(device="meta", dtype=torch.float32)
    assert all(p.is_meta for p in meta.parameters())
    with torch.device("meta"):
        assert all(p.is_meta for p in make().parameters())
        x, h = torch.randn(2, 3), torch.randn(2, 4)
        y = meta(x, (h, h))[0] if isinstance(meta, narrows.torch.LLTM) else meta(torch.randn(2, 3, 5))
        assert y.is_meta and y.shape == ((2, 4) if isinstance(meta, narrows.torch.LLTM) else (2, 4, 4))
    with torch.no_grad():
        real = meta.to_empty(device=device)
        real.load_state_dict(module.state_dict())
    for name, parameter in module.state_dict().items():
        assert torch.equal(real.state_dict()[name], parameter)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        real.load_state_dict({**module.state_dict(), "other": torch.ones(1)})
    pinned = make(device="cpu")
    assert {p.device.type for p in pinned.parameters()} == {"cpu"}


@pytest.mark.parametrize("make", [lambda **k: narrows.torch.Conv1d(3, 4, 2, **k), lambda **k: narrows.torch.LLTM(3, 4, **k)])
def test_moved_modules_give_the_same(make):
    """Values, not only dtypes: of parameters, results and gradients, there and back, and by a state dict."""
    module, x, state = make(), torch.randn(2, 3, 5), torch.randn(2, 4)
    kept = {name: p.clone() for name, p in module.state_dict().items()}

    def step(module, dtype):
        given = (x.to(dtype)[..., 0], (state.to(dtype),) * 2) if isinstance(module, narrows.torch.LLTM) else (x.to(dtype),)
        y = module(*given)
        y = y if isinstance(y, torch.Tensor) else torch.cat(y)
        return y, torch.autograd.grad(y.sin().sum(), tuple(module.parameters()))

    def close(found, expected, tolerance):
        flat = [[y, *gradients] for y, gradients in (found, expected)]
        for a, b in zip(*flat, strict=True):
            torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)

    expected = step(module, torch.float32)
    for move, dtype, tolerance in (
        (lambda: module.to(torch.float64), torch.float64, 1e-5),
        (module.float, torch.float32, 1e-5),
        (module.double, torch.float64, 1e-5),
        (lambda: module.to("cpu", torch.float32).to(x.device), torch.float32, 1e-5),
    ):
        close(step(move(), dtype), expected, tolerance)
        assert all(
            torch.equal(p, kept[name].to(dtype)) for name, p in module.state_dict().items()
        )  # widened and back: nothing is lost
    close(step(module.to(torch.bfloat16), torch.bfloat16), expected, 0.1)
    module.float()
    other, straight = make(dtype=torch.float64), make()
    for target in (other, straight):
        assert target.load_state_dict(kept) == ([], [])
    close(step(other, torch.float64), expected, 1e-5)
    close(step(straight, torch.float32), expected, 1e-6)
    assigned = make(device="meta")
    assigned.load_state_dict(kept, assign=True)
    close(step(assigned, torch.float32), expected, 1e-6)


def test_lltm_module_learns():
    torch.manual_seed(0)
    cell = narrows.torch.LLTM(3, 8)
    assert repr(cell) == "LLTM(3, 8)" and set(cell.state_dict()) == {"weights", "bias"}
    optimiser = torch.optim.SGD(cell.parameters(), lr=5)
    x, target = torch.randn(16, 3), torch.rand(16, 8) * 0.5
    losses = []
    for _ in range(60):
        h, _ = cell(x, (torch.zeros(16, 8), torch.zeros(16, 8)))
        loss = F.mse_loss(h, target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_what_is_called_directly_is_there():
    """Without one of these functions calls work, and take up to three times as long."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        pytest.skip(
            "before torch 2.11 tensors have another layout, and nothing is called directly; 2.11 and 2.12 were not looked at"
        )
    source = pathlib.Path(__file__).parents[2] / "bindings" / "python" / "src" / "torch.cpp"
    names = set(re.findall(r'dlsym\(library,\s*"(\w+)"\)', source.read_text()))
    folder = pathlib.Path(torch.__file__).parent / "lib"
    libraries = [ctypes.CDLL(folder / name) for name in ("libtorch_cpu.so", "libc10.so")]
    missing = {name for name in names if not any(hasattr(library, name) for library in libraries)}
    missing -= {name for name in missing if "c104cuda" in name}  # of builds with CUDA
    one_of = {name for name in names if "toDLPackNonOwning" in name}  # which got an argument
    assert len(names) > 10 and len(one_of) == 2 and len(missing & one_of) == 1 and missing <= one_of, missing
