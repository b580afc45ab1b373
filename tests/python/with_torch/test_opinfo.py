# SPDX-License-Identifier: Apache-2.0
"""torch's own samples (OpInfo) for every op that we have too: the same values and gradients, and where torch would promote dtypes in
silence a refusal with words. Nothing is passed over without a reason that is counted here."""

import math
import warnings

import pytest

torch = pytest.importorskip("torch")
common = pytest.importorskip("torch.testing._internal.common_methods_invocations")

import narrows  # noqa: E402
import present  # noqa: E402
from narrows import _functions  # noqa: E402

# Of torch's names, those that are spelled otherwise here.
NAMES = {
    "neg": "negative",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "bitwise_not": "bitwise_invert",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "clamp": "clip",
    "nn.functional.relu": "relu",
    "nn.functional.silu": "silu",
    "nn.functional.elu": "elu",
    "nn.functional.gelu": "gelu",
    "nn.functional.softplus": "softplus",
    "addcmul": "fma",
}
# torch has no such op. gelu_tanh is its gelu with an argument, and tried there.
WITHOUT = {
    n for n in _functions.TABLE if not any(hasattr(place, n) for place in (torch, torch.special)) and n not in NAMES.values()
}
DEVICES = present.of_torch(torch)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)  # of wider unsigned ones torch has few ops
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
OPS = {
    NAMES.get(o.name, o.name): o
    for o in common.op_db
    if o.variant_test_name in ("", "no_rounding_mode") and NAMES.get(o.name, o.name) in _functions.TABLE
}


def adapted(name, sample):
    """(function, tensors and numbers) of a sample in our order; None: a keyword that we do not have."""
    arguments, kwargs = [sample.input, *sample.args], dict(sample.kwargs)
    function = getattr(narrows, name)
    if name == "where":  # torch's samples are self, condition, other
        arguments = [arguments[1], arguments[0], arguments[2]]
    elif name == "fma":  # input + value * a * b
        if kwargs.pop("value", 1) != 1:
            return None
        arguments = [arguments[1], arguments[2], arguments[0]]
    elif name == "clip":
        low, high = (kwargs.pop(k, None) for k in ("min", "max"))
        arguments = [*arguments, low, high][:3] if len(arguments) < 3 else arguments
        if any(a is None for a in arguments):
            return None
    elif name == "elu":
        alpha = kwargs.pop("alpha", 1.0)
        function = lambda a: narrows.elu(a, alpha=alpha)  # noqa: E731
    elif name == "gelu" and kwargs.pop("approximate", "none") == "tanh":
        function = narrows.gelu_tanh
    return None if kwargs or any(isinstance(a, complex) for a in arguments) else (function, arguments)


# The least part of torch's samples, in dtypes that the function has, that has to be compared: four of five, but where torch's op has
# more arguments (value; one bound).
SHARE, SHARES = 0.8, {"fma": 0.4, "clip": 0.4}


def has_dtype(name, dtype):
    """Whether the function takes it, by the table."""
    kind = "f" if dtype in FLOATS else "i" if dtype in INTEGERS else "b"
    return kind in {"F": "f", "N": "fi", "B": "ib", "I": "i", "A": "fib"}[_functions.TABLE[name][2]]


def refusal(name, arguments):
    """The words of the error that these arguments have to give; None: none."""
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    operands = [a for i, a in enumerate(tensors) if not (name == "where" and i == 0 and a is arguments[0])]
    if not tensors:
        return "no input is an array"
    if not operands:
        return "dtype|expected an integer"  # where() of two numbers: the condition's dtype is the only one
    dtype = operands[-1].dtype
    if any(a.dtype != dtype for a in operands) or not has_dtype(name, dtype):
        return "dtype"
    numbers = [a for a in arguments if not isinstance(a, torch.Tensor)]
    if dtype not in FLOATS and any(isinstance(a, float) for a in numbers):
        return "expected an integer"
    whole = [a for a in numbers if isinstance(a, int) and dtype in INTEGERS]
    if any(not torch.iinfo(dtype).min <= a <= torch.iinfo(dtype).max for a in whole):
        return "does not fit"
    return None


def same(ours, theirs, dtype):
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-9)
    if ours.shape != theirs.shape or not torch.allclose(ours, theirs, tolerance, tolerance, equal_nan=True):  # this one is quick
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


def samples(op, dtype, device):
    """torch's samples, and those with which torch compares itself to NumPy: all layouts, extremal values, numbers."""
    grad = dtype == torch.float64 and op.supports_autograd
    yield from op.sample_inputs(device, dtype, requires_grad=grad)
    if dtype == torch.float32:
        yield from op.reference_inputs(device, dtype)


def divided(a, b):
    """Of integers, which torch's div makes floats of: towards 0, and 0 where the divisor is 0."""
    b = torch.as_tensor(b, device=a.device)
    return torch.where(b == 0, 0, torch.div(a, torch.where(b == 0, 1, b), rounding_mode="trunc"))


def check(name, op, sample, dtype, counted):
    if name == "softplus" and sample.kwargs:  # beta and threshold, that every sample has: without them in both
        sample.kwargs = {}
        counted["compared without torch's own arguments"] += 1
    adaptation = adapted(name, sample)
    if adaptation is None:
        counted["torch's own arguments"] += 1
        return
    function, arguments = adaptation
    if len({a.device for a in arguments if isinstance(a, torch.Tensor)}) > 1:
        counted["refused"] += 1  # torch takes a number of the CPU's among tensors of a GPU
        with pytest.raises(ValueError, match="expected one device"):
            function(*arguments)
        return
    words = refusal(name, arguments)
    if words is not None:
        counted["refused" if has_dtype(name, dtype) else "of a dtype that is refused"] += 1
        with pytest.raises((ValueError, TypeError), match=words):
            function(*arguments)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = divided if name == "divide" and dtype in INTEGERS else op.op
        expected = call(sample.input, *sample.args, **sample.kwargs)
    result = function(*arguments)
    if name == "sign":  # NaN stays NaN, as the array API has it
        expected = torch.where(sample.input.isnan(), sample.input, expected)
    if name == "silu":  # its limit at -inf is 0; torch has NaN
        expected = torch.where(sample.input == -math.inf, 0, expected)
    if name == "sinc":  # its limit at both infinities is 0; torch has NaN
        expected = torch.where(sample.input.isinf(), 0, expected)
    # torch 2.11 has NaN where a quotient overflows
    if name in ("fmod", "remainder") and expected.dtype.itemsize == 2 and dtype in FLOATS:
        wide = [a.double() if isinstance(a, torch.Tensor) else a for a in (sample.input, *sample.args)]
        expected = op.op(*wide).to(expected.dtype)
    assert result.dtype == expected.dtype
    same(result.detach(), expected.detach(), sample.input.dtype if isinstance(sample.input, torch.Tensor) else result.dtype)
    counted["compared"] += 1
    tensors = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]
    if tensors and expected.requires_grad:
        ours, theirs = (torch.autograd.grad(y, tensors, expected.detach().sin(), allow_unused=True) for y in (result, expected))
        for a, b in zip(ours, theirs, strict=True):
            same(a, torch.zeros_like(a) if b is None else b, torch.float64)
        counted["gradients"] += 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPS)
def test_elementwise(name, device):
    op = OPS[name]
    left_out = ("refused", "torch's own arguments")
    others = ("of a dtype that is refused", "gradients", "compared without torch's own arguments")
    counted = dict.fromkeys(("compared", *left_out, *others), 0)
    for dtype in DTYPES:
        if op.supports_dtype(dtype, device):
            before = counted["compared"]
            for sample in samples(op, dtype, device):
                check(name, op, sample, dtype, counted)
            assert (counted["compared"] > before) == has_dtype(name, dtype), dtype
    print(f"{name}: {', '.join(f'{count} {kind}' for kind, count in counted.items())}")  # shown by pytest -rP
    assert 0 < counted["compared"] >= SHARES.get(name, SHARE) * (counted["compared"] + sum(counted[kind] for kind in left_out)), (
        counted
    )
    assert (counted["compared without torch's own arguments"] > 0) == (name == "softplus"), counted
    floating = _functions.TABLE[name][2] in "FN" and "as bool" not in _functions.TABLE[name][3]
    assert counted["gradients"] > 0 or not floating or not op.supports_autograd, counted


def test_every_function_has_samples():
    assert set(_functions.TABLE) - set(OPS) == WITHOUT and {"cbrt", "gelu_tanh"} <= WITHOUT


@pytest.mark.parametrize("device", DEVICES)
def test_conv1d(device):
    op = next(o for o in common.op_db if o.name == "nn.functional.conv1d")
    compared = 0
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for sample in op.sample_inputs(device, dtype, requires_grad=dtype == torch.float64):
            with torch.backends.cudnn.flags(enabled=device != "cpu", allow_tf32=False):  # torch's own results are the reference
                expected = op.op(sample.input, *sample.args, **sample.kwargs)
            names = ("weight", "bias", "stride", "padding", "dilation", "groups")
            given = {**dict(zip(names, sample.args, strict=False)), **sample.kwargs}
            w, bias = given.pop("weight"), given.pop("bias", None)
            result = narrows.conv1d(sample.input, w, bias, **given)
            same(result, expected, torch.bfloat16 if dtype == torch.float16 else dtype)
            compared += 1
            if dtype == torch.float64:
                tensors = [t for t in (sample.input, w, bias) if t is not None]
                ours, theirs = (torch.autograd.grad(y.sin().sum(), tensors) for y in (result, expected))
                for a, b in zip(ours, theirs, strict=True):
                    same(a, b, dtype)
    assert compared > 10


@pytest.mark.parametrize("device", DEVICES)
def test_conv1d_refuses_what_torch_refuses(device):
    op = next(o for o in common.op_db if o.name == "nn.functional.conv1d")
    refused = 0
    for error in op.error_inputs(device):
        sample = error.sample_input
        with pytest.raises(ValueError, match=r"^conv1d: .*(expected|does not divide)"):
            narrows.conv1d(sample.input, *sample.args, **sample.kwargs)
        refused += 1
    assert refused > 3
