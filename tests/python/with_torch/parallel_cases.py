# SPDX-License-Identifier: Apache-2.0
"""What test_parallel.py asks of models in several processes: plans of parallelize_module, FSDP2, DDP, checkpoints and torch.compile. Each
against the same model on one device, in float64."""

import copy
import os
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

import dtensor_cases
import narrows.parallel
import narrows.torch
import ranks
from dtensor_cases import GATHERS_UNEVEN, MESHES, counted, near, numbers, spread

FOLDER = []


def begin(folder, rank, world):
    dtensor_cases.begin(folder, rank, world)
    FOLDER.append(folder)


class Net(torch.nn.Module):
    """Two convolutions and an LLTM over the time."""

    def __init__(self, groups=1):
        super().__init__()
        conv = narrows.torch.Conv1d
        self.first = conv(4, 7, 5, padding=2, dtype=torch.float64)
        self.second = conv(7, 4, 3, padding="same", dtype=torch.float64)
        self.third = conv(4, 8, 3, padding=1, groups=groups, dtype=torch.float64)
        self.cell = narrows.torch.LLTM(8, 5, dtype=torch.float64)

    def signal(self, x):
        return self.second(narrows.gelu(self.first(x)))

    def forward(self, x):
        y = self.third(self.signal(x))
        state = x.new_zeros(len(x), 5), x.new_zeros(len(x), 5)
        for t in range(2):
            state = self.cell(y[:, :, t], state)
        return state[0]


def made(groups=1):
    """The same on each rank."""
    torch.manual_seed(1)
    return Net(groups).to(ranks.DEVICE)


def rank():
    return dist.get_rank(), dist.get_world_size()


def own(x, dim=0):
    """This rank's part."""
    here, world = rank()
    parts = x.chunk(world, dim)
    return parts[here] if here < len(parts) else x.narrow(dim, 0, 0)


# ---- plans ----


def filters_then_channels():
    single, x = made(), numbers(3, 4, 9)
    net = parallelize_module(
        copy.deepcopy(single), MESHES[1], {"first": narrows.parallel.Filters(), "second": narrows.parallel.Channels()}
    )
    given, whole = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = single.signal(whole)
    with CommDebugMode() as forward:
        found = net.signal(given)
    near(found, expected.detach())
    assert counted(forward) == {"sum": 1}
    seed = torch.randn_like(expected)
    expected.backward(seed)
    with CommDebugMode() as backward:
        found.backward(seed)
    assert counted(backward) == {"sum": 1}, counted(backward)
    near(given.grad, whole.grad)
    for layer in ("first", "second"):
        for parameter in ("weight", "bias"):
            near(getattr(getattr(net, layer), parameter).grad, getattr(getattr(single, layer), parameter).grad)
    assert net.first.weight.placements == (Shard(0),) and net.second.weight.placements == (Shard(1),)


def groups():
    world = rank()[1]
    torch.manual_seed(1)
    single = narrows.torch.Conv1d(8, 12, 3, groups=4, dtype=torch.float64).to(ranks.DEVICE)
    conv = parallelize_module(copy.deepcopy(single), MESHES[1], narrows.parallel.Groups())
    x = numbers(2, 8, 9)
    with CommDebugMode() as mode:
        y = conv(own(x, 1))
        y.square().sum().backward()
    assert counted(mode) == {} and 4 % world == 0
    single(x).square().sum().backward()
    near(y, own(single(x).detach(), 1))
    near(conv.weight.grad, single.weight.grad)
    near(conv.bias.grad, single.bias.grad)
    left = narrows.torch.Conv1d(8, 12, 3, groups=4).requires_grad_(False)
    assert not parallelize_module(left, MESHES[1], narrows.parallel.Groups()).weight.requires_grad


def states():
    for size in (8, 5, 1):  # even, uneven, and none on some device
        torch.manual_seed(1)
        single = narrows.torch.LLTM(3, size, dtype=torch.float64).to(ranks.DEVICE)
        cell = parallelize_module(copy.deepcopy(single), MESHES[1], narrows.parallel.States())
        x, h, c = numbers(4, 3), numbers(4, size), numbers(4, size)
        given = [t.clone().requires_grad_() for t in (x, own(h, 1), own(c, 1))]
        whole = [t.clone().requires_grad_() for t in (x, h, c)]
        with CommDebugMode() as forward:
            found = cell(given[0], (given[1], given[2]))
        expected = single(whole[0], (whole[1], whole[2]))
        assert counted(forward) == {"gather": 1}, counted(forward)
        for f, e in zip(found, expected, strict=True):
            near(f, own(e.detach(), 1))
        torch.autograd.backward(expected, [e.detach() for e in expected])
        with CommDebugMode() as backward:
            torch.autograd.backward(found, [f.detach() for f in found])
        communicated = counted(backward)
        if GATHERS_UNEVEN and size % rank()[1]:
            assert communicated.pop("gather") == 2
        assert communicated == {"scatter": 1, "sum": 1}, communicated  # of old_h and of the input
        near(given[0].grad, whole[0].grad)
        near(given[1].grad, own(whole[1].grad, 1))
        near(given[2].grad, own(whole[2].grad, 1))
        near(cell.weights.grad.full_tensor().flatten(0, 1), single.weights.grad)
        near(cell.bias.grad.full_tensor().reshape(1, -1), single.bias.grad)


def states_over_steps():
    """DTensors go from step to step, and the gradient through all of them."""
    torch.manual_seed(1)
    single = narrows.torch.LLTM(3, 5, dtype=torch.float64).to(ranks.DEVICE)
    cell = parallelize_module(copy.deepcopy(single), MESHES[1], narrows.parallel.States(use_local_output=False))
    x, h = numbers(3, 4, 3), numbers(4, 5)
    parts = (spread(h, [Shard(1)], MESHES[1]), spread(h, [Replicate()], MESHES[1]))
    state = (h, h)
    for t in range(3):
        parts, state = cell(x[t], parts), single(x[t], state)
    near(parts[0], state[0].detach())
    sum(p.full_tensor().square().sum() for p in parts).backward()
    sum(s.square().sum() for s in state).backward()
    near(cell.weights.grad.full_tensor().flatten(0, 1), single.weights.grad)


def refusals():
    cases = [
        (narrows.parallel.Filters(), narrows.torch.Conv1d(4, 4, 3, groups=2), "Filters: the module has groups = 2; expected 1"),
        (narrows.parallel.Channels(), narrows.torch.Conv1d(4, 4, 3, groups=2), "Channels: the module has groups = 2; expected 1"),
        (
            narrows.parallel.Groups(),
            narrows.torch.Conv1d(3, 3, 3, groups=3),
            "Groups: the module has groups = 3; expected a multiple",
        ),
        (narrows.parallel.Groups(), torch.nn.Conv1d(4, 4, 3), "Groups: the module is Conv1d; expected narrows.torch.Conv1d"),
        (narrows.parallel.States(), torch.nn.Linear(2, 2), "States: the module is Linear; expected narrows.torch.LLTM"),
    ]
    for style, module, words in cases:
        try:
            parallelize_module(module, MESHES[1], style)
        except (TypeError, ValueError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"taken: {words}")


# ---- data-parallel training ----


def steps_of(net, x, y, part=lambda t: t):
    """The parameters after two steps."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(part(x)), part(y)).backward()
        optimizer.step()
    return {n.removeprefix("module."): p.detach() for n, p in net.named_parameters()}


def trained(net):
    torch.manual_seed(2)
    x, y = numbers(8, 4, 9), numbers(8, 5)
    expected = steps_of(made(), x, y)
    for name, p in steps_of(net, x, y, own).items():
        near(p, expected[name])


def ddp():
    trained(DistributedDataParallel(made()))


def fsdp():
    net = made()
    for layer in (net.first, net.second, net.third, net.cell, net):
        fully_shard(layer, mesh=MESHES[1])
    trained(net)
    assert isinstance(net.first.weight, DTensor) and net.first.weight.placements == (Shard(0),)


# ---- checkpoints ----

PLANS = [
    {"first": narrows.parallel.Filters, "second": narrows.parallel.Channels, "cell": narrows.parallel.States},
    {"first": narrows.parallel.Channels, "second": narrows.parallel.Filters, "cell": narrows.parallel.States},
]


def planned(net, plan):
    return parallelize_module(net, MESHES[1], {name: style() for name, style in plan.items()})


def loaded(net, folder):
    """The network with what is in the checkpoint."""
    for p in net.parameters():
        torch.nn.init.zeros_(p)
    state = get_model_state_dict(net)
    dcp.load(state, checkpoint_id=str(folder))
    set_model_state_dict(net, state)
    return net


def check_same(net, single):
    for name, p in single.named_parameters():
        found = net.get_parameter(name)
        near(found.full_tensor().reshape(p.shape) if isinstance(found, DTensor) else found.reshape(p.shape), p.detach())


def checkpoints():
    """Saved in one layout, loaded in another one."""
    folder = FOLDER[0] / "planned"
    dcp.save(get_model_state_dict(planned(made(), PLANS[0])), checkpoint_id=str(folder))
    check_same(loaded(planned(made(), PLANS[1]), folder), made())
    net = fully_shard(made(), mesh=MESHES[1])
    dcp.save(get_model_state_dict(net), checkpoint_id=str(FOLDER[0] / "fsdp"))
    check_same(loaded(made(), FOLDER[0] / "fsdp"), made())


# ---- for the slow part ----


def compiled():
    """torch.compile over DTensors, by its own kernels."""
    x, w, bias = numbers(3, 4, 9), numbers(6, 4, 5), numbers(6)
    function = lambda x, w, bias: narrows.gelu(narrows.conv1d(x, w, bias, padding=2)) * 2  # noqa: E731
    for layouts in ((Shard(0), Replicate(), Replicate()), (Replicate(), Shard(0), Shard(0)), (Shard(1), Shard(1), Replicate())):
        torch._dynamo.reset()
        parts = [spread(t, [p], MESHES[1]).detach().requires_grad_() for t, p in zip((x, w, bias), layouts, strict=True)]
        single = [t.clone().requires_grad_() for t in (x, w, bias)]
        found, expected = torch.compile(function, fullgraph=True)(*parts), function(*single)
        near(found, expected.detach())
        found.full_tensor().square().sum().backward()
        expected.square().sum().backward()
        for p, s in zip(parts, single, strict=True):
            near(p.grad, s.grad)
    group = numbers(6, 2, 5)
    parts = [spread(t, [Shard(d)], MESHES[1]).detach().requires_grad_() for t, d in ((x, 1), (group, 0))]
    if rank()[1] == 2:
        torch._dynamo.reset()
        near(torch.compile(lambda x, w: narrows.conv1d(x, w, groups=2))(*parts), narrows.conv1d(x, group, groups=2))


def resharded():
    """What two processes saved, in more."""
    check_same(loaded(planned(made(), PLANS[1]), pathlib.Path(os.environ["NARROWS_SAVED"]) / "planned"), made())


CASES = {
    f.__name__: f
    for f in (filters_then_channels, groups, states, states_over_steps, refusals, ddp, fsdp, checkpoints, compiled, resharded)
}

if __name__ == "__main__":
    ranks.main(CASES, begin, dtensor_cases.end)
