# SPDX-License-Identifier: Apache-2.0
"""Calls in a child process, so that a crash is a result; and arrays beside memory that may not be touched."""

import ctypes
import faulthandler
import mmap
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

POSSIBLE = sys.platform.startswith("linux")
_SECONDS = 60.0  # for one call


class Crash(Exception):
    """How a child ended that did not answer."""


def run(tasks: Sequence[Callable[[], Any]], until_crash: bool = False) -> list[Any]:
    """What each returns or the exception that it raises; Crash where it ended the process. After a crash the rest runs in another, or
    is left out."""
    answers: list[Any] = []
    while len(answers) < len(tasks) and not (until_crash and answers and isinstance(answers[-1], Crash)):
        answers += _run_child(tasks[len(answers) :])
    return answers


def crashed(answers: Sequence[Any]) -> bool:
    return any(isinstance(answer, Crash) for answer in answers)


def _run_child(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX and Python warn of threads: the child calls Narrows, which starts its own anew
        child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(tasks, writer)
    os.close(writer)
    try:
        answers = _read(reader, len(tasks))
    finally:
        os.close(reader)
        status = _end(child)
    if len(answers) < len(tasks):
        if status is None:
            how = f"gave no answer for {_SECONDS:g} s"
        elif os.WIFSIGNALED(status):
            how = f"ended the process by {signal.Signals(os.WTERMSIG(status)).name}"
        else:
            how = f"ended the process with exit code {os.WEXITSTATUS(status)}"
        answers.append(Crash(how))
    return answers


def _end(child: int) -> int | None:
    """The status of a child that has closed its pipe, and so ends; None: it did not, and was killed."""
    for _ in range(100):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _answer(tasks: Sequence[Callable[[], Any]], writer: int) -> None:
    """In the child: never returns."""
    try:
        import resource

        faulthandler.disable()
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT, signal.SIGILL):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for task in tasks:
            try:
                answer = task()
            except Exception as error:
                answer = error
            try:
                data = pickle.dumps(answer)
            except Exception:
                data = pickle.dumps(RuntimeError(f"{type(answer).__name__}: {answer}"))
            _write(writer, len(data).to_bytes(8, "little") + data)
    finally:
        os._exit(0)


def _write(writer: int, data: bytes) -> None:
    while data:
        data = data[os.write(writer, data) :]


def _read(reader: int, count: int) -> list[Any]:
    answers: list[Any] = []
    while len(answers) < count:
        head = _bytes(reader, 8)
        body = None if head is None else _bytes(reader, int.from_bytes(head, "little"))
        if body is None:
            break
        answers.append(pickle.loads(body))
    return answers


def _bytes(reader: int, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        if not select.select([reader], [], [], _SECONDS)[0]:
            return None
        more = os.read(reader, min(count - len(data), 1 << 20))
        if not more:
            return None
        data += more
    return data


def guarded(shape: tuple[int, ...], dtype: Any, edge: str) -> Any:
    """An array, of zeros, whose "first" byte is the first of memory that may be touched, or whose "last" byte is the last. It is never
    freed: for a child's short life."""
    page = mmap.PAGESIZE
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    inside = max(-(-count // page) * page, page)
    memory = mmap.mmap(-1, inside + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for address in (start, start + page + inside):
        if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(page), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    begin = page if edge == "first" else page + inside - count
    return np.frombuffer(memory, np.uint8)[begin : begin + count].view(dtype).reshape(shape)
