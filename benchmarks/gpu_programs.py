#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products of tensor programs on a GPU's matrix unit beside torch, in one run: medians of CUDA-graph replays that take turns.

usage: PYTHONPATH=build/cuda/python gpu_programs.py [f16 | bf16 ...]

Each row: relu(a @ b) by torch (out=, then relu_), by the default schedule, by one with `tensorize`; torch / ours. The exit code
is 1 if a row's result is not torch's.
"""

import statistics
import sys

import torch

from narrows.program import Schedule
from narrows.program import script as T

NAMES = {"f16": "float16", "bf16": "bfloat16"}
WARPS, TILES_M, TILES_N, DEPTH = 4, 2, 8, 2  # of a block; of a warp, 16 x 8 each; steps of 16 along k
LANES_Y, LANES_X = 8, 4


def mm_relu(size, dtype):
    @T.prim_func
    def mm_relu(A: T.Buffer((size, size), dtype), B: T.Buffer((size, size), dtype), C: T.Buffer((size, size), dtype)):
        Y = T.alloc_buffer((size, size), "float32")
        for i, j, k in T.grid(size, size, size):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + T.cast(A[vi, vk], "float32") * T.cast(B[vk, vj], "float32")
        for i, j in T.grid(size, size):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.cast(T.max(Y[vi, vj], T.float32(0)), dtype)

    return mm_relu


def share(sch, row, column, *, run, has_warps=True, between=()):
    """Rows and columns as the threads of a block, each with runs of elements side by side."""
    rows = sch.split(row, factors=[None, WARPS, LANES_Y] if has_warps else [None, LANES_Y])
    columns = sch.split(column, factors=[None, LANES_X, run])
    sch.reorder(*rows[1:], columns[1], *between, rows[0], columns[0], columns[2])
    if has_warps:
        sch.bind(rows[1], "threadIdx.z")
    sch.bind(rows[-1], "threadIdx.y")
    sch.bind(columns[1], "threadIdx.x")
    sch.vectorize(columns[2])


def tensorized(program, dtype):
    sch = Schedule(program)
    block = sch.get_block("Y")
    i, j, k = sch.get_loops(block)
    i0, i1, i2, i3 = sch.split(i, factors=[None, WARPS, TILES_M, 16])
    j0, j1, j2 = sch.split(j, factors=[None, TILES_N, 8])
    k0, k1, k2 = sch.split(k, factors=[None, DEPTH, 16])
    sch.reorder(i0, j0, k0, i1, k1, i2, j1, i3, j2, k2)
    sch.set_scope(block, "Y", "shared")
    sch.reverse_compute_at(sch.get_block("C"), j0)
    init = sch.decompose_reduction(block, k0)
    copies = [sch.cache_read(block, buffer, "shared") for buffer in ("A", "B")]
    for copy in copies:
        sch.compute_at(copy, k0)
        sch.pad(copy, 0, 1, 8)
    sch.tensorize(i3, f"mma.{dtype}.f32")
    for shared in (*copies, sch.get_block("C")):
        share(sch, *sch.get_loops(shared)[-2:], run=8)
    loops = sch.get_loops(init)
    share(sch, loops[5], loops[6], run=2, has_warps=False, between=loops[3:5])
    sch.bind(loops[2], "threadIdx.z")
    for loop, thread in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.z")):
        sch.bind(loop, thread)
    return sch


def graph_of(call):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def medians(graphs, repeats=30, bursts=10):
    """Microseconds of each graph. They take turns, each replayed in bursts."""
    times = [[] for _ in graphs]
    for _ in range(repeats):
        for graph, found in zip(graphs, times, strict=True):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(bursts):
                graph.replay()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) * 1000 / bursts)
    return [statistics.median(found) for found in times]


def row(size, dtype):
    """Gives whether our results are torch's."""
    torch_dtype = getattr(torch, NAMES[dtype])
    a, b = (torch.randn(size, size, device="cuda", dtype=torch_dtype) / 8 for _ in range(2))
    outs = [torch.empty(size, size, device="cuda", dtype=torch_dtype) for _ in range(3)]
    program = mm_relu(size, NAMES[dtype])

    def theirs():
        torch.mm(a, b, out=outs[0])
        outs[0].relu_()

    graphs = [graph_of(theirs)]
    builders = {"default": program.build, "tensorized": lambda: tensorized(program, dtype).build(backend="cuda")}
    for build, out in zip(builders.values(), outs[1:], strict=True):  # captured before the next one is built: it is the same op
        f = build()
        graphs.append(graph_of(lambda f=f, out=out: f(a, b, out=out)))
    torch_time, *times = medians(graphs)
    ok = all(torch.allclose(out.float(), outs[0].float(), rtol=2e-2, atol=2e-2) for out in outs[1:])
    text = ", ".join(f"{name} {time:.1f} us ({torch_time / time:.2f} x torch)" for name, time in zip(builders, times, strict=True))
    print(f"mm_relu {dtype} {size}: torch {torch_time:.1f} us, {text}{'' if ok else '  WRONG'}", flush=True)
    return ok


def main():
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    dtypes = sys.argv[1:] or ["f16"]
    sys.exit(0 if all([row(size, dtype) for dtype in dtypes for size in (1024, 4096)]) else 1)


if __name__ == "__main__":
    main()
