// SPDX-License-Identifier: Apache-2.0
// elementwise_backward.cpp -- the gradient of each operand of elementwise: grad_out times a derivative, summed over the axes along
// which the operand was broadcast.
#include "common/sums.h"
#include "elementwise_map.h"

namespace narrows::gpu {
namespace {

// One gradient that is summed: slices of each sum, and another kernel that adds them up if there are several.
struct SumPass {
  void (*kernel)(SumArgs);
  void (*finish)(SumArgs);
  int num_slots;
  int tensor[kMaxSlots];  // an input; -1: a number
  uint32_t output;
  SumArgs args, finish_args;
  int64_t offset[kMaxSlots + 1];
  int64_t blocks, finish_blocks;
  uint64_t workspace;  // where in it the slices' sums begin

  void launch(const nw_call& call) const;
};

class BackwardPlan : public Plan {
 public:
  void launch(const nw_call& call) const override {
    for (const Map& map : maps) map.launch(call);
    for (const SumPass& pass : sums) pass.launch(call);
  }
  std::vector<Map> maps;
  std::vector<SumPass> sums;
};

struct Request : ElementwiseGradRequest {
  const Instance& instance;
  int forced;
  int dtype;  // of the operands
};

// ---- slots ----

Slot slot_of(const Request& r, Source source) {
  if (source == kAlpha) return {-1, number_of(r.compute, r.params.alpha, 0)};
  const int tensor = source;
  if (has_input(r.sig, static_cast<uint32_t>(tensor))) return {tensor, 0};
  return {-1, number_of(r.dtype, source == kB ? r.params.b_real : r.params.c_real, 0)};
}

const GradientTable& table_of(int dtype) {
  switch (dtype) {
    case NW_DTYPE_FLOAT64: return kGradientsF64;
    case NW_DTYPE_FLOAT16: return kGradientsF16;
    case NW_DTYPE_BFLOAT16: return kGradientsBf16;
    default: return kGradientsF32;
  }
}

// ---- gradients that are not summed ----

void add_map(const Request& r, const MapRequest& request, BackwardPlan* plan) {
  Map map;
  map.plan(request, r.forced);
  plan->maps.push_back(std::move(map));
}

void plan_zero(const Request& r, uint32_t k, BackwardPlan* plan) {
  const int out = static_cast<int>(r.sig.num_inputs + k);
  const Kernels& copy = *find_kernels(NW_EW_FLOOR, bits_dtype(dtype_of(r.sig, static_cast<uint32_t>(out))));
  add_map(r, {r.instance, r.sig, copy, {{-1, 0}}, out, output(r.sig, k)}, plan);
}

void plan_cast(const Request& r, BackwardPlan* plan) {
  const int out = static_cast<int>(r.sig.num_inputs);
  const Kernels& cast = find_cast(dtype_of(r.sig, 0), dtype_of(r.sig, r.sig.num_inputs));
  add_map(r, {r.instance, r.sig, cast, {{kGradOut, 0}}, out, input(r.sig, 0)}, plan);
}

void plan_map(const Request& r, const GradientRow& row, uint32_t k, BackwardPlan* plan) {
  MapRequest request{r.instance, r.sig, row.map, {}, static_cast<int>(r.sig.num_inputs + k), input(r.sig, 0)};
  for (int s = 0; s < row.map.slots; ++s) request.slots[s] = slot_of(r, row.slots[s]);
  add_map(r, request, plan);
}

// ---- gradients that are summed ----

// The dimensions and how threads divide them, as a kernel takes them.
void fill_sums(const SumDims& dims, const SumGroups& groups, int num_slots, SumArgs* args) {
  args->kept = dims.kept;
  args->summed = dims.summed;
  args->kept_dims = dims.kept_dims;
  args->dims = dims.dims;
  args->slices = groups.slices;
  args->lanes = groups.lanes;
  args->rows = groups.rows;
  args->lanes_first = groups.lanes_first;
  args->wide = dims.is_wide(INT32_MAX);
  for (int d = 0; d < dims.dims; ++d) {
    args->extent[d] = dims.extent[d];
    for (int k = 0; k < num_slots; ++k) args->stride[k][d] = dims.stride[k][d];
    args->stride[kOut][d] = dims.stride[num_slots][d];
    if (!args->wide) args->divider[d] = make_divider(dims.extent[d]);
  }
}

// The kernel that adds up the slices: it reads [slice][sum].
void plan_finish(const SumGroups& groups, BackwardPlan* plan, SumPass* pass) {
  const uint64_t sum_size = pass->finish == kGradientsF64.finish ? 16 : 8;
  pass->workspace = plan->workspace_size;
  plan->workspace_size += (static_cast<uint64_t>(pass->args.slices * pass->args.kept) * sum_size + 255) / 256 * 256;
  SumArgs& args = pass->finish_args;
  args = pass->args;
  const SumGroups finishing = finishing_groups(groups, kSumThreads);
  args.summed = groups.slices;
  args.slices = 1;
  args.lanes_first = finishing.lanes_first;
  args.rows = finishing.rows;
  args.lanes = finishing.lanes;
  pass->finish_blocks = ceil_div(args.kept, args.lanes);
  load_kernel(pass->finish);
}

void plan_sum(const Request& r, const GradientRow& row, uint32_t k, BackwardPlan* plan) {
  SumPass pass{};
  pass.kernel = row.sum;
  pass.finish = table_of(r.dtype).finish;
  pass.num_slots = row.map.slots;
  pass.output = k;
  const int n = pass.num_slots;
  const nw_tensor_sig* tensors[kMaxSlots + 1] = {};
  int64_t sizes[kMaxSlots + 1] = {};
  for (int s = 0; s <= n; ++s) {
    const Slot slot = s == n ? Slot{static_cast<int>(r.sig.num_inputs + k), 0} : slot_of(r, row.slots[s]);
    sizes[s] = row.map.size[s == n ? kOut : s];
    tensors[s] = slot.tensor < 0 ? nullptr : &r.sig.tensors[slot.tensor];
    if (s < n) {
      pass.tensor[s] = slot.tensor;
      pass.args.number[s] = slot.number;
    }
    if (slot.tensor < 0)
      pass.args.numbers |= 1u << s;
    else
      pass.args.bytewise |= !is_aligned(*tensors[s], sizes[s]);
  }
  const Space space = space_of_sums(input(r.sig, 0), tensors, sizes, n + 1);
  const SumDims dims = sum_dims(space, n);
  const SumGroups groups = sum_groups(dims, space.ndim > 0 && space.stride[n][0] != 0, kSumThreads, kMaxBlocks);
  fill_sums(dims, groups, n, &pass.args);
  for (int s = 0; s <= n; ++s) pass.offset[s == n ? kOut : s] = space.offset[s];
  pass.blocks = ceil_div(pass.args.kept, pass.args.lanes) * pass.args.slices;
  load_kernel(pass.kernel);
  if (groups.slices > 1) plan_finish(groups, plan, &pass);
  plan->sums.push_back(pass);
}

void SumPass::launch(const nw_call& call) const {
  char* const out = data<char>(call.outputs[output]) + offset[kOut];
  char* const partial = static_cast<char*>(call.workspace) + workspace;
  SumArgs first = args;
  for (int s = 0; s < num_slots; ++s)
    if (tensor[s] >= 0) first.in[s] = data<char>(call.inputs[tensor[s]]) + offset[s];
  first.out = out;
  first.partial = args.slices > 1 ? partial : nullptr;
  launch_kernel(kernel, blocks, kSumThreads, 0, stream_of(call), first);
  if (args.slices == 1) return;
  SumArgs second = finish_args;
  second.in[0] = partial;
  second.out = out;
  launch_kernel(finish, finish_blocks, kSumThreads, 0, stream_of(call), second);
}

// ---- the plan ----

void plan_output(const Request& r, uint32_t k, BackwardPlan* plan) {
  const auto row = [&]() -> const GradientRow& { return *table_of(r.dtype).find(r.function.number, static_cast<int>(k)); };
  switch (gradient_kind(r, k)) {
    case GradientKind::zero: return plan_zero(r, k, plan);
    case GradientKind::copy: return plan_cast(r, plan);
    case GradientKind::map: return plan_map(r, row(), k, plan);
    case GradientKind::sum: return plan_sum(r, row(), k, plan);
  }
}

std::unique_ptr<Plan> plan_backward(const Instance& instance, const nw_sig& sig) {
  const ElementwiseGradRequest read = read_elementwise_backward(sig);
  const Request r{read, instance, forced_kernel(sig, kVariantNames), read.scalar_dtype()};
  auto plan = std::make_unique<BackwardPlan>();
  for (uint32_t k = 0; k < 3; ++k)
    if (has_output(sig, k)) plan_output(r, k, plan.get());
  int slowest = kVector;
  for (const Map& map : plan->maps) slowest = std::max(slowest, map.variant());
  plan->kernel = kVariantNames[r.forced != kOwnChoice ? r.forced : slowest];
  return plan;
}

}  // namespace

const Op elementwise_backward = {"elementwise_backward", kVariantNames, plan_backward};

}  // namespace narrows::gpu
