# SPDX-License-Identifier: Apache-2.0
"""vmap of conv1d and lltm, in torch and JAX: a batch of calls is one call, also of gradients and for each example, wherever an axis can take the
batch; and on several devices a batch that is split is not gathered."""

import functools
import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import numpy as np
import pytest

import narrows
from narrows import _batching

RNG = np.random.default_rng(0)
KEYWORDS = {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


# Of one example: x, w, bias. The second is a (C, L).
SHAPES = {"batches": ((2, 4, 9), (6, 2, 3), (6,)), "no batch": ((4, 9), (6, 2, 3), (6,))}
MAPPED = {"x": (0, None, None), "w": (None, 0, 0), "bias": (None, None, 0), "all": (0, 0, 0), "x and w": (0, 0, None)}
CELL = (2, 3), (12, 7), (12,), (2, 4), (2, 4)
CELL_MAPPED = 0, None, None, 0, 0


def arrays(shapes, mapped, size=5):
    return [normal(*s) if d is None else normal(size, *s) for s, d in zip(shapes, mapped, strict=True)]


# ---- torch ----


@pytest.fixture
def torch_calls(request):
    """Torch, and the number of calls of our ops below its dispatcher until now."""
    torch = pytest.importorskip("torch", reason="torch is not installed; ./run check python installs it")
    from narrows import _torch_ops

    made, run = [], _torch_ops._Registered.run
    names = ["conv1d", "conv1d_backward", "lltm", "lltm_backward"]
    if "correlate_plugin" in request.fixturenames:
        request.getfixturevalue("correlate_plugin")
        names += ["test.correlate/1", "test.correlate_backward/1"]
    registered = {name: _torch_ops.registered(name) for name in names}
    library = torch.library.Library("narrows", "IMPL")
    for reg in registered.values():
        counted = lambda *a, reg=reg, **k: (made.append(reg.name), run(reg, *a, **k))[1]  # noqa: E731
        library.impl(reg.name, counted, "CPU", allow_override=True)
    yield torch, made
    library._destroy()


def torch_lltm(torch):
    def reference(x, w, b, h, c):
        i, o, z = (torch.cat([h, x], 1) @ w.T + b).chunk(3, 1)
        cell = c + torch.nn.functional.elu(z) * torch.sigmoid(i)
        return torch.tanh(cell) * torch.sigmoid(o), cell

    return reference


def squares(f):
    """A loss of every output."""

    def loss(*a):
        outputs = f(*a)
        return sum((y * y).sum() for y in (outputs if isinstance(outputs, tuple) else (outputs,)))

    return loss


@pytest.mark.parametrize("mapped", MAPPED.values(), ids=MAPPED)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_torchs_vmap_of_conv1d_is_one_call(torch_calls, shapes, mapped):
    torch, made = torch_calls
    inputs = [torch.from_numpy(a) for a in arrays(shapes, mapped)]
    ours, theirs = (lambda *a, f=f: f(*a, **KEYWORDS) for f in (narrows.conv1d, torch.nn.functional.conv1d))
    result = torch.vmap(ours, in_dims=mapped)(*inputs)
    assert made == ["conv1d"]
    torch.testing.assert_close(result, torch.vmap(theirs, in_dims=mapped)(*inputs))
    for wanted in ((0,), (1,), (0, 1, 2)):
        made.clear()
        gradient = lambda f, w=wanted: torch.vmap(torch.func.grad(squares(f), argnums=w), in_dims=mapped)(*inputs)  # noqa: E731
        result = gradient(ours)
        assert made == ["conv1d", "conv1d_backward"]
        torch.testing.assert_close(result, gradient(theirs), rtol=1e-4, atol=1e-4)


def test_torchs_vmap_of_signals_dims_and_batches_of_batches(torch_calls):
    torch, made = torch_calls
    one = lambda x, w: torch.nn.functional.conv1d(x[None, None], w[None, None])[0, 0]  # noqa: E731
    x, w = torch.from_numpy(normal(5, 9)), torch.from_numpy(normal(3, 5))
    torch.testing.assert_close(torch.vmap(narrows.conv1d, in_dims=(0, 1))(x, w), torch.vmap(one, in_dims=(0, 1))(x, w))
    assert made == ["conv1d"]
    x, w = torch.from_numpy(normal(3, 5, 2, 3, 9)), torch.from_numpy(normal(7, 4, 3, 3))
    nested = lambda f: torch.vmap(torch.vmap(torch.vmap(f, in_dims=(0, None)), in_dims=(None, 0)), in_dims=(0, None))(x, w)  # noqa: E731
    made.clear()
    torch.testing.assert_close(nested(narrows.conv1d), nested(torch.nn.functional.conv1d))
    assert made == ["conv1d"]


def test_torchs_vmap_of_lltm(torch_calls):
    torch, made = torch_calls
    inputs = [torch.from_numpy(a) for a in arrays(CELL, CELL_MAPPED)]
    mapped = lambda f: torch.vmap(f, in_dims=CELL_MAPPED)(*inputs)  # noqa: E731
    torch.testing.assert_close(mapped(narrows.lltm), mapped(torch_lltm(torch)))
    assert made == ["lltm"]
    for wanted, calls in (
        ((0, 3, 4), 1),
        ((1,), 5),
        ((0, 2), 5),
    ):  # the gradients of weights are sums over a batch: a call for each
        made.clear()
        gradient = lambda f, w=wanted: mapped(torch.func.grad(squares(f), argnums=w))  # noqa: E731
        result = gradient(narrows.lltm)
        assert made == ["lltm"] + ["lltm_backward"] * calls
        torch.testing.assert_close(result, gradient(torch_lltm(torch)), rtol=1e-4, atol=1e-4)


# ---- JAX ----

GATHERS = ("all-gather", "all-to-all", "collective-permute")


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax", reason="JAX is not installed; ./run check python installs it")
    import narrows.jax

    assert narrows.jax
    jax.config.update("jax_default_matmul_precision", "highest")
    with jax.default_device(jax.devices("cpu")[0]):
        yield jax


def lax_conv1d(jax):
    def reference(x, w, bias=None):
        groups, batch = KEYWORDS["groups"], x if x.ndim == 3 else x[None]
        y = jax.lax.conv_general_dilated(
            batch, w, (2,), [(1, 1)], rhs_dilation=(2,), feature_group_count=groups, dimension_numbers=("NCH", "OIH", "NCH")
        )
        y = y if bias is None else y + bias[:, None]
        return y if x.ndim == 3 else y[0]

    return reference


def jax_lltm(jax):
    def reference(x, w, b, h, c):
        i, o, z = jax.numpy.split(jax.numpy.concatenate([h, x], 1) @ w.T + b, 3, 1)
        cell = c + jax.nn.elu(z) * jax.nn.sigmoid(i)
        return jax.numpy.tanh(cell) * jax.nn.sigmoid(o), cell

    return reference


def ours_conv1d(*a):
    return narrows.conv1d(*a, **KEYWORDS)


def close(ours, theirs):
    import jax

    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def compiled(jax, function, *inputs):
    """How many of our calls and loops the program has, and what it gathers."""
    text = jax.jit(function).lower(*inputs).compile().as_text()
    return text.count('custom_call_target="narrows"'), text.count("while("), [word for word in GATHERS if word in text]


def is_one_call(jax, function, inputs, calls=1):
    """Before JAX had sharding rules its own call is batched, by a loop."""
    from narrows import _jax_sharding

    return not _jax_sharding.HAS_RULES or compiled(jax, function, *inputs) == (calls, 0, [])


@pytest.mark.parametrize("mapped", MAPPED.values(), ids=MAPPED)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_jaxs_vmap_of_conv1d_is_one_call(jax, shapes, mapped):
    inputs = arrays(shapes, mapped)
    transforms = [lambda f: jax.vmap(f, in_axes=mapped)]
    transforms.append(lambda f: jax.vmap(jax.grad(squares(f), argnums=(0, 1, 2)), in_axes=mapped))
    for calls, transform in enumerate(transforms, 1):
        assert is_one_call(jax, transform(ours_conv1d), list(map(jax.numpy.asarray, inputs)), calls)
        close(transform(ours_conv1d)(*map(jax.numpy.asarray, inputs)), transform(lax_conv1d(jax))(*inputs))


def test_jaxs_vmap_of_signals_and_batches_of_batches(jax):
    x, w = (jax.numpy.asarray(a) for a in (normal(3, 5, 2, 4, 9), normal(7, 6, 2, 3)))
    nested = lambda f: jax.vmap(jax.vmap(jax.vmap(f, in_axes=(0, None)), in_axes=(None, 0)), in_axes=(0, None))  # noqa: E731
    assert is_one_call(jax, nested(ours_conv1d), (x, w))
    close(nested(ours_conv1d)(x, w), nested(lax_conv1d(jax))(x, w))
    signals, taps = x[0, :, 0, 0], w[:5, 0, 0]
    close(jax.vmap(narrows.conv1d)(signals, taps), np.stack([np.correlate(s, t) for s, t in zip(signals, taps, strict=True)]))


def test_jaxs_vmap_of_lltm(jax):
    inputs = [jax.numpy.asarray(a) for a in arrays(CELL, CELL_MAPPED)]
    mapped = lambda f: jax.vmap(f, in_axes=CELL_MAPPED)  # noqa: E731
    assert is_one_call(jax, mapped(narrows.lltm), inputs)
    close(mapped(narrows.lltm)(*inputs), mapped(jax_lltm(jax))(*inputs))
    gradient = lambda f: mapped(jax.grad(squares(f), argnums=(0, 1, 2, 3, 4)))(*inputs)  # noqa: E731
    close(gradient(narrows.lltm), gradient(jax_lltm(jax)))


def split_over(jax, spec):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from narrows import _jax_sharding

    if not _jax_sharding.HAS_RULES:
        pytest.skip("this JAX has no sharding rules")
    mesh = Mesh(np.array(jax.devices("cpu")).reshape(2, 2), ("a", "b"))
    return lambda x, rank: jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec[:rank])))


SPECS = {"the batch": ("a",), "both batches": ("a", "b"), "the op's own": (None, "a"), "every device": (("a", "b"),)}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_batch_of_conv1d_on_several_devices_is_not_gathered(jax, spec):
    put, shapes = split_over(jax, spec), SHAPES["batches"]
    for mapped in (MAPPED["x"], MAPPED["all"]):
        whole = arrays(shapes, mapped, 8)
        inputs = [
            put(a, 2 if a.ndim == 4 and i == 0 else 1) if d == 0 else a for i, (a, d) in enumerate(zip(whole, mapped, strict=True))
        ]
        for calls, transform in (
            (1, lambda f, m=mapped: jax.vmap(f, in_axes=m)),
            (2, lambda f, m=mapped: jax.grad(squares(jax.vmap(f, in_axes=m)), argnums=(0, 1, 2))),
            (2, lambda f, m=mapped: jax.vmap(jax.grad(squares(f), argnums=(0, 1, 2)), in_axes=m)),
        ):
            assert compiled(jax, transform(ours_conv1d), *inputs) == (calls, 0, [])
            close(jax.jit(transform(ours_conv1d))(*inputs), transform(lax_conv1d(jax))(*whole))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_batch_of_lltm_on_several_devices_is_not_gathered(jax, spec):
    put, whole = split_over(jax, spec), arrays(CELL, CELL_MAPPED, 8)
    inputs = [put(a, 2) if d == 0 else a for a, d in zip(whole, CELL_MAPPED, strict=True)]
    mapped = lambda f: jax.vmap(f, in_axes=CELL_MAPPED)  # noqa: E731
    assert compiled(jax, mapped(narrows.lltm), *inputs) == (1, 0, [])
    close(jax.jit(mapped(narrows.lltm))(*inputs), mapped(jax_lltm(jax))(*whole))
    every = (0, 1, 2, 3, 4)
    for transform in (lambda f: jax.grad(squares(mapped(f)), argnums=every), lambda f: mapped(jax.grad(squares(f), argnums=every))):
        calls, loops, gathered = compiled(jax, transform(narrows.lltm), *inputs)
        assert (calls, loops, gathered) == (2, 1, [])  # the loop is over a device's own part
        close(jax.jit(transform(narrows.lltm))(*inputs), transform(jax_lltm(jax))(*whole))


# ---- a plugin's op, which is known by its declaration alone ----


def test_torchs_vmap_of_a_plugins_convolution_is_one_call(torch_calls, correlate_plugin):
    torch, made = torch_calls
    inputs = [torch.from_numpy(normal(5, 4, 9)), torch.from_numpy(normal(5, 6, 2, 3))]
    ours, theirs = correlate_plugin.correlate, lambda x, w: torch.nn.functional.conv1d(x, w, groups=2)  # 2 unless given
    for mapped in ((0, None), (None, 0), (0, 0)):
        given = [a if d == 0 else a[0] for a, d in zip(inputs, mapped, strict=True)]
        made.clear()
        torch.testing.assert_close(torch.vmap(ours, in_dims=mapped)(*given), torch.vmap(theirs, in_dims=mapped)(*given))
        gradient = lambda f, m=mapped, g=given: torch.vmap(torch.func.grad(squares(f), argnums=(0, 1)), in_dims=m)(*g)  # noqa: E731
        torch.testing.assert_close(gradient(ours), gradient(theirs), rtol=1e-4, atol=1e-4)
        assert made == ["test_correlate_1", "test_correlate_1", "test_correlate_backward_1"]


def test_autocast_of_a_plugins_convolution(torch_calls, correlate_plugin):
    torch, _ = torch_calls
    x, w = torch.from_numpy(normal(2, 4, 9)), torch.from_numpy(normal(6, 4, 3)).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, expected = correlate_plugin.correlate(x, w, groups=1), torch.nn.functional.conv1d(x, w)
    assert y.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=1e-2, atol=1e-2)
    gradients = [torch.autograd.grad(r.sum(), w)[0] for r in (y, expected)]
    assert gradients[0].dtype == torch.float32
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=2e-2)


def test_a_plugins_convolution_on_several_devices_is_not_gathered(jax, correlate_plugin):
    reference = lambda x, w: jax.lax.conv_general_dilated(x, w, (1,), "VALID", dimension_numbers=("NCH", "OIH", "NCH"))  # noqa: E731
    put, correlate = split_over(jax, (("a", "b"),)), functools.partial(correlate_plugin.correlate, groups=1)
    x, w = normal(8, 4, 9), normal(6, 4, 3)
    for calls, transform in ((1, lambda f: f), (2, lambda f: jax.grad(squares(f), argnums=(0, 1)))):
        assert compiled(jax, transform(correlate), put(x, 1), w) == (calls, 0, [])
        close(jax.jit(transform(correlate))(put(x, 1), w), transform(reference)(x, w))
    mapped = lambda f: jax.vmap(lambda x, w: f(x[None], w)[0])  # noqa: E731
    many = normal(8, 6, 4, 3)
    assert compiled(jax, mapped(correlate), put(x, 1), put(many, 1)) == (1, 0, [])
    close(jax.jit(mapped(correlate))(put(x, 1), put(many, 1)), mapped(reference)(x, many))


def test_the_declaration_says_which_axes_take_a_batch():
    way = _batching.find_way(narrows.op("conv1d"), [(4, 9), (6, 4, 3), None], [True, True, False], 1)
    assert way.inputs == [(2, 0), (3, 0), (1, 0)] and way.outputs == [(2, 0)] and way.fields == ("groups",)
    assert _batching.find_way(narrows.op("lltm"), [(2, 3), (12, 7), (12,), (2, 4), (2, 4)], [True] * 5, 1) is None
    assert not _batching.has_way(narrows.op("elementwise", function="add"))
