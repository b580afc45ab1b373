// SPDX-License-Identifier: Apache-2.0
// conv1d_sums.cpp -- the gradients that are sums over batch and positions: grad_w for few channels, and grad_bias. A row (an output
// and an input channel; for the bias an output) is cut into splits by shape alone; each split goes through its blocks of positions
// in order and keeps its sums in f64.
#include "conv1d.h"

#include "targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv1d/conv1d_sums.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "conv1d-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// Positions of a block, and what the taps that share a line of x spread over at most: grad_y's line is 8 KB of f32, x's up to 16,
// and a first-level cache of 32 KB holds both, of f64 one of 48 KB.
inline constexpr int64_t kSumBlock = 2048, kSumSpan = 2048;

template <class D, class A = hn::TFromD<D>>
HWY_INLINE A AddLanes(D d, hn::Vec<D> v) {
  HWY_ALIGN A lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  A sum = lanes[0];
  for (size_t i = 1; i < hn::Lanes(d); ++i) sum += lanes[i];
  return sum;
}

// totals[j * stride] += sum over i in [0, count) of a[i] * b[i + j * step], for TAPS taps at once; a is loaded once for all.
template <int TAPS, class A>
HWY_INLINE void Dots(const A* a, const A* b, int64_t step, int64_t count, double* totals, int64_t stride) {
  constexpr int kUnroll = 8 / TAPS;  // eight chains hide the latency of a multiply-add
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[TAPS][kUnroll];
  for (int j = 0; j < TAPS; ++j)
    for (int u = 0; u < kUnroll; ++u) sum[j][u] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kUnroll * lanes <= count; i += kUnroll * lanes) {
    HWY_UNROLL(8)
    for (int u = 0; u < kUnroll; ++u) {
      const auto v = hn::LoadU(d, a + i + u * lanes);
      HWY_UNROLL(8)
      for (int j = 0; j < TAPS; ++j) sum[j][u] = hn::MulAdd(v, hn::LoadU(d, b + i + u * lanes + j * step), sum[j][u]);
    }
  }
  for (; i + lanes <= count; i += lanes)
    for (int j = 0; j < TAPS; ++j) sum[j][0] = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i + j * step), sum[j][0]);
  for (int j = 0; j < TAPS; ++j) {
    for (int u = 1; u < kUnroll; ++u) sum[j][0] = hn::Add(sum[j][0], sum[j][u]);
    double total = AddLanes(d, sum[j][0]);
    for (int64_t k = i; k < count; ++k) total += static_cast<double>(read(a + k)) * read(b + k + j * step);
    totals[j * stride] += total;
  }
}

// Elements that are summed in one go: more would let f32 lose digits.
template <class A>
int64_t SumLength() {
  return 128 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<A>()));
}

// All taps of a line of x.
template <class A>
void DotsOfLine(const A* dy, const A* line, int64_t step, int64_t count, int64_t taps, double* totals, int64_t stride) {
  for (int64_t i = 0; i < count; i += SumLength<A>()) {
    const int64_t length = std::min(count - i, SumLength<A>());
    const A *a = dy + i, *b = line + i;
    int64_t j = 0;
    for (; j + 8 <= taps; j += 8) Dots<8>(a, b + j * step, step, length, totals + j * stride, stride);
    for (; j + 4 <= taps; j += 4) Dots<4>(a, b + j * step, step, length, totals + j * stride, stride);
    for (; j < taps; ++j) Dots<1>(a, b + j * step, step, length, totals + j * stride, stride);
  }
}

template <class T, class A = Accumulate<T>>
void GradWPart(const ConvGeometry& g, const SumPart& part, const void* grad_y, const void* x, void* scratch, double* totals) {
  A* y_line = static_cast<A*>(scratch);
  A* x_line = y_line + kSumBlock;
  const int64_t out = part.row / g.ins(), channel = out / g.outs() * g.ins() + part.row % g.ins();
  const int64_t divisor = std::gcd(g.stride, g.dilation), step = g.dilation / divisor;
  const int64_t cycle = std::min(g.stride / divisor, g.taps), per_line = 1 + kSumSpan / step;
  std::fill(totals, totals + g.taps, 0.0);
  for (int64_t block = part.begin; block < part.end; ++block) {
    const int64_t n = block / part.blocks_per_row, t = block % part.blocks_per_row * kSumBlock;
    const int64_t count = std::min(kSumBlock, g.out_length - t);
    const Signal<T> y_signal{static_cast<const T*>(grad_y) + n * g.y.outer + out * g.y.channel, g.y.position, g.out_length};
    const Signal<T> x_signal{static_cast<const T*>(x) + n * g.x.outer + channel * g.x.channel, g.x.position, g.length};
    const A* dy = Line(y_signal, t, 1, count, count, y_line);
    for (int64_t residue = 0; residue < cycle; ++residue)
      for (int64_t tap = residue; tap < g.taps; tap += per_line * cycle) {
        const int64_t num = std::min(per_line, ceil_div(g.taps - tap, cycle)), length = count + (num > 1 ? (num - 1) * step : 0);
        const A* line = Line(x_signal, t * g.stride - g.pad_left + tap * g.dilation, g.stride, length, length, x_line);
        DotsOfLine(dy, line, step, count, num, totals + tap, cycle);
      }
  }
}

template <class A>
double Sum(const A* p, int64_t count) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, p + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, p + i + lanes));
  }
  double total = AddLanes(d, hn::Add(sum0, sum1));
  for (; i < count; ++i) total += read(p + i);
  return total;
}

template <class T, class A = Accumulate<T>>
void GradBiasPart(const ConvGeometry& g, const SumPart& part, const void* grad_y, void* scratch, double* total) {
  *total = 0;
  for (int64_t block = part.begin; block < part.end; ++block) {
    const int64_t n = block / part.blocks_per_row, t = block % part.blocks_per_row * kSumBlock;
    const int64_t count = std::min(kSumBlock, g.out_length - t);
    const Signal<T> signal{static_cast<const T*>(grad_y) + n * g.y.outer + part.row * g.y.channel, g.y.position, g.out_length};
    const A* dy = Line(signal, t, 1, count, count, static_cast<A*>(scratch));
    for (int64_t i = 0; i < count; i += SumLength<A>()) *total += Sum(dy + i, std::min(count - i, SumLength<A>()));
  }
}

void SumRow(const ConvGeometry& g, const SumPart& part, const void* grad_y, const void* x, void* scratch, double* totals) {
  with_dtype(g.dtype, [&]<class T>(T) {
    if (part.grad_bias) return GradBiasPart<T>(g, part, grad_y, scratch, totals);
    GradWPart<T>(g, part, grad_y, x, scratch, totals);
  });
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(SumRow);

using HWY_NAMESPACE::kSumBlock, HWY_NAMESPACE::kSumSpan;

// Enough splits for many threads when there are few rows, but no more than two megabytes of sums.
SumLayout sum_layout(const Instance& instance, const ConvGeometry& g, bool grad_bias) {
  constexpr int64_t kRows = 256, kSums = int64_t{1} << 18;
  SumLayout l{};
  l.grad_bias = grad_bias;
  l.rows = grad_bias ? g.out_channels : g.out_channels * g.ins();
  l.sums = grad_bias ? 1 : g.taps;
  l.blocks_per_row = ceil_div(g.out_length, kSumBlock), l.blocks = g.batch * l.blocks_per_row;
  if (l.rows == 0) return l;
  const int64_t wanted = std::min(ceil_div(kRows, l.rows), std::max<int64_t>(1, kSums / l.sums / l.rows));
  l.splits = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(l.blocks, 1));
  l.task_cost = static_cast<double>(g.batch * g.out_length) * static_cast<double>(l.sums) / static_cast<double>(l.splits);
  l.partial_bytes = aligned_bytes(static_cast<uint64_t>(l.rows * l.splits * l.sums) * sizeof(double));
  const int64_t elements = kSumBlock + (grad_bias ? 0 : kSumBlock + kSumSpan);  // a line of grad_y, and one of x
  l.slot_bytes = aligned_bytes(static_cast<uint64_t>(elements * size_of(accumulate_dtype(g.dtype))));
  l.workspace_size = l.partial_bytes + l.slot_bytes * static_cast<uint64_t>(num_slots(instance, l.rows * l.splits, l.task_cost));
  return l;
}

// Fills the workspace with [row][split][sum], then calls store(row, sum, total).
template <class Store>
void sum_rows(const Instance& instance, const SumLayout& l, const ConvGeometry& g, void* workspace, const void* grad_y,
              const void* x, Store&& store) {
  auto* partial = static_cast<double*>(workspace);
  run_tasks(instance, l.rows * l.splits, l.task_cost, [&](int64_t slot, int64_t begin, int64_t end) {
    char* scratch = static_cast<char*>(workspace) + l.partial_bytes + static_cast<uint64_t>(slot) * l.slot_bytes;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t split = task % l.splits;
      const SumPart part{task / l.splits, l.blocks * split / l.splits, l.blocks * (split + 1) / l.splits, l.blocks_per_row,
                         l.grad_bias};
      NARROWS_DISPATCH(instance, SumRow)(g, part, grad_y, x, scratch, partial + task * l.sums);
    }
  });
  run_tasks(instance, l.rows, static_cast<double>(l.splits * l.sums), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < l.sums; ++i) {
        double total = 0;
        for (int64_t split = 0; split < l.splits; ++split) total += partial[(row * l.splits + split) * l.sums + i];
        store(row, i, total);
      }
  });
}

}  // namespace

SumLayout grad_w_layout(const Instance& instance, const ConvGeometry& g) { return sum_layout(instance, g, false); }
SumLayout grad_bias_layout(const Instance& instance, const ConvGeometry& g) { return sum_layout(instance, g, true); }

void grad_w_direct(const Instance& instance, const SumLayout& l, const ConvGeometry& g, void* workspace, const void* grad_y,
                   const void* x, void* grad_w, Strides3 s) {
  with_dtype(g.dtype, [&]<class T>(T) {
    sum_rows(instance, l, g, workspace, grad_y, x, [&](int64_t row, int64_t tap, double total) {
      T* out = static_cast<T*>(grad_w) + row / g.ins() * s.outer + row % g.ins() * s.channel + tap * s.position;
      write(out, static_cast<Accumulate<T>>(total));
    });
  });
}

void grad_bias_sum(const Instance& instance, const SumLayout& l, const ConvGeometry& g, void* workspace, const void* grad_y,
                   void* grad_bias, int64_t stride) {
  with_dtype(g.dtype, [&]<class T>(T) {
    sum_rows(instance, l, g, workspace, grad_y, nullptr, [&](int64_t row, int64_t, double total) {
      write(static_cast<T*>(grad_bias) + row * stride, static_cast<Accumulate<T>>(total));
    });
  });
}

}  // namespace narrows::cpu
#endif  // HWY_ONCE
