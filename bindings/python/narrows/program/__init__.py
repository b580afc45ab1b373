# SPDX-License-Identifier: Apache-2.0
"""Tensor programs: written in TVMScript's spelling, scheduled by steps that cannot change what they compute, and run as ops.

    >>> from narrows.program import script as T, Schedule

``docs/guides/tensor_programs.md`` teaches it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from narrows.program import ir as ir
    from narrows.program import script as script
    from narrows.program._function import PrimFunc as PrimFunc
    from narrows.program._function import prim_func as prim_func
    from narrows.program._tvm import from_tvm as from_tvm
    from narrows.program.ir import IRModule as IRModule
    from narrows.program.ir import ir_module as ir_module
    from narrows.program.schedule import Schedule as Schedule
    from narrows.program.schedule import ScheduleError as ScheduleError

_PLACES = {
    "IRModule": "ir",
    "PrimFunc": "_function",
    "Schedule": "schedule",
    "ScheduleError": "schedule",
    "from_tvm": "_tvm",
    "ir_module": "ir",
    "prim_func": "_function",
}
_MODULES = ("ir", "schedule", "script")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"narrows.program.{name}")
    if name in _PLACES:
        return getattr(importlib.import_module(f"narrows.program.{_PLACES[name]}"), name)
    from narrows import _errors

    raise _errors.attribute(__name__, name, __dir__())


def __dir__() -> list[str]:
    return sorted({*_PLACES, *_MODULES, "__doc__"})
