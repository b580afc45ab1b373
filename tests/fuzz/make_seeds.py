# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/seeds: a few inputs for each fuzz target, from which libFuzzer goes on, and which run as the tests fuzz.<target>.

The layout of an input is said at the head of the target's source: change that, and change and run this. The numbers called random
are the same on every run.
"""

import pathlib
import random
import re
import struct

SEEDS = pathlib.Path(__file__).parent / "seeds"
LIST = pathlib.Path(__file__).parents[2] / "core" / "ops" / "ops.inc"
OPS = re.findall(r"^NARROWS_OP\((\w+)\)", LIST.read_text(), re.M)
F32, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64, BOOL = range(13)


def write(target: str, name: str, data: bytes) -> None:
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


# ---- params: op, dtype, shapes, absent, kernel, contents, flags, blob ----


def conv1d(stride=0, dilation=0, groups=0, left=0, right=0, mode=0) -> bytes:
    return struct.pack("<6q", stride, dilation, groups, left, right, mode)


def elementwise(function, out_dtype=0, alpha=0.0, b_real=0.0, b_int=0, c_real=0.0, c_int=0) -> bytes:
    return struct.pack("<iiddqdq", function, out_dtype, alpha, b_real, b_int, c_real, c_int)


def params() -> None:
    def seed(name, op, dtype, blob, shapes=0, absent=0, kernel=0):
        write("params", name, bytes([OPS.index(op), dtype, shapes, absent, kernel, 1, 0]) + blob)

    for op in ("conv1d", "conv1d_backward"):
        seed(f"{op}_signal", op, F32, conv1d(right=3))
        seed(f"{op}_groups", op, F64, conv1d(2, 2, 2, 3, 1), shapes=5)
        seed(f"{op}_depthwise", op, BF16, conv1d(1, 1, 4, 2), shapes=8)
        seed(f"{op}_huge", op, F32, conv1d(2**62, 2**62, 1, 2**62, 2**62), shapes=2)
        seed(f"{op}_short", op, F16, conv1d(3, 2)[:9], shapes=1)
        seed(f"{op}_long", op, F32, conv1d(1) + bytes(8) + b"\1")
    seed("elementwise_add", "elementwise", F32, elementwise(47))
    seed("elementwise_number", "elementwise", I16, elementwise(49, b_int=3), absent=6)
    seed("elementwise_real", "elementwise", F16, elementwise(51, b_real=0.5), absent=6)
    seed("elementwise_cast", "elementwise", F64, elementwise(46, 5), absent=6)
    seed("elementwise_elu", "elementwise", F32, elementwise(29, alpha=1.25), absent=6)
    seed("elementwise_where", "elementwise", U8, elementwise(75), shapes=3)
    seed("elementwise_clamp", "elementwise", BF16, elementwise(76, c_real=2), shapes=1, absent=4)
    seed("elementwise_logical", "elementwise", BOOL, elementwise(67), absent=4)
    seed("elementwise_backward_mul", "elementwise_backward", F32, elementwise(49), shapes=2, absent=8)
    seed("elementwise_backward_tanh", "elementwise_backward", F64, elementwise(23), absent=12)
    seed("lltm", "lltm", F32, b"")
    seed("lltm_byte", "lltm", F32, b"\1")
    seed("lltm_backward", "lltm_backward", F64, bytes(3))
    for op in OPS:  # of those that have an oracle of their own, tests/fuzz/ops
        if not op.startswith(("conv1d", "elementwise")) and op not in ("lltm", "lltm_backward"):
            seed(op, op, F32, b"", shapes=5)
            seed(f"{op}_byte", op, F64, b"\1", shapes=3)


# ---- tensors: as make() of tensors.cpp reads it; the layouts and bends are random ----


def tensors() -> None:
    for number, op in enumerate(OPS):
        for variant in range(5):
            rng = random.Random(f"{op} {variant}")
            dtype = rng.randrange(4)
            if op.startswith("conv1d"):
                sizes = bytes([2, rng.randrange(4), 9 + rng.randrange(30), rng.randrange(6), 2, 2, rng.randrange(3), 0, 1, 2, 2])
            elif op.startswith("elementwise"):
                function = rng.randrange(46, 58) if variant % 2 else rng.randrange(40)
                square = rng.choice([0, 200])
                sizes = bytes([function, 2, 0, 3, 0, 33, square, 0, rng.choice([0, 7, 31]), 0])
            elif op in ("lltm", "lltm_backward"):
                sizes = bytes([5, 7, 6, variant % 2])
            else:
                sizes = bytes(2 + rng.randrange(6) for _ in range(6))
            layouts = bytes(rng.randrange(256) if variant else 0 for _ in range(3 + 4 * 15))
            write("tensors", f"{op}_{variant}", bytes([number, dtype, variant]) + sizes + layouts)
    # neg of f32(5, 5), the output in the memory of the input: exactly there, transposed, and an element further.
    for name, share in (("in_place", b"\xc1\0"), ("in_place_transposed", b"\xc8\0"), ("in_place_shifted", b"\xc5\0\1")):
        sizes = bytes([0, 2, 0, 5, 0, 5, 200, 0, 0, 0])
        write("tensors", name, bytes([2, 0, 1]) + sizes + bytes(3) + bytes(6) + b"\0" + share)


# ---- elf: a size if the first byte is odd, then (offset, width, bytes) ----


def elf() -> None:
    def replace(offset: int, value: int, width: int = 8) -> bytes:
        return struct.pack("<HB", offset, {1: 0, 2: 1, 4: 2, 8: 3}[width]) + value.to_bytes(width, "little")

    whole = b"\0"
    write("elf", "whole", whole)
    for size in (0, 63, 64, 100, 288, 400, 600):
        write("elf", f"cut_at_{size}", b"\1" + struct.pack("<H", size))
    write("elf", "extended", b"\1" + struct.pack("<H", 4000))
    header = {"class": (4, 1), "machine": (18, 2), "type": (16, 2), "phoff": (32, 8), "shoff": (40, 8), "phentsize": (54, 2)}
    for name, (offset, width) in (header | {"phnum": (56, 2), "shentsize": (58, 2), "shnum": (60, 2)}).items():
        write("elf", f"header_{name}", whole + replace(offset, 9, width))
        write("elf", f"header_{name}_most", whole + replace(offset, 2 ** (8 * width) - 1, width))
    for segment, base in (("code", 64), ("data", 120), ("dynamic", 176)):
        for field, offset in (("offset", 8), ("vaddr", 16), ("filesz", 32), ("memsz", 40)):
            write("elf", f"{segment}_{field}", whole + replace(base + offset, 2**64 - 4096))


# ---- wav ----


def wav_file(tag: int, channels: int, bits: int, data: bytes, rate: int = 8000, extra: bytes = b"", before: bytes = b"") -> bytes:
    frame = channels * bits // 8
    fmt = struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits) + extra
    chunks = before + b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def wav() -> None:
    guid = bytes.fromhex("000000001000800000aa00389b71")
    for bits in (8, 16, 24, 32):
        write("wav", f"pcm{bits}", wav_file(1, 1, bits, bytes(range(24))))
    write("wav", "stereo", wav_file(1, 2, 16, bytes(range(100, 132))))
    write("wav", "float32", wav_file(3, 1, 32, struct.pack("<4f", 0, 1, -1.5, 0.3)))
    write("wav", "float64", wav_file(3, 2, 64, struct.pack("<4d", 0, 1e-3, -0.25, 1e300)))
    write("wav", "nan", wav_file(3, 1, 32, struct.pack("<2f", 0, float("nan"))))
    extensible = struct.pack("<HHIH", 22, 16, 3, 1) + guid
    write("wav", "extensible", wav_file(0xFFFE, 2, 16, bytes(8), 44100, extensible))
    write("wav", "odd_chunk_before", wav_file(1, 1, 8, b"\x80\x90", before=b"LIST\3\0\0\0abc\0"))
    write("wav", "mp3", wav_file(0x55, 2, 16, bytes(8)))
    write("wav", "short", wav_file(1, 1, 16, bytes(8))[:-3])
    write("wav", "empty", b"")


# ---- program_text, program_lower, program_verify: text; program_steps: the number of a program, then text ----


def program_text() -> None:
    texts = pathlib.Path(__file__).parents[2] / "examples" / "programs"
    for file in texts.glob("*.program"):
        write("program_text", file.stem, file.read_bytes())


# The innermost loops of each kind, and the outermost ones parallel.
def program_lower() -> None:
    texts = pathlib.Path(__file__).parents[2] / "examples" / "programs"
    for file in texts.glob("*.program"):
        lines = file.read_text().splitlines(keepends=True)
        for kind in ("", " vectorize", " unroll"):
            out = list(lines)
            for i, line in enumerate(lines[:-1]):
                if line.lstrip().startswith("for ") and lines[i + 1].lstrip().startswith("block "):
                    out[i] = line.replace(":\n", f"{kind}:\n")
                elif line.startswith("  for "):
                    out[i] = line.replace(":\n", " parallel:\n")
            write("program_lower", f"{file.stem}{kind.replace(' ', '_')}", "".join(out).encode())


# Of what the examples do not have: scopes and threads, copies ahead of their use, a unit's product, params, and tensors that are
# changed or absent.
VERIFIED = {
    "threads": """program 1 threads(x: f32[N], y: out f32[N]):
  alloc s: f32[N] shared pad [3]
  for b in (N + 7) // 8 bind block.x:
    for t in 8 bind thread.x:
      block s(v: S(N) = b * 8 + t) if b * 8 + t < N:
        s[v] = x[v]
    for u in 8 bind thread.x:
      block y(v: S(N) = b * 8 + u) if b * 8 + u < N:
        y[v] = s[v] * f32(2)
""",
    "ahead": """program 1 ahead(x: f32[8, N], y: out f32[8, N]):
  alloc s: f32[8, N] local
  for i in 8 pipeline 2 {"note": "a"}:
    for j in N:
      block s(vi: S(8) = i, v: S(N) = j):
        s[vi, v] = x[vi, v]
    for k in N:
      block y(vi: S(8) = i, v: S(N) = k) {"contract": "true"}:
        y[vi, v] = s[vi, v] + f32(1)
""",
    "product": """program 1 product(A: i8[M, 4], B: i8[4, 2], C: inout i32[M, 2]):
  for i in M parallel:
    for j in 2 unroll:
      for k in 4 tensorize "dot.i8.i32":
        block C(vi: S(M) = i, vj: S(2) = j, vk: R(4) = k):
          C[vi, vj] = C[vi, vj] + i32(A[vi, vk]) * i32(B[vk, vj])
""",
    "changed": """program 1 changed(x: inout f32[N], bias?: f32[N], at: i32[N], y: out f64[n + 1], n: param i64 = 3, flag: param bool = 1):
  for i in N:
    block x(v: S(N) = i):
      x[v] = x[v] * f32(2) + where(present(bias), bias[v], f32(0))
  for j in n + 1:
    block y(v: S(n + 1) = j):
      y[v] = where(N > 0 and flag, f64(x[clamp(at[min(v, N - 1)], 0, N - 1)]), f64(-inf))
""",
}


def program_verify() -> None:
    texts = pathlib.Path(__file__).parents[2] / "examples" / "programs"
    for file in texts.glob("*.program"):
        write("program_verify", file.stem, file.read_bytes())
    for name, text in VERIFIED.items():
        write("program_verify", name, text.encode())


def program_steps() -> None:
    seeds = {
        "tutorial": """split(loop="j", factors=[None, 2])
reorder(loops=["j_0", "k", "j_1"])
reverse_compute_at(block="C", loop="j_0")
decompose_reduction(block="Y", loop="k")""",
        "kinds": """parallel(loop="i")
vectorize(loop="j1")
unroll(loop="j")
bind(loop="i1", thread="block.x")
annotate(loop="i1", key="a", value="b")""",
        "moves": """compute_at(block="Y", loop="j1")
reverse_compute_inline(block="C")
compute_inline(block="Y")
fuse(loops=["i1", "j1"])""",
        "memory": """cache_read(block="Y", buffer="A", scope="shared")
cache_write(block="C", buffer="C")
set_scope(buffer="Y", scope="local")
transform_layout(buffer="Y", map="i, j -> j, i")
rfactor(loop="k", axis=0)""",
        "marks": """pad(buffer="Y", axis=1, elements=8)
cache_read(block="C", buffer="Y")
compute_at(block="Y_global", loop="i1")
pipeline(loop="i1", stages=3)
tensorize(loop="i", intrinsic="dot.i8.i32")""",
        "odd": """split(loop="i", factors=[9223372036854775807, 9223372036854775807])
split(loop=1)
split(loop="i", factors=[0, -1, None, None])
parallel(loop="none")
(""",
    }
    for name, lines in seeds.items():
        write("program_steps", name, b"\0" + lines.encode())
    write(
        "program_steps",
        "dots",
        b"""\1tensorize(loop="q", intrinsic="dot.i8.i32")
cache_write(block="C", buffer="C")
cache_read(block="C", buffer="A", consumers=["C"])
rfactor(loop="k", axis=-1)""",
    )
    write(
        "program_steps",
        "window",
        b"""\2fuse(loops=["n", "o"])
split(loop="t", factors=[None, 4])
decompose_reduction(block="y", loop="t_1")
rfactor(loop="c", axis=0)
vectorize(loop="t_1")""",
    )
    write(
        "program_steps",
        "rows",
        b"""\3fuse(loops=["i", "j"])
reverse_compute_at(block="y", loop="i1")
compute_at(block="top", loop="i1")
parallel(loop="i1")""",
    )
    write(
        "program_steps",
        "sums",
        b"""\4parallel(loop="j")
reorder(loops=["j", "i"])
cache_write(block="y", buffer="y")""",
    )


if __name__ == "__main__":
    program_text()
    program_lower()
    program_verify()
    program_steps()
    params()
    tensors()
    elf()
    wav()
