// SPDX-License-Identifier: Apache-2.0
// reference.h -- what a program has to be so that its order of execution is a meaning, and which accesses that order binds.
#pragma once

#include <vector>

#include "core/program/order.h"
#include "core/program/unit.h"

namespace narrows::program {

// An access of `first` that comes before one of `second` to the same element, one of them a write.
struct Dependence {
  Part first, second;
  size_t access[2];       // of the part's accesses
  bool has_twin = false;  // the same elements are bound by a flow, too: where that is kept by each run, so is this

  bool is_flow() const { return access_of(0).is_write && !access_of(1).is_write; }

  const Access& access_of(int which) const { return (which == 0 ? first : second).accesses()[access[which]]; }
  bool is_ordered_by_loops() const { return Pair(first, second).common > 0; }

  // Runs in the reference's order; those of two parts that share no loop are always in order, and nothing is placed.
  bool place(Affine& affine, Runs& runs) const;
};

class Reference {
 public:
  Reference(const Program& program, const std::vector<Unit>& units) : program_(program), units_(units) {}

  void check() const;  // throws Failure
  std::vector<Dependence> dependences() const;

 private:
  void require_bounds(const Unit& unit) const;
  void require_bounds(const Unit& unit, const Access& access, size_t dim, bool is_init) const;
  void require_spatial(const Unit& unit) const;
  void require_written(const Part& reader, const Access& access) const;
  void require_complete(const Buffer& output) const;
  void require_quiet_init(const Part& init, const Part& other) const;
  bool exists(const Dependence& dependence) const;

  const Program& program_;
  const std::vector<Unit>& units_;
};

// Do two accesses of one part touch the same elements, under the same guards?
bool same_elements(const Access& a, const Access& b);

// Are these accesses of two parts bound to an order at all? One of them writes; not an init and its own update, nor two updates of
// one reduction.
bool may_conflict(const Part& first, const Access& a, const Part& second, const Access& b);

}  // namespace narrows::program
