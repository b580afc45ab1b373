# SPDX-License-Identifier: Apache-2.0
"""A plugin with a source in CUDA: compiled wherever nvcc is, and on an NVIDIA GPU called by every framework with no glue."""

import numpy as np
import pytest

import narrows
import planted_on_devices
import present

CUDA_SOURCE = """
#include <narrows/plugin_cuda.hpp>
struct Params { float factor; };
__global__ void times(const float* x, float* y, float factor, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = x == nullptr ? 0 : factor * x[i];
}
float doubled(float);  // in the other source
void scale(const narrows::plugin::Launch& call) {
  const int64_t n = call.size(0);
  const float factor = doubled(call.params<Params>().factor);
  if (n == 0) return;
  const float* const x = call.has_input(0) ? call.input<float>(0) : nullptr;  // of backward: a gradient that is 0
  times<<<(n + 255) / 256, 256, 0, narrows::plugin::stream(call)>>>(x, call.output<float>(0), factor, n);
  narrows::plugin::check(cudaGetLastError());
}
using namespace narrows::plugin;
using narrows::f16;
__global__ void sums(View<const f16, 2> a, View<const f16, 2> b, View<f16, 2> y) {
  const int64_t i = blockIdx.x, j = threadIdx.x;
  if (j < y.shape[1]) y(i, j) = a(i, j) + b(i, j);
}
void sum(const Launch& call) {
  const auto y = call.output_view<f16, 2>(0);
  if (call.size(0) == 0) return;
  sums<<<y.shape[0], 1024, 0, stream(call)>>>(call.input_view<f16, 2>(0), call.input_view<f16, 2>(1), y);
  check(cudaGetLastError());
}
__global__ void means(Space space, float* y, const float* a, const float* b) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= space.size()) return;
  const auto at = [&](int k) { return space.offset_of(k, i) / int64_t{sizeof(float)}; };
  y[at(0)] = (a[at(1)] + b[at(2)]) / 2;
}
void mean(const Launch& call) {  // of any rank
  const Space space = call.space({call.out(0), call.in(0), call.in(1)});
  const int64_t n = space.size();
  if (n == 0) return;
  means<<<(n + 255) / 256, 256, 0, stream(call)>>>(space, data<float>(&call.out(0)), data<float>(&call.in(0)), data<float>(&call.in(1)));
  check(cudaGetLastError());
}
template <int by>
void plus(const Launch& call) {  // by way of the workspace
  const int64_t n = call.size(0);
  if (n == 0) return;
  float* const scratch = call.workspace<float>();
  times<<<(n + 255) / 256, 256, 0, stream(call)>>>(call.input<float>(0), scratch, 1 + by, n);
  times<<<(n + 255) / 256, 256, 0, stream(call)>>>(scratch, call.output<float>(0), 1, n);
  check(cudaGetLastError());
}
bool is_even(const Signature& call) { return call.in(0).shape[0] % 2 == 0; }
uint64_t bytes(const Signature& call) {
  uint64_t n = sizeof(float);
  for (int32_t d = 0; d < call.in(0).ndim; ++d) n *= call.in(0).shape[d];
  return n;
}
const std::vector<nw_param> kParams = {field("factor", &Params::factor, 1.0)};
NARROWS_CUDA_PLUGIN("incuda",
                    {.name = "incuda.sum/1", .inputs = {"a: f16", "b: f16"}, .outputs = {"y"}, .shape_rule = "N,M ; N,M -> N,M",
                     .kernel = sum, .traits = NW_PLAN_CAPTURABLE, .layout = Layout::strided},
                    {.name = "incuda.mean/1", .inputs = {"a", "b"}, .outputs = {"y"}, .shape_rule = "... ; ... -> ...",
                     .kernel = mean, .traits = NW_PLAN_CAPTURABLE, .layout = Layout::strided},
                    {.name = "incuda.plus/1", .inputs = {"x"}, .outputs = {"y"}, .traits = NW_PLAN_CAPTURABLE, .layout = Layout::copied,
                     .workspace = bytes, .variants = {{"twice", plus<1>, is_even}, {"thrice", plus<2>}}},
                    {.name = "incuda.scale/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = scale, .params = kParams,
                     .params_size = sizeof(Params), .backward = "incuda.scale_backward/1", .traits = NW_PLAN_CAPTURABLE},
                    {.name = "incuda.scale_backward/1", .kernel = scale, .traits = NW_PLAN_CAPTURABLE})
"""


@pytest.fixture
def in_cuda(monkeypatch):
    """Compiles CUDA_SOURCE beside a source in C++, and gives the plugin's ops."""
    if (nvcc := present.nvcc()) is None:
        pytest.skip("there is no nvcc: NVCC, CUDACXX, PATH, /usr/local/cuda, .deps/cuda")
    monkeypatch.setenv("NVCC", nvcc)
    return narrows.load_inline("incuda", cpp_sources="float doubled(float x) { return 2 * x; }", cuda_sources=CUDA_SOURCE)


needs_gpu = pytest.mark.skipif(not present.GPU, reason="the cuda backend has no GPU here")


@pytest.mark.skipif(present.GPU, reason="this is about machines without a GPU, and here is one")
def test_cuda_sources_without_a_gpu(in_cuda):
    """Compiled wherever nvcc is."""
    with pytest.raises((RuntimeError, NotImplementedError), match=r"no plugin serves|CUDA|driver"):
        in_cuda.scale(narrows.empty((3,), device="cuda"))
    assert len([b for b in narrows.info()["backends"] if b["name"] == "incuda"]) == 1


@needs_gpu
def test_cuda_sources(in_cuda):
    np.testing.assert_array_equal(in_cuda.scale(np.ones(1000, "float32"), factor=4, device="cuda"), np.full(1000, 8))


@pytest.fixture
def torch_on_the_gpu():
    torch = pytest.importorskip("torch")
    if not present.GPU or not torch.cuda.is_available():
        pytest.skip("torch or the cuda backend has no GPU here")
    yield torch
    torch.cuda.synchronize()


def test_cuda_sources_on_torchs_current_stream(torch_on_the_gpu, in_cuda):
    torch = torch_on_the_gpu
    x, out = torch.zeros(4096, device="cuda"), torch.zeros(4096, device="cuda")
    torch.testing.assert_close(in_cuda.scale(x, factor=4), x)  # all is loaded now
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)
        x.fill_(1)
        y = in_cuda.scale(x, factor=4)
        torch.ops.narrows.incuda_scale_1(x, factor=3)
        in_cuda.scale(y, factor=1, out=out)
        assert not stream.query() and torch.cuda.default_stream().query()
    stream.synchronize()
    assert y.device == x.device and bool((y == 8).all()) and bool((out == 16).all())


def test_cuda_sources_in_torch(torch_on_the_gpu, in_cuda):
    """Its gradient, a graph of CUDA's, and torch.compile, which makes graphs too."""
    torch = torch_on_the_gpu
    scale = lambda x: in_cuda.scale(x, factor=2)  # noqa: E731
    x = torch.randn(64, 32, device="cuda", requires_grad=True)
    (gradient,) = torch.autograd.grad((scale(x) ** 2).sum(), x)
    torch.testing.assert_close(gradient, 32 * x.detach())
    torch.testing.assert_close(torch.vmap(scale)(x.detach()), 4 * x.detach())
    graph, given = torch.cuda.CUDAGraph(), x.detach().clone()
    with torch.cuda.graph(graph):
        y = scale(given)
    given.fill_(3)
    graph.replay()
    torch.testing.assert_close(y, torch.full_like(y, 12))
    torch._dynamo.reset()
    for mode in ("default", "reduce-overhead"):
        compiled = torch.compile(lambda x: torch.sin(scale(torch.cos(x))), fullgraph=True, mode=mode)
        for _ in range(4):
            x = torch.randn(64, 32, device="cuda")
            torch.testing.assert_close(compiled(x).clone(), torch.sin(4 * torch.cos(x)), rtol=1e-5, atol=1e-5)
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
        x = x.detach()
        torch.testing.assert_close(gradient, torch.cos(4 * torch.cos(x)) * -4 * torch.sin(x), rtol=1e-5, atol=1e-5)


def test_strided_and_copied_tensors_in_cuda(torch_on_the_gpu, in_cuda):
    torch = torch_on_the_gpu
    base = torch.randn(6, 8, device="cuda")
    half = base.half()
    for a, b in (
        (half, half),
        (half.T, half[::2, :6].T.repeat(2, 2)[:8, :6]),
        (half[:1].expand(5, 8), half[1:]),
        (half[:, :0], half[:, :0]),
    ):
        torch.testing.assert_close(in_cuda.sum(a, b), a + b, rtol=0, atol=0)
    for x in (base, base.T, base[::2, 1::3], base[:, 0], base[:1].expand(5, 8), base[:0].T, base.flip(0)):
        torch.testing.assert_close(in_cuda.mean(x, x.flip(0)), (x + x.flip(0)) / 2, rtol=0, atol=0)
        factor = 2 if x.shape[0] % 2 == 0 else 3
        torch.testing.assert_close(in_cuda.plus(x), factor * x, rtol=0, atol=0)
        around = torch.full((*x.shape, 3), 7.0, device="cuda")
        in_cuda.plus(x, out=around[..., 1], kernel="thrice")
        torch.testing.assert_close(around[..., 1], 3 * x, rtol=0, atol=0)
        assert bool((around[..., [0, 2]] == 7).all())
    graph, given = torch.cuda.CUDAGraph(), base.T.clone(memory_format=torch.preserve_format)
    with torch.cuda.graph(graph):
        y = in_cuda.plus(given)
    given.fill_(3)
    graph.replay()
    torch.testing.assert_close(y, torch.full_like(y, 6))


@needs_gpu
def test_cuda_sources_in_jax(in_cuda):
    jax = pytest.importorskip("jax")
    if "cuda" not in present.of_jax():
        pytest.skip("this JAX has no CUDA")
    gpu = jax.devices("cuda")[0]
    scale = lambda x: in_cuda.scale(x, factor=2)  # noqa: E731
    with jax.default_device(gpu):
        x = jax.numpy.linspace(-1, 1, 4096, dtype="float32")
        many = jax.jit(lambda x: scale(scale(x) + 1))
        for i in range(3):
            y = many(x + i)
            assert y.devices() == {gpu}
            np.testing.assert_allclose(y, 4 * (4 * (x + i) + 1), rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(jax.jit(jax.grad(lambda x: (scale(x) ** 2).sum()))(x), 32 * x, rtol=1e-6)
        np.testing.assert_allclose(jax.jit(jax.vmap(scale))(x.reshape(8, 512)), 4 * x.reshape(8, 512), rtol=1e-6)


@needs_gpu
def test_cuda_sources_on_cupys_current_stream(in_cuda):
    cupy = pytest.importorskip("cupy")
    x = cupy.zeros(4096, "float32")
    in_cuda.scale(x)
    cupy.cuda.runtime.deviceSynchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x.fill(1)
        y = in_cuda.scale(x, factor=4)
    stream.synchronize()
    assert type(y) is cupy.ndarray
    np.testing.assert_array_equal(cupy.asnumpy(y), 8)


PLANTED = """
#include <narrows/plugin_cuda.hpp>
using namespace narrows::plugin;
struct Params { double factor; };
KERNELS
template <auto kernel> void forward(const Launch& call) {
  const int64_t n = call.size(0);
  if (n == 0) return;
  const auto factor = static_cast<float>(call.params<Params>().factor);
  kernel<<<n / 64 + 1, 64, 0, stream(call)>>>(call.input<float>(0), call.output<float>(0), factor, n);
  check(cudaGetLastError());
}
template <int slope> void backward(const Launch& call) {  // grad_y?, x? -> grad_x; where the gradient is 0, 0 times anything
  const int64_t n = call.size(0);
  if (n == 0) return;
  const auto factor = call.has_input(0) ? static_cast<float>(slope * call.params<Params>().factor) : 0;
  float* const out = call.output<float>(0);
  right<<<n / 64 + 1, 64, 0, stream(call)>>>(call.has_input(0) ? call.input<float>(0) : out, out, factor, n);
  check(cudaGetLastError());
}
template <bool ignored> __global__ void copy_rows(View<const int32_t, 2> x, View<int32_t, 2> y) {
  const int64_t i = blockIdx.x;
  for (int64_t j = threadIdx.x; j < x.shape[1]; j += 64) y(i, j) = ignored ? x.data[i * x.shape[1] + j] : x(i, j);
}
template <bool ignored> void rows(const Launch& call) {
  const auto y = call.output_view<int32_t, 2>(0);
  if (call.size(0) == 0) return;
  copy_rows<ignored><<<y.shape[0], 64, 0, stream(call)>>>(call.input_view<int32_t, 2>(0), y);
  check(cudaGetLastError());
}
const std::vector<nw_param> kParams = {field("factor", &Params::factor, 2.0)};
NARROWS_CUDA_PLUGIN("planted_cuda",
                    {.name = "planted.rows/1", .inputs = {"x: i32"}, .outputs = {"y"}, .shape_rule = "N,M -> N,M",
                     .kernel = rows<false>, .layout = Layout::strided},
                    {.name = "planted.rows_strides/1", .inputs = {"x: i32"}, .outputs = {"y"}, .shape_rule = "N,M -> N,M",
                     .kernel = rows<true>, .layout = Layout::strided},
                    OPS)
"""
PLANTED_KERNEL = """__global__ void %s(const float* x, float* y, float factor, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (%s) y[i] = %s;
}
"""
PLANTED_OP = """{.name = "planted.%(name)s/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = forward<%(name)s>, .params = kParams,
 .params_size = sizeof(Params), .backward = "planted.%(name)s_backward/1"},
{.name = "planted.%(name)s_backward/1", .kernel = backward<%(slope)d>}"""


@needs_gpu
def test_planted_faults_are_caught_on_the_device(in_cuda):
    kernels = [PLANTED_KERNEL % (n, test, value.replace("X", "x[i]")) for n, (test, value, _) in planted_on_devices.TIMES.items()]
    source = PLANTED.replace("KERNELS", "".join(kernels)).replace("OPS", planted_on_devices.declared(PLANTED_OP))
    planted_on_devices.judge(narrows.load_inline("planted", cuda_sources=source), "cuda")


def test_no_nvcc(monkeypatch):
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    with pytest.raises(RuntimeError, match="no compiler 'no-such-nvcc' on PATH; set NVCC"):
        narrows.load_inline("incuda2", cuda_sources=CUDA_SOURCE)
