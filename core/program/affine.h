// SPDX-License-Identifier: Apache-2.0
// affine.h -- expressions of a program as conditions on integers: an `index` becomes a Linear, a condition becomes conditions of a
// System. min, max, `or` and `!=` are alternatives, which the Choices walk through.
#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/program/ir.h"
#include "core/program/polyhedra.h"

namespace narrows::program {

// What names of loops and axes stand for.
class Values {
 public:
  void set(std::string_view name, Linear value) { items_.emplace_back(name, std::move(value)); }
  const Linear* find(std::string_view name) const;

 private:
  std::vector<std::pair<std::string_view, Linear>> items_;
};

class Affine {
 public:
  Affine(const Program& program, Choices& choices) : program_(program), choices_(choices) {}

  System system;
  // False once something was only bounded: a clamped value, a product of sizes, a condition on data. The points are then more than
  // there are, so that "none" is still right, and "these are reached" is not.
  bool exact = true;

  Linear index(const ExprPtr& expr, const Values& values);
  void assume(const ExprPtr& condition, bool holds, const Values& values);
  int pick(int alternatives) { return choices_.pick(alternatives); }

  // A loop variable, 0 <= it < extent.
  Linear variable(const std::string& name, const ExprPtr& extent, const Values& values);
  Linear size(const std::string& name);

  // Says what `value // divisor` and `value % divisor` are, where the divisor is no constant.
  void define_quotient(const Linear& value, const Linear& divisor, const Linear& quotient, const Linear& rest);

 private:
  Linear call(const Expr& expr, const Values& values);
  Linear divide(const Linear& a, const Linear& b, bool is_remainder);
  Linear opaque(const std::string& what, const Linear& a, const Linear& b);
  Linear clamped(const Expr& expr, const Values& values);
  void compare(const std::string& name, const Linear& a, const Linear& b, bool holds);

  const Program& program_;
  Choices& choices_;
  std::vector<std::pair<std::string, Linear>> sizes_;
  std::vector<std::tuple<std::string, Linear, Linear, Linear>> opaques_;
};

// The sizes and the integer params, each once.
std::vector<std::string> size_names(const Program& program);

}  // namespace narrows::program
