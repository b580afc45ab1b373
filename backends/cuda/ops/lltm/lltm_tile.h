// SPDX-License-Identifier: Apache-2.0
// lltm_tile.h -- which tile a block of lltm_backward's products makes.
#pragma once

#include "lltm_backward.h"
#include "ops/gemm/tile_gemm.h"

namespace narrows::gpu {

// The product that a block works on. Without a run-time index into the kernel's parameters, which would copy them to local memory.
__device__ __forceinline__ LltmProduct product_of(const LltmProducts& p, int64_t block) {
  int found = 0;
  for (int i = 1; i < kMaxLltmProducts; ++i) found += i < p.count && block >= p.list[i].first_block ? 1 : 0;
  LltmProduct product = p.list[0];
  for (int i = 1; i < kMaxLltmProducts; ++i)
    if (i == found) product = p.list[i];
  return product;
}

// A block's tile of its product, and the slice of the reduction that it adds up, in stages.
struct LltmTile {
  int64_t row0, column0, slice, begin, end;
};
__device__ __forceinline__ LltmTile tile_of(const LltmProduct& product, int64_t block, int rows, int columns, int depth) {
  const int64_t column_tiles = (product.columns + columns - 1) / columns, number = block - product.first_block;
  const int64_t tile = number / product.slices, slice = number % product.slices, stages = (product.depth + depth - 1) / depth;
  return {tile / column_tiles * rows, tile % column_tiles * columns, slice, slice_begin(stages, product.slices, slice),
          slice_begin(stages, product.slices, slice + 1)};
}

}  // namespace narrows::gpu
