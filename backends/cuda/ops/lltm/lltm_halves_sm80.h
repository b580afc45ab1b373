// SPDX-License-Identifier: Apache-2.0
// lltm_halves_sm80.h -- the gradient of the gates as two elements of 16 bits, for the kernels of lltm_backward on NVIDIA's 16-bit
// matrix units. They take 16 bits, and the gradient of a gate has 24: it is split into the sum of two elements (lltm_split.h),
// where it lies. 64 gradients of a row, 256 bytes, become their 64 first parts and then their 64 second ones. Rows are whole such
// chunks; what follows the last gate is 0. A product is the sum of one over each of the two parts, side by side.
#pragma once

#include "lltm_backward.h"
#include "lltm_split.h"

namespace narrows::gpu {

// Of the elements of 16 bits.
template <class T>
constexpr Dtype kDtype = std::is_same_v<T, f16> ? Dtype::f16 : Dtype::bf16;

// Where part `part` of a gradient begins, in elements of 16 bits from the first; `pitch`: gates from row to row, whole chunks.
__host__ __device__ __forceinline__ int64_t half_at(int64_t pitch, int64_t row, int64_t gate, int part) {
  return 2 * (row * pitch + gate / kLltmChunk * kLltmChunk) + part * kLltmChunk + gate % kLltmChunk;
}

void load_lltm_split(Dtype dtype);
// Of products.gate_grads, of (batch, gates) elements of f32, gates in whole eights.
void launch_lltm_split(Dtype dtype, const LltmProducts& products, int64_t batch, int64_t gates, gpuStream_t stream);

// Sizes of the gradients, which each product tells.
inline int64_t batch_of(const LltmProduct& product) { return product.to_weights ? product.depth : product.rows; }
inline int64_t gates_of(const LltmProduct& product) { return product.to_weights ? product.rows : product.depth; }

// Stores a slice's sums over both parts: two neighbouring columns at a time, of which the first is even. Columns come in whole
// eights.
template <class T>
class LltmHalvesStore {
 public:
  __device__ LltmHalvesStore(const LltmProducts& p, const LltmProduct& product, int64_t slice)
      : product_(product), unscale_(*p.unscale),
        partial_(product.slices > 1
                     ? reinterpret_cast<float*>(p.partials) + product.partial + slice * product.rows * product.columns
                     : nullptr),
        pairs_(product.out.column == 1 && product.out.row % 2 == 0 && reinterpret_cast<uintptr_t>(product.out.base) % 4 == 0) {}

  __device__ __forceinline__ void operator()(int64_t row, int64_t column, const float* first, const float* second) const {
    if (row >= product_.rows || column >= product_.columns) return;
    const float2 sums = {unscale_ * add_second(first[0], second[0]), unscale_ * add_second(first[1], second[1])};
    if (partial_ != nullptr) {
      *reinterpret_cast<float2*>(partial_ + row * product_.columns + column) = sums;
    } else if (pairs_) {
      *reinterpret_cast<uint32_t*>(at<T>(product_.out, row, column)) = narrow_pair(sums.x, sums.y, T{});
    } else {
      *at<T>(product_.out, row, column) = narrowed<T>(sums.x);
      *at<T>(product_.out, row, column + 1) = narrowed<T>(sums.y);
    }
  }

 private:
  const LltmProduct& product_;
  float unscale_;
  float* partial_;  // nullptr: one slice has the whole sum
  bool pairs_;      // two neighbours are a whole word of the output
};

}  // namespace narrows::gpu
