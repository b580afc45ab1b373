// SPDX-License-Identifier: Apache-2.0
// lltm_scalar.cpp -- lltm and its gradients as plain loops with the C library's functions: the baseline that the other kernel is
// measured and checked against.
#include <cmath>

#include "lltm.h"

namespace narrows::cpu {
namespace {

template <class A>
A exp_of_negative(A z) {
  return std::exp(-std::abs(z));
}
template <class A>
A sigmoid(A z) {
  const A e = exp_of_negative(z);
  return (z < 0 ? e : A{1}) / (1 + e);
}
template <class A>
A sigmoid_slope(A z) {
  const A e = exp_of_negative(z);
  return e / ((1 + e) * (1 + e));
}
template <class A>
A elu(A z) {
  return z > 0 ? z : std::expm1(z);
}
template <class A>
A elu_slope(A z) {
  return z > 0 ? A{1} : std::exp(z);
}
template <class A>
A tanh_slope(A x) {
  const A e = exp_of_negative(2 * x);
  return 4 * e / ((1 + e) * (1 + e));
}

template <class T>
Accumulate<T> element(const Matrix& m, int64_t row, int64_t column) {
  return read(m.at<const T>(row, column));
}

template <class T>
Accumulate<T> gate_at(const LltmSizes& sizes, const LltmForward& t, int64_t b, int64_t column) {
  Accumulate<T> sum = 0;
  for (int64_t k = 0; k < sizes.state; ++k) sum += element<T>(t.old_h, b, k) * element<T>(t.weights, column, k);
  for (int64_t k = 0; k < sizes.features; ++k) sum += element<T>(t.input, b, k) * element<T>(t.weights, column, sizes.state + k);
  return sum + element<T>(t.bias, 0, column);
}

template <class T, class A = Accumulate<T>>
void cell(const LltmSizes& sizes, const LltmForward& t, int64_t b, int64_t s) {
  A z[3];
  for (int64_t gate = 0; gate < 3; ++gate) {
    z[gate] = gate_at<T>(sizes, t, b, gate * sizes.state + s);
    if (t.gates.base != nullptr) write(t.gates.at<A>(b, gate * sizes.state + s), z[gate]);
  }
  const A new_cell = element<T>(t.old_cell, b, s) + elu(z[2]) * sigmoid(z[0]);
  write(t.new_cell.at<T>(b, s), new_cell);
  write(t.new_h.at<T>(b, s), std::tanh(new_cell) * sigmoid(z[1]));
}

template <class T, class A = Accumulate<T>>
void gate_grads(const LltmSizes& sizes, const LltmBackward& t, int64_t b, int64_t s) {
  const A z_in = element<A>(t.gates, b, s), z_out = element<A>(t.gates, b, sizes.state + s);
  const A z_candidate = element<A>(t.gates, b, 2 * sizes.state + s), new_cell = element<T>(t.new_cell, b, s);
  const A grad_h = t.grad_h.base != nullptr ? element<T>(t.grad_h, b, s) : 0;
  const A grad_cell = t.grad_cell.base != nullptr ? element<T>(t.grad_cell, b, s) : 0;
  const A d_cell = tanh_slope(new_cell) * sigmoid(z_out) * grad_h + grad_cell;
  *t.gate_grads.at<A>(b, s) = elu(z_candidate) * d_cell * sigmoid_slope(z_in);
  *t.gate_grads.at<A>(b, sizes.state + s) = std::tanh(new_cell) * grad_h * sigmoid_slope(z_out);
  *t.gate_grads.at<A>(b, 2 * sizes.state + s) = sigmoid(z_in) * d_cell * elu_slope(z_candidate);
  if (t.d_old_cell.base != nullptr) write(t.d_old_cell.at<T>(b, s), d_cell);
}

// out[i, j] = sum over k of term(i, j, k), if out is wanted.
template <class T, class Term>
void sums(const Instance& instance, const Matrix& out, int64_t rows, int64_t columns, int64_t depth, Term&& term) {
  if (out.base == nullptr) return;
  run_tasks(instance, rows * columns, static_cast<double>(depth), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Accumulate<T> sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += term(i / columns, i % columns, k);
      write(out.at<T>(i / columns, i % columns), sum);
    }
  });
}

}  // namespace

void lltm_scalar(const Instance& instance, const LltmSizes& sizes, const LltmForward& t) {
  with_dtype(sizes.dtype, [&]<class T>(T) {
    const auto cost = 3 * static_cast<double>(sizes.state + sizes.features) + kActivationCost;
    run_tasks(instance, sizes.batch * sizes.state, cost, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) cell<T>(sizes, t, i / sizes.state, i % sizes.state);
    });
  });
}

void lltm_backward_scalar(const Instance& instance, const LltmSizes& sizes, const LltmBackward& t) {
  const int64_t batch = sizes.batch, features = sizes.features, state = sizes.state;
  with_dtype(sizes.dtype, [&]<class T>(T) {
    using A = Accumulate<T>;
    run_tasks(instance, batch * state, kDerivativeCost, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) gate_grads<T>(sizes, t, i / state, i % state);
    });
    const auto grad = [&](int64_t b, int64_t column) { return element<A>(t.gate_grads, b, column); };
    sums<T>(instance, t.d_old_h, batch, state, 3 * state,
            [&](int64_t b, int64_t s, int64_t k) { return grad(b, k) * element<T>(t.weights, k, s); });
    sums<T>(instance, t.d_input, batch, features, 3 * state,
            [&](int64_t b, int64_t f, int64_t k) { return grad(b, k) * element<T>(t.weights, k, state + f); });
    sums<T>(instance, t.d_weights, 3 * state, state + features, batch, [&](int64_t row, int64_t column, int64_t b) {
      return grad(b, row) * (column < state ? element<T>(t.old_h, b, column) : element<T>(t.input, b, column - state));
    });
    sums<T>(instance, t.d_bias, 1, 3 * state, batch, [&](int64_t, int64_t column, int64_t b) { return grad(b, column); });
  });
}

}  // namespace narrows::cpu
