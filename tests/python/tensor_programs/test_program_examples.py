# SPDX-License-Identifier: Apache-2.0
"""Each program of examples/programs beside NumPy in float64, on every device that is here; conv1d and lltm beside our own ops."""

import pathlib

import numpy as np
import pytest

import narrows
import present
from narrows.program import PrimFunc
from narrows.program import script as T

TEXTS = pathlib.Path(__file__).parents[3] / "examples" / "programs"
RNG = np.random.default_rng(11)


def normal(*shape, dtype="float32"):
    return RNG.normal(size=shape).astype(dtype)


def wide(x):
    return None if x is None else x.astype("float64")


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, causal=False):
    score = q @ k.T / np.sqrt(q.shape[1])
    later = np.arange(len(k))[None] > np.arange(len(q))[:, None]
    return softmax(np.where(later & causal, -np.inf, score)) @ v


def layer_norm(x, scale, shift=None, epsilon=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * scale + (0 if shift is None else shift)


def rms_norm(x, scale, epsilon=1e-5):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * scale


def argmax(x):
    seen = np.where(np.isnan(x), -np.inf, x)
    return seen.argmax(-1), seen.max(-1)


def log_sum_exp(x):
    top = x.max(-1)
    return np.log(np.exp(x - top[:, None]).sum(-1)) + top


def stencil(x):
    p = np.pad(x, 1, mode="edge")
    return (p[1:-1, 1:-1] + p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 5


def depthwise_conv2d(x, w):
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = x.shape[2:]
    return sum(p[:, :, i : i + rows, j : j + columns] * w[None, :, i, j, None, None] for i in range(3) for j in range(3))


def conv1d(x, w, bias=None):
    """2 groups, stride 2, dilation 3, padding 4."""
    p, length = np.pad(x, ((0, 0), (0, 0), (4, 4))), (x.shape[2] + 8 - 3 * (w.shape[2] - 1) - 1) // 2 + 1
    y = np.zeros((len(x), 6, length))
    for o in range(6):
        for k in range(w.shape[2]):
            taps = p[:, o // 3 * 4 : o // 3 * 4 + 4, 3 * k : 3 * k + 2 * length : 2]
            y[:, o] += np.einsum("nct,c->nt", taps, w[o, :, k])
    return y if bias is None else y + bias[None, :, None]


def lltm(x, w, b, h, c):
    i, o, g = np.split(np.concatenate([h, x], 1) @ w.T + b, 3, 1)
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    new_c = c + np.where(g > 0, g, np.expm1(g)) * sigmoid(i)
    return np.tanh(new_c) * sigmoid(o), new_c


def integers(low, high, shape, dtype):
    return RNG.integers(low, high, shape).astype(dtype)


WITH_NAN = normal(3, 9)
WITH_NAN[0, 4] = WITH_NAN[1, 0] = np.nan
# Name: the reference, then calls: the arrays, and params behind them.
CALLS = {
    "add": (np.add, [(normal(7, 37), normal(7, 37)), (normal(1, 1), normal(1, 1)), (normal(0, 3), normal(0, 3))]),
    "argmax": (argmax, [(normal(7, 37),), (WITH_NAN,), (np.full((2, 5), 3, "float32"),)]),
    "attention": (
        attention,
        [(normal(6, 8), normal(9, 8), normal(9, 5)), (normal(9, 3), normal(9, 3), normal(9, 17), {"causal": True})],
    ),
    "batched_matmul": (
        lambda a, b: a @ b.transpose(0, 2, 1),
        [(normal(3, 4, 9), normal(3, 6, 9)), (normal(1, 33, 64), normal(1, 17, 64))],
    ),
    "conv1d": (conv1d, [(normal(2, 8, 21), normal(6, 4, 3), normal(6)), (normal(1, 8, 40), normal(6, 4, 5))]),
    "cumsum": (lambda x: np.cumsum(x, -1), [(normal(7, 37),), (normal(1, 1),)]),
    "depthwise_conv2d": (depthwise_conv2d, [(normal(2, 3, 7, 8), normal(3, 3, 3)), (normal(1, 1, 1, 1), normal(1, 3, 3))]),
    "gather": (lambda t, i: t[np.clip(i, 0, len(t) - 1)], [(normal(6, 4), integers(-3, 9, 11, "int64"))]),
    "int8_matmul": (lambda a, b: a @ b, [(integers(-128, 128, (9, 300), "int8"), integers(-128, 128, (300, 5), "int8"))]),
    "layer_norm": (
        layer_norm,
        [
            (normal(7, 37, dtype="float16"), normal(37, dtype="float16"), normal(37, dtype="float16")),
            (normal(3, 64, dtype="float16"), normal(64, dtype="float16"), {"epsilon": 0.5}),
        ],
    ),
    "lltm": (lltm, [(normal(5, 6), normal(12, 10), normal(12), normal(5, 4), normal(5, 4))]),
    "log_sum_exp": (log_sum_exp, [(normal(7, 37),), (100 + normal(2, 5),)]),
    "mm_relu": (lambda a, b: np.maximum(a @ b, 0), [(normal(128, 128), normal(128, 128))]),
    "rms_norm": (rms_norm, [(normal(7, 37), normal(37)), (normal(2, 64), normal(64), {"epsilon": 0.5})]),
    "softmax": (softmax, [(normal(7, 37),), (1000 * normal(2, 5),)]),
    "stencil": (stencil, [(normal(8, 9),), (normal(1, 1),)]),
}
TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "int32": 0, "int64": 0}  # of the largest number in the call


def op_of(name):
    return PrimFunc((TEXTS / f"{name}.program").read_text()).build()


def tupled(made):
    return made if isinstance(made, tuple) else (made,)


def compare(got, expected, arrays):
    largest = max(1.0, *(np.abs(np.nan_to_num(wide(x), posinf=0, neginf=0)).max(initial=0) for x in (*arrays, *expected)))
    for y, want in zip(got, expected, strict=True):
        np.testing.assert_allclose(wide(y), want, rtol=0, atol=TOLERANCE[y.dtype.name] * largest)


def split(call):
    return (call[:-1], call[-1]) if isinstance(call[-1], dict) else (call, {})


def test_every_example_is_here():
    assert sorted(CALLS) == sorted(path.stem for path in TEXTS.glob("*.program"))


@pytest.mark.parametrize("device", present.DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_an_example_computes_what_numpy_does(name, device):
    op, (reference, calls) = op_of(name), CALLS[name]
    for call in calls:
        arrays, params = split(call)
        got = tupled(op(*arrays, device=device, **params))
        compare(got, [np.asarray(want, "float64") for want in tupled(reference(*map(wide_index, arrays), **params))], arrays)


def wide_index(x):
    return x.astype("int64") if x.dtype.kind == "i" else wide(x)


@pytest.mark.parametrize("device", present.DEVICES)
def test_rows_without_elements(device):
    none = np.zeros((3, 0), "float32")
    where, top = op_of("argmax")(none, device=device)
    assert where.tolist() == [-1] * 3 and top.tolist() == [-np.inf] * 3
    assert op_of("log_sum_exp")(none, device=device).tolist() == [-np.inf] * 3
    assert op_of("softmax")(none, device=device).shape == (3, 0)


@pytest.mark.parametrize("device", present.DEVICES)
def test_conv1d_and_lltm_compute_what_our_ops_do(device):
    for call in CALLS["conv1d"][1]:
        ours = narrows.conv1d(*call, stride=2, padding=4, dilation=3, groups=2, device=device)
        compare([op_of("conv1d")(*call, device=device)], [wide(ours)], call)
    call = CALLS["lltm"][1][0]
    compare(op_of("lltm")(*call, device=device), list(map(wide, narrows.lltm(*call, device=device))), call)


HISTOGRAM = """program 1 histogram(x: i64[N], y: out i64[10]):
  for i in N:
    block y(vi: {kind}(N) = i):
      init:
        y[clamp(x[vi], 0, 9)] = i64(0)
      y[clamp(x[vi], 0, 9)] = y[clamp(x[vi], 0, 9)] + i64(1)
"""


@pytest.mark.parametrize("kind", "SRC")
def test_a_histogram_is_refused(kind):
    reason = r"block 'y': the store into 'y': .*clamp\(x\[vi\], 0, 9\); data may only choose what is read"
    with pytest.raises(ValueError, match=reason):
        PrimFunc(HISTOGRAM.format(kind=kind))

    def histogram(x: T.Buffer(("N",), "int64"), y: T.Buffer((10,), "int64")):
        for i in T.serial(x.shape[0]):
            with T.block("y"):
                vi = getattr(T.axis, kind)(x.shape[0], i)
                with T.init():
                    y[T.clamp(x[vi], 0, 9)] = 0
                y[T.clamp(x[vi], 0, 9)] += 1

    with pytest.raises(ValueError, match=reason):
        T.prim_func(histogram)
