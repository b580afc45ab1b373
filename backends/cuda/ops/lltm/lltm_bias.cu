// SPDX-License-Identifier: Apache-2.0
// lltm_bias.cu -- d_bias beside products that do not make it, as its own sums.
#include "lltm_bias.h"

#include "lltm_cell.h"

namespace narrows::gpu {
namespace {

constexpr int kThreads = 256;

// out[slice, column] = the sum of `slice_rows` rows of f32.
template <class Out>
__global__ void __launch_bounds__(kThreads)
    sum_rows_kernel(Matrix in, int64_t rows, int64_t columns, int64_t slice_rows, Matrix out) {
  const auto column_blocks = static_cast<unsigned>((columns + kThreads - 1) / kThreads);
  const int64_t slice = blockIdx.x / column_blocks, column = int64_t{blockIdx.x % column_blocks} * kThreads + threadIdx.x;
  if (column >= columns) return;
  const int64_t begin = slice * slice_rows, end = begin + slice_rows < rows ? begin + slice_rows : rows;
  float sum = 0;
#pragma unroll 8
  for (int64_t row = begin; row < end; ++row) sum += *at<const float>(in, row, column);
  write<Out, true>(out, slice, column, sum);
}

auto sums_into(Dtype dtype) {
  return dtype == Dtype::f32 ? sum_rows_kernel<float> : dtype == Dtype::f16 ? sum_rows_kernel<f16> : sum_rows_kernel<bf16>;
}

}  // namespace

LltmBiasSums::LltmBiasSums(const LltmSizes& sizes, uint64_t* workspace_size)
    : sizes_(sizes), gates_(3 * sizes.state), parts_(*workspace_size) {
  constexpr int64_t kSliceRows = 64, kMostSlices = 256;
  slice_rows_ = std::max(kSliceRows, ceil_div(sizes.batch, kMostSlices));
  slices_ = ceil_div(sizes.batch, slice_rows_);
  *workspace_size += static_cast<uint64_t>(ceil_div(slices_ * gates_ * 4, 256) * 256);
  load_kernel(sum_rows_kernel<float>);
  load_kernel(sums_into(sizes.dtype));
}

// In two steps: a column alone would keep too few threads busy.
void LltmBiasSums::launch(const Matrix& gate_grads, Matrix d_bias, char* workspace, gpuStream_t stream) const {
  const int64_t column_blocks = ceil_div(gates_, kThreads);
  const Matrix parts = {workspace + parts_, gates_, 1};
  d_bias.row = 0;  // it is one row, whatever its rank
  launch_kernel(sum_rows_kernel<float>, column_blocks * slices_, kThreads, 0, stream, gate_grads, sizes_.batch, gates_, slice_rows_,
                parts);
  launch_kernel(sums_into(sizes_.dtype), column_blocks, kThreads, 0, stream, parts, slices_, gates_, slices_, d_bias);
}

}  // namespace narrows::gpu
