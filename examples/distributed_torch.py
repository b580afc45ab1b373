# SPDX-License-Identifier: Apache-2.0
"""torch over several processes: one step of training of two convolutions and an LLTM, in three layouts. Each gives the loss and the gradients
of one device, and the program shows what it communicates. Two processes on the CPU, which this program starts:

python3 examples/distributed_torch.py [PROCESSES]
"""

import copy
import datetime
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

import narrows
import narrows.torch
from narrows import parallel

BATCH, CHANNELS, WIDTH, STATES, LENGTH, STEPS = 8, 8, 16, 12, 256, 4


class Listener(torch.nn.Module):
    """Two convolutions, and an LLTM that reads some of what they give."""

    def __init__(self):
        super().__init__()
        self.first = narrows.torch.Conv1d(CHANNELS, WIDTH, 9, padding=4)
        self.second = narrows.torch.Conv1d(WIDTH, CHANNELS, 9, padding=4)
        self.cell = narrows.torch.LLTM(CHANNELS, STATES)

    def forward(self, signal, state):
        heard = self.second(narrows.gelu(self.first(signal)))
        for step in range(STEPS):
            state = self.cell(heard[:, :, step], state)
        return state[0]


def replicated(model, mesh):
    """Every parameter whole on every device, as a DTensor."""
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            module.register_parameter(name, torch.nn.Parameter(distribute_tensor(p, mesh, [Replicate()])))
    return model


def by_batch(model, mesh, signal, state):
    """DTensors that are split along the batch; parameters are whole."""
    put = lambda x: distribute_tensor(x, mesh, [Shard(0)])  # noqa: E731
    return replicated(model, mesh), put(signal), tuple(map(put, state))


def by_fsdp(model, mesh, signal, state):
    """FSDP2: each device has a part of the batch and of every parameter."""
    for part in (model.first, model.second, model.cell, model):
        fully_shard(part, mesh=mesh)
    mine = lambda x: x.chunk(mesh.size())[mesh.get_local_rank()]  # noqa: E731
    return model, mine(signal), tuple(map(mine, state))


def by_channels(model, mesh, signal, state):
    """The first convolution's filters, which are the second one's channels, and the LLTM's states; the batch is whole."""
    plan = {"first": parallel.Filters(), "second": parallel.Channels(), "cell": parallel.States(use_local_output=False)}
    put = lambda x: distribute_tensor(x, mesh, [Shard(1)])  # noqa: E731
    return parallelize_module(model, mesh, plan), signal, tuple(map(put, state))


LAYOUTS = {"batch": by_batch, "batch, FSDP2": by_fsdp, "channels and states": by_channels}


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def as_its_parameter(p):
    """The gradient as an optimiser takes it: summed, where the devices have parts of a sum."""
    gradient = p.grad
    return gradient.redistribute(p.device_mesh, p.placements) if isinstance(gradient, DTensor) else gradient


def loss_of(model, signal, state):
    return model(signal, state).square().mean()


class Collectives(TorchDispatchMode):
    """Counts the collectives, and the bytes of what each device puts into them."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # DTensor makes of it what each device does, which comes here again
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        name = function.overloadpacket.__name__
        is_collective = function.namespace in ("_c10d_functional", "c10d") and not name.startswith(
            ("wait_tensor", "barrier", "_wrap")
        )
        if is_collective:
            count, size = self.found.get(name, (0, 0))
            self.found[name] = count + 1, size + sum(t.nbytes for t in tensors)
        return function(*args, **(kwargs or {}))

    def __str__(self):
        return ", ".join(f"{n} x {name} ({size} bytes)" for name, (n, size) in self.found.items()) or "nothing"


def work(folder, rank, world):
    store = dist.FileStore(f"{folder}/store", world)
    limit = datetime.timedelta(seconds=180)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    single = Listener()
    signal, state = torch.randn(BATCH, CHANNELS, LENGTH), (torch.zeros(BATCH, STATES), torch.zeros(BATCH, STATES))
    expected = loss_of(single, signal, state)
    expected.backward()
    for name, layout in LAYOUTS.items():
        model, x, begin = layout(copy.deepcopy(single), mesh, signal, state)
        with Collectives() as mode:
            loss = loss_of(model, x, begin)
            loss.backward()
            gradients = [as_its_parameter(p) for p in model.parameters()]
        shown = whole(loss.detach())
        if name == "batch, FSDP2":  # a loss of each device's part
            dist.all_reduce(shown)
            shown /= world
        if rank == 0:
            print(f"{name}: loss {shown:.6f} (one device {expected:.6f}); communicated: {mode}", flush=True)
        torch.testing.assert_close(shown, expected.detach(), rtol=1e-4, atol=1e-6)
        for gradient, right in zip(gradients, single.parameters(), strict=True):
            torch.testing.assert_close(whole(gradient).reshape(right.shape), right.grad, rtol=1e-3, atol=1e-5)
    dist.barrier()
    dist.destroy_process_group()


def main():
    if len(sys.argv) == 4:
        return work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, folder]
        started = [subprocess.Popen([*command, str(rank), str(processes)]) for rank in range(processes)]
        codes = [process.wait() for process in started]
    sys.exit(max(codes, key=abs))


if __name__ == "__main__":
    main()
