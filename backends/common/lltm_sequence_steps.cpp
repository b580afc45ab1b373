// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_steps.cpp -- plans one lltm call for each step.
#include "lltm_sequence_steps.h"

#include <array>
#include <bit>

#include "integers.h"

namespace narrows::common {
namespace {

constexpr DLDataType kInt32{kDLInt, 32, 1}, kBoolean{kDLBool, 8, 1};

// Whether a tensor has no elements.
bool is_empty(const StepTensor& t) { return std::count(t.shape, t.shape + std::max(t.ndim, 0), 0) != 0; }

// Strides as a signature has them, and the alignment of any step.
StepTensor finished(StepTensor t) {
  if (t.ndim < 0) return t;
  uint64_t dense = 1;
  const bool empty = is_empty(t);
  for (int32_t d = t.ndim; d-- > 0; dense *= static_cast<uint64_t>(std::max<int64_t>(t.shape[d], 1)))
    if (empty || t.shape[d] <= 1) t.strides[d] = static_cast<int64_t>(dense);
  const uint64_t bytes = static_cast<uint64_t>(t.place.step | t.place.offset);
  t.align_log2 = empty ? 8 : std::min<uint16_t>(t.align_log2, bytes == 0 ? 8 : static_cast<uint16_t>(std::countr_zero(bytes)));
  return t;
}

// Bits of a tensor, for copies.
DLDataType bits_of(DLDataType t) { return t.code == kDLBool ? t : DLDataType{kDLUInt, t.bits, 1}; }
int number_of_bits(DLDataType t) {
  return t.bits == 64 ? NW_DTYPE_UINT64 : t.bits == 32 ? NW_DTYPE_UINT32 : t.bits == 16 ? NW_DTYPE_UINT16 : NW_DTYPE_UINT8;
}

// What forward and backward have in common: tensors, the workspace, and the calls that move elements.
class Steps : public LltmSequenceByCalls {
 protected:
  Steps(const nw_sig& sig, const StepPlanner& planner, uint32_t input_index, uint32_t old_h)
      : sizes(lltm_sequence_sizes(sig, input_index, old_h)), sig_(sig), planner_(planner) {
    dtype = input(sig, input_index).dtype;
    gates_dtype = dtype.bits == 16 ? DLDataType{kDLFloat, 32, 1} : dtype;
  }

  // ---- tensors ----

  static StepTensor of(const nw_tensor_sig& t, StepPlace::Kind kind, uint32_t index) {
    StepTensor out;
    out.place.kind = kind, out.place.index = index;
    out.dtype = t.dtype, out.ndim = t.ndim, out.align_log2 = t.align_log2;
    std::copy_n(t.shape, t.ndim, out.shape), std::copy_n(t.strides, t.ndim, out.strides);
    return out;
  }
  StepTensor in(uint32_t i) const { return has_input(sig_, i) ? of(input(sig_, i), StepPlace::kInput, i) : StepTensor{}; }
  StepTensor out(uint32_t i) const { return has_output(sig_, i) ? of(output(sig_, i), StepPlace::kOutput, i) : StepTensor{}; }
  // A sequence as (steps, batch, columns).
  StepTensor by_step(StepTensor t) const {
    if (t.ndim != 3 || !sizes.batch_first) return t;
    std::swap(t.shape[0], t.shape[1]), std::swap(t.strides[0], t.strides[1]);
    return t;
  }
  // One step of such a sequence: (batch, columns).
  static StepTensor one_step(StepTensor t) {
    if (t.ndim != 3) return t;
    const int64_t bytes = t.dtype.bits / 8;
    t.place.step = is_empty(t) ? 0 : t.strides[0] * bytes;
    t.ndim = 2;
    for (int d = 0; d < 2; ++d) t.shape[d] = t.shape[d + 1], t.strides[d] = t.strides[d + 1];
    return finished(t);
  }
  // Some steps of it, from `first` on.
  static StepTensor some_steps(StepTensor t, int64_t first, int64_t count) {
    if (!is_empty(t)) t.place.offset += first * t.strides[0] * (t.dtype.bits / 8);
    t.shape[0] = count;
    return finished(t);
  }

  // A sequence as one matrix, rows in the order of the op's contiguous tensors; none where its rows do not lie evenly.
  StepTensor merged(StepTensor t) const {
    const int outer = sizes.batch_first ? 1 : 0, inner = 1 - outer;
    const bool even =
        is_empty(t) || t.shape[outer] <= 1 || t.shape[inner] <= 1 || t.strides[outer] == t.shape[inner] * t.strides[inner];
    if (!even) return {};
    StepTensor m = t;
    m.ndim = 2;
    if (__builtin_mul_overflow(t.shape[0], t.shape[1], &m.shape[0]))
      refuse(NW_OUT_OF_MEMORY, -1, "%s: %lld x %lld rows need more bytes than the address space has", sig_.op,
             static_cast<long long>(t.shape[0]), static_cast<long long>(t.shape[1]));
    m.strides[0] = t.shape[inner] > 1 ? t.strides[inner] : t.strides[outer];
    m.shape[1] = t.shape[2], m.strides[1] = t.strides[2];
    return finished(m);
  }

  // Another step of a tensor that the call has too.
  static StepTensor apart(StepTensor t) {
    t.place.apart = true;
    return t;
  }

  // A tensor in the workspace, contiguous. A sequence's rows lie in the order of the op's contiguous tensors.
  StepTensor reserve(DLDataType type, std::initializer_list<int64_t> shape) {
    StepTensor t;
    t.place.kind = StepPlace::kWorkspace, t.place.offset = static_cast<int64_t>(workspace_size);
    t.dtype = type, t.ndim = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), t.shape);
    int64_t elements = 1, bytes = 0;
    for (int32_t d = t.ndim; d-- > 0;) {
      t.strides[d] = elements;
      if (__builtin_mul_overflow(elements, t.shape[d], &elements)) elements = INT64_MAX / 4;
    }
    if (__builtin_mul_overflow(elements, type.bits / 8, &bytes) || bytes > INT64_MAX / 8)
      refuse(NW_OUT_OF_MEMORY, -1, "%s: the call needs a workspace that is larger than any memory", sig_.op);
    workspace_size += static_cast<uint64_t>(round_up(bytes, NW_WORKSPACE_ALIGN));
    return finished(t);
  }
  StepTensor reserve_sequence(DLDataType type, int64_t columns) {
    const int64_t batch = sizes.step.batch;
    if (!sizes.batch_first) return reserve(type, {sizes.steps, batch, columns});
    return by_step(reserve(type, {batch, sizes.steps, columns}));
  }
  StepTensor reserve_state() { return reserve(dtype, {sizes.step.batch, sizes.step.state}); }

  // ---- calls ----

  StepCall call(const char* op, std::vector<StepTensor> inputs, std::vector<StepTensor> outputs) {
    return add(StepCall(planner_, sig_, op, nullptr, 0, std::move(inputs), std::move(outputs)));
  }
  StepCall elementwise(const nw_elementwise_params& params, std::vector<StepTensor> inputs, StepTensor result) {
    return add(StepCall(planner_, sig_, "elementwise", &params, sizeof params, std::move(inputs), {result}));
  }
  static nw_elementwise_params function(int32_t number) {
    nw_elementwise_params params{};
    params.function = number;
    return params;
  }
  static StepTensor as_bits(StepTensor t) {
    t.dtype = bits_of(t.dtype);
    return t;
  }
  StepCall copy(const StepTensor& from, const StepTensor& to) {
    nw_elementwise_params params = function(NW_EW_CAST);
    params.out_dtype = number_of_bits(from.dtype);
    return elementwise(params, {as_bits(from)}, as_bits(to));
  }
  // to = active ? yes : no. `no` absent: 0.
  StepCall select(const StepTensor& active, const StepTensor& yes, const StepTensor& no, const StepTensor& to) {
    std::vector<StepTensor> inputs{active, as_bits(yes)};
    if (no.ndim >= 0) inputs.push_back(as_bits(no));
    return elementwise(function(NW_EW_WHERE), std::move(inputs), as_bits(to));
  }
  // In place: whatever integers are there, times 0.
  StepCall zero(const StepTensor& t) { return elementwise(function(NW_EW_MUL), {as_bits(t)}, as_bits(t)); }
  StepCall copy_or_zero(const StepTensor& from, const StepTensor& to) { return from.ndim < 0 ? zero(to) : copy(from, to); }

  StepCall add(StepCall made) {
    sub_workspace = std::max(sub_workspace, made.workspace_size());
    const uint32_t of_call = made.traits();
    traits = (traits & (of_call | NW_PLAN_NONDETERMINISTIC)) | (of_call & NW_PLAN_NONDETERMINISTIC);
    return made;
  }

  // ---- which rows have which step ----

  // The table of (steps, batch, 1) bools: lengths > t, of a counter that goes from 0 on.
  void plan_active(StepTensor lengths) {
    has_lengths = lengths.ndim >= 0 && sizes.steps > 0;
    if (!has_lengths) return;
    lengths.ndim = 2, lengths.shape[1] = 1;
    lengths = finished(lengths);
    active = reserve_sequence(kBoolean, 1);
    StepTensor counters = reserve(kInt32, {2, 1, 1});
    const StepTensor counter = one_step(counters);
    begin_count_ = zero(counter);
    nw_elementwise_params more = function(NW_EW_ADD);
    more.b_int = 1;
    count_ = elementwise(more, {counter}, apart(counter));
    compare_ = elementwise(function(NW_EW_GT), {lengths, counter}, one_step(active));
  }
  void make_active(const nw_call& c, char* workspace) const {
    if (!has_lengths) return;
    begin_count_.launch(c, workspace, {0});
    for (int64_t t = 0; t < sizes.steps; ++t) {
      compare_.launch(c, workspace, {0, t % 2, t});
      count_.launch(c, workspace, {t % 2, (t + 1) % 2});
    }
  }

  LltmSequenceSizes sizes;
  DLDataType dtype{}, gates_dtype{};
  bool has_lengths = false;
  StepTensor active;
  uint64_t sub_workspace = 0;  // of the calls, one at a time

  const nw_sig& signature() const { return sig_; }
  const StepPlanner& planner() const { return planner_; }

  // The end of planning: the calls' workspace comes last.
  void finish() {
    calls_at_ = workspace_size;
    workspace_size += static_cast<uint64_t>(round_up(static_cast<int64_t>(sub_workspace), NW_WORKSPACE_ALIGN));
  }
  char* calls_workspace(const nw_call& c) const {
    return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(c.workspace) + calls_at_);
  }

 private:
  const nw_sig& sig_;  // while planning
  const StepPlanner& planner_;
  uint64_t calls_at_ = 0;
  StepCall begin_count_, count_, compare_;
};

// ---- forward ----

class Forward final : public Steps {
 public:
  Forward(const nw_sig& sig, const StepPlanner& planner)
      : Steps(sig, planner, lltm_sequence_forward::kInput, lltm_sequence_forward::kOldH) {
    using namespace lltm_sequence_forward;
    plan_active(in(kLengths));
    const StepTensor input = by_step(in(kInput)), old_h = in(kOldH), old_cell = in(kOldCell), h = by_step(out(kH));
    StepTensor bias = in(kBias), cells = by_step(out(kCells)), gates = by_step(out(kGates));
    if (sizes.recompute) cells = gates = {};
    if (bias.ndim < 0) {
      bias = reserve(dtype, {3 * sizes.step.state});
      begin_.push_back(zero(bias));
    }
    saves_ = cells.ndim >= 0;
    if (!saves_) cells = reserve(dtype, {2, sizes.step.batch, sizes.step.state});
    StepTensor before_h = h, before_cell = cells;
    if (has_lengths) {
      before_h = reserve(dtype, {2, sizes.step.batch, sizes.step.state});
      before_cell = reserve(dtype, {2, sizes.step.batch, sizes.step.state});
      begin_.push_back(copy(old_h, one_step(before_h)));
      begin_.push_back(copy(old_cell, one_step(before_cell)));
    }
    const auto step = [&](const StepTensor& from_h, const StepTensor& from_cell) {
      return call("lltm", {one_step(input), in(kWeights), bias, from_h, from_cell},
                  {one_step(h), one_step(cells), one_step(gates)});
    };
    if (sizes.steps > 0 && !has_lengths) first_ = step(old_h, old_cell);
    if (sizes.steps > 0) step_ = step(apart(one_step(before_h)), apart(one_step(before_cell)));
    if (has_lengths) {
      hold_h_ = select(one_step(active), one_step(h), one_step(before_h), apart(one_step(before_h)));
      hold_cell_ = select(one_step(active), one_step(cells), one_step(before_cell), apart(one_step(before_cell)));
      pad_.push_back(select(active, h, {}, h));
      if (saves_) pad_.push_back(select(active, cells, {}, cells));
      if (gates.ndim >= 0) pad_.push_back(select(active, gates, {}, gates));
    }
    const bool any = sizes.steps > 0;
    if (has_output(sig, kNewH)) end_h_ = copy(any ? one_step(before_h) : old_h, out(kNewH));
    if (has_output(sig, kNewCell)) end_cell_ = copy(any ? one_step(before_cell) : old_cell, out(kNewCell));
    finish();
  }

  void launch(const nw_call& c) const override {
    char* const workspace = calls_workspace(c);
    make_active(c, workspace);
    for (const StepCall& one : begin_) one.launch(c, workspace, {0});
    int64_t h = 0, cell = 0;  // where the state is
    for (int64_t k = 0; k < sizes.steps; ++k) {
      const int64_t t = sizes.time(k), to_cell = saves_ ? t : k % 2;
      const StepCall& step = k == 0 && first_ ? first_ : step_;
      step.launch(c, workspace, {t, 0, 0, h, cell, t, to_cell, t});
      if (has_lengths) {
        hold_h_.launch(c, workspace, {t, t, h, 1 - h});
        hold_cell_.launch(c, workspace, {t, to_cell, cell, 1 - cell});
        h = 1 - h, cell = 1 - cell;
      } else {
        h = t, cell = to_cell;
      }
    }
    for (const StepCall& one : pad_) one.launch(c, workspace, {0});
    if (end_h_) end_h_.launch(c, workspace, {h, 0});
    if (end_cell_) end_cell_.launch(c, workspace, {cell, 0});
  }

 private:
  bool saves_ = false;
  StepCall first_, step_, hold_h_, hold_cell_, end_h_, end_cell_;
  std::vector<StepCall> begin_, pad_;
};

// ---- the input's product ----

class InputProduct final : public Steps {
 public:
  InputProduct(const nw_sig& sig, const StepPlanner& planner, StepTensor* sums)
      : Steps(sig, planner, lltm_sequence_forward::kInput, lltm_sequence_forward::kOldH) {
    using namespace lltm_sequence_forward;
    const int64_t gates = 3 * sizes.step.state;
    const StepTensor input = by_step(in(kInput)), all_rows = merged(input);
    *sums = reserve_sequence(dtype, gates);
    StepTensor weights = in(kWeights), bias = in(kBias);
    weights.place.offset = sizes.step.state * weights.strides[1] * (dtype.bits / 8);
    weights.ndim = 3, weights.shape[1] = sizes.step.features, weights.shape[2] = weights.strides[2] = 1;
    if (bias.ndim == 2) bias.ndim = 1, bias.shape[0] = bias.shape[1], bias.strides[0] = bias.strides[1];
    const bool even = all_rows.ndim >= 0;
    product_ = call("conv1d", {channels(even ? all_rows : input), finished(weights), finished(bias)},
                    {channels(even ? merged(*sums) : *sums)});
    finish();
  }
  void launch(const nw_call& c) const override { product_.launch(c, calls_workspace(c), {0}); }

 private:
  // Rows of columns, or a batch of them, as signals: the columns are channels.
  static StepTensor channels(StepTensor t) {
    if (t.ndim == 2) {
      for (int d = 2; d > 0; --d) t.shape[d] = t.shape[d - 1], t.strides[d] = t.strides[d - 1];
      t.shape[0] = 1, t.ndim = 3;
    }
    std::swap(t.shape[1], t.shape[2]), std::swap(t.strides[1], t.strides[2]);
    return finished(t);
  }

  StepCall product_;
};

// ---- backward ----

namespace grad = lltm_sequence_grad;

class Backward final : public Steps {
 public:
  Backward(const nw_sig& sig, const StepPlanner& planner, std::unique_ptr<LltmStateGrads> all_steps)
      : Steps(sig, planner, grad::kInput, grad::kOldH), all_steps_(std::move(all_steps)) {
    plan_active(in(grad::kLengths));
    input_ = by_step(in(grad::kInput)), h_ = by_step(in(grad::kH)), cells_ = by_step(in(grad::kCells)),
    gates_ = by_step(in(grad::kGates));
    if (sizes.recompute) plan_again();
    d_h_ = reserve_sequence(dtype, sizes.step.state), d_cell_ = reserve_sequence(dtype, sizes.step.state);
    if (has_lengths && !sizes.recompute) {
      cells_ = masked(cells_), gates_ = masked(gates_);
    }
    plan_steps();
    if (out(grad::kDInput).ndim >= 0 || out(grad::kDWeights).ndim >= 0 || out(grad::kDBias).ndim >= 0) plan_sums();
    finish();
  }

  void launch(const nw_call& c) const override {
    char* const workspace = calls_workspace(c);
    make_active(c, workspace);
    for (const StepCall& one : before_) one.launch(c, workspace, {0});
    const int64_t now = all_steps_ != nullptr ? run_all_steps(c) : run_steps(c, workspace);
    for (const StepCall& one : after_) one.launch(c, workspace, {now, 0});
    for (const StepCall& one : sums_) one.launch(c, workspace, {0});
  }

 private:
  int64_t run_all_steps(const nw_call& c) const {
    DLTensor tensors[LltmStateGrads::kCount];
    const DLTensor* list[LltmStateGrads::kCount] = {};
    for (size_t i = 0; i < LltmStateGrads::kCount; ++i)
      if (grads_of_all_[i].ndim >= 0) tensors[i] = tensor_at(grads_of_all_[i], c, 0), list[i] = &tensors[i];
    all_steps_->launch(c, list);
    return 0;
  }

  // In which of its places the gradient of the state is.
  int64_t run_steps(const nw_call& c, char* workspace) const {
    const int64_t slots = has_lengths ? 2 : 1;
    int64_t now = 0;
    for (int64_t k = sizes.steps; k-- > 0;) {
      const int64_t t = sizes.time(k), before = k > 0 ? sizes.time(k - 1) : 0, next = (now + 1) % slots;
      if (has_lengths) {
        if (sum_) sum_.launch(c, workspace, {t, now, 0});
        begin_h_.launch(c, workspace, {t, sum_ ? 0 : now, t});
        begin_cell_.launch(c, workspace, {t, now, t});
        step_back_.launch(c, workspace, {t, t, t, 0, 0, 0, 0, 0, t, t, 0, 0, 0, 0, 0});
        hold_h_back_.launch(c, workspace, {t, 0, now, next});
        hold_cell_back_.launch(c, workspace, {t, 0, now, next});
      } else {
        begin_h_.launch(c, workspace, {t, t, t});
        if (k > 0) step_back_.launch(c, workspace, {t, t, t, 0, 0, 0, 0, 0, t, t, 0, 0, 0, 0, before});
        if (k == 0 && last_) last_.launch(c, workspace, {t, t, t, 0, 0, 0, 0, 0, t, t, 0});
      }
      now = next;
    }
    return now;
  }

  // Forward once more, into the workspace.
  void plan_again() {
    cells_ = reserve_sequence(dtype, sizes.step.state), gates_ = reserve_sequence(gates_dtype, 3 * sizes.step.state);
    nw_lltm_sequence_params params{};
    params.reverse = sizes.reverse ? 1 : 0;
    std::vector<StepTensor> inputs{input_,          in(grad::kWeights), in(grad::kBias),
                                   in(grad::kOldH), in(grad::kOldCell), in(grad::kLengths)};
    std::vector<StepTensor> outputs{reserve_sequence(dtype, sizes.step.state), reserve_state(), reserve_state(), cells_, gates_};
    for (std::vector<StepTensor>* list : {&inputs, &outputs})
      for (StepTensor& t : *list) t = finished(t);  // the first two axes may have changed places
    before_.push_back(
        add(StepCall(planner(), signature(), "lltm_sequence", &params, sizeof params, std::move(inputs), std::move(outputs))));
  }

  // The sequence with zeros at the steps that a row has not.
  StepTensor masked(const StepTensor& t) {
    const StepTensor to = reserve_sequence(t.dtype, t.shape[2]);
    before_.push_back(select(active, t, {}, to));
    return to;
  }

  // lltm_backward of one step, for the state's gradients.
  StepCall step_back(const StepTensor& to_h, const StepTensor& to_cell) {
    return call("lltm_backward",
                {one_step(d_h_),
                 one_step(d_cell_),
                 one_step(input_),
                 in(grad::kWeights),
                 {},
                 in(grad::kOldH),
                 {},
                 {},
                 one_step(cells_),
                 one_step(gates_)},
                {{}, {}, {}, to_h, to_cell});
  }

  void plan_steps() {
    const StepTensor grad_h = by_step(in(grad::kGradH)), to_h = out(grad::kDOldH), to_cell = out(grad::kDOldCell);
    if (all_steps_ != nullptr) {
      grads_of_all_ = {grad_h,
                       in(grad::kGradNewH),
                       in(grad::kGradNewCell),
                       in(grad::kWeights),
                       in(grad::kLengths),
                       cells_,
                       gates_,
                       d_h_,
                       d_cell_,
                       to_h,
                       to_cell};
      return;
    }
    if (has_lengths) return plan_steps_of_lengths(grad_h);
    if (sizes.steps == 0) {
      if (to_h.ndim >= 0) after_.push_back(copy_or_zero(in(grad::kGradNewH), to_h));
      if (to_cell.ndim >= 0) after_.push_back(copy_or_zero(in(grad::kGradNewCell), to_cell));
      return;
    }
    const StepTensor state = reserve_state();  // the gradient of the state, from the step behind
    const int64_t last = sizes.time(sizes.steps - 1);
    before_.push_back(copy_or_zero(in(grad::kGradNewH), state));
    before_.push_back(copy_or_zero(in(grad::kGradNewCell), squeezed(some_steps(d_cell_, last, 1))));
    begin_h_ =
        grad_h.ndim < 0 ? copy(state, one_step(d_h_)) : elementwise(function(NW_EW_ADD), {one_step(grad_h), state}, one_step(d_h_));
    if (sizes.steps > 1) step_back_ = step_back(state, apart(one_step(d_cell_)));
    if (to_h.ndim >= 0 || to_cell.ndim >= 0) last_ = step_back(to_h, to_cell);
  }

  void plan_steps_of_lengths(const StepTensor& grad_h) {
    const int64_t batch = sizes.step.batch, state = sizes.step.state;
    const StepTensor all_h = one_step(reserve(dtype, {2, batch, state})), all_cell = one_step(reserve(dtype, {2, batch, state}));
    const StepTensor next_h = reserve_state(), next_cell = reserve_state(), here = one_step(active);
    before_.push_back(copy_or_zero(in(grad::kGradNewH), all_h));
    before_.push_back(copy_or_zero(in(grad::kGradNewCell), all_cell));
    StepTensor sum = all_h;
    if (grad_h.ndim >= 0) {
      sum = reserve_state();
      sum_ = elementwise(function(NW_EW_ADD), {one_step(grad_h), all_h}, sum);
    }
    begin_h_ = select(here, sum, {}, one_step(d_h_));
    begin_cell_ = select(here, all_cell, {}, one_step(d_cell_));
    step_back_ = step_back(next_h, next_cell);
    hold_h_back_ = select(here, next_h, all_h, apart(all_h));
    hold_cell_back_ = select(here, next_cell, all_cell, apart(all_cell));
    if (out(grad::kDOldH).ndim >= 0) after_.push_back(copy(all_h, out(grad::kDOldH)));
    if (out(grad::kDOldCell).ndim >= 0) after_.push_back(copy(all_cell, out(grad::kDOldCell)));
  }

  // A step of (1, batch, columns) as (batch, columns).
  static StepTensor squeezed(StepTensor t) {
    t = one_step(t);
    t.place.step = 0;
    return finished(t);
  }

  // A sequence as one matrix, rows in the order of the op's contiguous tensors; a copy where its rows do not lie evenly.
  StepTensor as_matrix(const StepTensor& t) {
    if (const StepTensor even = merged(t); even.ndim >= 0) return even;
    const StepTensor to = reserve_sequence(t.dtype, t.shape[2]);
    before_.push_back(copy(t, to));
    return merged(to);
  }
  // The state before each step.
  StepTensor states_before() {
    const StepTensor to = reserve_sequence(dtype, sizes.step.state), old_h = in(grad::kOldH);
    const int64_t steps = sizes.steps;
    if (steps == 0) return to;
    before_.push_back(copy(old_h, squeezed(some_steps(to, sizes.reverse ? steps - 1 : 0, 1))));
    if (steps > 1) {
      const StepTensor from = some_steps(h_, sizes.reverse ? 1 : 0, steps - 1),
                       behind = some_steps(to, sizes.reverse ? 0 : 1, steps - 1);
      before_.push_back(has_lengths && sizes.reverse ? select(some_steps(active, 1, steps - 1), from, old_h, behind)
                                                     : copy(from, behind));
    }
    if (has_lengths) before_.push_back(select(active, to, {}, to));
    return to;
  }

  // The gradients that are sums over all steps, or of rows of their own.
  void plan_sums() {
    const StepTensor d_input = by_step(out(grad::kDInput));
    StepTensor to_input = d_input.ndim < 0 ? d_input : merged(d_input), apart_input;
    if (d_input.ndim >= 0 && to_input.ndim < 0) {
      apart_input = reserve_sequence(dtype, sizes.step.features);
      to_input = merged(apart_input);
    }
    const StepTensor x = has_lengths ? masked(input_) : input_;
    sums_.push_back(call("lltm_backward",
                         {merged(d_h_),
                          merged(d_cell_),
                          as_matrix(x),
                          in(grad::kWeights),
                          in(grad::kBias),
                          as_matrix(states_before()),
                          {},
                          {},
                          as_matrix(cells_),
                          as_matrix(gates_)},
                         {to_input, out(grad::kDWeights), out(grad::kDBias), {}, {}}));
    if (apart_input.ndim >= 0) sums_.push_back(copy(apart_input, d_input));
  }

  StepTensor input_, h_, cells_, gates_, d_h_, d_cell_;  // sequences by step
  StepCall sum_, begin_h_, begin_cell_, step_back_, last_, hold_h_back_, hold_cell_back_;
  std::vector<StepCall> before_, after_, sums_;
  std::unique_ptr<LltmStateGrads> all_steps_;
  std::array<StepTensor, LltmStateGrads::kCount> grads_of_all_;
};

}  // namespace

std::unique_ptr<LltmSequenceByCalls> plan_lltm_sequence(const nw_sig& sig, const StepPlanner& planner) {
  return std::make_unique<Forward>(sig, planner);
}
std::unique_ptr<LltmSequenceByCalls> plan_lltm_input_product(const nw_sig& sig, const StepPlanner& planner, StepTensor* sums) {
  return std::make_unique<InputProduct>(sig, planner, sums);
}
std::unique_ptr<LltmSequenceByCalls> plan_lltm_sequence_backward(const nw_sig& sig, const StepPlanner& planner,
                                                                 std::unique_ptr<LltmStateGrads> grads) {
  return std::make_unique<Backward>(sig, planner, std::move(grads));
}

}  // namespace narrows::common
