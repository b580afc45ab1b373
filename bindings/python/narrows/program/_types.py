# SPDX-License-Identifier: Apache-2.0
"""What stands behind the colon of a program's argument: T.Buffer(shape, dtype), T.handle, T.float32."""

from __future__ import annotations

from typing import Any

from narrows.program import _dtypes, _expressions
from narrows.program._expressions import Expr, Number, Variable


class BufferType:
    """A tensor's shape and dtype: ``A: T.Buffer((128, "n"), "float32")``. Extents: integers, sizes by name, T.int32()."""

    def __init__(self, shape: Any, dtype: object = "float32", *, scope: str = "global") -> None:
        if scope != "global":
            raise ValueError(f"T.Buffer: scope = {scope!r}; a tensor's is global")
        self.shape, self.short = shape, _dtypes.short(dtype, "T.Buffer")

    def __class_getitem__(cls, of: Any) -> BufferType:
        """``T.Buffer[(128, 128), "float32"]``, as TVM once had it."""
        return cls(*of) if isinstance(of, tuple) and isinstance(of[0], (tuple, list)) else cls(of)

    def __repr__(self) -> str:
        return f"T.Buffer({self.shape!r}, {_dtypes.LONG[self.short]!r})"


class Handle:
    """T.handle: an argument that T.match_buffer makes a tensor of."""

    def __repr__(self) -> str:
        return "T.handle"


class DType:
    """T.float32 and the like: the type of an argument, of a constant (``T.float32(0)``) or of a cast (``T.float32(x)``);
    T.int32() and T.int64() make a size."""

    def __init__(self, short: str) -> None:
        self.short = short

    @property
    def name(self) -> str:
        return _dtypes.LONG[self.short]

    def __call__(self, value: Any = None, *, is_size_var: bool = False) -> Any:
        if value is None:
            if self.short not in ("i32", "i64"):
                raise TypeError(f"T.{self.name}(): expected a number; T.int32() and T.int64() make sizes")
            return Variable("size")
        if isinstance(value, str):
            value = float(value)
        return _expressions.cast(value, self.short) if isinstance(value, Expr) else Number(value, self.short)

    def __repr__(self) -> str:
        return f"T.{self.name}"
