# SPDX-License-Identifier: Apache-2.0
"""Checks by NumPy arrays: values, memory, layouts, threads, and what has to be refused."""

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import narrows
from narrows.testing import _backward, _compare, _isolated
from narrows.testing._compare import Mismatch, numpy_dtype
from narrows.testing._run import REFUSALS, Declined, Run
from narrows.testing._subject import Case, Subject, derived, large

_GUARD = 64  # bytes around a tensor that are looked at
_CALLERS, _SECONDS = 4, 0.2  # threads that call at once, and for how long
_PROBES = {"float": (-1.0, 0.0), "int": (-1, 0)}


def check(run: Run, subject: Subject, cases: Sequence[Case], sizes: Sequence[int], gradients: bool, strict: bool) -> None:
    """All of them. Those that may crash come first, in a child process; if one does, nothing else is run."""
    usable = usable_cases(run, cases)
    if not usable:
        return
    grown = _grown(usable)
    if _isolated.POSSIBLE:
        crashed = _guard(run, subject, [*usable, *derived(usable, sizes), *grown])
        if gradients:
            crashed |= _backward.check(run, subject, usable)
        if crashed:
            run.raise_failures()
    else:
        run.leave_out("guard pages, and calls in a child process: this is no Linux")
    check_calls(run, subject, usable, sizes, strict, "numpy")
    if narrows.get_num_threads() == 1:
        run.leave_out("threads of the runtime: it has one; several callers are tried")
    for case in grown:
        run.check(f"threads: {case}", _threads, subject, case)
    if _isolated.POSSIBLE:
        _refusals(run, subject, usable)


def check_calls(run: Run, subject: Subject, cases: Sequence[Case], sizes: Sequence[int], strict: bool, where: str) -> None:
    """Values, memory and layouts of calls. ``where``: what computes them, in the checks' names."""
    for case in cases:
        run.check(f"values: {where}; {case}", _values, subject, case)
    for case in cases:
        run.check(f"writes: {where}; {case}", _writes, subject, case)
    for case in derived(cases, sizes):
        run.check(f"sizes: {where}; {case}", _size, subject, case)
    for case in _broadcast(subject, cases):
        run.check(f"broadcasting: {where}; {case}", _values, subject, case)
    for case in cases:
        for name, arrays in layouts(subject.arrays(case)):
            run.check(f"layouts: {where}, {name}; {case}", _layout, subject, case, arrays, strict)
        for name in _out_layouts():
            run.check(f"layouts: {where}, output {name}; {case}", _out_layout, subject, case, name, strict)
    for case in cases:
        run.check(f"neighbours: {where}; {case}", _neighbours, subject, case)
    for case in _grown(cases):
        run.check(f"large: {where}; {case}", _large, subject, case)


def usable_cases(run: Run, cases: Sequence[Case]) -> list[Case]:
    """Those whose dtypes NumPy has."""
    usable = [case for case in cases if all(numpy_dtype(d) is not None for d in case.dtypes)]
    if len(usable) < len(cases):
        run.leave_out("NumPy with bfloat16: ml_dtypes is not installed")
    return usable


def _grown(cases: Sequence[Case]) -> list[Case]:
    return [made for c in {c.dtypes: c for c in reversed(cases)}.values() if (made := large(c)) is not None]


# ---- values ----


def _values(subject: Subject, case: Case) -> None:
    arrays, expected = subject.arrays(case), subject.expected(case)
    subject.compare(subject(arrays, case), arrays, expected, case)


def _size(subject: Subject, case: Case) -> None:
    """Other sizes than the author's: refused, or computed and every element written."""
    try:
        _specs(subject, case)
        expected = subject.expected(case)
    except Exception:  # by the shape rule, or the reference has none
        raise Declined from None
    try:
        _writes(subject, case, expected)
    except REFUSALS:
        raise Declined from None


def _specs(subject: Subject, case: Case) -> list[Any]:
    """The dtype and shape of each output."""
    op = subject.op.bind(**dict(case.params))
    specs = [None if s is None else (d, s) for d, s in zip(case.dtypes, case.shapes, strict=True)]
    return op._infer(specs, subject.device_type)


def _framed(shape: Any, dtype: Any, fill: int) -> tuple[Any, Any]:
    """An array among bytes that are all `fill`, itself included; and those bytes."""
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.full(count + 2 * _GUARD + 64, fill, np.uint8)
    begin = _GUARD + -(memory.ctypes.data + _GUARD) % 64
    return memory[begin : begin + count].view(dtype).reshape(shape), (memory, begin, count)


def _outputs(subject: Subject, case: Case, fill: int) -> tuple[list[Any], list[Any]]:
    framed = [None if s is None else _framed(s[1], numpy_dtype(s[0]), fill) for s in _specs(subject, case)]
    return [None if f is None else f[0] for f in framed], [None if f is None else f[1] for f in framed]


def _writes(subject: Subject, case: Case, expected: Any = None) -> None:
    """Every element of an output is written, and nothing beside it, whatever the memory held."""
    arrays, expected = subject.arrays(case), subject.expected(case) if expected is None else expected
    before = [None if x is None else x.tobytes() for x in arrays]
    for fill in (0xC5, 0x3A):
        outputs, frames = _outputs(subject, case, fill)
        subject(arrays, case, out=tuple(outputs) if len(outputs) > 1 else outputs[0])
        try:
            subject.compare(outputs[: len(subject.out_names)], arrays, expected, case)
        except Mismatch as error:
            raise Mismatch(f"into memory whose bytes were {fill:#x}: {error}") from None
        for name, frame in zip(subject.op.outputs, frames, strict=True):
            if frame is not None:
                memory, begin, count = frame
                beside = np.concatenate([np.arange(begin), np.arange(begin + count, memory.size)])
                hit = beside[memory[beside] != fill]
                if hit.size:
                    where = f"{begin - hit[0]} bytes before" if hit[0] < begin else f"{hit[0] - begin - count} bytes after"
                    raise Mismatch(f"memory was written {where} output {name}")
    for name, x, bytes_before in zip(subject.names, arrays, before, strict=True):
        if x is not None and x.tobytes() != bytes_before:
            raise Mismatch(f"input {name} was written to")


def _broadcast(subject: Subject, cases: Sequence[Case]) -> Iterator[Case]:
    """Shapes of NumPy's broadcasting, of an op whose rule is that."""
    if "broadcast" not in (subject.op.shape_rule or "") or len(subject.names) < 2:
        return
    full = (3, 1, 5)
    others = [(5,), (4, 1), (), (1, 1, 1), (2, 1, 4, 5), (0, 5)]
    for case in {c.dtypes: c for c in cases}.values():
        present = [i for i, s in enumerate(case.shapes) if s is not None]
        for other in others:
            for wide in present:
                yield case.replaced(
                    shapes=tuple(None if s is None else full if i == wide else other for i, s in enumerate(case.shapes))
                )


# ---- layouts ----


def _transposed(x: Any) -> Any:
    return x.T.copy().T


def _sliced(x: Any) -> Any:
    """Every second element along the last axis of a longer array."""
    longer = np.full((*x.shape[:-1], 2 * x.shape[-1]), 9, x.dtype)
    longer[..., ::2] = x
    return longer[..., ::2]


def _rows(x: Any) -> Any:
    longer = np.full((*x.shape[:-1], x.shape[-1] + 3), 9, x.dtype)
    longer[..., :-3] = x
    return longer[..., :-3]


def _reversed(x: Any) -> Any:
    back = (slice(None, None, -1),) * x.ndim
    return x[back].copy()[back]


def _misaligned(x: Any) -> Any:
    memory = np.zeros(x.nbytes + 1 + 64, np.uint8)
    begin = -memory.ctypes.data % 64 + 1
    moved = memory[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    moved[...] = x
    return moved


def _read_only(x: Any) -> Any:
    x = x.copy()
    x.flags.writeable = False
    return x


_LAYOUTS: dict[str, tuple[int, Callable[[Any], Any]]] = {  # the rank that it needs
    "transposed": (2, _transposed),
    "sliced": (1, _sliced),
    "rows of a wider array": (2, _rows),
    "reversed": (1, _reversed),
    "misaligned": (0, _misaligned),
    "read-only": (0, _read_only),
}
_MAY_NOT_BE_DECLINED = {"read-only"}


def layouts(arrays: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The same values in other layouts: of all inputs, and of each alone where there are several."""
    present = [i for i, x in enumerate(arrays) if x is not None]
    for name, (rank, make) in _LAYOUTS.items():
        able = [i for i in present if arrays[i].ndim >= rank and arrays[i].size]
        if able:
            yield name, [make(x) if i in able else x for i, x in enumerate(arrays)]
        for one in able if len(present) > 1 else ():
            yield f"{name}: input {one}", [make(x) if i == one else x for i, x in enumerate(arrays)]
    for one in present:
        x = arrays[one]
        for axis in range(x.ndim if x.size else 0):
            same = np.broadcast_to(np.take(x, [0], axis), x.shape)
            yield f"stride 0 along axis {axis}: input {one}", [same if i == one else y for i, y in enumerate(arrays)]


def _layout(subject: Subject, case: Case, arrays: Sequence[Any], strict: bool) -> None:
    try:
        got = subject(arrays, case)
    except NotImplementedError:
        if strict:
            raise
        raise Declined from None
    subject.compare(got, arrays, subject.refer(arrays, case), case)


def _out_layouts() -> tuple[str, ...]:
    return ("transposed", "sliced", "rows of a wider array", "reversed")


def _out_layout(subject: Subject, case: Case, name: str, strict: bool) -> None:
    arrays, (outputs, _) = subject.arrays(case), _outputs(subject, case, 0xC5)
    rank, make = _LAYOUTS[name]
    if not any(y is not None and y.ndim >= rank and y.size for y in outputs):
        raise Declined
    outputs = [make(y) if y is not None and y.ndim >= rank and y.size else y for y in outputs]
    try:
        subject(arrays, case, out=tuple(outputs) if len(outputs) > 1 else outputs[0])
    except NotImplementedError:
        if strict:
            raise
        raise Declined from None
    subject.compare(outputs[: len(subject.out_names)], arrays, subject.expected(case), case)


# ---- what a result may not depend on ----


def _bits(subject: Subject, arrays: Sequence[Any], case: Case) -> tuple[list[Any], bool]:
    """The outputs, and whether the op promises the same bits again."""
    try:
        return [np.array(y) for y in subject(arrays, case, deterministic=True)], True
    except NotImplementedError:
        return [np.array(y) for y in subject(arrays, case)], False


def _expect_same(subject: Subject, got: Sequence[Any], before: Sequence[Any], exactly: bool, when: str) -> None:
    for name, y, other in zip(subject.out_names, got, before, strict=True):
        if exactly or not _compare.is_float(other.dtype.name):
            _compare.same_bits(f"output {name}", y, other, when)
        else:
            scale = _compare.largest(_compare.exact(other))
            _compare.close(
                f"output {name} {when}", y, _compare.exact(other), other.dtype.name, subject.ulps(other.dtype.name), scale
            )


def _neighbours(subject: Subject, case: Case) -> None:
    """The same bits whatever lies beside the inputs, and again."""
    arrays = subject.arrays(case)
    before: Any = None
    for fill in (0x00, 0xFF, 0x7F):
        moved: list[Any] = []
        for x in arrays:
            moved.append(None if x is None else _framed(x.shape, x.dtype, fill)[0])
            if x is not None:
                moved[-1][...] = x
        got, exactly = _bits(subject, moved, case)
        if before is not None:
            _expect_same(subject, got, before, exactly, f"where the bytes beside the inputs are {fill:#x}")
        before = got


def _threads(subject: Subject, case: Case) -> None:
    """The same bits by one thread, by several, and in calls from several threads at once."""
    arrays = subject.arrays(case)
    number = narrows.get_num_threads()
    try:
        narrows.set_num_threads(1)
        try:
            before, exactly = _bits(subject, arrays, case)
        except REFUSALS:
            raise Declined from None
        for several in range(2, number + 1, max(number // 4, 1)):
            narrows.set_num_threads(several)
            _expect_same(subject, _bits(subject, arrays, case)[0], before, exactly, f"by {several} threads, and not by one")
    finally:
        narrows.set_num_threads(number)
    _callers_at_once(subject, case)


def _callers_at_once(subject: Subject, case: Case) -> None:
    """Each caller has arrays of its own, so that memory which calls share shows in the results."""
    inputs = [subject.arrays(case, f"caller {i}") for i in range(_CALLERS)]
    alone = [_bits(subject, arrays, case) for arrays in inputs]
    results: list[Any] = [None] * _CALLERS
    begin = threading.Barrier(_CALLERS)

    def call(i: int) -> None:
        begin.wait()
        end = time.perf_counter() + _SECONDS
        try:
            while not any(results):
                _expect_same(subject, _bits(subject, inputs[i], case)[0], *alone[i], "in calls from several threads at once")
                if time.perf_counter() > end:
                    return
        except Exception as error:
            results[i] = error

    callers = [threading.Thread(target=call, args=(i,)) for i in range(_CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for result in results:
        if result is not None:
            raise result


def _large(subject: Subject, case: Case) -> None:
    """More elements than a thread takes at a time. Long sums are further off, but for ops that are judged per element."""
    arrays = subject.arrays(case)
    try:
        expected = subject.refer(arrays, case)
    except Exception:
        raise Declined from None
    try:
        got = subject(arrays, case)
    except REFUSALS:
        raise Declined from None
    subject.compare(got, arrays, expected, case, 1 if subject.per_element else max(case.extents()) ** 0.5)


# ---- in a child process ----


def _guard(run: Run, subject: Subject, cases: Sequence[Case]) -> bool:
    """No byte beside a tensor is read or written: it begins or ends at a page that may not be touched. Whether a call crashed."""
    asked = [(f"guard: {edge} byte at a page; {case}", case, edge) for case in cases for edge in ("first", "last")]
    asked = [one for one in asked if run.wants(one[0])]
    answers = _isolated.run([functools.partial(_guarded_call, subject, case, edge) for _, case, edge in asked], until_crash=True)
    for (label, _, _), answer in zip(asked, answers, strict=False):
        run.check(label, _judge_guarded, answer)
    return _isolated.crashed(answers)


def _guarded_call(subject: Subject, case: Case, edge: str) -> None:
    def placed(shape: Any, dtype: Any) -> Any:
        return _isolated.guarded(shape, dtype, edge)

    arrays: list[Any] = []
    for x in subject.arrays(case):
        arrays.append(None if x is None else placed(x.shape, x.dtype))
        if x is not None:
            arrays[-1][...] = x
    outputs = [None if s is None else placed(s[1], numpy_dtype(s[0])) for s in _specs(subject, case)]
    subject(arrays, case, out=tuple(outputs) if len(outputs) > 1 else outputs[0])


def _judge_guarded(answer: Any) -> None:
    if isinstance(answer, _isolated.Crash):
        raise Mismatch(f"the call {answer}: a byte beside a tensor was touched, or the kernel fails by itself")
    if isinstance(answer, RuntimeError) and not isinstance(answer, NotImplementedError):  # the kernel's
        raise answer
    if isinstance(answer, Exception):  # such a size is refused; the checks of values have the author's own
        raise Declined


def _computed(subject: Subject, case: Case) -> list[Any]:
    return [None if y is None else np.array(y) for y in subject(subject.arrays(case), case)]


def _refusals(run: Run, subject: Subject, cases: Sequence[Case]) -> None:
    """Dtypes, shapes and params that the author did not list: refused, or computed as the reference has it."""
    asked: list[tuple[str, Case, Callable[..., None]]] = []
    first = cases[0]
    for case in _other_dtypes(cases):
        asked.append((f"dtypes: {case}", case, _judge_dtype))
    for case in _other_shapes(first):
        asked.append((f"shapes: {case}", case, _judge_shape))
    for case in _other_params(run, subject, cases):
        asked.append((f"params: {case}", case, _judge_param))
    asked = [one for one in asked if run.wants(one[0])]
    answers = _isolated.run([functools.partial(_computed, subject, case) for _, case, _ in asked])
    for (label, case, judge), answer in zip(asked, answers, strict=True):
        run.check(label, judge, subject, case, answer)


def check_refused(run: Run, subject: Subject, case: Case, refused: Sequence[Any], where: str = "numpy") -> None:
    """Params that the author says are wrong. On the CPU in a child process, which a GPU's driver does not outlive."""
    for params in refused:
        wrong = case.replaced(params=tuple({**dict(case.params), **params}.items()))
        label = f"refused: {where}; {wrong}"
        if run.wants(label):
            task = functools.partial(_computed, subject, wrong)
            isolated = _isolated.POSSIBLE and where == "numpy"
            answer = _isolated.run([task])[0] if isolated else _caught(task)
            run.check(label, _judge_refused, answer)


def _caught(task: Callable[[], Any]) -> Any:
    try:
        return task()
    except Exception as error:
        return error


def _judge_refused(answer: Any) -> None:
    if _was_refused(answer, "these params"):
        return
    raise Mismatch("the op accepted it; expected ValueError or NotImplementedError")


def _was_refused(answer: Any, what: str) -> bool:
    """True where the call was refused; False where it was computed. Mismatch where it went wrong."""
    if isinstance(answer, _isolated.Crash):
        raise Mismatch(f"the call {answer}; expected that {what} are refused, or computed")
    if isinstance(answer, (*REFUSALS, TypeError, MemoryError)):
        return True
    if isinstance(answer, Exception):
        raise Mismatch(
            f"the call was accepted, and failed in the kernel: {answer}; expected that {what} are refused, by .check or .dtypes"
        )
    return False


def _compared(subject: Subject, case: Case, answer: Any, what: str) -> None:
    arrays = subject.arrays(case)
    try:
        expected = subject.refer(arrays, case)
    except Exception as error:
        raise Mismatch(f"the op computes it, and the reference raises {type(error).__name__}: {error}; expected {what}") from None
    try:
        subject.compare(answer, arrays, expected, case)
    except Mismatch as error:
        raise Mismatch(f"the op computes it: {error}; expected {what}, or the reference's numbers") from None


def _other_dtypes(cases: Sequence[Case]) -> Iterator[Case]:
    """Each dtype for all inputs, and for each input alone, that is not among those listed."""
    listed = {case.dtypes for case in cases}
    first = cases[0]
    for name in _compare.DTYPES:
        if numpy_dtype(name) is None:
            continue
        alike = (name,) * len(first.dtypes)
        single = [tuple(name if i == j else d for j, d in enumerate(first.dtypes)) for i in range(len(first.dtypes))]
        for dtypes in dict.fromkeys([alike, *single]):
            if dtypes not in listed:
                yield first.replaced(dtypes=dtypes)


def _judge_dtype(subject: Subject, case: Case, answer: Any) -> None:
    if _was_refused(answer, "dtypes that the op does not have"):
        raise Declined
    _compared(subject, case, answer, "that the dtypes are refused")


def _other_shapes(case: Case) -> Iterator[Case]:
    """One extent longer than it may be, where another input has it too; and one axis more."""
    if sum(s is not None for s in case.shapes) < 2:
        return
    for i, shape in enumerate(case.shapes):
        for axis in range(len(shape or ())):
            assert shape is not None
            grown = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
            yield case.replaced(shapes=(*case.shapes[:i], grown, *case.shapes[i + 1 :]))


def _judge_shape(subject: Subject, case: Case, answer: Any) -> None:
    if _was_refused(answer, "shapes that do not fit"):
        raise Declined
    _compared(subject, case, answer, "that the shapes are refused")


def _other_params(run: Run, subject: Subject, cases: Sequence[Case]) -> Iterator[Case]:
    """-1 and 0 for each number among the params, where the author lists neither."""
    case = cases[0]
    for name, kind, lanes, names, _ in subject.op.fields:
        if names is not None or lanes != 1 or kind not in _PROBES:
            continue
        if not subject.takes_param(name):
            run.leave_out(f"params: other values of {name}, which is no argument of the reference")
            continue
        listed = {dict(c.params).get(name) for c in cases}
        for value in _PROBES[kind]:
            if value not in listed:
                yield case.replaced(params=(*((n, v) for n, v in case.params if n != name), (name, value)))


def _judge_param(subject: Subject, case: Case, answer: Any) -> None:
    if _was_refused(answer, "such params"):
        raise Declined
    name, value = case.params[-1]
    expectation = f"that {name} = {value!r} is refused, or listed in params"
    for y in answer:
        if y is not None and _compare.is_float(y.dtype.name) and np.isnan(_compare.exact(y)).any():
            raise Mismatch(f"the op computes it, and gives NaN; expected {expectation}")
    _compared(subject, case, answer, expectation)
