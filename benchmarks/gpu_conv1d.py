# SPDX-License-Identifier: Apache-2.0
"""gpu_conv1d.py -- conv1d and conv1d_backward beside torch on one GPU: medians of CUDA-graph replays, both sides in one run.

    python3 benchmarks/gpu_conv1d.py [--lib build/cuda/lib/libnarrows.so] [--only REGEX] [--kernel NAME]

Inputs rotate among sets larger than the L2 cache. What a call does to its weights is inside its time. f32 without TF32.
The exit code is 1 if a row is wrong, or fails where no kernel is named.
"""

import argparse
import ctypes
import math
import re
import statistics
import sys

import torch
import torch.nn.functional as F

P, I32, U32, I64, U64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64
CODES = {torch.float32: (2, 32), torch.float64: (2, 64), torch.float16: (2, 16), torch.bfloat16: (4, 16)}


class Device(ctypes.Structure):
    _fields_ = [("type", I32), ("id", I32)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", P),
        ("device", Device),
        ("ndim", I32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", P),
        ("strides", P),
        ("byte_offset", U64),
    ]


class Error(ctypes.Structure):
    _fields_ = [("status", I32), ("argument", I32), ("native_code", I64), ("message", ctypes.c_char * 496)]


class Call(ctypes.Structure):
    _fields_ = [
        ("struct_size", U32),
        ("flags", U32),
        ("num_inputs", U32),
        ("num_outputs", U32),
        ("op", ctypes.c_char_p),
        ("inputs", P),
        ("outputs", P),
        ("params", P),
        ("params_size", U64),
        ("stream", P),
        ("workspace", P),
        ("workspace_size", U64),
        ("device", Device),
        ("backend", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
    ]


class PlanInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", U32),
        ("traits", U32),
        ("workspace_size", U64),
        ("kernel", ctypes.c_char_p),
        ("backend", ctypes.c_char_p),
    ]


class Narrows:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.runtime, self.error = P(), Error()
        self.need(self.lib.nw_runtime_create(None, ctypes.byref(self.runtime), ctypes.byref(self.error)))

    def need(self, status):
        if status != 0:
            raise RuntimeError(self.error.message.decode())

    def prepare(self, op, inputs, outputs, params, kernel=None):
        """A function that enqueues the call on torch's current stream, and the plan's kernel name."""
        call, keep = Call(), []

        def pointers(tensors):
            array = (P * len(tensors))()
            for i, t in enumerate(tensors):
                if t is None:
                    continue
                shape, strides = (I64 * t.dim())(*t.shape), (I64 * t.dim())(*t.stride())
                code, bits = CODES[t.dtype]
                dl = Tensor(
                    t.data_ptr(), Device(2, 0), t.dim(), code, bits, 1, ctypes.addressof(shape), ctypes.addressof(strides), 0
                )
                keep.extend([t, shape, strides, dl])
                array[i] = ctypes.addressof(dl)
            keep.append(array)
            return ctypes.addressof(array)

        blob = (I64 * 6)(*params)
        call.struct_size, call.op = ctypes.sizeof(Call), op.encode()
        call.num_inputs, call.num_outputs = len(inputs), len(outputs)
        call.inputs, call.outputs = pointers(inputs), pointers(outputs)
        call.params, call.params_size = ctypes.addressof(blob), 48
        call.backend, call.kernel = b"cuda", kernel.encode() if kernel else None
        info = PlanInfo(ctypes.sizeof(PlanInfo))
        self.need(self.lib.nw_plan_get(self.runtime, ctypes.byref(call), None, ctypes.byref(info), ctypes.byref(self.error)))
        workspace = torch.empty(max(info.workspace_size, 1), dtype=torch.uint8, device="cuda")
        call.workspace, call.workspace_size = workspace.data_ptr(), info.workspace_size
        keep.extend([blob, workspace])

        def run():
            call.stream = torch.cuda.current_stream().cuda_stream
            self.need(self.lib.nw_run(self.runtime, ctypes.byref(call), ctypes.byref(self.error)))

        run.keep = keep
        return run, info.kernel.decode()


def graph_us(functions, launches, replays=7):
    """Median time of a call. Short calls are repeated within the graph, whose own start takes some microseconds."""
    if launches < 48:
        estimate = graph_us_of(functions, launches, 1)
        launches = max(launches, min(48, int(4000 / estimate)))
    return graph_us_of(functions, launches, replays)


def graph_us_of(functions, launches, replays):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for f in functions:
            f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = [functions[i % len(functions)]() for i in range(launches)]
    times = []
    for _ in range(replays + 2):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) * 1e3 / launches)
    del kept
    return statistics.median(times[2:])


H, B, S = torch.float16, torch.bfloat16, torch.float32
NAMED = (("f32", S), ("f16", H))
# name, dtype, (N, C, L, O, K), (stride, dilation, groups, pad_left = pad_right) or causal, least ratio
CASES = [
    ("1 channel K4", S, (1, 1, 1 << 24, 1, 4), (1, 1, 1, 0), 3.9),
    ("1 channel K31", S, (1, 1, 1 << 24, 1, 31), (1, 1, 1, 15), 8),
    ("1 channel K127", S, (1, 1, 1 << 24, 1, 127), (1, 1, 1, 63), 11),
    ("depthwise f32", S, (8, 2048, 2048, 2048, 4), (1, 1, 2048, 3), 5),
    ("depthwise f16", H, (8, 2048, 2048, 2048, 4), (1, 1, 2048, 3), 5.8),
    ("dense f16 256", H, (16, 256, 4096, 256, 3), (1, 1, 1, 1), 2.2),
    ("dense f16 80-384", H, (32, 80, 3000, 384, 3), (1, 1, 1, 1), 3.2),
    ("dense bf16 512", B, (64, 512, 1024, 512, 5), (1, 1, 1, 2), 1.5),
    ("dense f32 256", S, (16, 256, 4096, 256, 3), (1, 1, 1, 1), 2.5),
    ("dense f32 80-384", S, (32, 80, 3000, 384, 3), (1, 1, 1, 1), 2.2),
    ("dense f32 512", S, (64, 512, 1024, 512, 5), (1, 1, 1, 2), 2.7),
    ("awkward L odd", H, (16, 256, 4097, 256, 3), (1, 1, 1, 1), 1),
    ("awkward C17", H, (16, 17, 4096, 256, 3), (1, 1, 1, 1), 1),
    ("awkward K33", H, (16, 256, 2048, 256, 33), (1, 1, 1, 16), 1),
    ("awkward stride 2", H, (16, 256, 4096, 256, 3), (2, 1, 1, 1), 1),
    ("awkward dilation 3", H, (16, 256, 4096, 256, 3), (1, 3, 1, 3), 1),
    ("awkward groups 4", H, (16, 256, 4096, 256, 3), (1, 1, 4, 1), 1),
    ("awkward transposed x", H, (16, 256, 4096, 256, 3), (1, 1, 1, 1), 1),
    # A matrix times a few vectors, and steps of a stream: torch's better one of conv1d and, for K1, linear.
    *((f"few K1 L{n} {name}", dtype, (1, 256, n, 512, 1), (1, 1, 1, 0), 1) for name, dtype in NAMED for n in (1, 2, 4, 8, 16)),
    *((f"few K5 L{n} {name}", dtype, (1, 512, n + 4, 512, 5), (1, 1, 1, 0), 1) for name, dtype in NAMED for n in (1, 4)),
]
BACKWARD = [
    "depthwise f32",
    "depthwise f16",
    "dense f16 256",
    "dense f16 80-384",
    "dense bf16 512",
    "dense f32 256",
    "dense f32 80-384",
    "dense f32 512",
]


def tensors(name, dtype, sizes, how, sets):
    n, c, length, o, k = sizes
    x = [
        torch.randn(n, length, c, device="cuda").to(dtype).transpose(1, 2)
        if "transposed" in name
        else torch.randn(n, c, length, device="cuda").to(dtype)
        for _ in range(sets)
    ]
    w = (torch.randn(o, c // how[2], k, device="cuda") / math.sqrt(c // how[2] * k)).to(dtype)
    return x, w


def difference(got, reference):
    return ((got.double() - reference.double()).norm() / reference.double().norm()).item()


def forward(narrows, case, kernel):
    name, dtype, sizes, (stride, dilation, groups, pad), least = case
    n, c, length, o, k = sizes
    causal = "depthwise" in name
    right = 0 if causal else pad
    out_length = (length + pad + right - dilation * (k - 1) - 1) // stride + 1
    sets = max(2, min(4, (400 << 20) // (n * (c * length + o * out_length) * dtype.itemsize) + 1))
    x, w = tensors(name, dtype, sizes, case[3], sets)
    y = [torch.full((n, o, out_length), math.nan, device="cuda", dtype=dtype) for _ in range(sets)]
    calls = [
        narrows.prepare("conv1d", [a, w], [b], (stride, dilation, groups, pad, right, 0), kernel) for a, b in zip(x, y, strict=True)
    ]
    calls[0][0]()
    expected = F.conv1d(x[0].float(), w.float(), stride=stride, dilation=dilation, groups=groups, padding=pad)[..., :out_length]
    error = difference(y[0], expected)
    del expected
    ours = graph_us([f for f, _ in calls], 2 * sets)
    theirs = graph_us(
        [lambda a=a: F.conv1d(a, w, stride=stride, dilation=dilation, groups=groups, padding=pad) for a in x], 2 * sets
    )
    if "few" in name and k == 1:
        rows, matrix = [a[0].T.contiguous() for a in x], w[:, :, 0].contiguous()
        theirs = min(theirs, graph_us([lambda a=a: F.linear(a, matrix) for a in rows], 2 * sets))
    flops = 2 * n * o * out_length * (c // groups) * k
    return report(name, calls[0][1], ours, theirs, least, error, flops)


def backward(narrows, case, kernel):
    name, dtype, sizes, (_stride, _dilation, groups, pad), _ = case
    n, c, length, o, k = sizes
    right = 0 if "depthwise" in name else pad
    sets = 2
    x, w = tensors(name, dtype, sizes, case[3], sets)
    out_length = length + 2 * pad - k + 1
    ours_length = length + pad + right - k + 1
    gy = [torch.randn(n, o, out_length, device="cuda").to(dtype) for _ in range(sets)]
    if ours_length != out_length:  # torch pads both sides: the last gradients are zero for the same work
        for g in gy:
            g[..., ours_length:] = 0
    mine = [g[..., :ours_length].contiguous() for g in gy]
    gx = [torch.full_like(a, math.nan) for a in x]
    gw = [torch.full_like(w, math.nan) for _ in x]
    calls = [
        narrows.prepare("conv1d_backward", [g, a, w, None, None], [p, q, None], (1, 1, groups, pad, right, 0), kernel)
        for g, a, p, q in zip(mine, x, gx, gw, strict=True)
    ]
    calls[0][0]()

    def theirs_of(g, a):
        return torch.ops.aten.convolution_backward(g, a, w, None, [1], [pad], [1], False, [0], groups, [True, True, False])

    expected = torch.ops.aten.convolution_backward(
        gy[0].float(), x[0].float(), w.float(), None, [1], [pad], [1], False, [0], groups, [True, True, False]
    )
    error = max(difference(gx[0], expected[0]), difference(gw[0], expected[1]))
    del expected
    ours = graph_us([f for f, _ in calls], 2 * sets)
    theirs = graph_us([lambda g=g, a=a: theirs_of(g, a) for g, a in zip(gy, x, strict=True)], 2 * sets)
    return report("backward " + name, calls[0][1], ours, theirs, 1.2, error, 4 * n * o * ours_length * (c // groups) * k)


def report(name, kernel, ours, theirs, least, error, flops):
    """Whether the result is right."""
    right = error < 1e-2  # false for NaN
    print(
        f"{name:28s} {kernel:11s} {ours:9.1f} us  torch {theirs:9.1f} us  ratio {theirs / ours:6.2f} of {least:4.1f}"
        f"  {flops / ours * 1e-6:7.1f} TFLOP/s  error {error:.1e}{'' if right else '  WRONG'}",
        flush=True,
    )
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", default="build/cuda/lib/libnarrows.so")
    parser.add_argument("--only", default="")
    parser.add_argument("--kernel")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    narrows = Narrows(options.lib)
    wrong = 0
    for case in CASES:
        for run, name in ((forward, case[0]), (backward, "backward " + case[0])):
            if (run is backward and case[0] not in BACKWARD) or not re.search(options.only, name):
                continue
            try:
                wrong += not run(narrows, case, options.kernel)
            except RuntimeError as error:
                wrong += options.kernel is None  # a variant may decline the row
                print(f"{name:28s} {error}", flush=True)
            torch.cuda.empty_cache()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
