// SPDX-License-Identifier: Apache-2.0
// program_linear.h -- subscripts as sums: what lowering asks of them is how far a loop moves an access, and between which numbers a
// subscript lies. It knows no device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/program/ir.h"

namespace narrows::common {

namespace ir = ::narrows::program;

using Names = std::set<std::string>;

// Loops whose extent is a number: 0 <= name < extent.
using Extents = std::map<std::string, int64_t>;

// factor * atom. An atom is a name, or an expression that is no sum (a quotient, a minimum, a clamped value).
struct Term {
  ir::ExprPtr atom;
  std::string key;  // the atom's text, by which terms are the same and ordered
  int64_t factor;
  bool is_name() const { return atom->kind == ir::Expr::Kind::name; }
};

// constant + the sum of the terms, ordered by key, none of them with a factor of 0.
struct Linear {
  int64_t constant = 0;
  std::vector<Term> terms;

  int64_t factor_of(const std::string& name) const;
  bool is_constant() const { return terms.empty(); }
  Linear without(const std::string& name) const;
  bool operator==(const Linear& other) const;
};

Linear operator+(const Linear& a, const Linear& b);
Linear operator*(const Linear& a, int64_t factor);

// An expression of `index` as a sum. With the extents of loops, quotients and remainders that they decide are resolved.
Linear linear(const ir::ExprPtr& index, const Extents& extents = {});

// The expression of a sum again.
ir::ExprPtr expression(const Linear& sum);

// The least and greatest value that it can have; nothing where a term's range is not known.
struct Range {
  int64_t least, greatest;
};
std::optional<Range> range(const Linear& sum, const Extents& extents);

// Whether a loop of this extent has iterations wherever it stands.
bool is_never_empty(const ir::ExprPtr& extent, const Extents& extents);

void collect_names(const ir::ExprPtr& expr, Names* names);
bool mentions(const ir::ExprPtr& expr, const Names& names);
bool mentions(const ir::ExprPtr& expr, const std::string& name);

// Calls visit on every load of an expression, those within subscripts too.
template <class Visit>
void for_each_load(const ir::ExprPtr& expr, const Visit& visit) {
  if (expr == nullptr) return;
  if (expr->kind == ir::Expr::Kind::load) visit(*expr);
  for (const ir::ExprPtr& operand : expr->operands) for_each_load(operand, visit);
}

// a and b and … as its parts.
void split_conjunction(const ir::ExprPtr& condition, std::vector<ir::ExprPtr>* parts);

// A condition `sum >= 0`, where the condition is a comparison of `index` other than ne and eq.
std::optional<Linear> as_inequality(const ir::ExprPtr& condition, const Extents& extents);

}  // namespace narrows::common
