// SPDX-License-Identifier: Apache-2.0
// proven.h -- what has been proven of a program's loops, so that a step pays for what it changed alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/program/order.h"
#include "core/program/unit.h"

namespace narrows::program {

// All that the order and the points of some blocks depend on: their loops, bindings and predicates, and where one stands to the
// other. A fact with the same subject and basis is the same fact.
class Basis {
 public:
  explicit Basis(const Unit& unit) { add(unit); }
  explicit Basis(const Pair& pair, int depth = -1);

  bool operator==(const Basis&) const = default;

 private:
  void add(const Unit& unit);

  std::vector<std::string> loops_;
  std::vector<ExprPtr> parts_;  // compared as pointers; held, so that none is used anew
  std::vector<int> numbers_;
};

class Proven {
 public:
  bool knows(const std::string& subject, const Basis& basis) const {
    const auto found = facts_.find(subject);
    return found != facts_.end() && found->second == basis;
  }
  void add(const std::string& subject, Basis basis) { facts_.insert_or_assign(subject, std::move(basis)); }

 private:
  std::map<std::string, Basis> facts_;  // the last of each subject
};

}  // namespace narrows::program
