# SPDX-License-Identifier: Apache-2.0
"""torch: what must not go straight to the library: lazy, fake and wrapped tensors, modes, traces; and what is refused."""

import warnings
import weakref
from typing import ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import narrows  # noqa: E402
import narrows.torch  # noqa: E402
from torch_inputs import DEVICES, double, on_device  # noqa: E402


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    yield from on_device(request.param)


EXPS = {"narrows": narrows.exp, "torch.ops": lambda a: torch.ops.narrows.elementwise(a, function="exp")}


# ---- the gate: every case in which a call must not bypass the dispatcher ----


needs_exchange = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch has no exchange API: every call takes the detour"
)


@needs_exchange
def test_plain_calls_go_straight_to_the_library(monkeypatch):
    def refuse(op, *_):
        raise AssertionError(f"{op.op} was sent to Python")

    monkeypatch.setattr(narrows.torch, "_call", refuse)
    monkeypatch.setattr(narrows.torch._torch_ops.Eager, "forward", lambda ctx, reg, op, *inputs: refuse(op))
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
    with mode, pytest.raises(ValueError, match=r"(elementwise|add): a is real"):
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
        with pytest.raises(NotImplementedError, match=f"add: {argument} is a tensor that is {name}; expected a strided one"):
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
