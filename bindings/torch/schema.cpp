// SPDX-License-Identifier: Apache-2.0
// schema.cpp -- see schema.h.
#include "bindings/torch/schema.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace narrows::torch {
namespace {

// The shortest text that gives the same number, as Python's repr.
std::string real(double value) {
  char text[40];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  const std::string out = text;
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

std::string default_of(const nw_param& field) {
  if (field.dtype.code == kDLBool) return field.initial != 0 ? "True" : "False";
  return field.dtype.code == kDLFloat ? real(field.initial) : std::to_string(static_cast<int64_t>(field.initial));
}

std::string argument(const nw_param& field) {
  const std::string name = python_name(field.name);
  if (field.values != nullptr) {
    const auto initial = static_cast<int64_t>(field.initial);
    int64_t count = 0;
    while (field.values[count] != nullptr) ++count;
    return "str " + name + "=\"" + (initial >= 0 && initial < count ? field.values[initial] : "") + "\"";
  }
  const bool many = field.dtype.lanes > 1, boolean = field.dtype.code == kDLBool;
  std::string type = boolean ? "bool" : field.dtype.code == kDLFloat ? "float" : many ? "int" : "SymInt";
  if (many) type += "[" + std::to_string(field.dtype.lanes) + "]";
  if (is_optional(field)) return type + "? " + name + "=None";
  std::string initial = default_of(field);
  for (int lane = 1; many && lane < field.dtype.lanes; ++lane) initial += ", " + default_of(field);
  return type + " " + name + "=" + (many ? "[" + initial + "]" : initial);
}

std::string result(const nw_op& op) {
  if (is_masked(op)) return "Tensor[]";
  if (op.num_outputs == 1) return "Tensor";
  std::string tensors;
  for (uint32_t j = 0; j < op.num_outputs; ++j) tensors += j == 0 ? "Tensor" : ", Tensor";
  return "(" + tensors + ")";
}

}  // namespace

std::string python_name(const std::string& name) {
  static const auto& words = *new std::set<std::string>{
      "False",  "None",     "True", "and",    "as",      "assert", "async",  "await",  "break", "class",  "continue", "def",
      "del",    "elif",     "else", "except", "finally", "for",    "from",   "global", "if",    "import", "in",       "is",
      "lambda", "nonlocal", "not",  "or",     "pass",    "raise",  "return", "try",    "while", "with",   "yield"};
  return words.contains(name) ? name + "_" : name;
}

std::string torch_name(const char* op) {
  std::string name = op;
  std::replace(name.begin(), name.end(), '.', '_');
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

bool is_masked(const nw_op& op) {
  for (uint32_t j = 0; j < op.num_outputs - op.num_aux; ++j)
    if (may_be_absent(op.outputs[j])) return true;
  return false;
}

uint64_t required_outputs(const nw_op& op) {
  uint64_t mask = 0;
  for (uint32_t j = 0; j < op.num_outputs - op.num_aux; ++j)
    if (!may_be_absent(op.outputs[j])) mask |= uint64_t{1} << j;
  return mask;
}

bool is_optional(const nw_param& field) {
  return field.values == nullptr && field.dtype.code == kDLFloat && (field.initial == 0 || !std::isfinite(field.initial));
}

std::string schema(const nw_op& op) {
  std::string arguments;
  const auto add = [&](const std::string& text) { arguments += (arguments.empty() ? "" : ", ") + text; };
  uint32_t required = 0;  // no default may stand before an input that is required
  for (uint32_t i = 0; i < op.max_inputs; ++i)
    if (!may_be_absent(op.inputs[i])) required = i + 1;
  for (uint32_t i = 0; i < op.max_inputs; ++i) {
    std::string name = op.inputs[i];
    const bool optional = may_be_absent(name);
    if (optional) name.pop_back();
    add((optional ? "Tensor? " : "Tensor ") + python_name(name) + (optional && i >= required ? "=None" : ""));
  }
  const bool masked = is_masked(op);
  if (masked || (op.params != nullptr && *op.params != nullptr)) add("*");
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field) add(argument(**field));
  if (masked) add("int wanted=-1");
  return torch_name(op.name) + "(" + arguments + ") -> " + result(op);
}

}  // namespace narrows::torch
