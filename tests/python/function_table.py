# SPDX-License-Identifier: Apache-2.0
"""The table of the element-wise functions, and where tests of Python try them."""

import pathlib
import tomllib

from narrows._function_table import TABLE

ROWS = tomllib.loads((pathlib.Path(__file__).parents[2] / "core" / "ops" / "elementwise_functions.toml").read_text())
GIVES_BOOL = {name for name, row in TABLE.items() if ROWS[row[0]].get("result") == "bool"}


def interval(function, low, high):
    """An interval on which the function is smooth: what is left of this one, or where that is nothing, one as long beside it."""
    least, most = ROWS[function].get("range", (-1000, 1000))
    inside = max(low, least + 0.1), min(high, most - 0.1)
    return inside if inside[0] < inside[1] else (least + 0.1, least + 0.1 + high - low)
