// SPDX-License-Identifier: Apache-2.0
// functions.cpp -- see functions.h.
#include "core/program/functions.h"

#include <algorithm>
#include <iterator>

#include "core/ops/elementwise_cost.h"
#include "core/program/dtype.h"

namespace narrows::program {
namespace {

#define NARROWS_FUNCTION(number, name, operands, dtypes, result, gradient, cost) \
  {#name, operands, #dtypes[0], std::string_view(#result) == "bool", gradient, cost},
constexpr Function kTable[] = {
#include "core/ops/elementwise_functions.inc"
};
#undef NARROWS_FUNCTION

constexpr Function elu() {  // with its alpha
  for (Function out : kTable)
    if (std::string_view(out.name) == "elu") return out.operands = 2, out;
  return {};
}
constexpr Function kElu = elu();

}  // namespace

bool Function::is_costly() const { return cost >= kCostly; }

const Function* find_function(std::string_view name) {
  if (name == "cast") return nullptr;
  if (name == kElu.name) return &kElu;
  const Function* const found =
      std::find_if(std::begin(kTable), std::end(kTable), [&](const Function& f) { return name == f.name; });
  return found == std::end(kTable) ? nullptr : found;
}

std::vector<std::string> function_names() {
  std::vector<std::string> out;
  for (const Function& function : kTable)
    if (find_function(function.name) != nullptr) out.emplace_back(function.name);
  return out;
}

bool takes(const Function& function, DType dtype) {
  switch (function.dtypes) {
    case 'F': return is_float(dtype);
    case 'N': return is_float(dtype) || is_integer(dtype);
    case 'B': return is_integer(dtype) || dtype == DType::boolean;
    case 'I': return is_integer(dtype);
    default: return dtype != DType::index;
  }
}

}  // namespace narrows::program
