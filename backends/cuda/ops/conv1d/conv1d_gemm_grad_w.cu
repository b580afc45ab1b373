// SPDX-License-Identifier: Apache-2.0
// conv1d_gemm_grad_w.cu -- grad_w as a matrix product by plain multiply-adds, on any device. The sum over batch and positions is
// cut into slices, by shape and device alone, whose results are added in order.
#include "conv1d_product.h"

namespace narrows::gpu {
namespace {

template <class T>
using TileOf = std::conditional_t<std::is_same_v<T, double>, GemmTile<double, 16, 16, 4, 2, 8>, GemmTile<float, 16, 16, 2, 2, 16>>;

template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    grad_w_tile(const GradWShape s, const Strides3 to, const Operands p, void* partial) {
  __shared__ typename Tile::Shared shared;
  const int64_t row0 = blockIdx.x % s.row_tiles * Tile::kRows, rest = blockIdx.x / s.row_tiles;
  const int64_t column0 = rest % s.column_tiles * Tile::kColumns, slice = rest / s.column_tiles % s.slices;
  const int64_t group = rest / s.column_tiles / s.slices;
  const ConvGeometry& g = s.g;
  typename Tile::Sums sums;
  multiply<Tile>(GradYLoader<T>{s, static_cast<const T*>(p.a) + group * g.outs() * g.y.channel},
                 SlidingLoader<T>{s, static_cast<const T*>(p.b) + group * g.ins() * g.x.channel}, row0, column0,
                 slice_begin(s.stages, s.slices, slice) * Tile::kDepth, slice_begin(s.stages, s.slices, slice + 1) * Tile::kDepth,
                 shared, sums);
#pragma unroll
  for (int j = 0; j < Tile::kColumnGroups * Tile::kUnit; ++j) {
    const int64_t column = column0 + Tile::column_of(j);
    if (column >= s.columns) continue;
    uint32_t channel, tap;
    s.taps.divide(static_cast<uint32_t>(column), &channel, &tap);
#pragma unroll
    for (int i = 0; i < Tile::kRowGroups * Tile::kUnit; ++i) {
      const int64_t m = row0 + Tile::row_of(i), out = group * g.outs() + m;
      if (m >= g.outs()) continue;
      if (s.slices > 1)
        static_cast<Accumulate<T>*>(partial)[(slice * g.out_channels + out) * s.columns + column] = sums.at[i][j];
      else
        static_cast<T*>(p.out)[out * to.outer + channel * to.channel + tap * to.position] = narrowed<T>(sums.at[i][j]);
    }
  }
}

class GradWPart final : public Part {
 public:
  explicit GradWPart(const SumProblem& problem) : to_(problem.to.strides) {
    const ConvGeometry& g = s_.g = problem.g;
    s_.columns = g.ins() * g.taps, s_.depth = g.batch * g.out_length;
    if (s_.columns >= kFastDivideLimit / 2 || s_.depth >= kFastDivideLimit / 2) return;
    s_.taps = FastDivide(g.taps), s_.out_length = FastDivide(g.out_length);
    with_dtype(g.dtype, [&]<class T>(T) {
      using Tile = TileOf<T>;
      s_.row_tiles = ceil_div(g.outs(), Tile::kRows), s_.column_tiles = ceil_div(s_.columns, Tile::kColumns);
      s_.stages = ceil_div(s_.depth, Tile::kDepth);
      s_.slices = num_slices(g.groups * s_.row_tiles * s_.column_tiles, s_.stages, problem.device->multiprocessors);
      kernel_ = grad_w_tile<T, Tile>;
      threads_ = Tile::kThreads;
    });
    s_.blocks = g.groups * s_.row_tiles * s_.column_tiles * s_.slices;
    if (!fits()) return;
    load_kernel(kernel_);
    sum_ = {g.dtype, s_.slices, problem.to};
    if (s_.slices == 1) return;
    sum_.load();
    workspace_size = sum_.bytes();
  }
  bool fits() const { return kernel_ != nullptr && s_.blocks <= kMaxBlocks; }
  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    launch_kernel(kernel_, s_.blocks, threads_, 0, stream, s_, to_, p, workspace);
    if (s_.slices > 1) sum_.launch(workspace, p.out, stream);
  }

 private:
  GradWShape s_{};
  Strides3 to_;
  SliceSum sum_{};
  int threads_ = 0;
  void (*kernel_)(GradWShape, Strides3, Operands, void*) = nullptr;
};

}  // namespace

std::unique_ptr<Part> plan_grad_w_gemm(const SumProblem& problem) {
  if (!problem.aligned()) return nullptr;
  if (conv1d_native().grad_w_gemm != nullptr)
    if (std::unique_ptr<Part> part = conv1d_native().grad_w_gemm(problem)) return part;
  auto part = std::make_unique<GradWPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
