# SPDX-License-Identifier: Apache-2.0
"""Ops of one device, right ones and such of one fault each, and whether narrows.testing.check_op tells them apart there."""

import pytest

import narrows.testing

# name: (whether thread i computes, what it computes, how much the gradient is too large), each in the device's language
TIMES = {
    "right": ("i < n", "factor * X", 1),
    "tail": ("i < n / 4 * 4", "factor * X", 1),
    "beyond": ("i <= n", "factor * X", 1),
    "formula": ("i < n", "factor * abs(X)", 1),
    "slope": ("i < n", "factor * X", 2),
}
# name: the kind of check that sees the fault, and its words
FAULTS = {
    "tail": ("sizes", "into memory whose bytes were"),
    "beyond": ("writes", "memory was written 0 bytes after output y"),
    "formula": ("values", "the reference has"),
    "slope": ("gradient", "the gradient of x["),
    "rows_strides": ("layouts", "the reference has"),
}


def declared(template):
    """The ops of TIMES as a plugin's source has them, by a template of one."""
    return ",\n".join(template % {"name": name, "slope": slope} for name, (_, _, slope) in TIMES.items())


def judge(ops, device):
    def times(op, **how):
        return narrows.testing.check_op(
            op, lambda x, factor=2.0: factor * x, [(3, 5)], params=[{}, {"factor": -3.0}], devices=device, **how
        )

    def rows(op, **how):
        return narrows.testing.check_op(op, lambda x: x, [(3, 5)], "int32", devices=device, **how)

    report = times(ops.right)
    assert {"values", "writes", "sizes", "layouts", "neighbours", "large", "gradient"} <= set(report.passed), report
    report = rows(ops.rows, only="layouts")
    assert report.passed["layouts"] > 8 and report.declined["layouts"] == 1, report  # what is misaligned
    for name, (kind, words) in FAULTS.items():
        with pytest.raises(AssertionError) as error:
            (rows if name.startswith("rows") else times)(getattr(ops, name), only=kind)
        text = str(error.value)
        assert text.startswith(f"planted.{name}/1: {kind}: {device}:0") and words in text, text
