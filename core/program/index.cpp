// SPDX-License-Identifier: Apache-2.0
// index.cpp -- see index.h.
#include "core/program/index.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

#include "core/error.h"

namespace narrows::program {
namespace {

constexpr std::array<std::string_view, 7> kArithmetic = {"add", "sub", "mul", "floor_div", "remainder", "minimum", "maximum"};
constexpr std::array<std::string_view, 6> kComparisons = {"lt", "le", "gt", "ge", "eq", "ne"};

bool contains(const auto& names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

[[noreturn]] void overflow(const std::string& name, int64_t a, int64_t b) {
  throw_failure(NW_INVALID, -1, "%s of %lld and %lld does not fit in 64 bits", name.c_str(), static_cast<long long>(a),
                static_cast<long long>(b));
}

int64_t compare(const std::string& name, int64_t a, int64_t b) {
  if (name == "lt") return a < b ? 1 : 0;
  if (name == "le") return a <= b ? 1 : 0;
  if (name == "gt") return a > b ? 1 : 0;
  if (name == "ge") return a >= b ? 1 : 0;
  return (a == b) == (name == "eq") ? 1 : 0;
}

int64_t divide(const std::string& name, int64_t a, int64_t b) {
  if (b == 0) throw_failure(NW_INVALID, -1, "%s of %lld by 0", name.c_str(), static_cast<long long>(a));
  if (b == -1) {
    if (name == "remainder") return 0;
    if (a == std::numeric_limits<int64_t>::min()) overflow(name, a, b);
    return -a;
  }
  if (name == "floor_div") return floor_div(a, b);
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace

bool gives_boolean(std::string_view name) { return contains(kComparisons, name); }
bool is_index_function(std::string_view name) { return contains(kArithmetic, name) || gives_boolean(name); }

int64_t index_function(const std::string& name, int64_t a, int64_t b) {
  int64_t out = 0;
  if (name == "minimum") return std::min(a, b);
  if (name == "maximum") return std::max(a, b);
  if (name == "floor_div" || name == "remainder") return divide(name, a, b);
  if (gives_boolean(name)) return compare(name, a, b);
  const bool too_large = name == "add"   ? __builtin_add_overflow(a, b, &out)
                         : name == "sub" ? __builtin_sub_overflow(a, b, &out)
                                         : __builtin_mul_overflow(a, b, &out);
  if (too_large) overflow(name, a, b);
  return out;
}

}  // namespace narrows::program
