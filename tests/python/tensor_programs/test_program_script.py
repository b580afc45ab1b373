# SPDX-License-Identifier: Apache-2.0
"""TVMScript's spelling, run as Python: the text that comes out. What is refused: test_program_script_refused.py."""

import re

import numpy as np
import pytest

from narrows.program import ir as I
from narrows.program import script as T

MM_RELU = """program 1 mm_relu(A: f32[128, 128], B: f32[128, 128], C: out f32[128, 128]):
  alloc Y: f32[128, 128]
  for i in 128:
    for j in 128:
      for k in 128:
        block Y(vi: S(128) = i, vj: S(128) = j, vk: R(128) = k):
          init:
            Y[vi, vj] = f32(0)
          Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
  for i1 in 128:
    for j1 in 128:
      block C(vi: S(128) = i1, vj: S(128) = j1):
        C[vi, vj] = maximum(Y[vi, vj], f32(0))
"""
F32 = "float32"


def body(function):
    """The lines behind the head, without their indentation."""
    return [line.strip() for line in function.text.splitlines()[1:]]


# ---- TVM's tutorial: tensor program abstraction, creation, dynamic shapes ----


def test_the_tutorial_s_abstraction():
    @I.ir_module
    class MyModule:
        @T.prim_func(s_tir=True)
        def mm_relu(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            Y = T.sblock_alloc_buffer((128, 128))
            for i in range(128):
                for j in range(128):
                    for k in range(128):
                        with T.sblock("Y"):
                            vi = T.axis.spatial(128, i)
                            vj = T.axis.spatial(128, j)
                            vk = T.axis.reduce(128, k)
                            T.reads(A[vi, vk], B[vk, vj])
                            T.writes(Y[vi, vj])
                            with T.init():
                                Y[vi, vj] = T.float32(0)
                            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
            for i, j in T.grid(128, 128):
                with T.sblock("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = T.max(Y[vi, vj], T.float32(0))

    assert MyModule["mm_relu"].text == MM_RELU and list(MyModule) == ["mm_relu"]


def test_the_tutorial_s_element_wise_example_with_its_annotations():
    @T.prim_func
    def main(A: T.Buffer((128,), F32), B: T.Buffer((128,), F32), C: T.Buffer((128,), F32)):
        for i in T.parallel(128):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                C[vi] = A[vi] + B[vi]

    assert body(main) == ["for i in 128 parallel:", "block C(vi: S(128) = i):", "C[vi] = A[vi] + B[vi]"]


def test_the_tutorial_s_shapes_and_dtypes_of_python_variables():
    M = N = K = 128
    dtype = "float32"

    @T.prim_func
    def mm_relu(A: T.Buffer((M, K), dtype), B: T.Buffer((K, N), dtype), C: T.Buffer((M, N), dtype)):
        Y = T.alloc_buffer((M, N), dtype)
        for i, j, k in T.grid(M, N, K):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.cast(T.float32(0), dtype)
                Y[vi, vj] += A[vi, vk] * B[vk, vj]
        for i, j in T.grid(M, N):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.cast(T.float32(0), dtype))

    assert mm_relu.text == MM_RELU


def test_the_tutorial_s_dynamic_shapes():
    @T.prim_func
    def mm_relu(a: T.handle, b: T.handle, c: T.handle):
        M, N, K = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(a, [M, K], F32)
        B = T.match_buffer(b, [K, N], F32)
        C = T.match_buffer(c, [M, N], F32)
        Y = T.alloc_buffer((M, N), F32)
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

    names = {"M": "M", "N": "N", "K": "K"}
    expected = MM_RELU.splitlines()
    expected[0] = "program 1 mm_relu(A: f32[M, K], B: f32[K, N], C: out f32[M, N]):"
    expected[1] = "  alloc Y: f32[M, N]"
    lines = mm_relu.text.splitlines()
    assert lines[:2] == expected[:2] and lines[5] == "        block Y(vi: S(M) = i, vj: S(N) = j, vk: R(K) = k):"
    assert [re.sub(r"\b[MNK]\b", "128", line) for line in lines[2:]] == expected[2:] and names


def test_names_as_shapes():
    @T.prim_func
    def copy(A: T.Buffer(("M", "N"), F32), B: T.Buffer(("N", "M"), F32)):
        for i, j in T.grid(*A.shape):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vj, vi] = A[vi, vj]

    assert copy.text.startswith("program 1 copy(A: f32[M, N], B: out f32[N, M]):\n  for i in M:\n    for j in N:\n")


# ---- what the spelling holds ----


def copy_of(make, dtype=F32, to=F32):
    """The line that stores make(A, vi) into B."""

    @T.prim_func
    def f(A: T.Buffer((8,), dtype), B: T.Buffer((8,), to)):
        for i in T.serial(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = make(A, vi)

    return body(f)[-1].removeprefix("B[vi] = ")


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda A, i: A[i] * 2 + 0.5, "A[vi] * f32(2) + f32(0x1p-1)"),
        (lambda A, i: 2 * (A[i] + 1), "f32(2) * (A[vi] + f32(1))"),
        (lambda A, i: A[i] - (A[i] - 1), "A[vi] - (A[vi] - f32(1))"),
        (lambda A, i: 1 / A[i], "f32(1) / A[vi]"),
        (lambda A, i: -(A[i] ** 2), "-pow(A[vi], f32(2))"),
        (lambda A, i: abs(A[i]), "abs(A[vi])"),
        (lambda A, i: T.exp(A[i]) + T.sigmoid(A[i]), "exp(A[vi]) + sigmoid(A[vi])"),
        (lambda A, i: T.max(A[i], 0), "maximum(A[vi], f32(0))"),
        (lambda A, i: T.min(T.float32("-inf"), A[i]), "minimum(f32(-inf), A[vi])"),
        (lambda A, i: T.if_then_else(i < 4, A[i], 0.0), "where(vi < 4, A[vi], f32(0))"),
        (lambda A, i: T.Select(T.And(i >= 1, i < 4), A[i - 1], T.float32(0)), "where(vi >= 1 and vi < 4, A[vi - 1], f32(0))"),
        (
            lambda A, i: T.Select(T.Or(T.And(i > 0, i < 4), T.Not(i != 7)), A[i], 1),
            "where(vi > 0 and vi < 4 or not vi != 7, A[vi], f32(1))",
        ),
        (lambda A, i: A[(i + 3) % 8], "A[(vi + 3) % 8]"),
        (lambda A, i: A[T.min(i * 2, 7) // 2], "A[min(vi * 2, 7) // 2]"),
        (lambda A, i: A[T.Cast("int64", i) * T.int64(1)], "A[vi]"),
        (lambda A, i: A[i] + T.cast(i, F32), "A[vi] + f32(vi)"),
        (lambda A, i: T.Cast(F32, T.cast(A[i], "float64")), "f32(f64(A[vi]))"),
        (lambda A, i: T.float32(0.1), "f32(0x1.99999ap-4)"),
        (lambda A, i: T.fma(A[i], A[i], A[i]), "fma(A[vi], A[vi], A[vi])"),
        (lambda A, i: T.min_value(F32), "f32(-0x1.fffffep+127)"),
        (lambda A, i: T.clamp(A[i], -1, 1), "clamp(A[vi], f32(-1), f32(1))"),
        (lambda A, i: T.isnan(A[i]).astype(F32), "f32(isnan(A[vi]))"),
    ],
)
def test_expressions(make, text):
    assert copy_of(make) == text


def test_integers_and_gathers():
    assert copy_of(lambda A, i: A[T.clamp(A[i], 0, 7)] + T.int32(1), "int32", "int32") == "A[clamp(A[vi], 0, 7)] + i32(1)"
    assert copy_of(lambda A, i: T.truncdiv(A[i], 3) % 2, "int32", "int32") == "div(A[vi], i32(3)) % i32(2)"
    assert copy_of(lambda A, i: A[i] & 1 | A[i] << 2, "uint8", "uint8") == (
        "bitwise_or(bitwise_and(A[vi], u8(1)), bitwise_left_shift(A[vi], u8(2)))"
    )


def test_loops_of_every_kind():
    @T.prim_func
    def f(A: T.Buffer((15, 4, 8), F32), B: T.Buffer((15, 4, 8), F32)):
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(0, 4, thread="threadIdx.y"):
                for u in T.unroll(4, annotations={"note": 1}):
                    for v in T.vectorized(8):
                        with T.block("B"):
                            T.block_attr({"key": "value"})
                            vb = T.axis.spatial(15, b * 4 + t)
                            vu, vv = T.axis.remap("SS", [u, v])
                            T.where(b * 4 + t < 15)
                            B[vb, vu, vv] = A[vb, vu, vv]

    assert body(f)[:5] == [
        "for b in 4 bind block.x:",
        "for t in 4 bind thread.y:",
        'for u in 4 unroll {"note": "1"}:',
        "for v in 8 vectorize:",
        'block B(vb: S(15) = b * 4 + t, vu: S(4) = u, vv: S(8) = v) if b * 4 + t < 15 {"key": "value"}:',
    ]


def test_ranges_that_do_not_begin_at_0():
    @T.prim_func
    def f(A: T.Buffer((10,), F32), B: T.Buffer((3,), F32)):
        for i in range(2, 10, 3):
            with T.block("B"):
                vi = T.axis.spatial(3, (i - 2) // 3)
                B[vi] = A[vi]

    assert body(f)[:2] == ["for i in 3:", "block B(vi: S(3) = (2 + i * 3 - 2) // 3):"]


def test_params_optional_tensors_and_a_carried_axis():
    @T.prim_func
    def f(
        x: T.Buffer(("n",), F32),
        y: T.Buffer(("n",), F32),
        alpha: T.float32 = 1.5,
        first: T.int32 = 0,
        causal: T.bool = True,
        bias: T.Buffer(("n",), F32) = None,
    ):
        n = x.shape[0]
        for i in T.serial(n):
            with T.block("y"):
                vi = T.axis.scan(n, i)
                before = T.if_then_else(vi > first, y[T.max(vi - 1, 0)], T.float32(0))
                y[vi] = before + x[vi] * alpha + T.if_then_else(T.And(T.present(bias), causal), bias[vi], 0)

    assert f.text.splitlines()[0] == (
        "program 1 f(x: f32[n], y: inout f32[n], bias?: f32[n], "
        "alpha: param f32 = 0x1.8p+0, first: param i64 = 0, causal: param bool = 1):"
    )
    assert body(f)[1] == "block y(vi: C(n) = i):"


def running_sum(first, carries):
    @T.prim_func
    def f(x: T.Buffer(("m", "n"), F32), y: T.Buffer(("m", "n"), F32)):
        m, n = x.shape
        for i, j in T.grid(m, n):
            with T.block("y"):
                vi = T.axis.spatial(m, i)
                vj = T.axis.scan(n, j)
                y[vi, vj] = x[vi, vj] + T.if_then_else(vj > first, y[vi, T.max(vj - carries, 0)], 0.0)

    return f


def test_a_running_sum_is_an_output_where_it_reads_what_it_stored():
    assert "y: out f32[m, n]" in running_sum(0, 1).text
    x = np.arange(24, dtype=F32).reshape(4, 6)
    np.testing.assert_array_equal(running_sum(0, 1).build()(x), np.cumsum(x, 1))
    for first, carries in ((-1, 1), (0, 0)):  # it reads elements that nothing stored before
        f = running_sum(first, carries)
        assert "y: inout f32[m, n]" in f.text
        y = np.ones_like(x)
        expected = y.copy()
        for j in range(6):
            expected[:, j] = x[:, j] + (expected[:, max(j - carries, 0)] if j > first else 0)
        np.testing.assert_array_equal(f.build()(x, y), expected)


def test_extents_are_sums_of_sizes():
    @T.prim_func
    def f(x: T.Buffer(("h", "w"), F32), y: T.Buffer(("2 * h", "(w - 3) // 2 + 1"), F32)):
        for i, j in T.grid(*y.shape):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi // 2, vj * 2 + 2]

    x = np.arange(21, dtype=F32).reshape(3, 7)
    np.testing.assert_array_equal(f.build()(x), x.repeat(2, 0)[:, 2::2])


def test_params_that_are_made_inside():
    @T.prim_func
    def f(x: T.Buffer((8,), F32), y: T.Buffer((8,), F32)):
        slope = T.param(F32, 0.5)
        T.func_attr({"global_symbol": "line", "tir.noalias": True})
        for i in T.serial(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                y[vi] = x[vi] * slope

    assert f.name == "line" and f.text.startswith("program 1 line(x: f32[8], y: out f32[8], slope: param f32 = 0x1p-1):")
    assert body(f)[-1] == "y[vi] = x[vi] * slope"


def test_names_that_the_text_needs_otherwise():
    def nameless():
        return [T.alloc_buffer((8,)), T.alloc_buffer((8,))]

    @T.prim_func
    def f(A: T.Buffer((8,), F32), B: T.Buffer((2, 8), F32)):
        parts = nameless()
        parts.append(T.alloc_buffer((8,), name="third"))
        for n, part in enumerate(parts):
            for f32 in range(8):
                with T.block(f"a.{n}"):
                    f32_1 = T.axis.spatial(8, f32)
                    part[f32_1] = A[f32_1]
        for n in T.static_range(2):
            for i in range(8):
                with T.block(f"B{n}"):
                    i = T.axis.spatial(8, i)
                    B[n, i] = parts[n][i]

    text = f.text
    assert "alloc buffer_0: " in text and "alloc buffer_0_1: " in text and "alloc third: " in text
    assert "for i in 8:\n    block a_0(f32_1: S(8) = i):" in text
    assert "for i3 in 8:\n    block B0(i5: S(8) = i3):\n      B[0, i5] = buffer_0[i5]" in text


def test_a_helper_writes_part_of_a_program():
    def copy(A, B, name):
        for i in T.serial(A.shape[0]):
            with T.block(name):
                vi = T.axis.spatial(A.shape[0], i)
                B[vi] = A[vi]

    @T.prim_func
    def f(A: T.Buffer((8,), F32), C: T.Buffer((8,), F32)):
        with T.block("root"):
            B = T.alloc_buffer((8,), scope="local")
            copy(A, B, "B")
            copy(B, C, "C")

    assert body(f)[0] == "alloc B: f32[8] local" and body(f)[4:] == ["for i1 in 8:", "block C(vi: S(8) = i1):", "C[vi] = B[vi]"]


def test_annotations_as_strings():
    shape = (4,)
    names = {}
    source = """
from __future__ import annotations
def f(A: T.Buffer(shape, "float32"), B: "T.Buffer(shape)"):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
"""
    exec(source, {"T": T, "shape": shape}, names)
    assert T.prim_func(names["f"]).text.startswith("program 1 f(A: f32[4], B: out f32[4]):")


def test_one_type_for_two_arguments():
    vector = T.Buffer((4,), F32)

    @T.prim_func
    def f(A: vector, B: vector):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]

    assert f.text.startswith("program 1 f(A: f32[4], B: out f32[4]):")


# ---- arguments, notes and constants ----


def test_keyword_only_arguments():
    @T.prim_func
    def scaled(A: T.Buffer((4,), F32), B: T.Buffer((4,), F32), *, bias: T.Buffer((4,), F32) = None, alpha: T.float32 = 3):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * alpha + T.if_then_else(T.present(bias), bias[vi], 0)

    head = "program 1 scaled(A: f32[4], B: out f32[4], bias?: f32[4], alpha: param f32 = 3):"
    assert scaled.text.splitlines()[0] == head


def test_notes_of_python_s_values():
    @T.prim_func
    def double(A: T.Buffer((4,), F32), B: T.Buffer((4,), F32)):
        for i in T.serial(4, annotations={"fast": True}):
            with T.block("B"):
                T.block_attr({"contract": True, "depth": 2, "as_is": "True"})
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * 2

    assert body(double)[:2] == [
        'for i in 4 {"fast": "true"}:',
        'block B(vi: S(4) = i) {"contract": "true", "depth": "2", "as_is": "True"}:',
    ]


def test_constants_of_bfloat16_are_rounded_once():
    assert T.bfloat16(1 + 2**-8 + 2**-40).text() == "bf16(0x1.02p+0)"
    assert T.bfloat16(1 + 2**-8).text() == "bf16(1)" and T.bfloat16(-0.0).text() == "bf16(-0x0p+0)"
    assert T.bfloat16(2**-133).text() == "bf16(0x1p-133)" and T.bfloat16(2**-134).text() == "bf16(0)"
    assert T.bfloat16(3.395e38).text() == T.max_value("bfloat16").text()
    with pytest.raises(ValueError, match="too large"):
        T.bfloat16(3.397e38)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_integers_are_divided_downwards(dtype):
    @T.prim_func
    def f(A: T.Buffer(("n",), dtype), B: T.Buffer(("n",), dtype), C: T.Buffer(("n",), dtype), D: T.Buffer(("n",), dtype)):
        for i in T.serial(A.shape[0]):
            with T.block("C"):
                vi = T.axis.spatial(A.shape[0], i)
                C[vi] = A[vi] // B[vi]
                D[vi] = A[vi] // 3 + 100 // B[vi]

    ends = np.iinfo(dtype)
    values = np.unique(np.array([ends.min, ends.min + 1, *range(-5 if ends.min else 0, 6), ends.max - 1, ends.max], dtype))
    a, b = (x.ravel() for x in np.meshgrid(values, values[values != 0]))
    with np.errstate(over="ignore"):
        quotient, sums = f.build()(a, b)
        np.testing.assert_array_equal(quotient, a // b)
        np.testing.assert_array_equal(sums, a // np.array(3, dtype) + np.array(100, dtype) // b)


def test_scalars_of_numpy_on_the_left():
    two = np.float32(2)
    assert copy_of(lambda A, i: two * A[i] - (two - A[i]) / (two + A[i])).startswith("f32(2) * A[vi]")
    assert copy_of(lambda A, i: T.cast(np.int32(3) <= A[i], "int32"), "int32", "int32") == "i32(i32(3) <= A[vi])"
    assert copy_of(lambda A, i: np.int32(7) // A[i], "int32", "int32").startswith("div(i32(7), A[vi])")
