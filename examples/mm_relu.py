# SPDX-License-Identifier: Apache-2.0
"""Tensor programs in TVMScript's spelling, on every backend that is here: those of TVM's tutorial on TensorIR.
relu(A @ B) is scheduled step by step: as the tutorial does, by a tile of registers, and by Narrows itself. Then one program for all
sizes, and the tutorial's element-wise one. Where TVM is installed, its time stands beside ours.

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


@T.prim_func
def mm_relu_of_any_size(a: T.handle, b: T.handle, c: T.handle):
    M, N, K = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (M, K), "float32")
    B = T.match_buffer(b, (K, N), "float32")
    C = T.match_buffer(c, (M, N), "float32")
    Y = T.alloc_buffer((M, N), "float32")
    for i, j, k in T.grid(M, N, K):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(M, N):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


@T.prim_func
def add_one(A: T.Buffer(("M", "N"), "float32"), C: T.Buffer(("M", "N"), "float32")):
    for i, j in T.grid("M", "N"):
        with T.block("C"):
            T.block_attr({"purpose": "an example"})
            vi, vj = T.axis.spatial("M", i), T.axis.spatial("N", j)
            T.reads(A[vi, vj])
            T.writes(C[vi, vj])
            C[vi, vj] = A[vi, vj] + T.float32(1)


def tutorial(sch):
    """Loop tiling: the inner part of j is done for each k. TVM's Schedule takes the same steps."""
    get_block = getattr(sch, "get_sblock", None) or sch.get_block  # its name since TVM 0.27
    block = get_block("Y")
    _, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 8])
    sch.reorder(j0, k, j1)
    sch.reverse_compute_at(get_block("C"), j0)
    sch.decompose_reduction(block, k)
    return sch, j1


def vectors():
    """The tutorial's loops, the innermost one in vectors: TVM's compiler finds that by itself."""
    sch, j1 = tutorial(Schedule(mm_relu))
    sch.vectorize(j1)
    return sch


def a_second_split():
    """A loop that was split is no more. The module has the program as it is then."""
    sch = Schedule(mm_relu)
    _, j, _ = sch.get_loops(sch.get_block("Y"))
    sch.split(j, factors=[None, 8])
    sch.mod.show()
    sch.trace.show()
    try:
        sch.split(j, factors=[None, 8])
    except ScheduleError as error:
        print("a second split:", error)


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
    print(f"{name:36} {2 * N**3 / seconds(call) / 1e9:7.1f} GFLOP/s")


def threads_of_a_gpu():
    """A thread for each element of Y."""
    sch = Schedule(mm_relu)
    i, j, _ = sch.get_loops(sch.get_block("Y"))
    i0, i1 = sch.split(i, factors=[None, 8])
    j0, j1 = sch.split(j, factors=[None, 16])
    sch.reorder(i0, j0, i1, j1)
    sch.reverse_compute_at(sch.get_block("C"), j1)
    for loop, thread in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.y"), (j1, "threadIdx.x")):
        sch.bind(loop, thread)
    return sch


def devices():
    """Those whose backend serves programs."""
    for device in narrows.devices():
        try:
            mm_relu.build()(*np.zeros((2, N, N), np.float32), device=device)
        except NotImplementedError as error:
            print(f"{device}: {error}")
            continue
        yield device


def backend(device):
    """Its plugin's name."""
    kind = str(device).partition(":")[0]
    return "hip" if kind == "rocm" else kind


def tell_tvm(a, b):
    """The tutorial's schedule by TVM itself, of the same program."""
    try:
        import tvm
        from tvm import te
    except ImportError:
        print("tvm is not installed")
        return
    x, y = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
    k = te.reduce_axis((0, N), name="k")
    product = te.compute((N, N), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="Y")
    relu = te.compute((N, N), lambda i, j: te.if_then_else(product[i, j] > 0, product[i, j], 0.0), name="C")
    space = tvm.s_tir if hasattr(tvm, "s_tir") else tvm.tir
    run = tvm.compile(tutorial(space.Schedule(te.create_prim_func([x, y, relu])))[0].mod, target="llvm")
    tensors = [tvm.runtime.tensor(values) for values in (a, b, np.empty_like(a))]
    run(*tensors)
    np.testing.assert_allclose(tensors[2].numpy(), np.maximum(a @ b, 0), rtol=1e-5)
    tell("the tutorial's schedule by TVM", lambda: run(*tensors))


def of_one_size(a, b):
    want = np.maximum(a @ b, 0)
    mm_relu.show()
    a_second_split()
    tell("numpy", lambda: np.maximum(a @ b, 0))
    tell_tvm(a, b)
    for name, sch in (("the tutorial's schedule", vectors()), ("a tile of registers", register_tile())):
        sch.show()  # the program and the steps
        f = sch.build()
        np.testing.assert_allclose(f(a, b), want, rtol=1e-5)
        print(sch.evaluate(a, b))
        tell(name, lambda f=f: f(a, b))
    for device in devices():
        if backend(device) != "cpu":
            f = threads_of_a_gpu().build(backend=backend(device))
            np.testing.assert_allclose(f(a, b, device=device), want, rtol=1e-5)
            tell(f"a thread for an element, {device}", lambda f=f, device=device: f(a, b, device=device))
        f = mm_relu.build()
        np.testing.assert_allclose(f(a, b, device=device), want, rtol=1e-5)
        tell(f"Narrows' own choice, {device}", lambda f=f, device=device: f(a, b, device=device))


def of_any_size(generator):
    product, plus_one = mm_relu_of_any_size.build(), add_one.build()
    for device in devices():
        for m, k, n in ((1, 7, 3), (128, 128, 128), (65, 0, 9)):
            a, b = generator.random((m, k), dtype=np.float32), generator.random((k, n), dtype=np.float32)
            np.testing.assert_allclose(product(a, b, device=device), np.maximum(a @ b, 0), rtol=1e-5)
            np.testing.assert_array_equal(plus_one(a, device=device), a + 1)
        print(f"{device}: one program for all sizes gives what NumPy gives")


def main():
    generator = np.random.default_rng(0)
    of_one_size(*generator.random((2, N, N), dtype=np.float32))
    of_any_size(generator)


if __name__ == "__main__":
    main()
