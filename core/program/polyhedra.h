// SPDX-License-Identifier: Apache-2.0
// polyhedra.h -- integer points under linear conditions: is there one, and which values are reached. Behind it is isl; no type of
// isl shows here. What cannot be answered (numbers beyond 64 bits, too many operations) is Unproven, never a guess.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

struct isl_set;

namespace narrows::program {

struct Unproven {
  std::string why;
};

// A sum of unknowns with coefficients (sorted by unknown, none 0), and a constant.
struct Linear {
  std::vector<std::pair<int, int64_t>> terms;
  int64_t constant = 0;

  bool is_constant() const { return terms.empty(); }
  bool operator==(const Linear&) const = default;
};

Linear operator+(const Linear& a, const Linear& b);
Linear operator-(const Linear& a, const Linear& b);
Linear operator*(const Linear& a, int64_t factor);
Linear number(int64_t value);

// Conditions on integer unknowns, all of which hold.
class System {
 public:
  // `name` is what a counterexample calls it; "": it is not shown.
  Linear unknown(const std::string& name);
  Linear digit(const std::string& name, int64_t end);  // 0 <= it < end, and known to be, so that floor_div needs no unknown
  void zero(Linear value);                             // value == 0
  void not_negative(Linear value);                     // value >= 0
  void less(const Linear& a, const Linear& b) { not_negative(b - a - number(1)); }
  void equal(const Linear& a, const Linear& b) { zero(a - b); }
  Linear floor_div(const Linear& value, int64_t divisor);  // divisor > 0; the same quotient is one unknown

  // A contradiction that needs no solver; then nothing else has to be asked.
  bool is_refuted() const { return refuted_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<Linear>& zeros() const { return zeros_; }
  const std::vector<Linear>& not_negatives() const { return not_negatives_; }

  // Values of all unknowns, the least in the order of `first` and then of the unknowns themselves. nullopt: there are none.
  std::optional<std::vector<int64_t>> point(const std::vector<int>& first = {}) const;
  bool is_empty() const;

 private:
  struct Quotient {
    Linear value;
    int64_t divisor;
    Linear result;
  };

  // The quotient where the terms that the divisor does not divide are digits that stay below it.
  std::optional<Linear> divide_digits(const Linear& value, int64_t divisor) const;

  std::vector<std::string> names_;
  std::vector<int64_t> ends_;  // of digits; 0 of others
  std::vector<Linear> zeros_, not_negatives_;
  std::vector<Quotient> quotients_;
  bool refuted_ = false;
};

int64_t value_of(const Linear& linear, const std::vector<int64_t>& point);

// The values that some of a system's unknowns take, whatever the others are.
class Region {
 public:
  explicit Region(size_t dims);
  Region(const System& system, const std::vector<Linear>& shown);

  void unite(Region other);
  Region minus(const Region& other) const;
  bool is_empty() const;
  std::optional<std::vector<int64_t>> point() const;  // the least

 private:
  struct Free {
    void operator()(isl_set* set) const;
  };
  explicit Region(isl_set* set);
  std::unique_ptr<isl_set, Free> set_;
};

// A walk through alternatives. explore() runs `body` once for each way that its picks can turn out; it ends early where `body` says
// so.
class Choices {
 public:
  int pick(int alternatives);
  void restart() { at_ = 0; }
  bool advance();
  bool has_picked() const { return at_ > 0; }

 private:
  std::vector<std::pair<int, int>> taken_;  // the pick, of how many
  size_t at_ = 0;
  int walked_ = 0;
};

// Returns whether some run of `body` returned true.
template <typename Body>
bool explore(const Body& body) {
  Choices choices;
  do {
    choices.restart();
    if (body(choices)) return true;
  } while (choices.advance());
  return false;
}

// Bounds what a thread asks from the making of the outermost one to its end: cases that are walked through, and questions by their
// size. Beyond that all is Unproven. It counts and takes no time, so that each machine refuses the same.
class Effort {
 public:
  Effort();
  ~Effort();
  Effort(const Effort&) = delete;
  Effort& operator=(const Effort&) = delete;

 private:
  bool is_outer_;
};

// The queries that went to isl so far, for measurements.
uint64_t solver_queries();

}  // namespace narrows::program
