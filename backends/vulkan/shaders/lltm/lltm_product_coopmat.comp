// SPDX-License-Identifier: Apache-2.0
// lltm_product_coopmat.comp -- a product of lltm's gradients by the matrix unit: the gradients of the gates, in two parts of f16 or
// bf16, times an operand of that dtype, its depth in slices. Of a subgroup's rows of matrices the first half are rows of first parts, the second half the same rows of
// second parts, whose sums are added at the end.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "lltm_product.glsl"

layout(constant_id = 12) const bool kToWeights = false;
layout(constant_id = 13) const bool kWhole = false;        // the operand's rows are whole eights, and lie where these may be read
layout(constant_id = 14) const bool kOutTogether = false;  // so do the result's

const bool kLeftAcross = kToWeights;
const int kAtLeast = 0;
#define kSlots (kColumnMatrices % 2 == 0 ? 2 : 1)
int first_stage, slice, row0, column0;  // of the slice; of the tile
uvec4 left(int i, int row, int stage, int k);
void right(int i, int column, int stage, int k);
uvec4 right_eight(int i, int b);
#define ACROSS
#define WRITES_EIGHTS
#include "gemm/gemm_coopmat.glsl"

// Of the tile's rows these are the subgroup's, and of the product's.
const int kOfSubgroup = kRowMatrices * kM, kOfPart = kOfSubgroup / 2;
int row_of(int row) { return row0 + row / kOfSubgroup * kOfPart + row % kOfPart; }

// There are zeros where a stage ends behind the last gradient. Rows that are not there are not used: others are read in their place.
uvec4 left(int i, int row, int stage, int k) {
  const int at = (first_stage + stage) * kDepth + k, width = int(p.pitch / 2);
  const int batch = kToWeights ? at : min(row_of(row), int(p.rows) - 1), gate = kToWeights ? min(row_of(row), width - 8) : at;
  const int second = row % kOfSubgroup >= kOfPart ? width : 0;
  return FourWords(p.gate_grads + uint64_t((batch * p.pitch + second + gate) * kSize)).v;
}

bool is_there[kRightLoads];  // kWhole: what is not is read elsewhere, and put as zeros
void right(int i, int column, int stage, int k) {
  const int row = (first_stage + stage) * kDepth + k, at = column0 + column;
  if (kWhole) {
    is_there[i] = row < p.depth;
    const int64_t element = min(row, int(p.depth) - 1) * p.operand_row + min(at, int(p.columns) - 8);
    right_held[i] = FourWords(p.operand + uint64_t(element * kSize)).v;
    return;
  }
  uvec4 values = uvec4(0);
  [[unroll]] for (int j = 0; j < 8; ++j)
    if (row < p.depth && at + j < p.columns)
      values[j / 2] |= bits_16(p.operand + uint64_t((row * p.operand_row + (at + j) * p.operand_column) * kSize)) << (j % 2 * 16);
  right_held[i] = values;
}
uvec4 right_eight(int i, int b) { return kWhole && !is_there[i] ? uvec4(0) : right_held[i]; }

// Where an operand was infinite the sum over first parts shows it, and that over second ones, of any sign, is left out.
void add_second() {
#ifdef DTYPE_F16
  const float unscale = load_sum(p.unscale);
#else
  const float unscale = 1.0;
#endif
  [[unroll]] for (int i = 0; i < kRowMatrices / 2; ++i)
    [[unroll]] for (int j = 0; j < kColumnMatrices; ++j) {
      const int first = i * kColumnMatrices + j, second = first + kRowMatrices / 2 * kColumnMatrices;
      for (int e = 0; e < sums[first].length(); ++e) {
        const float x = sums[first][e];
        const bool is_finite = (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u;
        sums[first][e] = (is_finite ? x + sums[second][e] : x) * unscale;
      }
    }
}

void write_eight(int tile_row, int tile_column, vec4 four, vec4 next) {
  const int row = row_of(tile_row), column = column0 + tile_column;
  if (row >= p.rows || column >= p.columns) return;
  const uint64_t to = p.slices > 1 ? p.partial + uint64_t(((slice * p.rows + row) * p.columns + column) * kAccSize)
                                   : p.to + uint64_t((row * p.to_row + column * p.to_column) * kSize);
  if (kOutTogether) {
    if (p.slices > 1) {
      store_acc4(to, four);
      store_acc4(to + 16, next);
    } else {
      store8(to, four, next);
    }
    return;
  }
  [[unroll]] for (int k = 0; k < 8; ++k) {
    if (column + k >= p.columns) break;
    const float sum = k < 4 ? four[k % 4] : next[k % 4];
    if (p.slices > 1)
      store_sum(to + uint64_t(k * kAccSize), sum);
    else
      store(to + uint64_t(k * p.to_column * kSize), sum);
  }
}

void main() {
  const uint block = flat_group();
  if (block >= p.blocks) return;
  slice = int(block % p.slices);
  const int tile = int(block / p.slices);
  row0 = tile / int(p.column_tiles) * (kTileRows / 2), column0 = tile % int(p.column_tiles) * kTileColumns;
  first_stage = slice_begin(p.stages, int(p.slices), slice);
  multiply(slice_begin(p.stages, int(p.slices), slice + 1) - first_stage);
  add_second();
  write_sums(kRowMatrices / 2);
}
