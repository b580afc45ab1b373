// SPDX-License-Identifier: Apache-2.0
// gemm.h -- what conv1d, lltm and their gradients share: the modules of a dtype, the tiles of shaders/gemm/gemm.glsl, the sums of a
// reduction cut into slices, zeros.
#pragma once

#include "backend.h"
#include "common/float_dtype.h"
#include "common/tensors.h"

namespace narrows::vulkan {

// A module for each dtype, in the order of common::Dtype.
struct ByDtype {
  const Shader* modules[4];
  const Shader& of(Dtype dtype) const { return *modules[static_cast<int>(dtype)]; }
};
#define NARROWS_BY_DTYPE(name)                                                                \
  ByDtype {                                                                                   \
    {                                                                                         \
      &shaders::name##_f32, &shaders::name##_f64, &shaders::name##_f16, &shaders::name##_bf16 \
    }                                                                                         \
  }

// A module for each dtype that matrix units multiply.
struct MatrixModules {
  const Shader *f16, *bf16;
  const Shader& of(Dtype dtype) const { return dtype == Dtype::bf16 ? *bf16 : *f16; }
};
#define NARROWS_MATRIX_MODULES(name) \
  MatrixModules { &shaders::name##_f16, &shaders::name##_bf16 }

inline constexpr int64_t kGroup = 4;  // elements that a module reads at once, if they lie on a multiple of so many
inline constexpr int64_t kMostExtent = int64_t{1} << 28;  // so that modules count in 32 bits, rounded up to tiles

// ---- tiles ----

// The constants of gemm.glsl. A thread has to have whole loads of both operands.
struct GemmTile {
  uint32_t thread_rows, thread_columns, row_groups, column_groups, depth;
  constexpr uint32_t threads() const { return thread_rows * thread_columns; }
  constexpr int64_t rows() const { return int64_t{4} * thread_rows * row_groups; }
  constexpr int64_t columns() const { return int64_t{4} * thread_columns * column_groups; }
  constexpr bool is_whole() const {
    return depth % 8 == 0 && row_groups * depth % thread_columns == 0 && column_groups * depth % thread_rows == 0 &&
           thread_rows % 8 == 0 && thread_columns % 4 == 0;
  }
};
// more: the constants of the module's own, from 7 on.
Kernel gemm_kernel(Device& device, const Shader& shader, const GemmTile& tile, std::initializer_list<uint32_t> more = {});

// The constants of gemm_coopmat.glsl.
struct MatrixTile {
  uint32_t subgroup_rows, subgroup_columns, row_matrices, column_matrices;
  constexpr uint32_t subgroups() const { return subgroup_rows * subgroup_columns; }
  int64_t rows(const MatrixUnit& unit) const { return int64_t{subgroup_rows} * row_matrices * unit.m; }
  int64_t columns(const MatrixUnit& unit) const { return int64_t{subgroup_columns} * column_matrices * unit.n; }
  // Bytes, with stages of `depth`; most_shift and turns_at_once as below, slots: matrices whose sums are laid out at once.
  int64_t shared_memory(const MatrixUnit& unit, int64_t depth, int64_t most_shift, int64_t slots, int64_t turns_at_once = 1) const {
    return largest_of((turns_at_once * rows(unit) + columns(unit) + most_shift) * (depth / 8 + 1), unit, slots);
  }
  // Where the right operand, or both, lie across.
  int64_t shared_memory_across(const MatrixUnit& unit, int64_t depth, bool left_too, int64_t slots) const {
    const int64_t left = left_too ? depth * (rows(unit) / 8 + 1) : rows(unit) * (depth / 8 + 1);
    return largest_of(left + depth * (columns(unit) / 8 + 1), unit, slots);
  }

  // Likewise, of the sums alone.
  int64_t patches(const MatrixUnit& unit, int64_t slots) const {
    return 16 * int64_t{subgroups()} * unit.m * (slots * unit.n / 4 + (subgroups() > 8 ? 0 : 2));
  }

 private:
  int64_t largest_of(int64_t stage, const MatrixUnit& unit, int64_t slots) const {
    return std::max(16 * stage, patches(unit, slots));
  }
};
inline constexpr int64_t kMatrixDepth = 32;  // of a stage
// The device's for products of f16 or bf16.
inline const MatrixUnit& matrix_unit(const Device& device, Dtype dtype) {
  return dtype == Dtype::bf16 ? device.physical.matrix_units.bf16 : device.physical.matrix_units.f16;
}
// most_shift: columns of the right operand beyond the tile's. more: the constants of the module's own, from 12 on.
Kernel matrix_kernel(Device& device, const MatrixModules& modules, Dtype dtype, const MatrixTile& tile, int64_t most_shift,
                     int64_t depth, std::initializer_list<uint32_t> more);
// Whether the dtype's products can run on the device's matrix unit at all.
inline bool has_matrix_unit(const Device& device, const MatrixModules& modules, Dtype dtype) {
  return size_of(dtype) == 2 && matrix_unit(device, dtype) && modules.of(dtype).is_there();
}

// Work groups that are enough to choose large tiles, or not to cut a reduction any more: whatever the device, so that, but for
// matrix units and drivers that end loops, results are the same on all. A CPU has no use for large tiles.
inline constexpr int64_t kManyGroups = 128;

// Iterations of the loops of gemm.glsl's multiply(), and some of its caller's.
inline int64_t gemm_loops(const GemmTile& tile, int64_t depth) {
  return (ceil_div(depth, tile.depth) + 1) * (tile.depth + 2) + 256;
}

// ---- reductions in slices ----

// By gemm.glsl: gemm_slices().
inline int64_t num_slices(int64_t tiles, int64_t stages) { return common::num_slices(tiles, stages, kManyGroups); }

// The same where gemm.glsl sums them; more of them where a driver would end the loops of so long ones.
inline int64_t gemm_slices(Device& device, const GemmTile& tile, int64_t tiles, int64_t stages) {
  const int64_t slices = num_slices(tiles, stages);
  if (device.runs_loops(static_cast<double>(gemm_loops(tile, ceil_div(stages, slices) * tile.depth)))) return slices;
  const int64_t most = (Device::kFewestLoops - 1 - gemm_loops(tile, 0)) / (tile.depth + 2);
  return ceil_div(stages, most);
}

// Adds partial[slice][i][j][k], of the accumulator's dtype, over the slices in their order, into `to`.
struct SliceSum {
  int64_t slices = 1;
  Tensor3 to;
  Kernel kernel{};

  uint64_t bytes(Dtype dtype) const { return static_cast<uint64_t>(slices * to.size() * size_of(accumulate_dtype(dtype))); }
  void load(Device& device, Dtype dtype, bool bytewise);
  void record(Recorder& recorder, Address partial, Address out, bool ordered) const;
};

// ---- zeros ----

// Zeros in all of a tensor of elements of `size` bytes.
struct Fill {
  Tensor3 to;
  Kernel kernel{};

  void load(Device& device, int64_t size, bool bytewise);
  void record(Recorder& recorder, Address out) const;
};

}  // namespace narrows::vulkan
