#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensor programs on a CUDA GPU beside torch, in one run: medians of CUDA-graph replays that take turns.

usage: PYTHONPATH=build/cuda/python gpu_programs.py [--only WORD] [--tune SECONDS] [--table FILE]

A row says torch's time over ours. Peers are torch's own functions, or what Inductor makes of them. `first` is the time from the text
to the first result: the schedule, the compiler and the call. The exit code is 1 if a row's result is not torch's.
"""

import argparse
import csv
import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable

import harness
import python_calls
import torch

from narrows.program import PrimFunc, Schedule

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
TOLERANCE = {"f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}  # of the results, relative to the largest magnitude
BYTES_A_SECOND = {"NVIDIA H100 80GB HBM3": 3.35e12, "NVIDIA H200": 4.8e12}  # of the vendor's data sheets

# ---- programs ----

MM_RELU = """program 1 mm_relu(A: {d}[{n}, {n}], B: {d}[{n}, {n}], C: out {d}[{n}, {n}]):
  alloc Y: f32[{n}, {n}]
  for i in {n}:
    for j in {n}:
      for k in {n}:
        block Y(vi: S({n}) = i, vj: S({n}) = j, vk: R({n}) = k):
          init:
            Y[vi, vj] = f32(0)
          Y[vi, vj] = Y[vi, vj] + f32(A[vi, vk]) * f32(B[vk, vj])
  for i1 in {n}:
    for j1 in {n}:
      block C(vi: S({n}) = i1, vj: S({n}) = j1):
        C[vi, vj] = {d}(relu(Y[vi, vj]))
"""

CHAIN = """program 1 chain(x: {d}[{n}, {n}], y: {d}[{n}, {n}], z: out {d}[{n}, {n}]):
  for i in {n}:
    for j in {n}:
      block z(vi: S({n}) = i, vj: S({n}) = j):
        z[vi, vj] = {d}(gelu(f32(x[vi, vj]) * f32(0.5) + f32(y[vi, vj])) * sigmoid(f32(y[vi, vj])))
"""

SOFTMAX = """program 1 softmax(x: {d}[{n}, {n}], y: out {d}[{n}, {n}]):
  alloc top: f32[{n}]
  alloc total: f32[{n}]
  for i in {n}:
    for j in {n}:
      block top(vi: S({n}) = i, vj: R({n}) = j):
        init:
          top[vi] = f32(-inf)
        top[vi] = maximum(top[vi], f32(x[vi, vj]))
  for i1 in {n}:
    for j1 in {n}:
      block total(vi: S({n}) = i1, vj: R({n}) = j1):
        init:
          total[vi] = f32(0)
        total[vi] = total[vi] + exp(f32(x[vi, vj]) - top[vi])
  for i2 in {n}:
    for j2 in {n}:
      block y(vi: S({n}) = i2, vj: S({n}) = j2):
        y[vi, vj] = {d}(exp(f32(x[vi, vj]) - top[vi]) / total[vi])
"""

RMS_NORM = """program 1 rms_norm(x: {d}[{n}, {n}], scale: {d}[{n}], y: out {d}[{n}, {n}]):
  alloc squares: f32[{n}]
  for i in {n}:
    for j in {n}:
      block squares(vi: S({n}) = i, vj: R({n}) = j):
        init:
          squares[vi] = f32(0)
        squares[vi] = squares[vi] + square(f32(x[vi, vj]))
  for i1 in {n}:
    for j1 in {n}:
      block y(vi: S({n}) = i1, vj: S({n}) = j1):
        y[vi, vj] = {d}(f32(x[vi, vj]) * rsqrt(squares[vi] / f32({n}) + f32(1e-05)) * f32(scale[vj]))
"""

ATTENTION = """program 1 attention(Q: {d}[2048, 64], K: {d}[2048, 64], V: {d}[2048, 64], O: out {d}[2048, 64]):
  alloc score: f32[2048, 2048]
  alloc top: f32[2048]
  alloc weight: {d}[2048, 2048]
  alloc total: f32[2048]
  alloc sum: f32[2048, 64]
  for i in 2048:
    for j in 2048:
      for d in 64:
        block score(vi: S(2048) = i, vj: S(2048) = j, vd: R(64) = d):
          init:
            score[vi, vj] = f32(0)
          score[vi, vj] = score[vi, vj] + f32(Q[vi, vd]) * f32(K[vj, vd])
  for i1 in 2048:
    for j1 in 2048:
      block top(vi: S(2048) = i1, vj: R(2048) = j1):
        init:
          top[vi] = f32(-inf)
        top[vi] = maximum(top[vi], score[vi, vj])
  for i2 in 2048:
    for j2 in 2048:
      block weight(vi: S(2048) = i2, vj: S(2048) = j2):
        weight[vi, vj] = {d}(exp((score[vi, vj] - top[vi]) * f32(0.125)))
  for i3 in 2048:
    for j3 in 2048:
      block total(vi: S(2048) = i3, vj: R(2048) = j3):
        init:
          total[vi] = f32(0)
        total[vi] = total[vi] + f32(weight[vi, vj])
  for i4 in 2048:
    for e in 64:
      for j4 in 2048:
        block sum(vi: S(2048) = i4, ve: S(64) = e, vj: R(2048) = j4):
          init:
            sum[vi, ve] = f32(0)
          sum[vi, ve] = sum[vi, ve] + f32(weight[vi, vj]) * f32(V[vj, ve])
  for i5 in 2048:
    for e1 in 64:
      block O(vi: S(2048) = i5, ve: S(64) = e1):
        O[vi, ve] = {d}(sum[vi, ve] / total[vi])
"""


# ---- rows ----


@dataclasses.dataclass(frozen=True)
class Row:
    """peer: of the inputs; it gives its result. out: it writes into its last argument instead."""

    name: str
    dtype: str
    text: str
    shapes: list[tuple[int, ...]]
    peer_name: str
    peer: Callable
    goal: float
    tuned_goal: float = 0
    has_out: bool = False
    nbytes: int = 0  # that must be moved, if memory bounds it


def mm_relu(a, b, out):
    torch.mm(a, b, out=out)
    out.relu_()


def chain(x, y):
    return torch.nn.functional.gelu(x * 0.5 + y) * torch.sigmoid(y)


def softmax(x):
    return torch.softmax(x, -1)


def rms_norm(x, scale):
    return torch.rms_norm(x, x.shape[-1:], scale, 1e-5)


def attention(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(*(t[None, None] for t in (q, k, v)))[0, 0]


def all_rows():
    n = 8192
    for d in ("f32", "f16"):
        size = DTYPES[d].itemsize * n * n
        for name, text, shapes, peer, moved in (
            ("chain", CHAIN, [(n, n)] * 2, chain, 3 * size),
            ("softmax", SOFTMAX, [(n, n)], softmax, 2 * size),
            ("rms_norm", RMS_NORM, [(n, n), (n,)], rms_norm, 2 * size),
        ):
            compiled = functools.partial(torch.compile, dynamic=False)
            yield Row(f"{name} {n}", d, text.format(d=d, n=n), shapes, "Inductor", compiled(peer), 1.0, nbytes=moved)
    for d in ("f32", "f16", "bf16"):
        for size in (1024, 4096):
            goal = 0.8 if d == "f32" else 0.6 if size == 1024 else 0.7
            tuned = 0.95 if d == "f32" else 0.9
            text = MM_RELU.format(d=d, n=size)
            yield Row(f"mm_relu {size}", d, text, [(size, size)] * 2, "torch", mm_relu, goal, tuned, has_out=True)
    yield Row("attention 2048, 64", "f16", ATTENTION.format(d="f16"), [(2048, 64)] * 3, "torch", attention, 0.5)


# ---- measuring ----


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


def medians(graphs, repeats=20, bursts=10):
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


def measured(row, tune):
    """A line of the table for each schedule."""
    inputs = [torch.randn(shape, device="cuda", dtype=DTYPES[row.dtype]) / 8 for shape in row.shapes]
    theirs = None
    if row.has_out:
        theirs = torch.empty(row.shapes[0][0], row.shapes[1][1], device="cuda", dtype=DTYPES[row.dtype])

    def peer():
        nonlocal theirs
        if row.has_out:
            row.peer(*inputs, theirs)
        else:
            theirs = row.peer(*inputs)

    peer()
    graphs = [graph_of(peer)]
    builds = {"default": PrimFunc(row.text).build}
    if tune and row.tuned_goal:
        schedule = Schedule(PrimFunc(row.text))
        builds["tuned"] = lambda: (schedule.tune(*inputs, budget=tune, keep=False), schedule.build(backend="cuda"))[1]
    out, first = [torch.empty_like(theirs) for _ in builds], []
    for build, result in zip(builds.values(), out, strict=True):  # captured before the next one is built: it is the same op
        begin = time.perf_counter()
        op = build()
        op(*inputs, out=result)
        torch.cuda.synchronize()
        first.append(time.perf_counter() - begin)
        graphs.append(graph_of(lambda op=op, result=result: op(*inputs, out=result)))
    for graph in graphs:
        graph.replay()
    peer_time, *times = medians(graphs)
    for i, schedule in enumerate(builds):
        off = (out[i].float() - theirs.float()).abs().max() / theirs.float().abs().max()
        goal = row.tuned_goal if schedule == "tuned" else row.goal
        floor = BYTES_A_SECOND.get(torch.cuda.get_device_name(), 0)
        part = f"{row.nbytes / floor * 1e6 / times[i]:.2f}" if row.nbytes and floor else ""
        yield {
            "row": row.name, "dtype": row.dtype, "schedule": schedule, "ours µs": f"{times[i]:.1f}", "peer": row.peer_name,
            "peer µs": f"{peer_time:.1f}", "ratio": f"{peer_time / times[i]:.2f}", "goal": goal, "part of the bytes' rate": part,
            "first s": f"{first[i]:.2f}" if schedule == "default" else "", "is right": bool(off <= TOLERANCE[row.dtype]),
        }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name and dtype have this word")
    parser.add_argument("--tune", type=float, default=0, help="seconds of tuning for each product")
    parser.add_argument("--table", help="a CSV file to write")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    found = []
    for row in all_rows():
        if options.only not in f"{row.name} {row.dtype}":
            continue
        for line in measured(row, options.tune):
            found.append(line)
            print(*(f"{name} {value}" for name, value in line.items()), sep=", ", flush=True)
    if options.table:
        origin = harness.origin(python_calls.measured("cuda"))
        columns = [name for name in found[0] if name != "is right"]
        with open(options.table, "w", newline="") as file:
            writer = csv.DictWriter(file, [*columns, *origin], lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(row | origin for row in found)
    sys.exit(0 if all(line["is right"] for line in found) else 1)


if __name__ == "__main__":
    main()
