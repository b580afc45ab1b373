# SPDX-License-Identifier: Apache-2.0
"""What plugin.hpp offers to kernels: plugins/kit.cpp, an op for each of it, beside NumPy."""

import pathlib

import numpy as np
import pytest

import narrows

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def kit():
    narrows.load(narrows.build(HERE / "kit.cpp"))
    return narrows.ops.kit


def norm(x, w, eps=1e-6):
    x = np.asarray(x, "float64")
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (2, 0, 5), (2, 1, 3, 4)])
def test_leading_dimensions(kit, shape):
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal(shape, "float32"), rng.standard_normal(shape[-1], "float32")
    np.testing.assert_allclose(kit.norm(x, w), norm(x, w), rtol=1e-5)
    with pytest.raises(
        ValueError, match=rf"w has shape \({shape[-1] + 1},\); expected \(D\), whose dimension 0 is {shape[-1]} here"
    ):
        kit.norm(x, np.ones(shape[-1] + 1, "float32"))
    with pytest.raises(ValueError, match=r"x has shape \(\).*expected \(\.\.\., D\)"):
        kit.norm(np.float32(1).reshape(()), w)


def test_a_check_sees_params(kit):
    x = np.ones((2, 3), "float32")
    with pytest.raises(ValueError, match=r"kit\.norm/1: eps is -1\.0+; expected more than 0"):
        kit.norm(x, x[0], eps=-1)


def test_torch_differentiates_and_maps_over_leading_dimensions(kit):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(2)
    x, w = torch.randn(2, 3, 5, generator=generator), torch.randn(5, generator=generator)

    def by_torch(x, w):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w

    for function in (kit.norm, torch.compile(lambda x, w: kit.norm(x, w), fullgraph=True, backend="aot_eager")):
        leaves, others = [t.clone().requires_grad_() for t in (x, w)], [t.clone().requires_grad_() for t in (x, w)]
        y, expected = function(*leaves), by_torch(*others)
        torch.testing.assert_close(y, expected)
        y.square().sum().backward()
        expected.square().sum().backward()
        for mine, right in zip(leaves, others, strict=True):
            torch.testing.assert_close(mine.grad, right.grad)
    for dims in ((0, None), (1, None), (None, 0), (0, 0)):
        args = [x if dims[0] is not None else x[0], w if dims[1] is None else torch.stack([w, 2 * w, -w][: x.shape[dims[0] or 0]])]
        torch.testing.assert_close(torch.vmap(kit.norm, dims)(*args), torch.vmap(by_torch, dims)(*args))
    per_row = torch.func.vmap(torch.func.grad(lambda x, w: kit.norm(x, w).square().sum(), argnums=1), (0, None))(x, w)
    right = torch.func.vmap(torch.func.grad(lambda x, w: by_torch(x, w).square().sum(), argnums=1), (0, None))(x, w)
    torch.testing.assert_close(per_row, right)


def test_a_batch_over_leading_dimensions_is_one_call(kit):
    torch = pytest.importorskip("torch")
    calls = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with calls:
        torch.vmap(kit.norm, (0, None))(torch.ones(4, 2, 3), torch.ones(3))
    assert sum(e.count for e in calls.key_averages() if "norm" in e.key and "vmap" not in e.key) <= 2  # the op, and its autograd


def test_jax_maps_over_leading_dimensions(kit):
    jax = pytest.importorskip("jax")
    x, w = np.random.default_rng(3).standard_normal((2, 3, 5), "float32"), np.linspace(-1, 1, 5, dtype="float32")
    np.testing.assert_allclose(jax.jit(jax.vmap(kit.norm, (0, None)))(x, w), norm(x, w), rtol=1e-5)
    gradient = jax.grad(lambda x: kit.norm(x, w).sum())(x)
    jnp = jax.numpy
    right = jax.grad(lambda x: (x * (1 / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)) * w).sum())(x)
    np.testing.assert_allclose(gradient, right, rtol=1e-4, atol=1e-5)


def test_numbers_of_16_bits(kit):
    x = np.random.default_rng(4).standard_normal(1000).astype("float16")
    np.testing.assert_array_equal(kit.twice(x), 2 * x)
    np.testing.assert_array_equal(kit.twice(x.astype("float64")), 2 * x.astype("float64"))
    ml_dtypes = pytest.importorskip("ml_dtypes")
    b = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(kit.twice(b)).astype("float32"), (2 * b).astype("float32"))
    with pytest.raises(
        NotImplementedError,
        match=r"input x has dtype float32; expected float16 or bfloat16 or float64, "
        r'as \.astype\("float16"\) or \.to\(torch\.float16\) gives',
    ):
        kit.twice(x.astype("float32"))


def test_dtypes_of_single_tensors(kit):
    x, at = np.arange(5, dtype="float64"), np.array([4, 0, -1, 9])
    np.testing.assert_array_equal(kit.pick(x, at), [4, 0, 0, 0])
    with pytest.raises(ValueError, match="at has dtype int32; expected int64"):
        kit.pick(x, at.astype("int32"))
    with pytest.raises(NotImplementedError, match="input x has dtype int64; expected float32 or float64"):
        kit.pick(at, at)


def test_a_kernel_that_asks_for_an_absent_tensor_fails_by_name(kit):
    torch = pytest.importorskip("torch")
    a, b = torch.ones(3), torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"^kit\.sum_backward/1: output grad_a is absent; the kernel asks for it"):
        kit.sum(a, b).sum().backward()


def test_strided_tensors(kit):
    base = np.arange(24, dtype="float32").reshape(4, 6)
    for x in (base, base.T, base[::-1, ::2], base[1:, 3:], np.broadcast_to(base[0], (3, 6)), base[:, :0]):
        np.testing.assert_array_equal(kit.transpose(x), x.T)
        out = np.zeros((x.shape[1], 2 * x.shape[0]), "float32")[:, ::2]
        kit.transpose(x, out=out)
        np.testing.assert_array_equal(out, x.T)
    np.testing.assert_array_equal(kit.wrong_layout(base)[0, 0], 0)
    with pytest.raises(
        RuntimeError, match=r"input x has shape \(6, 4\) and strides \(1, 6\); the kernel reads it as a contiguous tensor"
    ):
        kit.wrong_layout(base.T)
    with pytest.raises(RuntimeError, match="input x has 2 dimensions; the kernel asks for 3"):
        kit.wrong_rank(base)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors_of_any_rank_are_walked_together(kit, dtype):
    base = np.random.default_rng(3).standard_normal((5, 64, 130)).astype(dtype)
    for x in (base, base.T, base[::-1, ::2, ::3], base[0, 0], base[:, :0], base[:, 1:2], np.broadcast_to(base[0], (3, 64, 130))):
        w = np.arange(2 * x.shape[-1], dtype=dtype)[::-2]
        np.testing.assert_array_equal(kit.scaled(x, w), x * w)
        around = np.full((*x.shape[::-1], 2), 7, dtype)
        kit.scaled(x, w, out=around[..., 1].T)
        np.testing.assert_array_equal(around[..., 1].T, x * w)
        assert (around[..., 0] == 7).all()
    x = base.copy()
    kit.scaled(x.T, base[:, 0, 0], out=x.T)
    np.testing.assert_array_equal(x.T, base.T * base[:, 0, 0])


def test_a_contiguous_tensor_is_asked_for_with_the_remedy(kit):
    with pytest.raises(
        NotImplementedError,
        match=r"^kit\.sum/1: input b has shape \(3, 2\) and strides \(1, 3\); expected a C-contiguous tensor, "
        r"as \.contiguous\(\) or numpy\.ascontiguousarray\(\) gives",
    ):
        kit.sum(np.ones((3, 2), "float32"), np.ones((2, 3), "float32").T)


def test_an_exception_in_a_parallel_loop_is_the_calls(kit):
    """Of any thread's, and the process goes on."""
    x = np.ones(100_000, "float32")
    for place in (0, 50_000, 99_999) * 10:
        x[place] = -1
        with pytest.raises(RuntimeError, match=rf"^kit\.roots/1: element {place} is negative$"):
            kit.roots(x)
        x[place] = 4
        assert kit.roots(x)[place] == 2
    x[:] = -1  # by several threads, of which the first tells
    with pytest.raises(RuntimeError, match=r"element \d+ is negative"):
        kit.roots(x)


def test_tensors_are_copied_where_the_op_says_so(kit):
    base = np.random.default_rng(5).standard_normal((7, 9, 4)).astype("float32")
    for x in (base, base.transpose(2, 0, 1), base[::-1, ::2, ::3], base[:, :, 0], np.broadcast_to(base[0], (3, 9, 4)), base[:0].T):
        expected = np.cumsum(x.ravel().astype("float64")).reshape(x.shape)
        np.testing.assert_allclose(kit.running(x), expected, rtol=1e-6, atol=1e-6)
        around = np.full((*x.shape, 3), 7, "float32")
        kit.running(x, out=around[..., 1])
        np.testing.assert_allclose(around[..., 1], expected, rtol=1e-6, atol=1e-6)
        assert (around[..., [0, 2]] == 7).all()
    unaligned = np.frombuffer(b"\0" + base.tobytes(), "uint8")[1:].view("float32")
    np.testing.assert_allclose(kit.running(unaligned), np.cumsum(base.ravel().astype("float64")), rtol=1e-6, atol=1e-6)


def test_variants(kit):
    even, odd = np.zeros(4, "float32"), np.zeros(5, "float32")
    assert kit.plus(even).tolist() == [1] * 4 and kit.plus(odd).tolist() == [2] * 5
    assert kit.plus(even, kernel="two").tolist() == [2] * 4
    with pytest.raises(NotImplementedError, match=r"kit\.plus/1: kernel 'one' does not take these shapes and params"):
        kit.plus(odd, kernel="one")
    with pytest.raises(NotImplementedError, match="no kernel 'three'; it has: one, two"):
        kit.plus(odd, kernel="three")
