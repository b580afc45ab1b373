# SPDX-License-Identifier: Apache-2.0
"""Tensor programs on the CPU beside what one would use instead: ./run check bench-programs, or

    PYTHONPATH=build/cpu/python python3 benchmarks/programs.py [--only WORD] [--threads 1,2] [--quick] [--json FILE] [--table FILE]

A row is two statements on the same arrays that take turns, their results compared first; it says the other's time over ours. Rows of
program_times.py are times of one thing, each with a limit. Every number of threads has a process of its own, because the libraries
choose once. On one thread the clock is the process's own, so others on the machine are not in it. Rows of a framework that is absent are
left out."""

import argparse
import csv
import ctypes
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import harness
import program_times
import program_tvm
import python_calls

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = HERE.parent / "examples/programs"


@dataclasses.dataclass(frozen=True)
class Row:
    """ours and theirs: statements that give their result."""

    name: str
    peer: str
    goal: float
    ours: str
    theirs: str
    names: dict
    tolerance: float = 1e-4  # of the results, relative to the largest magnitude
    threads: int = 0  # on so many alone; 0: on any number
    nbytes: int = 0  # then the peer is a copy of as many bytes


# ---- programs ----


def sized(text, **sizes):
    """The text with numbers for its sizes."""
    head, *body = text.splitlines(keepends=True)
    for name, number in sizes.items():
        head = head.replace(f"[{name}, ", f"[{number}, ").replace(f", {name}]", f", {number}]")
        body = [
            line.replace(f" in {name}:", f" in {number}:")
            .replace(f"({name})", f"({number})")
            .replace(f"[{name}, ", f"[{number}, ")
            .replace(f", {name}]", f", {number}]")
            for line in body
        ]
    return head + "".join(body)


MM_RELU = """program 1 mm_relu(A: f32[M, K], B: f32[K, N], C: out f32[M, N]):
  alloc Y: f32[M, N]
  for i in M:
    for j in N:
      for k in K:
        block Y(vi: S(M) = i, vj: S(N) = j, vk: R(K) = k):
          init:
            Y[vi, vj] = f32(0)
          Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
  for i1 in M:
    for j1 in N:
      block C(vi: S(M) = i1, vj: S(N) = j1):
        C[vi, vj] = maximum(Y[vi, vj], f32(0))
"""

CHAIN = """program 1 chain(x: f32[N], y: f32[N], z: out f32[N]):
  for i in N:
    block z(vi: S(N) = i):
      z[vi] = {value}
"""

DENSE = """program 1 dense(x: f32[B, C, L], w: f32[D, C, K], y: out f32[B, D, L - K + 1]):
  for b in B:
    for d in D:
      for t in L - K + 1:
        for c in C:
          for k in K:
            block y(vb: S(B) = b, vd: S(D) = d, vt: S(L - K + 1) = t, vc: R(C) = c, vk: R(K) = k):
              init:
                y[vb, vd, vt] = f32(0)
              y[vb, vd, vt] = y[vb, vd, vt] + x[vb, vc, vt + vk] * w[vd, vc, vk]
"""

# The exponentials are kept, as TVM's softmax and Inductor's do.
SOFTMAX = """program 1 softmax(x: f32[M, N], y: out f32[M, N]):
  alloc top: f32[M]
  alloc e: f32[M, N]
  alloc total: f32[M]
  for i in M:
    for j in N:
      block top(vi: S(M) = i, vj: R(N) = j):
        init:
          top[vi] = f32(-inf)
        top[vi] = maximum(top[vi], x[vi, vj])
  for i1 in M:
    for j1 in N:
      block e(vi: S(M) = i1, vj: S(N) = j1):
        e[vi, vj] = exp(x[vi, vj] - top[vi])
  for i2 in M:
    for j2 in N:
      block total(vi: S(M) = i2, vj: R(N) = j2):
        init:
          total[vi] = f32(0)
        total[vi] = total[vi] + e[vi, vj]
  for i3 in M:
    for j3 in N:
      block y(vi: S(M) = i3, vj: S(N) = j3):
        y[vi, vj] = e[vi, vj] / total[vi]
"""

WALK = """split(loop="j", factors=[None, 8])
reorder(loops=["j_0", "k", "j_1"])
reverse_compute_at(block="C", loop="j_0")
decompose_reduction(block="Y", loop="k")
vectorize(loop="j_1")
annotate(block="Y", key="contract", value="true")"""

TILE = """split(loop="i", factors=[None, 4])
split(loop="j", factors=[None, 2, 16])
reorder(loops=["i_0", "j_0", "k", "i_1", "j_1", "j_2"])
reverse_compute_at(block="C", loop="j_0")
decompose_reduction(block="Y", loop="k")
vectorize(loop="j_2")
unroll(loop="i_1")
unroll(loop="j_1")
annotate(block="Y", key="contract", value="true")"""


def op_of(text, steps=None):
    """By these steps, or by the default schedule."""
    from narrows.program import PrimFunc, Schedule

    function = PrimFunc(text)
    if steps is None:
        return function.build()
    schedule = Schedule(function)
    for line in steps.splitlines():
        schedule.apply(line)
    return schedule.build()


# ---- rows ----


def product_rows(numpy):
    random = numpy.random.default_rng(0)
    dynamic = op_of(MM_RELU)
    for n in 128, 1024, 2048:
        a, b = (random.random((n, n), dtype="float32") - 0.5 for _ in range(2))
        static = op_of(sized(MM_RELU, M=n, N=n, K=n))
        names = {"np": numpy, "a": a, "b": b, "c": numpy.empty_like(a), "d": numpy.empty_like(a), "f": static, "g": dynamic}
        goal = 1.3 if n == 128 else 0.95
        yield Row(f"mm_relu {n}", "numpy", goal, "f(a, b, out=c)", "np.maximum(np.matmul(a, b, out=d), 0, out=d)", names)
        if n < 2048:
            yield Row(f"mm_relu {n}, sizes at run time", "static", 0.9, "g(a, b, out=c)", "f(a, b, out=d)", names)
    for m, k, n in (100, 100, 100), (1000, 1000, 1000), (17, 300, 33):
        names = {"a": random.random((m, k), dtype="float32") - 0.5, "b": random.random((k, n), dtype="float32") - 0.5}
        names |= {"np": numpy, "f": dynamic, "c": numpy.empty((m, n), "float32"), "d": numpy.empty((m, n), "float32")}
        theirs = "np.maximum(np.matmul(a, b, out=d), 0, out=d)"
        goal = 1.0 if m == 17 else 0.9
        yield Row(f"mm_relu {m} x {k} x {n}, partial tiles", "numpy", goal, "f(a, b, out=c)", theirs, names)


def compiled_loops():
    """program_loops.c as a library, and its functions."""
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "loops.so"
        flags = ["-O3", "-march=native", "-mtune=generic", "-ffp-contract=fast", "-shared", "-fPIC"]
        subprocess.run([os.environ.get("CC", "cc"), *flags, HERE / "program_loops.c", "-o", library], check=True)
        return ctypes.CDLL(str(library))


def aligned(numpy, n):
    """A matrix that lies as TVM's tensors do: a vector is never on two cache lines."""
    memory = numpy.empty(4 * n * n + 64, "uint8")
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + 4 * n * n].view("float32").reshape(n, n)


def schedule_rows(numpy):
    """The same loops in C, called through ctypes, and the same steps by TVM."""
    loops, text = compiled_loops(), sized(MM_RELU, M=128, N=128, K=128)
    a, b, c, d = (aligned(numpy, 128) for _ in range(4))
    random = numpy.random.default_rng(1)
    for x in a, b:
        x[:] = random.random((128, 128), dtype="float32") - 0.5
    pointers = {p: ctypes.c_void_p(array.ctypes.data) for p, array in (("pa", a), ("pb", b), ("pd", d))}
    for name, steps, function in (("the tutorial's walk", WALK, loops.walk), ("a tile of registers", TILE, loops.register_tile)):
        names = {"a": a, "b": b, "c": c, "d": d, **pointers, "f": op_of(text, steps), "g": function}
        yield Row(f"mm_relu 128, {name}", "C", 0.95, "f(a, b, out=c)", "(g(pa, pb, pd), d)[1]", names, threads=1)
        try:
            names |= {
                "t": program_tvm.compiled(128, steps),
                **dict(zip(("ta", "tb", "td"), program_tvm.tensors(a, b, d), strict=True)),
            }
        except ImportError:
            print(f"left out: {name} by TVM: the package apache-tvm is not installed", file=sys.stderr)
            continue
        yield Row(f"mm_relu 128, {name}", "TVM", 1.0, "f(a, b, out=c)", "(t(ta, tb, td), td)[1]", names, threads=1)


def chain_rows(torch):
    chains = {
        "relu(x * y + x) - y": lambda x, y: torch.relu(x * y + x) - y,
        "sigmoid(tanh(x) * y + exp(y))": lambda x, y: torch.sigmoid(torch.tanh(x) * y + torch.exp(y)),
    }
    for value, function in chains.items():
        ours, theirs = op_of(CHAIN.format(value=re.sub(r"\b([xy])\b", r"\1[vi]", value))), torch.compile(function, dynamic=True)
        for n, label in (1 << 12, "4 K"), (1 << 18, "256 K"), (1 << 22, "4 M"):
            x, y = torch.randn(n), torch.randn(n)
            names = {"x": x, "y": y, "f": ours, "g": theirs, "o": torch.empty(n)}
            yield Row(f"{value}, {label}", "Inductor", 1.0, "f(x, y)", "g(x, y)", names)
        if "relu" not in value:  # the others are bound by arithmetic
            continue
        n, x = 1 << 24, torch.randn(1 << 24)
        names = {"x": x, "y": x.clone(), "f": ours, "o": torch.empty(n)}
        yield Row(f"{value}, 16 M, bytes", "copy", 0.95, "f(x, y, out=o)", "copy()", names, nbytes=12 * n)


def row_rows(torch):
    """Functions of rows."""
    softmax, twice, rms = map(op_of, (SOFTMAX, *((TEXTS / f"{name}.program").read_text() for name in ("softmax", "rms_norm"))))
    theirs = torch.compile(lambda x: torch.softmax(x, -1)), torch.compile(lambda x, w: torch.rms_norm(x, x.shape[-1:], w, 1e-5))
    for m, n in (64, 128), (512, 1024), (1024, 4096):  # larger results are new pages at each call
        names = {"x": torch.randn(m, n), "w": torch.rand(n), "f": softmax, "h": twice, "g": theirs[0], "p": rms, "q": theirs[1]}
        yield Row(f"softmax {m} x {n}", "Inductor", 1.0, "f(x)", "g(x)", names)
        yield Row(f"softmax {m} x {n}, exp again", "Inductor", 0.8, "h(x)", "g(x)", names)
        yield Row(f"rms_norm {m} x {n}", "Inductor", 1.0, "p(x, w)", "q(x, w)", names)


def conv1d_rows(torch):
    import narrows

    dense, text = op_of(DENSE), op_of((TEXTS / "conv1d.program").read_text())
    names = {"conv1d": narrows.conv1d, "f": dense, "x": torch.randn(4, 64, 2048), "w": torch.randn(64, 64, 5)}
    yield Row("conv1d, 64 channels, 5 taps", "our conv1d", 0.5, "f(x, w)", "conv1d(x, w)", names)
    names = {"conv1d": narrows.conv1d, "f": text, "x": torch.randn(8, 8, 16384), "w": torch.randn(6, 4, 5), "b": torch.randn(6)}
    theirs = "conv1d(x, w, b, stride=2, dilation=3, padding=4, groups=2)"
    yield Row("conv1d, 2 groups, stride 2, padding", "our conv1d", 0.5, "f(x, w, b)", theirs, names)


GROUPS = (
    ("numpy", product_rows),
    ("numpy", schedule_rows),
    ("torch", chain_rows),
    ("torch", row_rows),
    ("torch", conv1d_rows),
)


# ---- measuring ----


def check(row):
    """Both results are the same, but for the order of sums."""
    import numpy

    if row.nbytes:
        return
    results = [eval(statement, dict(row.names)) for statement in (row.ours, row.theirs)]
    ours, theirs = (numpy.array(r if isinstance(r, numpy.ndarray) else r.numpy(), dtype="float64") for r in results)
    off = abs(ours - theirs).max() / max(1.0, abs(theirs).max()) if ours.shape == theirs.shape else float("inf")
    if not off <= row.tolerance:
        raise SystemExit(f"{row.name}: '{row.ours}' differs from '{row.theirs}' by {off:.3g}, relative")


def measured(row, threads, effort):
    names = dict(row.names)
    if row.nbytes:
        import cpu

        names["copy"] = cpu.Copy(threads)
    check(row)
    clock = time.process_time if threads == 1 else time.perf_counter  # the former sees no other process
    times, others = harness.measure({"narrows": row.ours, row.peer: row.theirs}, names, effort, clock=clock)
    ours, theirs = times["narrows"].median, times[row.peer].median
    ratio = theirs / ours if not row.nbytes else (row.nbytes / ours) / (names["copy"].nbytes / theirs)
    return {"name": row.name, "threads": threads, "peer": row.peer, "ours": ours, "theirs": theirs, "ratio": round(ratio, 3),
            "goal": row.goal, "met": ratio >= row.goal, "others": 0 if clock is time.process_time else round(others, 2)}  # fmt: skip


def rows(options, threads):
    """Those of one number of threads, as they come."""
    effort = harness.QUICK if options.quick else harness.Effort()
    for framework, group in GROUPS:
        try:
            module = __import__(framework)
        except ImportError as error:
            print(f"left out: {group.__name__}: {error}", file=sys.stderr)
            continue
        if framework == "torch":
            module.set_num_threads(threads)
        for row in group(module):
            if options.only in row.name and row.threads in (0, threads):
                yield measured(row, threads, effort)


def show(row):
    if "limit" in row:
        text = f"{row['name']:48} {row['seconds'] * 1e3:10.3f} ms  limit {row['limit'] * 1e3:g} ms"
    else:
        text = (f"{row['name']:48} {row['threads']} narrows {row['ours'] * 1e6:10.1f} us  {row['peer']} {row['theirs'] * 1e6:10.1f} us"
                f"  ratio {row['ratio']:.2f} of {row['goal']:g}")  # fmt: skip
    disturbed = "  (disturbed)" if row.get("others", 0) >= harness.DISTURBED else ""
    print(text + ("  met" if row["met"] else "  MISSED") + disturbed, flush=True)


def duration(seconds):
    return f"{seconds * 1e6:,.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:,.2f} ms"


def cells(row):
    """Of the table: a ratio below its goal and a time above its limit are bold."""
    mark = "" if row["met"] else "**"
    if "limit" in row:
        return [row["name"], "", f"{mark}{duration(row['seconds'])}{mark}", "", "", "", f"≤ {row['limit'] * 1e3:g} ms"]
    times = [duration(row["ours"]), row["peer"], duration(row["theirs"])]
    return [row["name"], row["threads"], *times, f"{mark}{row['ratio']:.2f}{mark}", row["goal"]]


def write_table(path, found):
    """For docs/internals/cpu_speed.md."""
    origin = harness.origin(python_calls.measured("cpu"))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", "threads", "narrows", "beside", "its time", "ratio", "goal", *origin])
        writer.writerows([*cells(row), *origin.values()] for row in found)


def worker(options):
    """One number of threads: rows as lines of JSON."""
    found = program_times.rows(options.only) if options.worker == 0 else rows(options, options.worker)
    for row in found:
        print(json.dumps(row), flush=True)


def start(options, threads):
    environment = {
        **os.environ,
        **dict.fromkeys(("NARROWS_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads or 1)),
    }
    command = [sys.executable, __file__, "--worker", str(threads), "--only", options.only, *(["--quick"] if options.quick else [])]
    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)
    for line in process.stdout:
        row = json.loads(line)
        show(row)
        yield row
    if process.wait() != 0:
        raise SystemExit(f"the rows on {threads} threads ended early; what they said is above")


def main():
    parser = argparse.ArgumentParser(prog="./run check bench-programs --", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--threads", default=",".join(map(str, sorted({1, len(os.sched_getaffinity(0))}))),
                        help="1,2: on each of these; 0: the times alone (default: %(default)s)")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a fifth of the time for each row")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the rows: seconds, ratios, goals")
    parser.add_argument("--table", type=pathlib.Path, help="a file for the rows as CSV, as docs/internals/cpu_programs.csv")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        return worker(options)
    numbers = [int(t) for t in options.threads.split(",")]
    found = [row for threads in dict.fromkeys([*numbers, 0]) for row in start(options, threads)]
    print(f"{sum(row['met'] for row in found)} of {len(found)} goals met")
    if options.json is not None:
        options.json.write_text(json.dumps({"commit": harness.commit(), "rows": found}, indent=1) + "\n")
    if options.table is not None:
        write_table(options.table, found)


if __name__ == "__main__":
    main()
