// SPDX-License-Identifier: Apache-2.0
// functions.cpp -- see functions.h.
#include "program/functions.h"

#include <string_view>

#include "core/program/dtype.h"

namespace narrows::cpu {
namespace {

struct Named {
  std::string_view name;
  int number;
};
#define NARROWS_FUNCTION(number, name, operands, dtypes, result, gradient, cost) {#name, number},
constexpr Named kFunctions[] = {
#include "core/ops/elementwise_functions.inc"
};
#undef NARROWS_FUNCTION

}  // namespace

Kernel function_kernel(const Instance& instance, const std::string& name, ir::DType dtype) {
  const auto* found = std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Named& f) { return f.name == name; });
  const int number = dtype_number(dtype);
  Kernel kernel = nullptr;
  if (found != std::end(kFunctions) && number != 0) {
    if (found->number == NW_EW_WHERE)
      kernel = int_kernel(instance, found->number, bits_dtype(number));
    else if (ir::is_float(dtype))
      kernel = float_kernel(instance, found->number, number);
    else
      kernel = int_kernel(instance, found->number, number);
  }
  if (kernel == nullptr) refuse(NW_UNSUPPORTED, -1, "the cpu backend has no function '%s' of %s", name.c_str(), ir::name_of(dtype));
  return kernel;
}

Kernel conversion_kernel(const Instance& instance, ir::DType from, ir::DType to) {
  const auto number = [](ir::DType dtype) { return dtype == ir::DType::index ? NW_DTYPE_INT64 : dtype_number(dtype); };
  return cast_kernel(instance, number(from), number(to));
}

Scalar param_scalar(const Instance& instance, ir::DType dtype, const ParamValue& value) {
  return make_scalar(instance, dtype_number(dtype), value.real, value.integer);
}

}  // namespace narrows::cpu
