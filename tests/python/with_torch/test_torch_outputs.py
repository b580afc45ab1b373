# SPDX-License-Identifier: Apache-2.0
"""torch: outputs, given by out= or torch's own, their dtypes, and inputs of other frameworks beside torch's."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import narrows  # noqa: E402
import narrows.torch  # noqa: E402
from torch_inputs import DEVICES, cells, on_device  # noqa: E402


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    yield from on_device(request.param)


# ---- out= ----


def test_out():
    x, out = torch.ones(4), torch.empty(4)
    assert narrows.add(x, x, out=out) is out and out[0] == 2
    narrows.add(x, 1, out=x)
    assert x[0] == 2
    out.requires_grad_()
    with pytest.raises(ValueError, match="has no gradient"):
        narrows.add(x, x, out=out)
    z = torch.complex(torch.ones(2), torch.ones(2))
    given = torch.empty(2)
    assert narrows.add(z.conj().imag, 0, out=given) is given and given[0] == -1
    with pytest.raises(ValueError, match=r"out has shape \(3,\); expected \(2,\)"):
        narrows.add(z.conj().imag, 0, out=torch.empty(3))
    with pytest.raises(TypeError, match="b: str is no array"):
        narrows.add(torch.ones(3, requires_grad=True), "a")


def test_out_beside_inputs_of_numpy():
    with torch.device("cpu"):
        x, dense, given = np.ones(3, "float32"), torch._neg_view(torch.zeros(3)), torch.zeros(3)
        y = torch.ones(3, requires_grad=True) * given
        narrows.add(x, 1, out=given)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        assert narrows.add(x, 1, out=dense) is dense and dense.tolist() == [2, 2, 2]
        with pytest.raises(ValueError, match="has no gradient"):
            narrows.add(x, 1, out=torch.zeros(3, requires_grad=True))
        with pytest.raises(NotImplementedError, match="sparse"):
            narrows.add(x, 1, out=torch.zeros(3).to_sparse())


@pytest.mark.parametrize("negated", [False, True])
def test_out_beside_lazily_negated_inputs(negated):
    """The detour by torch's dispatcher takes and refuses what the straight way does."""
    with torch.device("cpu"):
        x = torch._neg_view(-torch.ones(3)) if negated else torch.ones(3)
        for given in (np.zeros(3, "float32"), narrows.add(np.zeros(3, "float32"), 0, out=narrows.empty(3)), torch.zeros(5)[1:4]):
            assert narrows.add(x, 1, out=given) is given
            assert np.asarray(given).tolist() == [2, 2, 2]
        read_only, cell, o = np.broadcast_to(np.float32(0), 3), cells(), torch.zeros(2, 4)
        cell[0] = torch._neg_view(cell[0]) if negated else cell[0]
        for call, error, words in (
            (lambda: narrows.add(x, 1, out="x"), TypeError, "out: str is no array"),
            (lambda: narrows.add(1, 2, out=x), TypeError, "no input is an array"),
            (lambda: narrows.add(x, 1, out=[o, o]), TypeError, "out has 2 arrays"),
            (lambda: narrows.add(x, 1, out=np.ma.masked_array(np.ones(3, "float32"))), TypeError, "out: MaskedArray is a subclass"),
            (lambda: narrows.add(x, 1, out=read_only), ValueError, "out is read-only"),
            (lambda: narrows.add(x, 1, out=np.zeros(3)), ValueError, "out has dtype float64; expected float32"),
            (lambda: narrows.add(x, 1, out=torch.zeros(1).expand(3)), ValueError, "by which two elements share a place"),
            (lambda: narrows.lltm(*cell, out=(o, o)), ValueError, "overlaps"),
        ):
            with pytest.raises(error, match=words):
                call()
        assert not o.any() and narrows.lltm(*cell, out=(o, torch.zeros(2, 4)))[0] is o and o.any()
        given = narrows.lltm(*cell, out=[o, torch.zeros(2, 4)])
        assert type(given) is tuple and len(given) == 2 and given[0] is o and narrows.add(o, 1, out=[o]) is o


@pytest.mark.parametrize("op", ["add", "lltm"])
def test_an_output_counts_as_written_to(op):
    x, given = torch.ones(2, 4, requires_grad=True), torch.zeros(2, 4)
    y = x * given
    if op == "add":
        narrows.add(torch.ones(2, 4), 1, out=given)
    else:
        narrows.lltm(*cells(), out=(given, torch.zeros(2, 4)))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y.sum(), x)
    version = given._version
    with pytest.raises(ValueError, match=r"out (is|has)"):
        narrows.add(torch.ones(3), 1, out=given)
    assert given._version == version
    with torch.inference_mode():
        given = torch.zeros(3)
        narrows.add(torch.ones(3), 1, out=given)
    with pytest.raises(RuntimeError, match="add: out is an inference tensor"):
        narrows.add(torch.ones(3), 2, out=given)
    assert given.tolist() == [2, 2, 2]


@pytest.mark.parametrize("way", ["straight", "lazily negated", "NumPy's into a negated one", "device="])
def test_outputs_that_exist_for_backward_only_are_written(way):
    with torch.device("cpu"):
        cell, (h, c, gates) = cells(), (torch.zeros(2, 4), torch.zeros(2, 4), torch.zeros(2, 12))
        expected = [torch.zeros_like(y) for y in (h, c, gates)]
        narrows.op("lltm")(*cell, out=tuple(expected))
        if way == "lazily negated":
            cell[0] = torch._neg_view(-cell[0])
        elif way != "straight":
            cell = [x.numpy() for x in cell]
        if way == "device=":
            outs = tuple(y.numpy() for y in (h, c, gates))
            given = narrows.op("lltm")(*cell, out=outs, device="cpu")
        else:
            outs = h, c, torch._neg_view(gates) if way.startswith("NumPy") else gates
            given = narrows.op("lltm")(*cell, out=outs)
        assert all(y is o for y, o in zip(given, outs, strict=True)) and expected[2].any()
        for y, e in zip(outs, expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(y), e)


@pytest.mark.parametrize("left", [0, 8])
def test_an_output_whose_storage_was_made_smaller(left, device):
    x, out = torch.ones(4), torch.zeros(6)[1:5]
    out.untyped_storage().resize_(left)
    with pytest.raises(ValueError, match=f"add: out has a storage of {left} bytes; expected 20|data NULL"):
        narrows.add(torch._neg_view(x), 1, out=out)
    assert narrows.add(torch._neg_view(x[:0]), 1, out=out[:0]).shape == (0,)
    out.untyped_storage().resize_(20)
    assert narrows.add(torch._neg_view(x), 1, out=out).tolist() == [0] * 4


# ---- torch's own ----


def test_outputs_are_torchs_own():
    y = narrows.add(torch.ones(3), 1)
    y.resize_(100)  # the storage belongs to torch's allocator
    assert y.untyped_storage().resizable()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.uint8])
def test_dtypes_and_strides(dtype):
    x = torch.arange(24, dtype=dtype).reshape(4, 6).t()
    torch.testing.assert_close(narrows.add(x, x), x + x)
    torch.testing.assert_close(narrows.astype(x, torch.float64), x.to(torch.float64))


# ---- inputs of other frameworks ----


def test_mixed_frameworks(device):
    if device != "cpu":
        pytest.skip("test_gpu.py has it: there NumPy's arrays are elsewhere")
    x = torch.ones(3)
    assert type(narrows.add(x, np.ones(3, "float32"))) is torch.Tensor
    assert type(narrows.add(np.ones(3, "float32"), x)) is np.ndarray
    p = x.clone().requires_grad_()
    assert narrows.add(np.ones(3, "float32"), p).requires_grad  # a gradient is never lost
    t = narrows.from_dlpack(x)
    assert type(narrows.add(t, x)) is narrows.Tensor
    lazy = torch.complex(x, x).conj().imag  # that goes through the dispatcher, and comes back as the first input is
    assert lazy.is_neg() and type(narrows.add(np.ones(3, "float32"), lazy)) is np.ndarray
    assert type(narrows.add(t, lazy)) is narrows.Tensor and narrows.add(2, lazy)[0] == 1
    torch.testing.assert_close(torch.from_dlpack(narrows.add(t, x)), x + x)


def test_numbers_beside_inputs_of_numpy():
    with torch.device("cpu"):
        x = torch.ones(2, requires_grad=True)
        for b in (x, torch._neg_view(-torch.ones(2))):
            y = narrows.where(np.array([True, False]), b, 5.0)
            assert torch.as_tensor(y).tolist() == [1, 5]
        assert torch.as_tensor(narrows.clip(np.float32([-3, 3]), -x, 0.5)).tolist() == [-1, 0.5]
