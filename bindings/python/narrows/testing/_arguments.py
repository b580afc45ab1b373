# SPDX-License-Identifier: Apache-2.0
"""check_op's arguments, as its author may give them: one or several, and what is wrong in words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from narrows.testing import _compare

_AS = {
    "shapes": "a list of shapes, as [(3,), (3, 4)]",
    "dtypes": "names of dtypes, as 'float32'",
    "params": "a dict, or several",
    "refused": "a dict, or several",
    "sizes": "numbers of 0 or more",
    "devices": "a device or several, as 'cpu'",
}


def _wrong(name: str, given: Any, expected: str, kind: type[Exception] = TypeError) -> Exception:
    return kind(f"check_op: {name} = {given!r}; expected {expected}")


def several(name: str, given: Any, single: tuple[type, ...] = ()) -> list[Any]:
    """The argument as a list: one of the `single` types stands for a list of itself. TypeError: it is neither."""
    if isinstance(given, single):
        return [given]
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise _wrong(name, given, _AS[name])
    return list(given)


def _per_input(op: Any, entries: Sequence[Any], name: str) -> tuple[Any, ...]:
    if len(entries) > len(op.inputs) or len(entries) < op.min_inputs:
        raise _wrong(name, entries, f"one for each of {', '.join(op.inputs)}", ValueError)
    return tuple(entries)


def _is_integer(x: Any) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def _shape(name: str, given: Any) -> tuple[int, ...] | None:
    if given is None:
        return None
    if _is_integer(given):
        raise _wrong(name, given, f"a tuple, as ({given},)")
    if not isinstance(given, (tuple, list)) or not all(map(_is_integer, given)):
        raise _wrong(name, given, "a shape, as (3, 4)")
    if min(given, default=0) < 0:
        raise _wrong(name, given, "extents of 0 or more", ValueError)
    return tuple(int(n) for n in given)


def shapes(op: Any, given: Any) -> list[tuple[tuple[int, ...] | None, ...]]:
    """Of each call a shape for every input; those that are left out at the end are absent."""
    takes_one = len(op.inputs) == 1 or max(op.min_inputs, op._operands) == 1
    made = []
    for k, call in enumerate(several("shapes", given)):
        name = f"shapes[{k}]"
        if takes_one and (not isinstance(call, (tuple, list)) or all(map(_is_integer, call))):
            call = (_shape(name, call),)
        elif not isinstance(call, (tuple, list)):
            raise _wrong(name, call, f"a shape for each of {', '.join(op.inputs)}, as ((3,), (3,))")
        entries = _per_input(op, call, name)
        made.append(tuple(_shape(f"{name}[{i}]", s) for i, s in enumerate(entries)) + (None,) * (len(op.inputs) - len(entries)))
    return made


def dtypes(op: Any, given: Any) -> list[tuple[str, ...]]:
    """Of each call a dtype for every input: the last one stands for those that are left out."""
    made = []
    for k, d in enumerate(several("dtypes", given, (str,))):
        if not isinstance(d, (str, tuple, list)):
            raise _wrong(f"dtypes[{k}]", d, "the name of a dtype, as 'float32', or a tuple of one for each input")
        entry = (d,) * len(op.inputs) if isinstance(d, str) else _per_input(op, d, f"dtypes[{k}]")
        for name in entry:
            if name not in _compare.DTYPES:
                raise ValueError(f"check_op: dtypes has {name!r}; expected one of {', '.join(_compare.DTYPES)}")
        made.append(entry + (entry[-1:] * (len(op.inputs) - len(entry))))
    return made


def dicts(name: str, given: Any) -> list[Mapping[str, Any]]:
    """The params of each call."""
    made = several(name, given, (Mapping,))
    for k, params in enumerate(made):
        if not isinstance(params, Mapping):
            raise _wrong(f"{name}[{k}]", params, "a dict of params by name")
    return made


def check_params(op: Any, name: str, given: Sequence[Mapping[str, Any]]) -> None:
    known = [field[0] for field in op.fields]
    for k, params in enumerate(given):
        for key in params:
            if key not in known:
                has = f"params of {op.op}: {', '.join(known)}" if known else f"none: {op.op} has no params"
                raise _wrong(f"{name}[{k}]", dict(params), has)


def values(names: Sequence[str], given: Any) -> dict[str, Any]:
    """Of each input (low, high), or a function."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, _range("values", given))
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"check_op: values has {unknown}; expected names of inputs: {', '.join(names)}")
    return {name: _range(f"values[{name!r}]", one) for name, one in given.items()}


def _range(name: str, given: Any) -> Any:
    if callable(given):
        return given
    expected = "(low, high), or a function of a random generator and a shape"
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(map(_is_number, given)):
        raise _wrong(name, given, expected)
    if not (np.isfinite(given).all() and given[0] <= given[1]):
        raise _wrong(name, given, "finite numbers, the lower one first", ValueError)
    return given


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool)


def check_out_dtypes(outputs: Sequence[str], given: Any) -> None:
    if given is None or callable(given):
        return
    if not isinstance(given, (str, tuple, list)):
        raise _wrong("out_dtypes", given, "the name of a dtype, one for each output, or a function of the inputs' dtypes")
    for name in [given] if isinstance(given, str) else given:
        if name not in _compare.DTYPES:
            raise ValueError(f"check_op: out_dtypes has {name!r}; expected one of {', '.join(_compare.DTYPES)}")
    if not isinstance(given, str) and len(given) != len(outputs):
        raise _wrong("out_dtypes", given, f"one for each of {', '.join(outputs)}", ValueError)


def check_ulps(given: Any) -> None:
    for name, one in given.items() if isinstance(given, Mapping) else (("", given),):
        if name and name not in _compare.DTYPES:
            raise ValueError(f"check_op: ulps has {name!r}; expected one of {', '.join(_compare.DTYPES)}")
        if one is not None and not _is_number(one):
            raise _wrong(f"ulps[{name!r}]" if name else "ulps", one, "a number, or a dict of numbers by dtype")
        if one is not None and not one >= 0:
            raise _wrong(f"ulps[{name!r}]" if name else "ulps", one, "0 or more", ValueError)


def check_flag(name: str, given: Any) -> None:
    if not isinstance(given, (bool, np.bool_)):
        raise _wrong(name, given, "True or False")


def check_count(name: str, given: Any) -> None:
    if not _is_integer(given):
        raise _wrong(name, given, "an integer")
    if given < 0:
        raise _wrong(name, given, "0 or more", ValueError)


def sizes(given: Any) -> list[int]:
    made = several("sizes", given)
    for k, size in enumerate(made):
        check_count(f"sizes[{k}]", size)
    return made


def check_array(made: Any, name: str, optional: bool) -> None:
    """What the reference returned for an output."""
    if made is None and optional:
        return
    kind = None if made is None else np.asarray(made).dtype.kind
    if kind is None or kind not in "biufV":  # V: bfloat16
        shown = "None" if made is None else f"{made!r:.60}"
        raise TypeError(f"check_op: the reference returned {shown}{' for output ' + name if name else ''}; expected an array")
