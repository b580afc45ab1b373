// SPDX-License-Identifier: Apache-2.0
// race.h -- rule V4: iterations that run at once touch nothing of each other, unless each has its own. Of a pipelined loop the
// copies that stand first run at once with iterations before.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/program/cover.h"
#include "core/program/proven.h"
#include "core/program/reference.h"
#include "core/program/unit.h"

namespace narrows::program {

class Races {
 public:
  // Of `current` and its units, which `coverage` names; the dependences are the reference's.
  Races(const Program& reference, const Program& current, const std::vector<Unit>& units,
        const std::map<std::string, Coverage>& coverage, const std::vector<Dependence>& dependences, Proven& proven)
      : reference_(reference), current_(current), units_(units), coverage_(coverage), dependences_(dependences), proven_(proven) {}

  void check() const;  // throws Failure
  void check_scopes() const;

  // May each iteration of the loop at `depth` around `unit` have the allocation as its own? "": yes; else why not.
  std::string shared_why(const Unit& unit, int depth, const Buffer& buffer) const;

 private:
  void check_loop(const Unit& unit, int depth) const;
  void check_stages(const Unit& unit, int depth) const;
  // Returns whether the two meet in a buffer of which each iteration has its own.
  bool check_pair(const Unit& unit, int depth, const Pair& pair, const Access& a, const Access& b) const;
  void check_nest(const Buffer& buffer) const;
  void check_shared(const Buffer& buffer) const;
  void check_local(const Buffer& buffer) const;
  void check_owner(const Buffer& buffer, const Pair& pair, const Access& a, const Access& b, const std::string& thread) const;
  bool crosses(const Dependence& dependence, int depth) const;
  const Unit* here(const Unit& of_reference) const;

  const Program& reference_;
  const Program& current_;
  const std::vector<Unit>& units_;
  const std::map<std::string, Coverage>& coverage_;
  const std::vector<Dependence>& dependences_;
  Proven& proven_;
};

}  // namespace narrows::program
