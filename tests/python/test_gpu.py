# SPDX-License-Identifier: Apache-2.0
"""On an NVIDIA GPU: current streams, graphs, CuPy, memory of our own, several frameworks in one call. What only computes values is in
the other files, on every device. Skipped where there is no GPU, or not the framework that a test is about."""

import gc
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest

import narrows
import present

if not present.GPU:
    pytest.skip("the cuda backend has no GPU here", allow_module_level=True)

X = np.linspace(-2, 2, 4096, dtype="float32")


def busy(torch):
    """The current stream has something to do for some tenths of a second."""
    torch.cuda._sleep(400_000_000)


# ---- NumPy's data there and back ----


def test_numpy_goes_there_and_comes_back():
    np.testing.assert_allclose(narrows.exp(X, device="cuda"), np.exp(X), rtol=1e-6)
    x, w = np.random.default_rng(0).normal(size=(2, 8, 300)).astype("float32"), np.ones((4, 8, 5), "float32")
    np.testing.assert_allclose(narrows.conv1d(x, w, device="cuda"), narrows.conv1d(x, w), rtol=1e-4, atol=1e-4)
    with pytest.raises((ValueError, RuntimeError)):
        narrows.add(X, 1, device="cuda:63")


def test_what_does_not_fit_is_a_memory_error():
    with pytest.raises(MemoryError):
        narrows.empty((1 << 45,), "uint8", device="cuda")
    assert narrows.empty((8,), device="cuda").numpy().shape == (8,)


# ---- torch ----


def test_a_call_runs_on_torchs_current_stream(torch):
    x, out = torch.zeros(4096, device="cuda"), torch.zeros(4096, device="cuda")
    narrows.add(x, x, out=out)  # all is loaded now
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        busy(torch)
        x.fill_(1)
        y = narrows.add(x, 1)  # allocated here
        narrows.multiply(y, y, out=out)
        assert not stream.query() and torch.cuda.default_stream().query()
    stream.synchronize()
    assert y.device == x.device and bool((y == 2).all()) and bool((out == 4).all())


def test_every_way_into_torch_runs_on_the_current_stream(torch):
    x = torch.zeros(4096, device="cuda", requires_grad=True)
    cell = [torch.randn(*s, device="cuda") for s in ((4, 8), (24, 16), (24,), (4, 8), (4, 8))]
    expected = narrows.lltm(*cell)
    ways = {
        "autograd": lambda: narrows.exp(x),
        "dispatcher": lambda: torch.ops.narrows.elementwise(x.detach(), function="exp"),
        "functional": lambda: torch.func.grad(lambda a: narrows.exp(a).sum())(x.detach()),
        "vmap": lambda: torch.vmap(narrows.exp)(x.detach()),
    }
    for name, way in ways.items():
        way()
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            busy(torch)
            with torch.no_grad():
                x.fill_(1)
            y = way()
            assert not stream.query(), name
        stream.synchronize()
        torch.testing.assert_close(y.detach(), torch.full_like(y, np.e), msg=name)
        with torch.no_grad():
            x.zero_()
    torch.testing.assert_close(narrows.lltm(*cell), expected)


def test_backward_runs_on_the_stream_of_forward(torch):
    x = torch.ones(4096, device="cuda", requires_grad=True)
    narrows.exp(x).sum().backward()
    torch.cuda.synchronize()
    x.grad, stream = None, torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = narrows.multiply(narrows.exp(x), 3).sum()
        busy(torch)
        y.backward()
        assert not stream.query()
    stream.synchronize()
    torch.testing.assert_close(x.grad, 3 * x.detach().exp())


def test_outputs_and_workspace_are_torchs_memory(torch):
    x, w = torch.randn(8, 64, 4096, device="cuda"), torch.randn(64, 64, 9, device="cuda")
    narrows.conv1d(x, w)
    gc.collect()
    before = torch.cuda.memory_allocated()
    y = narrows.conv1d(x, w)
    assert torch.cuda.memory_allocated() - before >= y.nbytes
    del y
    assert torch.cuda.memory_allocated() == before
    y = narrows.add(x, 1)
    assert y.untyped_storage().resizable()


def test_calls_are_captured_into_a_graph(torch):
    x, w = torch.randn(4, 16, 256, device="cuda"), torch.randn(16, 16, 5, device="cuda")
    cell = [torch.randn(*s, device="cuda") for s in ((32, 16), (96, 48), (96,), (32, 32), (32, 32))]
    noise = torch.randn_like(x)

    def work():
        y = narrows.relu(narrows.add(narrows.conv1d(x, w, padding=2), noise))
        return y, *narrows.lltm(*cell)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    for seed in range(3):
        torch.manual_seed(seed)
        for t in (x, w, *cell):
            t.copy_(torch.randn_like(t))
        graph.replay()
        torch.testing.assert_close(results, work())


def test_what_was_learned_of_aligned_arrays_is_not_taken_for_others(torch):
    base = torch.randn(4 * 16 * 256 + 1, device="cuda", dtype=torch.float16)
    w = torch.randn(16, 16, 5, device="cuda", dtype=torch.float16)
    aligned, other = (base[i : i + 4 * 16 * 256].view(4, 16, 256) for i in (0, 1))
    for _ in range(3):
        narrows.conv1d(aligned, w, padding=2)
    expected = narrows.conv1d(other, w, padding=2, out=torch.empty_like(aligned))  # loads its kernel; what is remembered is out='s
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # where a workspace of our own cannot be allocated
        y = narrows.conv1d(other, w, padding=2)
    graph.replay()
    torch.testing.assert_close(y, expected)


def test_gradients_are_captured_into_a_graph(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = narrows.torch.Conv1d(8, 8, 3, padding=1)

        def forward(self, x):
            return narrows.tanh(self.conv(x))

    net = Net().cuda()
    sample = torch.randn(4, 8, 64, device="cuda", requires_grad=True)
    plain = [p.detach().clone() for p in torch.autograd.grad(net(sample).square().sum(), list(net.parameters()))]
    graphed = torch.cuda.make_graphed_callables(net, (torch.randn_like(sample).requires_grad_(),))
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(graphed(sample).square().sum(), list(net.parameters())), tuple(plain))


def test_compile_with_graphs(torch):
    torch._dynamo.reset()
    x, w = torch.randn(4, 8, 64, device="cuda"), torch.randn(8, 8, 3, device="cuda")
    steps = lambda x, w: torch.sin(narrows.add(narrows.conv1d(x, w, padding=1), 1)) * 2  # noqa: E731
    compiled = torch.compile(steps, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        x = torch.randn_like(x)
        torch.testing.assert_close(compiled(x, w).clone(), steps(x, w))


def test_autocast_to_half(torch):
    x, w = torch.randn(2, 8, 64, device="cuda"), torch.randn(8, 8, 3, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        y = narrows.conv1d(x, w)
    torch.testing.assert_close(y, torch.nn.functional.conv1d(x, w).half(), rtol=1e-2, atol=1e-2)


def test_threads_each_with_a_stream(torch):
    failures = []

    def work(seed):
        x = torch.full((10_000 + seed,), float(seed), device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(200):
                y = narrows.multiply(narrows.add(x, i), 2)
                if i % 20 == 0 and not bool((y == 2 * (seed + i)).all()):
                    failures.append((seed, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures


def test_tensors_of_two_devices_are_refused(torch):
    x, y = torch.ones(3, device="cuda"), torch.ones(3)
    for arguments in ((x, y), (y, x), (x, y.numpy()), (y.numpy(), x)):
        with pytest.raises((ValueError, RuntimeError), match="device"):
            narrows.add(*arguments)
    with pytest.raises((ValueError, RuntimeError), match="device"):
        narrows.add(x, 1, out=torch.empty(3))


# ---- CuPy ----


def test_cupy(cupy):
    x = cupy.asarray(X)
    y = narrows.exp(x)
    assert type(y) is cupy.ndarray and y.dtype == x.dtype
    np.testing.assert_allclose(cupy.asnumpy(y), np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(cupy.asnumpy(narrows.subtract(3, x)), 3 - X, rtol=1e-6)
    out = cupy.empty_like(x)
    assert narrows.add(x, x, out=out) is out
    np.testing.assert_allclose(cupy.asnumpy(out), X + X)
    signal, w = cupy.random.standard_normal((2, 3, 50), dtype="float32"), cupy.ones((4, 3, 5), "float32")
    expected = narrows.conv1d(cupy.asnumpy(signal), cupy.asnumpy(w), stride=2)
    np.testing.assert_allclose(cupy.asnumpy(narrows.conv1d(signal, w, stride=2)), expected, rtol=1e-4, atol=1e-5)
    h, c = narrows.lltm(*(cupy.zeros(s, "float32") for s in ((2, 3), (12, 7), (12,), (2, 4), (2, 4))))
    assert type(h) is type(c) is cupy.ndarray and h.shape == (2, 4)
    strided = cupy.asarray(X).reshape(64, 64).T
    np.testing.assert_allclose(cupy.asnumpy(narrows.add(strided, 1)), X.reshape(64, 64).T + 1)
    with pytest.raises(ValueError, match="do not broadcast"):
        narrows.add(x, cupy.ones(3, "float32"))


def test_a_program_takes_cupys_arrays(cupy):
    """It is refused only where no backend of the GPU has a compiler for programs."""
    program, source = pytest.importorskip("narrows.program"), pytest.importorskip("narrows.program._source")
    f = program.PrimFunc(
        "program 1 twice(x: f32[n], y: out f32[n]):\n  for i in n:\n    block y(vi: S(n) = i):\n      y[vi] = x[vi] + x[vi]\n"
    ).build()
    x = cupy.asarray(X)
    usable = [b["name"] for b in narrows.info()["backends"] if b["device_type"] == 2 and b["status"] == "ok"]
    if any(map(source.compiler, usable)):
        y = f(x)
        assert type(y) is cupy.ndarray
        np.testing.assert_array_equal(cupy.asnumpy(y), X + X)
    else:
        with pytest.raises(RuntimeError, match="|".join(usable)):  # NotImplementedError is one, too
            f(x)


def test_a_call_runs_on_cupys_current_stream(cupy):
    spin = cupy.RawKernel(
        'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n) {} }', "spin"
    )
    x = cupy.zeros(4096, "float32")
    spin((1,), (1,), (1,))
    narrows.add(x, 1)
    cupy.cuda.runtime.deviceSynchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        spin((1,), (1,), (400_000_000,))
        x.fill(1)
        y = narrows.add(x, 1)
        assert not stream.done
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(y), 2)


# ---- memory of our own ----


def test_tensors_go_from_framework_to_framework(torch, cupy, jax):
    t = narrows.from_dlpack(X, "cuda")
    of_torch, of_cupy = torch.from_dlpack(t), cupy.from_dlpack(t)
    assert of_torch.data_ptr() == of_cupy.data.ptr == t.data_ptr
    of_jax = jax.dlpack.from_dlpack(t)
    assert of_jax.devices() == {jax.devices("cuda")[0]}
    for array in (of_torch, of_cupy, of_jax):
        back = narrows.from_dlpack(array)
        assert back.device == t.device
        np.testing.assert_array_equal(back.numpy(), X)
        np.testing.assert_array_equal(np.from_dlpack(back.to("cpu")), X)
    np.testing.assert_array_equal(np.from_dlpack(t, device="cpu"), X)
    narrows.add(t, 1, out=t)
    np.testing.assert_array_equal(of_torch.cpu().numpy(), X + 1)


@pytest.mark.parametrize("to", ["cpu", "cuda"])
def test_a_copy_waits_for_the_tensors_own_stream(torch, to):
    stream = narrows.Stream("cuda")
    t = narrows.empty(1 << 20, "float32", "cuda", stream)
    view = torch.from_dlpack(t)
    view.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
        busy(torch)
        view.fill_(7)
    np.testing.assert_array_equal(t.to(to).numpy(), 7)


def test_an_export_waits_for_the_tensors_own_stream(torch):
    stream = narrows.Stream("cuda")
    t = narrows.empty(1 << 20, "float32", "cuda", stream)
    inner = torch.from_dlpack(t)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
        inner.zero_()
        busy(torch)
        inner.fill_(7)
    assert bool((torch.from_dlpack(t) == 7).all())  # on torch's default stream


def test_results_stay_on_the_first_inputs_stream(torch):
    stream = narrows.Stream("cuda")
    t = narrows.from_dlpack(X).to("cuda", stream)
    y = narrows.add(narrows.add(t, 1), t)
    assert y.stream == t.stream == stream.handle
    np.testing.assert_allclose(y.numpy(), 2 * X + 1, rtol=1e-6, atol=1e-6)
    stream.sync()
    other = narrows.Stream("cuda")
    other.wait(stream)
    np.testing.assert_allclose(narrows.add(t, 1, stream=other).numpy(), X + 1, rtol=1e-6, atol=1e-6)


def test_a_stream_lives_as_long_as_what_was_made_on_it(cupy):
    stream = narrows.Stream("cuda")
    alive = weakref.ref(stream)
    t = narrows.empty(1 << 20, device="cuda", stream=stream)
    y = narrows.add(t, 1)
    del stream, t
    gc.collect()
    assert alive() is not None
    del y
    gc.collect()
    assert alive() is None
    with cupy.cuda.Stream(non_blocking=True):
        y = narrows.add(cupy.asarray(X), 1)
    gc.collect()
    cupy.cuda.runtime.deviceSynchronize()
    np.testing.assert_allclose(cupy.asnumpy(y), X + 1, rtol=1e-6, atol=1e-6)
    del y
    assert narrows.empty(8, device="cuda").numpy().shape == (8,)


# ---- several frameworks in one call ----


def test_frameworks_on_one_stream_may_be_mixed(torch, cupy):
    a, b = torch.from_numpy(X).cuda(), cupy.asarray(X)
    torch.cuda.synchronize()
    y = narrows.add(a, b)
    assert type(y) is torch.Tensor
    torch.testing.assert_close(y, a + a)
    y = narrows.add(b, a)
    assert type(y) is cupy.ndarray
    np.testing.assert_array_equal(cupy.asnumpy(y), X + X)
    t = narrows.from_dlpack(X, "cuda")
    assert type(narrows.add(t, a)) is narrows.Tensor and type(narrows.add(a, t)) is torch.Tensor


def test_frameworks_on_two_streams_are_refused_unless_one_is_named(torch, cupy):
    a, b = torch.from_numpy(X).cuda(), cupy.asarray(X)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for arguments in ((a, b), (b, a), (narrows.from_dlpack(X, "cuda"), a)):
            with pytest.raises(ValueError, match="several frameworks whose current streams differ"):
                narrows.add(*arguments)
        y = narrows.add(a, b, stream=stream.cuda_stream)
        with cupy.cuda.ExternalStream(stream.cuda_stream):
            torch.testing.assert_close(narrows.add(a, b), y)
    stream.synchronize()
    torch.testing.assert_close(y, a + a)


def test_jax_decides_where_it_is_first(jax, torch):
    a, b = jax.device_put(X, jax.devices("cuda")[0]), torch.from_numpy(X).cuda()
    y = narrows.add(a, b)
    assert isinstance(y, jax.Array) and y.devices() == a.devices()
    np.testing.assert_array_equal(np.asarray(y), X + X)


class Producer:
    """A framework of its own over a tensor of torch: what it does is on a stream that nobody else knows."""

    def __init__(self, tensor):
        import torch

        self.tensor, self.stream = tensor, torch.cuda.Stream()
        torch.cuda.synchronize()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream, **_):
        import torch

        consumer = torch.cuda.default_stream() if stream == 1 else torch.cuda.ExternalStream(stream)
        consumer.wait_stream(self.stream)
        return self.tensor.__dlpack__(stream=-1)

    def fill(self, value):
        import torch

        with torch.cuda.stream(self.stream):
            self.tensor.fill_(value)


@pytest.mark.parametrize("place", ["first", "second"])
def test_a_framework_of_unknown_streams_is_ordered_both_ways(torch, place):
    a, b = torch.ones(1 << 20, device="cuda"), Producer(torch.zeros(1 << 20, device="cuda"))
    call = lambda: narrows.add(a, b) if place == "second" else narrows.add(b, 1)  # noqa: E731
    call()
    with torch.cuda.stream(b.stream):
        busy(torch)
    b.fill(2)  # before: the call waits for it
    busy(torch)  # on the stream of the call
    y = call()
    b.fill(100)  # after: it waits for the call
    torch.cuda.synchronize()
    assert bool((torch.from_dlpack(y) == 3).all())


def test_an_output_of_unknown_streams_is_there_when_the_call_returns(torch):
    a, out = torch.ones(1 << 20, device="cuda"), Producer(torch.zeros(1 << 20, device="cuda"))
    narrows.add(a, 1, out=out)
    out.fill(0)
    busy(torch)
    narrows.add(a, 1, out=out)
    with torch.cuda.stream(out.stream):
        seen = out.tensor.clone()
    torch.cuda.synchronize()
    assert bool((seen == 2).all())


class Interface:
    """What Numba's arrays give, of a tensor of torch."""

    def __init__(self, tensor, **changes):
        self.tensor, self.changes = tensor, changes

    @property
    def __cuda_array_interface__(self):
        return {**self.tensor.__cuda_array_interface__, **self.changes}


def test_the_cuda_array_interface(torch):
    x = torch.from_numpy(X).cuda().view(64, 64)
    if torch.cuda.device_count() > 1:
        with pytest.raises(ValueError, match="does not say which of"):
            narrows.add(Interface(x), 1)
        return
    y = narrows.add(Interface(x), 1)
    assert type(y) is narrows.Tensor
    np.testing.assert_array_equal(y.numpy(), X.reshape(64, 64) + 1)
    np.testing.assert_array_equal(narrows.subtract(1, Interface(x)).numpy(), 1 - X.reshape(64, 64))
    np.testing.assert_array_equal(narrows.add(Interface(x.T[::2]), 1).numpy(), X.reshape(64, 64).T[::2] + 1)
    out = torch.empty_like(x)
    narrows.add(x, Interface(x), out=Interface(out))
    torch.testing.assert_close(out, 2 * x)
    with pytest.raises(ValueError, match="read-only"):
        narrows.add(x, x, out=Interface(out, data=(out.data_ptr(), True)))
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        busy(torch)
        x.fill_(5)
    y = narrows.add(x.new_zeros(64, 64), Interface(x, stream=stream.cuda_stream))  # waits for the stream that it names
    assert bool((y == 5).all())


def test_jax_beside_torch_is_ordered_both_ways(jax, torch):
    a, b = torch.from_numpy(X).cuda(), jax.device_put(X, jax.devices("cuda")[0])
    narrows.add(a, b)
    with torch.cuda.stream(torch.cuda.Stream()):  # not the default one
        a = a.clone()
        busy(torch)
        y = narrows.add(a, b)
        assert type(y) is torch.Tensor and torch.cuda.current_stream().query()  # JAX may take its memory back now
    torch.cuda.synchronize()
    torch.testing.assert_close(y, 2 * a)
    busy(torch)
    a.mul_(3)
    y = narrows.add(b, a)
    a.zero_()
    np.testing.assert_array_equal(np.asarray(y), 4 * X)
    with pytest.raises(ValueError, match="while JAX traces"):
        jax.jit(lambda b: narrows.add(b, a))(b)


def test_what_torchs_dispatcher_sees_is_on_its_stream_or_refused(torch, cupy, jax):
    g, c = torch.from_numpy(X).cuda().requires_grad_(), cupy.asarray(X)
    torch.cuda.synchronize()
    torch.testing.assert_close(narrows.multiply(g, c).detach(), g.detach() ** 2)
    for other in (Producer(torch.ones(4096, device="cuda")), jax.device_put(X, jax.devices("cuda")[0])):
        with pytest.raises(ValueError, match="expected a tensor of torch"):
            narrows.multiply(g, other)
    with torch.cuda.stream(torch.cuda.Stream()):
        for arguments in ((g, c), (c, g), (g, narrows.from_dlpack(X, "cuda"))):
            with pytest.raises(ValueError, match="several frameworks whose current streams differ"):
                narrows.multiply(*arguments)


def test_jax_may_capture_what_needs_no_workspace(jax):
    """XLA puts several such calls into a graph, and replays it with other arrays."""
    x = jax.device_put(X, jax.devices("cuda")[0])

    def chain(x):
        for i in range(12):
            x = narrows.multiply(narrows.add(x, i), 0.5)
        return x

    def expected(x):
        for i in range(12):
            x = (x + np.float32(i)) * np.float32(0.5)
        return x

    compiled = jax.jit(chain)
    assert "narrows_capturable" in compiled.lower(x).as_text()
    for i in range(4):
        np.testing.assert_allclose(np.asarray(compiled(x + i)), expected(X + np.float32(i)), rtol=1e-6)
    signal, w = (jax.device_put(np.ones(s, "float32"), jax.devices("cuda")[0]) for s in ((8, 64, 4096), (64, 64, 9)))
    many = jax.jit(lambda x, w: sum(narrows.conv1d(x * i, w) for i in range(6)))
    for i in range(3):
        np.testing.assert_allclose(np.asarray(many(signal + i, w)), (1 + i) * 15 * 64 * 9, rtol=1e-5)


# ---- fork and exit ----


def run_python(code):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_child_of_fork_gets_errors_and_the_parent_goes_on():
    """CUDA works in no child of a process that has used it: the child must get an exception, not hang or die by a signal."""
    out = run_python("""
        import os, signal, numpy as np, narrows
        x = np.ones(8, "float32")
        t, stream = narrows.from_dlpack(x, "cuda"), narrows.Stream("cuda")
        narrows.add(t, 1)
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            failed = 0
            for call in (lambda: narrows.add(t, 1).numpy(), stream.sync, lambda: narrows.empty(3, device="cuda"), t.numpy):
                try:
                    call()
                except (RuntimeError, MemoryError, ValueError, NotImplementedError):
                    failed += 1
            same = np.array_equal(narrows.add(x, 1), x + 1)  # the CPU goes on
            os._exit(0 if failed == 4 and same else 10 + failed)
        status = os.waitpid(pid, 0)[1]
        assert status == 0, status
        stream.sync()
        print(narrows.add(t, 1).numpy().tolist() == [2.0] * 8)
    """)
    assert out == "True\n"


def test_exit_with_streams_and_tensors_alive():
    run_python("""
        import builtins, numpy, narrows
        stream = narrows.Stream("cuda")
        t = narrows.add(narrows.from_dlpack(numpy.ones(4, "float32")).to("cuda", stream), 1)
        builtins.kept = stream, t, t.__dlpack__()
    """)


def test_exit_with_frameworks_arrays_alive(torch):
    run_python("""
        import builtins, torch, narrows
        t = narrows.empty((3,), device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            y = narrows.exp(torch.ones(3, device="cuda", requires_grad=True))
        builtins.kept = torch.from_dlpack(t), y, narrows.from_dlpack(y.detach()), stream
    """)


def test_exit_with_jaxs_arrays_alive(jax):
    run_python("""
        import builtins, jax, narrows
        x = jax.device_put(jax.numpy.ones(4), jax.devices("cuda")[0])
        builtins.kept = narrows.add(x, x), narrows.from_dlpack(x), jax.jit(lambda a: narrows.exp(a))(x)
    """)
