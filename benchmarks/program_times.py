# SPDX-License-Identifier: Apache-2.0
"""What benchmarks/programs.py says of single times: building a program, its first result. The best of some rounds; each has a limit."""

import json
import os
import subprocess
import sys
import tempfile
import time

MS = 1e-3

# In a process of its own: from a program's text to its first result. The library is warm by another program.
FIRST = """
import sys, time, numpy, narrows
from narrows.program import PrimFunc
warm = PrimFunc("program 1 warm(x: f32[N], y: out f32[N]):\\n  for i in N:\\n    block y(vi: S(N) = i):\\n      y[vi] = -x[vi]\\n").build()
warm(numpy.zeros(3, "float32"))
text, shapes = sys.argv[1], eval(sys.argv[2])
arrays = [numpy.ones(shape, "float32") for shape in shapes]
begin = time.perf_counter()
PrimFunc(text).build()(*arrays)
print(time.perf_counter() - begin)
"""

ADD64 = """program 1 add(x: f32[64], y: f32[64], z: out f32[64]):
  for i in 64:
    block z(vi: S(64) = i):
      z[vi] = x[vi] + y[vi]
"""


def row(name, seconds, limit):
    return {"name": name, "seconds": seconds, "limit": limit, "met": seconds <= limit}


def first(text, shapes, **environment):
    command = [sys.executable, "-c", FIRST, text, repr(shapes)]
    return float(subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True).stdout)


def first_rows(text, rounds=7):
    shapes = [(128, 128), (128, 128)]
    compiled, read = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            compiled.append(first(text, shapes, NARROWS_CACHE_DIR=folder))
            read.append(first(text, shapes, NARROWS_CACHE_DIR=folder))
    interpreted = [first(ADD64, [(64,), (64,)], CC="none", PATH="") for _ in range(rounds)]
    yield row("mm_relu, first result, compiled", min(compiled), 120 * MS)
    yield row("mm_relu, first result, from disk", min(read), 5 * MS)
    yield row("64 elements, first result, interpreted", min(interpreted), 1 * MS)


def timed(work, prepare=lambda: None, rounds=15):
    samples = []
    for _ in range(rounds):
        given = prepare()
        begin = time.perf_counter()
        work(given) if given is not None else work()
        samples.append(time.perf_counter() - begin)
    return min(samples)


# Two walks through the loops of mm_relu: each step verifies the whole program again.
WALKS = (
    ('split(loop="k", factors=[None, 8])', 'rfactor(loop="k_1", axis=2)', 'split(loop="j1", factors=[None, 8])',
     'reorder(loops=["j1_0", "i1", "j1_1"])', 'parallel(loop="j1_0")', 'vectorize(loop="j1_1")'),
    ('split(loop="j", factors=[None, 8])', 'reorder(loops=["j_0", "k", "j_1"])', 'reverse_compute_at(block="C", loop="j_0")',
     'decompose_reduction(block="Y", loop="k")'),
)  # fmt: skip


def recorded():
    """From a Python function to a verified program."""
    from narrows.program import script as T

    def mm_relu(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
        Y = T.alloc_buffer((128, 128), "float32")
        for i, j, k in T.grid(128, 128, 128):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(128, 128):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))

    return timed(lambda: T.prim_func(mm_relu).program)


def schedule_rows(text):
    """Of mm_relu: reading and verifying it, each step of the walks, and the default schedule."""
    from narrows.program import PrimFunc

    yield row("mm_relu, recorded from Python and verified", recorded(), 1 * MS)
    yield row("mm_relu, read and verified", timed(lambda: PrimFunc(text)), 1 * MS)
    slowest = {}
    for walk in WALKS:
        program = PrimFunc(text).program
        for line in walk:
            name, seconds = line.partition("(")[0], timed(lambda copy, line=line: copy.step(line), program.copy)
            slowest[name] = max(seconds, slowest.get(name, 0))
            program.step(line)
    for name, seconds in slowest.items():
        yield row(f"mm_relu, step {name}", seconds, 1 * MS)
    yield row("mm_relu, default schedule", timed(lambda copy: copy.auto("cpu"), PrimFunc(text).program.copy), 10 * MS)


def rows(only):
    import programs

    text = programs.sized(programs.MM_RELU, M=128, N=128, K=128)
    groups = {"result": first_rows, "mm_relu": schedule_rows}
    for group in groups.values():
        for found in group(text):
            if only in found["name"]:
                yield found


if __name__ == "__main__":
    print(json.dumps(list(rows("")), indent=1))
