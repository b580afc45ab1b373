# SPDX-License-Identifier: Apache-2.0
"""What the tests of derivatives share: every element-wise function of one or two operands that has a gradient, by the table."""

import pathlib
import tomllib

import narrows

_TABLE = tomllib.loads((pathlib.Path(__file__).parents[2] / "core" / "ops" / "elementwise_functions.toml").read_text())
_OPERANDS = {name: row["operands"] for name, row in _TABLE.items() if "gradients" in row}
FUNCTIONS = [name for name, operands in _OPERANDS.items() if operands < 3]


def of_function(name, double):
    """The op, and operands that broadcast: ``double(*shape, low=, high=)`` makes an array of float64 between the two."""
    how = {"function": name, **({"alpha": 0.7} if name == "elu" else {}), **({"out_dtype": "float64"} if name == "cast" else {})}
    op = narrows.op("elementwise", **how)
    if _OPERANDS[name] == 1:
        return op, (double(2, 3, **({"low": 1.2, "high": 2.0} if name == "acosh" else {"low": 0.1, "high": 0.4})),)
    return op, (double(2, 3), double(3))
