// SPDX-License-Identifier: Apache-2.0
// lltm_library_backward.cu -- what surrounds the library's products in lltm_backward: the split of the gates' gradients, the
// operands below each other, the sums. lltm_library.h has the whole.
#include <type_traits>

#include "lltm_cell.h"
#include "lltm_library.h"
#include "lltm_split.h"

namespace narrows::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostSplitBlocks = 2048;

// What undoes the scale, and the 0 that is the library's other factor.
struct Factors {
  float unscale, zero;
};

// Two neighbours, the first in the lower bits.
template <class T>
__device__ __forceinline__ uint32_t pack(T first, T second) {
  const T pair[2] = {first, second};
  uint32_t bits;
  memcpy(&bits, pair, 4);
  return bits;
}

// halves = [first parts; second parts] of `count` gradients, a multiple of 4. Every block finds the scale again, block 0 keeps it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    split_kernel(const float* grads, int64_t count, const float* largest, int64_t num_largest, T* halves, Factors* factors) {
  Scale scale = {1, 1};
  if constexpr (std::is_same_v<T, f16>) {
    __shared__ float found[kThreads];
    float most = 0;
    for (int64_t i = threadIdx.x; i < num_largest; i += kThreads) most = fmaxf(most, largest[i]);
    scale = scale_for(largest_of_block<kThreads>(most, found));
  }
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread == 0) *factors = {scale.down, 0};
  for (int64_t i = 4 * thread; i < count; i += int64_t{4} * gridDim.x * kThreads) {
    const float4 x = *reinterpret_cast<const float4*>(grads + i);
    const Halves<T> h[4] = {split<T>(x.x * scale.up), split<T>(x.y * scale.up), split<T>(x.z * scale.up), split<T>(x.w * scale.up)};
    *reinterpret_cast<uint2*>(halves + i) = make_uint2(pack(h[0].first, h[1].first), pack(h[2].first, h[3].first));
    *reinterpret_cast<uint2*>(halves + count + i) = make_uint2(pack(h[0].second, h[1].second), pack(h[2].second, h[3].second));
  }
}

// stacked = [X; X] with X = [old_h, input], a block for each of X's rows. What is not finite stands in the first alone: the
// products of first parts have its infinities and NaN, and those of second parts, of any sign, must not take them away.
template <class T>
__global__ void __launch_bounds__(kThreads)
    stack_kernel(Matrix old_h, Matrix input, int64_t batch, int64_t state, int64_t features, T* stacked) {
  const int64_t b = blockIdx.x, columns = state + features;
  for (int64_t k = threadIdx.x; k < columns; k += kThreads) {
    const float x = k < state ? read<T, true>(old_h, b, k) : read<T, true>(input, b, k - state);
    stacked[b * columns + k] = narrowed<T>(x);
    stacked[(batch + b) * columns + k] = narrowed<T>(is_finite(x) ? x : 0);
  }
}

// The sums of both halves, of the columns [first, first + columns) of [old_h, input], a block for each row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_halves_kernel(const float* sums, const Factors* factors, int64_t batch, int64_t state, int64_t first, int64_t columns,
                      Matrix d_old_h, Matrix d_input) {
  const int64_t b = blockIdx.x;
  const float unscale = factors->unscale;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const int64_t k = first + i;
    const float sum = unscale * add_second(sums[b * columns + i], sums[(batch + b) * columns + i]);
    if (k < state)
      write<T, true>(d_old_h, b, k, sum);
    else
      write<T, true>(d_input, b, k - state, sum);
  }
}

// out = unscale * sums, a block for each row.
template <class T>
__global__ void __launch_bounds__(kThreads) unscale_kernel(const float* sums, const Factors* factors, int64_t columns, Matrix out) {
  const int64_t row = blockIdx.x;
  const float unscale = factors->unscale;
  for (int64_t k = threadIdx.x; k < columns; k += kThreads) write<T, true>(out, row, k, unscale * sums[row * columns + k]);
}

// ---- the plan ----

template <class T>
class Products final : public LltmLibraryProducts {
 public:
  Products(const Device& device, const LltmSizes& sizes, Wanted wanted, int64_t weights_pitch, int64_t d_weights_pitch,
           std::string* reason)
      : z_(sizes), gates_(3 * sizes.state), in_sums_(library_sums_size(sizes) > 0) {
    const auto plan = [&](const GemmShape& shape) {
      auto gemm = plan_gemm(device.id, shape, reason);
      if (gemm != nullptr) *reason = warm_up(*gemm, shape);
      return gemm;
    };
    first_ = wanted.d_old_h ? 0 : z_.state;
    columns_ = (wanted.d_input ? z_.state + z_.features : z_.state) - first_;
    if (columns_ > 0)
      toward_inputs_ = plan({z_.dtype,
                             Dtype::f32,
                             2 * z_.batch,
                             columns_,
                             gates_,
                             {gates_, false},
                             {weights_pitch, false},
                             {columns_, false},
                             false});
    if (!reason->empty()) return;
    if (d_weights_pitch > 0)
      toward_weights_ = plan({z_.dtype,
                              in_sums_ ? Dtype::f32 : z_.dtype,
                              gates_,
                              z_.state + z_.features,
                              2 * z_.batch,
                              {gates_, true},
                              {z_.state + z_.features, false},
                              {in_sums_ ? z_.state + z_.features : d_weights_pitch, false},
                              blaslt::kReadsFactorsOnDevice});
    if (!reason->empty()) return;
    reserve();
    load_kernel(split_kernel<T>), load_kernel(stack_kernel<T>), load_kernel(add_halves_kernel<T>), load_kernel(unscale_kernel<T>);
  }

  void launch(const LltmLibraryGradients& t, gpuStream_t stream) const override {
    auto* halves = reinterpret_cast<T*>(t.workspace + halves_);
    auto* factors = reinterpret_cast<Factors*>(t.workspace + factors_);
    launch_kernel(split_kernel<T>, std::min(ceil_div(z_.batch * gates_ / 4, kThreads), kMostSplitBlocks), kThreads, 0, stream,
                  reinterpret_cast<const float*>(t.gate_grads.base), z_.batch * gates_, t.largest, t.num_largest, halves, factors);
    if (toward_inputs_ != nullptr) launch_toward_inputs(t, halves, factors, stream);
    if (toward_weights_ != nullptr) launch_toward_weights(t, halves, factors, stream);
  }

 private:
  void launch_toward_inputs(const LltmLibraryGradients& t, const T* halves, const Factors* factors, gpuStream_t stream) const {
    constexpr float kZero = 0, kOne = 1;
    auto* sums = reinterpret_cast<float*>(t.workspace + sums_);
    toward_inputs_->launch(&kOne, halves, reinterpret_cast<const T*>(t.weights.base) + first_, &kZero, sums, t.workspace + gemm_,
                           stream);
    launch_kernel(add_halves_kernel<T>, z_.batch, kThreads, 0, stream, sums, factors, z_.batch, z_.state, first_, columns_,
                  t.d_old_h, t.d_input);
  }

  void launch_toward_weights(const LltmLibraryGradients& t, const T* halves, const Factors* factors, gpuStream_t stream) const {
    constexpr float kZero = 0, kOne = 1;
    auto* stacked = reinterpret_cast<T*>(t.workspace + stacked_);
    launch_kernel(stack_kernel<T>, z_.batch, kThreads, 0, stream, t.old_h, t.input, z_.batch, z_.state, z_.features, stacked);
    const bool on_device = blaslt::kReadsFactorsOnDevice;  // bf16's scale is 1
    char* const out = in_sums_ ? t.workspace + weight_sums_ : t.d_weights.base;
    toward_weights_->launch(on_device ? &factors->unscale : &kOne, halves, stacked, on_device ? &factors->zero : &kZero, out,
                            t.workspace + gemm_, stream);
    if (in_sums_)
      launch_kernel(unscale_kernel<T>, gates_, kThreads, 0, stream, reinterpret_cast<const float*>(out), factors,
                    z_.state + z_.features, t.d_weights);
  }

  // Where each thing lies in the workspace, at multiples of 256 bytes.
  void reserve() {
    const auto take = [&](int64_t bytes) {
      const uint64_t at = workspace_size;
      workspace_size += static_cast<uint64_t>(ceil_div(bytes, 256) * 256);
      return at;
    };
    const int64_t half = z_.batch * (z_.state + z_.features);
    factors_ = take(sizeof(Factors));
    halves_ = take(2 * z_.batch * gates_ * 2);
    if (toward_weights_ != nullptr) stacked_ = take(2 * half * 2);
    if (toward_weights_ != nullptr) weight_sums_ = take(library_sums_size(z_));
    if (toward_inputs_ != nullptr) sums_ = take(2 * z_.batch * columns_ * 4);
    gemm_ = workspace_size;
    uint64_t most = 0;
    for (const Gemm* gemm : {toward_inputs_.get(), toward_weights_.get()})
      if (gemm != nullptr) most = std::max(most, gemm->workspace_size);
    workspace_size += most;
  }

  LltmSizes z_;
  int64_t gates_;
  bool in_sums_;  // d_weights comes in f32
  int64_t first_, columns_;
  std::unique_ptr<const Gemm> toward_inputs_, toward_weights_;
  uint64_t factors_ = 0, halves_ = 0, stacked_ = 0, weight_sums_ = 0, sums_ = 0, gemm_ = 0;
};

}  // namespace

std::unique_ptr<const LltmLibraryProducts> LltmLibraryProducts::plan(const Device& device, const LltmSizes& sizes, Wanted wanted,
                                                                     int64_t weights_pitch, int64_t d_weights_pitch,
                                                                     std::string* reason) {
  const auto made = [&]<class T>(T) -> std::unique_ptr<const LltmLibraryProducts> {
    auto products = std::make_unique<Products<T>>(device, sizes, wanted, weights_pitch, d_weights_pitch, reason);
    if (!reason->empty()) return nullptr;
    return products;
  };
  return sizes.dtype == Dtype::f16 ? made(f16{}) : made(bf16{});
}

}  // namespace narrows::gpu
