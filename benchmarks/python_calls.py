# SPDX-License-Identifier: Apache-2.0
"""What a call from Python costs, beside the framework's own: best of many short rounds that alternate, so compare within a row.

    PYTHONPATH=build/cpu/python python3 benchmarks/python_calls.py [--only WORD] [--seconds 1] [--device cuda] [--json FILE]

`./run check bench-python` has all that the rows need. The first line says of which machine, versions and commit they are. A row with a goal says
whether it was reached, by the ratio before it is rounded. A row is left out where its framework is absent; tvm-ffi is the package
apache-tvm-ffi, the tutorial's LLTM is compiled here (ninja)."""

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

os.environ.setdefault("NARROWS_NUM_THREADS", "1")  # as torch has below

import compiled_rows
import harness

import narrows

HERE = pathlib.Path(__file__).parent

TUTORIAL = """
#include <torch/extension.h>
// The cell of PyTorch's C++ extension tutorial in ATen's functions.
using T = at::Tensor;
std::vector<T> forward(T x, T w, T b, T h, T c) {
  T X = at::cat({h, x}, 1), gates = at::addmm(b, X, w.t());
  auto parts = gates.chunk(3, 1);
  T i = at::sigmoid(parts[0]), o = at::sigmoid(parts[1]), z = at::elu(parts[2]), cell = c + z * i;
  return {at::tanh(cell) * o, cell, i, o, z, X, gates};
}
T d_sigmoid(T z) { T s = at::sigmoid(z); return (1 - s) * s; }
T d_tanh(T z) { return 1 - z.tanh().pow(2); }
T d_elu(T z) { T e = z.exp(); return (z > 0).type_as(z) + (z < 0).type_as(z) * e; }
std::vector<T> backward(T gh, T gc, T cell, T i, T o, T z, T X, T gates, T w) {
  T dO = at::tanh(cell) * gh, d_cell = d_tanh(cell) * (o * gh) + gc, dI = z * d_cell, dZ = i * d_cell;
  auto parts = gates.chunk(3, 1);
  T d_gates = at::cat({dI * d_sigmoid(parts[0]), dO * d_sigmoid(parts[1]), dZ * d_elu(parts[2])}, 1);
  T d_w = d_gates.t().mm(X), d_b = d_gates.sum(0, true), d_X = d_gates.mm(w);
  const auto state = gh.size(1);
  return {d_X.slice(1, 0, state), d_X.slice(1, state), d_w, d_b, d_cell};
}
"""


def torch_rows(torch):
    torch.set_num_threads(1)
    a, b, c = (torch.rand(4, 4) for _ in range(3))
    add = {"torch": torch.add, "narrows": narrows.add}
    yield "torch add(out=), goal 0.9", add, (a, b), {"out": c}
    yield "torch add, goal 1.0", add, (a, b)
    yield "torch add a number", add, (a, 2)
    w = torch.rand(4, 4, 3)
    x = torch.rand(1, 4, 32)
    yield "torch conv1d", {"torch": torch.nn.functional.conv1d, "narrows": narrows.conv1d}, (x, w)


def noop_rows(torch):
    import tvm_ffi

    narrows.load(narrows.build(HERE / "noop_plugin.c"))
    noop, other = narrows.op("bench.noop/1"), tvm_ffi.get_global_func("testing.nop")
    a, b, c = (torch.rand(4, 4) for _ in range(3))
    yield "bound no-op, 3 torch tensors, goal 1.0", {"tvm-ffi": lambda: other(a, b, c), "narrows": lambda: noop(a, b, out=c)}, ()


def torch_gpu_rows(torch):
    """What a call costs until it is on the stream; a round ends when the GPU is done with it."""
    sync = torch.cuda.synchronize
    a, b, c = (torch.rand(4, 4, device="cuda") for _ in range(3))
    add = {"torch": torch.add, "narrows": narrows.add}
    yield "torch add on CUDA, goal 0.7", add, (a, b), {"sync": sync}
    yield "torch add(out=) on CUDA", add, (a, b), {"out": c, "sync": sync}
    yield "torch add a number on CUDA", add, (a, 2), {"sync": sync}
    x, w = torch.rand(1, 4, 32, device="cuda"), torch.rand(4, 4, 3, device="cuda")
    yield "torch conv1d on CUDA", {"torch": torch.nn.functional.conv1d, "narrows": narrows.conv1d}, (x, w), {"sync": sync}
    g = torch.rand(4, 4, device="cuda", requires_grad=True)
    both = lambda f: lambda: torch.autograd.grad(f(g, b), g, a)  # noqa: E731
    yield "torch multiply, both ways, on CUDA", {"torch": both(torch.mul), "narrows": both(narrows.multiply)}, (), {"sync": sync}


def cupy_rows(cupy):
    a, b, c = (cupy.random.rand(4, 4, dtype="float32") for _ in range(3))
    add, sync = {"cupy": cupy.add, "narrows": narrows.add}, cupy.cuda.runtime.deviceSynchronize
    yield "cupy add", add, (a, b), {"sync": sync}
    yield "cupy add(out=)", add, (a, b), {"out": c, "sync": sync}


def numpy_rows(numpy):
    a, b, c = (numpy.random.rand(4, 4).astype("float32") for _ in range(3))
    add = {"numpy": numpy.add, "narrows": narrows.add}
    yield "numpy add, goal 1.5", add, (a, b)
    yield "numpy add(out=)", add, (a, b), {"out": c}


def jax_rows(jax, platform="cpu", where=""):
    """The arrays lie on that platform's first device, whichever is JAX's default."""
    try:
        device = jax.devices(platform)[0]
    except RuntimeError as error:
        raise ImportError(str(error)) from error
    a = jax.device_put(jax.numpy.ones(16), device)
    ours, theirs = jax.jit(lambda a: narrows.add(a, a)), jax.jit(lambda a: jax.numpy.add(a, a))
    assert ours(a).devices() == theirs(a).devices() == {device}
    ready = lambda f: lambda: f(a).block_until_ready()  # noqa: E731
    yield f"jax.jit add{where}, goal 1.2", {"jax": ready(theirs), "narrows": ready(ours)}, ()


def jax_gpu_rows(jax):
    return jax_rows(jax, "cuda", " on CUDA")


def lltm_gpu_rows(torch):
    """The same rows, of tensors that are made on the GPU."""
    with torch.device("cuda"):
        return [(name, functions, arguments, {"sync": torch.cuda.synchronize}) for name, functions, arguments in lltm_rows(torch)]


def lltm_rows(torch):
    from torch.utils import cpp_extension

    try:
        module = cpp_extension.load_inline("lltm_tutorial", TUTORIAL, functions=["forward", "backward"])
    except RuntimeError as error:  # torch finds no ninja or compiler
        raise ImportError(str(error)) from error

    class Cell(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b, h, c):
            outputs = module.forward(x, w, b, h, c)
            ctx.save_for_backward(*outputs[1:], w)
            return tuple(outputs[:2])

        @staticmethod
        def backward(ctx, gh, gc):
            dh, dx, dw, db, dc = module.backward(gh.contiguous(), gc.contiguous(), *ctx.saved_tensors)
            return dx, dw, db, dh, dc

    batch, features, state = 16, 32, 128
    x, h, c = (torch.rand(batch, n, requires_grad=True) for n in (features, state, state))
    w = (torch.rand(3 * state, state + features) - 0.5).requires_grad_()
    bias = torch.rand(1, 3 * state, requires_grad=True)

    incoming = torch.rand(batch, state), torch.rand(batch, state)

    def both(cell):
        return lambda: torch.autograd.grad(cell(x, w, bias, h, c), (x, w, bias, h, c), incoming)

    no_grad = lambda f: torch.no_grad()(lambda: f(x, w, bias, h, c))  # noqa: E731
    yield f"LLTM forward, B{batch} F{features} S{state}", {"tutorial": no_grad(Cell.apply), "narrows": no_grad(narrows.lltm)}, ()
    yield "LLTM forward and backward, goal 0.5", {"tutorial": both(Cell.apply), "narrows": both(narrows.lltm)}, ()


def import_seconds():
    code = "import time; t = time.perf_counter(); import narrows; print(time.perf_counter() - t)"
    return min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(10)
    )


COMPILED = ("torch", compiled_rows.compiled_rows), ("torch", compiled_rows.silero_rows)
COMPILED_GPU = "torch", compiled_rows.compiled_gpu_rows
GROUPS = {
    "cpu": (("numpy", numpy_rows), ("torch", torch_rows), ("torch", noop_rows), ("torch", lltm_rows), ("jax", jax_rows), *COMPILED),
    "cuda": (("torch", torch_gpu_rows), ("cupy", cupy_rows), ("torch", lltm_gpu_rows), ("jax", jax_gpu_rows), COMPILED_GPU),
}


def measured(device):
    """Of what the rows are: the processor or the GPU, the versions of what is installed, the commit."""
    devices = [d for backend in narrows.info()["backends"] for d in backend["devices"]]
    names = [d["name"] for d in devices if d["device"] == {"cpu": "cpu", "cuda": "cuda:0"}[device]]
    if not names:
        raise SystemExit(f"no backend of narrows has a device for --device {device} here")
    packages = importlib.metadata.packages_distributions()
    versions = {"Python": platform.python_version()}
    for name, module in (("NumPy", "numpy"), ("torch", "torch"), ("jaxlib", "jaxlib"), ("CuPy", "cupy")):
        if module in packages:
            versions[name] = importlib.metadata.version(packages[module][0])
    return {"machine": names[0], "versions": versions, "date": time.strftime("%Y-%m-%d"), "commit": harness.commit()}


def verdict(name, value):
    """Whether the goal that stands in a row's name was reached; None: it has none."""
    goal = re.search(r"goal ([0-9.]+)", name)
    return None if goal is None else "reached" if value <= float(goal[1]) else "missed"


def rows(options):
    """What was measured, a dict for each row, as it comes."""
    for framework, group in GROUPS[options.device]:
        try:
            found = list(group(__import__(framework)))
        except ImportError as error:
            print(f"left out: {group.__name__}: {error}")
            yield {"name": group.__name__, "left out": str(error)}
            continue
        for name, functions, arguments, *keywords in found:
            if options.only in name:
                times = narrows.bench(functions, *arguments, seconds=options.seconds, **(keywords[0] if keywords else {}))
                (first, theirs), (_, ours) = times.items()
                result = verdict(name, ours / theirs)
                print(
                    f"{name:42} {first} {theirs * 1e9:9,.0f} ns   narrows {ours * 1e9:9,.0f} ns   ratio {ours / theirs:.2f}"
                    f"  {result or ''}",
                    flush=True,
                )
                yield {"name": name, first: theirs, "narrows": ours, "ratio": round(ours / theirs, 2), "goal": result}
    name = "import narrows, goal 40 ms"
    if options.only in name:
        seconds = import_seconds()
        print(f"{name:42} {seconds * 1e3:.0f} ms  {verdict(name, seconds * 1e3)}")
        yield {"name": name, "narrows": seconds, "goal": verdict(name, seconds * 1e3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each side of a row")
    parser.add_argument("--device", default="cpu", choices=GROUPS, help="where torch's, CuPy's and JAX's arrays are")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the first line and the rows: seconds, ratios, goals")
    options = parser.parse_args()
    of = measured(options.device)
    versions = ", ".join(" ".join(v) for v in of["versions"].items())
    print(f"{of['machine']}; {versions}; {of['date']}" + (f"; commit {of['commit']}" if of["commit"] else ""), flush=True)
    found = list(rows(options))
    if options.json is not None:
        options.json.write_text(json.dumps({"of": of, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
