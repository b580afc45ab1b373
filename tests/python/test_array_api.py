# SPDX-License-Identifier: Apache-2.0
"""The special cases of the Python array API standard, read from the standard's own text (the package array-api-stubs holds its
signatures and docstrings, those of 2021.12): every sentence "If x_i is ..., the result is ..." becomes cases, and one that is not
understood fails. What 2022.12 to 2024.12 have added is a table here."""

import itertools
import math
import operator
import re

import numpy as np
import pytest

stubs = pytest.importorskip(
    "array_api_stubs._2021_12.elementwise_functions",
    reason="the array API's stubs are not installed; ./run check python installs them",
)

import narrows  # noqa: E402
import present  # noqa: E402
from narrows import _functions  # noqa: E402

OURS = [name for name in _functions.TABLE if hasattr(stubs, name)]
NOT_OURS = {"floor_divide", "positive"}  # no such function here
SAMPLES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -1.5, 6e4, -6e4, math.inf, -math.inf, math.nan]
WORDS = {"NaN": math.nan, "infinity": math.inf, "π": math.pi}


def number(text):
    """'+0', '-infinity', '+3π/4'."""
    match = re.fullmatch(r"([+-]?)(?:(infinity|NaN)|(\d*)(π?)(?:/(\d))?)", text)
    assert match, text
    sign, word, factor, pi, divisor = match.groups()
    value = WORDS[word] if word else float(factor or 1) * (math.pi if pi else 1) / float(divisor or 1)
    return math.copysign(value, -1.0 if sign == "-" else 1.0)


def identical(a, b):
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def is_value(text):
    """Whether an operand is the value that is written; an unsigned number is compared by ==, and 0 too."""
    wanted = number(text)
    return (lambda v: identical(v, wanted)) if text[0] in "+-" or wanted != wanted else (lambda v: v == wanted)


PREDICATES = [  # what stands after "is" -> a predicate of the operand
    (r"either ``([^`]+)`` or ``([^`]+)``", lambda a, b: lambda v: is_value(a)(v) or is_value(b)(v)),
    (r"greater than ``([^`]+)``", lambda a: lambda v: v > number(a)),
    (r"less than ``([^`]+)``", lambda a: lambda v: v < number(a)),
    (r"not equal to ``([^`]+)``", lambda a: lambda v: v != number(a)),
    (r"not ``NaN``", lambda: lambda v: not math.isnan(v)),
    (r"``([^`]+)``", is_value),
    (r"a positive \(i\.e\., greater than ``0``\) finite number", lambda: lambda v: math.isfinite(v) and v > 0),
    (r"a negative \(i\.e\., less than ``0``\) finite number", lambda: lambda v: math.isfinite(v) and v < 0),
    (r"a nonzero finite number", lambda: lambda v: math.isfinite(v) and v != 0),
    (r"(?:a )?finite(?: number)?", lambda: math.isfinite),
    (r"not an integer value", lambda: lambda v: math.isfinite(v) and v != math.floor(v)),
    (r"an odd integer value", lambda: lambda v: math.isfinite(v) and math.fmod(v, 2) in (1, -1)),
    (r"not an odd integer value", lambda: lambda v: not (math.isfinite(v) and math.fmod(v, 2) in (1, -1))),
    (r"already integer-valued", lambda: lambda v: math.isfinite(v) and v == math.floor(v)),
]


def predicate(text):
    """'is greater than ``0``' as a function of a number."""
    for pattern, make in PREDICATES:
        if match := re.fullmatch(pattern, text):
            return make(*match.groups())
    raise AssertionError(f"not understood: {text!r}")


def sign(v):
    return math.copysign(1, v)


def condition(text):
    """A predicate of the operands, all of them."""
    same = "have the same mathematical sign"
    if text.startswith((f"``x1_i`` and ``x2_i`` {same}", "``x1_i`` and ``x2_i`` have different mathematical signs")):
        relation = operator.eq if same in text else operator.ne
        both = "nonzero finite" in text
        return lambda *v: not any(map(math.isnan, v)) and relation(sign(v[0]), sign(v[1])) and (
            not both or all(math.isfinite(x) and x != 0 for x in v)
        )  # fmt: skip
    if match := re.fullmatch(r"either ``x1_i`` or ``x2_i`` is ``NaN``", text):
        return lambda *v: any(map(math.isnan, v))
    if match := re.fullmatch(r"``x1_i`` is a nonzero finite number and ``x2_i`` is ``-x1_i``", text):
        return lambda a, b: math.isfinite(a) and a != 0 and b == -a
    parts = re.split(r"(?:, and |, | and )(?=``(?:abs\()?x)", text)
    checks = []
    for part in parts:
        match = re.fullmatch(r"``(abs\()?(x[12]?)_i\)?`` is (.*)", part)
        assert match, f"not understood: {part!r} in {text!r}"
        index = 1 if match[2] == "x2" else 0
        checks.append((index, abs if match[1] else (lambda v: v), predicate(match[3])))
    return lambda *v: all(check(change(v[i])) for i, change, check in checks)


def outcome(text):
    """What the result must be: a predicate of (result, operands); None: the sentence says nothing that can be checked here."""
    if "signed infinity" in text:
        return lambda y, *v: y == sign(v[0]) * sign(v[1]) * math.inf
    if match := re.search(r"a (positive|negative) mathematical sign", text):
        return lambda y, *v: math.isnan(y) or sign(y) == (1 if match[1] == "positive" else -1)
    if match := re.fullmatch(r"an implementation-dependent approximation to ``([^`]+)``", text):
        return lambda y, *v: math.isclose(y, number(match[1]), rel_tol=4e-3)
    if match := re.fullmatch(r"``x([12]?)_i``", text):
        return lambda y, *v: identical(y, v[1 if match[1] == "2" else 0])
    if match := re.fullmatch(r"``([^`]+)``(?:, even if ``x1_i`` is ``NaN``)?", text):
        return lambda y, *v: is_value(match[1])(y)
    raise AssertionError(f"not understood: {text!r}")


def sentences(name):
    """(the sentence, its condition, its outcome) of every special case of floating-point operands."""
    text = getattr(stubs, name).__doc__
    found = []
    for line in re.findall(r"^\s*- (.*)$", text, re.MULTILINE):
        line = re.sub(r"\s*\(\*\*note\*\*:.*\)$", "", line).replace("`infinity`", "``infinity``").strip()
        match = re.fullmatch(r"If (.*?), the result (?:is|has) (.*?)\.(?: If the result is.*)?", line)
        if match and not match[1].startswith("two integers"):
            found.append((line, condition(match[1]), outcome(match[2].split(", unless")[0])))
        else:
            assert line.startswith(("In the remaining cases", "If two integers")), f"not understood: {line!r}"
    return found


CASES = [(name, *case) for name in sorted(OURS) for case in sentences(name)]


def test_the_standard_was_read():
    names = {n for n in dir(stubs) if not n.startswith("_") and callable(getattr(stubs, n)) and n != "array"}
    assert names - set(OURS) <= NOT_OURS
    assert len(CASES) > 180 and len({c[0] for c in CASES}) > 30


@pytest.mark.parametrize("device", present.DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name, line, applies, holds", CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_special_case(name, line, applies, holds, dtype, device):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes", reason="NumPy has bfloat16 from ml_dtypes, which is not installed").bfloat16
    operands = _functions.TABLE[name][1]
    grid = [np.array(v, dtype) for v in zip(*itertools.product(SAMPLES, repeat=operands), strict=True)]
    result = present.brought(getattr(narrows, name)(*(present.sent(g, device) for g in grid)))
    tried = 0
    for y, *values in zip(result.tolist(), *(g.tolist() for g in grid), strict=True):
        if applies(*values):
            tried += 1
            assert holds(float(y), *values), f"{name}{tuple(values)} = {y}: {line}"
    assert tried > 0, line


def is_zero(v):
    return v == 0


def signed(v):
    """The sign bit."""
    return sign(v) < 0


nan, inf, isnan, isinf, isfinite = math.nan, math.inf, math.isnan, math.isinf, math.isfinite
# (function, its case, whether it applies, the result): of 2022.12 sign, equal, not_equal, isnan, isinf and isfinite, of 2023.12 clip,
# copysign, hypot, maximum and minimum, of 2024.12 the NaNs of clip, and reciprocal.
LATER = [
    ("clip", "x is NaN", lambda x, low, high: isnan(x), lambda *v: nan),
    ("clip", "min is NaN", lambda x, low, high: isnan(low), lambda *v: nan),
    ("clip", "max is NaN", lambda x, low, high: isnan(high), lambda *v: nan),
    (
        "clip",
        "min < max",
        lambda x, low, high: low < high and not isnan(x) and not is_zero(x),
        lambda x, low, high: max(min(x, high), low),
    ),
    ("copysign", "x2 is less than 0", lambda a, b: not isnan(a) and b < 0, lambda a, b: -abs(a)),
    ("copysign", "x2 is -0", lambda a, b: not isnan(a) and identical(b, -0.0), lambda a, b: -abs(a)),
    ("copysign", "x2 is +0", lambda a, b: not isnan(a) and identical(b, 0.0), lambda a, b: abs(a)),
    ("copysign", "x2 is greater than 0", lambda a, b: not isnan(a) and b > 0, lambda a, b: abs(a)),
    ("copysign", "x2 is NaN, sign bit 1", lambda a, b: not isnan(a) and isnan(b) and signed(b), lambda a, b: -abs(a)),
    ("copysign", "x2 is NaN, sign bit 0", lambda a, b: not isnan(a) and isnan(b) and not signed(b), lambda a, b: abs(a)),
    ("copysign", "NaN, x2 is less than 0", lambda a, b: isnan(a) and b < 0, lambda a, b: -nan),
    ("copysign", "NaN, x2 is -0", lambda a, b: isnan(a) and identical(b, -0.0), lambda a, b: -nan),
    ("copysign", "NaN, x2 is +0", lambda a, b: isnan(a) and identical(b, 0.0), lambda a, b: nan),
    ("copysign", "NaN, x2 is greater than 0", lambda a, b: isnan(a) and b > 0, lambda a, b: nan),
    ("copysign", "both NaN, sign bit of x2 is 1", lambda a, b: isnan(a) and isnan(b) and signed(b), lambda a, b: -nan),
    ("copysign", "both NaN, sign bit of x2 is 0", lambda a, b: isnan(a) and isnan(b) and not signed(b), lambda a, b: nan),
    ("hypot", "x1 is infinite, x2 anything", lambda a, b: isinf(a), lambda a, b: inf),
    ("hypot", "x2 is infinite, x1 anything", lambda a, b: isinf(b), lambda a, b: inf),
    ("hypot", "x1 is a zero", lambda a, b: is_zero(a), lambda a, b: abs(b)),
    ("hypot", "x2 is a zero", lambda a, b: is_zero(b), lambda a, b: abs(a)),
    ("hypot", "x1 is finite or NaN, x2 is NaN", lambda a, b: not isinf(a) and isnan(b), lambda a, b: nan),
    ("hypot", "x2 is finite or NaN, x1 is NaN", lambda a, b: not isinf(b) and isnan(a), lambda a, b: nan),
    ("maximum", "either is NaN", lambda a, b: isnan(a) or isnan(b), lambda a, b: nan),
    ("minimum", "either is NaN", lambda a, b: isnan(a) or isnan(b), lambda a, b: nan),
    ("reciprocal", "x is NaN", isnan, lambda v: nan),
    ("reciprocal", "x is infinite", isinf, lambda v: math.copysign(0, v)),
    ("reciprocal", "x is a zero", is_zero, lambda v: math.copysign(inf, v)),
    ("sign", "x is NaN", isnan, lambda v: nan),
    ("isnan", "every case", lambda v: True, isnan),
    ("isinf", "every case", lambda v: True, isinf),
    ("isfinite", "every case", lambda v: True, isfinite),
    ("equal", "every case", lambda a, b: True, lambda a, b: a == b),
    ("not_equal", "every case", lambda a, b: True, lambda a, b: a != b),
]


@pytest.mark.parametrize("device", present.DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name, case, applies, result", LATER, ids=[f"{c[0]}, {c[1]}" for c in LATER])
def test_special_case_of_later_years(name, case, applies, result, dtype, device):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes", reason="NumPy has bfloat16 from ml_dtypes, which is not installed").bfloat16
    operands = _functions.TABLE[name][1]
    grid = [np.array(v, dtype) for v in zip(*itertools.product([*SAMPLES, -nan], repeat=operands), strict=True)]
    found = present.brought(getattr(narrows, name)(*(present.sent(g, device) for g in grid)))
    tried = 0
    for y, *values in zip(found.tolist(), *(g.tolist() for g in grid), strict=True):
        if applies(*values):
            tried += 1
            wanted = result(*values)
            bit = name == "copysign" or wanted == wanted  # else the sign of NaN is nobody's
            assert identical(y, wanted) and (not bit or signed(y) == signed(wanted)), f"{name}{tuple(values)} = {y}; {wanted}"
    assert tried > 0


@pytest.mark.parametrize("device", present.DEVICES)
def test_reciprocal_is_a_division_and_hypot_is_even(device):
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64", "float16"):
        a, b = (present.sent(rng.normal(size=1000).astype(dtype), device) for _ in range(2))
        ours, theirs = (present.brought(y) for y in (narrows.reciprocal(a), narrows.divide(1, a)))
        np.testing.assert_array_equal(ours, theirs)
        expected = present.brought(narrows.hypot(a, b))
        minus = narrows.negative
        for x1, x2 in ((b, a), (a, minus(b)), (minus(a), b), (minus(a), minus(b))):
            np.testing.assert_array_equal(present.brought(narrows.hypot(x1, x2)), expected)


def test_rounding_is_half_to_even():
    np.testing.assert_array_equal(narrows.round(np.float32([0.5, 1.5, 2.5, -0.5, -1.5, -2.5])), [0, 2, 2, -0.0, -2, -2])


def test_a_wrong_result_would_be_seen():
    """The sentences do decide: those of one function fail for another."""
    wrong = [line for line, applies, holds in sentences("ceil") if any(applies(v) and not holds(0.0, v) for v in SAMPLES)]
    assert len(wrong) > 2
