#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""elementwise on a GPU beside torch, in one run: medians of CUDA-graph replays, on data beyond L2 unless a row says otherwise.

usage: gpu_elementwise.py LIBNARROWS [ROWS]      ROWS: a word that a row's name must have

Each row: torch's time, ours, torch / ours, and the bytes that must move as a part of what a plain copy kernel reaches here.
The exit code is 1 if a row's result is not torch's.
"""

import ctypes
import statistics
import sys
from pathlib import Path

import torch


class Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Params(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_int32),
        ("out_dtype", ctypes.c_int32),
        ("alpha", ctypes.c_double),
        ("b_real", ctypes.c_double),
        ("b_int", ctypes.c_int64),
        ("c_real", ctypes.c_double),
        ("c_int", ctypes.c_int64),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("num_inputs", ctypes.c_uint32),
        ("num_outputs", ctypes.c_uint32),
        ("op", ctypes.c_char_p),
        ("inputs", ctypes.POINTER(ctypes.POINTER(Tensor))),
        ("outputs", ctypes.POINTER(ctypes.POINTER(Tensor))),
        ("params", ctypes.c_void_p),
        ("params_size", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_uint64),
        ("device", Device),
        ("backend", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
    ]


class Error(ctypes.Structure):
    _fields_ = [
        ("status", ctypes.c_int32),
        ("argument", ctypes.c_int32),
        ("native_code", ctypes.c_int64),
        ("message", ctypes.c_char * 496),
    ]


# By NW_DTYPE_*: DLPack's code and bits.
DTYPES = {
    torch.float32: (1, 2, 32),
    torch.float64: (2, 2, 64),
    torch.float16: (3, 2, 16),
    torch.bfloat16: (4, 4, 16),
    torch.int8: (5, 0, 8),
    torch.int16: (6, 0, 16),
    torch.int32: (7, 0, 32),
    torch.int64: (8, 0, 64),
    torch.uint8: (9, 1, 8),
    torch.uint16: (10, 1, 16),
    torch.uint32: (11, 1, 32),
    torch.uint64: (12, 1, 64),
    torch.bool: (13, 6, 8),
}
# Of which torch lacks most functions: their bits as signed integers are what it is timed on then.
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
# NW_EW_* of the functions that are measured, and torch's own.
FUNCTIONS = {
    "neg": (1, torch.neg),
    "sqrt": (5, torch.sqrt),
    "exp": (8, torch.exp),
    "sin": (15, torch.sin),
    "tan": (17, torch.tan),
    "tanh": (23, torch.tanh),
    "sigmoid": (27, torch.sigmoid),
    "relu": (28, lambda a, out: torch.clamp_min(a, 0, out=out)),
    "gelu": (30, lambda a, out: torch.ops.aten.gelu.out(a, out=out)),
    "silu": (32, lambda a, out: torch.ops.aten.silu.out(a, out=out)),
    "erf": (34, torch.erf),
    "cast": (46, lambda a, out: out.copy_(a)),
    "add": (47, torch.add),
    "mul": (49, torch.mul),
    "div": (50, torch.div),
    "pow": (51, torch.pow),
    "fmod": (56, torch.fmod),
    "lt": (62, torch.lt),
    "fma": (74, lambda a, b, c, out: torch.addcmul(c, a, b, out=out)),
    "where": (75, torch.where),
}
# Of the functions whose gradients are measured: NW_EW_*, torch's own, operands.
GRADIENTS = {
    "square": (4, torch.square, 1),
    "exp": (8, torch.exp, 1),
    "log2": (12, torch.log2, 1),
    "atan": (20, torch.atan, 1),
    "sinh": (21, torch.sinh, 1),
    "tanh": (23, torch.tanh, 1),
    "sigmoid": (27, torch.sigmoid, 1),
    "elu": (29, torch.nn.functional.elu, 1),
    "gelu": (30, torch.nn.functional.gelu, 1),
    "gelu_tanh": (31, lambda a: torch.nn.functional.gelu(a, approximate="tanh"), 1),
    "silu": (32, torch.nn.functional.silu, 1),
    "softplus": (33, torch.nn.functional.softplus, 1),
    "erf": (34, torch.erf, 1),
    "reciprocal": (40, torch.reciprocal, 1),
    "mul": (49, torch.mul, 2),
    "div": (50, torch.div, 2),
    "pow": (51, torch.pow, 2),
    "atan2": (52, torch.atan2, 2),
    "hypot": (53, torch.hypot, 2),
    "fmod": (56, torch.fmod, 2),
    "logaddexp": (59, torch.logaddexp, 2),
}


class Narrows:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.error = Error()
        self.runtime = ctypes.c_void_p()
        self.check(self.lib.nw_runtime_create(None, ctypes.byref(self.runtime), ctypes.byref(self.error)))

    def check(self, status):
        if status:
            raise RuntimeError(self.error.message.decode())

    def call(self, op, inputs, outputs, params, kernel=None, workspace=None):
        """A function that puts the call on torch's current stream."""
        keep = [None if t is None else tensor_of(t) for t in [*inputs, *outputs]]
        pointers = [None if t is None else ctypes.pointer(t) for t in keep]
        ins = (ctypes.POINTER(Tensor) * len(inputs))(*pointers[: len(inputs)])
        outs = (ctypes.POINTER(Tensor) * len(outputs))(*pointers[len(inputs) :])
        call = Call(ctypes.sizeof(Call), 0, len(inputs), len(outputs), op.encode(), ins, outs)
        call.params = ctypes.cast(ctypes.pointer(params), ctypes.c_void_p)
        call.params_size = ctypes.sizeof(params)
        call.kernel = kernel.encode() if kernel else None
        if workspace is not None:
            call.workspace, call.workspace_size = workspace.data_ptr(), workspace.numel()

        def launch(keep=(keep, params)):
            call.stream = torch.cuda.current_stream().cuda_stream
            self.check(self.lib.nw_run(self.runtime, ctypes.byref(call), ctypes.byref(self.error)))

        return launch

    def function(self, name, inputs, out, kernel=None):
        number = FUNCTIONS[name][0]
        params = Params(number, DTYPES[out.dtype][0] if name == "cast" else 0)
        return self.call("elementwise", inputs, [out], params, kernel)

    def gradients(self, name, g, operands, gradients):
        """All of them in one call; `out` is not given."""
        inputs = [g, *operands, *[None] * (4 - len(operands))]
        params = Params(GRADIENTS[name][0], 0, 1.0 if name == "elu" else 0.0)
        return self.call("elementwise_backward", inputs, [*gradients, *[None] * (3 - len(gradients))], params)


def tensor_of(t):
    _, code, bits = DTYPES[t.dtype]
    shape = (ctypes.c_int64 * max(t.ndim, 1))(*t.shape)
    strides = (ctypes.c_int64 * max(t.ndim, 1))(*t.stride())
    return Tensor(t.data_ptr(), Device(2, 0), t.ndim, DataType(code, bits, 1), shape, strides, 0)


def graph_us(bodies, launches=8, replays=9, stream=None):
    """Microseconds of a body, the bodies taking turns in one graph: the median of its replays."""
    stream = stream or torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for body in bodies:
            body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(launches):
            bodies[i % len(bodies)]()
    times = []
    for _ in range(replays + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return statistics.median(times[2:])


def random(shape, dtype):
    if dtype == torch.bool:
        return torch.rand(shape, device="cuda") < 0.5
    if dtype.is_floating_point:
        return torch.rand(shape, device="cuda", dtype=torch.float32).add_(0.5).to(dtype)
    if dtype in SIGNED:
        return random(shape, SIGNED[dtype]).view(dtype)
    low, high = (1, 100) if dtype in (torch.int8, torch.uint8) else (1, 30000)
    if dtype == torch.int64:  # more than 32 bits
        return torch.randint(1 << 40, 1 << 60, shape, device="cuda")
    return torch.randint(low, high, shape, device="cuda", dtype=dtype)


def signed(t):
    return t.view(SIGNED.get(t.dtype, t.dtype))


def size_of(t):
    """Bytes in memory, a repeated element counting once."""
    n = t.element_size()
    for extent, stride in zip(t.shape, t.stride(), strict=True):
        n *= 1 if stride == 0 else extent
    return n


class Table:
    def __init__(self, narrows, wanted):
        self.narrows, self.wanted, self.differed = narrows, wanted, 0
        a = torch.empty(1 << 28, device="cuda", dtype=torch.uint8).random_()
        b = torch.empty_like(a)
        self.copied = 2 * a.numel() / graph_us([narrows.function("neg", [a], b), narrows.function("neg", [b], a)])
        plain = 2 * a.numel() / graph_us([lambda: b.copy_(a)])
        print(f"copy of 256 MiB: ours (u8 neg) {self.copied / 1e6:.3f} TB/s, torch's copy_ {plain / 1e6:.3f} TB/s")
        self.copied = max(self.copied, plain)
        print(f"{'row':44} {'torch us':>9} {'ours us':>9} {'ratio':>6} {'of copy':>8}")

    def row(self, name, function, make, kernel=None):
        """make() gives operands and the output."""
        if self.wanted not in name:
            return
        *inputs, out = make()
        moved = sum(map(size_of, [*inputs, out]))
        reference, own = FUNCTIONS[function][1], torch.zeros_like(out)
        theirs = [lambda: reference(*inputs, out=out)]
        ours = [self.narrows.function(function, inputs, own, kernel)]
        try:
            theirs[0]()
        except RuntimeError:  # NotImplementedError too
            if inputs[0].dtype not in SIGNED:
                raise
            name += " (torch: signed)"
            inputs, out, own = [signed(t) for t in inputs], signed(out), signed(own)
            theirs[0]()
        ours[0]()
        if not torch.allclose(out.float(), own.float(), rtol=1e-2, atol=1e-6, equal_nan=True):
            self.differed += 1
            print(f"{name}: DIFFERS from torch by {(out.float() - own.float()).abs().max().item()}")
        launches = 8 if moved > 1 << 26 else 80
        t, o = graph_us(theirs, launches), graph_us(ours, launches)
        print(f"{name:44} {t:9.2f} {o:9.2f} {t / o:6.2f} {moved / o / self.copied:8.3f}", flush=True)

    def gradient_row(self, function, dtype, side):
        """The gradients of all operands by one call of each; torch's by autograd, of a graph that is there already."""
        name = f"backward {function} {str(dtype)[6:]}"
        if self.wanted not in name:
            return
        _, reference, count = GRADIENTS[function]
        operands = [random((side, side), dtype).requires_grad_() for _ in range(count)]
        g, stream = random((side, side), dtype), torch.cuda.Stream()
        own = [torch.zeros_like(a) for a in operands]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):  # where forward ran autograd runs backward
            y = reference(*operands)
        theirs = lambda: torch.autograd.grad(y, operands, g, retain_graph=True)  # noqa: E731
        found = theirs()
        ours = self.narrows.gradients(function, g, [a.detach() for a in operands], own)
        ours()
        if not all(torch.allclose(a.float(), b.float(), rtol=1e-2, atol=1e-2) for a, b in zip(found, own, strict=True)):
            self.differed += 1
            print(f"{name}: DIFFERS from torch")
        moved = sum(map(size_of, [g, *operands, *own]))
        t, o = graph_us([theirs], stream=stream), graph_us([ours])
        print(f"{name:44} {t:9.2f} {o:9.2f} {t / o:6.2f} {moved / o / self.copied:8.3f}", flush=True)


def same(count, shape, dtype, out=None):
    return lambda: [*(random(shape, dtype) for _ in range(count)), torch.empty(shape, device="cuda", dtype=out or dtype)]


def contiguous(table):
    side = 8192
    for dtype in DTYPES:
        short = str(dtype)[6:]
        if dtype == torch.bool:
            continue
        for function, count in (("neg", 1), ("add", 2), ("fma", 3)):
            if function != "neg" or (dtype != torch.uint8 and dtype not in SIGNED):
                table.row(f"contiguous {function} {short} {side}^2", function, same(count, (side, side), dtype))
        table.row(f"contiguous lt {short} {side}^2", "lt", same(2, (side, side), dtype, torch.bool))
    for source, target in (
        (torch.float32, torch.float16),
        (torch.float16, torch.float32),
        (torch.float64, torch.bfloat16),
        (torch.int32, torch.int64),
        (torch.uint8, torch.float32),
        (torch.float32, torch.uint8),
        (torch.float32, torch.bool),
    ):
        name = f"contiguous cast {str(source)[6:]} to {str(target)[6:]}"
        table.row(name, "cast", same(1, (side, side), source, target))
    for dtype in (torch.float32, torch.float16):
        make = same(2, (side, side), dtype)

        def where(make=make):
            a, b, out = make()
            return [random(a.shape, torch.bool), a, b, out]

        table.row(f"contiguous where {str(dtype)[6:]}", "where", where)
        for function in ("sqrt", "exp", "sin", "tan", "tanh", "sigmoid", "relu", "gelu", "silu", "erf"):
            table.row(f"contiguous {function} {str(dtype)[6:]}", function, same(1, (side, side), dtype))
    for function, dtype in (
        ("erf", torch.float64),
        ("pow", torch.float64),
        ("pow", torch.float32),
        ("div", torch.float64),
        ("fmod", torch.float32),
    ):
        count = 1 if function == "erf" else 2
        table.row(f"compute {function} {str(dtype)[6:]}", function, same(count, (side, side // 2), dtype))

    def divided(small):
        def make():
            a, b = random((side, side // 2), torch.int64), random((side, side // 2), torch.int64)
            return [a, b % 1000 + 1 if small else b >> 20, torch.empty_like(a)]

        return make

    FUNCTIONS["div64"] = (50, lambda a, b, out: torch.div(a, b, rounding_mode="trunc", out=out))
    table.row("compute div int64 by small", "div64", divided(True))
    table.row("compute div int64 by large", "div64", divided(False))


def backward(table):
    for dtype in (torch.float32, torch.float16, torch.float64):
        for function in GRADIENTS:
            table.gradient_row(function, dtype, 4096)


def in_cache(table):
    for dtype in (torch.float32, torch.float16):
        for side in (1024, 2048):
            table.row(f"in L2 add {str(dtype)[6:]} {side}^2", "add", same(2, (side, side), dtype))
        for kernel in ("f32", "f32x4") if dtype == torch.float32 else ("f16", "f16x2", "f16x8", "f16x8_pack"):
            table.row(f"in L2 add {kernel} 1024^2", "add", same(2, (1024, 1024), dtype), kernel)
            table.row(f"contiguous add {kernel} 8192^2", "add", same(2, (8192, 8192), dtype), kernel)


def layouts(table):
    for dtype in (torch.float32, torch.float16, torch.float64, torch.uint8):
        layouts_of(table, dtype)


def layouts_of(table, dtype):
    n = 8192
    short = str(dtype)[6:]

    def out(rows=n, columns=n):
        return torch.empty(rows, columns, device="cuda", dtype=dtype)

    def full(rows=n, columns=n):
        return random((rows, columns), dtype)

    table.row(f"broadcast row {short}", "add", lambda: [full(), random((n,), dtype), out()])
    table.row(f"broadcast column {short}", "add", lambda: [full(), random((n, 1), dtype), out()])
    table.row(f"broadcast odd row {short}", "add", lambda: [full(n, n - 1), random((n - 1,), dtype), out(n, n - 1)])
    table.row(f"broadcast outer {short}", "add", lambda: [random((n, 1), dtype), random((n,), dtype), out()])
    table.row(f"transposed + row-major {short}", "add", lambda: [full().t(), full(), out()])
    table.row(f"transposed + transposed {short}", "add", lambda: [full().t(), full().t(), out()])
    table.row(f"transposed odd {short}", "add", lambda: [full(n - 1, n - 3).t(), full(n - 3, n - 1), out(n - 3, n - 1)])
    table.row(f"transposed neg {short}", "neg" if dtype != torch.uint8 else "cast", lambda: [full().t(), out()])
    table.row(f"strided columns {short}", "add", lambda: [full(n, 2 * n)[:, ::2], full(), out()])
    table.row(f"strided all {short}", "add", lambda: [full(n, 2 * n)[:, ::2], full(n, 2 * n)[:, 1::2], out(n, 2 * n)[:, ::2]])
    table.row(f"strided rows {short}", "add", lambda: [full(2 * n)[::2], full(2 * n)[1::2], out()])
    table.row(f"permuted NCHW to NHWC {short}", "add", lambda: permuted(dtype))
    table.row(f"offset by one {short}", "add", lambda: offset(dtype, (1, 1, 1)))
    table.row(f"offset by one, two, none {short}", "add", lambda: offset(dtype, (1, 2, 0)))


def permuted(dtype):
    x = random((32, 128, 128, 128), dtype).permute(0, 2, 3, 1)
    return [x, random((128,), dtype), torch.empty(x.shape, device="cuda", dtype=dtype)]


def offset(dtype, by):
    n = 1 << 26
    return [
        random((n + 8,), dtype)[by[0] : n],
        random((n + 8,), dtype)[by[1] : n + by[1] - by[0]],
        torch.empty(n + 8, device="cuda", dtype=dtype)[by[2] : n + by[2] - by[0]],
    ]


def main():
    torch.manual_seed(0)
    table = Table(Narrows(str(Path(sys.argv[1]).resolve())), sys.argv[2] if len(sys.argv) > 2 else "")
    for part in (in_cache, contiguous, backward, layouts):
        part(table)
    return 1 if table.differed else 0


if __name__ == "__main__":
    sys.exit(main())
