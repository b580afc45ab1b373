# SPDX-License-Identifier: Apache-2.0
"""lltm and lltm_backward beside torch's own operators on one GPU: medians of CUDA-graph replays, ratios of one run.

    python3 benchmarks/gpu_lltm.py [--library build/cuda/lib/libnarrows.so] [--plugins build/cuda/lib/narrows/backends]
                                   [--kernels] [--backward] [--eager] [--only f32:512x4096x4096 ...]
                                   [--sequence] [--table FILE]

--kernels times every variant by name. --eager times single calls too, beside torch's operators and beside a CUDA extension for torch
(lltm_extension.cu; nvcc and ninja compile it in about a minute), with autograd where the package narrows can be imported.
--sequence times lltm_sequence beside torch.nn.LSTM, which is cuDNN's and has 4 gates to our 3, and beside single calls of lltm in one
graph; --table appends its rows to a CSV file. Errors are norms against float64, next to torch's own. Data that fits stays in the L2
for both sides. torch runs without TF32. The exit code is 1 if an error is larger than rounding makes it."""

import argparse
import ctypes as c
import os
import pathlib
import statistics
import sys
import time

import torch

SHAPES = [(16, 32, 128), (64, 256, 256), (64, 1024, 1024), (256, 1024, 1024), (512, 4096, 4096)]
DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
MOST = {"f32": 1e-4, "f64": 1e-10, "f16": 1e-2, "bf16": 2e-2}  # of errors
DLPACK_CODES = {torch.float32: 2, torch.float64: 2, torch.float16: 2, torch.bfloat16: 4}


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", DType),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]  # fmt: skip


class Call(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("flags", c.c_uint32), ("num_inputs", c.c_uint32), ("num_outputs", c.c_uint32),
                ("op", c.c_char_p), ("inputs", c.c_void_p), ("outputs", c.c_void_p), ("params", c.c_void_p),
                ("params_size", c.c_uint64), ("stream", c.c_void_p), ("workspace", c.c_void_p), ("workspace_size", c.c_uint64),
                ("device", Device), ("backend", c.c_char_p), ("kernel", c.c_char_p)]  # fmt: skip


class PlanInfo(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("traits", c.c_uint32), ("workspace_size", c.c_uint64), ("kernel", c.c_char_p),
                ("backend", c.c_char_p)]  # fmt: skip


class Error(c.Structure):
    _fields_ = [("status", c.c_int32), ("argument", c.c_int32), ("native", c.c_int64), ("message", c.c_char * 496)]


class Narrows:
    def __init__(self, library, plugins):
        os.environ["NARROWS_PLUGIN_PATH"] = os.path.abspath(plugins)
        self.lib = c.CDLL(library)
        self.runtime, self.error = c.c_void_p(), Error()
        self.check(self.lib.nw_runtime_create(None, c.byref(self.runtime), c.byref(self.error)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.error.message.decode())

    def prepare(self, op, inputs, outputs, kernel=None):
        """A function that enqueues the op on torch's current stream, with its `kernel`; None if the variant declines."""
        keep = []

        def pointers(tensors):
            out = (c.c_void_p * len(tensors))()
            for i, t in enumerate(tensors):
                if t is None:
                    continue
                shape, strides = (c.c_int64 * t.ndim)(*t.shape), (c.c_int64 * t.ndim)(*t.stride())
                dtype = DType(DLPACK_CODES[t.dtype], t.element_size() * 8, 1)
                dl = DLTensor(t.data_ptr(), Device(2, t.device.index or 0), t.ndim, dtype, shape, strides, 0)
                keep.append((t, shape, strides, dl))
                out[i] = c.addressof(dl)
            keep.append(out)
            return c.addressof(out)

        call = Call(struct_size=c.sizeof(Call), num_inputs=len(inputs), num_outputs=len(outputs), op=op.encode(),
                    inputs=pointers(inputs), outputs=pointers(outputs), backend=b"cuda",
                    kernel=kernel.encode() if kernel else None)  # fmt: skip
        info = PlanInfo(struct_size=c.sizeof(PlanInfo))
        if self.lib.nw_plan_get(self.runtime, c.byref(call), None, c.byref(info), c.byref(self.error)) != 0:
            if kernel:
                return None
            raise RuntimeError(self.error.message.decode())
        workspace = torch.empty(max(info.workspace_size, 1), dtype=torch.uint8, device="cuda")
        call.workspace, call.workspace_size = workspace.data_ptr(), info.workspace_size
        run, arguments = self.lib.nw_run, (self.runtime, c.byref(call), c.byref(self.error))

        def enqueue():
            call.stream = torch.cuda.current_stream().cuda_stream
            self.check(run(*arguments))

        def enqueue_again():  # the bare call: the stream stays
            run(*arguments)

        enqueue.again, enqueue.kernel, enqueue.keep = enqueue_again, info.kernel.decode(), (keep, workspace)
        return enqueue


def graph_us(function, target_us=2000, replays=11):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        function()
        b.record()
    torch.cuda.synchronize()
    launches = int(min(50, max(3, target_us / (a.elapsed_time(b) * 1e3 + 1))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(launches):
            keep = function()  # noqa: F841
    times = []
    for _ in range(replays + 2):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) * 1e3 / launches)
    return statistics.median(times[2:])


def eager_us(function, count=500):
    for _ in range(100):
        function()
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            function()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / count * 1e6)
    return statistics.median(times)


def cell(x, w, b, h, cell_state):
    gates = torch.addmm(b, torch.cat([h, x], 1), w.t())
    i, o, g = gates.chunk(3, 1)
    new_cell = cell_state + torch.nn.functional.elu(g) * torch.sigmoid(i)
    return torch.tanh(new_cell) * torch.sigmoid(o), new_cell


class Problem:
    def __init__(self, dtype, batch, features, state):
        def random(*shape):
            return torch.randn(*shape, device="cuda").to(dtype)

        self.inputs = [random(batch, features), random(3 * state, state + features) / (state + features) ** 0.5, random(3 * state),
                       random(batch, state), random(batch, state)]  # fmt: skip
        self.outputs = [torch.full((batch, state), torch.nan, dtype=dtype, device="cuda") for _ in range(2)]
        wide = dtype if dtype == torch.float64 else torch.float32
        self.gates = torch.full((batch, 3 * state), torch.nan, dtype=wide, device="cuda")
        self.grads = [random(batch, state), random(batch, state)]
        self.d_inputs = [torch.full_like(t, torch.nan) for t in self.inputs]

    def forward(self, narrows, kernel=None, training=False):
        return narrows.prepare("lltm", self.inputs, [*self.outputs, self.gates if training else None], kernel)

    def backward(self, narrows, kernel=None):
        x, w, b, h, _ = self.inputs
        return narrows.prepare(
            "lltm_backward", [*self.grads, x, w, b, h, None, None, self.outputs[1], self.gates], self.d_inputs, kernel
        )

    def exact(self):
        with torch.enable_grad():
            leaves = [t.double().requires_grad_() for t in self.inputs]
            outputs = cell(*leaves)
            return [o.detach() for o in outputs], torch.autograd.grad(outputs, leaves, [g.double() for g in self.grads])

    def torch_backward(self):
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in self.inputs]
            return torch.autograd.grad(cell(*leaves), leaves, self.grads)


def error(got, expected):
    """NaN if one of them is."""
    return torch.stack([(a.double() - b).norm() / b.norm() for a, b in zip(got, expected, strict=True)]).max().item()


def compare(narrows, name, shape, options):
    """Prints the rows of a size. How many of them are wrong."""
    wrong = 0
    problem = Problem(DTYPES[name], *shape)
    exact, exact_grads = problem.exact()
    torch_us = graph_us(lambda: cell(*problem.inputs))
    torch_error = error(cell(*problem.inputs), exact)
    label = f"{name:5} B{shape[0]} F{shape[1]} S{shape[2]}"
    for kernel in [None, *(["cublaslt", "wgmma", "wgmma_split", "mma", "pipelined", "fused"] if options.kernels else [])]:
        forward = problem.forward(narrows, kernel)
        if forward is None:
            continue
        us, own_error = graph_us(forward), error(problem.outputs, exact)
        right = own_error < MOST[name]  # false for NaN
        wrong += not right
        print(f"{label} forward  torch {torch_us:8.2f}  {forward.kernel:12}{us:8.2f} us  {torch_us / us:5.2f} x  "
              f"{6e-6 * shape[0] * shape[2] * (shape[1] + shape[2]) / us:6.1f} TFLOP/s  error {own_error:.1e} "
              f"(torch {torch_error:.1e}){'' if right else '  WRONG'}", flush=True)  # fmt: skip
        for t in problem.outputs:
            t.fill_(torch.nan)
    if not options.backward:
        return wrong
    torch_us = graph_us(problem.torch_backward)
    for kernel in [None, *(["cublaslt", "wgmma", "wgmma_split", "mma", "tiled"] if options.kernels else [])]:
        forward, backward = problem.forward(narrows, training=True), problem.backward(narrows, kernel)
        if backward is None:
            continue
        us, backward_us = graph_us(lambda f=forward, b=backward: (f(), b())), graph_us(backward)
        own_error = error(problem.d_inputs, exact_grads)
        right = own_error < MOST[name]
        wrong += not right
        print(f"{label} training torch {torch_us:8.2f}  {backward.kernel:12}{us:8.2f} us  {torch_us / us:5.2f} x  backward alone "
              f"{backward_us:.2f}  error {own_error:.1e} "
              f"(torch {error(problem.torch_backward(), exact_grads):.1e}){'' if right else '  WRONG'}", flush=True)  # fmt: skip
    return wrong


# ---- a whole sequence ----

SEQUENCES = [(128, 16, 32, 128), (128, 64, 256, 256), (128, 64, 1024, 1024), (64, 256, 1024, 1024)]  # T, B, F, S
SEQUENCE_GOALS = {"f32": [2.5, 2.5, 2, 1.6], "f16": [2, 2, 1.3, 1.2]}


class Sequence:
    def __init__(self, dtype, steps, batch, features, state):
        def random(*shape):
            return torch.randn(*shape, device="cuda").to(dtype)

        self.shape = steps, batch, features, state
        self.inputs = [random(steps, batch, features), random(3 * state, state + features) / (state + features) ** 0.5,
                       random(3 * state), random(batch, state), random(batch, state)]  # fmt: skip
        self.h, self.cells = (torch.full((steps, batch, state), torch.nan, dtype=dtype, device="cuda") for _ in range(2))
        self.gates = torch.full((steps, batch, 3 * state), torch.nan, device="cuda")
        self.new = [torch.full((batch, state), torch.nan, dtype=dtype, device="cuda") for _ in range(2)]
        self.grad = random(steps, batch, state)
        self.d_inputs = [torch.full_like(t, torch.nan) for t in self.inputs]
        self.lstm = torch.nn.LSTM(features, state).to("cuda", dtype)

    def forward(self, narrows, kernel=None, training=False):
        saved = [self.cells, self.gates] if training else [None, None]
        return narrows.prepare("lltm_sequence", [*self.inputs, None], [self.h, *self.new, *saved], kernel)

    def backward(self, narrows, kernel=None):
        x, w, _, h, _ = self.inputs
        saved = [self.h, None, None, self.cells, self.gates]
        inputs = [self.grad, None, None, x, w, None, h, None, None, *saved]
        return narrows.prepare("lltm_sequence_backward", inputs, [*self.d_inputs, None], kernel)

    def single_calls(self, narrows):
        x, w, b, h, cell_state = self.inputs
        calls = []
        for t in range(self.shape[0]):
            calls.append(narrows.prepare("lltm", [x[t], w, b, h, cell_state], [self.h[t], self.cells[t], None]))
            h, cell_state = self.h[t], self.cells[t]
        return lambda: [call() for call in calls]

    def exact(self):
        with torch.enable_grad():
            leaves = [t.double().requires_grad_() for t in self.inputs]
            x, w, b, h, cell_state = leaves
            outputs = []
            for t in range(self.shape[0]):
                h, cell_state = cell(x[t], w, b, h, cell_state)
                outputs.append(h)
            h = torch.stack(outputs)
            return h.detach(), torch.autograd.grad(h, leaves, self.grad.double())

    def lstm_forward(self):
        x, _, _, h, cell_state = self.inputs
        return self.lstm(x, (h[None], cell_state[None]))[0]

    def lstm_training(self):
        with torch.enable_grad():
            x, _, _, h, cell_state = (t.detach().requires_grad_() for t in self.inputs)
            y = self.lstm(x, (h[None], cell_state[None]))[0]
            return torch.autograd.grad(y, [x, h, cell_state, *self.lstm.parameters()], self.grad)


def compare_sequence(narrows, name, shape, goal, table):
    """Prints the rows of a size. How many of them are wrong."""
    problem = Sequence(DTYPES[name], *shape)
    exact, exact_grads = problem.exact()
    label = f"{name} T{shape[0]} B{shape[1]} F{shape[2]} S{shape[3]}"
    peers = {"forward": graph_us(problem.lstm_forward) / shape[0], "training": graph_us(problem.lstm_training) / shape[0]}
    single = graph_us(problem.single_calls(narrows)) / shape[0]
    wrong = 0
    for kernel in [None, "steps"]:
        forward = problem.forward(narrows, kernel)
        us, own_error = graph_us(forward) / shape[0], error([problem.h], [exact])
        rows = [("forward", forward.kernel, us, own_error)]
        forward, backward = problem.forward(narrows, kernel, training=True), problem.backward(narrows, kernel)
        both = graph_us(lambda f=forward, b=backward: (f(), b())) / shape[0]
        rows.append(("training", backward.kernel, both, error(problem.d_inputs, exact_grads)))
        for part, ran, us, own_error in rows:
            right = own_error < 30 * MOST[name]
            wrong += not right
            print(f"{label} {part:8} cuDNN {peers[part]:7.2f}  {ran:8}{us:7.2f} us a step  {peers[part] / us:5.2f} x (goal {goal})  "
                  f"single calls {single:.2f}  error {own_error:.1e}{'' if right else '  WRONG'}", flush=True)  # fmt: skip
            if table is not None and kernel is None:
                print(f'"{", ".join(map(str, shape))}",{name},{part},{ran},{peers[part]:.2f},{us:.2f},{peers[part] / us:.2f},{goal},'
                      f"{f'{single:.2f}' if part == 'forward' else ''}", file=table)  # fmt: skip
    return wrong


def compare_eager(narrows, shape=(16, 32, 128)):
    problem = Problem(torch.float32, *shape)
    forward, training, backward = problem.forward(narrows), problem.forward(narrows, training=True), problem.backward(narrows)
    for f in (forward, training, backward):
        f()
    torch_us, us = eager_us(lambda: cell(*problem.inputs)), eager_us(forward.again)
    print(f"eager B{shape[0]} F{shape[1]} S{shape[2]}: forward torch {torch_us:.1f}, one nw_run by ctypes {us:.2f} us, "
          f"{torch_us / us:.1f} x")  # fmt: skip
    both_us = eager_us(lambda: (training.again(), backward.again()))
    torch_us = eager_us(problem.torch_backward, 200)
    print(f"eager: forward and backward torch {torch_us:.1f}, two nw_run {both_us:.2f} us, {torch_us / both_us:.1f} x")
    compare_with_extension(problem, us, both_us)


def compare_with_extension(problem, us, both_us):
    from torch.utils import cpp_extension

    extension = cpp_extension.load("lltm_extension", [str(pathlib.Path(__file__).with_name("lltm_extension.cu"))])
    theirs = autograd_function(extension)
    exact, exact_grads = problem.exact()
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in problem.inputs]
        grads = torch.autograd.grad(theirs(*leaves), leaves, problem.grads)
    wrong = max(error(theirs(*problem.inputs), exact), error(grads, exact_grads))
    if wrong > 1e-5:
        raise RuntimeError(f"the extension is wrong by {wrong:.1e}")

    def training(function):
        def step():
            with torch.enable_grad():
                torch.autograd.grad(function(*leaves), leaves, problem.grads)

        return step

    forward_us = eager_us(lambda: extension.forward(*problem.inputs))
    _, new_cell, activated, stacked = extension.forward(*problem.inputs)
    backward_us = eager_us(lambda: extension.backward(*problem.grads, new_cell, activated, stacked, problem.inputs[1]))
    both = forward_us + backward_us
    print(f"eager: forward, the extension's own call {forward_us:.1f}, one nw_run {us:.2f} us, {forward_us / us:.1f} x")
    print(f"eager: forward and backward, the extension's own calls {both:.1f}, two nw_run {both_us:.2f} us, {both / both_us:.1f} x")
    try:
        import narrows as package
    except ImportError as reason:
        print(f"eager: with autograd: not measured, since narrows cannot be imported ({reason})")
        return
    got = [o.detach() for o in package.lltm(*problem.inputs)]
    if error(got, exact) > 1e-5:
        raise RuntimeError("narrows.lltm is wrong")
    theirs_us, ours_us = eager_us(lambda: theirs(*problem.inputs)), eager_us(lambda: package.lltm(*problem.inputs))
    print(f"eager: forward from Python, the extension {theirs_us:.1f}, narrows.lltm {ours_us:.1f} us, {theirs_us / ours_us:.1f} x")
    theirs_us, ours_us = eager_us(training(theirs), 200), eager_us(training(package.lltm), 200)
    print(f"eager: forward and backward by autograd, the extension {theirs_us:.1f}, narrows.lltm {ours_us:.1f} us, "
          f"{theirs_us / ours_us:.1f} x")  # fmt: skip


def autograd_function(extension):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weights, bias, old_h, old_cell):
            new_h, new_cell, activated, stacked = extension.forward(x, weights, bias, old_h, old_cell)
            ctx.save_for_backward(new_cell, activated, stacked, weights)
            return new_h, new_cell

        @staticmethod
        def backward(ctx, grad_h, grad_cell):
            return tuple(extension.backward(grad_h.contiguous(), grad_cell.contiguous(), *ctx.saved_tensors))

    return Function.apply


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/cuda/lib/libnarrows.so")
    parser.add_argument("--plugins", default="build/cuda/lib/narrows/backends")
    parser.add_argument("--table", help="a CSV file")
    for flag in ("--kernels", "--backward", "--eager", "--sequence"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--only", nargs="*", help="f32:512x4096x4096: dtype, then B, F, S, or T, B, F, S")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    narrows = Narrows(options.library, options.plugins)
    if options.sequence:
        with open(options.table or os.devnull, "a") as table:
            return sum(compare_sequence(narrows, name, shape, goal, table)
                       for name, goals in SEQUENCE_GOALS.items() for shape, goal in zip(SEQUENCES, goals, strict=True)
                       if not options.only or f"{name}:{'x'.join(map(str, shape))}" in options.only)  # fmt: skip
    cases = [("f32", s) for s in SHAPES] + [(d, s) for d in ("f16", "bf16") for s in SHAPES[3:]]
    if options.only:
        cases = [(o.split(":")[0], tuple(map(int, o.split(":")[1].split("x")))) for o in options.only]
    wrong = sum(compare(narrows, name, shape, options) for name, shape in cases)
    if options.eager:
        compare_eager(narrows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
