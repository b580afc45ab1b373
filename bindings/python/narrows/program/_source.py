# SPDX-License-Identifier: Apache-2.0
"""The source that a backend makes of a program: extension nw_program_source of narrows/program.h."""

from __future__ import annotations

import contextlib
import ctypes
from ctypes import POINTER, byref, c_char_p, c_uint32, c_uint64, c_void_p

import narrows
from narrows import _narrows, _programs
from narrows.program import _library

_EXTENSION = b"program_source/1"
_SOURCE = ctypes.CFUNCTYPE(ctypes.c_int32, c_void_p, c_char_p, c_char_p, c_uint64, POINTER(c_uint64), POINTER(_library._Error))
_COMPILER = ctypes.CFUNCTYPE(ctypes.c_int32, c_void_p, c_char_p, c_uint64, POINTER(c_uint64), POINTER(_library._Error))


class _Extension(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("self", c_void_p),
        ("source", _SOURCE),
        ("compiler", _COMPILER),
    )


def _of(backend: str) -> _Extension | None:
    find = _library._library().nw_extension
    find.argtypes, find.restype = [c_void_p, c_char_p, c_char_p], c_void_p
    found = find(_library._runtime(), backend.encode(), _EXTENSION)
    if not found or c_uint32.from_address(found).value < ctypes.sizeof(_Extension):
        return None  # none, or one of an older header
    return _Extension.from_address(found)


def compiler(backend: str) -> str:
    """What compiles programs for a backend, as `narrows info` says it. Empty: there is nothing that does."""
    found = _of(backend)
    if found is None:
        return ""
    out, error = ctypes.create_string_buffer(1024), _library._Error()
    status = found.compiler(found.self, out, len(out), byref(c_uint64()), byref(error))
    return "" if status else out.value.decode()


def _text(op: narrows.Op, backend: str) -> str:
    """How the plugins of that name run it."""
    text, steps = _programs.scheduled(op.op, backend)
    program = _library.Program(text)
    if steps is None:
        with contextlib.suppress(NotImplementedError):  # it has no default schedule
            program.auto(backend)
    for step in steps or ():
        program.step(step)
    return program.text()


def source(op: narrows.Op, backend: str = "cpu") -> str:
    """Backs Op.source()."""
    if not _programs.is_program(op.op):
        raise ValueError(f"{op.op} is no tensor program; only those have a source")
    found = _of(backend)
    if found is None:
        having = [b["name"] for b in _narrows.backends() if b["status"] == "ok" and _of(b["name"]) is not None]
        expected = f"expected one of {', '.join(having)}" if having else "no backend that is here does"
        raise NotImplementedError(f"{op.op}: backend '{backend}' gives no source of programs; {expected}")
    text, needed, error = _text(op, backend).encode(), c_uint64(), _library._Error()
    size = 0
    while True:
        out = ctypes.create_string_buffer(size)
        _library.require(found.source(found.self, text, out, size, byref(needed), byref(error)), error)
        if needed.value <= size:
            return out.value.decode()
        size = needed.value
