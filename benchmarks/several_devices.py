# SPDX-License-Identifier: Apache-2.0
"""What several devices give: scaling beside one device, calls on DTensors beside torch's own, copies from device to device.

    PYTHONPATH=build/cpu/python NARROWS_PLUGIN_PATH=build/cuda/lib/narrows/backends python3 benchmarks/several_devices.py
        [--device cpu] [--processes 2] [--only WORD] [--seconds 1] [--json FILE]

A process for each GPU, which speak by NCCL. With --device cpu it tries the rows out on small tensors, by gloo: those figures say nothing.
The first line says of which machine, versions and commit they are. Times are medians. A time of all devices is the slowest one's; a time of
one device is taken while the others wait. Goals are of two devices: with more, the same part of what would be ideal."""

import argparse
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import harness
import python_calls  # first: it says how many threads the CPU's kernels have
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import narrows
import narrows.torch

WEAK, STRONG, OVERHEAD = 1.9, 1.85, 1.1  # goals, of two devices
ROUNDS = 11


@dataclasses.dataclass(frozen=True)
class Sizes:
    """batch: of a device, of the trained model."""

    batch: int
    channels: int
    width: int
    length: int
    states: int
    steps: int
    dense: tuple  # signals, channels and filters, length, taps
    copied: int  # bytes


SIZES = {
    "cuda": Sizes(128, 256, 512, 1024, 512, 8, (64, 512, 1024, 5), 1 << 28),
    "cpu": Sizes(2, 4, 8, 32, 8, 2, (4, 8, 64, 5), 1 << 16),
}


class Listener(torch.nn.Module):
    """Two convolutions, and an LLTM that reads some of what they give."""

    def __init__(self, sizes):
        super().__init__()
        self.first = narrows.torch.Conv1d(sizes.channels, sizes.width, 5, padding=2)
        self.second = narrows.torch.Conv1d(sizes.width, sizes.channels, 5, padding=2)
        self.cell = narrows.torch.LLTM(sizes.channels, sizes.states)
        self.sizes = sizes

    def forward(self, x):
        heard = self.second(narrows.gelu(self.first(x)))
        state = x.new_zeros(len(x), self.sizes.states), x.new_zeros(len(x), self.sizes.states)
        for features in heard[:, :, :: self.sizes.length // self.sizes.steps].permute(2, 0, 1).contiguous():
            state = self.cell(features, state)
        return state[0]


class Rank:
    """This process, one of `world`, and its device."""

    def __init__(self, options):
        self.rank, self.world, self.options = options.rank, options.processes, options
        self.device = torch.device(options.device, self.rank if options.device == "cuda" else None)
        self.sync = (lambda: None) if options.device == "cpu" else torch.cuda.synchronize
        torch.set_num_threads(1)
        if options.device == "cuda":
            torch.cuda.set_device(self.device)
        store = dist.FileStore(f"{options.folder}/store", self.world)
        backend, limit = {"cpu": "gloo", "cuda": "nccl"}[options.device], datetime.timedelta(seconds=300)
        dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=limit)
        self.beside = dist.new_group(backend="gloo")  # what waits there leaves the GPU alone
        self.mesh = init_device_mesh(options.device, (self.world,))
        self.sizes = SIZES[options.device]
        torch.manual_seed(0)

    def numbers(self, *shape, dtype=torch.float32):
        return torch.randn(*shape, device=self.device, dtype=dtype)

    def spread(self, x, placement):
        return distribute_tensor(x, self.mesh, [placement])

    def meet(self):
        dist.barrier(self.beside)

    def slowest(self, seconds):
        told = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(told, dist.ReduceOp.MAX, self.beside)
        return told.item()

    def _round(self, step, calls):
        self.sync()
        begin = time.perf_counter()
        for _ in range(calls):
            step()
        self.sync()
        return (time.perf_counter() - begin) / calls

    def _calls(self, step):
        """How many calls a round has: as many as fit, and the same on all ranks that measure."""
        for _ in range(3):
            step()
        return max(3, int(self.options.seconds / ROUNDS / self._round(step, 3)))

    def alone(self, step):
        """Seconds of a call on the first device, told to all."""
        found = 0.0
        if self.rank == 0:
            calls = self._calls(step)
            found = statistics.median(self._round(step, calls) for _ in range(ROUNDS))
        self.meet()
        return self.slowest(found)

    def together(self, step):
        """Seconds of a call on all devices at once."""
        for _ in range(3):
            step()
        calls = max(3, int(self.options.seconds / ROUNDS / self.slowest(self._round(step, 3))))
        times = []
        for _ in range(ROUNDS):
            self.meet()
            times.append(self.slowest(self._round(step, calls)))
        return statistics.median(times)


# ---- rows: each yields what it measured ----


def scaling(rank, name, one, many, times, goal):
    """times: how much more work all devices do than one."""
    reached, least = times * one / many, goal / 2 * rank.world
    row = {"name": name, "one device": one, f"{rank.world} devices": many, "scaling": reached, "goal": f">= {least:.2f}"}
    return {**row, "result": verdict(rank, reached >= least)}


def verdict(rank, is_reached):
    return "not judged" if rank.options.device == "cpu" else "reached" if is_reached else "missed"


def trained(model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    return step


def weak_rows(rank):
    """The same batch for each device."""
    sizes = rank.sizes
    model = Listener(sizes).to(rank.device)
    x, y = rank.numbers(sizes.batch, sizes.channels, sizes.length), rank.numbers(sizes.batch, sizes.states)
    one = rank.alone(trained(model, x, y))
    spread = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    many = rank.together(trained(spread, x, y))
    yield scaling(rank, "weak: a training step of conv1d and LLTM, float32, DDP", one, many, rank.world, WEAK)


def convolve(x, w):
    return narrows.conv1d(x, w, padding=2)


def gradients(x, w, seed):
    """Those of w are a sum over the devices."""
    of_x, of_w = torch.autograd.grad(convolve(x, w), (x, w), seed)
    return of_x, of_w.full_tensor() if isinstance(of_w, DTensor) else of_w


def strong_rows(rank):
    """One batch, split over the devices, as DTensors."""
    n, channels, length, taps = rank.sizes.dense
    shape = f"conv1d N{n} {channels}->{channels} L{length} K{taps}"
    for dtype in (torch.float32, torch.bfloat16):
        x, w = rank.numbers(n, channels, length, dtype=dtype), rank.numbers(channels, channels, taps, dtype=dtype)
        parts = rank.spread(x, Shard(0)), rank.spread(w, Replicate())
        near(convolve(*parts).full_tensor(), convolve(x, w))
        name = str(dtype).removeprefix("torch.")
        one, many = rank.alone(functools.partial(convolve, x, w)), rank.together(functools.partial(convolve, *parts))
        yield scaling(rank, f"strong: {shape} by batch, {name}", one, many, 1, STRONG)
        seed = torch.ones_like(convolve(x, w))
        whole, parts = ([t.detach().requires_grad_() for t in both] for both in ((x, w), parts))
        for found, right in zip(gradients(*parts, rank.spread(seed, Shard(0))), gradients(*whole, seed), strict=True):
            near(found.full_tensor() if isinstance(found, DTensor) else found, right)
        one = rank.alone(functools.partial(gradients, *whole, seed))
        many = rank.together(functools.partial(gradients, *parts, rank.spread(seed, Shard(0))))
        yield scaling(rank, f"strong: the same with gradients, w's summed, {name}", one, many, 1, STRONG)


def near(found, expected):
    """AssertionError: the devices together give something else than one."""
    rounding = 2.0**-6 if expected.dtype == torch.bfloat16 else 1e-4
    torch.testing.assert_close(found, expected, rtol=rounding, atol=rounding * float(expected.abs().max()))


def overhead_rows(rank):
    """Small calls of which nothing is communicated, on the same DTensors."""
    a, b = (rank.spread(rank.numbers(8 * rank.world, 16), Shard(0)) for _ in range(2))
    x = rank.spread(rank.numbers(2 * rank.world, 4, 32), Shard(0))
    w = rank.spread(rank.numbers(4, 4, 4), Replicate())
    g, h = (t.detach().requires_grad_() for t in (a, b))
    pairs = {
        "add": ("narrows.add(a, b)", "torch.add(a, b)"),
        "gelu": ("narrows.gelu(a)", "F.gelu(a)"),
        "conv1d": ("narrows.conv1d(x, w, stride=4)", "F.conv1d(x, w, stride=4)"),  # torch 2.11 takes no other stride
        "multiply, both ways": ("grad(narrows.multiply(g, h), (g, h), a)", "grad(torch.mul(g, h), (g, h), a)"),
    }
    names = {
        "narrows": narrows,
        "torch": torch,
        "F": F,
        "grad": torch.autograd.grad,
        "a": a,
        "b": b,
        "x": x,
        "w": w,
        "g": g,
        "h": h,
    }
    effort = dataclasses.replace(harness.Effort(), block=rank.options.seconds / 5)
    for name, (ours, theirs) in pairs.items():
        rank.meet()
        name = f"a DTensor call: {name}"
        try:
            eval(theirs, names)
        except (RuntimeError, NotImplementedError) as error:  # on every rank
            yield {"name": name, "left out": f"torch: {str(error).splitlines()[0]}"}
            continue
        times, _ = harness.measure({"ours": ours, "theirs": theirs}, names, effort, rank.sync)
        ours, theirs = (rank.slowest(times[side].median) for side in ("ours", "theirs"))
        yield {
            "name": name,
            "torch": theirs,
            "narrows": ours,
            "ratio": ours / theirs,
            "goal": f"<= {OVERHEAD}",
            "result": verdict(rank, ours / theirs <= OVERHEAD),
        }


def copy_rows(rank):
    """From the first device's memory into the second one's, in one process: ours first, since torch opens the way between its devices."""
    if rank.options.device == "cpu" or torch.cuda.device_count() < 2:
        yield {"name": "nw_copy from device to device", "left out": "needs two GPUs"}
        return
    found = {}
    if rank.rank == 0:
        found = copies(rank)
    rank.meet()
    for name, seconds in found.items():
        yield {"name": f"{name}, {rank.sizes.copied >> 20} MiB", "one copy": seconds, "GB/s": rank.sizes.copied / seconds / 1e9}


def copies(rank):
    """{name: seconds}. A call of ours returns when the copy is done."""
    numbers = rank.sizes.copied // 4
    source, target = (narrows.empty(numbers, "float32", f"cuda:{i}") for i in range(2))
    theirs = [torch.zeros(numbers, device=f"cuda:{i}") + i for i in range(2)]
    viewed = [narrows.from_dlpack(t) for t in theirs]

    def torchs():
        theirs[1].copy_(theirs[0], non_blocking=True)
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)

    calls = {
        "nw_copy between its own memory": lambda: target._copy_from(source),
        "nw_copy between torch's memory": lambda: viewed[1]._copy_from(viewed[0]),
        "torch's copy_": torchs,
        "nw_copy between torch's memory, after torch's": lambda: viewed[1]._copy_from(viewed[0]),
    }
    found = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        found[name] = statistics.median(rank._round(call, 3) for _ in range(ROUNDS))
        if "torch's memory" in name:
            assert bool((theirs[1] == 0).all()), name
            theirs[1].fill_(1)
            torch.cuda.synchronize(1)
    return found


GROUPS = {"weak": weak_rows, "strong": strong_rows, "overhead": overhead_rows, "copy": copy_rows}


# ---- the processes ----


def shown(row):
    texts = []
    for key, value in row.items():
        if key == "name":
            texts.append(f"{value:64}")
        elif key in ("scaling", "ratio", "GB/s"):
            texts.append(f"{key} {value:.2f}")
        elif isinstance(value, float):
            texts.append(f"{key} {value * 1e6:,.1f} us")
        else:
            texts.append(f"{key} {value}" if key != "result" else value)
    return "  ".join(texts)


def work(options):
    rank = Rank(options)
    found = []
    for name, group in GROUPS.items():
        if options.only in name:
            for row in group(rank):
                found.append(row)
                if rank.rank == 0:
                    print(shown(row), flush=True)
            rank.meet()
    if rank.rank == 0:
        pathlib.Path(options.folder, "rows.json").write_text(json.dumps(found))
    rank.meet()
    dist.destroy_process_group()


def measured(options):
    """Of what the rows are, and how many devices."""
    of = python_calls.measured(options.device)
    if options.device == "cuda":
        version = torch.cuda.nccl.version()
        of["versions"]["NCCL"] = ".".join(map(str, version))
    return {**of, "machine": f"{options.processes} x {of['machine']}"}


def start(options):
    """Runs the processes; their rows. A process that fails ends the others."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [
                    sys.executable,
                    __file__,
                    *sys.argv[1:],
                    f"--processes={options.processes}",
                    f"--folder={folder}",
                    f"--rank={rank}",
                ]
            )
            for rank in range(options.processes)
        ]
        try:
            while any(r.poll() is None for r in ranks):
                if any(r.poll() for r in ranks):
                    break
                time.sleep(0.1)
        finally:
            for r in ranks:
                r.kill()
        if any(r.wait() for r in ranks):
            raise SystemExit(f"a process failed: exit codes {[r.returncode for r in ranks]}")
        return json.loads(pathlib.Path(folder, "rows.json").read_text())


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=SIZES, help="where the tensors are")
    parser.add_argument("--processes", type=int, help="of a device each; by default as many as there are GPUs, two on the CPU")
    parser.add_argument("--only", default="", help="the groups whose name holds this: " + ", ".join(GROUPS))
    parser.add_argument("--seconds", type=float, default=1.0, help="for each side of a row")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the first line and the rows: seconds, ratios, goals")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    return parser, parser.parse_args()


def main():
    parser, options = parsed()
    if options.rank is not None:
        return work(options)
    gpus = torch.cuda.device_count() if options.device == "cuda" else 2
    options.processes = options.processes or gpus
    if options.processes < 2 or (options.processes > gpus and options.device == "cuda"):
        parser.error(f"--processes is {options.processes}; expected 2 or more, and a GPU for each: there are {gpus}")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    of = measured(options)
    versions = ", ".join(" ".join(v) for v in of["versions"].items())
    print(f"{of['machine']}; {versions}; {of['date']}" + (f"; commit {of['commit']}" if of["commit"] else ""), flush=True)
    found = start(options)
    if options.json is not None:
        options.json.write_text(json.dumps({"of": of, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
