# SPDX-License-Identifier: Apache-2.0
"""JAX: forward mode and second derivatives of conv1d, elementwise and lltm, against finite differences and JAX's own functions in
float64; how many kernels a gradient calls; and that derivatives are refused of an op that declares none."""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import functools
import re

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import narrows  # noqa: E402
import narrows.jax  # noqa: E402
from differentiable import FUNCTIONS, of_function  # noqa: E402

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map


@pytest.fixture(autouse=True)
def float64():
    """And the CPU: what the formulas compute there they compute on a GPU, too."""
    jax.config.update("jax_enable_x64", True)
    with jax.default_device(jax.devices("cpu")[0]):
        yield
    jax.config.update("jax_enable_x64", False)


def double(*shape, low=0.2, high=0.9, seed=0):
    return jnp.asarray(np.random.default_rng([seed, *shape]).uniform(low, high, shape))


def normal(*shapes):
    return [jnp.asarray(np.random.default_rng([i, *s]).normal(size=s)) for i, s in enumerate(shapes)]


def signals():
    return normal((2, 4, 7), (6, 2, 3), (6,))


def cells():
    return normal((2, 3), (12, 7), (12,), (2, 4), (2, 4))


def close(a, b, rtol=1e-7, atol=1e-9):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=atol), a, b)


# ---- every function ----


def every_function():
    mask = jnp.array([[True, False, True], [False, False, True]])
    calls = {name: of_function(name, double) for name in FUNCTIONS} | {
        "fma": (narrows.fma, [double(2, 1), double(1, 3), double(3)]),
        "clip": (narrows.clip, [double(2, 3), double(3, low=0.3, high=0.4), double(1, low=0.6, high=0.7)]),
        "where": (lambda b, c: narrows.where(mask, b, c), [double(2, 3), double(3)]),
        "pow of a number": (lambda a: narrows.pow(a, 3), [double(3)]),
        "pow of 1": (lambda a: narrows.pow(a, 1), [double(3)]),
        "divide of a number": (lambda a: narrows.divide(2, a), [double(3)]),
    }
    return {name: (call, list(inputs)) for name, (call, inputs) in calls.items()}


def derivatives(call, inputs, directions):
    """The value; forward mode; and the gradient of a scalar; and the Hessian times the directions, by each order of the two modes."""
    weighted = lambda y: (jnp.cos(jnp.arange(y.size).reshape(y.shape)) * y).sum()  # noqa: E731
    scalar = lambda *x: weighted(call(*x))  # noqa: E731
    every = tuple(range(len(inputs)))
    gradient = jax.grad(scalar, every)
    along = lambda gs: sum(jnp.vdot(g, d) for g, d in zip(gs, directions, strict=True))  # noqa: E731
    return {
        "value": call(*inputs),
        "gradient": gradient(*inputs),
        "forward": jax.jvp(call, tuple(inputs), tuple(directions))[1],
        "forward over reverse": jax.jvp(gradient, tuple(inputs), tuple(directions))[1],
        "reverse over reverse": jax.grad(lambda *x: along(gradient(*x)), every)(*inputs),
        "reverse over forward": jax.grad(lambda *x: jax.jvp(scalar, x, tuple(directions))[1], every)(*inputs),
    }


def test_every_function_against_finite_differences():
    calls = every_function()
    inputs = {name: x for name, (_, x) in calls.items()}
    directions = {name: [double(*a.shape, low=-1, high=1, seed=1) for a in x] for name, x in inputs.items()}
    run = jax.jit(lambda inputs: {name: derivatives(calls[name][0], inputs[name], directions[name]) for name in calls})
    h, moved = 1e-6, lambda h: jax.tree.map(lambda x, d: x + h * d, inputs, directions)
    found, less, more = run(inputs), run(moved(-h)), run(moved(h))
    for name, of in found.items():
        first, second = (
            jax.tree.map(lambda a, b: (a - b) / (2 * h), more[name][what], less[name][what]) for what in ("value", "gradient")
        )
        close(of["forward"], first, 1e-6, 1e-8)
        for what in ("forward over reverse", "reverse over reverse", "reverse over forward"):
            close(tuple(of[what]), second, 1e-5, 1e-7)


CHECKED = {
    "tanh": (narrows.tanh, lambda: [double(3)]),
    "multiply": (narrows.multiply, lambda: [double(2, 3), double(3)]),
    "conv1d": (functools.partial(narrows.conv1d, stride=2, padding=1, groups=2), signals),
    "conv1d unbatched": (functools.partial(narrows.conv1d, dilation=2), lambda: normal((2, 6), (3, 2, 2), (3,))),
    "conv1d without bias": (narrows.conv1d, lambda: normal((7,), (3,))),
    "lltm": (narrows.lltm, cells),
}


@pytest.mark.parametrize("name", CHECKED)
def test_by_jaxs_check(name):
    call, inputs = CHECKED[name]
    check_grads(jax.jit(call), inputs(), order=2, modes=("fwd", "rev"), rtol=1e-5)


# ---- every entry, beside JAX's own functions ----


def ours(x, w, b):
    return (narrows.tanh(narrows.conv1d(x, w, b, padding=1, groups=2)) ** 2).sum()


def theirs(x, w, b):
    y = jax.lax.conv_general_dilated(x, w, (1,), [(1, 1)], dimension_numbers=("NCH", "OIH", "NCH"), feature_group_count=2)
    return (jnp.tanh(y + b[:, None]) ** 2).sum()


def squares(cell, *inputs):
    h, c = cell(*inputs)
    return (h * h).sum() + (c * c).sum()


def lltm_of_jax(input, weights, bias, h, c):
    i, o, g = jnp.split(jnp.concatenate([h, input], 1) @ weights.T + bias, 3, 1)
    c = c + jax.nn.elu(g) * jax.nn.sigmoid(i)
    return jnp.tanh(c) * jax.nn.sigmoid(o), c


PAIRS = {
    "conv1d and tanh": (ours, theirs, signals),
    "lltm": (functools.partial(squares, narrows.lltm), functools.partial(squares, lltm_of_jax), cells),
}


def along(inputs):
    return tuple(jnp.cos(x + 1) for x in inputs)


def gradient_penalty(f, x):
    return jax.grad(lambda *a: (jnp.linalg.norm(jax.grad(f)(*a).ravel()) - 1) ** 2, tuple(range(len(x))))(*x)


def third(f, x):
    once = lambda *a: (jax.grad(f)(*a) ** 2).sum()  # noqa: E731
    return jax.grad(lambda *a: (jax.grad(once, 1)(*a) ** 2).sum())(*x)


def scanned(f, x):
    """A gradient's derivative through jax.lax.scan, which saves what it has read."""
    step = lambda a, _: (a - 0.1 * jax.grad(f)(a, *x[1:]), None)  # noqa: E731
    return jax.grad(lambda a: (jax.lax.scan(step, a, None, length=2)[0] ** 2).sum())(x[0])


def batch(x):
    return [jnp.stack([a, 2 * a, a - 1]) for a in x]


def vmap_over_some(f, x):
    """Gradients of parameters that the batch shares, and the derivatives of those."""
    mean = lambda w: jax.vmap(lambda a, w: f(a, w, *x[2:]), (0, None))(batch(x)[0], w).sum()  # noqa: E731
    return jax.grad(lambda w: (jax.grad(mean)(w) ** 2).sum())(x[1])


ENTRIES = {
    "jacfwd": lambda f, x: jax.jacfwd(f, tuple(range(len(x))))(*x),
    "hessian": lambda f, x: jax.hessian(f, (0, 1))(*x),
    "jvp of jvp": lambda f, x: jax.jvp(lambda *a: jax.jvp(f, a, along(a))[1], tuple(x), along(x)),
    "jacrev of jacrev": lambda f, x: jax.jacrev(jax.jacrev(f))(*x),
    "linearize": lambda f, x: jax.linearize(f, *x)[1](*along(x)),
    "linear_transpose of linearize": lambda f, x: jax.linear_transpose(jax.linearize(f, *x)[1], *x)(1.0),
    "third": third,
    "checkpoint": lambda f, x: gradient_penalty(jax.checkpoint(f), x),
    "checkpoint of a gradient": lambda f, x: jax.grad(lambda a: jax.checkpoint(jax.grad(f))(a, *x[1:]).sum())(x[0]),
    "scan": scanned,
    "vmap of hessian": lambda f, x: jax.vmap(jax.hessian(f))(*batch(x)),
    "jvp of vmap": lambda f, x: jax.jvp(jax.vmap(f), tuple(batch(x)), along(batch(x))),
    "grad of vmap": vmap_over_some,
    "vmap of a gradient penalty": lambda f, x: jax.vmap(lambda *a: gradient_penalty(f, a))(*batch(x)),
}
LONG = {"grad of vmap"}  # of lltm, whose programs take XLA long to compile


@pytest.mark.parametrize("pair, entry", [(p, e) for p in PAIRS for e in ENTRIES if p != "lltm" or e in LONG])
def test_every_entry(pair, entry):
    mine, others, inputs = PAIRS[pair]
    run = lambda f: jax.jit(functools.partial(ENTRIES[entry], f))(inputs())  # noqa: E731
    close(run(mine), run(others))


def test_without_jit():
    x = signals()
    close(jax.jvp(jax.grad(ours), tuple(x), along(x)), jax.jvp(jax.grad(theirs), tuple(x), along(x)))
    with jax.disable_jit():
        close(ENTRIES["linearize"](narrows.tanh, x[:1]), ENTRIES["linearize"](jnp.tanh, x[:1]))


def test_on_several_devices():
    """Split by jax.jit, and by shard_map."""
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:2]), ("d",))
    x, w, b = signals()
    apart = jax.device_put(x, jax.sharding.NamedSharding(mesh, P("d")))
    run = lambda f, x: jax.jit(functools.partial(gradient_penalty, f))([x, w, b])  # noqa: E731
    close(run(ours, apart), run(theirs, x))
    close(jax.jit(lambda x: jax.jvp(ours, (x, w, b), (x, w, b)))(apart), jax.jvp(theirs, (x, w, b), (x, w, b)))

    def inside(f, x, w):  # each device has a part of the batch and all of w
        g = lambda x, w: jax.grad(lambda x: f(x, w, b))(x)  # noqa: E731
        return jax.jvp(lambda x: g(x, w), (x,), (x,))[1] + jax.grad(lambda x: (g(x, w) ** 2).sum())(x)

    mapped = shard_map(functools.partial(inside, ours), mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
    close(jax.jit(mapped)(x, w), inside(theirs, x, w))


@pytest.mark.parametrize("symbolic", [False, True])
def test_exported(symbolic):
    export = pytest.importorskip(
        "jax.export", reason="jax.export of 0.4.38 needs absl, which JAX does not require", exc_type=ImportError
    )
    x = signals()
    f = lambda x: jax.jvp(jax.grad(ours), (x, *signals()[1:]), along((x, *signals()[1:])))[1]  # noqa: E731
    shape = export.symbolic_shape("n, 4, l", constraints=["l >= 3"]) if symbolic else x[0].shape
    program = export.export(jax.jit(f), disabled_checks=narrows.jax.disabled_checks)(jax.ShapeDtypeStruct(shape, x[0].dtype))
    close(program.call(x[0]), f(x[0]))


@pytest.mark.parametrize("pair, dtype", [("conv1d and tanh", "float32"), ("conv1d and tanh", "float16"), ("lltm", "bfloat16")])
def test_lower_precision(pair, dtype):
    """What goes in is rounded, what comes out is near to float64's."""
    mine, others, inputs = PAIRS[pair]
    product = lambda f, *x: jax.jvp(jax.grad(f, (0, 1)), x, tuple(0.5 * a for a in x))[1]  # noqa: E731
    rounded = [(x / 2).astype(dtype) for x in inputs()]
    expected = jax.jit(functools.partial(product, others))(*(x.astype("float64") for x in rounded))
    for g, e in zip(jax.jit(functools.partial(product, mine))(*rounded), expected, strict=True):
        assert g.dtype == dtype
        bound = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4}[dtype]
        assert jnp.abs(g.astype("float64") - e).max() <= bound * jnp.abs(e).max()


# ---- first derivatives ----


def called(function, *arrays):
    """{op: number of calls} in the compiled program."""
    calls = [line for line in jax.jit(function).lower(*arrays).compile().as_text().splitlines() if " custom-call(" in line]
    names = [found[1] for line in calls if (found := re.search(r'op_name="[^"]*/narrows\.(\w+)"', line))]
    return {name: names.count(name) for name in names}


def test_a_gradient_calls_the_backward_kernel_once_and_for_what_is_wanted():
    x, w, b = signals()
    scalar = lambda *a: narrows.conv1d(*a, padding=1, groups=2).sum()  # noqa: E731
    for argnums in (0, (0, 1, 2)):
        assert called(jax.grad(scalar, argnums), x, w, b) == {"conv1d_backward": 1}  # nothing of the value is left
    assert called(jax.grad(lambda *a: squares(narrows.lltm, *a)), *cells()) == {"lltm": 1, "lltm_backward": 1}
    if hasattr(jax, "shard_map"):  # before 0.6 it refuses what says which gradients are wanted
        jaxpr = str(jax.make_jaxpr(jax.grad(scalar, 1))(x, w, b))
        assert re.search(r"conv1d_backward\[\s+aliases=\(\)\s+call=narrows.conv1d_backward\s+mask=2\s", jaxpr)


def test_a_first_gradient_is_the_fused_one():
    """Of 1e20 / 1e-10 and a gradient of 1e-20 every composition of products overflows."""
    a, b, g = (jnp.array([v], "float32") for v in (1e20, 1e-10, 1e-20))
    _, back = jax.vjp(narrows.divide, a, b)
    assert jax.jvp(lambda b: narrows.divide(a, b), (b,), (g,))[1] == back(g)[1] and abs(back(g)[1] / -1e20 - 1) < 1e-6


def test_second_derivatives_at_infinity_and_kinks():
    second = lambda f, v: jax.grad(jax.grad(f))(jnp.float64(v)).item()  # noqa: E731
    for f in (narrows.tanh, narrows.gelu, narrows.silu):
        assert second(f, np.inf) == second(f, -np.inf) == 0
    for f in (narrows.abs, narrows.relu, lambda x: narrows.maximum(x, 0.0)):
        assert second(f, 0.0) == 0
    assert second(narrows.elu, 0.0) == 1 and second(lambda x: narrows.pow(x, 1), 0.0) == 0


def test_what_is_no_number_has_no_tangent():
    x = double(3)
    value, tangent = jax.jvp(lambda x: narrows.astype(narrows.greater(x, 0.5), "float64"), (x,), (x,))
    close((value, tangent), ((x > 0.5).astype("float64"), jnp.zeros(3)))
    close(jax.jvp(lambda x: narrows.where(narrows.greater(x, 0.5), x, 0.0), (x,), (x,))[1], jnp.where(x > 0.5, x, 0.0))


# ---- plugins ----

FORWARD = {
    "jvp": lambda f, x: jax.jvp(f, (x,), (x,)),
    "jit": lambda f, x: jax.jit(lambda x: jax.jvp(f, (x,), (x,)))(x),
    "jacfwd": lambda f, x: jax.jacfwd(f)(x),
    "hessian": lambda f, x: jax.hessian(lambda x: f(x).sum())(x),
    "linearize": lambda f, x: jax.linearize(f, x)[1](x),
    "vmap": lambda f, x: jax.vmap(lambda x: jax.jvp(f, (x,), (x,)))(jnp.stack([x, x])),
}


@pytest.mark.parametrize("entry", FORWARD)
def test_forward_mode_through_an_op_that_declares_none(entry, scale_plugin):
    with pytest.raises(NotImplementedError, match=r"test\.scale/1: no forward-mode derivative .*; expected reverse mode"):
        FORWARD[entry](lambda x: scale_plugin.scale(x, factor=2.0), double(3))


def test_derivatives_of_an_op_without_a_backward_op(scale_plugin):
    backward = lambda g, x: narrows.jax.call("test.affine_backward/1", g, x, x)[0].sum()  # noqa: E731
    for derivative in (jax.grad(backward), lambda *a: jax.jvp(backward, a, a)):
        with pytest.raises(
            NotImplementedError, match=r"test\.affine_backward/1 declares no backward op, so there is no derivative"
        ):
            derivative(double(3), double(3))
    with pytest.raises(NotImplementedError, match="declares no backward op"):
        jax.grad(lambda x: jax.grad(lambda x: scale_plugin.affine(x, x).sum())(x).sum())(double(3))


def test_derivatives_of_a_call_that_donates():
    call = lambda x: narrows.jax.call("elementwise", x, function="exp", donate=0).sum()  # noqa: E731
    with pytest.raises(NotImplementedError, match="a call that donates has no derivative"):
        jax.grad(call)(double(3))


def test_a_second_derivative_of_a_plugins_op(scale_plugin):
    """Whose backward op declares one: reverse over reverse."""
    f = lambda x: (scale_plugin.scale(x, factor=2.0) ** 2).sum()  # noqa: E731
    x = double(3)
    close(jax.jit(jax.jacrev(jax.jacrev(f)))(x), 8.0 * jnp.eye(3))
    close(jax.jit(jax.vmap(jax.grad(lambda x: (jax.grad(f)(x) ** 2).sum())))(jnp.stack([x, 2 * x])), 128 * jnp.stack([x, 2 * x]))
