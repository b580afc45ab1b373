# SPDX-License-Identifier: Apache-2.0
"""What test_dtensor.py asks of the ops on DTensors, in each of several processes: values and gradients against one device, in float64, and
what is communicated."""

import contextlib
import datetime
import functools
import math
import pathlib
import random
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import narrows
import narrows.torch
import ranks
from narrows.program import script as T

HERE = pathlib.Path(__file__).parent
R, P = Replicate(), Partial()
D = torch.float64
MESHES = {}
GATHERS_UNEVEN = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)  # as torch's own ops do, into no contiguous tensor


def begin(folder, rank, world):
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), world)
    backend = next(name for name, device in ranks.BACKENDS.items() if device == ranks.DEVICE)
    if ranks.DEVICE == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=180))
    MESHES[1] = init_device_mesh(ranks.DEVICE, (world,))
    if world == 4:
        MESHES[2] = init_device_mesh(ranks.DEVICE, (2, 2), mesh_dim_names=("batch", "filters"))
    torch.manual_seed(0)


def end():
    dist.barrier()


# ---- a call on DTensors, beside the same call on one device ----


def spread(x, places, mesh):
    """A DTensor of the values of x; a partial one has a share of them on each device."""
    whole = distribute_tensor(x, mesh, [R if p.is_partial() else p for p in places])
    shares = math.prod(mesh.size(d) for d, p in enumerate(places) if p.is_partial())
    return DTensor.from_local(whole.to_local() / shares, mesh, places, shape=x.shape, stride=x.stride()) if shares > 1 else whole


def counted(mode):
    """{collective: number} of what was communicated."""
    short = {
        "all_gather_into_tensor": "gather",
        "all_reduce": "sum",
        "reduce_scatter_tensor": "scatter",
        "all_to_all_single": "swap",
        "shard_dim_alltoall": "swap",
    }
    return {short[str(op).partition(".")[2]]: n for op, n in mode.get_comm_counts().items() if n}


def as_tuple(y):
    return y if isinstance(y, tuple) else (y,)


def at_rest(placements):
    """Where a gradient of an output lies: a sum of all devices is one."""
    return [R if p.is_partial() else p for p in placements]


def near(found, expected, tolerance=1e-10):
    found = found.full_tensor() if isinstance(found, DTensor) else found
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


class Called:
    """function(*tensors) with these layouts, forward and backward, checked against one device: while CommDebugMode counts, where torch's
    dispatcher sees every call, and again while nobody looks on."""

    def __init__(self, function, tensors, layouts, mesh=None, tolerance=1e-10):
        self.mesh, self.tolerance = mesh or MESHES[1], tolerance
        self.layouts = [p if isinstance(p, (list, tuple)) else [p] for p in layouts]
        single = [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]
        expected = as_tuple(function(*single))
        seeds = [torch.randn_like(e) for e in expected] if any(e.requires_grad for e in expected) else []
        if seeds:
            torch.autograd.backward(expected, seeds)
        right = [e.detach() for e in expected], seeds, [s.grad for s in single]
        self.forward, self.backward = CommDebugMode(), CommDebugMode()
        self.outputs, self.gradients = self._run(function, tensors, *right, self.forward, self.backward)
        self.forward, self.backward = counted(self.forward), counted(self.backward)
        again = self._run(function, tensors, *right, contextlib.nullcontext(), contextlib.nullcontext())
        assert again == (self.outputs, self.gradients), again

    def _run(self, function, tensors, expected, seeds, gradients, forward, backward):
        """The layouts of the outputs and of the gradients."""
        parts = [
            spread(t, p, self.mesh).detach().requires_grad_(t.is_floating_point())
            for t, p in zip(tensors, self.layouts, strict=True)
        ]
        with forward:
            found = as_tuple(function(*parts))
        for y, e in zip(found, expected, strict=True):
            assert isinstance(y, DTensor) and y.shape == e.shape and y.dtype == e.dtype
            near(y, e, self.tolerance)
        if seeds:
            sent = [spread(s, at_rest(y.placements), self.mesh) for s, y in zip(seeds, found, strict=True)]
            with backward:
                torch.autograd.backward(found, sent)
            for t, g in zip(parts, gradients, strict=True):
                assert (t.grad is None) == (g is None)
                if g is not None:
                    near(t.grad, g, self.tolerance)
        return [y.placements for y in found], [None if t.grad is None else t.grad.placements for t in parts]

    def lies(self, outputs, gradients, forward=None, backward=None):
        """Checks layouts along one axis of a mesh, and what was communicated."""
        assert self.outputs == [(p,) for p in outputs], self.outputs
        assert self.gradients == [(p,) for p in gradients], self.gradients
        assert (self.forward, self.backward) == (forward or {}, backward or {}), (self.forward, self.backward)


def numbers(*shape, dtype=D):
    """The same on each rank."""
    return torch.randn(*shape, dtype=dtype).to(ranks.DEVICE)


# ---- the built-in ops ----


def convolution(groups=1, padding=2, **params):
    return lambda x, w, bias=None: narrows.conv1d(x, w, bias, padding=padding, groups=groups, **params)


def conv1d():
    x, w, bias = numbers(5, 4, 20), numbers(7, 4, 5), numbers(7)
    for tensors, b in (((x, w, bias), 3), ((x, w), 2)):
        call = lambda *layouts, t=tensors, b=b: Called(convolution(), t, layouts[:b])  # noqa: E731
        call(Shard(0), R, R).lies([Shard(0)], [Shard(0), P, P][:b])
        call(R, Shard(0), Shard(0)).lies([Shard(1)], [P, Shard(0), Shard(0)][:b])
        call(Shard(1), Shard(1), R).lies([P], [Shard(1), Shard(1), R][:b])
        call(R, R, R).lies([R], [R, R, R][:b])
    Called(convolution(), (x[0], w, bias), (R, Shard(0), Shard(0))).lies([Shard(0)], [P, Shard(0), Shard(0)])
    Called(convolution(), (x[0, 0], w[0, 0]), (R, R)).lies([R], [R, R])
    along = Called(convolution(stride=2), (x, w, bias), (Shard(2), R, R))
    assert along.forward == {"gather": 1}  # a signal that is cut is put together: the ops know no halo


def conv1d_groups():
    x, w, bias = numbers(3, 8, 20), numbers(12, 2, 5), numbers(12)
    Called(convolution(4), (x, w, bias), (Shard(1), Shard(0), Shard(0))).lies([Shard(1)], [Shard(1), Shard(0), Shard(0)])
    Called(convolution(4), (x, w, bias), (Shard(0), R, R)).lies([Shard(0)], [Shard(0), P, P])
    uneven = Called(convolution(3), (numbers(2, 9, 20), numbers(6, 3, 5)), (Shard(1), Shard(0)))
    assert uneven.forward == {"gather": 2}, uneven.forward
    Called(convolution(4), (x, w, bias), (R, Shard(1), R))  # a part of each filter alone is nothing


def conv1d_uneven():
    for n in (0, 1, 3):  # no signal on one device, or on none
        Called(convolution(), (numbers(n, 4, 9), numbers(6, 4, 5), numbers(6)), (Shard(0), R, R)).lies([Shard(0)], [Shard(0), P, P])
    Called(convolution(), (numbers(2, 4, 9), numbers(1, 4, 5), numbers(1)), (R, Shard(0), Shard(0))).lies(
        [Shard(1)], [P, Shard(0), Shard(0)]
    )
    Called(convolution(), (numbers(2, 1, 9), numbers(3, 1, 5)), (Shard(1), Shard(1))).lies([P], [Shard(1), Shard(1)])


def element_wise():
    x = numbers(3, 4, 5)
    for d in range(3):
        Called(narrows.gelu, (x,), (Shard(d),)).lies([Shard(d)], [Shard(d)])
        Called(lambda a: narrows.multiply(a, 3.0), (x,), (Shard(d),)).lies([Shard(d)], [Shard(d)])
    Called(narrows.multiply, (x, numbers(5)), (Shard(2), Shard(0))).lies([Shard(2)], [Shard(2), Shard(0)])
    Called(narrows.multiply, (x, numbers(5)), (Shard(0), R)).lies([Shard(0)], [Shard(0), P])
    Called(narrows.multiply, (x, numbers(4, 1)), (Shard(2), R)).lies([Shard(2)], [Shard(2), P])
    Called(narrows.divide, (numbers(4, 1), numbers(1, 3).abs() + 1), (Shard(0), R)).lies([Shard(0)], [Shard(0), P])
    partial = Called(narrows.tanh, (x,), (P,))
    assert partial.forward == {"sum": 1} or partial.forward == {"scatter": 1}
    Called(narrows.add, (x, numbers(5)), (P, P)).lies([P], [R, R])
    Called(lambda a: narrows.negative(a), (x,), (P,)).lies([P], [R])
    Called(lambda a, b: narrows.subtract(a, b), (x, x), (P, R)).lies([P], [R, R])
    assert Called(lambda a: narrows.add(a, 1.0), (x,), (P,)).forward in ({"sum": 1}, {"scatter": 1})
    integers = torch.arange(4, device=ranks.DEVICE)
    whole = narrows.add(spread(integers, [R], MESHES[1]), spread(integers, [R], MESHES[1]))
    assert whole.dtype == torch.int64 and torch.equal(whole.full_tensor(), 2 * integers)
    assert Called(narrows.add, (x, x), (Shard(0), Shard(1))).forward in ({"gather": 1}, {"swap": 1})
    Called(narrows.add, (x[:1], x[:1]), (Shard(0), Shard(0)))  # an axis of one element
    condition = numbers(3, 4) > 0
    Called(narrows.where, (condition, numbers(3, 4), numbers(4)), (Shard(1), Shard(1), Shard(0)))


def params():
    """Calls of one op with one layout and different params are not mistaken for each other."""
    x = spread(numbers(4, 4), [Shard(0)], MESHES[1])
    for dtype in (torch.float32, torch.int32, torch.float16):
        y = narrows.astype(x, dtype)
        assert y.dtype == dtype and torch.equal(y.full_tensor(), x.full_tensor().to(dtype))
    near(narrows.add(x, 1.0), x.full_tensor() + 1)
    near(narrows.add(x, 2.0), x.full_tensor() + 2)
    near(narrows.subtract(x, 2.0), x.full_tensor() - 2)
    w = spread(numbers(4, 4, 3), [R], MESHES[1])
    signals = spread(numbers(4, 4, 9), [Shard(0)], MESHES[1])
    for stride in (1, 2, 3):
        assert narrows.conv1d(signals, w, stride=stride).shape[2] == (9 - 3) // stride + 1
    out = torch.empty_like(x)
    assert narrows.exp(x, out=out) is out
    near(out, x.full_tensor().exp())


def second_derivatives():
    x, w = numbers(4, 4, 9), numbers(6, 4, 3)
    for function, tensors, layouts in (
        (narrows.tanh, (x,), (Shard(1),)),
        (convolution(), (x, w), (Shard(0), R)),
        (convolution(), (x, w), (R, Shard(0))),
    ):
        results = []
        for made in (lambda t, p: spread(t, [p], MESHES[1]).detach(), lambda t, p: t.clone()):
            inputs = [made(t, p).requires_grad_() for t, p in zip(tensors, layouts, strict=True)]
            first = torch.autograd.grad(function(*inputs).square().sum(), inputs, create_graph=True)
            results.append(torch.autograd.grad(sum(g.square().sum() for g in first), inputs))
        for found, expected in zip(*results, strict=True):
            near(found, expected)


def autocast():
    x, w = numbers(4, 4, 9, dtype=torch.float32), numbers(6, 4, 3, dtype=torch.float32)
    with torch.autocast(ranks.DEVICE, torch.bfloat16):
        expected = narrows.conv1d(x, w)
        found = narrows.conv1d(spread(x, [Shard(0)], MESHES[1]), spread(w, [R], MESHES[1]))
    assert found.dtype == torch.bfloat16 and found.placements == (Shard(0),)
    near(found, expected, 1e-2)


def step_of(rows, features, states):
    return (
        numbers(rows, features),
        numbers(3 * states, states + features),
        numbers(1, 3 * states),
        numbers(rows, states),
        numbers(rows, states),
    )


def lltm():
    S = Shard(0)
    for rows in (0, 1, 5):
        Called(narrows.lltm, step_of(rows, 3, 4), (S, R, R, S, S)).lies([S, S], [S, P, P, S, S])
    Called(narrows.lltm, step_of(2, 3, 4), (R, R, R, R, R)).lies([R, R], [R] * 5)
    for j in (0, 1):  # one of the gradients is absent: which one, DTensor's cache has to know
        Called(lambda *step, j=j: narrows.lltm(*step)[j], step_of(2, 3, 4), (S, R, R, Shard(1), S))
    states = Called(narrows.lltm, step_of(2, 3, 4), (R, R, R, Shard(1), Shard(1)))
    assert states.forward == {"gather": 2}, states.forward


def lltm_sequence():
    for batch_first in (0, 1):
        along, rows_of = Shard(1 - batch_first), Shard(0)
        for recompute, rows in ((0, 5), (1, 5), (0, 0), (1, 1)):
            _, w, bias, h, cell = step_of(rows, 3, 4)
            x = numbers(rows, 6, 3) if batch_first else numbers(6, rows, 3)
            call = functools.partial(narrows.ops.lltm_sequence, batch_first=batch_first, recompute=recompute)
            split = Called(call, (x, w, bias, h, cell), (along, R, R, rows_of, rows_of))
            split.lies([along, rows_of, rows_of], [along, P, P, rows_of, rows_of])
            lengths = torch.randint(0, 7, (rows,), dtype=torch.int32).to(ranks.DEVICE)
            ends = Called(call, (x, w, bias, h, cell, lengths), (along, R, R, rows_of, rows_of, rows_of))
            assert ends.outputs == [(along,), (rows_of,), (rows_of,)] and not ends.forward and not ends.backward
        steps = Called(call, (x, w, bias, h, cell), (Shard(batch_first), R, R, R, R))
        assert steps.forward == {"gather": 1}, steps.forward  # a step waits for the one before


# ---- ops of plugins, and tensor programs ----


def plugins():
    """Of the CPU."""
    for name in ("correlate", "rows"):
        narrows.load(narrows.build(HERE.parent / "plugins" / f"{name}.cpp"))
    ops = narrows.ops.test
    x, w = numbers(3, 4, 9, dtype=torch.float32), numbers(6, 4, 3, dtype=torch.float32)
    correlate = lambda groups: lambda x, w: ops.correlate(x, w, groups=groups)  # noqa: E731
    call = lambda w, groups, *layouts: Called(correlate(groups), (x, w), layouts, tolerance=1e-4)  # noqa: E731
    call(w, 1, Shard(0), R).lies([Shard(0)], [Shard(0), P])
    call(w, 1, R, Shard(0)).lies([Shard(1)], [P, Shard(0)])
    call(w, 1, Shard(1), Shard(1)).lies([P], [Shard(1), Shard(1)])
    call(numbers(8, 1, 3, dtype=torch.float32), 4, Shard(1), Shard(0)).lies([Shard(1)], [Shard(1), Shard(0)])
    rows = numbers(*((4, 2, 6) if GATHERS_UNEVEN else (3, 2, 5)), dtype=torch.float32)
    for d in (0, 1):  # leading axes of an op of NW_OP_BATCHABLE
        Called(ops.centre, (rows,), (Shard(d),), tolerance=1e-5).lies([Shard(d)], [Shard(d)])
    assert Called(ops.centre, (rows,), (Shard(2),), tolerance=1e-5).forward == {"gather": 1}
    alone = Called(lambda x: ops.centre_all(x.detach()), (rows,), (Shard(0),), tolerance=1e-5)
    assert alone.forward == {"gather": 1}, alone.forward  # its op says of no axis that it may be split


@T.prim_func
def product(a: T.Buffer(("M", "K"), "float64"), b: T.Buffer(("K", "N"), "float64"), c: T.Buffer(("M", "N"), "float64")):
    for i, j, k in T.grid(a.shape[0], b.shape[1], a.shape[1]):
        with T.block("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float64(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]


def programs():
    op = product.build(gradient=True)
    a, b = numbers(3, 5), numbers(5, 4)
    Called(op, (a, b), (Shard(0), R)).lies([Shard(0)], [Shard(0), P])
    Called(op, (a, b), (R, Shard(1))).lies([Shard(1)], [P, Shard(1)])
    Called(op, (a, b), (Shard(1), Shard(0))).lies([P], [Shard(1), Shard(0)])
    Called(op, (a[:1], b), (Shard(0), R)).lies([Shard(0)], [Shard(0), P])
    assert Called(op, (a, b), (Shard(0), Shard(1))).forward in ({"gather": 1}, {"swap": 1})


# ---- any layout ----


def layouts_of(generator, tensor, axes):
    places = [R, P, *map(Shard, range(tensor.dim()))]
    return [generator.choice(places) for _ in range(axes)]


def any_layout(axes=1, draws=40):
    """Whatever the layouts, uneven and empty parts too, the results are those of one device."""
    generator = random.Random(45 + axes)
    program = product.build(gradient=True)
    size = lambda least=0, most=5: generator.randint(least, most)  # noqa: E731
    for _ in range(draws):
        n, groups, ins, outs, rows, states = size(), size(1, 3), size(1, 3), size(1, 3), size(), size(1, 4)
        x, w = numbers(n, groups * ins, size(5, 9)), numbers(groups * outs, ins, size(1, 5))
        function, tensors = generator.choice(
            [
                (convolution(groups), (x, w, numbers(groups * outs))),
                (convolution(groups, padding=1, stride=2), (x, w)),
                (narrows.multiply, (numbers(n, outs, 3), numbers(outs, generator.choice([1, 3])))),
                (narrows.add, (numbers(n, outs, 3), numbers(outs, generator.choice([1, 3])))),
                (narrows.lltm, step_of(rows, ins, states)),
                (narrows.ops.lltm_sequence, (numbers(size(), rows, ins), *step_of(rows, ins, states)[1:])),
                (program, (numbers(n + 1, ins), numbers(ins, outs))),
            ]
        )
        layouts = [layouts_of(generator, t, axes) for t in tensors]
        try:
            Called(function, tensors, layouts, MESHES[axes])
        except Exception as error:
            raise AssertionError(f"{function}, {[tuple(t.shape) for t in tensors]}, {layouts}") from error


CASES = {
    f.__name__: f
    for f in (
        conv1d,
        conv1d_groups,
        conv1d_uneven,
        element_wise,
        params,
        second_derivatives,
        autocast,
        lltm,
        lltm_sequence,
        plugins,
        programs,
        any_layout,
    )
}


# ---- four processes, in a mesh of two axes ----


def two_axes():
    """Each axis of the mesh has a split of its own."""
    mesh = MESHES[2]
    x, w, bias = numbers(5, 4, 20), numbers(6, 4, 5), numbers(6)
    both = Called(convolution(), (x, w, bias), ([Shard(0), R], [R, Shard(0)], [R, Shard(0)]), mesh)
    assert both.outputs == [(Shard(0), Shard(1))] and both.gradients == [(Shard(0), P), (P, Shard(0)), (P, Shard(0))]
    assert (both.forward, both.backward) == ({}, {})
    grouped = (numbers(5, 4, 20), numbers(6, 2, 5))
    both = Called(convolution(2), grouped, ([Shard(0), Shard(1)], [R, Shard(0)]), mesh)
    assert both.outputs == [(Shard(0), Shard(1))] and (both.forward, both.backward) == ({}, {})
    both = Called(convolution(), (x, w, bias), ([Shard(1), R], [Shard(1), Shard(0)], [R, Shard(0)]), mesh)
    assert both.outputs == [(P, Shard(1))] and (both.forward, both.backward) == ({}, {})


def any_layout_of_two_axes():
    any_layout(2, 40)


OF_FOUR = {**CASES, "two_axes": two_axes, "any_layout_of_two_axes": any_layout_of_two_axes}


if __name__ == "__main__":
    ranks.main(OF_FOUR if sys.argv[3] == "4" else CASES, begin, end)
