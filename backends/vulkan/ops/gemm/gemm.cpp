// SPDX-License-Identifier: Apache-2.0
// gemm.cpp -- see gemm.h.
#include "gemm.h"

namespace narrows::vulkan {
namespace {

constexpr int64_t kThreads = 64;  // of the modules here
constexpr ByDtype kSlices = NARROWS_BY_DTYPE(gemm_slices);

struct Push {
  Address partial, out;
  int64_t slices;
  Tensor3 to;
};

}  // namespace

Kernel gemm_kernel(Device& device, const Shader& shader, const GemmTile& tile, std::initializer_list<uint32_t> more) {
  std::vector<uint32_t> constants{
      0, tile.threads(), tile.thread_rows, tile.thread_columns, tile.row_groups, tile.column_groups, tile.depth};
  constants.insert(constants.end(), more);
  return device.kernels().get(shader, constants);
}

Kernel matrix_kernel(Device& device, const MatrixModules& modules, Dtype dtype, const MatrixTile& tile, int64_t most_shift,
                     int64_t depth, std::initializer_list<uint32_t> more) {
  const MatrixUnit& unit = matrix_unit(device, dtype);
  std::vector<uint32_t> constants{0,
                                  tile.subgroups() * unit.subgroup,
                                  unit.subgroup,
                                  unit.m,
                                  unit.n,
                                  unit.k,
                                  tile.subgroup_rows,
                                  tile.subgroup_columns,
                                  tile.row_matrices,
                                  tile.column_matrices,
                                  static_cast<uint32_t>(most_shift),
                                  static_cast<uint32_t>(depth)};
  constants.insert(constants.end(), more);
  return device.kernels().get(modules.of(dtype), constants);
}

void SliceSum::load(Device& device, Dtype dtype, bool bytewise) { kernel = device.kernels().get(kSlices.of(dtype), {bytewise}); }
void SliceSum::record(Recorder& recorder, Address partial, Address out, bool ordered) const {
  recorder.dispatch(kernel, Push{partial, out, slices, to}, ceil_div(to.size(), kThreads), ordered);
}

void Fill::load(Device& device, int64_t size, bool bytewise) {
  kernel = device.kernels().get(shaders::gemm_fill, {bytewise, static_cast<uint32_t>(size)});
}
void Fill::record(Recorder& recorder, Address out) const {
  recorder.dispatch(kernel, Push{0, out, 1, to}, ceil_div(to.size(), kThreads));
}

}  // namespace narrows::vulkan
