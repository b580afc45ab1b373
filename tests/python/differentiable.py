# SPDX-License-Identifier: Apache-2.0
"""What the tests of derivatives share: every element-wise function of one or two operands that has a gradient, by the table."""

import narrows
from function_table import ROWS, interval

_OPERANDS = {name: row["operands"] for name, row in ROWS.items() if "gradients" in row}
FUNCTIONS = [name for name, operands in _OPERANDS.items() if operands < 3]


def of_function(name, double):
    """The op, and operands that broadcast: ``double(*shape, low=, high=)`` makes an array of float64 between the two."""
    how = {"function": name, **({"alpha": 0.7} if name == "elu" else {}), **({"out_dtype": "float64"} if name == "cast" else {})}
    op = narrows.op("elementwise", **how)
    if _OPERANDS[name] == 1:
        low, high = interval(name, 0.1, 0.4)
        return op, (double(2, 3, low=low, high=high),)
    return op, (double(2, 3), double(3))
