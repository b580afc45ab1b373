// SPDX-License-Identifier: Apache-2.0
// infer.cpp -- see infer.h.
#include "core/program/infer.h"

#include <algorithm>

#include "core/error.h"
#include "core/near.h"
#include "core/program/dtype.h"
#include "core/program/functions.h"
#include "core/program/index.h"
#include "core/program/text.h"

namespace narrows::program {
namespace {

DType index_call_type(const std::string& name, size_t operands) {
  if (!is_index_function(name))
    throw_failure(NW_INVALID, -1, "'%s' is not a function of index; cast the operands to a type that it takes, as in f32(i)",
                  name.c_str());
  if (operands != 2) throw_failure(NW_INVALID, -1, "'%s' of index takes 2 operands, not %zu", name.c_str(), operands);
  return gives_boolean(name) ? DType::boolean : DType::index;
}

[[noreturn]] void unknown_function(const std::string& name) {
  const std::vector<std::string> known = function_names();
  throw_failure(NW_INVALID, -1, "there is no function '%s'%s", name.c_str(), did_you_mean(name, known).c_str());
}

}  // namespace

DType call_type(const std::string& name, const std::vector<ExprPtr>& operands) {
  const bool of_index = std::all_of(operands.begin(), operands.end(), [](const ExprPtr& e) { return e->dtype == DType::index; });
  const Function* const function = find_function(name);
  if (function == nullptr && !is_index_function(name)) unknown_function(name);
  if (of_index && !operands.empty()) return index_call_type(name, operands.size());
  if (function == nullptr) throw_failure(NW_INVALID, -1, "'%s': expected operands of index only", name.c_str());
  if (operands.size() != static_cast<size_t>(function->operands))
    throw_failure(NW_INVALID, -1, "'%s' takes %d operand%s, not %zu", name.c_str(), function->operands,
                  function->operands == 1 ? "" : "s", operands.size());
  const size_t first = name == "where" ? 1 : 0;
  if (first == 1 && operands[0]->dtype != DType::boolean)
    throw_failure(NW_INVALID, -1, "the condition of 'where', %s, is %s; expected bool", print(operands[0]).c_str(),
                  name_of(operands[0]->dtype));
  const DType dtype = operands[first]->dtype;
  for (size_t i = first; i < operands.size(); ++i) {
    if (operands[i]->dtype != dtype)
      throw_failure(NW_INVALID, -1, "'%s': %s is %s and %s is %s; expected one type, so cast one of them", name.c_str(),
                    print(operands[first]).c_str(), name_of(dtype), print(operands[i]).c_str(), name_of(operands[i]->dtype));
  }
  if (!takes(*function, dtype)) throw_failure(NW_INVALID, -1, "'%s' does not take %s", name.c_str(), name_of(dtype));
  return function->gives_bool ? DType::boolean : dtype;
}

void require_subscripts(const std::string& buffer, const std::vector<ExprPtr>& indices) {
  for (const ExprPtr& index : indices) {
    if (index->dtype != DType::index)
      throw_failure(NW_INVALID, -1, "a subscript of '%s' is %s, not index: %s; a value becomes one by clamp(value, low, high)",
                    buffer.c_str(), name_of(index->dtype), print(index).c_str());
  }
}

void require_cast(DType dtype, const ExprPtr& value) {
  if (dtype == DType::index && value->dtype != DType::index)
    throw_failure(NW_INVALID, -1, "a value becomes an index by clamp(value, low, high), not by a cast: %s", print(value).c_str());
}

void require_clamp(const ExprPtr& value, const ExprPtr& low, const ExprPtr& high) {
  for (const ExprPtr& bound : {low, high}) {
    if (bound->dtype != DType::index)
      throw_failure(NW_INVALID, -1, "a bound of clamp to an index is index, not %s: %s", name_of(bound->dtype),
                    print(bound).c_str());
  }
  if (!is_integer(value->dtype))
    throw_failure(NW_INVALID, -1, "clamp to an index takes an integer, not %s: %s", name_of(value->dtype), print(value).c_str());
}

}  // namespace narrows::program
