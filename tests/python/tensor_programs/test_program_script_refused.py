# SPDX-License-Identifier: Apache-2.0
"""TVMScript's spelling, run as Python: what is refused, and in which words."""

import re
import types

import numpy as np
import pytest

from narrows.program import ir as I
from narrows.program import script as T

F32 = "float32"


@pytest.mark.parametrize(
    "extent", ["", "n m", "n / 2", "n ** 2", "n.bit_length()", "f(n)", "1.5 * n", "True", "n + 'a'", "3 // 0", "(" * 300, "x\0"]
)
def test_an_extent_that_is_no_sum_of_sizes_is_refused(extent):
    with pytest.raises(ValueError, match=r"argument 'x': an extent: .*; expected an integer, a size by its name, or a sum"):

        @T.prim_func
        def f(x: T.Buffer((extent,), F32)):
            pass


def with_argument(annotation, *default):
    """Records a function with one more argument, which has this default."""

    def f(x: T.Buffer((4,), F32), y: T.Buffer((4,), F32), n: annotation = None):
        for i in T.serial(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi]

    f.__defaults__ = default
    return T.prim_func(f)


@pytest.mark.parametrize(
    ("annotation", "default", "expected"),
    [
        (T.int64, (), "argument 'n' of 'f' has no default; expected one, as in n: T.int64 = 1"),
        (T.float32, (), "argument 'n' of 'f' has no default; expected one, as in n: T.float32 = 1"),
        (T.float32, (None,), "argument 'n': default None; expected a number; only a T.Buffer may be None"),
        (T.int32, (None,), "argument 'n': default None; expected a number; only a T.Buffer may be None"),
        (T.float32, ("2",), "argument 'n': default '2'; expected a number"),
        (T.Buffer((4,), F32), (3,), "argument 'n': default 3; expected none, or None of a tensor that may be absent"),
        (T.handle, (3,), "argument 'n': default 3; expected none, or None of a tensor that may be absent"),
    ],
)
def test_defaults_of_arguments_are_checked(annotation, default, expected):
    with pytest.raises(TypeError, match=re.escape(expected)):
        with_argument(annotation, *default)


def test_a_param_that_is_made_inside_has_a_default():
    def f():
        T.param(F32, None)

    with pytest.raises(TypeError, match=r"T\.param: default None; expected a number"):
        T.prim_func(f)


def refused(error, words, write):
    """write(A, B, vi) inside a block."""

    def f(A: T.Buffer((8,), F32), B: T.Buffer((8,), F32)):
        for i in T.serial(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                write(A, B, vi)

    with pytest.raises(error, match=words):
        T.prim_func(f)


def store(value):
    def write(A, B, vi):
        B[vi] = value(A, vi)

    return write


@pytest.mark.parametrize(
    "error, words, value",
    [
        (TypeError, "T.if_then_else", lambda A, i: 1.0 if i < 4 else 2.0),
        (TypeError, r"T.And\(a < b, b < c\)", lambda A, i: T.if_then_else(0 < i < 4, A[i], 0.0)),
        (TypeError, r"T.max\(a, b\)", lambda A, i: max(A[i], 0.0)),
        (TypeError, r"T.Not\(a\)", lambda A, i: T.cast(not A[i] > 0, F32)),
        (TypeError, r"T.exp\(x\)", lambda A, i: float(A[i])),
        (TypeError, r"'A\[vi\]' is float32, not float16; .*T.cast\(A\[vi\], \"float16\"\)", lambda A, i: T.float16(1) + A[i]),
        (TypeError, r"'vi' is an index; write T.cast\(vi, \"float32\"\)", lambda A, i: i),
        (TypeError, "'vi' is an index", lambda A, i: T.exp(i)),
        (TypeError, "'vi' is an index", lambda A, i: i * 0.5),
        (TypeError, "'vi' is an index; expected floating point: write //", lambda A, i: A[i / 2]),
        (TypeError, r"'A\[vi\]' is float32; expected an index or an integer: write T.floor\(a / b\)", lambda A, i: A[i] // 2),
        (TypeError, r"numpy.exp of 'A\[vi\]', which is no number yet; write T.exp", lambda A, i: np.exp(A[i])),
        (TypeError, r"numpy.add of .*; write T.add", lambda A, i: np.add.reduce(A[i])),
        (TypeError, r"numpy.spacing of .*; T has the functions of", lambda A, i: np.spacing(A[i])),
        (TypeError, "expected an expression or a number", lambda A, i: np.ones(3) * A[i]),
        (TypeError, r"a subscript of A: 'A\[vi\]' of float32", lambda A, i: A[A[i]]),
        (TypeError, "hold it in bounds by T.clamp", lambda A, i: A[T.cast(A[i], "int32")]),
        (IndexError, r"A\[vi, vi\]: 2 subscripts; it has 1", lambda A, i: A[i, i]),
        (TypeError, "stands in T.reads and T.writes only", lambda A, i: A[0:4] + 1),
        (ValueError, "300 is no constant of int8", lambda A, i: T.int8(300)),
        (ValueError, "too large", lambda A, i: T.float16(1e9)),
        (ValueError, "dtype = 'float8'", lambda A, i: T.cast(A[i], "float8")),
        (AttributeError, "T.comm_reducer is not offered: a reduction is a store", lambda A, i: T.comm_reducer),
        (AttributeError, "there is no T.expp; did you mean T.exp", lambda A, i: T.expp(A[i])),
        (AttributeError, "T.sum is not offered: a reduction is a store in a block with a reduce axis", lambda A, i: T.sum(A[i])),
        (TypeError, "takes 2 operands, not 1", lambda A, i: T.max(A[i])),
        (TypeError, "expected a condition", lambda A, i: T.if_then_else(A[i], 0.0, A[i])),
        (NotImplementedError, "T.axis.opaque is not offered", lambda A, i: T.axis.opaque(8, i)),
        (TypeError, "argument has the default None", lambda A, i: T.present(A)),
    ],
)
def test_expressions_that_are_refused(error, words, value):
    refused(error, words, store(value))


def test_a_load_that_is_older_than_a_store():
    def swap(A: T.Buffer((8,), F32), C: T.Buffer((8,), F32)):
        for i in T.serial(8):
            with T.block("swap"):
                vi = T.axis.spatial(8, i)
                old = C[vi] + 0
                C[vi] = A[vi]
                A[vi] = old

    with pytest.raises(SyntaxError, match=r"'C\[vi\]' was read before a store into 'C'"):
        T.prim_func(swap)


def test_variables_do_not_leave_their_loops():
    def after_loop(A: T.Buffer((8,), F32), B: T.Buffer((8,), F32)):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
        for j in range(8):
            with T.block("B2"):
                vj = T.axis.spatial(8, i + 0 * j)
                B[vj] = A[vj]

    with pytest.raises(SyntaxError, match="loop variable 'i' is used after its loop"):
        T.prim_func(after_loop)

    def after_block(A: T.Buffer((8,), F32), B: T.Buffer((8,), F32)):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
            with T.block("B2"):
                vj = T.axis.spatial(8, i)
                B[vj] = A[vi]

    with pytest.raises(SyntaxError, match="axis variable 'vi' is used after its axis"):
        T.prim_func(after_block)


def test_break_return_and_empty_loops():
    def broken(A: T.Buffer((8,), F32), B: T.Buffer((8,), F32)):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
            break

    with pytest.raises(SyntaxError, match="break or return leaves the loop over 'i'"):
        T.prim_func(broken)

    def returned(A: T.Buffer((8,), F32), B: T.Buffer((8,), F32)):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
                return

    with pytest.raises(SyntaxError, match="break or return leaves"):
        T.prim_func(returned)

    def empty(A: T.Buffer((8,), F32)):
        [A for _ in range(3)]

    with pytest.raises(SyntaxError, match=r"holds no block; write T\.static_range"):
        T.prim_func(empty)


@pytest.mark.parametrize(
    "words, write",
    [
        ("T.init after a store", lambda A, B, vi: (B.__setitem__(vi, A[vi]), T.init().__enter__())),
        ("an axis after a store", lambda A, B, vi: (B.__setitem__(vi, A[vi]), T.axis.spatial(8, 0))),
        ("block 'C' inside block 'B'", lambda A, B, vi: T.block("C").__enter__()),
        ("a loop inside block 'B'", lambda A, B, vi: next(T.serial(4))),
        ("alloc_buffer stands before the loops", lambda A, B, vi: T.alloc_buffer((4,))),
        ("block 'B' stores nothing", lambda A, B, vi: None),
    ],
)
def test_places_that_are_refused(words, write):
    refused(SyntaxError, words, write)


def test_arguments_that_are_refused():
    def no_annotation(A):
        pass

    def unmatched(a: T.handle):
        pass

    def store_outside(A: T.Buffer((8,), F32)):
        A[0] = 1

    def gives(A: T.Buffer((8,), F32)):
        return A

    def remap(A: T.Buffer((8,), F32)):
        for i in T.serial(1, 8):
            with T.block("A"):
                vi = T.axis.remap("S", [i])
                A[vi] = 0

    cases = [
        (TypeError, "argument 'A' of 'no_annotation' is annotated with None", no_annotation),
        (SyntaxError, "argument 'a' is T.handle, and T.match_buffer makes no tensor of it", unmatched),
        (SyntaxError, "a store into 'A' stands inside a block", store_outside),
        (SyntaxError, "'gives' returns A: f32", gives),
        (TypeError, "T.axis.remap: 1 \\+ i; expected the variables of the loops around", remap),
    ]
    for error, words, function in cases:
        with pytest.raises(error, match=words):
            T.prim_func(function)
    with pytest.raises(RuntimeError, match=r"inside a function under @T\.prim_func"):
        T.alloc_buffer((8,))
    with pytest.raises(ValueError, match="thread = 'vthread'"):
        T.thread_binding(4, thread="vthread")
    with pytest.raises(TypeError, match="class Empty holds no function"):
        I.ir_module(type("Empty", (), {}))
    module = I.IRModule({"a": None, "b": None})
    with pytest.raises(KeyError, match="there is no program 'c'; there are: a, b"):
        module["c"]


@pytest.mark.parametrize("name", ["inf", "nan", "f32", "\N{GREEK SMALL LETTER ALPHA}"])
def test_an_argument_keeps_its_name_or_is_refused(name):
    def double(A: T.Buffer((4,), F32), B: T.Buffer((4,), F32), renamed: T.float32 = 2):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * renamed

    renamed = types.FunctionType(
        double.__code__.replace(co_varnames=tuple(name if v == "renamed" else v for v in double.__code__.co_varnames)),
        globals(),
        argdefs=(2,),
    )
    renamed.__annotations__ = {name if k == "renamed" else k: v for k, v in double.__annotations__.items()}
    with pytest.raises(SyntaxError, match=f"argument '{name}': the text of a program has another meaning for this name"):
        T.prim_func(renamed)


@pytest.mark.parametrize("word", ["out", "device", "stream", "backend", "kernel", "deterministic"])
def test_a_param_is_no_word_of_every_call(word):
    def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        factor = T.param("float32", 1, name=word)
        for i in T.serial(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * factor

    with pytest.raises(SyntaxError, match=f"param '{word}': every op takes this word by keyword"):
        T.prim_func(f)


def test_functions_that_are_no_programs():
    def nothing(A: T.Buffer((4,), F32), B: T.Buffer((4,), F32)):
        pass

    with pytest.raises(SyntaxError, match="'nothing' computes nothing; expected blocks that store"):
        T.prim_func(nothing)

    def without_end(A, vi):
        return without_end(A, vi)

    refused(SyntaxError, "'f' is run once to record it, and does not end: a function in it calls itself", store(without_end))
    refused(
        SyntaxError, "an expression has thousands of levels", store(lambda A, i: sum((A[i] for _ in range(5000)), T.float32(0)))
    )


def test_a_program_is_no_function_to_call():
    @T.prim_func
    def program(A: T.Buffer((8,), F32), B: T.Buffer((8,), F32)):
        for i in T.serial(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]

    refused(TypeError, "'program' is called inside another one; expected its loops and blocks there", lambda A, B, i: program(A, B))
    with pytest.raises(TypeError, match=r"program 'program' is called; expected the op that program\.build\(\) gives"):
        program(np.ones(8, F32))
