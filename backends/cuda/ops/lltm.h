// lltm.h -- the tensors of lltm and its gradients in kernels, and the variants that the plans choose from. Step 5 of a tensor's
// path. G = [old_h, input] * weights^T + bias is the gates before activation: input gate, output gate and candidate, each `state`
// wide. The left operand is never built: the product is a sum of two, over the two column ranges of weights.
#pragma once

#include "common/lltm.h"
#include "dtype.h"
#include "lltm_math.h"

namespace narrows::gpu {

// A (rows, columns) tensor of a call, of elements that the kernel knows; base nullptr: absent. The base may have any alignment.
struct Matrix {
  char* base = nullptr;
  int64_t row = 0, column = 0;  // strides in elements
};

template <class T>
__host__ __device__ __forceinline__ T* at(const Matrix& m, int64_t row, int64_t column) {
  return reinterpret_cast<T*>(m.base) + (row * m.row + column * m.column);
}

// Aligned: to the element's size; else it is moved byte by byte.
template <class T, bool Aligned>
__device__ __forceinline__ Accumulate<T> read(const Matrix& m, int64_t row, int64_t column) {
  const char* from = m.base + (row * m.row + column * m.column) * static_cast<int64_t>(sizeof(T));
  T element;
  if constexpr (Aligned)
    element = *reinterpret_cast<const T*>(from);
  else
    memcpy(&element, from, sizeof(T));
  return widen(element);
}
template <class T, bool Aligned>
__device__ __forceinline__ void write(const Matrix& m, int64_t row, int64_t column, Accumulate<T> value) {
  char* to = m.base + (row * m.row + column * m.column) * static_cast<int64_t>(sizeof(T));
  const T element = narrowed<T>(value);
  if constexpr (Aligned)
    *reinterpret_cast<T*>(to) = element;
  else
    memcpy(to, &element, sizeof(T));
}

// ---- forward ----

struct LltmForward {
  int64_t batch, features, state;
  Matrix input, weights, bias, old_h, old_cell;  // bias is one row
  Matrix new_h, new_cell, gates;                 // gates are of the accumulator's dtype
};

// The cell of row b and state s from its gates without bias: writes all that is wanted of it.
template <class T, bool Aligned, class A = Accumulate<T>>
__device__ __forceinline__ void update_cell(const LltmForward& p, int64_t b, int64_t s, const A (&sums)[3], const A (&bias)[3],
                                            A old_cell) {
  A z[3];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate) {
    z[gate] = sums[gate] + bias[gate];
    if (p.gates.base != nullptr) write<A, Aligned>(p.gates, b, gate * p.state + s, z[gate]);
  }
  const A new_cell = old_cell + elu(z[2]) * sigmoid(z[0]);
  write<T, Aligned>(p.new_cell, b, s, new_cell);
  write<T, Aligned>(p.new_h, b, s, hyperbolic_tangent(new_cell) * sigmoid(z[1]));
}
template <class T, bool Aligned, class A = Accumulate<T>>
__device__ __forceinline__ void update_cell(const LltmForward& p, int64_t b, int64_t s, const A (&sums)[3]) {
  A bias[3];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate) bias[gate] = read<T, Aligned>(p.bias, 0, gate * p.state + s);
  update_cell<T, Aligned>(p, b, s, sums, bias, read<T, Aligned>(p.old_cell, b, s));
}

// What a variant is asked with; `aligned`: every tensor to its element's size.
struct LltmRequest {
  const nw_sig& sig;
  const Device& device;
  LltmSizes sizes;
  bool aligned;
};
// A variant's answer; kernel nullptr: it isn't made for this request.
struct LltmChoice {
  void (*kernel)(LltmForward) = nullptr;
  int64_t blocks = 0;
  int threads = 0;
  size_t shared = 0;  // dynamic
};
enum LltmInput : uint32_t { kLltmInput, kLltmWeights, kLltmBias, kLltmOldH, kLltmOldCell };

LltmChoice lltm_scalar(const LltmRequest& request);  // takes everything
LltmChoice lltm_fused(const LltmRequest& request);   // takes what is aligned

}  // namespace narrows::gpu
