// SPDX-License-Identifier: Apache-2.0
// lltm_product_scalar.comp -- a product of lltm's gradients, one thread for each result: any strides, any alignment.
#version 460
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "lltm_product.glsl"

layout(constant_id = 1) const bool kToWeights = false;

layout(local_size_x = 64) in;

void main() {
  const int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x, row = i / p.columns, column = i % p.columns;
  if (row >= p.rows) return;
  ACC sum = ACC(0);
  for (int64_t k = 0; k < p.depth; ++k) {
    const int64_t at = kToWeights ? k * p.pitch + row : row * p.pitch + k;
    const ACC grad = load_sum(p.gate_grads + uint64_t(at * kAccSize));
    sum += p.operand == 0 ? grad : grad * load(p.operand + uint64_t((k * p.operand_row + column * p.operand_column) * kSize));
  }
  store(p.to + uint64_t((row * p.to_row + column * p.to_column) * kSize), sum);
}
