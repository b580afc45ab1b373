// SPDX-License-Identifier: Apache-2.0
// lltm.cpp -- plans and launches lltm. A tile of the product holds the three gates of the same states side by side, so that the
// cell is computed while the tile is in the first-level cache.
#include "lltm.h"

#include "targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/lltm/lltm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "lltm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// store_arg is the LltmForward.
template <class T, class A = Accumulate<T>>
void StoreCells(const GemmProblem& problem, void* tile_data, int64_t row, int64_t rows, int64_t panel) {
  using D = hn::ScalableTag<A>;
  using Math = LltmMath<D>;
  const D d;
  const auto& t = *static_cast<const LltmForward*>(problem.store_arg);
  const int64_t states = problem.columns, lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t s = panel * lanes, count = std::min(lanes, states - s);
  const A* tile = static_cast<const A*>(tile_data);
  hn::Vec<D> bias[3];
  for (int64_t gate = 0; gate < 3; ++gate)
    bias[gate] = LoadStrided(d, t.bias.at<const T>(0, gate * states + s), t.bias.strides.column, count);
  for (int64_t b = row; b < row + rows; ++b, tile += 3 * lanes) {
    hn::Vec<D> z[3];
    for (int64_t gate = 0; gate < 3; ++gate) {
      z[gate] = hn::Add(hn::Load(d, tile + gate * lanes), bias[gate]);
      if (t.gates.base != nullptr) StoreStrided(d, z[gate], t.gates.at<A>(b, gate * states + s), t.gates.strides.column, count);
    }
    const auto old_cell = LoadStrided(d, t.old_cell.at<const T>(b, s), t.old_cell.strides.column, count);
    const auto state = Math::Step(z, old_cell);
    StoreStrided(d, state.cell, t.new_cell.at<T>(b, s), t.new_cell.strides.column, count);
    StoreStrided(d, state.h, t.new_h.at<T>(b, s), t.new_h.strides.column, count);
  }
}

GemmStore CellStore(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64: return StoreCells<double>;
    case Dtype::f16: return StoreCells<f16>;
    case Dtype::bf16: return StoreCells<bf16>;
    default: return StoreCells<float>;
  }
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(CellStore);

constexpr const char* kKernels[] = {"gemm", "scalar", nullptr};
enum Kernel { kGemm, kScalar };
using namespace lltm_forward;

class LltmPlan final : public Plan {
 public:
  LltmPlan(const Instance& instance, const nw_sig& sig) : instance_(instance) {
    sizes_ = lltm_sizes(sig, kInput, kOldH);
    read_strides(sig, inputs_, outputs_);
    choice_ = static_cast<Kernel>(std::max(forced_kernel(sig, kKernels), 0));
    kernel = kKernels[choice_];
    if (choice_ == kScalar) return;
    store_ = NARROWS_DISPATCH(instance, CellStore)(sizes_.dtype);
    layout_ = gemm_layout(instance, sizes_.dtype, 1, sizes_.batch, sizes_.state, true, sizes_.state, sizes_.features,
                          inputs_[kWeights].column == 1 && common::is_aligned(input(sig, kWeights)));
    workspace_size = layout_.workspace_size;
  }

  void launch(const nw_call& call) const override {
    const auto in = [&](uint32_t i) { return Matrix{data<void>(call.inputs[i]), inputs_[i]}; };
    const auto out = [&](uint32_t i) { return Matrix{i < call.num_outputs ? data<void>(call.outputs[i]) : nullptr, outputs_[i]}; };
    const LltmForward t{in(kInput), in(kWeights), in(kBias), in(kOldH), in(kOldCell), out(kNewH), out(kNewCell), out(kGates)};
    if (choice_ == kScalar) return lltm_scalar(instance_, sizes_, t);
    gemm(instance_, layout_, call.workspace, [&](int64_t) { return Product(t); });
  }

 private:
  GemmProblem Product(const LltmForward& t) const {
    const auto view = [&](const Matrix& m, int64_t column) {
      return matrix_view(advance(m.base, column * m.strides.column, sizes_.dtype), sizes_.dtype, m.strides.column, m.strides.row);
    };
    GemmProblem p;
    p.rows = sizes_.batch, p.columns = sizes_.state, p.interleaved = true;
    p.num_segments = 2;
    p.segments[0] = {view(t.old_h, 0), view(t.weights, 0), 0, sizes_.state};
    p.segments[1] = {view(t.input, 0), view(t.weights, sizes_.state), 0, sizes_.features};
    p.store = store_, p.store_arg = &t;
    return p;
  }

  const Instance& instance_;
  LltmSizes sizes_;
  Strides2 inputs_[kNumInputs], outputs_[kNumOutputs];
  Kernel choice_;
  GemmStore store_ = nullptr;
  GemmLayout layout_{};
};

}  // namespace

const Op lltm = {"lltm", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                   check_params_tail(sig, 0);
                   return std::make_unique<LltmPlan>(instance, sig);
                 }};

}  // namespace narrows::cpu
#endif  // HWY_ONCE
