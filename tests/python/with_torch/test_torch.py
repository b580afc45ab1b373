# SPDX-License-Identifier: Apache-2.0
"""torch: values and gradients, functorch, modules; against torch's own ops."""

import contextlib
import ctypes
import os
import pathlib
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import narrows  # noqa: E402
import narrows.torch  # noqa: E402
from function_table import interval  # noqa: E402
from narrows import _functions  # noqa: E402
from torch_inputs import DEVICES, cells, double, on_device  # noqa: E402


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    yield from on_device(request.param)


NAMES = {"astype": None, "elu": F.elu, "gelu": F.gelu, "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"), "silu": F.silu,
         "softplus": F.softplus, "equal": torch.eq, "bitwise_invert": torch.bitwise_not, "cbrt": lambda a: a.sign() * a.abs() ** (1 / 3),
         "fma": lambda a, b, c: a * b + c, "divide": torch.div}  # fmt: skip


def reference(name):
    """torch's function. What it lacks is ours of NumPy's arrays, whose gradient is compared with finite differences alone."""

    def ours(*inputs):
        result = getattr(narrows, name)(*(x.detach().cpu().numpy() for x in inputs))
        return torch.from_numpy(result).to(inputs[0].device)

    places = torch, F, torch.special
    return NAMES.get(name) or next((getattr(place, name) for place in places if hasattr(place, name)), ours)


# ---- values and gradients ----


@pytest.mark.parametrize("name", [n for n, row in _functions.TABLE.items() if row[2] in "FNA" and n != "where"])
def test_functions(name):
    count = _functions.TABLE[name][1]
    low, high = interval(_functions.TABLE[name][0], 0.2, 0.9)
    inputs = [double(*s, low=low, high=high) for s in ((3, 4), (4,), (3, 1))[:count]]
    plain = [x.detach() for x in inputs]
    result = getattr(narrows, name)(*plain)
    expected = reference(name)(*plain)
    assert type(result) is torch.Tensor and result.dtype == expected.dtype
    torch.testing.assert_close(result, expected)
    if not result.is_floating_point():
        return
    ours = torch.autograd.grad(getattr(narrows, name)(*inputs).sum(), inputs, allow_unused=True)
    expected = reference(name)(*inputs).sum()
    theirs = torch.autograd.grad(expected, inputs, allow_unused=True) if expected.requires_grad else ours
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


# ---- functorch ----


@pytest.mark.parametrize("observed", [False, True])
def test_saved_tensors_are_asked_for_once(observed):
    """More often a checkpoint does not give them; beside a mode the gradient goes by torch's dispatcher."""
    x = double(3)
    y = checkpoint(narrows.exp, x, use_reentrant=False)
    with FlopCounterMode(display=False) if observed else contextlib.nullcontext():
        y.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp())


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
        # Else the dispatcher sees every call.
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__") and os.environ.get("NARROWS_TORCH_FAST") != "0":
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
    bindings = pathlib.Path(__file__).parents[3] / "bindings"
    names = set(re.findall(r'dlsym\(library,\s*"(\w+)"\)', (bindings / "python" / "src" / "torch.cpp").read_text()))
    names |= set(re.findall(r'find\("(\w+)"', (bindings / "torch" / "private_names.cpp").read_text()))
    folder = pathlib.Path(torch.__file__).parent / "lib"
    with_cuda = [name for name in ("libtorch_cuda.so", "libc10_cuda.so") if (folder / name).exists()]
    libraries = [ctypes.CDLL(folder / name) for name in ("libtorch_cpu.so", "libtorch_python.so", "libc10.so", *with_cuda)]
    names |= {"aoti_torch_dtype_" + dtype for dtype in ("float32", "float64", "float16", "bfloat16", "int64", "uint64", "bool")}
    missing = {name for name in names if not any(hasattr(library, name) for library in libraries)}
    if not with_cuda:
        missing -= {name for name in missing if "cuda" in name}
    one_of = {name for name in names if "toDLPackNonOwning" in name}  # which got an argument
    assert len(names) > 10 and len(one_of) == 2 and len(missing & one_of) == 1 and missing <= one_of, missing
