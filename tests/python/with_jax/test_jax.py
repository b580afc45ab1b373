# SPDX-License-Identifier: Apache-2.0
"""JAX: jit, grad, vmap, donation and sharding through the one XLA handler, against jax.numpy."""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import inspect
import warnings

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import narrows  # noqa: E402
import present  # noqa: E402
import narrows.jax  # noqa: E402
from function_table import GIVES_BOOL, interval  # noqa: E402
from narrows import _functions, _jax_sharding  # noqa: E402

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map
_UNCHECKED = "check_vma" if "check_vma" in inspect.signature(shard_map).parameters else "check_rep"

jax.config.update("jax_default_matmul_precision", "highest")  # JAX's own results are the reference


@pytest.fixture(autouse=True, params=present.of_jax())
def device(request):
    """Each test runs on each platform: there JAX makes its arrays."""
    if request.param == "cpu":
        yield jax.devices("cpu")[0]
        return
    with jax.default_device(jax.devices(request.param)[0]) as found:
        yield found or jax.devices(request.param)[0]


@pytest.fixture
def cpus(device):
    """Four CPU devices, that XLA_FLAGS asks for."""
    if device.platform != "cpu":
        pytest.skip("one GPU")
    assert len(jax.devices("cpu")) == 4


KEY = jax.random.PRNGKey(0)
A = jax.random.uniform(KEY, (3, 4), minval=0.2, maxval=0.9)
B = jax.random.uniform(KEY, (4,), minval=0.2, maxval=0.9)


def lax_conv1d(x, w, stride=1, padding=(0, 0)):
    return jax.lax.conv_general_dilated(x, w, (stride,), [padding], dimension_numbers=("NCH", "OIH", "NCH"))


def close(ours, theirs):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), ours, theirs)


# What JAX calls by another name than we do, or not at all.
REFERENCE = {
    "round": jnp.rint,
    "rsqrt": jax.lax.rsqrt,
    "gelu": lambda a: jax.nn.gelu(a, approximate=False),
    "gelu_tanh": jax.nn.gelu,
    "erf": jax.lax.erf,
    "erfc": jax.lax.erfc,
    "fma": lambda a, b, c: a * b + c,
    "divide": lambda a, b: jnp.trunc(a / b).astype(a.dtype) if a.dtype == "int32" else a / b,
    "bitwise_left_shift": jnp.left_shift,
    "bitwise_right_shift": jnp.right_shift,
    **{name: getattr(jax.nn, name) for name in ("sigmoid", "relu", "elu", "silu", "softplus")},
}


def reference_of(name):
    """JAX's function, if it has it."""
    return REFERENCE.get(name) or getattr(jnp, name, None)


DTYPES = {"F": ["float32"], "N": ["float32", "int32"], "B": ["int32", "bool"], "I": ["int32"], "A": ["float32", "int32", "bool"]}
CALLS = [(name, dtype) for name, row in _functions.TABLE.items() for dtype in DTYPES[row[2]]]


def operands(name, dtype):
    """Arrays that the function, and its gradient, is defined on; the second and third broadcast."""
    low, high = interval(_functions.TABLE[name][0], 0.2, 0.9)
    rng, shapes = np.random.default_rng(0), [(3, 4), (4,), (3, 1)][: _functions.TABLE[name][1]]
    arrays = [rng.uniform(low, high, s) if dtype == "float32" else rng.integers(0 if dtype == "bool" else 1, 6, s) for s in shapes]
    if name == "where":
        arrays[0] = arrays[0] > arrays[0].mean()
    return [jnp.asarray(a if a.dtype == bool else (a % 2 if dtype == "bool" else a).astype(dtype)) for a in arrays]


@pytest.mark.parametrize("name, dtype", CALLS)
def test_functions(name, dtype, device):
    ours, arguments = getattr(narrows, name), operands(name, dtype)
    in_numpy = lambda *arrays: jnp.asarray(ours(*map(np.asarray, arrays)))  # noqa: E731
    expected = (reference_of(name) or in_numpy)(*arguments)
    for function in (jax.jit(lambda *a: ours(*a)), ours):
        result = function(*arguments)
        assert isinstance(result, jax.Array) and result.devices() == {device} and result.shape == expected.shape
        assert result.dtype == ("bool" if name in GIVES_BOOL else dtype)
        close(result, expected)


@pytest.mark.parametrize("name", [n for n, dtype in CALLS if dtype == "float32" and n not in GIVES_BOOL])
def test_gradients_of_functions(name):
    ours, reference, arguments = getattr(narrows, name), reference_of(name), operands(name, "float32")
    if reference is None:  # test_jax_derivatives compares every function with finite differences
        pytest.skip(f"JAX has no {name}")
    floating = tuple(i for i, a in enumerate(arguments) if a.dtype == "float32")
    gradient = lambda f: jax.jit(jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=floating))(*arguments)  # noqa: E731
    close(gradient(ours), gradient(reference))


def test_numbers_and_dtypes():
    close(narrows.add(A, 2), A + 2)
    close(narrows.subtract(2, A), 2 - A)
    close(jax.jit(lambda a: narrows.clip(a, 0.3, 0.5))(A), jnp.clip(A, 0.3, 0.5))
    close(jax.jit(lambda a: narrows.where(narrows.greater(a, 0.5), a, 0))(A), jnp.where(A > 0.5, A, 0))
    for dtype in ("float16", "bfloat16", "int8", "uint32"):
        assert narrows.add(A.astype(dtype), 1).dtype == dtype
        assert narrows.astype(A, dtype).dtype == dtype


def test_numbers_that_jax_makes_arrays_of():
    """Arguments of a jitted function, a loop's counter, weakly typed arrays: the other operands say the dtype, as of numbers."""
    for dtype in ("float32", "bfloat16", "int8"):
        a = (A * 9).astype(dtype)
        for s in (2,) if dtype == "int8" else (2, 0.5):
            close(jax.jit(narrows.add)(a, s).astype("float32"), narrows.add(a, s).astype("float32"))
            close(jax.jit(narrows.subtract)(s, a).astype("float32"), narrows.subtract(s, a).astype("float32"))
            close(jax.jit(narrows.clip)(a, s, 3).astype("float32"), narrows.clip(a, s, 3).astype("float32"))
            close(narrows.add(a, jnp.asarray(s)).astype("float32"), narrows.add(a, s).astype("float32"))
        assert jax.jit(narrows.add)(a, 2).dtype == dtype
        close(jax.jit(narrows.where)(A > 0.5, a, 2).astype("float32"), narrows.where(A > 0.5, a, 2).astype("float32"))
    close(jax.lax.fori_loop(0, 3, lambda i, x: narrows.add(x, i), A), A + 3)
    close(jax.grad(lambda s: narrows.multiply(A, s).sum())(2.0), A.sum())
    with pytest.raises(TypeError, match="b is a number of float32 beside int32 operands; expected an integer"):
        jax.jit(narrows.add)(jnp.ones(3, "int32"), 2.5)
    with pytest.raises(ValueError, match="b has dtype int32; expected float32"):
        jax.jit(narrows.add)(A, jnp.int32(2))  # an array with a dtype of its own


def test_conv1d_and_its_gradient():
    x, w, b = jax.random.normal(KEY, (2, 3, 9)), jax.random.normal(KEY, (4, 3, 3)), jax.random.normal(KEY, (4,))
    ours = lambda x, w, b: (narrows.conv1d(x, w, b, stride=2, padding=(1, 2)) ** 2).sum()  # noqa: E731
    theirs = lambda x, w, b: ((lax_conv1d(x, w, 2, (1, 2)) + b[None, :, None]) ** 2).sum()  # noqa: E731
    close(ours(x, w, b), theirs(x, w, b))
    close(jax.jit(jax.grad(ours, argnums=(0, 1, 2)))(x, w, b), jax.grad(theirs, argnums=(0, 1, 2))(x, w, b))
    close(narrows.conv1d(x, w), lax_conv1d(x, w))


def lltm_reference(x, w, b, h, c):
    i, o, z = jnp.split(jnp.concatenate([h, x], 1) @ w.T + b, 3, 1)
    cell = c + jax.nn.elu(z) * jax.nn.sigmoid(i)
    return jnp.tanh(cell) * jax.nn.sigmoid(o), cell


def test_lltm_and_its_gradient():
    inputs = [jax.random.normal(KEY, s) for s in ((2, 3), (12, 7), (1, 12), (2, 4), (2, 4))]
    close(narrows.lltm(*inputs), lltm_reference(*inputs))
    gradient = lambda f: jax.grad(lambda *a: sum(y.sum() for y in f(*a)), argnums=(0, 1, 2, 3, 4))(*inputs)  # noqa: E731
    close(gradient(narrows.lltm), gradient(lltm_reference))


@pytest.mark.parametrize("lengths", [None, [4, 1, 0]])
def test_lltm_sequence_is_a_scan(lengths):
    x, *cell = [jax.random.normal(KEY, s) for s in ((4, 3, 2), (12, 6), (12,), (3, 4), (3, 4))]
    steps = jnp.array(lengths or [4, 4, 4], "int32")
    lengths = None if lengths is None else steps

    def scan(x, w, b, h, c):
        def step(state, at):
            t, row = at
            active = (t < steps)[:, None]
            new = [jnp.where(active, *pair) for pair in zip(lltm_reference(row, w, b, *state), state, strict=True)]
            return new, jnp.where(active, new[0], 0)

        state, out = jax.lax.scan(step, [h, c], (jnp.arange(4), x))
        return out, *state

    ours = lambda *a: narrows.ops.lltm_sequence(*a, lengths)  # noqa: E731
    close(jax.jit(ours)(x, *cell), scan(x, *cell))
    loss = lambda f: jax.grad(lambda *a: sum((y * y).sum() for y in f(*a)), argnums=(0, 1, 2, 3, 4))(x, *cell)  # noqa: E731
    close(loss(ours), loss(scan))


def test_vmap():
    batch = jax.random.uniform(KEY, (5, 3, 4))
    close(jax.vmap(narrows.add, in_axes=(0, None))(batch, B), batch + B)
    close(jax.vmap(narrows.add, in_axes=(None, 0))(A, batch), A + batch)
    x, w = jax.random.normal(KEY, (5, 2, 3, 9)), jax.random.normal(KEY, (4, 3, 3))
    close(jax.vmap(lambda x: narrows.conv1d(x, w))(x), jax.vmap(lambda x: lax_conv1d(x, w))(x))


def cells(*batch):
    """Inputs of lltm: for each of a batch an input and a state of its own, the parameters shared."""
    return [normal(*s) for s in ((*batch, 2, 3), (12, 7), (12,), (*batch, 2, 4), (*batch, 2, 4))]


def test_vmap_of_several_outputs():
    inputs, axes = cells(5), (0, None, None, 0, 0)
    close(jax.vmap(narrows.lltm, in_axes=axes)(*inputs), jax.vmap(lltm_reference, in_axes=axes)(*inputs))
    loss = lambda f: lambda *a: sum((y * y).sum() for y in f(*a))  # noqa: E731
    gradient = lambda f: jax.jit(jax.vmap(jax.grad(loss(f), argnums=(0, 1, 4)), in_axes=axes))(*inputs)  # noqa: E731
    close(gradient(narrows.lltm), gradient(lltm_reference))


def test_vmap_over_no_elements():
    assert jax.vmap(narrows.exp)(jnp.ones((0, 3))).shape == (0, 3)
    assert [y.shape for y in jax.vmap(narrows.lltm, in_axes=(0, None, None, 0, 0))(*cells(0))] == [(0, 2, 4)] * 2
    x, w = jnp.ones((0, 2, 3, 9)), normal(4, 3, 3)
    assert jax.vmap(lambda x: narrows.conv1d(x, w))(x).shape == (0, 2, 4, 7)


def test_vmap_of_grad_and_jacobian():
    batch = jax.random.uniform(KEY, (5, 3, 4))
    transform = lambda f: jax.vmap(jax.grad(lambda a, b: f(a, b).sum(), argnums=(0, 1)), in_axes=(0, None))(batch, B)  # noqa: E731
    close(transform(narrows.multiply), transform(jnp.multiply))
    close(jax.jacrev(narrows.tanh)(B), jax.jacrev(jnp.tanh)(B))


def test_donation():
    a = jnp.ones((64,))
    pointer = a.unsafe_buffer_pointer()
    y = narrows.jax.call("elementwise", a, 1, function="add", donate=(0,))
    assert a.is_deleted() and y.unsafe_buffer_pointer() == pointer
    close(y, 2 * jnp.ones(64))


def test_donation_of_memory_that_is_not_as_the_outputs():
    """It is given away, as JAX does with it, and taken only where dtype and shape are the output's."""
    wide, row = jnp.ones((4, 3)), jnp.ones((1, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX says that it could not use some
        close(narrows.jax.call("elementwise", row + 0, wide, function="add", donate=0), jnp.full((4, 3), 2.0))
        assert narrows.jax.call("elementwise", wide + 0, wide, function="lt", donate=(0,)).dtype == bool
        close(narrows.jax.call("elementwise", row + 0, wide + 1, function="add", donate=(0, 1)), jnp.full((4, 3), 3.0))
    given = wide + 0
    pointer = given.unsafe_buffer_pointer()
    assert narrows.jax.call("elementwise", row, given, function="add", donate=1).unsafe_buffer_pointer() == pointer


def test_wrong_calls_by_name():
    for inputs, keywords, error, words in (
        ((B,) * 4, {"function": "fma"}, TypeError, "elementwise takes 3 tensors; 4 were given"),
        (
            (B, B),
            {"function": "add", "donate": 2},
            ValueError,
            r"donate has 2; expected indices of inputs that are given: \[0, 1\]",
        ),
        ((B, B), {"function": "add", "donate": "a"}, ValueError, "donate has 'a'; expected indices"),
        ((B, B), {"function": "add", "donate": (True,)}, ValueError, "donate has True; expected indices"),
        ((B, jnp.ones(3)), {"function": "add", "donate": 0}, ValueError, "do not broadcast"),
    ):
        with pytest.raises(error, match=words):
            narrows.jax.call("elementwise", *inputs, **keywords)


def test_donation_to_a_jitted_function_of_ones_own():
    step = jax.jit(lambda state, x: narrows.add(narrows.multiply(state, 0.5), x), donate_argnums=0)
    text = step.lower(jnp.ones(64), jnp.ones(64)).compile().as_text()
    assert "narrows" in text and "input_output_alias={ {}: (0, {}" in text
    state, x = jnp.ones(64), jnp.arange(64.0)
    pointer, expected = state.unsafe_buffer_pointer(), np.ones(64, "float32")
    for _ in range(3):
        given, state = state, step(state, x)
        assert given.is_deleted() and not x.is_deleted() and state.unsafe_buffer_pointer() == pointer
        expected = expected * np.float32(0.5) + np.arange(64, dtype="float32")
    close(state, expected)


MAPPED = {
    "conv1d": (lambda x, w: narrows.conv1d(x, w), lambda x, w: lax_conv1d(x, w), ((8, 3, 9), (4, 3, 3)), (P("d"), P())),
    "lltm": (lambda *a: narrows.lltm(*a)[0], lambda *a: lltm_reference(*a)[0],
             ((8, 3), (12, 7), (12,), (8, 4), (8, 4)), (P("d"), P(), P(), P("d"), P("d"))),
}  # fmt: skip


@pytest.mark.parametrize("ours, theirs, shapes, specs", MAPPED.values(), ids=MAPPED)
def test_shard_map_of_ops_and_their_gradients(cpus, ours, theirs, shapes, specs):
    mesh, arrays = Mesh(np.array(jax.devices("cpu")), ("d",)), [normal(*s) for s in shapes]
    mapped = jax.jit(shard_map(ours, mesh=mesh, in_specs=specs, out_specs=P("d")))
    text = mapped.lower(*arrays).compile().as_text()
    assert "narrows" in text and not any(word in text for word in ("all-gather", "all-to-all", "collective-permute"))
    close(mapped(*arrays), theirs(*arrays))
    every = tuple(range(len(arrays)))
    gradient = lambda f: jax.jit(jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=every))(*arrays)  # noqa: E731
    close(gradient(mapped), gradient(theirs))

    def inside(*a):  # the gradient of each device's part, summed over the devices by hand
        gradients = jax.grad(lambda *a: (ours(*a) ** 2).sum(), argnums=every)(*a)
        return tuple(jax.lax.psum(g, "d") if s == P() else g for g, s in zip(gradients, specs, strict=True))

    keywords = {_UNCHECKED: False}  # else JAX sums the gradients of what is on every device itself
    close(jax.jit(shard_map(inside, mesh=mesh, in_specs=specs, out_specs=specs, **keywords))(*arrays), gradient(theirs))


def test_shard_map_of_a_plugins_op(cpus, scale_plugin):
    mesh, (x, a, b) = Mesh(np.array(jax.devices("cpu")), ("d",)), (normal(8, 4), normal(8, 4) + 1, normal(8, 4) - 1)
    f = lambda x, a, b: scale_plugin.affine(scale_plugin.scale(x, factor=3.0), a, b)  # noqa: E731
    mapped = jax.jit(shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P("d")))
    text = mapped.lower(x, a, b).compile().as_text()
    assert "narrows" in text and "all-gather" not in text
    close(mapped(x, a, b), 3 * a * x + b)
    gradient = jax.grad(lambda *a: (mapped(*a) ** 2).sum(), argnums=(0, 1, 2))(x, a, b)
    close(gradient, jax.grad(lambda x, a, b: ((3 * a * x + b) ** 2).sum(), argnums=(0, 1, 2))(x, a, b))


def test_shard_map_does_not_gather(cpus):
    mesh = Mesh(np.array(jax.devices()), ("d",))
    x = jax.device_put(jnp.arange(32.0).reshape(8, 4), NamedSharding(mesh, P("d")))
    function = jax.jit(shard_map(lambda a: narrows.exp(narrows.add(a, a)), mesh=mesh, in_specs=P("d"), out_specs=P("d")))
    text = function.lower(x).compile().as_text()
    assert "narrows" in text and "all-gather" not in text
    close(function(x / 32), jnp.exp(x / 16))


def sharded(x, *spec):
    return jax.device_put(x, NamedSharding(Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b")), P(*spec)))


def compiled_text(function, *arrays):
    return jax.jit(function).lower(*arrays).compile().as_text()


GATHERS = ("all-gather", "all-to-all", "collective-permute", "dynamic-slice")


def normal(*shape):
    return jax.random.normal(jax.random.PRNGKey(sum(shape)), shape)


SPLIT = {
    "both axes": (lambda x, y: narrows.exp(narrows.add(x, y)), lambda x, y: jnp.exp(x + y),
                  ((normal(8, 4), "a", "b"), (normal(8, 4), "a", "b"))),
    "broadcast": (narrows.multiply, jnp.multiply, ((normal(8, 4), ("a", "b"), None), (normal(4),))),
    "a number": (lambda x: narrows.add(x, 1), lambda x: x + 1, ((normal(8), ("a", "b")),)),
    "conv1d": (lambda x, w: narrows.conv1d(x, w), lambda x, w: lax_conv1d(x, w), ((normal(8, 3, 9), ("a", "b")), (normal(4, 3, 3),))),
    "lltm": (lambda *a: narrows.lltm(*a)[1], lambda x, w, b, h, c: lltm_reference(x, w, b, h, c)[1],
             ((normal(8, 3), "b"), (normal(12, 7),), (normal(12),), (normal(8, 4), "b"), (normal(8, 4), "b"))),
}  # fmt: skip


needs_rules = pytest.mark.skipif(not _jax_sharding.HAS_RULES, reason="this JAX has no sharding rules")


@needs_rules
@pytest.mark.parametrize("ours, theirs, inputs", SPLIT.values(), ids=SPLIT)
def test_sharded_arrays_are_not_gathered(cpus, ours, theirs, inputs):
    whole, parts = [x for x, *_ in inputs], [sharded(*x) for x in inputs]
    text = compiled_text(ours, *parts)
    assert "narrows" in text and not any(word in text for word in GATHERS)
    result = jax.jit(ours)(*parts)
    close(result, theirs(*whole))
    assert result.sharding.spec == P(*inputs[0][1:]) or result.sharding.is_equivalent_to(parts[0].sharding, result.ndim)
    every = tuple(range(len(whole)))
    gradient = lambda f: lambda *a: jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=every)(*a)  # noqa: E731
    text = compiled_text(gradient(ours), *parts)
    assert not any(word in text for word in GATHERS)
    close(jax.jit(gradient(ours))(*parts), gradient(theirs)(*whole))


@needs_rules
def test_donation_of_sharded_arrays(cpus):
    x = sharded(jnp.ones((8, 4)), "a", "b")
    pointers, sharding = [part.data.unsafe_buffer_pointer() for part in x.addressable_shards], x.sharding
    y = narrows.jax.call("elementwise", x, 1, function="add", donate=(0,))
    assert x.is_deleted() and y.sharding.is_equivalent_to(sharding, 2)
    assert [part.data.unsafe_buffer_pointer() for part in y.addressable_shards] == pointers
    close(y, jnp.full((8, 4), 2.0))


def test_what_cannot_be_split_is_still_right(cpus, scale_plugin):
    x, w = normal(8, 3, 9), normal(4, 3, 3)
    along_length = sharded(normal(2, 4, 12), None, "a", "b")
    close(jax.jit(narrows.conv1d)(along_length, normal(3, 4, 3)), lax_conv1d(normal(2, 4, 12), normal(3, 4, 3)))
    close(jax.jit(narrows.conv1d)(sharded(x, "a"), sharded(w, "b")), lax_conv1d(x, w))
    close(jax.jit(narrows.add)(sharded(normal(8, 4), "a", "b"), sharded(normal(8, 4), "b", "a")), 2 * normal(8, 4))
    close(jax.jit(lambda x: scale_plugin.scale(x, factor=3.0))(sharded(normal(8, 4), "a")), 3 * normal(8, 4))
    close(jax.jit(lambda a: narrows.add(a, 2))(sharded(normal(8, 4), "a")), 2 + normal(8, 4))


def centred(x):
    return x - x.mean(-1, keepdims=True)


@needs_rules
def test_a_plugins_op_of_batches_is_not_gathered(cpus, rows_plugin):
    """NW_OP_BATCHABLE: leading axes are batches as far as the call without them is one. The last one, the row, is not."""
    x = normal(8, 2, 4)
    gradient = lambda f: lambda x: jax.grad(lambda x: (f(x) ** 3).sum())(x)  # noqa: E731
    for part in (sharded(x, "a"), sharded(x, "a", "b"), sharded(x, ("a", "b"))):
        for function, expected in ((rows_plugin.centre, centred), (gradient(rows_plugin.centre), gradient(centred))):
            assert not any(word in compiled_text(function, part) for word in GATHERS)
            result = jax.jit(function)(part)
            close(result, expected(x))
            assert result.sharding.is_equivalent_to(part.sharding, 3)
    mapped = jax.vmap(rows_plugin.centre, in_axes=1, out_axes=1)
    assert not any(word in compiled_text(mapped, sharded(x, "a", "b")) for word in GATHERS)
    close(jax.jit(mapped)(sharded(x, "a", "b")), centred(x))


def test_a_plugins_op_is_gathered_along_what_is_no_batch(cpus, rows_plugin):
    x = normal(8, 2, 4)
    for function in (rows_plugin.centre, rows_plugin.centre_all):
        close(jax.jit(function)(sharded(x, None, "a", "b")), centred(x))
        close(jax.jit(function)(sharded(x[0, 0], ("a", "b"))), centred(x[0, 0]))
        close(jax.jit(function)(sharded(x, "a")), centred(x))


EXPLICIT = {
    "exp": (narrows.exp, jnp.exp, (((8, 4), "a", "b"),), ("a", "b")),
    "a number": (lambda x: narrows.add(x, 1), lambda x: x + 1, (((8, 4), "a", None),), ("a", None)),
    "broadcast": (narrows.multiply, jnp.multiply, (((8, 4), "a", "b"), ((4,), "b")), ("a", "b")),
    "broadcast of 1": (narrows.multiply, jnp.multiply, (((8, 4), "a", "b"), ((8, 1), "a", None)), ("a", "b")),
    "conv1d": (lambda x, w: narrows.conv1d(x, w), lax_conv1d, (((8, 3, 9), "a", None, None), ((4, 3, 3), None, None, None)), ("a", None, None)),
    "lltm": (lambda *a: narrows.lltm(*a)[1], None,
             (((8, 3), "b", None), ((12, 7), None, None), ((12,), None), ((8, 4), "b", None), ((8, 4), "b", None)), ("b", None)),
}  # fmt: skip


@needs_rules
@pytest.mark.skipif(
    not (_jax_sharding._HAS_EXPLICIT and hasattr(jax, "set_mesh")), reason="the types of this JAX do not say how arrays lie"
)
@pytest.mark.parametrize("ours, theirs, inputs, spec", EXPLICIT.values(), ids=EXPLICIT)
def test_a_mesh_with_explicit_axes(cpus, scale_plugin, ours, theirs, inputs, spec):
    """The type of each output and gradient says how it lies, and nothing is gathered for it."""
    theirs = theirs or (lambda *a: lltm_reference(*a)[1])
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    whole = [normal(*shape) for shape, *_ in inputs]
    every = tuple(range(len(whole)))
    gradient = lambda f: lambda *a: jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=every)(*a)  # noqa: E731
    expected = theirs(*whole), gradient(theirs)(*whole)
    with jax.set_mesh(mesh):
        parts = [jax.device_put(x, NamedSharding(mesh, P(*i[1:]))) for x, i in zip(whole, inputs, strict=True)]
        for call in (ours, jax.jit(ours)):
            y = call(*parts)
            assert jax.typeof(y).sharding.spec == P(*spec)
            close(y, expected[0])
        for call in (gradient(ours), jax.jit(gradient(ours))):
            gradients = call(*parts)
            assert [jax.typeof(g).sharding for g in gradients] == [jax.typeof(x).sharding for x in parts]
            close(gradients, expected[1])
        for call in (ours, gradient(ours)):
            assert not any(word in compiled_text(call, *parts) for word in GATHERS)
        if inputs[0][1:] == ("a", "b"):
            mapped = jax.vmap(jax.grad(lambda x: (narrows.exp(x) ** 2).sum()))(parts[0])
            assert jax.typeof(mapped).sharding.spec == P("a", "b")
            plugins = jax.grad(lambda x: scale_plugin.scale(x, factor=3.0).sum())(parts[0])
            assert jax.typeof(plugins).sharding.spec == P("a", "b") and (plugins == 3).all()


@needs_rules
def test_vmap_of_sharded_arrays(cpus):
    x = normal(8, 6, 4)
    for f, g in ((narrows.tanh, jnp.tanh), (lambda a: narrows.multiply(a, B), lambda a: a * B)):
        text = compiled_text(jax.vmap(f), sharded(x, "a", "b"))
        assert not any(word in text for word in GATHERS)
        close(jax.jit(jax.vmap(f))(sharded(x, "a", "b")), g(x))
        close(jax.jit(jax.vmap(jax.grad(lambda a, f=f: f(a).sum())))(x), jax.vmap(jax.grad(lambda a, g=g: g(a).sum()))(x))


def test_nested_vmap_on_several_devices(cpus):
    x, w = normal(3, 5, 2, 3, 9), normal(4, 3, 3)
    for transform in (
        lambda f: jax.vmap(jax.vmap(f, in_axes=(0, None)), in_axes=(0, None))(x, w),
        lambda f: jax.vmap(jax.jacrev(f, argnums=1), in_axes=(0, None))(x[0], w),
        lambda f: jax.vmap(jax.grad(lambda x, w: jax.vmap(f, in_axes=(0, None))(x, w).sum(), argnums=1), in_axes=(0, None))(x, w),
    ):
        close(transform(narrows.conv1d), transform(lax_conv1d))
    inputs, axes = cells(5), (0, None, None, 0, 0)
    jacobian = lambda f: jax.vmap(jax.jacrev(lambda *a: f(*a)[0], argnums=1), in_axes=axes)(*inputs)  # noqa: E731
    close(jacobian(narrows.lltm), jacobian(lltm_reference))


def test_errors():
    with pytest.raises(ValueError, match="do not broadcast"):
        narrows.add(A, jnp.ones(5))
    with pytest.raises(ValueError, match="do not broadcast"):
        jax.jit(narrows.add)(A, jnp.ones(5))
    with pytest.raises(ValueError, match="expected float32"):
        narrows.add(A, jnp.ones(4, "int32"))
    with pytest.raises(ValueError, match="add: b has dtype int4; expected float16, "):
        narrows.add(A, jnp.ones(4, "int4"))
    with pytest.raises(ValueError, match="add: a has 17 dimensions; expected 16 at most"):
        narrows.add(jnp.ones((1,) * 17), A)
    with pytest.raises(TypeError, match="cannot be written"):
        narrows.add(A, 1, out=A)
    with pytest.raises(TypeError, match="expected an integer"):
        narrows.add(jnp.ones(4, "int32"), 1.5)


WIDE = np.array([1e300, 2])
NARROWED = {
    "int64": (lambda a: narrows.add(a.astype("int32"), np.array([2**40, 2**31])), "b has dtype int64; expected int32 as a has"),
    "uint64": (lambda a: narrows.add(a.astype("uint32"), np.uint64([2**40, 1])), "b has dtype uint64; expected uint32 as a has"),
    "float64": (lambda a: narrows.add(a, WIDE), "b has dtype float64; expected float32 as a has"),
    "another kind": (lambda a: narrows.add(a, np.array([1, 2])), "b has dtype int64; expected float32 as a has"),
    "a tensor of our own": (lambda a: narrows.add(a, narrows.from_dlpack(WIDE)), "b has dtype float64; expected float32 as a has"),
    "all others": (lambda a: narrows.where(narrows.greater(a, 0), WIDE, WIDE), "b has dtype float64; expected float32, or jax_enable_x64"),
    "beside a number": (lambda a: narrows.where(narrows.greater(a, 0), WIDE, 1), "b has dtype float64; expected float32, or jax_enable_x64"),
    "after a number": (lambda a: narrows.fma(2, a, WIDE), "c has dtype float64; expected float32 as a has"),
    "of conv1d": (lambda a: narrows.conv1d(a, WIDE), "w has dtype float64; expected float32, the dtype of x"),
}  # fmt: skip


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("call, words", NARROWED.values(), ids=NARROWED)
def test_what_jax_would_narrow_is_refused(call, words, jit):
    """With the words that the library has for other frameworks: outside of x64 mode JAX takes 2**40 for 0 and 1e300 for infinity."""
    with pytest.raises(ValueError, match=words):
        (jax.jit(call) if jit else call)(jnp.ones(2))


def test_what_jax_does_not_narrow():
    close(narrows.add(jnp.ones(2, "int32"), np.int64(2)), np.full(2, 3))  # numbers have no dtype of their own
    with pytest.raises(ValueError, match="does not fit int32"):
        narrows.add(jnp.ones(2, "int32"), np.int64(2**40))
    with pytest.raises(ValueError, match="b has dtype float32; expected float64 as a has"):
        jax.jit(lambda a: narrows.add(WIDE, a))(jnp.ones(2))
    jax.config.update("jax_enable_x64", True)
    try:
        assert narrows.add(jnp.ones(2, "int64"), np.array([2**40, 1]))[0] == 2**40 + 1
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(
    "other, words",
    [
        (np.matrix(np.ones(3, "float32")), "b: matrix is a subclass of numpy.ndarray"),
        (np.ma.masked_array(np.ones(3, "float32"), [0, 1, 0]), "b: MaskedArray is a subclass of numpy.ndarray"),
        (np.ones(3, ">f4"), "b: a NumPy array of dtype >f4, big-endian"),
        (np.ones(3, "complex64"), "b: a NumPy array of dtype complex64"),
        ([1.0], "b: list is no array"),
    ],
)
def test_arrays_of_numpy_that_are_refused(other, words):
    for call in (narrows.add, jax.jit(lambda a, other=other: narrows.add(a, other))):
        with pytest.raises(TypeError, match=words):
            call(jnp.ones(3), *(() if call is not narrows.add else (other,)))


def test_beside_tensors_of_torch(cpus):
    torch = pytest.importorskip("torch")
    a, g = jnp.ones(3), torch.ones(3, requires_grad=True)
    for call in (lambda: narrows.multiply(a, g), lambda: narrows.multiply(g, a)):  # who needs a gradient decides for the whole call
        y = call()
        assert type(y) is torch.Tensor and torch.autograd.grad(y.sum(), g)[0].tolist() == [1, 1, 1]
    with torch.no_grad():
        assert isinstance(narrows.multiply(a, g), jax.Array)
    assert isinstance(narrows.multiply(a, torch._neg_view(torch.ones(3))), jax.Array)
    for call in (lambda: jax.jit(lambda a: narrows.add(a, g))(a), lambda: narrows.jax.call("elementwise", a, g, function="add")):
        with pytest.raises(ValueError, match=r"b needs a gradient of torch's, which JAX cannot give; expected x\.detach"):
            call()
    with pytest.raises(NotImplementedError, match="add: b: "):
        narrows.add(a, torch.ones(3).to_sparse())
    with pytest.raises(ValueError, match="b has dtype float64; expected float32"):
        narrows.add(a, torch.ones(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="b has dtype complex64; expected"):
        narrows.add(a, torch.ones(3, dtype=torch.complex64))


def test_an_error_at_run_time(cpus, scale_plugin):
    with pytest.raises(Exception, match="mode 2 always fails"):
        jax.block_until_ready(scale_plugin.scale(A, mode=2))


def test_with_other_frameworks():
    n = np.ones(4, "float32")
    assert isinstance(narrows.add(B, n), jax.Array)
    assert type(narrows.add(n, B)) is np.ndarray
    assert isinstance(jax.jit(lambda b: narrows.add(n, b))(B), jax.Array)  # a tracer decides for the whole call
    torch = pytest.importorskip("torch")
    assert isinstance(narrows.add(B, torch.ones(4)), jax.Array)


def test_tensors_that_jax_does_not_import():
    """By DLPack neither elements that do not lie one after the other, nor read-only memory."""
    x = np.arange(24, dtype="float32").reshape(4, 6)
    read_only = [np.broadcast_to(x[0], (4, 6)), np.asarray(jnp.asarray(x))]
    exported = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # before that NumPy exports no read-only arrays
    for strided in (x[::2, ::2], x[::-1], *(read_only if exported else ())):
        y, b = jnp.ones(strided.shape), narrows.from_dlpack(strided)
        close(narrows.add(y, b), strided + 1)
        close(jax.jit(lambda a, b=b: narrows.add(a, b))(y), strided + 1)
    torch = pytest.importorskip("torch")
    close(narrows.add(jnp.ones((2, 3)), torch.from_numpy(x)[::2, ::2]), x[::2, ::2] + 1)


def test_jax_reads_memory_of_our_own(cpus):
    t = narrows.add(narrows.from_dlpack(np.arange(3, dtype="float32")), 1)
    x = jax.dlpack.from_dlpack(t)
    assert isinstance(x, jax.Array) and x.unsafe_buffer_pointer() == t.data_ptr
    del t
    close(narrows.multiply(x, 2), jnp.array([2.0, 4.0, 6.0]))


def test_arrays_of_jax_are_never_written(cpus):
    x = jnp.ones(3)
    n = np.ones(3, "float32")
    with pytest.raises(ValueError, match="read-only"):
        narrows.add(n, 1, out=x)
    t = narrows.from_dlpack(x)
    assert t.read_only and not np.asarray(t).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        narrows.add(t, 1, out=t)
    np.testing.assert_array_equal(narrows.add(t, 1).numpy(), 2)
    np.testing.assert_array_equal(x, 1)
