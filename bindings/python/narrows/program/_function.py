# SPDX-License-Identifier: Apache-2.0
"""@T.prim_func: a Python function becomes the text of a program."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import os
import types
from collections.abc import Callable
from typing import Any, NoReturn, overload

import narrows
from narrows import _ops
from narrows.program import _library, _tuning, _writer
from narrows.program._recorder import Buffer, Recorder, caller, is_recording, record
from narrows.program._types import BufferType, DType, Handle


class PrimFunc:
    """A tensor program. ``text`` is all of it: docs/programs.md says what stands there."""

    def __init__(self, text: str) -> None:
        """Reads the text; ValueError: it is none, or has no meaning, as where it reads what nobody wrote."""
        self._text = text
        self._text = self.program.text()

    @classmethod
    def _of_schedule(cls, text: str) -> PrimFunc:
        """Of a text that is read where more is asked than to print it: a schedule may compute a point twice, a program may not."""
        function = object.__new__(cls)
        function._text = text
        return function

    @functools.cached_property
    def program(self) -> _library.Program:
        return _library.Program(self._text)

    @property
    def text(self) -> str:
        return self._text

    @property
    def name(self) -> str:
        return self.program.name()

    def vjp(self) -> PrimFunc:
        """The adjoint: the program of the gradients of the inputs. NotImplementedError names the block or buffer that has none."""
        return PrimFunc(self.program.vjp().text())

    def build(self, gradient: bool | int = False) -> narrows.Op:
        """An op that computes the program, for arrays of every framework, with the schedule that :meth:`Schedule.tune` kept for
        this machine, else with the default one. With ``gradient``, torch and JAX differentiate it by its adjoint; 2 makes the
        adjoint's adjoint, too."""
        return _ops.fresh(self._load(derivatives(gradient)))

    def export(
        self, path: str | os.PathLike[str], name: str | None = None, gradient: bool | int = False, backend: str = "cpu"
    ) -> None:
        """Writes a plugin ``narrows_<plugin>.so`` with the compiled program inside, and its manifest beside it. Where it is loaded
        it needs neither a compiler nor this module. The op is ``name``, or ``<plugin>.<program>/1``; ``gradient`` as in
        :meth:`build`. ValueError: a file is there, or ``path``, ``name`` or ``gradient`` is not good. NotImplementedError: more
        than 8 tensors may be absent, or the gradient has no program. RuntimeError: it cannot be compiled or written."""
        count = derivatives(gradient)
        program = self.program.copy()
        _tuning.schedule(program, backend)
        _library.export([program, *_tuning.adjoints(program, count, backend)], backend, name, os.fspath(path))

    def _load(self, gradients: int) -> str:
        backward = adjoint_op(self.program, gradients)
        name = self.program.load(None, backward)
        for backend, tuned in _tuning.kept(self.program):
            tuned.load(backend, backward)
        return name

    def script(self) -> str:
        """The text."""
        return self._text

    def show(self) -> None:
        """Prints the text."""
        print(self._text)

    def __call__(self, *arrays: Any, **how: Any) -> NoReturn:
        if is_recording():
            raise TypeError(
                f"program '{self.name}' is called inside another one; expected its loops and blocks there, "
                "or the ops of both called one after the other"
            )
        raise TypeError(f"program '{self.name}' is called; expected the op that {self.name}.build() gives")

    def __reduce__(self) -> tuple[Any, ...]:
        return PrimFunc._of_schedule, (self._text,)

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrimFunc) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def derivatives(gradient: object) -> int:
    """How many a ``gradient=`` asks for."""
    wrong = f"gradient = {gradient!r}; expected False, True, or how many derivatives: 0, 1, 2, ..."
    try:
        count = operator.index(gradient)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(wrong) from None
    if count < 0:
        raise ValueError(wrong)
    return count


def adjoint_op(program: _library.Program, gradients: int) -> str | None:
    """The op of the adjoint, with that many adjoints in all. None: none is wanted."""
    return PrimFunc(program.vjp().text())._load(gradients - 1) if gradients > 0 else None


def _annotations(function: Callable[..., Any], around: dict[str, Any]) -> dict[str, Any]:
    """Of the arguments; those that ``from __future__ import annotations`` left as strings are evaluated where they stand."""
    found = dict(function.__annotations__)
    for name, annotation in found.items():
        closure = inspect.getclosurevars(function).nonlocals if isinstance(annotation, str) else {}
        while isinstance(found[name], str):
            found[name] = eval(found[name], function.__globals__, {**around, **closure})
    return found


def _argument(recorder: Recorder, parameter: inspect.Parameter, annotation: Any) -> Any:
    name, default = parameter.name, parameter.default
    is_given = default is not inspect.Parameter.empty
    is_tensor = isinstance(annotation, (BufferType, Handle)) or annotation is Handle
    if is_tensor and is_given and default is not None:
        raise TypeError(f"argument '{name}': default {default!r}; expected none, or None of a tensor that may be absent")
    if isinstance(annotation, BufferType):
        tensor = Buffer(recorder.shape(annotation.shape, f"argument '{name}'"), annotation.short, name)
        tensor.is_optional = default is None
        recorder.tensors[name] = tensor
        return tensor
    if is_tensor:
        return recorder.handle(name, default is None)
    if isinstance(annotation, DType):
        if not is_given:  # the text has a default for each param, and a call that forgets it would have that one
            raise TypeError(
                f"argument '{name}' of '{recorder.name}' has no default; expected one, as in {name}: {annotation!r} = 1: "
                "a call may leave out a param"
            )
        return recorder.param(annotation, default, name, f"argument '{name}'")
    raise TypeError(
        f"argument '{name}' of '{recorder.name}' is annotated with {annotation!r}; expected T.Buffer(shape, dtype), T.handle, "
        "or a dtype such as T.float32"
    )


def _function_of(recorder: Recorder) -> PrimFunc:
    """A running sum reads what it stored before, so its tensor is an output. If it reads an element before any store into that, the
    tensor is an input, too."""
    if any(tensor is not None and tensor.is_carried for tensor in recorder.tensors.values()):
        with contextlib.suppress(ValueError, NotImplementedError):
            return PrimFunc(_writer.write(recorder, carried="out"))
    return PrimFunc(_writer.write(recorder))


def _run(function: Callable[..., Any], around: dict[str, Any]) -> PrimFunc:
    from narrows.program import script

    recorder = Recorder(function.__name__)
    annotations = _annotations(function, around)
    # `range` in the function is T.serial; everything else is what its module has.
    globals_ = function.__globals__ if "range" in function.__globals__ else {**function.__globals__, "range": script.serial}
    again = types.FunctionType(function.__code__, globals_, function.__name__, function.__defaults__, function.__closure__)

    def run() -> Any:
        parameters = inspect.signature(function).parameters.values()
        arguments = {p.name: _argument(recorder, p, annotations.get(p.name)) for p in parameters}
        by_name = {p.name: arguments.pop(p.name) for p in parameters if p.kind is p.KEYWORD_ONLY}
        return again(*arguments.values(), **by_name)

    try:
        record(recorder, run)
        return _function_of(recorder)
    except RecursionError:
        raise SyntaxError(
            f"'{recorder.name}' is run once to record it, and does not end: a function in it calls itself, or an expression has "
            "thousands of levels"
        ) from None


@overload
def prim_func(function: Callable[..., Any], /) -> PrimFunc: ...
@overload
def prim_func(
    *, private: bool = ..., check_well_formed: bool = ..., s_tir: bool = ...
) -> Callable[[Callable[..., Any]], PrimFunc]: ...
def prim_func(
    function: Callable[..., Any] | None = None, /, *, private: bool = False, check_well_formed: bool = True, s_tir: bool = True
) -> PrimFunc | Callable[[Callable[..., Any]], PrimFunc]:
    """Runs the function once and records it. TVM's keywords are taken; they change nothing here."""
    frame = caller()
    outer = frame.f_back.f_locals if frame.f_back is not None else {}  # of a class's body: the function that it stands in
    around = {**outer, **frame.f_locals}
    if function is None:
        return lambda later: _run(later, around)
    return _run(function, around)
