# SPDX-License-Identifier: Apache-2.0
"""What is known of built-in ops and no declaration says. It makes calls faster or names them; no result depends on it."""

from narrows import _function_table

_ELEMENTWISE = "elementwise"
_LINEAR = {"neg": 1, "add": 2, "sub": 2}
_PUBLIC = {function: public for public, (function, *_) in _function_table.TABLE.items()} | {"cast": "astype"}


def is_elementwise(op):
    """Whether its functions are code of Inductor's own, and its kernels take any layout and need no workspace, however large a call
    is. A plugin's op with .batch = "*" promises none of that."""
    return op.op == _ELEMENTWISE


def public_name(op):
    """The function of the package that the op is, "add", else the op's own name."""
    return _PUBLIC.get(op.params["function"], op.op) if op.op == _ELEMENTWISE else op.op


def linear_operands(op):
    """How many operands an element-wise function has that is linear in them, or its backward op; None: it is none."""
    return _LINEAR.get(op.params["function"]) if op.op in (_ELEMENTWISE, "elementwise_backward") else None
