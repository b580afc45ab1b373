# SPDX-License-Identifier: Apache-2.0
"""from_tvm: what TVM prints becomes a program, of both generations of its names; and with TVM itself, where it is installed."""

import numpy as np
import pytest

from narrows.program import IRModule, PrimFunc, Schedule, from_tvm

# As TVM 0.18 prints a function, and as 0.27 prints the module of a schedule.
OLD = """# from tvm.script import tir as T

@T.prim_func
def mm(A: T.Buffer((16, 24), "float32"), B: T.Buffer((24, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    T.func_attr({"tir.noalias": T.bool(True)})
    # with T.block("root"):
    Y = T.alloc_buffer((16, 8))
    for i, j, k in T.grid(16, 8, 24):
        with T.block("Y"):
            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
            T.reads(A[v_i, v_k], B[v_k, v_j])
            T.writes(Y[v_i, v_j])
            with T.init():
                Y[v_i, v_j] = T.float32(0)
            Y[v_i, v_j] = Y[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    for i, j in T.grid(16, 8):
        with T.block("C"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            T.reads(Y[v_i, v_j])
            T.writes(C[v_i, v_j])
            C[v_i, v_j] = T.max(Y[v_i, v_j], T.float32(0))
"""
NEW = """# from tvm.script import ir as I
# from tvm.script import tirx as T
# from tvm.tirx.layout import Axis

@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((16, 24), "float32"), B: T.Buffer((24, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        T.func_attr({"global_symbol": "mm"})
        with T.sblock("root"):
            T.reads()
            T.writes()
            Y = T.sblock_alloc_buffer((16, 8))
            for i in T.parallel(16):
                for j_0 in range(2):
                    for k in range(24):
                        for j_1 in range(5):
                            with T.sblock("Y"):
                                vi = T.axis.spatial(16, i)
                                vj = T.axis.spatial(8, j_0 * 5 + j_1)
                                vk = T.axis.reduce(24, k)
                                T.where(j_0 * 5 + j_1 < 8)
                                T.reads(A[vi, vk], B[vk, vj])
                                T.writes(Y[vi, vj])
                                T.sblock_attr({"pragma": T.int64(3)})
                                with T.init():
                                    Y[vi, vj] = T.float32(0.0)
                                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
                    for ax0 in T.vectorized(5):
                        with T.sblock("C"):
                            vi = T.axis.spatial(16, i)
                            vj = T.axis.spatial(8, j_0 * 5 + ax0)
                            T.where(j_0 * 5 + ax0 < 8)
                            T.reads(Y[vi, vj])
                            T.writes(C[vi, vj])
                            C[vi, vj] = T.max(Y[vi, vj], T.float32(0.0))
"""


def printed(text, kind="PrimFunc", package="tvm.tir.function"):
    """An object that looks like TVM's to from_tvm, which asks it for its text alone."""
    return type(kind, (), {"__module__": package, "script": lambda self: text})()


def operands():
    random = np.random.default_rng(5)
    return random.standard_normal((16, 24), dtype="float32"), random.standard_normal((24, 8), dtype="float32")


def check(f):
    a, b = operands()
    np.testing.assert_allclose(f(a, b), np.maximum(a.astype("float64") @ b.astype("float64"), 0), rtol=1e-5, atol=1e-5)


def test_the_old_names():
    f = from_tvm(printed(OLD))
    assert isinstance(f, PrimFunc) and f.name == "mm"
    check(f.build())
    check(Schedule(f).build())


def test_the_new_names_and_a_schedule_of_tvm():
    f = from_tvm(printed(NEW, "IRModule", "tvm.ir.module"))
    assert isinstance(f, PrimFunc) and f.name == "mm"
    assert "parallel" in f.text and "vectorize" in f.text and ' {"pragma": "3"}' in f.text
    check(Schedule(f).build())


def test_a_module_of_two():
    one = NEW.split("    @T.prim_func", 1)[1]
    two = from_tvm(printed(NEW + "\n    @T.prim_func" + one.replace("def main", "def other"), "IRModule", "tvm.ir.module"))
    assert isinstance(two, IRModule) and len(two) == 2


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("T.max(Y[v_i, v_j], T.float32(0))", 'T.call_extern("float32", "f", Y[v_i, v_j])', "T.call_extern is not offered"),
        ("T.float32(0))", "T.vscale())", "there is no T.vscale"),
        ('v_i, v_j = T.axis.remap("SS", [i, j])', "v_i, v_j = T.axis.opaque(16, i), T.axis.spatial(8, j)", "T.axis.opaque"),
        ("Y[v_i, v_j] + A", "(Y[v_i, v_j] if v_i < 3 else T.float32(1)) + A", "T.if_then_else"),
    ],
)
def test_what_a_program_has_no_word_for_is_named_with_its_line(old, new, message):
    assert old in OLD
    with pytest.raises(NotImplementedError) as caught:
        from_tvm(printed(OLD.replace(old, new)))
    assert message in str(caught.value) and str(caught.value).startswith("from_tvm: line ")
    assert new.split("(")[0].strip() in str(caught.value)


GUARDS = """@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 8), "float32"), P: T.Buffer((10, 10), "float32"), I: T.Buffer((10, 10), "int32")):
    for h, w in T.grid(10, 10):
        with T.sblock("pad"):
            vh, vw = T.axis.remap("SS", [h, w])
            T.where(h < 10 and w < 10)
            P[vh, vw] = T.if_then_else(1 <= vh and vh < 9 and 1 <= vw and vw < 9, A[vh - 1, vw - 1], T.float32(0))
    for h, w in T.grid(10, 10):
        with T.sblock("sides"):
            vh, vw = T.axis.remap("SS", [h, w])
            I[vh, vw] = T.Cast("int32", not (vh < 1 or 9 <= vh)) + T.Cast("int32", vw) // 3 % 2
"""


def test_guards_and_integers():
    x = np.arange(64, dtype="float32").reshape(8, 8)
    padded, sides = from_tvm(printed(GUARDS)).build()(x)
    np.testing.assert_array_equal(padded, np.pad(x, 1))
    h, w = np.mgrid[:10, :10]
    np.testing.assert_array_equal(sides, ((h >= 1) & (h < 9)) + w // 3 % 2)


# topi.argmax and topi.cumsum, as TVM 0.27 prints them.
ARGMAX = """@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 8), "float32"), A_red: T.Buffer((4,), "int32")):
    v0 = T.sblock_alloc_buffer((4,), "int32", align=8)
    v1 = T.sblock_alloc_buffer((4,))
    for ax0, k1 in T.grid(4, 8):
        with T.sblock("A_red_temp"):
            i, k = T.axis.remap("SR", [ax0, k1])
            with T.init():
                v0[i] = -1
                v1[i] = T.float32(-340282346638528859811704183484516925440.0)
            a: T.let[T.int32] = T.Select(v1[i] > A[i, k] or v1[i] == A[i, k] and v0[i] < k, v0[i], k)
            b: T.let[T.float32] = T.Select(v1[i] > A[i, k], v1[i], A[i, k])
            v0[i] = a
            v1[i] = b
    for ax0 in range(4):
        with T.sblock("A_red"):
            v_ax0 = T.axis.spatial(4, ax0)
            A_red[v_ax0] = v0[v_ax0]
"""
CUMSUM = """@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 8), "float32", offset_factor=1), out: T.Buffer((4, 8), "float32")):
    with T.sblock("cumsum_generic"):
        T.reads()
        T.writes()
        for v in T.parallel(4):
            out[v * 8 // 8, v * 8 % 8] = A[v * 8 // 8, v * 8 % 8]
            for w in range(7):
                out[(v * 8 + (w + 1)) // 8, (v * 8 + (w + 1)) % 8] = (
                    out[(v * 8 + (w + 1 - 1)) // 8, (v * 8 + (w + 1 - 1)) % 8] + A[(v * 8 + (w + 1)) // 8, (v * 8 + (w + 1)) % 8]
                )
"""


def steps_of_seven():
    """Equal elements in each row, whose largest is in various places."""
    return np.random.default_rng(11).integers(-3, 4, (4, 8)).astype("float32")


@pytest.mark.parametrize("text, of_numpy", [(ARGMAX, np.argmax), (CUMSUM, np.cumsum)], ids=["argmax", "cumsum"])
def test_reductions_in_order(text, of_numpy):
    x = steps_of_seven()
    np.testing.assert_array_equal(from_tvm(printed(text)).build()(x), of_numpy(x, axis=1))


def test_a_pair_keeps_its_order_and_a_loop_that_is_not_parallel_too():
    assert "k: C(8)" in from_tvm(printed(ARGMAX)).text
    text = from_tvm(printed(CUMSUM)).text
    assert "at_v: S(4) = v, at_w: C(7) = w" in text and "for v in 4 parallel" in text
    with pytest.raises(ValueError, match="S axes have no order"):  # each iteration reads what the one before it wrote
        from_tvm(printed(CUMSUM.replace("range(7)", "T.parallel(7)")))


def test_a_number_among_the_arguments_goes_by_keyword():
    text = """@T.prim_func
def main(A: T.Buffer((8,), "float32"), times: T.int32, B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.Cast("float32", times)
"""
    f = from_tvm(printed(text))
    assert f.text.startswith("program 1 main(A: f32[8], B: out f32[8], times: param i64 = 0):")


def test_a_program_without_a_meaning_is_no_missing_word():
    with pytest.raises(ValueError, match=r"from_tvm: .*'Y' reads A\[0, 24\], out of bounds"):
        from_tvm(printed(OLD.replace("A[v_i, v_k] * B", "A[v_i, v_k + 1] * B")))


# The ways in which TVM 0.27 prints a size.
SIZES = [
    """def main(A: T.Buffer(("n", 8), "float32"), C: T.Buffer((n,), "float32")):
    n = T.int32()
    for i in range(n):
        with T.sblock("C"):
            v_i = T.axis.spatial(n, i)
            C[v_i] = A[v_i, 0] + A[v_i, 7]
""",
    """def main(A: T.Buffer((n, 8), "float32"), C: T.Buffer(("n",), "float32")):
    for i in range(n):
        with T.sblock("C"):
            v_i = T.axis.spatial(n, i)
            C[v_i] = A[v_i, T.int64(0)] + A[v_i, T.int64(7)]
""",
    """def main(a: T.handle, c: T.handle):
    n = T.int32()
    A, C = T.match_buffer(a, (n, 8)), T.match_buffer(c, (n,))
    for i in range(n):
        with T.sblock("C"):
            v_i = T.axis.spatial(n, i)
            C[v_i] = A[v_i, 0] + A[v_i, 7]
""",
]


@pytest.mark.parametrize("form", range(3))
def test_sizes(form):
    head = 'n = TypeVar("n")\n' if form == 1 else ""
    f = from_tvm(printed(f"{head}@T.prim_func(s_tir=True)\n{SIZES[form]}")).build()
    x = np.arange(24, dtype="float32").reshape(3, 8)
    assert np.array_equal(f(x), x[:, 0] + x[:, 7])


def test_what_is_not_tvms_is_refused():
    with pytest.raises(TypeError, match="expected a PrimFunc, an IRModule or a Schedule of TVM"):
        from_tvm(OLD)


def test_functions_of_an_installed_tvm():
    tvm = pytest.importorskip("tvm", reason="TVM is not installed")
    from tvm import te

    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A", dtype="float16")
    k = te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k].astype("float32"), axis=k), name="B")
    c = te.compute((n,), lambda i: te.if_then_else(i > 0, b[i], tvm.tirx.exp(b[i]) if hasattr(tvm, "tirx") else tvm.tir.exp(b[i])))
    f = from_tvm(te.create_prim_func([a, c])).build()
    x = np.random.default_rng(7).standard_normal((5, 9)).astype("float16")
    sums = x.astype("float64").sum(1)
    np.testing.assert_allclose(f(x), np.where(np.arange(5) > 0, sums, np.exp(sums)), rtol=1e-3, atol=1e-3)

    n = te.var("n", "int64")
    a = te.placeholder((n, 8), name="A")
    c = te.compute((n * 2,), lambda i: a[i // 2, 0] + a[i // 2, i % 2 + 1], name="C")
    x = np.arange(16, dtype="float32").reshape(2, 8)
    got = from_tvm(te.create_prim_func([a, c])).build()(x)
    assert np.array_equal(got, [x[0, 0] + x[0, 1], x[0, 0] + x[0, 2], x[1, 0] + x[1, 1], x[1, 0] + x[1, 2]])


def test_guards_of_an_installed_tvm():
    tvm = pytest.importorskip("tvm", reason="TVM is not installed")
    from tvm import te, topi

    a = te.placeholder((5, 7), name="A", dtype="int32")
    padded = topi.nn.pad(a, (1, 2), (3, 4), 0)
    f = from_tvm(te.create_prim_func([a, te.compute(padded.shape, lambda i, j: tvm.te.floordiv(padded[i, j], 3), name="C")]))
    x = np.arange(-17, 18, dtype="int32").reshape(5, 7)
    np.testing.assert_array_equal(f.build()(x), np.pad(x, ((1, 3), (2, 4))) // 3)


def test_topi_of_an_installed_tvm():
    pytest.importorskip("tvm", reason="TVM is not installed")
    from tvm import te, topi

    a, x = te.placeholder((4, 8), name="A"), steps_of_seven()
    for made, expected in (
        (topi.argmax(a, axis=1), x.argmax(1)),
        (topi.argmin(a, axis=1, keepdims=True), x.argmin(1)[:, None]),
        (topi.argmax(a), x.argmax()),
        (topi.cumsum(a, axis=0), x.cumsum(0)),
        (topi.cumsum(a), x.cumsum()),
        (topi.cumprod(a, axis=1), x.cumprod(1)),
    ):
        np.testing.assert_array_equal(from_tvm(te.create_prim_func([a, made])).build()(x), expected)
    with pytest.raises(NotImplementedError, match=r"T\.call_packed is not offered"):
        from_tvm(te.create_prim_func([a, topi.argsort(a)]))


def test_a_schedule_of_an_installed_tvm():
    tvm = pytest.importorskip("tvm", reason="TVM is not installed")
    from tvm import te

    a, b = te.placeholder((16, 24), name="A"), te.placeholder((24, 8), name="B")
    k = te.reduce_axis((0, 24), "k")
    y = te.compute((16, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="Y")
    c = te.compute((16, 8), lambda i, j: te.if_then_else(y[i, j] > 0, y[i, j], 0.0), name="C")
    space = tvm.s_tir if hasattr(tvm, "s_tir") else tvm.tir
    sch = space.Schedule(te.create_prim_func([a, b, c]))
    get = sch.get_sblock if hasattr(sch, "get_sblock") else sch.get_block
    i, j, k = sch.get_loops(get("Y"))
    j0, j1 = sch.split(j, [None, 5])
    sch.reorder(j0, k, j1)
    sch.reverse_compute_at(get("C"), j0)
    sch.parallel(i)
    check(Schedule(from_tvm(sch)).build())
