// SPDX-License-Identifier: Apache-2.0
// elementwise_backward.cpp -- the gradient of each operand of elementwise: grad_out times a derivative, summed over the axes along
// which the operand was broadcast.
#include "common/sums.h"
#include "elementwise_map.h"

namespace narrows::vulkan {
namespace {

// Slots of the gradients' programs; of the signature, an input has the same number.
enum { kGradOut, kA, kB, kC };
constexpr int kSlots = 4;

struct Request : ElementwiseGradRequest {
  Device& device;
  int forced;
  int dtype;  // of the operands
};

bool is_wide(const Request& r) { return r.dtype == NW_DTYPE_FLOAT64; }

// ---- what gradient() of shaders/elementwise/elementwise_gradients.glsl looks at ----

bool reads_a(int function, int operand) {
  switch (function) {
    case NW_EW_NEG:
    case NW_EW_ADD:
    case NW_EW_SUB: return false;
    case NW_EW_MUL:
    case NW_EW_DIV:
    case NW_EW_FMOD:
    case NW_EW_REMAINDER:
    case NW_EW_FMA: return operand == 1;
    default: return true;
  }
}
bool reads_b(int function, int operand) {
  switch (function) {
    case NW_EW_DIV:
    case NW_EW_POW:
    case NW_EW_ATAN2:
    case NW_EW_HYPOT:
    case NW_EW_MAXIMUM:
    case NW_EW_MINIMUM:
    case NW_EW_LOGADDEXP:
    case NW_EW_CLAMP: return true;
    case NW_EW_MUL:
    case NW_EW_FMA:
    case NW_EW_COPYSIGN: return operand == 0;
    case NW_EW_FMOD:
    case NW_EW_REMAINDER: return operand == 1;
    default: return false;
  }
}

void fill_operands(const Request& r, int operand, Operand* operands) {
  const int function = r.function.number;
  const bool reads[kSlots] = {true, reads_a(function, operand), reads_b(function, operand), function == NW_EW_CLAMP};
  for (int slot = 0; slot < kSlots; ++slot) {
    if (!reads[slot]) continue;
    operands[slot] = has_input(r.sig, static_cast<uint32_t>(slot)) ? tensor_operand(slot)
                     : slot == kB                                  ? number_operand(r.dtype, r.params.b_real, 0)
                                                                   : number_operand(r.dtype, r.params.c_real, 0);
  }
}

Program gradient_program(const Request& r, int operand, const Shader& shader) {
  const int a = r.function.number == NW_EW_WHERE ? NW_DTYPE_BOOL : r.dtype;
  return {&shader, r.function.number, operand, kSlots,           kA,
          a,       r.dtype,           r.dtype, r.function.heavy, number_of(r.compute, r.params.alpha, 0)};
}

// ---- gradients that are summed ----

// The sums of one gradient: slices of each, and another dispatch that adds them up if there are several.
class Sum {
 public:
  Sum(const Request& r, int operand, uint64_t* workspace_size);
  void record(Recorder& recorder, const nw_call& call) const;

 private:
  // As in shaders/elementwise/elementwise_sum.comp.
  struct Push {
    Address operand[kSlots];
    Address out;
    uint64_t alpha;
    Address layout;
    Address partial;
    uint64_t kept, summed;
    uint32_t slices, numbers, is_misaligned, padding;
  };
  struct Layout {
    int64_t stride[kSlots + 1][NW_MAX_NDIM];
    uint64_t extent[NW_MAX_NDIM];
    uint32_t kept_dims, dims;
    uint32_t lanes, rows;
    uint32_t lanes_first;
    uint32_t is_wide;
  };
  static constexpr int kThreads = 128;
  static constexpr uint32_t kMostLoopsOfTerm = 192;  // fmod's: 11 of 2,100 digits at a time

  void read(const Request& r, int operand, const Operand* operands);
  void fill(const SumDims& dims);
  static void fill(const SumGroups& groups, Layout* layout);
  // Iterations of a thread's loops; of_term: of the derivative.
  double loops(uint32_t of_term) const {
    const double of_slice = static_cast<double>(push_.summed) / push_.slices + 1;
    return (of_slice / layout_.rows + 1) * (2 + of_term + layout_.dims - layout_.kept_dims) + layout_.dims + 16;
  }
  int64_t groups(const Layout& layout) const { return ceil_div(static_cast<int64_t>(push_.kept), layout.lanes); }

  int tensor_[kSlots];  // an input; -1: a number, or not read
  int64_t offset_[kSlots + 1];
  uint32_t output_;
  uint64_t workspace_ = 0;  // where in it the slices' sums begin
  Push push_{};
  SumGroups groups_;
  Layout layout_{}, finish_layout_{};
  Kernel kernel_, finish_;
};

void Sum::fill(const SumDims& dims) {
  push_.kept = static_cast<uint64_t>(dims.kept);
  push_.summed = static_cast<uint64_t>(dims.summed);
  push_.slices = static_cast<uint32_t>(groups_.slices);
  for (int d = 0; d < dims.dims; ++d) {
    layout_.extent[d] = static_cast<uint64_t>(dims.extent[d]);
    for (int k = 0; k <= kSlots; ++k) layout_.stride[k][d] = dims.stride[k][d];
  }
  layout_.kept_dims = static_cast<uint32_t>(dims.kept_dims);
  layout_.dims = static_cast<uint32_t>(dims.dims);
  layout_.is_wide = dims.is_wide(UINT32_MAX);
  fill(groups_, &layout_);
}

void Sum::fill(const SumGroups& groups, Layout* layout) {
  layout->lanes = static_cast<uint32_t>(groups.lanes);
  layout->rows = static_cast<uint32_t>(groups.rows);
  layout->lanes_first = groups.lanes_first;
}

void Sum::read(const Request& r, int operand, const Operand* operands) {
  const nw_tensor_sig* tensors[kSlots + 1];
  int64_t sizes[kSlots + 1];
  for (int k = 0; k <= kSlots; ++k) {
    const Operand from = k == kSlots ? tensor_operand(static_cast<int>(r.sig.num_inputs) + operand) : operands[k];
    sizes[k] = k == kA && r.function.number == NW_EW_WHERE ? 1 : size_of(r.dtype);
    tensors[k] = from.used && from.tensor >= 0 ? &r.sig.tensors[from.tensor] : nullptr;
    if (tensors[k] != nullptr) push_.is_misaligned |= !is_aligned(*tensors[k], sizes[k]);
    if (k == kSlots) continue;
    tensor_[k] = tensors[k] != nullptr ? from.tensor : -1;
    push_.operand[k] = from.number;
    if (from.used && tensors[k] == nullptr) push_.numbers |= 1u << k;
  }
  const Space space = space_of_sums(input(r.sig, 0), tensors, sizes, kSlots + 1);
  std::copy_n(space.offset, kSlots + 1, offset_);
  const SumDims dims = sum_dims(space, kSlots);
  groups_ = sum_groups(dims, space.ndim > 0 && space.stride[kSlots][0] != 0, kThreads, INT64_MAX);
  fill(dims);
}

Sum::Sum(const Request& r, int operand, uint64_t* workspace_size) : output_(static_cast<uint32_t>(operand)) {
  Operand operands[kSlots];
  fill_operands(r, operand, operands);
  read(r, operand, operands);
  const Shader& shader = is_wide(r) ? shaders::elementwise_sum_f64 : shaders::elementwise_sum_f32;
  const Program p = gradient_program(r, operand, shader);
  push_.alpha = p.alpha;
  uint32_t used = 0;
  for (int k = 0; k < kSlots; ++k) used |= static_cast<uint32_t>(operands[k].used) << k;
  const auto word = [](int x) { return static_cast<uint32_t>(x); };
  const auto kernel = [&](int function, uint32_t slots, uint32_t unroll) {
    return r.device.kernels().get(
        shader, {word(kThreads), word(function), word(p.a), word(p.dtype), word(p.out), slots, 1, unroll, 0, word(operand)});
  };
  const uint32_t unroll = p.heavy || r.device.physical.is_cpu() ? 1 : 4;
  r.device.check_loops(loops(p.heavy ? kMostLoopsOfTerm : 0));
  kernel_ = kernel(p.function, used, unroll);
  if (push_.slices == 1) return;
  finish_ = kernel(0, 0, 1);
  workspace_ = *workspace_size;
  *workspace_size += round_up(push_.slices * push_.kept * (is_wide(r) ? 16 : 8), 256);
  finish_layout_ = layout_;
  fill(finishing_groups(groups_, kThreads), &finish_layout_);
}

void Sum::record(Recorder& recorder, const nw_call& call) const {
  Push push = push_;
  for (int k = 0; k < kSlots; ++k)
    if (tensor_[k] >= 0) push.operand[k] = address(call.inputs[tensor_[k]]) + static_cast<Address>(offset_[k]);
  push.out = address(call.outputs[output_]) + static_cast<Address>(offset_[kSlots]);
  push.layout = recorder.params(layout_);
  const Address partial = push_.slices > 1 ? workspace(call) + workspace_ : 0;
  push.partial = partial;
  recorder.dispatch(kernel_, push, groups(layout_) * push_.slices);
  if (push_.slices == 1) return;
  push.operand[0] = partial;
  push.partial = 0;
  push.summed = push_.slices;
  push.slices = 1;
  push.layout = recorder.params(finish_layout_);
  recorder.dispatch(finish_, push, groups(finish_layout_));
}

// ---- the plan ----

class BackwardPlan final : public DevicePlan {
 public:
  explicit BackwardPlan(const Request& r) : DevicePlan(r.device) {
    for (uint32_t k = 0; k < 3; ++k)
      if (has_output(r.sig, k)) plan_output(r, k);
    int slowest = kVector;
    for (const Map& map : maps_) slowest = std::max(slowest, map.variant());
    kernel = kVariantNames[r.forced != kOwnChoice ? r.forced : slowest];
  }
  void record(Recorder& recorder, const nw_call& call) const override {
    for (const Map& map : maps_) map.record(recorder, call);
    for (const Sum& sum : sums_) sum.record(recorder, call);
  }

 private:
  void plan_output(const Request& r, uint32_t k);
  void add_map(const Request& r, uint32_t k, const Program& program, const Operand (&operands)[kSlots]);

  std::vector<Map> maps_;
  std::vector<Sum> sums_;
};

void BackwardPlan::add_map(const Request& r, uint32_t k, const Program& program, const Operand (&operands)[kSlots]) {
  MapRequest request{r.device, r.sig, program, {}, static_cast<int>(r.sig.num_inputs + k), output(r.sig, k)};
  std::copy_n(operands, kSlots, request.slots);
  maps_.emplace_back(request, r.forced);
}

void BackwardPlan::plan_output(const Request& r, uint32_t k) {
  const auto operand = static_cast<int>(k);
  Operand operands[kSlots];
  switch (gradient_kind(r, k)) {
    case GradientKind::zero:
      operands[0] = {true, -1, 0};
      return add_map(r, k, fill_program(dtype_of(r.sig, r.sig.num_inputs + k)), operands);
    case GradientKind::copy:
      operands[0] = tensor_operand(kGradOut);
      return add_map(r, k, cast_program(dtype_of(r.sig, 0), dtype_of(r.sig, r.sig.num_inputs + k)), operands);
    case GradientKind::map:
      fill_operands(r, operand, operands);
      return add_map(
          r, k, gradient_program(r, operand, is_wide(r) ? shaders::elementwise_gradient_f64 : shaders::elementwise_gradient_f32),
          operands);
    case GradientKind::sum: sums_.emplace_back(r, operand, &workspace_size);
  }
}

std::unique_ptr<Plan> plan_backward(const Instance& instance, const nw_sig& sig) {
  const ElementwiseGradRequest read = read_elementwise_backward(sig);
  return std::make_unique<BackwardPlan>(
      Request{read, instance.device(sig), forced_kernel(sig, kVariantNames), read.scalar_dtype()});
}

}  // namespace

const Op elementwise_backward = {"elementwise_backward", kVariantNames, plan_backward};

}  // namespace narrows::vulkan
