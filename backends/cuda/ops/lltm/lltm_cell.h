// SPDX-License-Identifier: Apache-2.0
// lltm_cell.h -- what the kernels of lltm do with one element and one cell: access at any address, the activations, their
// derivatives, the update.
#pragma once

#include "lltm.h"
#include "ops/bytes.h"
#include "ops/elementwise/elementwise_half.h"

namespace narrows::gpu {

// ---- elements ----

// Aligned: to the element's size; else it is moved byte by byte.
template <class T, bool Aligned>
__device__ __forceinline__ Accumulate<T> read(const Matrix& m, int64_t row, int64_t column) {
  const char* from = m.base + (row * m.row + column * m.column) * static_cast<int64_t>(sizeof(T));
  T element;
  if constexpr (Aligned)
    element = *reinterpret_cast<const T*>(from);
  else
    element = load_bytes<T>(from);
  return widen(element);
}
template <class T, bool Aligned>
__device__ __forceinline__ void write(const Matrix& m, int64_t row, int64_t column, Accumulate<T> value) {
  char* to = m.base + (row * m.row + column * m.column) * static_cast<int64_t>(sizeof(T));
  const T element = narrowed<T>(value);
  if constexpr (Aligned)
    *reinterpret_cast<T*>(to) = element;
  else
    store_bytes(to, element);
}

// ---- activations: all come from exp and expm1 of numbers that are not positive, so nothing overflows and nothing cancels ----

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float exponential_minus_1(float x) { return expm1f(x); }
__device__ __forceinline__ double exponential_minus_1(double x) { return expm1(x); }
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }

// For a divisor from 1 to 4: within 2 ulp, and without the branches for quotients that leave the range of numbers.
__device__ __forceinline__ float ratio(float dividend, float divisor) { return __fdividef(dividend, divisor); }
__device__ __forceinline__ double ratio(double dividend, double divisor) { return dividend / divisor; }

template <class A>
__device__ __forceinline__ A sigmoid(A z) {
  const A e = exponential(-magnitude(z));
  return ratio(z < 0 ? e : A{1}, 1 + e);
}
template <class A>
__device__ __forceinline__ A sigmoid_slope(A z) {
  const A e = exponential(-magnitude(z));
  return ratio(e, (1 + e) * (1 + e));
}
template <class A>
__device__ __forceinline__ A elu(A z) {
  return z > 0 ? z : exponential_minus_1(z);  // a NaN is not above 0, and goes through expm1
}
template <class A>
__device__ __forceinline__ A elu_slope(A z) {
  return z > 0 ? A{1} : exponential(z);
}
// Below 9/16 a polynomial, which was fitted by Chebyshev's method, since a difference would cancel: 0.8 ulp. From there on 1 minus
// what exp(2 * |x|) gives, which may be infinite: 2.1 ulp.
__device__ __forceinline__ float hyperbolic_tangent(float x) {
  const float far = fmaf(-2.f, fast_reciprocal(fast_exp2(magnitude(x) * (2 * kLog2E)) + 1.f), 1.f), t = x * x;
  float p = -0.0065255723893642426f;
  p = fmaf(p, t, 0.021263353526592255f);
  p = fmaf(p, t, -0.053901754319667816f);
  p = fmaf(p, t, 0.13333073258399963f);
  p = fmaf(p, t, -0.3333333134651184f);
  return magnitude(x) < 0.5625f ? fmaf(x * t, p, x) : copysign(far, x);
}
__device__ __forceinline__ double hyperbolic_tangent(double x) {
  const double e = exponential_minus_1(-2 * magnitude(x));  // from -1 to 0
  return copysign(ratio(-e, e + 2), x);
}
// 1 - tanh^2, without the cancellation.
template <class A>
__device__ __forceinline__ A tanh_slope(A x) {
  const A e = exponential(-2 * magnitude(x));
  return ratio(4 * e, (1 + e) * (1 + e));
}

// The largest of one number of every thread of the block, none of them NaN. `shared`: room for them.
template <int Threads, class A>
__device__ __forceinline__ A largest_of_block(A mine, A (&shared)[Threads]) {
  shared[threadIdx.x] = mine;
#pragma unroll
  for (unsigned half = Threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half && shared[threadIdx.x + half] > shared[threadIdx.x]) shared[threadIdx.x] = shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

// ---- cells ----

template <class A>
struct Cell {
  A cell, h;
};
// From the gates before activation, of a state that is stored as T. An h that is rounded to 16 bits needs fewer digits of its
// factors; the cell's terms may cancel.
template <class T, class A>
__device__ __forceinline__ Cell<A> next_cell(const A (&z)[3], A old_cell) {
  const A cell = old_cell + elu(z[2]) * sigmoid(z[0]);
  if constexpr (sizeof(T) == 2)
    return {cell, tanh_half(cell) * sigmoid_half(z[1])};
  else
    return {cell, hyperbolic_tangent(cell) * sigmoid(z[1])};
}

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
  const Cell<A> next = next_cell<T>(z, old_cell);
  write<T, Aligned>(p.new_cell, b, s, next.cell);
  write<T, Aligned>(p.new_h, b, s, next.h);
}
template <class T, bool Aligned, class A = Accumulate<T>>
__device__ __forceinline__ void update_cell(const LltmForward& p, int64_t b, int64_t s, const A (&sums)[3]) {
  A bias[3];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate) bias[gate] = read<T, Aligned>(p.bias, 0, gate * p.state + s);
  update_cell<T, Aligned>(p, b, s, sums, bias, read<T, Aligned>(p.old_cell, b, s));
}

// ---- cells from gates in f32 that an earlier product left in the workspace ----

// A block has kCellThreads states of one row.
inline constexpr int kCellThreads = 256;
__host__ __device__ __forceinline__ int64_t cell_blocks_of_row(int64_t state) { return (state + kCellThreads - 1) / kCellThreads; }

template <class T>
__global__ void __launch_bounds__(kCellThreads) lltm_cells_kernel(LltmForward p) {
  const auto of_row = static_cast<unsigned>(cell_blocks_of_row(p.state));
  const int64_t b = blockIdx.x / of_row, s = int64_t{blockIdx.x % of_row} * kCellThreads + threadIdx.x;
  if (s >= p.state) return;
  const float* gates = reinterpret_cast<const float*>(p.workspace) + b * 3 * p.state + s;
  update_cell<T, true>(p, b, s, {gates[0], gates[p.state], gates[2 * p.state]});
}

}  // namespace narrows::gpu
