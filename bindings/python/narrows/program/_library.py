# SPDX-License-Identifier: Apache-2.0
"""libnarrows_program, by ctypes: narrows/program.h has its functions."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import pathlib
import threading
import weakref
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

import narrows
from narrows import _programs

_NAME = "libnarrows_program.so.1"
_INVALID, _UNSUPPORTED = 1, 2  # NW_INVALID, NW_UNSUPPORTED


class ScheduleError(ValueError):
    """A step that is not possible, or that could change what the program computes. Nothing has changed."""


class _Error(ctypes.Structure):
    _fields_ = (("status", c_int32), ("argument", c_int32), ("native_code", c_int64), ("message", c_char * 496))


class _Op(ctypes.Structure):
    """The beginning of nw_op."""

    _fields_ = (("struct_size", c_uint32), ("flags", c_uint32), ("name", c_char_p))


_OUT_STRING, _OUT_STRINGS = POINTER(c_char_p), POINTER(POINTER(c_char_p))
_FUNCTIONS: dict[str, list[Any]] = {
    "nw_program_parse": [c_char_p, POINTER(c_void_p)],
    "nw_program_clone": [c_void_p, POINTER(c_void_p)],
    "nw_program_step": [c_void_p, c_char_p, _OUT_STRINGS],
    "nw_program_auto": [c_void_p, c_char_p],
    "nw_program_print": [c_void_p, _OUT_STRING],
    "nw_program_trace": [c_void_p, _OUT_STRING],
    "nw_program_name": [c_void_p, _OUT_STRING],
    "nw_program_digest": [c_void_p, _OUT_STRING],
    "nw_program_blocks": [c_void_p, _OUT_STRINGS],
    "nw_program_loops": [c_void_p, c_char_p, _OUT_STRINGS],
    "nw_program_load": [c_void_p, c_void_p, c_char_p, c_char_p, POINTER(POINTER(_Op))],
    "nw_program_load_saved": [c_void_p, c_char_p, POINTER(POINTER(_Op))],
    "nw_program_vjp": [c_void_p, POINTER(c_void_p)],
    "nw_program_export": [c_void_p, POINTER(c_void_p), c_uint32, c_char_p, c_char_p, c_char_p],
    "nw_runtime_default": [POINTER(c_void_p)],
    "nw_schedule_program": [c_void_p, c_char_p, c_char_p, c_char_p],
}


@functools.cache
def _library() -> ctypes.CDLL:
    folder = pathlib.Path(narrows.__file__).parent / "lib"
    if not (folder / _NAME).exists():
        raise RuntimeError(
            f"there is no {_NAME} in {folder}: this narrows was built without tensor programs; they need isl (Debian: libisl-dev)"
        )
    library = ctypes.CDLL(str(folder / _NAME))
    for name, arguments in _FUNCTIONS.items():
        getattr(library, name).argtypes = [*arguments, POINTER(_Error)]
    library.nw_program_free.argtypes, library.nw_program_free.restype = [c_void_p], None
    return library


def _call(name: str, *arguments: Any, raises: type[Exception] = ValueError) -> None:
    error = _Error()
    require(getattr(_library(), name)(*arguments, byref(error)), error, raises)


def require(status: int, error: _Error, raises: type[Exception] = ValueError) -> None:
    """Raises what a function failed with. ``raises``: for NW_INVALID."""
    if status == 0:
        return
    message = error.message.decode(errors="replace")
    if status == _UNSUPPORTED:
        raise NotImplementedError(message)
    raise raises(message) if status == _INVALID else RuntimeError(message)


def c_string(argument: str, given: object) -> bytes:
    """As C has it, which ends at the first NUL."""
    if not isinstance(given, str):
        raise TypeError(f"{argument} = {given!r}; expected a string")
    if "\0" in given:
        raise ValueError(f"{argument} has a NUL at {given.index(chr(0))}: {given[:60]!r}; expected text without one")
    return given.encode()


class Program:
    """A program and the steps that it took. Threads may share it: the library allows one at a time, and keeps what a function gave
    until the next one is called, so a lock is held until that is copied.
    """

    def __init__(self, text: str) -> None:
        self._own("nw_program_parse", c_string("text", text))
        self._unscheduled = self.text()

    def _own(self, make: str, of: Any) -> None:
        self._handle, self._lock = c_void_p(), threading.Lock()
        _call(make, of, byref(self._handle))
        weakref.finalize(self, _library().nw_program_free, self._handle).atexit = False

    def copy(self) -> Program:
        other = object.__new__(Program)
        with self._lock:
            other._own("nw_program_clone", self._handle)
        other._unscheduled = self._unscheduled
        return other

    def _string(self, name: str) -> str:
        found = c_char_p()
        with self._lock:
            _call(name, self._handle, byref(found))
            return (found.value or b"").decode()

    def _strings(self, name: str, *arguments: Any) -> list[str]:
        found = POINTER(c_char_p)()
        with self._lock:
            _call(name, self._handle, *arguments, byref(found), raises=ScheduleError)
            strings = itertools.takewhile(lambda string: string is not None, (found[i] for i in itertools.count()))
            return [string.decode() for string in strings]

    def text(self) -> str:
        return self._string("nw_program_print")

    def name(self) -> str:
        return self._string("nw_program_name")

    def digest(self) -> str:
        return self._string("nw_program_digest")

    def trace(self) -> list[str]:
        return self._string("nw_program_trace").split("\n")[:-1]

    def blocks(self) -> list[str]:
        return self._strings("nw_program_blocks")

    def loops(self, block: str) -> list[str]:
        return self._strings("nw_program_loops", c_string("block", block))

    def step(self, line: str) -> list[str]:
        return self._strings("nw_program_step", c_string("step", line))

    def auto(self, backend: str) -> None:
        with self._lock:
            _call("nw_program_auto", self._handle, c_string("backend", backend), raises=ScheduleError)

    def original(self) -> Program:
        """Without steps."""
        return Program(self._unscheduled)

    def vjp(self) -> Program:
        """The adjoint, without steps. NotImplementedError: there is none."""
        other = object.__new__(Program)
        with self._lock:
            other._own("nw_program_vjp", self._handle)
        other._unscheduled = other.text()
        return other

    def load(self, backend: str | None, backward: str | None = None) -> str:
        """Makes it an op of the process's runtime, and gives the op's name. The plugins of that name run it as the steps say; None:
        all run it by their default schedules, which a saved model takes again on the machine that loads it. `backward` names the op
        of its adjoint."""
        name = self._load(backend, backward)
        _programs.remember(name, self.digest(), self._unscheduled, backward, backend, self.trace())
        return name

    def _load(self, backend: str | None, backward: str | None) -> str:
        plugin = None if backend is None else c_string("backend", backend)
        op = POINTER(_Op)()
        with self._lock:
            _call("nw_program_load", _runtime(), self._handle, backward and backward.encode(), plugin, byref(op))
            return str(op.contents.name.decode())

    @contextlib.contextmanager
    def lent(self, backend: str) -> Iterator[str]:
        """The name of an op that the plugins of that name run as the steps say. Afterwards they run it as they did before."""
        name = self._load(backend, None)
        try:
            yield name
        finally:
            self._restore(name, backend)

    def _restore(self, name: str, backend: str) -> None:
        is_known, steps = _programs.schedule_of(name, backend)
        before = self.original()
        try:
            before.taken(steps) if steps is not None else before.auto(backend)
        except NotImplementedError:  # the backend has no default schedule
            is_known = False
        if is_known:
            before._load(backend, None)
        else:
            unschedule(name, backend)

    def taken(self, steps: list[str]) -> Program:
        """Itself, after these steps."""
        for line in steps:
            self.step(line)
        return self


def export(programs: list[Program], backend: str, op: str | None, path: str) -> None:
    """Writes a plugin of them; each is the backward of the one before."""
    c_string("path", os.fsdecode(path))
    c_string("name", op or "")
    handles = (c_void_p * len(programs))(*(each._handle for each in programs))
    with contextlib.ExitStack() as locked:
        for each in programs:
            locked.enter_context(each._lock)
        plugin = c_string("backend", backend)
        _call("nw_program_export", _runtime(), handles, len(programs), plugin, op and op.encode(), os.fsencode(path))


def _runtime() -> c_void_p:
    """The process's, which narrows' ops have."""
    runtime = c_void_p()
    _call("nw_runtime_default", byref(runtime))
    return runtime


def load_saved(carried: str) -> str:
    """The op of the program that a saved model carries."""
    op = POINTER(_Op)()
    _call("nw_program_load_saved", _runtime(), c_string("the saved program", carried), byref(op))
    return str(op.contents.name.decode())


def unschedule(op: str, backend: str) -> None:
    """The plugins of that name choose again how to run a program."""
    _call("nw_schedule_program", _runtime(), op.encode(), backend.encode(), None)
