"""torch's own samples (OpInfo) for every op that we have too: the same results, gradients, and refusals instead of wrong results."""

import warnings

import pytest

torch = pytest.importorskip("torch")
common = pytest.importorskip("torch.testing._internal.common_methods_invocations")

import narrows  # noqa: E402

# Of torch's names, those that are spelled otherwise here.
NAMES = {
    "neg": "negative",
    "sub": "subtract",
    "mul": "multiply",
    "true_divide": "divide",
    "div": "divide",
    "bitwise_not": "bitwise_invert",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "special.log1p": "log1p",
    "special.erfc": "erfc",
    "nn.functional.relu": "relu",
    "nn.functional.silu": "silu",
}
SKIPPED = {"sign", "round", "where", "clip", "equal", "empty"}  # other arguments, other samples, or another thing of that name
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8)
OPS = [
    o
    for o in common.op_db
    if o.variant_test_name == "" and (NAMES.get(o.name, o.name) in narrows.__all__) and o.name not in SKIPPED
]


def same(ours, theirs, dtype):
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2}.get(dtype, 1e-9)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("op", OPS, ids=[o.name for o in OPS])
def test_elementwise(op):
    function = getattr(narrows, NAMES.get(op.name, op.name))
    compared = 0
    for dtype in DTYPES:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        for sample in op.sample_inputs("cpu", dtype):
            arguments = (sample.input, *sample.args)
            if sample.kwargs or any(isinstance(a, complex) for a in arguments):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = op.op(*arguments)
            try:
                result = function(*arguments)
            except (ValueError, TypeError):
                continue  # dtypes are never promoted in silence, nor integers taken as floats
            if result.dtype != expected.dtype or (not result.dtype.is_floating_point and op.name in ("div", "true_divide")):
                continue
            compared += 1
            same(result, expected, dtype)
    assert compared > 0


def test_conv1d():
    op = next(o for o in common.op_db if o.name == "nn.functional.conv1d")
    compared = 0
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for sample in op.sample_inputs("cpu", dtype, requires_grad=dtype == torch.float64):
            expected = op.op(sample.input, *sample.args, **sample.kwargs)
            names = ("weight", "bias", "stride", "padding", "dilation", "groups")
            given = {**dict(zip(names, sample.args, strict=False)), **sample.kwargs}
            given = {k: v[0] if isinstance(v, tuple) else v for k, v in given.items()}
            w, bias = given.pop("weight"), given.pop("bias", None)
            result = narrows.conv1d(sample.input, w, bias, **given)
            same(result, expected, dtype)
            compared += 1
            if dtype == torch.float64:
                tensors = [t for t in (sample.input, w, bias) if t is not None]
                ours, theirs = (torch.autograd.grad(y.sin().sum(), tensors) for y in (result, expected))
                for a, b in zip(ours, theirs, strict=True):
                    same(a, b, dtype)
    assert compared > 10
