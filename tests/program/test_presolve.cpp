// SPDX-License-Identifier: Apache-2.0
// test_presolve.cpp -- what is said of a System without isl, beside a count of its points.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <random>
#include <vector>

#include "core/program/polyhedra.h"
#include "core/program/presolve.h"

using namespace narrows::program;
using Answer = Presolved::Answer;

namespace {

// A point of the box [-2, 3]^n at which all conditions hold?
bool has_point(const System& system) {
  constexpr int64_t kLow = -2, kHigh = 3;
  std::vector<int64_t> point(system.names().size(), kLow);
  for (;;) {
    bool holds = !system.is_refuted();
    for (const Linear& zero : system.zeros()) holds = holds && value_of(zero, point) == 0;
    for (const Linear& value : system.not_negatives()) holds = holds && value_of(value, point) >= 0;
    if (holds) return true;
    size_t i = 0;
    while (i < point.size() && ++point[i] > kHigh) point[i++] = kLow;
    if (i == point.size()) return false;
  }
}

struct Random {
  std::mt19937 engine;
  int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(n)); }
};

// Up to four unknowns of that box, and conditions by chance, of which some are the opposites of others.
System by_chance(Random& random) {
  System out;
  std::vector<Linear> unknowns;
  for (int64_t i = 1 + random.below(4); i > 0; --i) {
    const Linear x = out.unknown("x");
    out.not_negative(x + number(2));
    out.not_negative(number(3) - x);
    unknowns.push_back(x);
  }
  for (int64_t i = random.below(5); i > 0; --i) {
    Linear sum = number(random.below(9) - 4);
    for (const Linear& x : unknowns) sum = sum + x * (random.below(7) - 3);
    if (random.below(3) == 0)
      out.zero(sum);
    else
      out.not_negative(sum);
    if (random.below(3) == 0) out.not_negative(number(random.below(3)) - sum);
  }
  return out;
}

Answer answer_of(const System& system) {
  const uint64_t before = solver_queries();
  const Answer out = presolve(system).answer;
  CHECK(solver_queries() == before);
  return out;
}

}  // namespace

TEST_CASE("what presolve answers is so, and what it leaves has a point exactly if the system has") {
  Random random{std::mt19937(1)};
  int known = 0;
  for (int round = 0; round < 5000; ++round) {
    INFO("round " << round);
    const System system = by_chance(random);
    const bool right = has_point(system);
    const Answer answer = presolve(system).answer;
    if (answer != Answer::unknown && !system.is_refuted()) REQUIRE((answer == Answer::not_empty) == right);
    REQUIRE(system.is_empty() == !right);
    known += answer == Answer::unknown ? 0 : 1;
  }
  CHECK(known > 2500);  // most of them
}

TEST_CASE("two conditions that are opposite end without isl, whatever bounds the unknowns have") {
  System apart;
  const Linear x = apart.unknown("x"), y = apart.unknown("y");
  apart.not_negative(x + y * 2 - number(3));
  apart.not_negative(number(7) - x);
  apart.not_negative(number(2) - x - y * 2);
  CHECK(answer_of(apart) == Answer::empty);

  System equal;  // x + 2y is 3, so x is odd, and z is x; 4z + 2 is 2y
  const Linear a = equal.unknown("x"), b = equal.unknown("y"), c = equal.unknown("z");
  equal.not_negative(a + b * 2 - number(3));
  equal.not_negative(number(3) - a - b * 2);
  equal.equal(c * 2, a);
  CHECK(answer_of(equal) == Answer::empty);
}

TEST_CASE("numbers that are equal have equal digits") {
  for (const int64_t base : {2, 8, 1000}) {
    System system;
    const Linear high = system.unknown("h"), low = system.unknown("l"), other = system.unknown("H"), digit = system.unknown("L");
    for (const Linear& x : {low, digit}) {
      system.not_negative(x);
      system.less(x, number(base));
    }
    system.equal(high * base + low, other * base + digit);
    System same = system;
    CHECK(presolve(same).answer != Answer::empty);
    CHECK(!same.is_empty());
    system.less(low, digit);
    CHECK(answer_of(system) == Answer::empty);
    same.less(high, other);
    CHECK(answer_of(same) == Answer::empty);
  }
}

TEST_CASE("numbers beyond 64 bits are left to isl") {
  System system;
  const Linear x = system.unknown("x"), y = system.unknown("y");
  system.equal(y, x * (int64_t{1} << 62));
  system.not_negative(y * 4 - number(1));
  system.not_negative(number(1) - x);
  CHECK(answer_of(system) == Answer::unknown);
}

TEST_CASE("numbers beyond 32 bits are told to isl as they are") {
  constexpr int64_t kLarge = (int64_t{1} << 32) + 5;
  for (const int64_t least : {kLarge, -kLarge}) {
    System system;
    const Linear x = system.unknown("x");
    system.not_negative(x - number(least));
    system.not_negative(number(least + 1) - x);
    CHECK(system.point() == std::vector<int64_t>{least});
  }
}

TEST_CASE("the least number of 64 bits, which has no negative, is left to isl") {
  System system;
  const Linear x = system.unknown("x");
  system.not_negative(x * std::numeric_limits<int64_t>::min() + number(5));
  system.not_negative(x);
  CHECK(answer_of(system) == Answer::unknown);
  CHECK(!system.is_empty());
}

TEST_CASE("an equation that says nothing hides none behind it") {
  System system;
  const Linear x = system.unknown("x"), y = system.unknown("y"), z = system.unknown("z"), w = system.unknown("w");
  system.equal(x, y);
  system.equal(x, y);
  system.equal(z, w);
  system.equal(z, w + number(1));
  CHECK(answer_of(system) == Answer::empty);
}

TEST_CASE("a quotient of digits takes no unknown, and leaves no term out") {
  System system;
  const Linear h = system.digit("h", 4), l = system.digit("l", 8), g = system.unknown("g");
  CHECK(system.floor_div(h * 8 + l + g * 16, 8) == h + g * 2);
  const Linear low = system.floor_div(h * 8 + l + g, 8);
  CHECK(system.names().size() == 4);
  CHECK(low == Linear{{{3, 1}}, 0});
}

TEST_CASE("what is asked has an end, also in many questions that are small each") {
  const auto walk = [] {  // 2^14 cases
    explore([](Choices& choices) {
      for (int i = 0; i < 14; ++i) choices.pick(2);
      return false;
    });
  };
  int walks = 0;
  const auto walk_on = [&] {
    for (; walks < 10'000; ++walks) {
      const Effort inner;  // gets nothing of its own
      walk();
    }
  };
  {
    const Effort outer;
    CHECK_THROWS_AS(walk_on(), Unproven);
    CHECK((walks > 10 && walks < 10'000));
    CHECK_THROWS_AS(walk(), Unproven);
  }
  CHECK_NOTHROW(walk());
}
