// SPDX-License-Identifier: Apache-2.0
// conv1d_scalar.cu -- conv1d and its gradients as plain loops, for any strides and any alignment: the baseline that the other
// kernels are measured and checked against, and what takes the calls that no other kernel does.
#include "conv1d.h"
#include "ops/bytes.h"
#include "ops/dtype.h"

namespace narrows::gpu {
namespace {

// An element as an accumulator. kBytewise: the address may be no multiple of its size.
template <bool kBytewise, class T>
__device__ Accumulate<T> read(const T* p) {
  if constexpr (!kBytewise) {
    return widen(*p);
  } else {
    return widen(load_bytes<T>(p));
  }
}
template <bool kBytewise, class T>
__device__ void write(T* p, Accumulate<T> x) {
  const T value = narrowed<T>(x);
  if constexpr (!kBytewise) {
    *p = value;
  } else {
    store_bytes(p, value);
  }
}

__device__ int64_t thread_index() { return blockIdx.x * int64_t{blockDim.x} + threadIdx.x; }
__device__ int64_t grid_threads() { return gridDim.x * int64_t{blockDim.x}; }

// ---- a correlation: one thread for each output ----

template <class T, bool kBytewise>
__device__ Accumulate<T> correlate_at(const Correlation& c, const T* in, const T* w, int64_t q) {
  Accumulate<T> sum = 0;
  for (int64_t channel = 0; channel < c.ins; ++channel)
    for (int64_t j = 0; j < c.taps; ++j) {
      const int64_t position = q * c.step + c.origin + j * c.tap_step;  // in this order none of the sums is too large
      if (position < 0 || position >= c.extent) continue;
      sum += read<kBytewise>(in + channel * c.in_channel + position * c.in_position) *
             read<kBytewise>(w + channel * c.w_in + j * c.w_tap);
    }
  return sum;
}

template <class T, bool kBytewise>
__global__ void correlate(const Correlation c, const Operands p) {
  const int64_t total = c.batch * c.groups * c.outs * c.length;
  for (int64_t i = thread_index(); i < total; i += grid_threads()) {
    const int64_t q = i % c.length, row = i / c.length;
    const int64_t m = row % c.outs, group = row / c.outs % c.groups, n = row / c.outs / c.groups;
    const T* in = static_cast<const T*>(p.a) + n * c.in_batch + group * c.in_group;
    const T* w = static_cast<const T*>(p.b) + c.w_offset + group * c.w_group + m * c.w_out;
    Accumulate<T> sum = correlate_at<T, kBytewise>(c, in, w, q);
    if (p.bias != nullptr) sum += read<kBytewise>(static_cast<const T*>(p.bias) + (group * c.outs + m) * c.bias_stride);
    T* out = static_cast<T*>(p.out) + c.out_offset + n * c.out_batch + group * c.out_group + m * c.out_channel;
    write<kBytewise>(out + q * c.out_position, sum);
  }
}

class ScalarCorrelation final : public Part {
 public:
  explicit ScalarCorrelation(const CorrelationProblem& problem) : c_(problem.c) {
    with_dtype(problem.dtype, [&]<class T>(T) { kernel_ = problem.aligned() ? correlate<T, false> : correlate<T, true>; });
    load_kernel(kernel_);
  }
  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_kernel(kernel_, grid_of(c_.batch * c_.groups * c_.outs * c_.length), kThreads, 0, stream, c_, p);
  }

 private:
  Correlation c_;
  void (*kernel_)(Correlation, Operands) = nullptr;
};

// ---- sums: one block for each, in f64 ----

constexpr int kSumThreads = 128;

// The sum over the block; only its first thread gets it.
__device__ double add_threads(double value) {
  __shared__ double values[kSumThreads];
  __syncthreads();
  values[threadIdx.x] = value;
  for (unsigned half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  return values[0];
}

// Element `tap` of grad_w for one output and input channel. kBias: grad_y alone is summed.
template <class T, bool kBytewise, bool kBias>
__device__ double thread_sum(const ConvGeometry& g, const T* grad_y, const T* x, int64_t tap) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < g.batch * g.out_length; i += kSumThreads) {
    const int64_t n = i / g.out_length, t = i % g.out_length;
    const double factor = read<kBytewise>(grad_y + n * g.y.outer + t * g.y.position);
    if constexpr (kBias) {
      sum += factor;
    } else {
      const int64_t position = t * g.stride + tap * g.dilation - g.pad_left;
      if (position < 0 || position >= g.length) continue;
      sum += factor * read<kBytewise>(x + n * g.x.outer + position * g.x.position);
    }
  }
  return sum;
}

template <class T, bool kBytewise, bool kBias>
__global__ void sum_all(const ConvGeometry g, const Strides3 s, const Operands p) {
  const int64_t taps = kBias ? 1 : g.taps, ins = kBias ? 1 : g.ins(), total = g.out_channels * ins * taps;
  for (int64_t i = blockIdx.x; i < total; i += gridDim.x) {
    const int64_t tap = i % taps, channel = i / taps % ins, out = i / taps / ins;
    const T* x = static_cast<const T*>(p.b) + (out / g.outs() * g.ins() + channel) * g.x.channel;
    const double mine = thread_sum<T, kBytewise, kBias>(g, static_cast<const T*>(p.a) + out * g.y.channel, x, tap);
    const double sum = add_threads(mine);
    T* to = static_cast<T*>(p.out) + out * s.outer + channel * s.channel + tap * s.position;
    if (threadIdx.x == 0) write<kBytewise>(to, static_cast<Accumulate<T>>(sum));
  }
}

class ScalarSum final : public Part {
 public:
  explicit ScalarSum(const SumProblem& problem) : g_(problem.g), s_(problem.to.strides), total_(problem.to.size()) {
    const bool bias = problem.of_bias;
    with_dtype(g_.dtype, [&]<class T>(T) {
      kernel_ = problem.aligned() ? (bias ? sum_all<T, false, true> : sum_all<T, false, false>)
                                  : (bias ? sum_all<T, true, true> : sum_all<T, true, false>);
    });
    load_kernel(kernel_);
  }
  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_kernel(kernel_, std::min(total_, kMaxBlocks), kSumThreads, 0, stream, g_, s_, p);
  }

 private:
  ConvGeometry g_;
  Strides3 s_;
  int64_t total_;
  void (*kernel_)(ConvGeometry, Strides3, Operands) = nullptr;
};

// ---- grad_x at once: one thread for each position looks for the outputs that read it ----

template <class T, bool kBytewise>
__device__ Accumulate<T> grad_x_at(const ConvGeometry& g, const T* grad_y, const T* w, int64_t position) {
  Accumulate<T> sum = 0;
  const int64_t padded = position + g.pad_left, before = padded - (g.taps - 1) * g.dilation;
  const int64_t first = before <= 0 ? 0 : (before - 1) / g.stride + 1;
  for (int64_t t = first; t < g.out_length && t * g.stride <= padded; ++t) {
    const int64_t reach = padded - t * g.stride, tap = reach / g.dilation;
    if (tap * g.dilation != reach) continue;
    for (int64_t out = 0; out < g.outs(); ++out)
      sum += read<kBytewise>(grad_y + out * g.y.channel + t * g.y.position) *
             read<kBytewise>(w + out * g.w.outer + tap * g.w.position);
  }
  return sum;
}

template <class T, bool kBytewise>
__global__ void grad_x_at_once(const ConvGeometry g, const Strides3 s, const Operands p) {
  const int64_t total = g.batch * g.in_channels * g.length;
  for (int64_t i = thread_index(); i < total; i += grid_threads()) {
    const int64_t position = i % g.length, channel = i / g.length % g.in_channels, n = i / g.length / g.in_channels;
    const int64_t first_out = channel / g.ins() * g.outs();
    const T* grad_y = static_cast<const T*>(p.a) + n * g.y.outer + first_out * g.y.channel;
    const T* w = static_cast<const T*>(p.b) + first_out * g.w.outer + channel % g.ins() * g.w.channel;
    T* out = static_cast<T*>(p.out) + n * s.outer + channel * s.channel + position * s.position;
    write<kBytewise>(out, grad_x_at<T, kBytewise>(g, grad_y, w, position));
  }
}

class ScalarGradX final : public Part {
 public:
  explicit ScalarGradX(const SumProblem& problem) : g_(problem.g), s_(problem.to.strides) {
    with_dtype(g_.dtype, [&]<class T>(T) { kernel_ = problem.aligned() ? grad_x_at_once<T, false> : grad_x_at_once<T, true>; });
    load_kernel(kernel_);
  }
  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_kernel(kernel_, grid_of(g_.batch * g_.in_channels * g_.length), kThreads, 0, stream, g_, s_, p);
  }

 private:
  ConvGeometry g_;
  Strides3 s_;
  void (*kernel_)(ConvGeometry, Strides3, Operands) = nullptr;
};

// ---- zeros ----

template <class T, bool kBytewise>
__global__ void fill_zero(const FillProblem f, void* out) {
  const Tensor3& to = f.to;
  for (int64_t i = thread_index(); i < to.size(); i += grid_threads()) {
    const int64_t position = i % to.positions, row = i / to.positions;
    write<kBytewise>(static_cast<T*>(out) + row / to.channels * to.strides.outer + row % to.channels * to.strides.channel +
                         position * to.strides.position,
                     Accumulate<T>{0});
  }
}

class FillZero final : public Part {
 public:
  explicit FillZero(const FillProblem& problem) : f_(problem) {
    const bool aligned = f_.align >= size_of(f_.dtype);
    with_dtype(f_.dtype, [&]<class T>(T) { kernel_ = aligned ? fill_zero<T, false> : fill_zero<T, true>; });
    load_kernel(kernel_);
  }
  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_kernel(kernel_, grid_of(f_.to.size()), kThreads, 0, stream, f_, p.out);
  }

 private:
  FillProblem f_;
  void (*kernel_)(FillProblem, void*) = nullptr;
};

}  // namespace

std::unique_ptr<Part> plan_scalar(const CorrelationProblem& problem) { return std::make_unique<ScalarCorrelation>(problem); }
std::unique_ptr<Part> plan_sum_scalar(const SumProblem& problem) { return std::make_unique<ScalarSum>(problem); }
std::unique_ptr<Part> plan_grad_x_scalar(const SumProblem& problem) { return std::make_unique<ScalarGradX>(problem); }
std::unique_ptr<Part> plan_fill_zero(const FillProblem& problem) { return std::make_unique<FillZero>(problem); }

}  // namespace narrows::gpu
