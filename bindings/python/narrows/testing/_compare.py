# SPDX-License-Identifier: Apache-2.0
"""Results beside a reference: dtypes, tolerances in units in the last place, and the worst element in words."""

import math
from typing import Any

import numpy as np

# name: (distance from 1 to the next number, smallest positive number), as powers of two
_FLOATS = {"float16": (-10, -24), "bfloat16": (-7, -133), "float32": (-23, -149), "float64": (-52, -1074)}
ULPS = {"float16": 4.0, "bfloat16": 4.0, "float32": 32.0, "float64": 32.0}
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", *_FLOATS)


class Mismatch(AssertionError):
    """A check failed; the text says how."""


def is_float(dtype: str) -> bool:
    return dtype in _FLOATS


def numpy_dtype(name: str) -> Any:
    """NumPy's dtype, None: this NumPy lacks it, as it lacks bfloat16 without ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        return None
    return np.dtype(ml_dtypes.bfloat16)


def exact(x: Any) -> Any:
    """The numbers of an array: floats as float64, all else as it is."""
    x = np.asarray(x)
    return x.astype(np.float64) if is_float(x.dtype.name) else x


def ulp(dtype: str, values: Any) -> Any:
    """The distance between neighbours of that dtype at each value."""
    epsilon, smallest = _FLOATS[dtype]
    exponent = np.frexp(np.abs(values))[1] - 1 + epsilon
    return np.ldexp(1.0, np.maximum(exponent, smallest))


def rounded(dtype: str, values: Any) -> Any:
    """What a tensor of that dtype holds of these numbers, as float64: past its largest an infinity."""
    if dtype == "float64" or not is_float(dtype):
        return values
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return values.astype(dtype).astype(np.float64)
        step = ulp(dtype, values)
        return np.where(np.isfinite(values), np.rint(values / step) * step, values)


def largest(*arrays: Any) -> float:
    """The largest finite magnitude among floating-point arrays; 0: there is none."""
    found = [np.abs(x[np.isfinite(x)]) for x in arrays if x is not None and x.dtype.kind == "f"]
    return max((float(x.max()) for x in found if x.size), default=0.0)


def close(
    name: str,
    got: Any,
    expected: Any,
    dtype: str,
    ulps: float,
    scale: float = 0.0,
    slack: float = 0.0,
    said: str = "the reference has",
    places: Any = None,
) -> None:
    """Raises Mismatch where an element is further off than ``ulps`` units in the last place, of itself or of ``scale``, and ``slack``.
    ``places``: the elements' indices, one array for each axis, where these are some of a tensor's."""
    got, expected = exact(got), np.asarray(expected)
    if got.shape != expected.shape:
        raise Mismatch(f"{name} has shape {got.shape}; {said} {expected.shape}")
    if got.size == 0:
        return
    if not is_float(dtype):
        off = got != expected
        distance = off.astype(np.float64)
    else:
        expected = rounded(dtype, expected.astype(np.float64))
        unit = ulp(dtype, np.maximum(np.where(np.isfinite(expected), np.abs(expected), 0), scale))
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs(got - expected) / unit
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
        off = distance > ulps + slack / unit
    if not off.any():
        return
    at = np.unravel_index(int(np.argmax(np.where(off, distance, -1.0))), got.shape)
    index = at if places is None else [axis[at[0]] for axis in places]
    where = name + (f"[{', '.join(str(int(i)) for i in index)}]" if len(index) else "")
    by = f", {distance[at]:.3g} ulp apart ({ulps:g} allowed)" if is_float(dtype) and math.isfinite(distance[at]) else ""
    of = f"; {int(off.sum())} of {off.size} elements are off" if off.size > 1 else ""
    raise Mismatch(f"{where} is {got[at]}; {said} {expected[at]}{by}{of}")


def same_bits(name: str, got: Any, before: Any, when: str) -> None:
    """Raises Mismatch where two results are not the same bits."""
    a, b = np.ascontiguousarray(got), np.ascontiguousarray(before)
    if a.tobytes() == b.tobytes():
        return
    width = a.dtype.itemsize
    differ = (a.reshape(-1).view(np.uint8).reshape(-1, width) != b.reshape(-1).view(np.uint8).reshape(-1, width)).any(axis=1)
    at = np.unravel_index(int(np.argmax(differ)), a.shape)
    raise Mismatch(
        f"{name}[{', '.join(str(int(i)) for i in at)}] is {exact(a)[at]} {when}, and {exact(b)[at]} before; "
        f"{int(differ.sum())} of {differ.size} elements differ"
    )
