# SPDX-License-Identifier: Apache-2.0
"""JAX's symbolic sizes (jax.export): the shape rule of an op evaluated on them. What the rule cannot prove for all sizes is refused.

Dtypes and params are checked by the library with numbers in the place of the symbols.
"""

import ast
import operator
from typing import Any

import jax
import jax.core
import jax.errors

from narrows import _rules

_TRIED = (64, 4096, 1, 6, 60, 7)  # numbers that may stand for symbols: of many factors, large, small, odd
_FUNCTIONS = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}  # in the text of a symbolic size
_Inconclusive: Any = getattr(jax.errors, "InconclusiveDimensionOperation", None) or jax.core.InconclusiveDimensionOperation


def is_symbol(extent):
    """Whether the size is one of jax.export's."""
    return not isinstance(extent, int)


def has_symbols(inputs):
    """Of [(dtype, shape) or None, ...]."""
    return any(is_symbol(n) for spec in inputs if spec is not None for n in spec[1])


def specs(op, inputs, device_type):
    """[(dtype, shape) or None, ...] of the outputs."""
    if op.shape_rule is None:
        raise NotImplementedError(
            f"{op.op}: its inputs have symbolic sizes, {_shown(inputs)}, and it declares no shape rule; expected sizes that are numbers"
        )
    shapes = _rules.evaluate(op, [None if spec is None else spec[1] for spec in inputs], _Symbolic)
    for name, shape in zip(op.outputs, shapes, strict=True):
        for extent in shape or ():
            _check_not_negative(op, name.rstrip("?"), extent)
    known = _with_numbers(op, inputs, device_type)
    return [None if spec is None else (spec[0], shape) for spec, shape in zip(known, shapes, strict=True)]


def _check_equal(truth, message):
    if not truth:
        raise ValueError(
            f"{message()}. Of symbolic sizes JAX has to be able to show that; expected one name for both, or a constraint of "
            "jax.export.symbolic_shape(..., constraints=[...])"
        )


class _Symbolic(_rules.Numbers):
    maximum: Any = staticmethod(jax.core.max_dim)
    minimum: Any = staticmethod(jax.core.min_dim)
    check: Any = staticmethod(_check_equal)


def _check_not_negative(op, output, extent):
    if is_symbol(extent) and not _is_shown(lambda: extent >= 0):
        raise ValueError(
            f"{op.op}: {output} has a size of {extent}, which JAX cannot show to be 0 or more; expected a constraint, as in "
            f"jax.export.symbolic_shape(..., constraints=['{extent} >= 0'])"
        )


def _is_shown(compare):
    try:
        return bool(compare())
    except _Inconclusive:
        return False


def _with_numbers(op, inputs, device_type):
    """What the library says of the call with numbers in the place of all symbols."""
    first: Any = None
    for number in _TRIED:
        try:
            given = [None if s is None else (s[0], tuple(value(n, number) for n in s[1])) for s in inputs]
            if any(n < 0 for s in given if s is not None for n in s[1]):
                continue
            return op._infer(given, device_type)
        except (ValueError, ZeroDivisionError) as error:
            first = first or error
    raise ValueError(f"{first} (in the place of the symbolic sizes {_shown(inputs)} numbers were tried)") from None


def value(extent, number):
    """A size where each symbol is that number. JAX's text of a size is what jax.export.symbolic_shape reads."""
    if not is_symbol(extent):
        return extent
    tree = ast.parse(str(extent).replace("^", "**"), mode="eval")
    names = {node.id: number for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return eval(compile(tree, "<size>", "eval"), {"__builtins__": {}}, {**names, **_FUNCTIONS})


def _shown(inputs):
    return ", ".join(str(spec[1]).replace("'", "") for spec in inputs if spec is not None)
