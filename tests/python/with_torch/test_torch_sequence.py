# SPDX-License-Identifier: Apache-2.0
"""narrows.torch.LLTM over sequences: layers, directions and lengths, beside a loop over cells."""

import pytest
import torch

import narrows
import narrows.torch


def cells(layer, ending, x, h, c, lengths, reverse):
    """One layer in one direction, by the cell's formula: x (T, B, F)."""
    weights, bias = getattr(layer, "weights" + ending), getattr(layer, "bias" + ending)
    out = torch.zeros(*x.shape[:2], h.shape[1], dtype=x.dtype)
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        i, o, z = (torch.cat([h, x[t]], 1) @ weights.T + bias).chunk(3, 1)
        new_c = c + torch.nn.functional.elu(z) * torch.sigmoid(i)
        new_h = torch.tanh(new_c) * torch.sigmoid(o)
        active = (lengths > t)[:, None]
        h, c = torch.where(active, new_h, h), torch.where(active, new_c, c)
        out[t] = torch.where(active, new_h, torch.zeros(()))
    return out, h, c


def by_cells(layer, x, state, lengths):
    x = x.transpose(0, 1) if layer.batch_first else x
    states = []
    for index in range(layer.num_layers):
        outputs = []
        for reverse, ending in enumerate(layer._endings(index)):
            out, h, c = cells(layer, ending, x, state[0][len(states)], state[1][len(states)], lengths, reverse == 1)
            outputs.append(out)
            states.append((h, c))
        x = torch.cat(outputs, -1)
    h, c = (torch.stack(s) for s in zip(*states, strict=True))
    return x.transpose(0, 1) if layer.batch_first else x, (h, c)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("num_layers", "bidirectional", "batch_first"), [(1, False, False), (2, True, True), (3, False, True)])
def test_layers_are_loops_of_cells(num_layers, bidirectional, batch_first, recompute):
    torch.manual_seed(0)
    how = {"num_layers": num_layers, "bidirectional": bidirectional, "batch_first": batch_first, "recompute": recompute}
    layer = narrows.torch.LLTM(3, 5, dtype=torch.float64, **how)
    x = torch.randn(*((4, 7) if batch_first else (7, 4)), 3, dtype=torch.float64, requires_grad=True)
    count = num_layers * (2 if bidirectional else 1)
    state = tuple(torch.randn(count, 4, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    lengths = torch.tensor([7, 3, 0, 5])
    h, (new_h, new_cell) = layer(x, state, lengths)
    expected, (expected_h, expected_cell) = by_cells(layer, x, state, lengths)
    for got, wanted in ((h, expected), (new_h, expected_h), (new_cell, expected_cell)):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    of = [x, *state, *layer.parameters()]
    got = torch.autograd.grad((h**2).sum() + new_h.sum() + new_cell.sum(), of)
    wanted = torch.autograd.grad((expected**2).sum() + expected_h.sum() + expected_cell.sum(), of)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_names_shapes_and_what_is_printed():
    layer = narrows.torch.LLTM(3, 5, num_layers=2, bidirectional=True, batch_first=True)
    assert {name: tuple(p.shape) for name, p in layer.state_dict().items()} == {
        "weights": (15, 8), "bias": (1, 15), "weights_l0_reverse": (15, 8), "bias_l0_reverse": (1, 15),
        "weights_l1": (15, 15), "bias_l1": (1, 15), "weights_l1_reverse": (15, 15), "bias_l1_reverse": (1, 15),
    }  # fmt: skip
    assert repr(layer) == "LLTM(3, 5, num_layers=2, bidirectional=True, batch_first=True)"
    h, (new_h, new_cell) = layer(torch.zeros(2, 7, 3))
    assert h.shape == (2, 7, 10) and new_h.shape == new_cell.shape == (4, 2, 5)


def test_a_sequence_of_the_cell_is_the_cell():
    cell, x, state = narrows.torch.LLTM(3, 5), torch.randn(6, 2, 3), (torch.randn(2, 5), torch.randn(2, 5))
    h, (new_h, new_cell) = cell(x, tuple(s[None] for s in state))
    for step, row in zip(x, h, strict=True):
        state = cell(step, state)
        torch.testing.assert_close(state[0], row)
    torch.testing.assert_close((new_h[0], new_cell[0]), state)


def test_wrong_calls_say_what_was_expected():
    with pytest.raises(ValueError, match="num_layers = 0; expected 1 or more"):
        narrows.torch.LLTM(3, 5, num_layers=0)
    with pytest.raises(ValueError, match="state_size = -8; expected 0 or more"):
        narrows.torch.LLTM(4, -8)
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 3)])
    with pytest.raises(TypeError, match="input is PackedSequence; expected a tensor, and lengths"):
        narrows.torch.LLTM(3, 5)(packed)
    h = torch.zeros(2, 5)
    for x in (torch.zeros(2, 4), torch.zeros(7, 2, 4)):
        with pytest.raises(ValueError, match=r"input has shape \(.*4\); expected 3 features in its last dimension"):
            narrows.torch.LLTM(3, 5)(x, (h, h) if x.dim() == 2 else None)
    for x in (torch.zeros(2, 3), torch.zeros(7, 2, 3)):
        with pytest.raises(TypeError, match=r"state is Tensor; expected a tuple \(old_h, old_cell\)"):
            narrows.torch.LLTM(3, 5)(x, h)
    with pytest.raises(TypeError, match=r"lengths have dtype torch.float32; expected integers"):
        narrows.torch.LLTM(3, 5)(torch.zeros(7, 2, 3), lengths=torch.ones(2))
    layer = narrows.torch.LLTM(3, 5, num_layers=2)
    with pytest.raises(ValueError, match=r"input has shape \(2, 3\); expected a sequence \(T, B, F\)"):
        layer(torch.zeros(2, 3), (torch.zeros(2, 5), torch.zeros(2, 5)))
    with pytest.raises(ValueError, match=r"old_h has shape \(1, 2, 5\); expected \(2, 2, 5\)"):
        layer(torch.zeros(7, 2, 3), (torch.zeros(1, 2, 5), torch.zeros(2, 2, 5)))
    with pytest.raises(ValueError, match=r"input has shape \(2, 3\); expected \(B, F\) with a state and no lengths, or a sequence"):
        narrows.torch.LLTM(3, 5)(torch.zeros(2, 3))


def test_compiled_and_mapped():
    layer, x = narrows.torch.LLTM(3, 5, num_layers=2), torch.randn(4, 2, 3)
    expected = layer(x)[0]
    torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(x)[0], expected)
    mapped = torch.vmap(lambda one: narrows.ops.lltm_sequence(one, layer.weights, layer.bias, *(torch.zeros(2, 5),) * 2)[0])
    both = mapped(torch.stack([x, 2 * x]))
    for one, h in zip((x, 2 * x), both, strict=True):
        torch.testing.assert_close(h, narrows.ops.lltm_sequence(one, layer.weights, layer.bias, *(torch.zeros(2, 5),) * 2)[0])
