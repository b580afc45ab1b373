// SPDX-License-Identifier: Apache-2.0
// gemm_matrix.glsl -- a matrix of any strides as an operand of gemm.glsl.

struct Matrix {
  uint64_t base;            // address of the first element
  int64_t row, depth;       // strides in elements
  int rows, depth_extent;
};

// Four elements from (row, k) on, along k or along the rows. together: that way the stride is 1, and such fours lie where load4()
// may read them; the last one may be cut.
ACC4 load_group(Matrix m, int row, int k, bool along_depth, bool together) {
  const int left = along_depth ? (row < m.rows ? m.depth_extent - k : 0) : (k < m.depth_extent ? m.rows - row : 0);
  const int64_t step = along_depth ? m.depth : m.row;
  const uint64_t at = m.base + uint64_t((row * m.row + k * m.depth) * kSize);
  if (together && left >= 4) return load4(at);
  ACC4 group = ACC4(0);
  [[unroll]] for (int i = 0; i < 4; ++i)
    if (i < left) group[i] = load(at + uint64_t(i * step * kSize));
  return group;
}
