# SPDX-License-Identifier: Apache-2.0
"""A tensor program in TVMScript's spelling, scheduled step by step, and run: relu(A @ B) of TVM's tutorial.
The first steps are the tutorial's; then a tile of registers follows, and what Narrows itself would do.

python3 examples/mm_relu.py
"""

import time

import numpy as np

import narrows
from narrows.program import Schedule, ScheduleError
from narrows.program import script as T

N = 128


@T.prim_func
def mm_relu(A: T.Buffer((N, N), "float32"), B: T.Buffer((N, N), "float32"), C: T.Buffer((N, N), "float32")):
    Y = T.alloc_buffer((N, N), "float32")
    for i, j, k in T.grid(N, N, N):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(N, N):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


def tutorial():
    """Loop tiling: the inner part of j is done for each k."""
    sch = Schedule(mm_relu)
    block = sch.get_block("Y")
    _, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 8])
    try:
        sch.split(j, factors=[None, 8])
    except ScheduleError as error:
        print("a second split:", error)
    sch.reorder(j0, k, j1)
    sch.reverse_compute_at(sch.get_block("C"), j0)
    sch.decompose_reduction(block, k)
    sch.vectorize(j1)
    return sch


def register_tile():
    """4 rows and 32 columns of Y at a time."""
    sch = Schedule(mm_relu)
    block = sch.get_block("Y")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, factors=[None, 4])
    j0, j1, j2 = sch.split(j, factors=[None, 2, 16])
    sch.reorder(i0, j0, k, i1, j1, j2)
    sch.reverse_compute_at(sch.get_block("C"), j0)
    sch.decompose_reduction(block, k)
    sch.vectorize(j2)
    sch.unroll(i1)
    sch.unroll(j1)
    return sch


def seconds(call):
    """Of one call, the best of many."""
    best = float("inf")
    for _ in range(200):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def tell(name, call):
    print(f"{name:32} {2 * N**3 / seconds(call) / 1e9:7.1f} GFLOP/s")


def main():
    a, b = np.random.default_rng(0).random((2, N, N), dtype=np.float32)
    want = np.maximum(a @ b, 0)
    mm_relu.show()
    tell("numpy", lambda: np.maximum(a @ b, 0))
    for name, sch in (("the tutorial's schedule", tutorial()), ("a tile of registers", register_tile())):
        sch.trace.show()
        f = sch.build()
        np.testing.assert_allclose(f(a, b), want, rtol=1e-5)
        print(sch.evaluate(a, b))
        tell(name, lambda f=f: f(a, b))
    f = mm_relu.build()
    for device in narrows.devices():
        try:
            result = f(a, b, device=device)
        except NotImplementedError as error:
            print(f"{device}: {error}")
            continue
        np.testing.assert_allclose(result, want, rtol=1e-5)
        tell(f"Narrows' own choice, {device}", lambda device=device: f(a, b, device=device))


if __name__ == "__main__":
    main()
