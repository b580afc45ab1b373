// lltm_product_scalar.comp -- a product of lltm's gradients, one thread for each result of each slice: any strides, any
// alignment.
#version 460
#include "common.glsl"
#include "gemm_elements.glsl"
#include "lltm_product.glsl"

layout(constant_id = 1) const bool kToWeights = false;

layout(local_size_x = 64) in;

void main() {
  const int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x, results = p.rows * p.columns;
  const int64_t slice = i / results, row = i % results / p.columns, column = i % p.columns;
  if (slice >= p.slices) return;
  const int64_t length = (p.depth + p.slices - 1) / p.slices, end = min((slice + 1) * length, p.depth);
  ACC sum = ACC(0);
  for (int64_t k = slice * length; k < end; ++k) {
    const int64_t at = kToWeights ? k * p.pitch + row : row * p.pitch + k;
    const ACC grad = load_sum(p.gate_grads + uint64_t(at * kAccSize));
    sum += p.operand == 0 ? grad : grad * load(p.operand + uint64_t((k * p.operand_row + column * p.operand_column) * kSize));
  }
  if (p.slices > 1)
    store_sum(p.partial + uint64_t(i * kAccSize), sum);
  else
    store(p.to + uint64_t((row * p.to_row + column * p.to_column) * kSize), sum);
}
