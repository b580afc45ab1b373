# SPDX-License-Identifier: Apache-2.0
"""Schedule: TVM's tutorial step by step, TVM's ways to name things, refusals, traces."""

import concurrent.futures
import copy
import pickle
import re
import time

import numpy as np
import pytest

import narrows
from narrows.program import PrimFunc, Schedule, ScheduleError, _library
from narrows.program import ir as I
from narrows.program import script as T

F32 = "float32"


@T.prim_func
def mm_relu(A: T.Buffer((128, 128), F32), B: T.Buffer((128, 128), F32), C: T.Buffer((128, 128), F32)):
    Y = T.alloc_buffer((128, 128), F32)
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


@T.prim_func
def row_sums(A: T.Buffer(("M", "N"), F32), C: T.Buffer(("M",), F32)):
    M, N = A.shape
    B = T.alloc_buffer((M, N))
    for i, j in T.grid(M, N):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.exp(A[vi, vj])
    for i, j in T.grid(M, N):
        with T.block("C"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                C[vi] = 0.0
            C[vi] += B[vi, vj]


TUTORIAL = """program 1 mm_relu(A: f32[128, 128], B: f32[128, 128], C: out f32[128, 128]):
  alloc Y: f32[128, 128]
  for i in 128:
    for j_0 in 16:
      for j_1_init in 8:
        block Y_init(vi: S(128) = i, vj: S(128) = j_0 * 8 + j_1_init):
          Y[vi, vj] = f32(0)
      for k in 128:
        for j_1 in 8:
          block Y(vi: S(128) = i, vj: S(128) = j_0 * 8 + j_1, vk: R(128) = k):
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
      for ax1 in 8:
        block C(vi: S(128) = i, vj: S(128) = j_0 * 8 + ax1):
          C[vi, vj] = maximum(Y[vi, vj], f32(0))
"""
TRACE = """split(loop="j", factors=[None, 8])
reorder(loops=["j_0", "k", "j_1"])
reverse_compute_at(block="C", loop="j_0")
decompose_reduction(block="Y", loop="k")"""


def test_the_tutorial_s_transformation(capsys):
    sch = Schedule(mm_relu)
    block_Y = sch.get_block("Y")
    i, j, k = sch.get_loops(block_Y)
    j_0, j_1 = sch.split(j, factors=[None, 8])
    with pytest.raises(ScheduleError, match="there is no loop 'j'"):
        sch.split(j, factors=[None, 8])
    sch.reorder(j_0, k, j_1)
    block_C = sch.get_block("C")
    sch.reverse_compute_at(block_C, j_0)
    sch.decompose_reduction(block_Y, k)
    assert sch.mod["mm_relu"].text == TUTORIAL and str(sch.trace) == TRACE and i.name == "i"
    sch.show()
    assert capsys.readouterr().out == TUTORIAL + "\n" + "".join(f"# {line}\n" for line in TRACE.splitlines())
    sch.trace.show()
    assert capsys.readouterr().out == TRACE + "\n"
    sch.mod.show()
    assert capsys.readouterr().out == TUTORIAL + "\n"
    assert mm_relu.text == Schedule(mm_relu).mod["mm_relu"].text  # which no step changed


def test_a_trace_is_taken_by_another_schedule():
    first, second = Schedule(mm_relu), Schedule(mm_relu)
    for line in TRACE.splitlines():
        first.apply(line)
    first.trace.apply_to_schedule(second)
    assert second.mod["mm_relu"] == first.mod["mm_relu"] == PrimFunc(TUTORIAL)
    copy = first.copy()
    copy.vectorize(copy.get_loops("Y")[-1])
    assert len(first.trace) == 4 and len(copy.trace) == 5


def test_a_trace_that_does_not_replay_changes_nothing():
    first = Schedule(mm_relu)
    first.apply('parallel(loop="i")')
    first.apply('reorder(loops=["k", "j"])')
    other = Schedule(row_sums)
    before = other.mod.script()
    with pytest.raises(ScheduleError, match=r"line 2 of the trace: reorder\(loops=\[\"k\", \"j\"\]\): there is no loop 'k'"):
        first.trace.apply_to_schedule(other)
    assert other.mod.script() == before and not other.trace.lines


def test_the_default_schedule_is_steps_like_others(capsys):
    sch, again = Schedule(mm_relu), Schedule(mm_relu)
    sch.auto()
    assert {"split", "vectorize", "parallel"} <= {line.split("(")[0] for line in sch.trace}
    sch.trace.show()
    assert capsys.readouterr().out.splitlines() == list(sch.trace)
    sch.trace.apply_to_schedule(again)
    assert again.mod["mm_relu"] == sch.mod["mm_relu"] != mm_relu
    a, b = np.random.default_rng(0).random((2, 128, 128), dtype=F32)
    np.testing.assert_allclose(again.build()(a, b), np.maximum(a @ b, 0), rtol=1e-5)
    assert sch.evaluate(a, b).error < 1e-5


def test_the_default_schedule_is_that_of_a_backend_or_of_a_device_s():
    def steps(**how):
        sch = Schedule(mm_relu)
        sch.auto(**how)
        return list(sch.trace)

    assert steps() == steps(backend="cpu") == steps(device="cpu") == steps(device=narrows.Device("cpu"))
    for gpu in ("cuda", "hip", "vulkan"):  # which need not be here
        assert any(line.startswith("bind(") for line in steps(backend=gpu))
    with pytest.raises(NotImplementedError, match="metal"):
        steps(backend="metal")
    with pytest.raises(RuntimeError, match="no backend runs tensor programs on metal:0"):
        steps(device="metal")
    with pytest.raises(ValueError, match="backend = 'cuda'"):
        steps(backend="cuda", device="cpu")


def test_every_step_has_tvm_s_arguments():
    sch = Schedule(mm_relu)
    Y, C = sch.get_sblock("Y"), sch.get_block("C")
    i, j, k = sch.get_loops(Y)
    k0, k1 = sch.split(k, [16, None])
    sch.fuse(i, j)
    partial = sch.rfactor(k0, factor_axis=0)
    sch.cache_read(C, 0, "global")
    sch.cache_write(C, 0, "local")
    sch.annotate(C, "key", 1)
    ci, cj = sch.get_loops(C)
    sch.parallel(ci)
    sch.vectorize(sch.split(cj, factors=[None, 4])[1])
    sch.transform_layout(partial, ("write", 0), lambda n, i, j: (n, j, i))
    sch.set_scope(partial, 0, "global")
    assert [line.split("(")[0] for line in sch.trace] == (
        "split fuse rfactor cache_read cache_write annotate parallel split vectorize transform_layout set_scope".split()
    )
    assert k1.name in sch.mod.script()


def test_what_a_loop_promises_a_backend():
    sch = Schedule(mm_relu)
    k0, _ = sch.split("k", [None, 16])
    sch.decompose_reduction("Y", k0)
    copy = sch.cache_read("Y", "A", "shared")
    sch.compute_at(copy, k0)
    sch.pad(copy, 0, axis=1, elements=8)
    sch.pipeline(k0, stages=3)
    assert "alloc A_shared: f32[128, 128] shared pad [0, 8]" in sch.mod.script()
    assert "for k_0 in 8 pipeline 3:" in sch.mod.script()
    with pytest.raises(ScheduleError, match=r"the factor A_shared\[vi, vk\] is no element of f16"):
        sch.tensorize("k_1", "mma.f16.f32")


def test_several_blocks_read_one_copy():
    @T.prim_func
    def centred(X: T.Buffer((4, 8), "float32"), Y: T.Buffer((4, 8), "float32")):
        total = T.alloc_buffer((4,), "float32")
        for i, j in T.grid(4, 8):
            with T.block("total"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] = total[vi] + X[vi, vj]
        for i, j in T.grid(4, 8):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = X[vi, vj] - total[vi] / T.float32(8)

    sch = Schedule(centred)
    copy = sch.cache_read("total", "X", "local", consumer_blocks=["Y"])
    assert copy.name == "X_local"
    assert sch.mod.script().count("X_local[vi, vj]") == 2
    x = np.random.default_rng(0).random((4, 8), dtype="float32")
    np.testing.assert_allclose(sch.build(backend="cpu")(x), x - x.mean(1, keepdims=True), rtol=1e-6, atol=1e-6)


def test_blocks_that_are_put_into_others():
    sch = Schedule(row_sums)
    sch.compute_inline("B")
    assert "alloc" not in sch.mod.script() and "C[vi] = C[vi] + exp(A[vi, vj])" in sch.mod.script()
    sch = Schedule(row_sums)
    sch.compute_at(sch.get_block("B"), sch.get_loops("C")[0])
    (i,) = {loop.name for loop in sch.get_loops("B")} & {loop.name for loop in sch.get_loops("C")}
    sch.parallel(i)
    sch = Schedule(mm_relu)
    sch.bind(sch.get_loops("C")[0], "blockIdx.x")
    sch.bind(sch.get_loops("C")[1], "threadIdx.x")
    assert "for i1 in 128 bind block.x:\n    for j1 in 128 bind thread.x:" in sch.mod.script()


def test_a_refusal_names_the_rule_and_changes_nothing():
    sch = Schedule(mm_relu)
    before = sch.mod.script()
    with pytest.raises(ScheduleError, match=r"loop 'k' is parallel, but at i=0 j=0 k=0 Y writes Y\[0, 0\], and at i=0 j=0 k=1"):
        sch.parallel("k")
    with pytest.raises(ScheduleError, match=r"there is no block 'Z'; there are: Y, C"):
        sch.get_block("Z")
    with pytest.raises(ScheduleError, match="buffer 3; the block has 2: A, B"):
        sch.cache_read("Y", 3)
    with pytest.raises(ScheduleError, match="the remainder of a loop"):
        sch.split("i", [None, 8], disable_predication=True)
    with pytest.raises(ValueError, match="thread = 'vthread'"):
        sch.bind("i", "vthread")
    with pytest.raises(TypeError, match="expected a block or a loop"):
        sch.unroll(1)
    with pytest.raises(AttributeError, match=r"sch\.sample_categorical is not offered"):
        sch.sample_categorical()
    with pytest.raises(AttributeError, match="a schedule has no 'paralel'; did you mean 'parallel'"):
        sch.paralel("i")
    assert sch.mod.script() == before and not sch.trace.lines


def test_loops_may_be_given_as_a_list_and_threads_by_the_names_of_the_text():
    sch = Schedule(mm_relu)
    i, j, k = sch.get_loops("Y")
    sch.reorder([k, j])
    sch.fuse([i, k])
    sch.bind("i1", "block.x")
    sch.bind("j1", "thread.y")
    assert list(sch.trace)[2:] == ['bind(loop="i1", thread="block.x")', 'bind(loop="j1", thread="thread.y")']


def test_a_name_that_is_annotated_is_a_loops_or_a_blocks():
    sch = Schedule(mm_relu)
    sch.annotate("Y", "contract", True)
    sch.annotate("j", "unroll", "2")
    sch.annotate(sch.get_block("C"), "a", "b")
    assert list(sch.trace) == [
        'annotate(block="Y", key="contract", value="true")',
        'annotate(loop="j", key="unroll", value="2")',
        'annotate(block="C", key="a", value="b")',
    ]
    with pytest.raises(ScheduleError, match="there is no loop or block 'q'; there are: i, j, k, i1, j1, Y, C"):
        sch.annotate("q", "a", "b")


@pytest.mark.parametrize(
    ("step", "given", "expected"),
    [
        ("reorder", {"loops": ["j", "i"]}, "reorder has no argument 'loops'; expected reorder(*ordered_loops)"),
        ("fuse", {"loops": ["i", "j"]}, "fuse has no argument 'loops'; expected fuse(*loops, preserve_unit_iters=True)"),
        ("bind", {"loop": "i", "thread": "block.x"}, "bind has no argument 'thread'; expected bind(loop, thread_axis)"),
        ("annotate", {"block": "Y"}, "annotate has no argument 'block'; expected annotate(block_or_loop, ann_key, ann_val)"),
        ("pad", {"buffer": "Y"}, "pad has no argument 'buffer'; expected pad(block, buffer_index, axis, elements)"),
        ("get_block", {"block": "Y"}, "get_block has no argument 'block'; expected get_block(name, func_name=None)"),
    ],
)
def test_a_keyword_that_a_step_does_not_have_is_told_those_that_it_has(step, given, expected):
    with pytest.raises(TypeError, match=re.escape(expected)):
        getattr(Schedule(mm_relu), step)(**given)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('paralel(loop="i")', "there is no step 'paralel'; did you mean 'parallel'? there are: split, fuse, "),
        ('parallel(loop="i2")', "there is no loop 'i2'; did you mean 'i1'? there are: i, j, k, i1, j1"),
        ('parallel(loop="rows")', "there is no loop 'rows'; there are: i, j, k, i1, j1"),
        ('compute_inline(block="Z")', "there is no block 'Z'; there are: Y, C"),
        ('cache_read(block="Y", buffer="Q", scope="local")', "there is no buffer 'Q'; there are: A, B, C, Y"),
        ('set_scope(buffer="Q", scope="local")', "there is no allocated buffer 'Q'; there are: Y"),
        ('split(loop="i", factors=[4])', "expected two factors or more, as one for each new loop; given: 1"),
        ('split(loop="i", factors=[None, None])', "2 factors are None; expected one at most"),
        ('fuse(loops=["i", "k"])', "fuse takes two or more loops, each nested directly inside the previous one"),
    ],
)
def test_what_is_not_there_is_told_what_is(line, expected):
    with pytest.raises(ScheduleError, match=re.escape(expected)):
        Schedule(mm_relu).apply(line)


def test_which_factor_of_a_size_may_be_none():
    text = "program 1 f(x: f32[n], y: out f32[n]):\n  for i in n:\n    block y(vi: S(n) = i):\n      y[vi] = x[vi]\n"
    with pytest.raises(ScheduleError, match=r"loop 'i' has n iterations, a size; of such a loop only the first factor may be None"):
        Schedule(text).split("i", [4, None])
    assert len(Schedule(text).split("i", [None, 4])) == 2
    assert len(Schedule(text.replace("[n]", "[16]").replace("in n", "in 16").replace("(n)", "(16)")).split("i", [4, None])) == 2


def test_modules_with_several_programs():
    module = I.IRModule({"mm_relu": mm_relu, "row_sums": row_sums})
    sch = Schedule(module)
    with pytest.raises(ScheduleError, match=r"the module has the programs mm_relu, row_sums; choose one by sch\.work_on"):
        sch.get_block("C")
    with pytest.raises(ScheduleError, match="there is no program 'main'"):
        sch.work_on("main")
    sch.work_on("row_sums")
    sch.compute_inline("B")
    assert sch.get_loops(sch.get_block("C", func_name="mm_relu"))[0].name == "i1"
    assert sch.mod["mm_relu"] == mm_relu and sch.mod["row_sums"] != row_sums


def test_texts_that_are_refused():
    with pytest.raises(ValueError, match="line 1, column 1: found 'nonsense', expected 'program'"):
        PrimFunc("nonsense")
    with pytest.raises(ValueError, match=r"block 'C' reads A\[4\], out of bounds"):
        Schedule("program 1 f(A: f32[4], C: out f32[4]):\n  for i in 4:\n    block C(vi: S(4) = i):\n      C[vi] = A[vi + 1]\n")


def test_a_note_of_python_s_true():
    sch = Schedule(mm_relu)
    sch.annotate(sch.get_block("Y"), "contract", True)
    assert '{"contract": "true"}' in sch.mod["mm_relu"].text


def test_handles_of_another_schedule_are_refused():
    sch, other = Schedule(mm_relu), Schedule(mm_relu)
    block, loops = other.get_block("Y"), other.get_loops("Y")
    (fused,) = [other.fuse(*other.get_loops("C"))]
    takes = [
        lambda: sch.parallel(loops[0]),
        lambda: sch.split(loops[1], [None, 8]),
        lambda: sch.reorder("j", loops[0]),
        lambda: sch.unroll(fused),
        lambda: sch.compute_at("C", loops[0]),
        lambda: sch.get_loops(block),
        lambda: sch.decompose_reduction(block, "k"),
        lambda: sch.cache_read(block, 0),
        lambda: sch.annotate(loops[0], "a", 1),
        lambda: sch.annotate(block, "a", 1),
    ]
    for take in takes:
        with pytest.raises(ScheduleError, match=r"(Block|Loop)\('\w+'\) is of another schedule; expected one by this schedule's"):
            take()
    assert not sch.trace.lines
    own = sch.copy()
    own.parallel(sch.get_loops("Y")[0])  # a copy has the same loops


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_programs_and_schedules_are_copied_and_pickled(again):
    sch = Schedule(I.IRModule({"mm_relu": mm_relu, "row_sums": row_sums}))
    sch.work_on("row_sums")
    sch.compute_inline("B")
    i = sch.get_loops("C")[0]
    made = again(sch)
    assert made.mod.script() == sch.mod.script() and list(made.trace) == list(sch.trace)
    made.parallel(i)
    assert "parallel" in made.mod.script() and "parallel" not in sch.mod.script()
    assert again(row_sums) == row_sums and again(row_sums).name == "row_sums"
    module = again(sch.mod)
    assert module.script() == sch.mod.script()
    x = np.ones((2, 3), F32)
    np.testing.assert_allclose(again(row_sums).build()(x), np.exp(x).sum(1), rtol=1e-6)


def test_notes_keep_their_characters():
    value = 'a\tb\n"c" \\ é 日'
    sch = Schedule(mm_relu)
    sch.annotate(sch.get_block("Y"), "x", value)
    again = Schedule(mm_relu)
    sch.trace.apply_to_schedule(again)
    written = '{"x": "a\\tb\\n\\"c\\" \\\\ é 日"}'
    assert written in sch.mod["mm_relu"].text and again.mod["mm_relu"] == sch.mod["mm_relu"]

    @T.prim_func
    def noted(A: T.Buffer((4,), F32), B: T.Buffer((4,), F32)):
        for i in T.serial(4, annotations={"x": value}):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]

    assert written in noted.text


@pytest.mark.parametrize("wrong", ["\0", "\r", "\x1b", "\x7f"])
def test_notes_of_control_characters_are_refused(wrong):
    sch = Schedule(mm_relu)
    for key, value in (("x", f"a{wrong}b"), (f"x{wrong}", "b")):
        with pytest.raises(ValueError, match=r"has the control character .*; expected none but newlines and tabs"):
            sch.annotate(sch.get_block("Y"), key, value)
    assert not sch.trace.lines

    def noted(A: T.Buffer((4,), F32), B: T.Buffer((4,), F32)):
        for i in T.serial(4):
            with T.block("B"):
                T.block_attr({"x": wrong})
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]

    with pytest.raises(ValueError, match="has the control character"):
        T.prim_func(noted)


def test_threads_share_a_schedule(monkeypatch):
    sch = Schedule(mm_relu)
    text, wrong, call = sch.mod["mm_relu"].text, [], _library._call
    calls = []  # under way; each stays long enough for another thread to come in

    def watched(*arguments, **how):
        calls.append(None)
        time.sleep(0.001)
        wrong.append(len(calls) > 1)
        call(*arguments, **how)
        calls.pop()

    def use():
        for _ in range(10):
            program = sch._schedule
            assert program.text() == text and program.blocks() == ["Y", "C"] and program.loops("C") == ["i1", "j1"]

    monkeypatch.setattr(_library, "_call", watched)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(use) for _ in range(4)]:
            done.result()
    assert not any(wrong)
