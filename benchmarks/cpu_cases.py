# SPDX-License-Identifier: Apache-2.0
"""The cases of the cpu backend, as tables: each row of the goals, with its figure. Peer: torch. Reference: float64, by torch's functions for element-wise
ones and by the sums written out below for conv1d.

Where torch takes an output (`out=`) both sides get one; where it does not, both allocate, and both by torch's allocator."""

import functools
import itertools

import harness
import torch
import torch.nn.functional as F
from harness import Case, Goal, Problem

import narrows

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32}
FLOATS = "f32 f64 f16 bf16".split()
K, M = 1 << 10, 1 << 20
CACHE = harness.last_level_cache()  # bytes: a case that touches more comes from memory

NAMES = {"torch": torch, "narrows": narrows, "F": F}


def size_name(n):
    return f"{n // M} M" if n >= M else f"{n // K} K"


def epsilon(dtype):
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def random(seed, dtype, *shape, low=-3.0, high=3.0):
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return torch.randint(-1000, 1000, shape, generator=generator, dtype=dtype)
    return (torch.rand(*shape, generator=generator, dtype=torch.float64) * (high - low) + low).to(dtype)


# ---- element-wise ----

# Bounds in units of the last place, as in tests/conformance/elementwise/elementwise_cases.cpp. In float64 the reference rounds as well: one unit more, and
# eight of gelu, whose erfc makes much of a rounded argument.
ULPS = {"exp": 4, "log": 4, "tanh": 4, "sigmoid": 6, "gelu": 6, "erf": 4, "sin": 4, "pow": 4}
DOMAIN = {"log": (0.01, 50.0), "sqrt": (0.0, 50.0), "pow": (0.1, 8.0)}
# narrows' name: the peer's statement and how many operands
PEERS = {
    "add": ("torch.add(a, b, out=y)", 2), "subtract": ("torch.sub(a, b, out=y)", 2), "multiply": ("torch.mul(a, b, out=y)", 2),
    "divide": ("torch.div(a, b, out=y)", 2), "maximum": ("torch.maximum(a, b, out=y)", 2), "pow": ("torch.pow(a, b, out=y)", 2),
    "negative": ("torch.neg(a, out=y)", 1), "abs": ("torch.abs(a, out=y)", 1), "sqrt": ("torch.sqrt(a, out=y)", 1),
    "exp": ("torch.exp(a, out=y)", 1), "log": ("torch.log(a, out=y)", 1), "tanh": ("torch.tanh(a, out=y)", 1),
    "sigmoid": ("torch.sigmoid(a, out=y)", 1), "erf": ("torch.erf(a, out=y)", 1), "sin": ("torch.sin(a, out=y)", 1),
    "gelu": ("torch._C._nn.gelu(a, out=y)", 1), "relu": ("torch.clamp_min(a, 0, out=y)", 1),
}  # fmt: skip


# Where torch's formula cancels, and would be no reference in float64.
EXACT = {"gelu": "torch.special.erfc(a * -(0.5 ** 0.5)) * a / 2"}


def exact_elementwise(function, dtype, operands):
    """The statement of the peer, in float64, or in the integers themselves; and the bound."""
    wide = [t.double() if dtype.is_floating_point else t for t in operands]
    names = {**NAMES, **dict(zip("ab", wide, strict=False)), "y": torch.empty(0, dtype=wide[0].dtype)}
    exact = eval(EXACT.get(function, PEERS[function][0]), names).double()
    ulps = ULPS.get(function, 0.51) if dtype.itemsize > 2 else 0.75
    if dtype == torch.float64:
        ulps += 8 if function == "gelu" else 1
    smallest = torch.finfo(dtype).smallest_normal if dtype.is_floating_point else 0.5
    return exact, ulps * epsilon(dtype) * exact.abs() + smallest


def operand(function, seed, dtype, *shape):
    low, high = DOMAIN.get(function, (-3.0, 3.0)) if seed == 1 else (0.25, 2.0) if function == "divide" else (-2.0, 2.0)
    return random(seed, dtype, *shape, low=low, high=high)


def contiguous(function, dtype_name, n):
    """Beyond 1 M elements the operands repeat themselves, and so does the result."""
    dtype, operands = DTYPES[dtype_name], PEERS[function][1]
    parts = [operand(function, seed, dtype, min(n, M)) for seed in range(1, operands + 1)]
    exact, bound = exact_elementwise(function, dtype, parts)
    tensors = [p.repeat(max(1, n // M)) for p in parts]
    y = torch.empty_like(tensors[0])
    names = {**NAMES, **dict(zip("ab", tensors, strict=False)), "y": y, "outputs": [y]}
    return Problem(names, [exact], [bound], nbytes=(operands + 1) * n * dtype.itemsize, operations=n)


def elementwise_case(function, dtype_name, n, family, small, large):
    operands = PEERS[function][1]
    beyond = (operands + 1) * n * DTYPES[dtype_name].itemsize > CACHE
    goals = [Goal("ratio", small if n <= 4 * K else large)]
    if family == PLAIN and beyond:
        goals.append(Goal("copy", 0.95))
    if family == MATHS and n >= 4 * M:
        goals.append(Goal("scaling", 1.8))
    ours = f"narrows.{function}({', '.join('ab'[:operands])}, out=y)"
    make = functools.partial(contiguous, function, dtype_name, n)
    line, column = f"{function} {dtype_name}", size_name(n)
    return Case(f"{line} {column}", family, ours, PEERS[function][0], make, tuple(goals), beyond, line=line, column=column)


PLAIN, MATHS, LAYOUT = "element-wise, contiguous", "element-wise, functions", "element-wise, broadcast and strided"


def contiguous_cases():
    sizes = [K, 4 * K, 16 * K, 64 * K, 256 * K, M, 4 * M, 16 * M, 64 * M]
    table = [
        ("add", sizes),
        ("negative", sizes),
        *((f, [4 * K, 256 * K, 16 * M]) for f in ("multiply", "divide", "maximum", "abs", "sqrt", "relu")),
    ]
    for (function, some), dtype in itertools.product(table, DTYPES):
        if dtype == "i32" and function in ("divide", "sqrt"):
            continue  # torch's give floating point
        yield from (elementwise_case(function, dtype, n, PLAIN, 1.5, 1.0) for n in some)


def function_cases():
    for function, dtype, n in itertools.product(ULPS, FLOATS, [4 * K, 256 * K, 4 * M]):
        yield elementwise_case(function, dtype, n, MATHS, 1.0, 1.0)


# name: the two operands of an output of n by n
LAYOUTS = {
    "row": lambda make, n: (make(1, n, n), make(2, n)),
    "column": lambda make, n: (make(1, n, n), make(2, n, 1)),
    "outer": lambda make, n: (make(1, n), make(2, n, 1)),
    "transposed": lambda make, n: (make(1, n, n).t(), make(2, n, n)),
    "both transposed, out not": lambda make, n: (make(1, n, n).t(), make(2, n, n).t()),
    "every second": lambda make, n: (make(1, n, 2 * n)[:, ::2], make(2, n, 2 * n)[:, ::2]),
    "a window": lambda make, n: (make(1, n + 8, n + 8)[4:-4, 4:-4], make(2, n, n)),
}


def laid_out(layout, dtype_name, n):
    dtype = DTYPES[dtype_name]
    a, b = LAYOUTS[layout](lambda seed, *shape: operand("add", seed, dtype, *shape), n)
    exact, bound = exact_elementwise("add", dtype, [a, b])
    y = torch.empty(n, n, dtype=dtype)
    nbytes = sum(t.untyped_storage().nbytes() for t in (a, b, y))
    return Problem({**NAMES, "a": a, "b": b, "y": y, "outputs": [y]}, [exact], [bound], nbytes=nbytes, operations=n * n)


def layout_cases():
    statements, goals = ("narrows.add(a, b, out=y)", "torch.add(a, b, out=y)"), (Goal("ratio", 1.2),)
    for layout, dtype, n in itertools.product(LAYOUTS, DTYPES, [64, 512, 4096]):
        line, column = f"add {dtype}, {layout}", f"{n} x {n}"
        make = functools.partial(laid_out, layout, dtype, n)
        yield Case(f"{line} {column}", LAYOUT, *statements, make, goals, line=line, column=column)


# ---- conv1d ----


class Shape:
    """B batch, C channels, O filters, L length, K taps; the padding is the same on both sides."""

    def __init__(self, B, C, O, L, K, stride=1, dilation=1, groups=1, padding=0):  # noqa: E741
        self.x, self.w = (B, C, L), (O, C // groups, K)
        self.stride, self.dilation, self.groups, self.padding = stride, dilation, groups, padding
        self.outputs = (L + 2 * padding - dilation * (K - 1) - 1) // stride + 1
        self.y = (B, O, self.outputs)
        self.operations = 2.0 * B * O * (C // groups) * K * self.outputs

    def params(self):
        return {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}

    def taps(self, x):
        """For each tap the part of padded x, (B, groups, C / groups, outputs), that it meets."""
        padded = F.pad(x, (self.padding, self.padding))
        for k in range(self.w[2]):
            start = k * self.dilation
            part = padded[:, :, start : start + self.stride * (self.outputs - 1) + 1 : self.stride]
            yield k, part.reshape(self.x[0], self.groups, -1, self.outputs)

    def by_group(self, y):
        return y.reshape(self.x[0], self.groups, -1, self.outputs)

    def exact(self, x, w):
        y = torch.zeros(self.y, dtype=torch.float64)
        filters = w.double().reshape(self.groups, -1, *self.w[1:])
        for k, part in self.taps(x.double()):
            self.by_group(y).add_(filters[..., k] @ part)
        return y

    def exact_backward(self, x, w, grad):
        filters, g = w.double().reshape(self.groups, -1, *self.w[1:]), self.by_group(grad.double())
        padded = torch.zeros(*self.x[:2], self.x[2] + 2 * self.padding, dtype=torch.float64)
        grad_w = torch.zeros_like(filters)
        for k, part in self.taps(x.double()):
            grad_w[..., k] = (g @ part.mT).sum(0)
            start = k * self.dilation
            where = padded[:, :, start : start + self.stride * (self.outputs - 1) + 1 : self.stride]
            where.add_((filters[..., k].mT @ g).reshape(where.shape))
        return padded[:, :, self.padding : self.padding + self.x[2]], grad_w.reshape(self.w), grad.double().sum((0, 2))


def sum_bound(dtype, exact, terms, magnitude):
    """Sums of `terms` products in f32 or f64 (tests/conformance/bound.h), then one rounding to the dtype."""
    accumulator = epsilon(torch.float64 if dtype == torch.float64 else torch.float32)
    return accumulator * terms**0.5 * magnitude + epsilon(dtype) * exact.abs() + torch.finfo(dtype).smallest_normal


def forward(shape, dtype_name):
    dtype = DTYPES[dtype_name]
    x, w = (random(seed, dtype, *s, low=-1, high=1) for seed, s in ((1, shape.x), (2, shape.w)))
    exact, terms = shape.exact(x, w), shape.w[1] * shape.w[2]
    names = {**NAMES, "x": x, "w": w, "params": {**shape.params(), "padding": shape.padding}}
    nbytes = (x.numel() + w.numel() + exact.numel()) * dtype.itemsize
    return Problem(names, [exact], [sum_bound(dtype, exact, terms, terms / 2)], nbytes, shape.operations)


def backward(shape, dtype_name):
    dtype = DTYPES[dtype_name]
    x, w, grad = (random(seed, dtype, *s, low=-1, high=1) for seed, s in ((1, shape.x), (2, shape.w), (3, shape.y)))
    exact = shape.exact_backward(x, w, grad)
    in_x, in_w = shape.y[1] // shape.groups * shape.w[2], shape.y[0] * shape.y[2]
    bounds = [sum_bound(dtype, e, terms, terms / 2) for e, terms in zip(exact, (in_x, in_w, in_w), strict=True)]
    ours = narrows.op("conv1d_backward", pad_left=shape.padding, pad_right=shape.padding, **shape.params())
    names = {**NAMES, "x": x, "w": w, "g": grad, "bias": torch.zeros(shape.y[1], dtype=dtype), "conv_backward": ours,
             "theirs": torch.ops.aten.convolution_backward,
             "params": ([shape.y[1]], [shape.stride], [shape.padding], [shape.dilation], False, [0], shape.groups, [True] * 3)}  # fmt: skip
    return Problem(
        names, list(exact), bounds, (2 * x.numel() + 2 * w.numel() + grad.numel()) * dtype.itemsize, 2 * shape.operations
    )


# name, shape, {dtype: goal}, does arithmetic bound it?
CONV1D = [
    ("1 channel L 4 M K 4", Shape(1, 1, 1, 4 * M, 4), {"f32": 3.0}, False),
    ("1 channel L 4 M K 31", Shape(1, 1, 1, 4 * M, 31), {"f32": 3.0}, True),
    ("1 channel L 4 M K 127", Shape(1, 1, 1, 4 * M, 127), {"f32": 3.0}, True),
    ("depthwise B4 C256 L4096 K4", Shape(4, 256, 256, 4096, 4, groups=256, padding=3), {"f32": 3.0, "f16": 3.0, "bf16": 3.0}, False),
    ("B4 C64-64 L4096 K3", Shape(4, 64, 64, 4096, 3, padding=1), {"f32": 1.0, "f16": 1.5, "bf16": 1.5}, True),
    ("B8 C80-384 L1500 K3", Shape(8, 80, 384, 1500, 3, padding=1), {"f32": 1.0, "f16": 1.5, "bf16": 1.5}, True),
    ("B1 C512-512 L256 K5", Shape(1, 512, 512, 256, 5, padding=2), {"f32": 1.0, "f16": 1.5, "bf16": 1.5}, True),
    ("B4 C64-64 L4096 K3 stride 2", Shape(4, 64, 64, 4096, 3, stride=2, padding=1), {"f32": 1.0}, True),
    ("B8 C384-384 L1500 K3 stride 2", Shape(8, 384, 384, 1500, 3, stride=2, padding=1), {"f32": 1.0}, True),
    ("B4 C64-64 L4096 K3 dilation 4", Shape(4, 64, 64, 4096, 3, dilation=4, padding=4), {"f32": 1.0}, True),
    ("B4 C64-64 L4096 K3 groups 4", Shape(4, 64, 64, 4096, 3, groups=4, padding=1), {"f32": 1.0}, True),
    ("B4 C64-64 L4096 K3 f64", Shape(4, 64, 64, 4096, 3, padding=1), {"f64": 1.0}, True),
]  # fmt: skip


def conv1d_cases():
    for direction in ("conv1d", "conv1d backward"):
        for name, shape, goals, compute in CONV1D:
            for dtype, least in goals.items():
                wanted = (Goal("ratio", least), *([Goal("scaling", 1.8)] if compute else []))
                title = f"{direction} {name.removesuffix(' f64')} {dtype}"
                if direction == "conv1d":
                    make = functools.partial(forward, shape, dtype)
                    yield Case(title, direction, "narrows.conv1d(x, w, **params)", "F.conv1d(x, w, **params)", make, wanted)
                else:
                    make = functools.partial(backward, shape, dtype)
                    yield Case(title, direction, "conv_backward(g, x, w, bias)", "theirs(g, x, w, *params)", make, wanted)


# Streaming steps and a matrix times a few vectors: `outputs` of each filter.
FEW = [
    *((f"C256-512 K1, {outputs} outputs", Shape(1, 256, 512, outputs, 1)) for outputs in (1, 2, 4, 8, 16)),
    *((f"C512-512 K5, {outputs} outputs", Shape(1, 512, 512, outputs + 4, 5)) for outputs in (1, 4)),
    *(
        (f"C512-{filters} K1, 1 output of each of {n}", Shape(n, 512, filters, 1, 1))
        for filters, n in ((1, 1), (1, 64), (4, 16), (256, 64))
    ),
    ("C4096-3 K1, 1 output", Shape(1, 4096, 3, 1, 1)),
    ("C256-1 K1, 64 outputs", Shape(1, 256, 1, 64, 1)),
    ("depthwise C512 K4, 1 output", Shape(1, 512, 512, 4, 4, groups=512)),
]


def few_by_vectors(shape, dtype_name):
    """The same with what F.linear takes: a row for each output."""
    problem = forward(shape, dtype_name)
    x, w = problem.names["x"], problem.names["w"]
    problem.names.update(rows=x.transpose(1, 2).contiguous(), matrix=w[:, :, 0].contiguous())
    return problem


def few_cases():
    family, ours, goals = "conv1d, few outputs", "narrows.conv1d(x, w, **params)", (Goal("ratio", 1.0),)
    for (name, shape), dtype in itertools.product(FEW, FLOATS):
        make = functools.partial(forward, shape, dtype)
        yield Case(f"conv1d {name} {dtype}", family, ours, "F.conv1d(x, w, **params)", make, goals)
        if shape.w[2] == 1:
            make = functools.partial(few_by_vectors, shape, dtype)
            yield Case(f"conv1d {name} {dtype}, F.linear", family, ours, "F.linear(rows, matrix).transpose(1, 2)", make, goals)


# ---- LLTM ----


def cell(x, w, b, h, c):
    """The tutorial's, in torch's functions."""
    gates = F.linear(torch.cat([h, x], dim=1), w, b).chunk(3, dim=1)
    new_cell = c + F.elu(gates[2]) * torch.sigmoid(gates[0])
    return torch.tanh(new_cell) * torch.sigmoid(gates[1]), new_cell


# What is timed: statements with "cell" for the cell of either side. The graph that `backward` works on was made before.
PARTS = {
    "forward": "cell(*inputs)",
    "backward": "grad(outputs_of_cell, inputs, incoming, retain_graph=True)",
    "forward and backward": "grad(cell(*inputs), inputs, incoming)",
}


def lltm(part, shape, dtype_name):
    batch, features, states = shape
    dtype, training = DTYPES[dtype_name], part != "forward"
    shapes = [(batch, features), (3 * states, states + features), (3 * states,), (batch, states), (batch, states)]
    inputs = [random(seed, dtype, *s, low=-1, high=1) for seed, s in enumerate(shapes)]
    inputs[1] /= (states + features) ** 0.5
    incoming = [random(seed, dtype, batch, states, low=-1, high=1) for seed in (8, 9)]
    wide = [t.double().requires_grad_(training) for t in inputs]
    exact = cell(*wide)
    if training:
        exact = torch.autograd.grad(exact, wide, [g.double() for g in incoming])
    # Activations pass errors on: the bound is relative to the largest of a tensor. Sums of S + F, 3 S or B terms of order 1 come before them.
    bound = [8 * epsilon(dtype) * (states + features) ** 0.5 * max(1.0, float(e.abs().max())) for e in exact]
    inputs = [t.requires_grad_(training) for t in inputs]
    names = {**NAMES, "lltm": narrows.lltm, "cell": cell, "inputs": inputs, "incoming": incoming, "grad": torch.autograd.grad}
    if part == "backward":
        names.update(outputs_of_lltm=narrows.lltm(*inputs), outputs_of_cell=cell(*inputs))
    products = {"forward": 1, "backward": 2, "forward and backward": 3}[part]
    operations = products * 2.0 * batch * 3 * states * (states + features)
    return Problem(names, list(exact), bound, products * inputs[1].nbytes, operations)


def lltm_cases():
    shapes = [((16, 32, 128), 2.5, False), ((64, 256, 256), 1.5, True), ((256, 1024, 1024), 1.0, True)]
    for part, dtype, (shape, least, compute) in itertools.product(PARTS, ("f32", "f64"), shapes):
        goals = (Goal("ratio", least if dtype == "f32" else 1.0), *([Goal("scaling", 1.8)] if compute else []))
        title = f"LLTM {part} B{shape[0]} F{shape[1]} S{shape[2]} {dtype}"
        ours, make = PARTS[part].replace("cell", "lltm"), functools.partial(lltm, part, shape, dtype)
        yield Case(title, "LLTM", ours, PARTS[part], make, goals, gradients=part != "forward")


# ---- LLTM over a sequence, beside an LSTM: 3 gates, and torch's 4 ----

SEQUENCES = {
    "forward": ("narrows.ops.lltm_sequence(*inputs)[:1]", "lstm(inputs[0])[:1]"),
    "forward and backward": (
        "grad(narrows.ops.lltm_sequence(*inputs)[0], inputs[:3], incoming)[:1]",
        "grad(lstm(inputs[0])[0], (inputs[0], lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0), incoming)[:1]",
    ),
}


def sequence(part, shape, dtype_name):
    steps, batch, features, states = shape
    dtype, training = DTYPES[dtype_name], part != "forward"
    shapes = [(steps, batch, features), (3 * states, states + features), (3 * states,), (batch, states), (batch, states)]
    inputs = [random(seed, dtype, *s, low=-1, high=1) for seed, s in enumerate(shapes)]
    inputs[1] /= (states + features) ** 0.5
    incoming = random(8, dtype, steps, batch, states, low=-1, high=1)
    x, w, b, h, c = (t.double().requires_grad_(training) for t in inputs)
    each = []
    for step in x:
        h, c = cell(step, w, b, h, c)
        each.append(h)
    exact = [torch.stack(each)]
    if training:
        exact = torch.autograd.grad(exact[0], (x,), incoming.double())  # of all that is made, what both sides have
    # Errors go from step to step, and fade with the gates.
    bound = [64 * epsilon(dtype) * (states + features) ** 0.5 * max(1.0, float(e.detach().abs().max())) for e in exact]
    inputs = [t.requires_grad_(training) for t in inputs]
    lstm = torch.nn.LSTM(features, states, dtype=dtype).requires_grad_(training)
    names = {**NAMES, "inputs": inputs, "incoming": incoming, "lstm": lstm, "grad": torch.autograd.grad}
    products = 3 if training else 1
    operations = products * 2.0 * steps * batch * 3 * states * (states + features)
    return Problem(names, [e.detach() for e in exact], bound, products * (inputs[0].nbytes + inputs[1].nbytes), operations)


def sequence_cases():
    shapes = [((128, 16, 32, 128), 2.0), ((64, 256, 256, 256), 1.2)]
    for (part, (ours, theirs)), (shape, least) in itertools.product(SEQUENCES.items(), shapes):
        title = "LLTM sequence {} T{} B{} F{} S{} f32".format(part, *shape)
        make = functools.partial(sequence, part, shape, "f32")
        goals = (Goal("ratio", least),) if part == "forward" else ()
        yield Case(title, "LLTM", ours, theirs, make, goals, gradients=part != "forward")


# ---- the matrix product inside ----


def product(n, dtype_name):
    """A conv1d of one tap is the product of w (n, n) and x (n, n); the packing of both is in it."""
    dtype = DTYPES[dtype_name]
    x, w = (random(seed, dtype, n, n, low=-1, high=1) for seed in (1, 2))
    exact = w.double() @ x.double()
    y = torch.empty(n, n, dtype=dtype)
    names = {**NAMES, "x": x, "w": w, "filters": w.view(n, n, 1), "y": y, "outputs": [y]}
    return Problem(names, [exact], [sum_bound(dtype, exact, n, n / 2)], 3 * n * n * dtype.itemsize, 2.0 * n**3)


def product_cases():
    statements, goals = ("narrows.conv1d(x, filters, out=y)", "torch.mm(w, x, out=y)"), (Goal("ratio", 0.9), Goal("scaling", 1.8))
    for n, dtype in ((256, "f32"), (1024, "f32"), (2048, "f32"), (1024, "f64")):
        make = functools.partial(product, n, dtype)
        wanted = goals if (n, dtype) == (1024, "f32") else ()
        yield Case(f"product {n} x {n} x {n} {dtype}", "GEMM inside", *statements, make, wanted)


# ---- the later ops, of one tensor ----

# name: narrows' statement, torch's, and the exact result of a in float64
LATER = {
    # scripts/new_op.py adds a row for each new op.
}  # LATER


def later(exact, dtype_name, n):
    dtype = DTYPES[dtype_name]
    a = random(1, dtype, n)
    expected = eval(exact, {**NAMES, "a": a.double()})
    bound = epsilon(dtype) * expected.abs() + torch.finfo(dtype).smallest_normal
    return Problem({**NAMES, "a": a}, [expected], [bound], nbytes=2 * n * dtype.itemsize, operations=n)


def later_cases():
    for (name, (ours, theirs, exact)), dtype, n in itertools.product(LATER.items(), FLOATS, [4 * K, 4 * M]):
        yield Case(
            f"{name} {dtype} {size_name(n)}", name, ours, theirs, functools.partial(later, exact, dtype, n), (Goal("ratio", 1.0),)
        )


def cases():
    products = (conv1d_cases, few_cases, lltm_cases, sequence_cases, product_cases)
    for some in (contiguous_cases, function_cases, layout_cases, *products, later_cases):
        yield from some()
