// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.cpp -- plans and launches lltm_sequence. Weights are packed once. Then each task takes its rows of the batch
// through all steps. It makes the input's products of several steps at once, so that they read the weights once; then for each step
// it adds the state's products, panel by panel, and computes the cell while a panel's gates are in the first-level cache.
#include "lltm_sequence.h"

#include "targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/lltm/lltm_sequence.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "lltm_sequence-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// A task: some rows of the batch through all steps.
template <class T, class A = Accumulate<T>>
class ForwardRows {
 public:
  using D = hn::ScalableTag<A>;
  using Math = LltmMath<D>;

  ForwardRows(const LltmSequenceForward& t, const LltmSequenceSteps& s, const void* weights, int64_t block, void* scratch)
      : t_(t), s_(s), weights_(static_cast<const A*>(weights)), features_(t.sizes.step.features), state_(t.sizes.step.state),
        first_(block * s.blocks.rows), rows_(std::min(s.blocks.rows, t.sizes.step.batch - first_)), height_(s.blocks.rows),
        pitch_(s.panels * s.blocks.lanes) {
    h_ = static_cast<A*>(scratch), cell_ = h_ + height_ * pitch_;
    packed_h_ = cell_ + height_ * pitch_;
    gates_ = packed_h_ + height_ * round_up(state_, s.blocks.lanes);
    packed_input_ = gates_ + s.chunk * height_ * 3 * pitch_;
  }

  void Run() {
    for (int64_t r = 0; r < rows_; ++r) {
      length_[r] = t_.lengths.of(first_ + r, t_.sizes.steps), longest_ = std::max(longest_, length_[r]);
      LoadRow(t_.old_h.at<const T>(first_ + r, 0), t_.old_h.strides.column, state_, h_ + r * pitch_);
      LoadRow(t_.old_cell.at<const T>(first_ + r, 0), t_.old_cell.strides.column, state_, cell_ + r * pitch_);
    }
    for (int64_t k = 0; k < t_.sizes.steps; k += s_.chunk) Steps(k, std::min(s_.chunk, t_.sizes.steps - k));
    for (int64_t r = 0; r < rows_; ++r) {
      StoreState(h_ + r * pitch_, t_.new_h, first_ + r);
      StoreState(cell_ + r * pitch_, t_.new_cell, first_ + r);
    }
  }

 private:
  // The steps that are computed as the k-th one and on.
  void Steps(int64_t k, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      if (const int64_t time = t_.sizes.time(k + i); time < longest_) {
        const Sequence& x = t_.input;
        const GemmView view = matrix_view(x.at<const T>(time, first_, 0), t_.sizes.step.dtype, x.strides.column, x.strides.row);
        PackTiles(view, features_, rows_, packed_input_ + i * height_ * features_);
      }
    for (int64_t panel = 0; panel < s_.panels; ++panel)
      for (int64_t i = 0; i < count; ++i)
        if (t_.sizes.time(k + i) < longest_)
          MultiplyTiles(packed_input_ + i * height_ * features_, features_, rows_, weights_ + panel * s_.panel_size + state_ * Ld(),
                        Gates(i, panel), Ld(), false);
    for (int64_t i = 0; i < count; ++i) Step(t_.sizes.time(k + i), i);
  }

  void Step(int64_t time, int64_t i) {
    if (time >= longest_) {  // none of these rows has it
      for (int64_t r = 0; r < rows_; ++r) Pad(time, r, 0, state_);
      return;
    }
    const GemmView view = matrix_view(h_, accumulate_dtype(t_.sizes.step.dtype), 1, pitch_);
    PackTiles(view, state_, rows_, packed_h_);
    for (int64_t panel = 0; panel < s_.panels; ++panel) {
      MultiplyTiles(packed_h_, state_, rows_, weights_ + panel * s_.panel_size, Gates(i, panel), Ld(), true);
      Cells(time, panel, Gates(i, panel));
    }
  }

  void Cells(int64_t time, int64_t panel, const A* gates) {
    const D d;
    const int64_t lanes = s_.blocks.lanes, s = panel * lanes, count = std::min(lanes, state_ - s);
    hn::Vec<D> bias[3];
    for (int64_t g = 0; g < 3; ++g)
      bias[g] = t_.bias.base == nullptr ? hn::Zero(d)
                                        : LoadStrided(d, t_.bias.at<const T>(0, g * state_ + s), t_.bias.strides.column, count);
    for (int64_t r = 0; r < rows_; ++r, gates += 3 * lanes) {
      if (time >= length_[r]) {
        Pad(time, r, s, count);
        continue;
      }
      hn::Vec<D> z[3];
      for (int64_t g = 0; g < 3; ++g) {
        z[g] = hn::Add(hn::Load(d, gates + g * lanes), bias[g]);
        Store(d, z[g], t_.gates, time, r, g * state_ + s, count);
      }
      A* const cell = cell_ + r * pitch_ + s;
      const auto state = Math::Step(z, hn::Load(d, cell));
      hn::Store(RoundTo<T>(d, state.cell), d, cell);
      hn::Store(RoundTo<T>(d, state.h), d, h_ + r * pitch_ + s);
      Store<T>(d, state.cell, t_.cells, time, r, s, count);
      Store<T>(d, state.h, t_.h, time, r, s, count);
    }
  }

  template <class To = A>
  HWY_INLINE void Store(D d, hn::Vec<D> x, const Sequence& to, int64_t time, int64_t r, int64_t column, int64_t count) {
    if (to.base != nullptr) StoreStrided(d, x, to.at<To>(time, first_ + r, column), to.strides.column, count);
  }

  // A step that a row has not: zeros in these columns.
  void Pad(int64_t time, int64_t r, int64_t column, int64_t count) {
    for (int64_t s = column; s < column + count; ++s) {
      for (const Sequence* to : {&t_.h, &t_.cells})
        if (to->base != nullptr) write(to->at<T>(time, first_ + r, s), A{0});
      for (int64_t g = 0; t_.gates.base != nullptr && g < 3; ++g) write(t_.gates.at<A>(time, first_ + r, g * state_ + s), A{0});
    }
  }

  void StoreState(const A* row, const Matrix& to, int64_t b) {
    for (int64_t s = 0; to.base != nullptr && s < state_; ++s) write(to.at<T>(b, s), row[s]);
  }

  int64_t Ld() const { return 3 * s_.blocks.lanes; }
  A* Gates(int64_t i, int64_t panel) const { return gates_ + (i * s_.panels + panel) * height_ * Ld(); }

  const LltmSequenceForward& t_;
  const LltmSequenceSteps& s_;
  const A* weights_;
  int64_t features_, state_, first_, rows_, height_, pitch_, longest_ = 0;
  int64_t length_[kMostSequenceRows];
  A *h_, *cell_, *packed_h_, *gates_, *packed_input_;
};

void PackSequenceWeights(const LltmSequenceForward& t, const LltmSequenceSteps& s, int64_t panel, void* packed) {
  const LltmSizes& z = t.sizes.step;
  const GemmView view = matrix_view(t.weights.base, z.dtype, t.weights.strides.column, t.weights.strides.row);
  const int64_t lanes = s.blocks.lanes, first = panel * lanes, count = std::min(lanes, z.state - first);
  const auto pack = [&]<class A>(A* to) {
    for (int64_t g = 0; g < 3; ++g)
      Pack(view, 0, z.state + z.features, g * z.state + first, count, PanelRow<A>{to + g * lanes, 0, lanes, 3 * lanes, 0});
  };
  if (z.dtype == Dtype::f64) return pack(static_cast<double*>(packed) + panel * s.panel_size);
  pack(static_cast<float*>(packed) + panel * s.panel_size);
}

void SequenceRows(const LltmSequenceForward& t, const LltmSequenceSteps& s, const void* weights, int64_t block, void* scratch) {
  with_dtype(t.sizes.step.dtype, [&]<class T>(T) { ForwardRows<T>(t, s, weights, block, scratch).Run(); });
}

GemmTile SequenceTile(Dtype accumulate) {
  const auto lanes =
      static_cast<int64_t>(accumulate == Dtype::f64 ? hn::Lanes(hn::ScalableTag<double>()) : hn::Lanes(hn::ScalableTag<float>()));
  return {kTileRows, lanes, 3 * lanes};
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(PackSequenceWeights);
HWY_EXPORT(SequenceRows);
HWY_EXPORT(SequenceTile);

constexpr const char* kKernels[] = {"rows", nullptr};
using namespace lltm_sequence_forward;

// Rows whose products of the input are made at once: enough to hide that weights come from a farther cache.
constexpr int64_t kRowsOfChunk = 64;

}  // namespace

uint64_t sequence_bytes(int64_t a, int64_t b, int64_t c, Dtype dtype) {
  int64_t bytes;
  if (__builtin_mul_overflow(a, b, &bytes) || __builtin_mul_overflow(bytes, c, &bytes) ||
      __builtin_mul_overflow(bytes, size_of(dtype), &bytes) || bytes > INT64_MAX / 8)
    refuse(NW_OUT_OF_MEMORY, -1, "lltm_sequence: a workspace of %lld x %lld x %lld elements is larger than any memory",
           static_cast<long long>(a), static_cast<long long>(b), static_cast<long long>(c));
  return aligned_bytes(static_cast<uint64_t>(bytes));
}

RowBlocks row_blocks(const Instance& instance, GemmTile tile, const LltmSequenceSizes& sizes, double cost_of_row) {
  RowBlocks b{tile.lanes, tile.rows, 0, 0, 0, 0};
  const int64_t batch = sizes.step.batch;
  const int64_t threads = cost_of_row * static_cast<double>(batch) < kWorthWaking ? 1 : instance.num_threads();
  const int64_t most = ceil_div(batch, ceil_div(batch, kMostSequenceRows));
  b.rows = round_up(std::min(most, ceil_div(batch, threads)), b.tile_rows);
  b.blocks = ceil_div(batch, b.rows);
  b.task_cost = cost_of_row * static_cast<double>(b.rows);
  b.slots = num_slots(instance, b.blocks, b.task_cost);
  return b;
}

LltmSequenceSteps::LltmSequenceSteps(const Instance& instance, const LltmSequenceSizes& sizes) {
  const LltmSizes& z = sizes.step;
  if (z.batch == 0 || z.state == 0) return;
  const Dtype accumulate = accumulate_dtype(z.dtype);
  const GemmTile tile = NARROWS_DISPATCH(instance, SequenceTile)(accumulate);
  const double step_cost = static_cast<double>(z.state) * (3 * static_cast<double>(z.state + z.features) + kActivationCost);
  blocks = row_blocks(instance, tile, sizes, step_cost * static_cast<double>(sizes.steps));
  panels = ceil_div(z.state, tile.lanes);
  chunk = std::clamp<int64_t>(kRowsOfChunk / blocks.rows, 1, std::max<int64_t>(sizes.steps, 1));
  weights_bytes = sequence_bytes(panels, z.state + z.features, tile.columns, accumulate);
  panel_size = (z.state + z.features) * tile.columns;
  const int64_t pitch = panels * tile.lanes;
  const int64_t of_row = 2 * pitch + round_up(z.state, tile.lanes) + chunk * 3 * pitch;
  slot_bytes = sequence_bytes(blocks.rows, of_row, 1, accumulate) + sequence_bytes(blocks.rows, chunk, z.features, accumulate);
  workspace_size = weights_bytes + static_cast<uint64_t>(blocks.slots) * slot_bytes;
}

void LltmSequenceSteps::run(const Instance& instance, const LltmSequenceForward& t, void* workspace) const {
  const LltmSizes& z = t.sizes.step;
  if (z.batch == 0 || z.state == 0) return;
  if (t.sizes.steps > 0) {
    const double cost = static_cast<double>(3 * blocks.lanes * (z.state + z.features));
    run_tasks(instance, panels, cost, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) NARROWS_DISPATCH(instance, PackSequenceWeights)(t, *this, panel, workspace);
    });
  }
  run_tasks(instance, blocks.blocks, blocks.task_cost, [&](int64_t slot, int64_t begin, int64_t end) {
    char* const scratch = static_cast<char*>(workspace) + weights_bytes + static_cast<uint64_t>(slot) * slot_bytes;
    for (int64_t block = begin; block < end; ++block) NARROWS_DISPATCH(instance, SequenceRows)(t, *this, workspace, block, scratch);
  });
}

namespace {

class LltmSequencePlan final : public Plan {
 public:
  LltmSequencePlan(const Instance& instance, const nw_sig& sig)
      : instance_(instance), sizes_(lltm_sequence_sizes(sig, kInput, kOldH)), steps_(instance, sizes_) {
    forced_kernel(sig, kKernels);  // an unknown one is refused
    kernel = kKernels[0];
    workspace_size = steps_.workspace_size;
    read_strides(sig, inputs_, outputs_);
    input_ = sequence_strides(sizes_, input(sig, kInput));
    for (uint32_t i = 0; i < kNumOutputs; ++i)
      if (has_output(sig, i)) sequences_[i] = sequence_strides(sizes_, output(sig, i));
  }

  void launch(const nw_call& call) const override {
    const auto base = [](const DLTensor* const* tensors, uint32_t count, uint32_t i) {
      return i < count ? data<void>(tensors[i]) : nullptr;
    };
    const auto in = [&](uint32_t i) { return Matrix{base(call.inputs, call.num_inputs, i), inputs_[i]}; };
    const auto out = [&](uint32_t i) { return Matrix{base(call.outputs, call.num_outputs, i), outputs_[i]}; };
    const auto sequence = [&](uint32_t i) { return Sequence{base(call.outputs, call.num_outputs, i), sequences_[i]}; };
    LltmSequenceForward t{
        sizes_,        {in(kInput).base, input_}, in(kWeights),    in(kBias), in(kOldH), in(kOldCell), {}, sequence(kH), out(kNewH),
        out(kNewCell), sequence(kCells),          sequence(kGates)};
    t.lengths = {static_cast<const int32_t*>(in(kLengths).base), inputs_[kLengths].column};
    if (sizes_.recompute) t.cells.base = t.gates.base = nullptr;  // they have no steps
    steps_.run(instance_, t, call.workspace);
  }

 private:
  const Instance& instance_;
  LltmSequenceSizes sizes_;
  LltmSequenceSteps steps_;
  Strides2 inputs_[kNumInputs], outputs_[kNumOutputs];
  SequenceStrides input_, sequences_[kNumOutputs];
};

}  // namespace

extern const Op lltm_sequence;  // plugin.cpp lists it, by core/ops/ops.inc
const Op lltm_sequence = {"lltm_sequence", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                            read_params<nw_lltm_sequence_params>(sig);
                            return std::make_unique<LltmSequencePlan>(instance, sig);
                          }};

}  // namespace narrows::cpu
#endif  // HWY_ONCE
