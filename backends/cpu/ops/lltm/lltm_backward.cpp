// SPDX-License-Identifier: Apache-2.0
// lltm_backward.cpp -- plans and launches lltm_backward. First the gradient of the gates, from what forward saved; then the
// products that spread it over inputs and weights, and the column sums for the bias.
#include "lltm.h"

#include "targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/lltm/lltm_backward.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "lltm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// gate_grads and d_old_cell of one row of the batch.
template <class T, class A = Accumulate<T>>
void GateGradsRow(const LltmSizes& sizes, const LltmBackward& t, int64_t b) {
  using D = hn::ScalableTag<A>;
  using Math = LltmMath<D>;
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), state = sizes.state;
  for (int64_t s = 0; s < state; s += lanes) {
    const int64_t count = std::min(lanes, state - s);
    const auto load = [&](const Matrix& m) HWY_ATTR {
      return m.base == nullptr ? hn::Zero(d) : LoadStrided(d, m.at<const T>(b, s), m.strides.column, count);
    };
    hn::Vec<D> z[3];
    for (int64_t i = 0; i < 3; ++i) z[i] = LoadStrided(d, t.gates.at<const A>(b, i * state + s), t.gates.strides.column, count);
    const auto grads = Math::StepGrads(z, load(t.new_cell), load(t.grad_h), load(t.grad_cell));
    for (int64_t i = 0; i < 3; ++i) StoreStrided(d, grads.gates[i], t.gate_grads.at<A>(b, i * state + s), 1, count);
    if (t.d_old_cell.base != nullptr) StoreStrided(d, grads.cell, t.d_old_cell.at<T>(b, s), t.d_old_cell.strides.column, count);
  }
}

void GateGrads(const LltmSizes& sizes, const LltmBackward& t, int64_t begin, int64_t end) {
  with_dtype(sizes.dtype, [&]<class T>(T) {
    for (int64_t b = begin; b < end; ++b) GateGradsRow<T>(sizes, t, b);
  });
}

// d_bias of a vector of columns.
template <class T, class A = Accumulate<T>>
void BiasGradColumns(const LltmSizes& sizes, const LltmBackward& t, int64_t column) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<A>()));
  SumColumns<T>(t.gate_grads.at<const A>(0, column), sizes.batch, t.gate_grads.strides.row,
                std::min(lanes, 3 * sizes.state - column), t.d_bias.at<T>(0, column), t.d_bias.strides.column);
}

void BiasGrad(const LltmSizes& sizes, const LltmBackward& t, int64_t begin, int64_t end) {
  with_dtype(sizes.dtype, [&]<class T>(T) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Accumulate<T>>()));
    for (int64_t column = begin; column < end; column += lanes) BiasGradColumns<T>(sizes, t, column);
  });
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(GateGrads);
HWY_EXPORT(BiasGrad);

constexpr const char* kKernels[] = {"gemm", "scalar", nullptr};
enum Kernel { kGemm, kScalar };
using namespace lltm_grad;

class LltmBackwardPlan final : public Plan {
 public:
  LltmBackwardPlan(const Instance& instance, const nw_sig& sig) : instance_(instance) {
    sizes_ = lltm_sizes(sig, kInput, kOldH);
    read_strides(sig, inputs_, outputs_);
    all_zero_ = !lltm_grad_has_terms(sig, sizes_);
    choice_ = static_cast<Kernel>(std::max(forced_kernel(sig, kKernels), 0));
    kernel = kKernels[choice_];
    const Dtype accumulate = accumulate_dtype(sizes_.dtype);
    const int64_t gates = 3 * sizes_.state, widest = std::max(sizes_.state, sizes_.features);
    const int64_t widest_of_inputs =
        std::max(has_output(sig, kDOldH) ? sizes_.state : 0, has_output(sig, kDInput) ? sizes_.features : 0);
    gate_grads_bytes_ = aligned_bytes(static_cast<uint64_t>(sizes_.batch * gates * size_of(accumulate)));
    if (choice_ == kGemm) {
      if (has_output(sig, kDInput) || has_output(sig, kDOldH))
        to_inputs_ = gemm_layout(instance, accumulate, 2, sizes_.batch, widest_of_inputs, false, gates);
      if (has_output(sig, kDWeights)) to_weights_ = gemm_layout(instance, accumulate, 2, gates, widest, false, sizes_.batch);
    }
    // With few rows to sum over, d_weights is as many bytes as it is work: a large one took 5 % longer through the caches.
    streamed_ = HWY_ARCH_X86 && gates * (sizes_.state + sizes_.features) * size_of(sizes_.dtype) > kBytesWorthStreaming / 2;
    workspace_size = gate_grads_bytes_ + std::max(to_inputs_.workspace_size, to_weights_.workspace_size);
  }

  void launch(const nw_call& call) const override {
    const LltmBackward t = Bind(call);
    if (all_zero_) return FillZero(t);
    if (choice_ == kScalar) return lltm_backward_scalar(instance_, sizes_, t);
    const double row_cost = kDerivativeCost * static_cast<double>(sizes_.state), batch = static_cast<double>(sizes_.batch);
    run_tasks(instance_, sizes_.batch, row_cost,
              [&](int64_t, int64_t begin, int64_t end) { NARROWS_DISPATCH(instance_, GateGrads)(sizes_, t, begin, end); });
    char* scratch = static_cast<char*>(call.workspace) + gate_grads_bytes_;
    gemm(instance_, to_inputs_, scratch,
         [&](int64_t i) { return i == 0 ? ToInput(t, t.d_old_h, StateColumns()) : ToInput(t, t.d_input, FeatureColumns()); });
    gemm(instance_, to_weights_, scratch,
         [&](int64_t i) { return i == 0 ? ToWeights(t, t.old_h, StateColumns()) : ToWeights(t, t.input, FeatureColumns()); });
    if (t.d_bias.base == nullptr) return;
    constexpr int64_t kColumns = 64;  // a multiple of every target's lanes
    const int64_t columns = 3 * sizes_.state;
    run_tasks(instance_, ceil_div(columns, kColumns), batch * kColumns, [&](int64_t, int64_t begin, int64_t end) {
      NARROWS_DISPATCH(instance_, BiasGrad)(sizes_, t, begin * kColumns, std::min(end * kColumns, columns));
    });
  }

 private:
  // Columns of weights and d_weights: those that meet old_h, then those that meet input.
  struct Columns {
    int64_t first, count;
  };
  Columns StateColumns() const { return {0, sizes_.state}; }
  Columns FeatureColumns() const { return {sizes_.state, sizes_.features}; }

  LltmBackward Bind(const nw_call& call) const {
    const auto in = [&](uint32_t i) { return Matrix{data<void>(call.inputs[i]), inputs_[i]}; };
    const auto out = [&](uint32_t i) { return Matrix{i < call.num_outputs ? data<void>(call.outputs[i]) : nullptr, outputs_[i]}; };
    return {in(kGradH),
            in(kGradCell),
            in(kInput),
            in(kWeights),
            in(kOldH),
            in(kNewCell),
            in(kGates),
            out(kDInput),
            out(kDWeights),
            out(kDBias),
            out(kDOldH),
            out(kDOldCell),
            {call.workspace, {3 * sizes_.state, 1}}};
  }

  GemmOutput OutputOf(const Matrix& m, int64_t column) const {
    GemmOutput out;
    out.base = advance(m.base, column * m.strides.column, sizes_.dtype), out.dtype = sizes_.dtype;
    out.row_stride = m.strides.row, out.column_stride = m.strides.column;
    return out;
  }

  // gate_grads * weights, for the columns of weights that belong to `grad`; nothing where it is not wanted.
  GemmProblem ToInput(const LltmBackward& t, const Matrix& grad, Columns columns) const {
    GemmProblem p;
    if (grad.base == nullptr) return p;
    const Strides2 w = t.weights.strides;
    p.rows = sizes_.batch, p.columns = columns.count;
    p.segments[0] = {matrix_view(t.gate_grads.base, accumulate_dtype(sizes_.dtype), 1, 3 * sizes_.state),
                     matrix_view(advance(t.weights.base, columns.first * w.column, sizes_.dtype), sizes_.dtype, w.row, w.column), 0,
                     3 * sizes_.state};
    p.output = OutputOf(grad, 0);
    return p;
  }

  // gate_grads^T * old_h or input, into the columns of d_weights that belong to it.
  GemmProblem ToWeights(const LltmBackward& t, const Matrix& x, Columns columns) const {
    GemmProblem p;
    p.rows = 3 * sizes_.state, p.columns = columns.count;
    p.segments[0] = {matrix_view(t.gate_grads.base, accumulate_dtype(sizes_.dtype), 3 * sizes_.state, 1),
                     matrix_view(x.base, sizes_.dtype, x.strides.row, x.strides.column), 0, sizes_.batch};
    p.output = OutputOf(t.d_weights, columns.first);
    p.output.streamed = streamed_;
    return p;
  }

  void FillZero(const LltmBackward& t) const {
    const Matrix* const outputs[kNumOutputs] = {&t.d_input, &t.d_weights, &t.d_bias, &t.d_old_h, &t.d_old_cell};
    for (uint32_t output = 0; output < kNumOutputs; ++output) {
      const Matrix& m = *outputs[output];
      const Extents2 of = lltm_grad_extents(sizes_, output);
      if (m.base == nullptr || of.columns == 0) continue;
      with_dtype(sizes_.dtype, [&]<class T>(T) {
        for (int64_t i = 0; i < of.rows; ++i)
          for (int64_t j = 0; j < of.columns; ++j) write(m.at<T>(i, j), Accumulate<T>{0});
      });
    }
  }

  const Instance& instance_;
  LltmSizes sizes_;
  Strides2 inputs_[kNumInputs], outputs_[kNumOutputs];
  Kernel choice_;
  uint64_t gate_grads_bytes_;
  bool all_zero_, streamed_;
  GemmLayout to_inputs_{}, to_weights_{};
};

}  // namespace

const Op lltm_backward = {"lltm_backward", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                            check_params_tail(sig, 0);
                            return std::make_unique<LltmBackwardPlan>(instance, sig);
                          }};

}  // namespace narrows::cpu
#endif  // HWY_ONCE
