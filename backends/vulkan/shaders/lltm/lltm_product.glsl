// SPDX-License-Identifier: Apache-2.0
// lltm_product.glsl -- a product of lltm's gradients: out[i, j] = sum over k of gate_grads * operand, toward the inputs
// gate_grads[i, k] * operand[k, j], toward the weights gate_grads[k, i] * operand[k, j]. An absent operand is all ones, which makes
// the sums that d_bias is. As ProductPush of ops/lltm/lltm_backward.cpp.
//
// lltm_product_coopmat.comp is given the gradients in two parts, as lltm_split.comp leaves them.

layout(push_constant) uniform Push {
  uint64_t gate_grads, operand, to, partial;  // partial[slice][i][j]: where the sum is cut into slices
  int64_t operand_row, operand_column, to_row, to_column, pitch;  // strides in elements
  int64_t rows, columns, depth;
  uint slices, column_tiles, blocks;
  int stages;  // depth in stages
  uint64_t unscale;  // of gradients in two parts of f16: the f32 that sums are multiplied by
} p;
