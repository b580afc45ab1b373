// SPDX-License-Identifier: Apache-2.0
// lltm.h -- the tensors of lltm and its gradients. The left operand of G = [old_h, input] * weights^T + bias is never built: the
// product is a sum of two, over the two column ranges of weights.
#pragma once

#include "backend.h"
#include "common/lltm.h"
#include "ops/float_types.h"
#include "ops/gemm/gemm.h"
#include "ops/tasks.h"

namespace narrows::cpu {

// A (rows, columns) tensor of a call; base NULL: absent. Its dtype is the op's, or the accumulator's.
struct Matrix {
  void* base = nullptr;
  Strides2 strides;
  template <class T>
  T* at(int64_t row, int64_t column) const {
    return static_cast<T*>(base) + row * strides.row + column * strides.column;
  }
};

// What the activations of one state cost, and their derivatives, in multiply-adds.
inline constexpr double kActivationCost = 100, kDerivativeCost = 200;

// The tensors of a forward call.
struct LltmForward {
  Matrix input, weights, bias, old_h, old_cell;  // bias is one row
  Matrix new_h, new_cell, gates;                 // gates are of the accumulator's dtype
};
void lltm_scalar(const Instance& instance, const LltmSizes& sizes, const LltmForward& tensors);

// The tensors of a backward call. gate_grads (batch, 3 * state) is workspace: the gradient of G, of the accumulator's dtype.
struct LltmBackward {
  Matrix grad_h, grad_cell, input, weights, old_h, new_cell, gates;
  Matrix d_input, d_weights, d_bias, d_old_h, d_old_cell;
  Matrix gate_grads;
};
void lltm_backward_scalar(const Instance& instance, const LltmSizes& sizes, const LltmBackward& tensors);

}  // namespace narrows::cpu
