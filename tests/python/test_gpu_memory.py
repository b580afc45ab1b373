# SPDX-License-Identifier: Apache-2.0
"""On an NVIDIA GPU: what calls leave behind in memory and references, and what they take beside their outputs. Skipped where there
is no GPU, or not the framework that a test is about."""

import gc
import itertools
import os
import sys

import numpy as np
import pytest

import narrows
import present

if not present.GPU:
    pytest.skip("the cuda backend has no GPU here", allow_module_level=True)

MIB = 1 << 20
CALLS = 5_000
# Outputs of one call in twenty. Of what is taken on the device others have a part.
ALLOWED = CALLS * MIB // 20


def torch_routes(torch):
    x, out, g = (torch.ones(MIB // 4, device="cuda") for _ in range(3))
    g.requires_grad_()
    signal, w = torch.randn(8, 8, MIB // 256 + 2, device="cuda"), torch.randn(8, 8, 3, device="cuda")
    yield "add", lambda: narrows.add(x, x)
    yield "out", lambda: narrows.add(x, 2, out=out)
    yield "conv1d", lambda: narrows.conv1d(signal, w)
    yield "autograd", lambda: torch.autograd.grad(narrows.multiply(g, x).sum(), g)
    yield "to own", lambda: narrows.from_dlpack(x.clone())


def own_routes(_):
    x = np.ones(MIB // 4, "float32")
    t = narrows.from_dlpack(x, "cuda")
    yield "add", lambda: narrows.add(t, t)
    yield "from numpy", lambda: narrows.from_dlpack(x, "cuda")
    yield "numpy", lambda: narrows.add(x, 2, device="cuda")


def cupy_routes(cupy):
    x = cupy.ones(MIB // 4, "float32")
    yield "add", lambda: narrows.add(x, x)
    yield "to own", lambda: narrows.from_dlpack(x.copy())


def jax_routes(jax):
    x = jax.device_put(np.ones(MIB // 4, "float32"), jax.devices("cuda")[0])
    jitted, gradient = jax.jit(narrows.add), jax.jit(jax.grad(lambda x: narrows.exp(x).sum()))
    yield "add", lambda: narrows.add(x, x).block_until_ready()
    yield "jit", lambda: jitted(x, x).block_until_ready()
    yield "grad", lambda: gradient(x).block_until_ready()


# Routes whose outputs a framework allocates; what it says is in use, if it says so.
ROUTES = {
    "torch": (torch_routes, lambda torch: torch.cuda.memory_allocated()),
    "own": (own_routes, lambda _: 0),
    "cupy": (cupy_routes, lambda cupy: cupy.get_default_memory_pool().used_bytes()),
    "jax": (jax_routes, lambda jax: jax.devices("cuda")[0].memory_stats()["bytes_in_use"]),
}


@pytest.fixture(params=ROUTES)
def routes(request):
    """(name, call) of each, and a function that gives the bytes in use."""
    make, in_use = ROUTES[request.param]
    framework = None if request.param == "own" else request.getfixturevalue(request.param)
    return make(framework), lambda: in_use(framework)


def growth(torch, in_use, call, calls):
    """Over these calls: of what the framework has in use, of what is taken on the device, and of blocks of Python's allocator."""

    def look():
        torch.cuda.synchronize()
        gc.collect()
        return np.array([in_use(), -torch.cuda.mem_get_info()[0], sys.getallocatedblocks()])

    for _ in range(1_000):
        call()
    before = look()
    for _ in range(calls):
        call()
    return look() - before


def test_memory_of_the_gpu_stays_flat(torch, routes):
    calls, in_use = routes
    count = 100_000 if os.environ.get("NARROWS_TEST_SLOW") else CALLS
    for name, call in calls:
        used, taken, blocks = growth(torch, in_use, call, count)
        assert used < 8 * MIB and taken < ALLOWED and blocks < count // 5, (name, used, taken, blocks)


def test_memory_that_is_kept_is_seen(torch, routes):
    """Each output of ten, in every route whose outputs are on the GPU and its own."""
    calls, in_use = routes
    kept = []  # until the end: what one route gives back another one may get
    for name, call in calls:
        if name not in ("numpy", "out"):
            keep = lambda call=call, count=itertools.count(): kept.append(call()) if next(count) % 10 == 0 else call()  # noqa: B008, E731
            used, taken, _ = growth(torch, in_use, keep, CALLS)
            assert max(used, taken) > ALLOWED, (name, used, taken)


# ---- memory that a call takes beside its outputs ----


def test_torchs_allocator_gives_the_workspace_and_takes_it_back(torch):
    """Half precision with a gradient summed over many positions needs a workspace; the most that was allocated shows it."""
    x = torch.randn(8, 64, 4096, device="cuda", dtype=torch.float16)
    w, g = torch.randn(64, 64, 9, device="cuda", dtype=torch.float16), torch.randn(8, 64, 4088, device="cuda", dtype=torch.float16)
    backward = torch.ops.narrows.conv1d_backward
    backward(g, x, w, wanted=0b010)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    (grad_w,) = backward(g, x, w, wanted=0b010)
    torch.cuda.synchronize()
    workspace = torch.cuda.max_memory_allocated() - before - grad_w.untyped_storage().nbytes()
    assert workspace > 4096  # more than what torch rounds the output up to
    assert torch.cuda.memory_allocated() - before < grad_w.nbytes + 4096
    free = torch.cuda.mem_get_info()[0]
    for _ in range(50):
        backward(g, x, w, wanted=0b010)
    torch.cuda.synchronize()
    assert free - torch.cuda.mem_get_info()[0] < workspace  # nothing beside torch's pool grows


def test_scratch_does_not_pile_up_under_jax(jax):
    """The same call under JAX, whose allocator gives the scratch: it is there again after each call."""
    gpu = jax.devices("cuda")[0]
    with jax.default_device(gpu):
        x, w = jax.numpy.ones((8, 64, 4096), "float16"), jax.numpy.ones((64, 64, 9), "float16")
        step = jax.jit(jax.grad(lambda w: narrows.conv1d(x, w).astype("float32").sum()))
        step(w).block_until_ready()
        before = gpu.memory_stats()["bytes_in_use"]
        for _ in range(20):
            y = step(w).block_until_ready()
        stats = gpu.memory_stats()
    assert stats["bytes_in_use"] - before < 4 * y.nbytes + (1 << 20)
