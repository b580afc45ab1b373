// SPDX-License-Identifier: Apache-2.0
// presolve.cpp -- see presolve.h.
#include "core/program/presolve.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "core/program/index.h"

namespace narrows::program {
namespace {

constexpr int kRounds = 6;  // of tightening bounds
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

struct Overflow {};
struct Empty {};

// kLeast counts as an overflow, so that each number has a negative.
int64_t add(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out) || out == kLeast) throw Overflow{};
  return out;
}

int64_t multiply(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out) || out == kLeast) throw Overflow{};
  return out;
}

using Row = std::vector<int64_t>;  // a coefficient for each unknown, then the constant

class Work {
 public:
  explicit Work(const System& system) : size_(system.names().size()), lowest_(size_, kLeast), highest_(size_, kMost) {
    for (const Linear& zero : system.zeros()) zeros_.push_back(dense(zero));
    for (const Linear& value : system.not_negatives()) rows_.push_back(dense(value));
  }

  void run() {
    bound_unknowns();
    split_digits();
    do {
      substitute_all();
      divide_rows();
    } while (join_opposites());
    for (int round = 0; round < kRounds; ++round)
      if (!tighten()) break;
  }

  bool has_obvious_point() const {
    Row point(size_);
    for (size_t i = 0; i < size_; ++i) point[i] = lowest_[i] != kLeast ? lowest_[i] : (highest_[i] != kMost ? highest_[i] : 0);
    const auto at = [&](const Row& row) {
      int64_t sum = row[size_];
      for (size_t i = 0; i < size_; ++i) sum = add(sum, multiply(row[i], point[i]));
      return sum;
    };
    return std::all_of(zeros_.begin(), zeros_.end(), [&](const Row& row) { return at(row) == 0; }) &&
           std::all_of(rows_.begin(), rows_.end(), [&](const Row& row) { return at(row) >= 0; });
  }

  Presolved rest() const {
    Presolved out;
    std::vector<int> ids(size_, -1);
    const auto sparse = [&](const Row& row) {
      Linear linear = number(row[size_]);
      for (size_t i = 0; i < size_; ++i) {
        if (row[i] == 0) continue;
        if (ids[i] < 0) ids[i] = static_cast<int>(out.unknowns++);
        linear.terms.emplace_back(ids[i], row[i]);
      }
      return linear;
    };
    for (const Row& row : zeros_) out.zeros.push_back(sparse(row));
    for (const Row& row : rows_) out.not_negatives.push_back(sparse(row));
    return out;
  }

 private:
  Row dense(const Linear& linear) const {
    Row row(size_ + 1, 0);
    for (const auto& [id, factor] : linear.terms) row[id] = add(0, factor);
    row[size_] = add(0, linear.constant);
    return row;
  }

  // What rows of one unknown say of it.
  void bound_unknowns() {
    for (const Row& row : rows_)
      if (std::count(row.begin(), row.end() - 1, 0) + 1 == static_cast<std::ptrdiff_t>(size_)) tighten(row);
  }

  // s·high + low == 0 where only one multiple of s is within the bounds of `low`: both sums are known. So the digits of two numbers
  // that are equal are equal each.
  void split_digits() {
    for (size_t r = 0; r < zeros_.size();) {
      std::vector<int64_t> strides;
      for (size_t i = 0; i < size_; ++i)
        if (zeros_[r][i] != 0) strides.push_back(zeros_[r][i] < 0 ? -zeros_[r][i] : zeros_[r][i]);
      std::sort(strides.begin(), strides.end(), std::greater<>());
      strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
      const auto splits = [&](int64_t stride) { return split_row(r, stride); };
      if (std::none_of(strides.begin(), strides.end(), splits)) ++r;
    }
  }

  bool split_row(size_t r, int64_t stride) {
    Row high(size_ + 1, 0), low(size_ + 1, 0);
    int64_t least = zeros_[r][size_], most = zeros_[r][size_];
    for (size_t i = 0; i < size_; ++i) {
      const int64_t factor = zeros_[r][i];
      if (factor % stride == 0) {
        high[i] = factor;
        continue;
      }
      if (lowest_[i] == kLeast || highest_[i] == kMost) return false;
      low[i] = factor;
      least = add(least, multiply(factor, factor > 0 ? lowest_[i] : highest_[i]));
      most = add(most, multiply(factor, factor > 0 ? highest_[i] : lowest_[i]));
    }
    const bool is_trivial = std::all_of(low.begin(), low.end(), [](int64_t value) { return value == 0; });
    const int64_t multiple = multiply(floor_div(most, stride), stride);
    if (multiple < least) throw Empty{};
    if (is_trivial || add(multiple, -stride) >= least) return false;
    low[size_] = add(zeros_[r][size_], -multiple);
    high[size_] = multiple;
    zeros_[r] = std::move(high);
    zeros_.push_back(std::move(low));
    return true;
  }

  // Takes one equality after the other in which an unknown has the factor 1 or -1, and puts its value in its place elsewhere.
  void substitute_all() {
    for (size_t r = 0; r < zeros_.size();) {
      Row row = zeros_[r];
      int64_t divisor = 0;
      for (size_t i = 0; i < size_; ++i) divisor = std::gcd(divisor, row[i]);
      if (divisor == 0 ? row[size_] != 0 : row[size_] % divisor != 0) throw Empty{};
      size_t unit = size_;
      for (int64_t& value : row) value /= std::max<int64_t>(divisor, 1);
      for (size_t i = size_; i-- > 0 && unit == size_;)
        if (row[i] == 1 || row[i] == -1) unit = i;
      if (divisor != 0 && unit == size_) {
        ++r;
        continue;
      }
      zeros_.erase(zeros_.begin() + static_cast<std::ptrdiff_t>(r));
      if (divisor == 0) continue;
      for (Row& other : zeros_) eliminate(other, row, unit);
      for (Row& other : rows_) eliminate(other, row, unit);
      r = 0;
    }
  }

  void eliminate(Row& target, const Row& row, size_t unit) const {
    if (target[unit] == 0) return;
    const int64_t factor = multiply(target[unit], -row[unit]);
    for (size_t i = 0; i <= size_; ++i)
      if (row[i] != 0) target[i] = add(target[i], multiply(factor, row[i]));
  }

  void divide_rows() {
    std::erase_if(rows_, [&](Row& row) {
      int64_t divisor = 0;
      for (size_t i = 0; i < size_; ++i) divisor = std::gcd(divisor, row[i]);
      if (divisor == 0 && row[size_] < 0) throw Empty{};
      if (divisor == 0) return true;
      if (divisor == 1) return false;
      for (size_t i = 0; i < size_; ++i) row[i] /= divisor;
      row[size_] = floor_div(row[size_], divisor);
      return false;
    });
  }

  // a + x >= 0 and b - x >= 0: a contradiction where a + b < 0, and an equality where it is 0. Returns whether there is a new
  // equality.
  bool join_opposites() {
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (size_t s = r + 1; s < rows_.size(); ++s) {
        const auto opposite = [](int64_t a, int64_t b) { return a == -b; };
        if (!std::equal(rows_[r].begin(), rows_[r].end() - 1, rows_[s].begin(), opposite)) continue;
        const int64_t slack = add(rows_[r][size_], rows_[s][size_]);
        if (slack < 0) throw Empty{};
        if (slack > 0) continue;
        zeros_.push_back(rows_[r]);
        rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(s));
        rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(r));
        return true;
      }
    }
    return false;
  }

  bool tighten() {
    bool changed = false;
    for (const Row& row : rows_) changed = tighten(row) || changed;
    for (const Row& row : zeros_) {
      Row negated = row;
      for (int64_t& value : negated) value = multiply(value, -1);
      changed = tighten(row) || changed;
      changed = tighten(negated) || changed;
    }
    return changed;
  }

  // By sum >= 0: each term is at least minus what the others can be at most.
  bool tighten(const Row& row) {
    int64_t most = row[size_];
    int unbounded = 0;
    for (size_t i = 0; i < size_; ++i) {
      if (row[i] == 0) continue;
      const int64_t bound = row[i] > 0 ? highest_[i] : lowest_[i];
      if (bound == kMost || bound == kLeast) {
        ++unbounded;
      } else {
        most = add(most, multiply(row[i], bound));
      }
    }
    if (unbounded == 0 && most < 0) throw Empty{};
    bool changed = false;
    for (size_t i = 0; i < size_ && unbounded < 2; ++i) changed = (row[i] != 0 && tighten_one(row, i, most, unbounded)) || changed;
    return changed;
  }

  bool tighten_one(const Row& row, size_t i, int64_t most, int unbounded) {
    const int64_t own = row[i] > 0 ? highest_[i] : lowest_[i];
    const bool is_free = own == kMost || own == kLeast;
    if (unbounded == 1 && !is_free) return false;
    const int64_t others = is_free ? most : add(most, -multiply(row[i], own));
    if (row[i] > 0) {  // x >= -others / a
      const int64_t bound = -floor_div(others, row[i]);
      if (lowest_[i] != kLeast && bound <= lowest_[i]) return false;
      lowest_[i] = bound;
    } else {
      const int64_t bound = floor_div(others, -row[i]);
      if (highest_[i] != kMost && bound >= highest_[i]) return false;
      highest_[i] = bound;
    }
    if (lowest_[i] != kLeast && highest_[i] != kMost && lowest_[i] > highest_[i]) throw Empty{};
    return true;
  }

  size_t size_;
  std::vector<Row> zeros_, rows_;
  Row lowest_, highest_;
};

}  // namespace

Presolved presolve(const System& system) {
  Presolved whole;
  whole.unknowns = system.names().size();
  whole.zeros = system.zeros();
  whole.not_negatives = system.not_negatives();
  try {
    Work work(system);
    work.run();
    if (work.has_obvious_point()) {
      whole.answer = Presolved::Answer::not_empty;
      return whole;
    }
    return work.rest();
  } catch (const Empty&) {
    whole.answer = Presolved::Answer::empty;
  } catch (const Overflow&) {  // isl counts in numbers of any size
  }
  return whole;
}

}  // namespace narrows::program
