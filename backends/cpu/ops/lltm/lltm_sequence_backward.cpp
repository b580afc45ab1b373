// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_backward.cpp -- plans and launches lltm_sequence_backward. Each task takes its rows of the batch through all steps,
// the last one first: the gradient of a step's gates, then its products with the state's weights. The gradients of all gates stay
// in the workspace. Those of input, weights and bias are then one product each, over all steps.
#include "lltm_sequence.h"

#include "targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/lltm/lltm_sequence_backward.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "lltm_sequence-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

template <class T, class A = Accumulate<T>>
class BackwardRows {
 public:
  using D = hn::ScalableTag<A>;
  using Math = LltmMath<D>;

  BackwardRows(const LltmSequenceBackward& t, int64_t block, void* scratch)
      : t_(t), state_(t.sizes.step.state), first_(block * t.blocks.rows),
        rows_(std::min(t.blocks.rows, t.sizes.step.batch - first_)), pitch_(round_up(state_, 3 * t.blocks.lanes)) {
    const int64_t height = t.blocks.rows;
    d_h_ = static_cast<A*>(scratch), d_cell_ = d_h_ + height * pitch_;
    product_ = d_cell_ + height * pitch_;
    packed_ = product_ + height * pitch_;
  }

  void Run() {
    for (int64_t r = 0; r < rows_; ++r) {
      length_[r] = t_.lengths.of(first_ + r, t_.sizes.steps);
      Begin(t_.grad_new_h, r, d_h_);
      Begin(t_.grad_new_cell, r, d_cell_);
    }
    for (int64_t k = t_.sizes.steps; k-- > 0;) Step(t_.sizes.time(k), k == 0);
    for (int64_t r = 0; r < rows_; ++r) {
      End(d_h_, r, t_.d_old_h);
      End(d_cell_, r, t_.d_old_cell);
    }
  }

 private:
  void Begin(const Matrix& from, int64_t r, A* to) {
    if (from.base == nullptr) return std::fill(to + r * pitch_, to + r * pitch_ + state_, A{0});
    LoadRow(from.at<const T>(first_ + r, 0), from.strides.column, state_, to + r * pitch_);
  }
  void End(const A* from, int64_t r, const Matrix& to) {
    for (int64_t s = 0; to.base != nullptr && s < state_; ++s) write(to.at<T>(first_ + r, s), from[r * pitch_ + s]);
  }

  void Step(int64_t time, bool first) {
    bool any = false, all = true;
    for (int64_t r = 0; r < rows_; ++r) {
      const bool has = time < length_[r];
      any |= has, all &= has;
      if (has)
        GateGrads(time, r);
      else
        std::fill_n(t_.gate_grads.at<A>(time, first_ + r, 0), 3 * state_, A{0});
      if (t_.kept_h.base != nullptr) Keep(time, r, has);
    }
    if (!any || (first && t_.d_old_h.base == nullptr)) return;
    const Sequence& g = t_.gate_grads;
    const GemmView view = matrix_view(g.at<const A>(time, first_, 0), accumulate_dtype(t_.sizes.step.dtype), 1, g.strides.row);
    PackTiles(view, 3 * state_, rows_, packed_);
    const int64_t columns = 3 * t_.blocks.lanes;
    for (int64_t column = 0; column < state_; column += columns)
      MultiplyTiles(packed_, 3 * state_, rows_, static_cast<const A*>(t_.weights_of_state) + column * 3 * state_, product_ + column,
                    pitch_, false);
    if (all) return std::swap(d_h_, product_);
    for (int64_t r = 0; r < rows_; ++r)
      if (time < length_[r]) std::copy_n(product_ + r * pitch_, state_, d_h_ + r * pitch_);
  }

  // From the state's gradients to those of the gates, and of the cell before.
  void GateGrads(int64_t time, int64_t r) {
    const D d;
    const int64_t lanes = t_.blocks.lanes, b = first_ + r;
    for (int64_t s = 0; s < state_; s += lanes) {
      const int64_t count = std::min(lanes, state_ - s);
      hn::Vec<D> z[3];
      for (int64_t g = 0; g < 3; ++g)
        z[g] = LoadStrided(d, t_.gates.at<const A>(time, b, g * state_ + s), t_.gates.strides.column, count);
      const auto cell = LoadStrided(d, t_.cells.at<const T>(time, b, s), t_.cells.strides.column, count);
      auto grad_h = hn::Load(d, d_h_ + r * pitch_ + s);
      if (t_.grad_h.base != nullptr)
        grad_h = hn::Add(grad_h, LoadStrided(d, t_.grad_h.at<const T>(time, b, s), t_.grad_h.strides.column, count));
      A* const grad_cell = d_cell_ + r * pitch_ + s;
      const auto grads = Math::StepGrads(z, cell, grad_h, hn::Load(d, grad_cell));
      for (int64_t g = 0; g < 3; ++g) StoreStrided(d, grads.gates[g], t_.gate_grads.at<A>(time, b, g * state_ + s), 1, count);
      hn::Store(grads.cell, d, grad_cell);
    }
  }

  // The state before this step, and the input, for d_weights.
  void Keep(int64_t time, int64_t r, bool has) {
    const int64_t b = first_ + r, before = t_.sizes.reverse ? time + 1 : time - 1;
    const bool begins = before < 0 || before >= length_[r];
    T* const h = t_.kept_h.at<T>(time, b, 0);
    for (int64_t s = 0; s < state_; ++s) {
      if (!has)
        write(h + s, A{0});
      else
        h[s] = begins ? Element(t_.old_h.at<const T>(b, s)) : Element(t_.h.at<const T>(before, b, s));
    }
    T* const x = t_.kept_input.at<T>(time, b, 0);
    for (int64_t f = 0; f < t_.sizes.step.features; ++f) {
      if (!has)
        write(x + f, A{0});
      else
        x[f] = Element(t_.input.at<const T>(time, b, f));
    }
  }
  static T Element(const T* p) {  // which may lie at any address
    T value;
    std::memcpy(&value, static_cast<const void*>(p), sizeof value);
    return value;
  }

  const LltmSequenceBackward& t_;
  int64_t state_, first_, rows_, pitch_;
  int64_t length_[kMostSequenceRows];
  A *d_h_, *d_cell_, *product_, *packed_;
};

void BackwardSequenceRows(const LltmSequenceBackward& t, int64_t block, void* scratch) {
  with_dtype(t.sizes.step.dtype, [&]<class T>(T) { BackwardRows<T>(t, block, scratch).Run(); });
}

// The panel-th three vectors of columns of the state's weights, (3 * state, state).
void PackStateWeights(const LltmSequenceBackward& t, int64_t panel) {
  const LltmSizes& z = t.sizes.step;
  const GemmView view = matrix_view(t.weights.base, z.dtype, t.weights.strides.row, t.weights.strides.column);
  const int64_t columns = 3 * t.blocks.lanes, first = panel * columns, count = std::min(columns, z.state - first);
  with_dtype(accumulate_dtype(z.dtype), [&]<class A>(A) {
    if constexpr (std::is_floating_point_v<A>) {
      A* const to = static_cast<A*>(t.weights_of_state) + first * 3 * z.state;
      std::fill_n(to, columns * 3 * z.state, A{0});
      Pack(view, 0, 3 * z.state, first, count, PanelRow<A>{to, 0, columns, columns, 0});
    }
  });
}

void SequenceBiasGrad(const LltmSequenceBackward& t, int64_t begin, int64_t end) {
  with_dtype(t.sizes.step.dtype, [&]<class T>(T) {
    using A = Accumulate<T>;
    const int64_t columns = 3 * t.sizes.step.state, lanes = t.blocks.lanes;
    for (int64_t column = begin; column < end; column += lanes)
      SumColumns<T>(static_cast<const A*>(advance(t.gate_grads.base, column, accumulate_dtype(t.sizes.step.dtype))),
                    t.sizes.steps * t.sizes.step.batch, columns, std::min(lanes, columns - column), t.d_bias.at<T>(0, column),
                    t.d_bias.strides.column);
  });
}

GemmTile BackwardSequenceTile(Dtype accumulate) {
  const auto lanes =
      static_cast<int64_t>(accumulate == Dtype::f64 ? hn::Lanes(hn::ScalableTag<double>()) : hn::Lanes(hn::ScalableTag<float>()));
  return {kTileRows, lanes, 3 * lanes};
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(BackwardSequenceRows);
HWY_EXPORT(PackStateWeights);
HWY_EXPORT(SequenceBiasGrad);
HWY_EXPORT(BackwardSequenceTile);

constexpr const char* kKernels[] = {"rows", nullptr};
using namespace lltm_sequence_grad;

class LltmSequenceBackwardPlan final : public Plan {
 public:
  LltmSequenceBackwardPlan(const Instance& instance, const nw_sig& sig)
      : instance_(instance), sizes_(lltm_sequence_sizes(sig, kInput, kOldH)), accumulate_(accumulate_dtype(sizes_.step.dtype)) {
    forced_kernel(sig, kKernels);  // an unknown one is refused
    kernel = kKernels[0];
    read_strides(sig, inputs_, outputs_);
    for (const uint32_t i : {uint32_t{kGradH}, uint32_t{kInput}, uint32_t{kH}, uint32_t{kCells}, uint32_t{kGates}})
      if (has_input(sig, i)) sequences_[i] = sequence_strides(sizes_, input(sig, i));
    if (has_output(sig, kDInput)) d_input_ = sequence_strides(sizes_, output(sig, kDInput));
    const LltmSizes& z = sizes_.step;
    if (z.batch == 0 || z.state == 0) {
      PlanWithoutTerms(sig);
    } else {
      PlanRows(sig);
      PlanProducts(sig);
    }
  }

  void launch(const nw_call& call) const override {
    LltmSequenceBackward t = Bind(call);
    char* const scratch = static_cast<char*>(call.workspace) + shared_bytes_;
    const LltmSizes& z = sizes_.step;
    if (z.batch != 0 && z.state != 0) {
      if (sizes_.recompute) Recompute(call, t, scratch);
      const int64_t panels = ceil_div(z.state, 3 * blocks_.lanes);
      run_tasks(instance_, panels, static_cast<double>(9 * blocks_.lanes * z.state), [&](int64_t, int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel) NARROWS_DISPATCH(instance_, PackStateWeights)(t, panel);
      });
      run_tasks(instance_, blocks_.blocks, blocks_.task_cost, [&](int64_t slot, int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block)
          NARROWS_DISPATCH(instance_, BackwardSequenceRows)(t, block, scratch + static_cast<uint64_t>(slot) * slot_bytes_);
      });
    }
    gemm(instance_, to_input_, scratch, [&](int64_t i) { return ToInput(t, i); });
    gemm(instance_, to_weights_, scratch, [&](int64_t i) { return i == 0 ? ToStateWeights(t) : ToInputWeights(t); });
    if (t.d_bias.base != nullptr) BiasGrad(t);
  }

 private:
  int64_t Gates() const { return 3 * sizes_.step.state; }
  int64_t Terms() const { return sizes_.steps * sizes_.step.batch; }

  // No states, or no rows: what is left are gradients of 0.
  void PlanWithoutTerms(const nw_sig& sig) {
    const LltmSizes& z = sizes_.step;
    if (has_output(sig, kDInput) && has_elements(output(sig, kDInput)))
      to_input_ = gemm_layout(instance_, accumulate_, InputProblems(), Terms() / InputProblems(), z.features, false, Gates());
    if (has_output(sig, kDWeights) && has_elements(output(sig, kDWeights)))
      to_weights_ = gemm_layout(instance_, accumulate_, 2, Gates(), std::max(z.state, z.features), false, 0);
    blocks_.lanes = NARROWS_DISPATCH(instance_, BackwardSequenceTile)(accumulate_).lanes;
    workspace_size = std::max(to_input_.workspace_size, to_weights_.workspace_size);
  }

  // The parts of the workspace that tasks share, then the scratch of each.
  void PlanRows(const nw_sig& sig) {
    const LltmSizes& z = sizes_.step;
    const double step_cost = static_cast<double>(z.state) * (3 * static_cast<double>(z.state) + kDerivativeCost);
    blocks_ = row_blocks(instance_, NARROWS_DISPATCH(instance_, BackwardSequenceTile)(accumulate_), sizes_,
                         step_cost * static_cast<double>(sizes_.steps));
    const int64_t pitch = round_up(z.state, 3 * blocks_.lanes);
    grads_bytes_ = sequence_bytes(sizes_.steps, z.batch, Gates(), accumulate_);
    weights_bytes_ = sequence_bytes(pitch, 3, z.state, accumulate_);
    keeps_ = has_input(sig, kLengths) && has_output(sig, kDWeights);
    if (keeps_) {
      kept_h_bytes_ = sequence_bytes(sizes_.steps, z.batch, z.state, z.dtype);
      kept_input_bytes_ = sequence_bytes(sizes_.steps, z.batch, z.features, z.dtype);
    }
    if (sizes_.recompute) {
      cells_bytes_ = sequence_bytes(sizes_.steps, z.batch, z.state, z.dtype);
      again_ = LltmSequenceSteps(instance_, sizes_);
    }
    shared_bytes_ = grads_bytes_ + weights_bytes_ + kept_h_bytes_ + kept_input_bytes_ + cells_bytes_;
    slot_bytes_ = sequence_bytes(blocks_.rows, 3 * pitch + round_up(Gates(), blocks_.lanes), 1, accumulate_);
  }

  void PlanProducts(const nw_sig& sig) {
    const LltmSizes& z = sizes_.step;
    if (has_output(sig, kDInput) && sizes_.steps > 0)
      to_input_ = gemm_layout(instance_, accumulate_, InputProblems(), Terms() / InputProblems(), z.features, false, Gates());
    if (has_output(sig, kDWeights))
      to_weights_ = gemm_layout(instance_, accumulate_, 2, Gates(), std::max(z.state, z.features), false, Terms(), z.batch);
    const uint64_t of_rows = static_cast<uint64_t>(blocks_.slots) * slot_bytes_;
    workspace_size =
        shared_bytes_ + std::max({of_rows, to_input_.workspace_size, to_weights_.workspace_size, again_.workspace_size});
  }

  LltmSequenceBackward Bind(const nw_call& call) const {
    const auto base = [](const DLTensor* const* tensors, uint32_t count, uint32_t i) {
      return i < count ? data<void>(tensors[i]) : nullptr;
    };
    const auto in = [&](uint32_t i) { return Matrix{base(call.inputs, call.num_inputs, i), inputs_[i]}; };
    const auto out = [&](uint32_t i) { return Matrix{base(call.outputs, call.num_outputs, i), outputs_[i]}; };
    const auto sequence = [&](uint32_t i) { return Sequence{base(call.inputs, call.num_inputs, i), sequences_[i]}; };
    LltmSequenceBackward t{};
    t.sizes = sizes_, t.blocks = blocks_;
    t.grad_h = sequence(kGradH), t.grad_new_h = in(kGradNewH), t.grad_new_cell = in(kGradNewCell);
    t.input = sequence(kInput), t.weights = in(kWeights), t.old_h = in(kOldH);
    t.lengths = {static_cast<const int32_t*>(in(kLengths).base), inputs_[kLengths].column};
    t.h = sequence(kH), t.cells = sequence(kCells), t.gates = sequence(kGates);
    t.d_input = {out(kDInput).base, d_input_};
    t.d_weights = out(kDWeights), t.d_bias = out(kDBias), t.d_old_h = out(kDOldH), t.d_old_cell = out(kDOldCell);
    char* part = static_cast<char*>(call.workspace);
    const auto take = [&](uint64_t bytes, int64_t columns) {
      const Sequence taken{bytes == 0 ? nullptr : part, Strides(columns)};
      part += bytes;
      return taken;
    };
    t.gate_grads = take(grads_bytes_, Gates());
    t.weights_of_state = part, part += weights_bytes_;
    t.kept_h = take(kept_h_bytes_, sizes_.step.state), t.kept_input = take(kept_input_bytes_, sizes_.step.features);
    if (sizes_.recompute) t.cells = take(cells_bytes_, sizes_.step.state), t.gates = t.gate_grads;
    return t;
  }

  // Of a sequence in the workspace: rows lie as those of the op's contiguous tensors do, so that products have long runs.
  SequenceStrides Strides(int64_t columns) const {
    if (sizes_.batch_first) return {columns, sizes_.steps * columns, 1};
    return {sizes_.step.batch * columns, columns, 1};
  }

  // Forward once more: its gates come to lie where their gradients will.
  void Recompute(const nw_call& call, const LltmSequenceBackward& t, void* scratch) const {
    const auto in = [&](uint32_t i) { return Matrix{i < call.num_inputs ? data<void>(call.inputs[i]) : nullptr, inputs_[i]}; };
    LltmSequenceForward f{};
    f.sizes = sizes_, f.input = t.input, f.weights = t.weights, f.bias = in(kBias), f.old_h = t.old_h, f.old_cell = in(kOldCell);
    f.lengths = t.lengths, f.cells = t.cells, f.gates = t.gates;
    again_.run(instance_, f, scratch);
  }

  // d_input is one product where its rows lie evenly, else one for each of its outer rows.
  struct Axis {
    int64_t count, stride;
  };
  Axis OuterOfInput() const {
    return sizes_.batch_first ? Axis{sizes_.step.batch, d_input_.row} : Axis{sizes_.steps, d_input_.step};
  }
  Axis InnerOfInput() const {
    return sizes_.batch_first ? Axis{sizes_.steps, d_input_.step} : Axis{sizes_.step.batch, d_input_.row};
  }
  bool InputIsEven() const { return OuterOfInput().stride == InnerOfInput().count * InnerOfInput().stride; }
  int64_t InputProblems() const { return InputIsEven() ? 1 : std::max<int64_t>(OuterOfInput().count, 1); }

  GemmProblem ToInput(const LltmSequenceBackward& t, int64_t i) const {
    const LltmSizes& z = sizes_.step;
    GemmProblem p;
    p.rows = Terms() / InputProblems(), p.columns = z.features;
    const Strides2 w = t.weights.strides;
    p.segments[0] = {matrix_view(advance(t.gate_grads.base, i * p.rows * Gates(), accumulate_), accumulate_, 1, Gates()),
                     matrix_view(advance(t.weights.base, z.state * w.column, z.dtype), z.dtype, w.row, w.column), 0, Gates()};
    p.output.base = advance(t.d_input.base, i * OuterOfInput().stride, z.dtype), p.output.dtype = z.dtype;
    p.output.row_stride = InnerOfInput().stride, p.output.column_stride = d_input_.column;
    return p;
  }

  // Rows of `steps` steps from `time` on as the depth of a product.
  GemmView DepthView(const Sequence& of, Dtype dtype, int64_t time, int64_t steps) const {
    GemmView view;
    view.base = advance(of.base, time * of.strides.step, dtype), view.dtype = dtype;
    view.width_step = of.strides.column;
    const bool inner_steps = sizes_.batch_first;
    view.depth_inner = std::max<int64_t>(inner_steps ? steps : sizes_.step.batch, 1);
    view.depth_step = inner_steps ? of.strides.step : of.strides.row;
    view.depth_outer = inner_steps ? of.strides.row : of.strides.step;
    return merged(view);
  }
  GemmSegment WeightsSegment(const LltmSequenceBackward& t, const Sequence& x, int64_t time, int64_t from, int64_t steps) const {
    return {DepthView(t.gate_grads, accumulate_, time, steps), DepthView(x, sizes_.step.dtype, from, steps), 0,
            steps * sizes_.step.batch};
  }
  GemmOutput WeightsOutput(const LltmSequenceBackward& t, int64_t column) const {
    GemmOutput out;
    out.base = advance(t.d_weights.base, column * t.d_weights.strides.column, sizes_.step.dtype), out.dtype = sizes_.step.dtype;
    out.row_stride = t.d_weights.strides.row, out.column_stride = t.d_weights.strides.column;
    return out;
  }

  GemmProblem ToInputWeights(const LltmSequenceBackward& t) const {
    GemmProblem p;
    p.rows = Gates(), p.columns = sizes_.step.features;
    p.segments[0] = WeightsSegment(t, keeps_ ? t.kept_input : t.input, 0, 0, sizes_.steps);
    p.output = WeightsOutput(t, sizes_.step.state);
    return p;
  }
  // Each step's gradient meets the state before it: `h` of the step before, and old_h at the first one.
  GemmProblem ToStateWeights(const LltmSequenceBackward& t) const {
    GemmProblem p;
    p.rows = Gates(), p.columns = sizes_.step.state;
    p.output = WeightsOutput(t, 0);
    const int64_t steps = sizes_.steps;
    if (keeps_ || steps == 0) {
      p.segments[0] = WeightsSegment(t, keeps_ ? t.kept_h : Sequence{}, 0, 0, steps);
      return p;
    }
    const Sequence old_h{t.old_h.base, {0, t.old_h.strides.row, t.old_h.strides.column}};
    p.segments[0] = WeightsSegment(t, old_h, sizes_.reverse ? steps - 1 : 0, 0, 1);
    if (steps == 1) return p;
    p.num_segments = 2;
    p.segments[1] = WeightsSegment(t, t.h, sizes_.reverse ? 0 : 1, sizes_.reverse ? 1 : 0, steps - 1);
    return p;
  }

  void BiasGrad(const LltmSequenceBackward& t) const {
    constexpr int64_t kColumns = 64;  // a multiple of every target's lanes
    const int64_t columns = Gates();
    run_tasks(instance_, ceil_div(columns, kColumns), static_cast<double>(Terms()) * kColumns,
              [&](int64_t, int64_t begin, int64_t end) {
                NARROWS_DISPATCH(instance_, SequenceBiasGrad)(t, begin * kColumns, std::min(end * kColumns, columns));
              });
  }

  const Instance& instance_;
  LltmSequenceSizes sizes_;
  Dtype accumulate_;
  Strides2 inputs_[kNumInputs], outputs_[kNumOutputs];
  SequenceStrides sequences_[kNumInputs], d_input_;
  RowBlocks blocks_{};
  LltmSequenceSteps again_;
  bool keeps_ = false;
  uint64_t grads_bytes_ = 0, weights_bytes_ = 0, kept_h_bytes_ = 0, kept_input_bytes_ = 0, cells_bytes_ = 0;
  uint64_t shared_bytes_ = 0, slot_bytes_ = 0;
  GemmLayout to_input_{}, to_weights_{};
};

}  // namespace

extern const Op lltm_sequence_backward;  // plugin.cpp lists it, by core/ops/ops.inc
const Op lltm_sequence_backward = {"lltm_sequence_backward", kKernels,
                                   [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                                     read_params<nw_lltm_sequence_params>(sig);
                                     return std::make_unique<LltmSequenceBackwardPlan>(instance, sig);
                                   }};

}  // namespace narrows::cpu
#endif  // HWY_ONCE
