// SPDX-License-Identifier: Apache-2.0
// conv1d_gemm.cu -- correlations as matrix products by plain multiply-adds, on any device.
#include "conv1d_product.h"

namespace narrows::gpu {
namespace {

template <class T>
using Large = std::conditional_t<std::is_same_v<T, double>, GemmTile<double, 16, 16, 4, 2, 8>, GemmTile<float, 16, 16, 2, 2, 16>>;
template <class T>
using Small = std::conditional_t<std::is_same_v<T, double>, GemmTile<double, 16, 16, 1, 2, 16>, GemmTile<float, 8, 16, 1, 2, 16>>;

template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads) correlate_tile(const ProductShape s, const Operands p) {
  __shared__ typename Tile::Shared shared;
  const int64_t row_tile = blockIdx.x % s.row_tiles, rest = blockIdx.x / s.row_tiles;
  const int64_t column0 = rest % s.column_tiles * Tile::kColumns, group = rest / s.column_tiles, row0 = row_tile * Tile::kRows;
  const Correlation& c = s.c;
  typename Tile::Sums sums;
  multiply<Tile>(WeightLoader<T>{s, static_cast<const T*>(p.b) + c.w_offset + group * c.w_group},
                 WindowLoader<T>{s, static_cast<const T*>(p.a) + group * c.in_group}, row0, column0, 0, s.depth, shared, sums);
  T* out = static_cast<T*>(p.out) + c.out_offset + group * c.out_group;
#pragma unroll
  for (int j = 0; j < Tile::kColumnGroups * Tile::kUnit; ++j) {
    const int64_t column = column0 + Tile::column_of(j);
    if (column >= s.columns) continue;
    const int64_t n = column / c.length, q = column - n * c.length;
    T* to = out + n * c.out_batch + q * c.out_position;
#pragma unroll
    for (int i = 0; i < Tile::kRowGroups * Tile::kUnit; ++i) {
      const int64_t m = row0 + Tile::row_of(i);
      if (m >= c.outs) continue;
      auto sum = sums.at[i][j];
      if (p.bias != nullptr) sum += widen(static_cast<const T*>(p.bias)[(group * c.outs + m) * c.bias_stride]);
      to[m * c.out_channel] = narrowed<T>(sum);
    }
  }
}

class GemmPart final : public Part {
 public:
  explicit GemmPart(const CorrelationProblem& problem) {
    const Correlation& c = s_.c = problem.c;
    s_.taps = FastDivide(c.taps);
    s_.columns = c.batch * c.length, s_.depth = c.ins * c.taps;
    const int64_t unit = 16 / size_of(accumulate_dtype(problem.dtype));  // elements of one load
    s_.w_rows = c.has_whole_filters() && c.w_offset == 0 && problem.w_align >= unit * size_of(problem.dtype) &&
                rows_start_on(unit, {{c.outs, c.w_out}, {c.groups, c.w_group}});
    with_dtype(problem.dtype, [&]<class T>(T) {
      const int64_t large = c.groups * ceil_div(c.outs, Large<T>::kRows) * ceil_div(s_.columns, Large<T>::kColumns);
      if (c.outs > Large<T>::kRows / 2 && large >= problem.device->multiprocessors)
        SetTile<T, Large<T>>();
      else
        SetTile<T, Small<T>>();
    });
    if (fits()) load_kernel(kernel_);
  }
  bool fits() const { return s_.blocks <= kMaxBlocks && s_.depth < kFastDivideLimit / 2; }
  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_kernel(kernel_, s_.blocks, threads_, 0, stream, s_, p);
  }

 private:
  template <class T, class Tile>
  void SetTile() {
    s_.row_tiles = ceil_div(s_.c.outs, Tile::kRows), s_.column_tiles = ceil_div(s_.columns, Tile::kColumns);
    s_.blocks = s_.c.groups * s_.row_tiles * s_.column_tiles;
    kernel_ = correlate_tile<T, Tile>;
    threads_ = Tile::kThreads;
  }

  ProductShape s_;
  int threads_ = 0;
  void (*kernel_)(ProductShape, Operands) = nullptr;
};

}  // namespace

std::unique_ptr<Part> plan_gemm(const CorrelationProblem& problem) {
  if (!problem.aligned()) return nullptr;
  if (conv1d_native().gemm != nullptr)
    if (std::unique_ptr<Part> part = conv1d_native().gemm(problem)) return part;
  auto part = std::make_unique<GemmPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
