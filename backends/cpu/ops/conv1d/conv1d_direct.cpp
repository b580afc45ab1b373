// SPDX-License-Identifier: Apache-2.0
// conv1d_direct.cpp -- the direct correlation, for few channels: vectors along the positions, taps broadcast. A task computes a
// block of positions of up to eight outputs of one group; a line of the input serves them all.
#include "conv1d.h"

#include <utility>

#include "targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv1d/conv1d_direct.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "conv1d-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// sum[u] += x[u + g] * taps[g * cycle] for G taps that are a vector apart: one load of x serves up to G of them.
template <int U, int G, class D, class A = hn::TFromD<D>>
HWY_INLINE void SlideGroup(D d, const A* x, const A* taps, int64_t cycle, hn::Vec<D> (&sum)[U]) {
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> tap[G];
  HWY_UNROLL(4)
  for (int g = 0; g < G; ++g) tap[g] = hn::Set(d, taps[g * cycle]);
  HWY_UNROLL(12)
  for (int i = 0; i < U + G - 1; ++i) {
    const auto v = hn::LoadU(d, x + static_cast<size_t>(i) * lanes);
    HWY_UNROLL(4)
    for (int g = 0; g < G; ++g)
      if (i - g >= 0 && i - g < U) sum[i - g] = hn::MulAdd(v, tap[g], sum[i - g]);
  }
}

// U vectors of acc: all taps of a line, tap j at x + j * step. Taps `cycle` apart are one vector apart.
template <int U, class D, class A = hn::TFromD<D>>
HWY_INLINE void SlideTile(D d, const A* x, const A* taps, int64_t num_taps, int64_t step, int64_t cycle, const A* start, A* acc) {
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> sum[U];
  HWY_UNROLL(8)
  for (int u = 0; u < U; ++u) sum[u] = start != nullptr ? hn::Set(d, *start) : hn::LoadU(d, acc + static_cast<size_t>(u) * lanes);
  for (int64_t first = 0; first < std::min(cycle, num_taps); ++first) {
    const A* p = x + first * step;
    int64_t j = first;
    for (; j + 3 * cycle < num_taps; j += 4 * cycle, p += 4 * lanes) SlideGroup<U, 4>(d, p, taps + j, cycle, sum);
    if (j + cycle < num_taps) SlideGroup<U, 2>(d, p, taps + j, cycle, sum), j += 2 * cycle, p += 2 * lanes;
    if (j < num_taps) SlideGroup<U, 1>(d, p, taps + j, cycle, sum);
  }
  HWY_UNROLL(8)
  for (int u = 0; u < U; ++u) hn::StoreU(sum[u], d, acc + static_cast<size_t>(u) * lanes);
}

// acc[0 .. length) += the line's taps; `start`, if given, is what acc holds before. length is a multiple of the lanes.
template <class A>
void Slide(const A* x, const A* taps, int64_t num_taps, int64_t step, int64_t length, const A* start, A* acc) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool shares = step >= 1 && step <= lanes && lanes % step == 0;
  const int64_t cycle = shares ? lanes / step : num_taps;
  int64_t t = 0;
  for (; t + 8 * lanes <= length; t += 8 * lanes) SlideTile<8>(d, x + t, taps, num_taps, step, cycle, start, acc + t);
  for (; t + 3 * lanes <= length; t += 3 * lanes) SlideTile<3>(d, x + t, taps, num_taps, step, cycle, start, acc + t);
  for (; t < length; t += lanes) SlideTile<1>(d, x + t, taps, num_taps, step, cycle, start, acc + t);
}

// One task. The taps of a residue (modulo the cycle) read one decimated line of the input, so the line is fetched once; as many
// of its taps as the layout's span allows then slide over it, for one output after the other.
template <class T, class A = Accumulate<T>>
class DirectTask {
 public:
  DirectTask(const DirectLayout& layout, const Correlation& c, const CorrelationData& data, const DirectPart& part, void* scratch)
      : c_(c), layout_(layout), taps_per_line_(1 + layout.span / c.cycle_step()) {
    char* bytes = static_cast<char*>(scratch);
    acc_ = reinterpret_cast<A*>(bytes);
    line_ = reinterpret_cast<A*>(bytes + layout.acc_bytes);
    taps_ = reinterpret_cast<A*>(bytes + layout.acc_bytes + layout.line_bytes);
    first_out_ = part.out_block * layout.outs;
    outs_ = std::min(layout.outs, c.outs - first_out_);
    begin_ = part.block * layout.block;
    count_ = std::min(layout.block, c.length - begin_);
    in_ = static_cast<const T*>(data.in) + part.batch * c.in_batch + part.group * c.in_group;
    w_ = static_cast<const T*>(data.w) + c.w_offset + part.group * c.w_group + first_out_ * c.w_out;
    out_ = static_cast<T*>(data.out) + c.out_offset + part.batch * c.out_batch + part.group * c.out_group +
           first_out_ * c.out_channel + begin_ * c.out_position;
    if (data.bias != nullptr) bias_ = static_cast<const T*>(data.bias) + (part.group * c.outs + first_out_) * c.bias_stride;
  }

  void Run() {
    if (count_ <= 0 || outs_ <= 0) return;
    const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<A>()));
    padded_ = round_up(count_, lanes);
    in_place_ = std::is_same_v<T, A> && c_.out_position == 1 && padded_ == count_ && is_aligned(out_);
    const int64_t cycle = c_.tap_cycle();
    bool first = true;  // nothing is summed yet: sums begin with the bias
    for (int64_t channel = 0; channel < c_.ins; ++channel)
      for (int64_t residue = 0; residue < std::min(cycle, c_.taps); ++residue)
        for (int64_t tap = residue; tap < c_.taps; tap += taps_per_line_ * cycle, first = false)
          AddLine(channel, tap, cycle, first);
    for (int64_t m = 0; m < outs_; ++m) {
      if (first) Fill(m);
      if (!in_place_) StoreRow(Acc(m), count_, out_ + m * c_.out_channel, c_.out_position);
    }
  }

 private:
  A Bias(int64_t m) const { return bias_ != nullptr ? read(bias_ + m * c_.bias_stride) : A{0}; }
  A* Acc(int64_t m) {
    if constexpr (std::is_same_v<T, A>)
      if (in_place_) return out_ + m * c_.out_channel;
    return acc_ + m * layout_.block;
  }

  // An empty sum.
  void Fill(int64_t m) {
    const A bias = Bias(m);
    for (int64_t i = 0; i < count_; ++i) write(Acc(m) + i, bias);
  }

  // The taps `tap`, tap + cycle, ... that one line holds.
  void AddLine(int64_t channel, int64_t tap, int64_t cycle, bool first) {
    const int64_t num_taps = std::min(taps_per_line_, ceil_div(c_.taps - tap, cycle)), step = c_.cycle_step();
    const int64_t reach = num_taps > 1 ? (num_taps - 1) * step : 0;
    const Signal<T> signal{in_ + channel * c_.in_channel, c_.in_position, c_.extent};
    const A* line = Line(signal, begin_ * c_.step + c_.origin + tap * c_.tap_step, c_.step, count_ + reach, padded_ + reach, line_);
    for (int64_t m = 0; m < outs_; ++m) {
      const T* w = w_ + m * c_.w_out + channel * c_.w_in + tap * c_.w_tap;
      for (int64_t j = 0; j < num_taps; ++j) taps_[j] = read(w + j * cycle * c_.w_tap);
      const A bias = Bias(m);
      Slide(line, taps_, num_taps, step, padded_, first ? &bias : nullptr, Acc(m));
    }
  }

  const Correlation& c_;
  const DirectLayout& layout_;
  const int64_t taps_per_line_;
  A *acc_, *line_, *taps_;
  int64_t first_out_, outs_, begin_, count_, padded_ = 0;
  const T *in_, *w_, *bias_ = nullptr;
  T* out_;
  bool in_place_ = false;
};

void ComputePart(const DirectLayout& layout, const Correlation& c, const CorrelationData& data, const DirectPart& part,
                 void* scratch) {
  if (layout.dtype == Dtype::f64) return DirectTask<double>(layout, c, data, part, scratch).Run();
  if (layout.dtype == Dtype::f16) return DirectTask<f16>(layout, c, data, part, scratch).Run();
  if (layout.dtype == Dtype::bf16) return DirectTask<bf16>(layout, c, data, part, scratch).Run();
  DirectTask<float>(layout, c, data, part, scratch).Run();
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(ComputePart);

// Positions. A line, with what its taps reach, is up to 2 * 2048 + 64 elements, 16 KB of f32, and an output's sums are 8 KB: a
// first-level cache of 32 KB holds both, of f64 one of 48 KB; the sums of eight outputs, 64 or 128 KB, are the second level's.
constexpr int64_t kBlock = 2048;
constexpr int64_t kPadding = 64;  // at least a vector of the widest target, in elements

}  // namespace

DirectLayout direct_layout(const Instance& instance, Dtype dtype, int64_t problems, const Correlation& c) {
  DirectLayout l{};
  l.dtype = dtype;
  l.problems = problems, l.batch = c.batch, l.groups = c.groups;
  l.block = std::min(kBlock, round_up(std::max<int64_t>(c.length, 1), kPadding));
  const int64_t step = c.cycle_step(), per_line = ceil_div(c.taps, c.tap_cycle());
  l.span = per_line <= 1 ? 0 : step > kBlock / (per_line - 1) ? kBlock : (per_line - 1) * step;
  l.outs = std::clamp<int64_t>(c.outs, 1, 8);
  l.blocks = ceil_div(c.length, l.block), l.out_blocks = ceil_div(c.outs, l.outs);
  l.task_cost = static_cast<double>(l.outs * l.block) * static_cast<double>(c.ins) * static_cast<double>(c.taps);
  const int64_t size = size_of(accumulate_dtype(dtype));
  l.acc_bytes = aligned_bytes(static_cast<uint64_t>(l.outs * l.block * size));
  l.line_bytes = aligned_bytes(static_cast<uint64_t>((l.block + l.span + kPadding) * size));
  l.slot_bytes = l.acc_bytes + l.line_bytes + aligned_bytes(static_cast<uint64_t>((l.span + 1) * size));
  const int64_t tasks = l.problems * l.batch * l.groups * l.out_blocks * l.blocks;
  l.workspace_size = l.slot_bytes * static_cast<uint64_t>(num_slots(instance, tasks, l.task_cost));
  return l;
}

void correlate_direct(const Instance& instance, const DirectLayout& l, void* workspace, const CorrelationData& data,
                      Correlation (*describe)(const void* arg, int64_t i), const void* arg) {
  const int64_t tasks = l.problems * l.batch * l.groups * l.out_blocks * l.blocks;
  run_tasks(instance, tasks, l.task_cost, [&](int64_t slot, int64_t begin, int64_t end) {
    char* scratch = static_cast<char*>(workspace) + static_cast<uint64_t>(slot) * l.slot_bytes;
    for (int64_t task = begin; task < end; ++task) {
      int64_t rest = task;
      const auto next = [&](int64_t extent) { return std::exchange(rest, rest / extent) % extent; };
      DirectPart part;
      part.block = next(l.blocks), part.out_block = next(l.out_blocks), part.group = next(l.groups), part.batch = next(l.batch);
      NARROWS_DISPATCH(instance, ComputePart)(l, describe(arg, rest), data, part, scratch);
    }
  });
}

}  // namespace narrows::cpu
#endif  // HWY_ONCE
