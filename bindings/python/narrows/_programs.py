# SPDX-License-Identifier: Apache-2.0
"""Tensor programs as ops, and what a saved model carries of one: docs/programs.md, "In saved models", has that text."""

from __future__ import annotations

import importlib
import _thread

from narrows import _narrows

TYPE_CHECKING = False  # as in _ops
if TYPE_CHECKING:
    from typing import Any

_FIRST = "saved programs 1\n"
_lock = _thread.allocate_lock()
_texts: dict = {}  # of each op that is a program: its digest, its text, and its schedules by the names of plugins
_ops: dict = {}  # the op of each text that a saved model carries
_adjoints: dict = {}  # those ops that differentiate others, and which


def is_program(op: str) -> bool:
    """Whether an op of that name is one."""
    return op.startswith("program.")


def is_adjoint(op):
    """Whether it differentiates another one."""
    return op in _adjoints


def order(op):
    """Of which derivative it is: 1 of an adjoint, 2 of an adjoint's adjoint; 0 of what differentiates no other."""
    count = 0
    while op in _adjoints:
        op, count = _adjoints[op], count + 1
    return count


def remember(op, digest, text, backward, plugin, steps) -> None:
    """What was loaded. ``steps``: how the plugins of that name run it; if ``plugin`` is None, all run it by their defaults."""
    with _lock:
        if backward is not None:
            _adjoints[backward] = op
        _, _, schedules = _texts.setdefault(op, (digest, text, {}))
        if plugin is None:
            schedules.clear()
        else:
            schedules[plugin] = steps


def scheduled(op, plugin) -> Any:
    """The text of a program, and the steps by which the plugins of that name run it; None: those that they take by default."""
    with _lock:
        if op not in _texts:
            raise ValueError(f"{op}: its text is not known; expected a program that was built or loaded by this package")
        _, text, schedules = _texts[op]
        return text, schedules.get(plugin)


def schedule_of(op, plugin) -> Any:
    """Whether this package loaded a program, and the steps by which the plugins of that name run it; None: by default ones."""
    with _lock:
        return op in _texts, _texts[op][2].get(plugin) if op in _texts else None


def from_blob(carried, blob, name) -> Any:
    """An op of a program that was pickled or copied, as _narrows._op_from_blob has it."""
    made = _narrows._op_from_blob(op_of(carried), blob, name)
    return importlib.import_module("narrows._ops").introduced(made)


def saved(op) -> str:
    """What a saved model carries. An op that was loaded by others than this package has its name alone."""
    parts = []
    name = op
    with _lock:
        while name is not None:
            if name not in _texts:
                return str(op)
            digest, text, schedules = _texts[name]
            parts += [f"digest {digest}\n", text]
            for plugin, steps in schedules.items():
                parts += [f"schedule {plugin}\n", *(f"  {step}\n" for step in steps)]
            name = _narrows.Op(name).backward
        whole = _FIRST + "".join(parts)
        _ops[whole] = op
    return whole


def op_of(carried) -> str:
    """The name of the op that a saved model means, which is loaded if this process does not have it. ValueError: what is carried is no
    program; RuntimeError: this narrows was built without tensor programs."""
    found = carried if is_program(carried) else _ops.get(carried)
    return _loaded(carried) if found is None else str(found)


def _loaded(carried):
    import re

    library: Any = importlib.import_module("narrows.program._library")
    op = library.load_saved(carried)
    name: Any = op
    with _lock:
        for part in re.split(r"^digest ", carried, flags=re.MULTILINE)[1:]:
            digest, _, rest = part.partition("\n")
            text, *schedules = re.split(r"^schedule ", rest, flags=re.MULTILINE)
            by_plugin = {}
            for schedule in schedules:
                plugin, *steps = schedule.removesuffix("\n").split("\n")
                by_plugin[plugin] = [step.strip() for step in steps]
            _texts.setdefault(name, (digest, text, by_plugin))  # one that was there keeps its schedules
            backward = _narrows.Op(name).backward
            if backward is not None:
                _adjoints[backward] = name
            name = backward
        _ops[carried] = op
    return op
