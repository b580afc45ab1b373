// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp -- out = function(a, b, c), broadcast: which program, what stands in its slots.
#include "elementwise_map.h"

namespace narrows::vulkan {

// ---- programs ----

namespace {

bool is_signed(int dtype) { return dtype >= NW_DTYPE_INT8 && dtype <= NW_DTYPE_INT64; }

const Shader& shader_for(int dtype) {
  if (dtype == NW_DTYPE_FLOAT64) return shaders::elementwise_f64;
  if (kind_of(dtype) == kFloat) return shaders::elementwise_f32;
  if (size_of(dtype) == 8) return is_signed(dtype) ? shaders::elementwise_i64 : shaders::elementwise_u64;
  return is_signed(dtype) ? shaders::elementwise_i32 : shaders::elementwise_u32;
}

}  // namespace

Program cast_program(int from, int to) { return {&shaders::elementwise_cast, NW_EW_CAST, 0, 1, 0, from, from, to, false, 0}; }

Program fill_program(int dtype) {
  const int bits = bits_dtype(dtype);
  return {&shader_for(bits), NW_EW_FLOOR, 0, 3, 0, bits, bits, bits, false, 0};
}

namespace {

// ---- fewer pipelines: functions that are the same one ----

int canonical_function(int function, int dtype) {
  const bool whole = kind_of(dtype) != kFloat;
  switch (function) {
    case NW_EW_CEIL:
    case NW_EW_ROUND:
    case NW_EW_TRUNC: return whole ? NW_EW_FLOOR : function;
    case NW_EW_ISINF: return whole ? NW_EW_ISNAN : function;
    default: return without_mirrors(function);
  }
}

// The unsigned dtype, where a function looks at bits alone.
int canonical_dtype(int function, int dtype) {
  if (moves_bits(function)) return bits_dtype(dtype);
  if (kind_of(dtype) == kFloat) return dtype;
  switch (function) {
    case NW_EW_NEG:
    case NW_EW_SQUARE:
    case NW_EW_FLOOR:
    case NW_EW_LOGICAL_NOT:
    case NW_EW_BITWISE_NOT:
    case NW_EW_ISNAN:
    case NW_EW_ISFINITE:
    case NW_EW_ADD:
    case NW_EW_SUB:
    case NW_EW_MUL:
    case NW_EW_EQ:
    case NW_EW_NE:
    case NW_EW_LOGICAL_AND:
    case NW_EW_LOGICAL_OR:
    case NW_EW_LOGICAL_XOR:
    case NW_EW_BITWISE_AND:
    case NW_EW_BITWISE_OR:
    case NW_EW_BITWISE_XOR:
    case NW_EW_BITWISE_LEFT_SHIFT:
    case NW_EW_FMA: return bits_dtype(dtype);
    default: return dtype;
  }
}

Program program_of(const ElementwiseRequest& r) {
  const int function = canonical_function(r.function.number, r.dtype), dtype = canonical_dtype(function, r.dtype);
  if (function == NW_EW_CAST) return cast_program(r.dtype, dtype_of(r.sig, r.sig.num_inputs));
  const int a = function == NW_EW_WHERE ? NW_DTYPE_BOOL : dtype, out = r.function.to_bool ? NW_DTYPE_BOOL : dtype;
  const bool heavy = r.function.heavy && kind_of(r.dtype) == kFloat;
  const uint64_t alpha = number_of(r.compute, r.params.alpha, 0);
  return {&shader_for(dtype), function, 0, 3, 0, a, dtype, out, heavy, alpha};
}

class ElementwisePlan final : public DevicePlan {
 public:
  ElementwisePlan(const MapRequest& request, int variant) : DevicePlan(request.device), map_(request, variant) {
    kernel = kVariantNames[map_.variant()];
  }
  void record(Recorder& recorder, const nw_call& call) const override { map_.record(recorder, call); }

 private:
  Map map_;
};

std::unique_ptr<Plan> plan_elementwise(const Instance& instance, const nw_sig& sig) {
  const ElementwiseRequest r = read_elementwise(sig);
  const Program program = program_of(r);
  MapRequest request{instance.device(sig), sig, program, {}, static_cast<int>(sig.num_inputs), output(sig, 0)};
  for (int k = 0; k < r.function.arity; ++k)
    request.slots[k] = has_input(sig, static_cast<uint32_t>(k)) ? tensor_operand(k)
                       : k == 1                                 ? number_operand(r.dtype, r.params.b_real, r.params.b_int)
                                                                : number_operand(r.dtype, r.params.c_real, r.params.c_int);
  if (without_mirrors(r.function.number) != r.function.number) std::swap(request.slots[0], request.slots[1]);
  return std::make_unique<ElementwisePlan>(request, forced_kernel(sig, kVariantNames));
}

}  // namespace

const Op elementwise = {"elementwise", kVariantNames, plan_elementwise};

}  // namespace narrows::vulkan
