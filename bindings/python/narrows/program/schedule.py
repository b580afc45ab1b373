# SPDX-License-Identifier: Apache-2.0
"""Schedule: steps that change how a program runs, and not what it computes. docs/program_schedules.md has the steps."""

from __future__ import annotations

import functools
import inspect
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import narrows
from narrows import _errors, _ops
from narrows.program import _expressions, _library, _tuning
from narrows.program._evaluation import Evaluation, backend_of, compared, refuse_out, run
from narrows.program._expressions import Variable
from narrows.program._function import PrimFunc, adjoint_op, derivatives
from narrows.program._recorder import note, quoted
from narrows.program._tuning import Tuned
from narrows.program.ir import IRModule

ScheduleError = _library.ScheduleError


class _Handle:
    def __init__(self, name: str, family: str | None = None) -> None:
        self.name, self._family = name, family

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Block(_Handle):
    """A block of a schedule, by its name."""


class Loop(_Handle):
    """A loop of a schedule, by its name. A step that replaces the loop makes others; this one is gone then."""


class Trace:
    """The steps that a schedule took, a line each. Another schedule of the program takes them by ``apply_to_schedule``."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def show(self) -> None:
        """Prints the lines."""
        print(self)

    def apply_to_schedule(self, schedule: Schedule) -> None:
        """Takes all of the steps there, or none: a ScheduleError names the line that is refused."""
        trial = schedule.copy()
        for number, line in enumerate(self.lines, 1):
            try:
                trial.apply(line)
            except ScheduleError as error:
                raise ScheduleError(f"line {number} of the trace: {error}") from None
        schedule._schedules = trial._schedules

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__


# TVM's steps that are not here, with what to write instead.
_NOT_OFFERED = {
    "a search makes no part of a trace": "sample_categorical sample_perfect_tile sample_partitioned_tile sample_compute_location",
    "tensorize takes a loop, not a block": "blockize",
    "sch.pad makes rows longer": "storage_align",
    "sch.pipeline takes its place": "software_pipeline",
    "a split leaves a condition for what is over": "pad_einsum",
}


def _absent(kind: str, name: str, names: list[str]) -> ScheduleError:
    near = _errors.near(name, names) if isinstance(name, str) else ""
    return ScheduleError(f"there is no {kind} '{name}'{near or ';'} there are: {', '.join(names) or 'none'}")


def _says_arguments(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step, which says what it takes where a keyword is none of its own: the text's steps have other ones."""
    parameters = list(inspect.signature(step).parameters.values())[1:]
    words = {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD or p.kind is p.KEYWORD_ONLY}

    @functools.wraps(step)
    def take(self: Schedule, *given: Any, **named: Any) -> Any:
        wrong = [name for name in named if name not in words]
        if wrong:
            shown = inspect.Signature([p.replace(annotation=p.empty) for p in parameters])
            raise TypeError(f"{step.__name__} has no argument '{wrong[0]}'; expected {step.__name__}{shown}")
        return step(self, *given, **named)

    return take


def _steps(schedule: type[Schedule]) -> type[Schedule]:
    for name, step in list(vars(schedule).items()):
        if inspect.isfunction(step) and not name.startswith("_") and "how" not in inspect.signature(step).parameters:
            setattr(schedule, name, _says_arguments(step))
    return schedule


@_steps
class Schedule:
    """A program and the steps that it took. Each step is proven to keep what the program computes, or ScheduleError says what
    it would change, and nothing has changed then.

    >>> from narrows.program import script as T, Schedule
    >>> @T.prim_func
    ... def double(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    ...     for i in range(64):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(64, i)
    ...             B[vi] = A[vi] * 2
    >>> sch = Schedule(double)
    >>> (i,) = sch.get_loops(sch.get_block("B"))
    >>> outer, inner = sch.split(i, factors=[None, 8])
    >>> sch.vectorize(inner)
    >>> sch.trace.show()
    split(loop="i", factors=[None, 8])
    vectorize(loop="i_1")
    """

    def __init__(self, mod: PrimFunc | IRModule | str) -> None:
        module = IRModule(PrimFunc(mod)) if isinstance(mod, str) else mod if isinstance(mod, IRModule) else IRModule(mod)
        self._schedules = {name: module[name].program.copy() for name in module}
        self._worked_on = next(iter(module)) if len(module) == 1 else "main"
        self._family = uuid.uuid4().hex  # shared by copies: their loops and blocks have the same names

    @property
    def _schedule(self) -> _library.Program:
        if self._worked_on not in self._schedules:
            raise ScheduleError(f"the module has the programs {', '.join(self._schedules)}; choose one by sch.work_on(name)")
        return self._schedules[self._worked_on]

    def work_on(self, func_name: str) -> None:
        """Chooses the program of a module that the next steps are for."""
        if func_name not in self._schedules:
            raise _absent("program", func_name, list(self._schedules))
        self._worked_on = func_name

    def copy(self) -> Schedule:
        """A schedule that goes on from here by itself."""
        other = object.__new__(Schedule)
        other._schedules = {name: schedule.copy() for name, schedule in self._schedules.items()}
        other._worked_on, other._family = self._worked_on, self._family
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        programs = {name: (schedule.original().text(), schedule.trace()) for name, schedule in self._schedules.items()}
        return _again, (programs, self._worked_on, self._family)

    # ---- what there is ----

    @property
    def mod(self) -> IRModule:
        """The programs as they are now, to print. What more is done with one reads its text as that of a program without steps:
        ValueError where that is none, since a block computes a point more than once."""
        return IRModule({name: PrimFunc._of_schedule(schedule.text()) for name, schedule in self._schedules.items()})

    @property
    def trace(self) -> Trace:
        return Trace(self._schedule.trace())

    def show(self) -> None:
        """Prints the program as it is now, and the trace."""
        print(self._schedule.text())
        if self.trace.lines:
            print("\n".join(f"# {line}" for line in self.trace))

    def get_block(self, name: str, func_name: str | None = None) -> Block:
        if func_name is not None:
            self.work_on(func_name)
        blocks = self._schedule.blocks()
        if name not in blocks:
            raise _absent("block", name, blocks)
        return Block(name, self._family)

    get_sblock = get_block

    def get_loops(self, block: Block | str) -> list[Loop]:
        """The loops around a block, from the outermost."""
        return [Loop(name, self._family) for name in self._schedule.loops(self._name(block))]

    # ---- loops ----

    def split(
        self,
        loop: Loop | str,
        factors: list[int | None],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[Loop]:
        """Nested loops for one, as many as there are factors; one of them may be None, what the others leave."""
        if disable_predication:
            raise ScheduleError("split: disable_predication = True; the remainder of a loop always gets its condition")
        return [Loop(name, self._family) for name in self._take("split", loop=self._name(loop), factors=list(factors))]

    def fuse(self, *loops: Loop | str | Sequence[Loop | str], preserve_unit_iters: bool = True) -> Loop:
        """One loop for nested ones, from the outermost to the innermost; they may be given as a list."""
        return Loop(self._take("fuse", loops=self._names(loops))[0], self._family)

    def reorder(self, *ordered_loops: Loop | str | Sequence[Loop | str]) -> None:
        """Puts nested loops in this order; they may be given as a list."""
        self._take("reorder", loops=self._names(ordered_loops))

    def parallel(self, loop: Loop | str) -> None:
        self._take("parallel", loop=self._name(loop))

    def vectorize(self, loop: Loop | str) -> None:
        self._take("vectorize", loop=self._name(loop))

    def unroll(self, loop: Loop | str) -> None:
        self._take("unroll", loop=self._name(loop))

    def bind(self, loop: Loop | str, thread_axis: str) -> None:
        """To a GPU's "blockIdx.x" to "threadIdx.z", which the text calls "block.x" to "thread.z"."""
        from narrows.program import script

        self._take("bind", loop=self._name(loop), thread=script.thread_axis(thread_axis))

    def pipeline(self, loop: Loop | str, stages: int = 2) -> None:
        """The copies that stand first in the loop may run up to stages - 1 iterations ahead of what uses them."""
        self._take("pipeline", loop=self._name(loop), stages=stages)

    def tensorize(self, loop: Loop | str, tensor_intrin: str) -> None:
        """The loop and those in it are one product of a matrix unit: "mma.f16.f32", "mma.bf16.f32" or "dot.i8.i32"."""
        self._take("tensorize", loop=self._name(loop), intrinsic=tensor_intrin)

    # ---- where blocks stand ----

    def compute_at(self, block: Block | str, loop: Loop | str, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Moves a block into a loop of its readers, where it computes what each iteration reads."""
        self._take("compute_at", block=self._name(block), loop=self._name(loop))

    def reverse_compute_at(self, block: Block | str, loop: Loop | str, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Moves a block into a loop of what it reads, where it computes what each iteration makes possible. A block that reads what no
        block writes moves into any loop, and each iteration computes all of it."""
        self._take("reverse_compute_at", block=self._name(block), loop=self._name(loop))

    def compute_inline(self, block: Block | str) -> None:
        """Puts a block's expression into its readers."""
        self._take("compute_inline", block=self._name(block))

    def reverse_compute_inline(self, block: Block | str) -> None:
        """Puts a block's expression into the one block that it reads."""
        self._take("reverse_compute_inline", block=self._name(block))

    # ---- reductions ----

    def decompose_reduction(self, block: Block | str, loop: Loop | str) -> Block:
        """Makes a block of its own of what a reduction begins with, in front of the loop."""
        return Block(self._take("decompose_reduction", block=self._name(block), loop=self._name(loop))[0], self._family)

    def rfactor(self, loop: Loop | str, factor_axis: int = 0) -> Block:
        """Makes partial results, one for each iteration of the loop, which another block combines. ``factor_axis``: the loop's dimension
        in their buffer; a negative one counts from the end."""
        return Block(self._take("rfactor", loop=self._name(loop), axis=factor_axis)[0], self._family)

    # ---- buffers ----

    def cache_read(
        self,
        block: Block | str,
        read_buffer_index: int | str,
        storage_scope: str = "global",
        consumer_blocks: Sequence[Block | str] | None = None,
    ) -> Block:
        """A copy of what a block reads, by the buffer's name or by its number among those that the block reads. The
        ``consumer_blocks`` read the copy, too; by default the block alone does."""
        consumers = {"consumers": [self._name(one) for one in consumer_blocks]} if consumer_blocks else {}
        return self._cache("cache_read", block, read_buffer_index, storage_scope, self._reads, **consumers)

    def cache_write(self, block: Block | str, write_buffer_index: int | str, storage_scope: str = "global") -> Block:
        """A buffer that a block writes first, and that is copied into the old one."""
        return self._cache("cache_write", block, write_buffer_index, storage_scope, self._writes)

    def _cache(
        self, step: str, block: Block | str, buffer: int | str, scope: str, choices: Callable[[str], list[str]], **more: list[str]
    ) -> Block:
        name = _chosen(buffer, choices(self._name(block)), step)
        return Block(self._take(step, block=self._name(block), buffer=name, scope=_scope(scope), **more)[0], self._family)

    def set_scope(self, block: Block | str, buffer_index: int | str, storage_scope: str) -> None:
        """Of a buffer that the block writes."""
        self._take(
            "set_scope", buffer=_chosen(buffer_index, self._writes(self._name(block)), "set_scope"), scope=_scope(storage_scope)
        )

    def transform_layout(
        self, block: Block | str, buffer: tuple[str, int] | str | int, index_map: Callable[..., Any] | str, pad_value: None = None
    ) -> None:
        """Stores a buffer in another order: ``lambda i, j: (j, i)``, or "i, j -> j, i". The buffer by its name, or as ("read", 0)
        and ("write", 0)."""
        if isinstance(buffer, tuple):
            of = {"read": self._reads, "write": self._writes}.get(buffer[0])
            if of is None:
                raise ScheduleError(
                    f"transform_layout: buffer = {buffer!r}; expected ('read', number), ('write', number) or a name"
                )
            choices = of(self._name(block))
            buffer = _chosen(buffer[1], choices, "transform_layout")
        name = _chosen(buffer, self._writes(self._name(block)), "transform_layout")
        self._take("transform_layout", buffer=name, map=index_map if isinstance(index_map, str) else _map(index_map))

    def pad(self, block: Block | str, buffer_index: int | str, axis: int, elements: int) -> None:
        """Makes a dimension of a buffer that the block writes longer in memory, by elements that nothing uses."""
        buffer = _chosen(buffer_index, self._writes(self._name(block)), "pad")
        self._take("pad", buffer=buffer, axis=axis, elements=elements)

    def annotate(self, block_or_loop: Block | Loop | str, ann_key: str, ann_val: object) -> None:
        """A note, which a backend may read. A name is a loop's, or else a block's."""
        name = self._name(block_or_loop)
        kind = "block" if isinstance(block_or_loop, Block) else "loop"
        if isinstance(block_or_loop, str):
            blocks = self._schedule.blocks()
            loops = list(dict.fromkeys(loop for block in blocks for loop in self._schedule.loops(block)))
            if name not in loops and name not in blocks:
                raise _absent("loop or block", name, [*loops, *blocks])
            kind = "loop" if name in loops else "block"
        self._take("annotate", **{kind: name}, key=ann_key, value=note(ann_val))

    # ---- running ----

    def auto(self, backend: str | None = None, device: str | narrows.Device | None = None) -> None:
        """Takes the steps of the default schedule, which the trace then shows. It is that of a backend: of "cpu" unless given, or of
        the one that runs programs on ``device``. NotImplementedError: the backend has none. RuntimeError: no backend runs programs
        on the device."""
        if device is not None:
            backend, _ = backend_of(self._schedule, (), {"device": device}, backend)
        self._schedule.auto("cpu" if backend is None else backend)

    def build(self, backend: str = "cpu", gradient: bool | int = False) -> narrows.Op:
        """An op that computes the program, which the plugins of that name run as the steps say. The others keep their schedules,
        by default the default ones. The last schedule that was built of a program is the one that new ops of it have. ``gradient``
        as in PrimFunc.build; the adjoint has the default schedule."""
        _library.c_string("backend", backend)
        return _ops.fresh(self._schedule.load(backend, adjoint_op(self._schedule, derivatives(gradient))))

    def tune(self, *inputs: Any, budget: float = 10.0, backend: str | None = None, keep: bool = True, **how: Any) -> Tuned:
        """Takes the fastest steps that are found within ``budget`` seconds of measuring on these arrays. The search begins with the
        steps so far, or with the default ones. Unless ``keep`` is False, later builds of the program on this machine have the
        result; what was kept before is measured, too. ``backend``: by default the one that runs programs where the arrays are,
        or on ``device``. Params and what narrows.op() takes, but ``out``, go by keyword. OSError: the result cannot be kept;
        nothing was measured."""
        best, tuned = _tuning.tune(self._schedule.copy(), inputs, budget, backend, keep, how)
        self._schedules[self._worked_on] = best.copy()
        return tuned

    def export(
        self, path: str | os.PathLike[str], name: str | None = None, gradient: bool | int = False, backend: str = "cpu"
    ) -> None:
        """As :meth:`PrimFunc.export`, with the steps of this schedule; the gradient has its default schedule."""
        programs = [self._schedule, *_tuning.adjoints(self._schedule, derivatives(gradient), backend)]
        _library.export(programs, backend, name, os.fspath(path))

    def evaluate(self, *inputs: Any, backend: str | None = None, **how: Any) -> Evaluation:
        """Runs the program on these arrays as it is scheduled, and as the backend itself would run it; compares the results, and
        times both. Ops of the program that there are keep their schedules. ``backend`` and what goes by keyword: as in tune().
        ArithmeticError: the results differ."""
        refuse_out(how)
        backend, how = backend_of(self._schedule, inputs, how, backend)
        with self._schedule.lent(backend) as name:
            scheduled = run(narrows.Op(name), inputs, how)
            _library.unschedule(name, backend)
            return compared(name, scheduled, run(narrows.Op(name), inputs, how))

    # ---- how a step is taken ----

    def apply(self, line: str) -> list[str]:
        """Takes a line of a trace; gives the names of what it made."""
        return self._schedule.step(line)

    def _name(self, of: Block | Loop | str) -> str:
        if not isinstance(of, (Block, Loop, str)):
            raise TypeError(f"{of!r}; expected a block or a loop of the schedule, or its name")
        if isinstance(of, str):
            return of
        if of._family not in (None, self._family):
            raise ScheduleError(f"{of!r} is of another schedule; expected one by this schedule's get_block, get_loops or a step")
        return of.name

    def _names(self, loops: Sequence[Any]) -> list[str]:
        """Of loops that are given one by one, or as a list."""
        given = loops[0] if len(loops) == 1 and isinstance(loops[0], (list, tuple)) else loops
        return [self._name(loop) for loop in given]

    def _take(self, step: str, **arguments: object) -> list[str]:
        return self.apply(f"{step}({', '.join(f'{key}={_shown(value)}' for key, value in arguments.items())})")

    def _stores(self, block: str) -> list[tuple[str, str]]:
        """(left, right side) of each store of a block."""
        lines = self._schedule.text().splitlines()
        begin = next((i for i, line in enumerate(lines) if line.lstrip().startswith(f"block {block}(")), None)
        if begin is None:
            raise _absent("block", block, self._schedule.blocks())
        depth = len(lines[begin]) - len(lines[begin].lstrip())
        stores = []
        for line in lines[begin + 1 :]:
            if len(line) - len(line.lstrip()) <= depth:
                break
            if " = " in line:
                left, right = line.strip().split(" = ", 1)
                stores.append((left, right))
        return stores

    def _writes(self, block: str) -> list[str]:
        return list(dict.fromkeys(left.split("[")[0] for left, _ in self._stores(block)))

    def _reads(self, block: str) -> list[str]:
        written = self._writes(block)
        read = [name for _, right in self._stores(block) for name in re.findall(r"([A-Za-z_]\w*)\[", right)]
        return [name for name in dict.fromkeys(read) if name not in written]

    def __getattr__(self, name: str) -> NoReturn:
        for reason, names in _NOT_OFFERED.items():
            if name in names.split():
                raise AttributeError(f"sch.{name} is not offered: {reason}")
        steps = [step for step in vars(type(self)) if not step.startswith("_")]
        near = "" if name.startswith("_") else _errors.near(name, steps) or f"; it has {', '.join(steps)}"
        raise AttributeError(f"a schedule has no '{name}'{near}")


def _again(programs: dict[str, tuple[str, list[str]]], worked_on: str, family: str) -> Schedule:
    """Of a schedule that was pickled or copied: each step is proven anew."""
    made = object.__new__(Schedule)
    made._schedules = {name: _library.Program(text).taken(trace) for name, (text, trace) in programs.items()}
    made._worked_on, made._family = worked_on, family
    return made


def _scope(scope: str) -> str:
    return scope.removesuffix(".dyn")


def _chosen(buffer: int | str, choices: list[str], step: str) -> str:
    if isinstance(buffer, str):
        return buffer
    if not 0 <= buffer < len(choices):
        raise ScheduleError(f"{step}: buffer {buffer}; the block has {len(choices)}: {', '.join(choices)}")
    return choices[buffer]


def _map(index_map: Callable[..., Any]) -> str:
    names = list(inspect.signature(index_map).parameters)
    subscripts = index_map(*(Variable("axis", hint=name) for name in names))
    places = subscripts if isinstance(subscripts, (tuple, list)) else [subscripts]
    return f"{', '.join(names)} -> {', '.join(_expressions.as_index(place, 'transform_layout').text() for place in places)}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return quoted(value) if isinstance(value, str) else str(value)
