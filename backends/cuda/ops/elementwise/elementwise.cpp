// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp -- out = function(a, b, c), broadcast: which table's kernel, what stands in its slots.
#include "elementwise_map.h"

namespace narrows::gpu {
namespace {

// The forced widths come behind the variants that every function has.
constexpr const char* kKernels[] = {kVariantNames[0], kVariantNames[1], kVariantNames[2], kWidthNames[0], kWidthNames[1],
                                    kWidthNames[2],   kWidthNames[3],   kWidthNames[4],   kWidthNames[5], nullptr};

class ElementwisePlan : public Plan {
 public:
  void launch(const nw_call& call) const override { map.launch(call); }
  Map map;
};

Slot slot_of(const ElementwiseRequest& r, int operand) {
  if (has_input(r.sig, static_cast<uint32_t>(operand))) return {operand, 0};
  const auto number = moves_bits(r.function.number) ? stored_number_of : number_of;
  return {-1, operand == 1 ? number(r.dtype, r.params.b_real, r.params.b_int) : number(r.dtype, r.params.c_real, r.params.c_int)};
}

void fill_slots(const ElementwiseRequest& r, Slot* slots) {
  const int function = r.function.number;
  for (int k = 0; k < r.function.arity; ++k) slots[k] = slot_of(r, k);
  if (without_mirrors(function) != function) std::swap(slots[0], slots[1]);
  if (function == NW_EW_ELU) slots[1] = {-1, number_of(r.compute, r.params.alpha, 0)};
}

void plan_width(const ElementwiseRequest& r, const MapRequest& request, int width, Map* map) {
  const int dtype = width < 2 ? NW_DTYPE_FLOAT32 : NW_DTYPE_FLOAT16;
  const auto kernel = find_width(width, r.function.number);
  if (kernel == nullptr)
    refuse(NW_UNSUPPORTED, -1, "%s: kernel '%s' has no code for %s; expected one of the simple functions", r.sig.op,
           kWidthNames[width], r.function.name);
  if (r.dtype != dtype)
    refuse(NW_UNSUPPORTED, 0, "%s: kernel '%s' is for %s, not %s", r.sig.op, kWidthNames[width], name_of(dtype), name_of(r.dtype));
  map->plan_width(request, kWidthNames[width], kernel, kWidthElements[width], kWidthAccess[width]);
}

std::unique_ptr<Plan> plan_elementwise(const Instance& instance, const nw_sig& sig) {
  const ElementwiseRequest r = read_elementwise(sig);
  const int out = static_cast<int>(sig.num_inputs), function = without_mirrors(r.function.number);
  const Kernels* const kernels =
      function == NW_EW_CAST ? &find_cast(r.dtype, dtype_of(sig, sig.num_inputs)) : find_kernels(function, r.dtype);
  if (kernels == nullptr) refuse(NW_UNSUPPORTED, 0, "%s: %s has no kernel for %s", sig.op, r.function.name, name_of(r.dtype));
  MapRequest request{instance, sig, *kernels, {}, out, output(sig, 0)};
  fill_slots(r, request.slots);
  auto plan = std::make_unique<ElementwisePlan>();
  const int forced = forced_kernel(sig, kKernels);
  if (forced >= kNumVariants)
    plan_width(r, request, forced - kNumVariants, &plan->map);
  else
    plan->map.plan(request, forced);
  plan->kernel = kKernels[forced >= kNumVariants ? forced : plan->map.variant()];
  return plan;
}

}  // namespace

const Op elementwise = {"elementwise", kKernels, plan_elementwise};

}  // namespace narrows::gpu
