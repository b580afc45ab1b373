# SPDX-License-Identifier: Apache-2.0
"""What test_jax_processes.py asks of JAX in several processes, each with one or two CPU devices or a GPU: layouts by NamedSharding, against one device, and
what is communicated."""

import importlib.util
import pathlib

import numpy as np

import ranks

ROOT = pathlib.Path(__file__).parents[3]
COLLECTIVES = ("all-gather", "all-to-all", "all-reduce", "reduce-scatter", "collective-permute")
MESH = []


def example():
    spec = importlib.util.spec_from_file_location("distributed_jax", ROOT / "examples" / "distributed_jax.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def begin(folder, rank, world):
    example().meet(folder, rank, world, ranks.DEVICE)
    import jax
    from jax.sharding import Mesh

    own = len(jax.local_devices())
    assert jax.process_count() == world and len(jax.devices()) == own * world
    assert jax.devices()[0].platform == ("cpu" if ranks.DEVICE == "cpu" else "gpu")
    MESH.append(Mesh(np.array(jax.devices()).reshape(world, own), ("far", "near")))


def laid(x, spec):
    import jax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    return jax.make_array_from_callback(x.shape, NamedSharding(MESH[0], P(*spec)), lambda index: x[index])


def collectives(function, arrays):
    """{collective: number} in what XLA made of it."""
    import jax

    text = jax.jit(function).lower(*arrays).compile().as_text()
    found = {name: text.count(f" {name}(") + text.count(f" {name}-start(") for name in COLLECTIVES}
    return {name: n for name, n in found.items() if n}


def check(function, arrays, specs, expected_spec, expected=None, of_gradient=None):
    """Values, the output's layout and what is communicated; gradients too. `expected`: collectives of a call."""
    import jax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    parts = [laid(x, spec) for x, spec in zip(arrays, specs, strict=True)]
    whole = lambda y: np.asarray(jax.jit(lambda a: a, out_shardings=NamedSharding(MESH[0], P()))(y).addressable_data(0))  # noqa: E731
    y = jax.jit(function)(*parts)
    assert y.sharding.is_equivalent_to(NamedSharding(MESH[0], P(*expected_spec)), y.ndim), y.sharding
    np.testing.assert_allclose(whole(y), np.asarray(function(*map(jax.numpy.asarray, arrays))), rtol=1e-4, atol=1e-4)
    assert collectives(function, parts) == (expected or {}), collectives(function, parts)
    gradient = jax.grad(lambda *a: (function(*a) ** 2).sum(), argnums=tuple(range(len(arrays))))
    for found, right in zip(jax.jit(gradient)(*parts), gradient(*map(jax.numpy.asarray, arrays)), strict=True):
        np.testing.assert_allclose(whole(found), np.asarray(right), rtol=1e-3, atol=1e-3)
    found, wanted = set(collectives(gradient, parts)), of_gradient or set()
    # Nothing is summed along an axis of one device, as "near" is where each process has one.
    assert found == wanted or (found < wanted and 1 in MESH[0].shape.values()), found


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, "float32")


def conv1d():
    import narrows

    call = lambda x, w, bias: narrows.conv1d(x, w, bias, padding=2)  # noqa: E731
    arrays = numbers(4, 8, 20), numbers(6, 8, 5), numbers(6)
    total = {"all-reduce"}
    check(call, arrays, (("far",), (), ()), ("far",), of_gradient=total)
    check(call, arrays, ((), ("far",), ("far",)), (None, "far"), of_gradient=total)
    check(call, arrays, ((None, "far"), (None, "far"), ()), (), {"all-reduce": 1}, total)
    check(call, arrays, (("far",), ("near",), ("near",)), ("far", "near"), of_gradient=total)
    check(call, arrays, (("near", "far"), (None, "far"), ()), ("near",), {"all-reduce": 1}, total)


def conv1d_groups():
    import narrows

    call = lambda x, w: narrows.conv1d(x, w, groups=2)  # noqa: E731
    check(call, (numbers(4, 8, 20), numbers(6, 4, 5)), ((None, "far"), ("far",)), (None, "far"))
    check(call, (numbers(4, 8, 20), numbers(6, 4, 5)), (("near", "far"), ("far",)), ("near", "far"), of_gradient={"all-reduce"})


def lltm_and_element_wise():
    import narrows

    cell = lambda *a: narrows.lltm(*a)[0]  # noqa: E731
    step = numbers(8, 3), numbers(12, 7), numbers(12), numbers(8, 4), numbers(8, 4)
    rows = (("far", "near"),)
    check(cell, step, (rows, (), (), rows, rows), rows, of_gradient={"all-reduce"})
    check(lambda x, y: narrows.multiply(x, narrows.gelu(y)), (numbers(4, 6), numbers(6)), (("far", "near"), ("near",)), ("far", "near"),
          of_gradient={"all-reduce"})  # fmt: skip


def lltm_sequence():
    import narrows

    sequence = lambda *a: narrows.ops.lltm_sequence(*a)[0]  # noqa: E731
    rest = numbers(12, 7), numbers(12), numbers(8, 4), numbers(8, 4)
    rows = (("far", "near"),)
    check(sequence, (numbers(5, 8, 3), *rest), ((None, *rows), (), (), rows, rows), (None, *rows), of_gradient={"all-reduce"})


def programs():
    from narrows.program import script as T

    @T.prim_func
    def product(a: T.Buffer(("M", "K"), "float32"), b: T.Buffer(("K", "N"), "float32"), c: T.Buffer(("M", "N"), "float32")):
        for i, j, k in T.grid(a.shape[0], b.shape[1], a.shape[1]):
            with T.block("c"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]

    op, arrays = product.build(gradient=True), (numbers(4, 8), numbers(8, 6))
    check(op, arrays, (("far",), (None, "near")), ("far", "near"), of_gradient={"all-reduce"})
    check(op, arrays, ((None, "far"), ("far",)), (), {"all-reduce": 1}, {"all-reduce"})


def halo():
    """The example: what lies along the length swaps the samples at the cuts, and gathers nothing; its gradient too."""
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    import narrows

    mesh = Mesh(np.array(jax.devices()), ("length",))
    x, w = numbers(2, 3, 40), numbers(5, 3, 7)
    put = lambda a, spec: jax.make_array_from_callback(a.shape, NamedSharding(mesh, spec), lambda index: a[index])  # noqa: E731
    parts, run = (put(x, P(None, None, "length")), put(w, P())), example().convolution(mesh)
    gradient = jax.grad(lambda *a: (run(*a) ** 2).sum(), argnums=(0, 1))
    assert set(collectives(run, parts)) == {"collective-permute"}
    assert set(collectives(gradient, parts)) == {"collective-permute", "all-reduce"}  # of the filters' gradient
    expected = np.asarray(narrows.conv1d(x, w, padding="same"))
    for part in run(*parts).addressable_shards:
        np.testing.assert_allclose(np.asarray(part.data), expected[part.index], rtol=1e-5, atol=1e-5)
    single = jax.grad(lambda *a: (narrows.conv1d(*a, padding="same") ** 2).sum(), argnums=(0, 1))(*map(jax.numpy.asarray, (x, w)))
    for found, right in zip(jax.jit(gradient)(*parts), single, strict=True):
        for part in found.addressable_shards:
            np.testing.assert_allclose(np.asarray(part.data), np.asarray(right)[part.index], rtol=1e-4, atol=1e-4)


CASES = {f.__name__: f for f in (conv1d, conv1d_groups, lltm_and_element_wise, lltm_sequence, programs, halo)}

if __name__ == "__main__":
    ranks.main(CASES, begin)
