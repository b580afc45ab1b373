// SPDX-License-Identifier: Apache-2.0
// step_line.h -- a step as a line of text: `split(loop="i", factors=[None, 8])`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace narrows::program {

class StepLine {
 public:
  using Number = std::optional<int64_t>;  // nullopt: None
  using Value = std::variant<std::string, int64_t, std::vector<std::string>, std::vector<Number>>;

  // Throws Failure (NW_INVALID): what was found and what was expected, with the column.
  static StepLine parse(std::string_view text);

  const std::string& name() const { return name_; }
  std::string print() const;

  // Each throws Failure where the argument is missing or of another type. `or_else`: it may be missing.
  const std::string& text(const char* key) const;
  std::string text(const char* key, const char* or_else) const;
  int64_t number(const char* key) const;
  int64_t number(const char* key, int64_t or_else) const;
  const std::vector<std::string>& texts(const char* key) const;
  std::vector<std::string> texts(const char* key, const std::vector<std::string>& or_else) const;
  std::vector<Number> numbers(const char* key) const;
  void allow(std::initializer_list<const char*> keys) const;  // throws where there is another argument

 private:
  const Value* find(const char* key) const;
  const Value& need(const char* key) const;

  std::string name_;
  std::vector<std::pair<std::string, Value>> arguments_;
  friend class StepReader;
};

}  // namespace narrows::program
