// SPDX-License-Identifier: Apache-2.0
// polyhedra.cpp -- see polyhedra.h.
#include "core/program/polyhedra.h"

#include <isl/ctx.h>
#include <isl/mat.h>
#include <isl/options.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/space.h>
#include <isl/val.h>

#include <algorithm>
#include <limits>

#include "core/program/index.h"
#include "core/program/presolve.h"

namespace narrows::program {
namespace {

constexpr unsigned long kMaxOperations = 20'000'000;  // of isl in one query: some tenths of a second
constexpr int kMaxAlternatives = 20'000;
constexpr uint64_t kMaxEffort = 1'000'000;  // of one Effort: some seconds

struct Freer {
  void operator()(isl_ctx* p) const { isl_ctx_free(p); }
  void operator()(isl_set* p) const { isl_set_free(p); }
  void operator()(isl_basic_set* p) const { isl_basic_set_free(p); }
  void operator()(isl_point* p) const { isl_point_free(p); }
  void operator()(isl_val* p) const { isl_val_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Freer>;

uint64_t& query_count() {
  thread_local uint64_t count = 0;
  return count;
}

struct Spent {
  bool is_bounded = false;
  uint64_t effort = 0;
};
Spent& spent() {
  thread_local Spent it;
  return it;
}

void spend(uint64_t effort) {
  Spent& all = spent();
  all.effort += effort;
  if (all.is_bounded && all.effort > kMaxEffort) throw Unproven{"it takes too many questions"};
}

// One for each thread, as isl's objects are not shared between threads. Regions are freed before their thread ends: they are
// locals.
isl_ctx* context() {
  thread_local Owned<isl_ctx> owned = [] {
    isl_ctx* const made = isl_ctx_alloc();
    if (made == nullptr) throw std::bad_alloc();
    isl_options_set_on_error(made, ISL_ON_ERROR_CONTINUE);
    isl_ctx_set_max_operations(made, kMaxOperations);
    return Owned<isl_ctx>(made);
  }();
  return owned.get();
}

// Begins a query: the count of operations starts anew.
isl_ctx* ask() {
  ++query_count();
  spend(4);  // tens of microseconds
  isl_ctx_reset_operations(context());
  return context();
}

[[noreturn]] void unproven() {
  const bool too_many = isl_ctx_last_error(context()) == isl_error_quota;
  isl_ctx_reset_error(context());
  throw Unproven{too_many ? "the question is too large for the solver" : "the solver failed"};
}

template <typename T>
T* checked(T* object) {
  if (object == nullptr) unproven();
  return object;
}

int64_t checked(int64_t value, bool overflow) {
  if (overflow) throw Unproven{"a number does not fit in 64 bits"};
  return value;
}

int64_t add(int64_t a, int64_t b) {
  int64_t out = 0;
  const bool overflow = __builtin_add_overflow(a, b, &out);
  return checked(out, overflow);
}

int64_t multiply(int64_t a, int64_t b) {
  int64_t out = 0;
  const bool overflow = __builtin_mul_overflow(a, b, &out);
  return checked(out, overflow);
}

isl_mat* put(isl_mat* matrix, int row, int column, int64_t value) {
  if (value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max())
    return isl_mat_set_element_si(matrix, row, column, static_cast<int>(value));
  return isl_mat_set_element_val(matrix, row, column, isl_val_int_from_si(context(), value));
}

// One row for each sum: the unknowns at their places in `columns`, the constant last.
isl_mat* matrix(isl_ctx* ctx, const std::vector<Linear>& rows, const std::vector<int>& columns) {
  const int width = static_cast<int>(columns.size());
  isl_mat* out = isl_mat_alloc(ctx, rows.size(), width + 1);
  for (int r = 0; r < static_cast<int>(rows.size()); ++r) {
    for (int c = 0; c <= width; ++c) out = isl_mat_set_element_si(out, r, c, 0);
    for (const auto& [id, factor] : rows[r].terms) out = put(out, r, columns[id], factor);
    out = put(out, r, width, rows[r].constant);
  }
  return out;
}

isl_basic_set* basic_set(const System& system, const std::vector<int>& columns) {
  isl_ctx* const ctx = ask();
  isl_space* const space = isl_space_set_alloc(ctx, 0, columns.size());
  return checked(isl_basic_set_from_constraint_matrices(space, matrix(ctx, system.zeros(), columns),
                                                        matrix(ctx, system.not_negatives(), columns), isl_dim_set, isl_dim_div,
                                                        isl_dim_param, isl_dim_cst));
}

std::optional<std::vector<int64_t>> coordinates(isl_point* taken, size_t dims) {
  const Owned<isl_point> point(checked(taken));
  if (isl_point_is_void(point.get()) == isl_bool_true) return std::nullopt;
  std::vector<int64_t> out(dims);
  for (size_t i = 0; i < dims; ++i) {
    const Owned<isl_val> value(checked(isl_point_get_coordinate_val(point.get(), isl_dim_set, static_cast<int>(i))));
    out[i] = isl_val_get_num_si(value.get());
  }
  return out;
}

// The least point of a set; where isl cannot say which that is, any.
std::optional<std::vector<int64_t>> least(isl_set* taken, size_t dims) {
  const Owned<isl_set> set(checked(taken));
  isl_set* const lowest = isl_set_lexmin(isl_set_copy(set.get()));
  if (lowest != nullptr) return coordinates(isl_set_sample_point(lowest), dims);
  isl_ctx_reset_error(context());
  return coordinates(isl_set_sample_point(isl_set_copy(set.get())), dims);
}

bool truth(isl_bool answer) {
  if (answer == isl_bool_error) unproven();
  return answer == isl_bool_true;
}

// The place of each unknown: `first` in front, the others in their order.
std::vector<int> arrange(size_t size, const std::vector<int>& first) {
  std::vector<int> columns(size, -1);
  int next = 0;
  for (const int id : first)
    if (columns[id] < 0) columns[id] = next++;
  for (int& column : columns)
    if (column < 0) column = next++;
  return columns;
}

}  // namespace

uint64_t solver_queries() { return query_count(); }

Effort::Effort() : is_outer_(!spent().is_bounded) {
  if (is_outer_) spent() = {true, 0};
}

Effort::~Effort() {
  if (is_outer_) spent() = {};
}

Linear number(int64_t value) { return {{}, value}; }

Linear operator+(const Linear& a, const Linear& b) {
  Linear out;
  out.constant = add(a.constant, b.constant);
  out.terms.reserve(a.terms.size() + b.terms.size());
  auto i = a.terms.begin();
  auto j = b.terms.begin();
  while (i != a.terms.end() || j != b.terms.end()) {
    if (j == b.terms.end() || (i != a.terms.end() && i->first < j->first)) {
      out.terms.push_back(*i++);
    } else if (i == a.terms.end() || j->first < i->first) {
      out.terms.push_back(*j++);
    } else {
      const int64_t factor = add(i->second, j->second);
      if (factor != 0) out.terms.emplace_back(i->first, factor);
      ++i, ++j;
    }
  }
  return out;
}

Linear operator*(const Linear& a, int64_t factor) {
  if (factor == 0) return {};
  Linear out = a;
  out.constant = multiply(a.constant, factor);
  for (auto& term : out.terms) term.second = multiply(term.second, factor);
  return out;
}

Linear operator-(const Linear& a, const Linear& b) { return a + b * -1; }

int64_t value_of(const Linear& linear, const std::vector<int64_t>& point) {
  int64_t out = linear.constant;
  for (const auto& [id, factor] : linear.terms) out = add(out, multiply(factor, point[id]));
  return out;
}

Linear System::unknown(const std::string& name) {
  names_.push_back(name);
  ends_.push_back(0);
  return {{{static_cast<int>(names_.size()) - 1, 1}}, 0};
}

Linear System::digit(const std::string& name, int64_t end) {
  Linear out = unknown(name);
  ends_.back() = end;
  not_negative(out);
  less(out, number(end));
  return out;
}

std::optional<Linear> System::divide_digits(const Linear& value, int64_t divisor) const {
  Linear high;
  int64_t least = value.constant, most = value.constant;
  for (const auto& [id, factor] : value.terms) {
    if (factor % divisor == 0) {
      high.terms.emplace_back(id, factor / divisor);
      continue;
    }
    if (ends_[id] <= 0) return std::nullopt;
    const int64_t span = multiply(factor, ends_[id] - 1);
    least = add(least, std::min<int64_t>(span, 0));
    most = add(most, std::max<int64_t>(span, 0));
  }
  const int64_t quotient = program::floor_div(least, divisor);
  if (most >= add(multiply(quotient, divisor), divisor)) return std::nullopt;
  high.constant = quotient;
  return high;
}

void System::zero(Linear value) {
  if (value.is_constant()) {
    refuted_ = refuted_ || value.constant != 0;
  } else {
    zeros_.push_back(std::move(value));
  }
}

void System::not_negative(Linear value) {
  if (value.is_constant()) {
    refuted_ = refuted_ || value.constant < 0;
  } else {
    not_negatives_.push_back(std::move(value));
  }
}

Linear System::floor_div(const Linear& value, int64_t divisor) {
  if (divisor == 1) return value;
  if (value.is_constant()) return number(program::floor_div(value.constant, divisor));
  if (auto known = divide_digits(value, divisor)) return *known;
  for (const Quotient& known : quotients_)
    if (known.divisor == divisor && known.value == value) return known.result;
  const Linear result = unknown("");
  const Linear rest = value - result * divisor;
  not_negative(rest);
  less(rest, number(divisor));
  quotients_.push_back({value, divisor, result});
  return result;
}

bool System::is_empty() const {
  if (refuted_) return true;
  spend((zeros_.size() + not_negatives_.size()) * names_.size() / 64);
  const Presolved small = presolve(*this);
  if (small.answer != Presolved::Answer::unknown) return small.answer == Presolved::Answer::empty;
  System reduced;
  reduced.names_.resize(small.unknowns);
  reduced.zeros_ = small.zeros;
  reduced.not_negatives_ = small.not_negatives;
  const Owned<isl_basic_set> set(basic_set(reduced, arrange(small.unknowns, {})));
  return truth(isl_basic_set_is_empty(set.get()));
}

std::optional<std::vector<int64_t>> System::point(const std::vector<int>& first) const {
  if (refuted_) return std::nullopt;
  const std::vector<int> columns = arrange(names_.size(), first);
  const auto found = least(isl_set_from_basic_set(basic_set(*this, columns)), names_.size());
  if (!found) return std::nullopt;
  std::vector<int64_t> out(names_.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = (*found)[columns[i]];
  return out;
}

void Region::Free::operator()(isl_set* set) const { isl_set_free(set); }
Region::Region(isl_set* set) : set_(checked(set)) {}
Region::Region(size_t dims) : set_(checked(isl_set_empty(isl_space_set_alloc(ask(), 0, dims)))) {}

Region::Region(const System& system, const std::vector<Linear>& shown) : Region(shown.size()) {
  if (system.is_refuted()) return;
  System whole = system;
  std::vector<int> first;
  for (const Linear& value : shown) {
    const Linear dim = whole.unknown("");
    whole.equal(dim, value);
    first.push_back(dim.terms[0].first);
  }
  const size_t size = whole.names().size();
  isl_basic_set* set = basic_set(whole, arrange(size, first));
  set = isl_basic_set_project_out(set, isl_dim_set, shown.size(), size - shown.size());
  set_.reset(checked(isl_set_from_basic_set(set)));
}

void Region::unite(Region other) { set_.reset(checked(isl_set_union(set_.release(), other.set_.release()))); }

Region Region::minus(const Region& other) const {
  ask();
  return Region(isl_set_subtract(isl_set_copy(set_.get()), isl_set_copy(other.set_.get())));
}

bool Region::is_empty() const { return truth(isl_set_is_empty(set_.get())); }

std::optional<std::vector<int64_t>> Region::point() const {
  const size_t dims = isl_set_dim(set_.get(), isl_dim_set);
  return least(isl_set_copy(set_.get()), dims);
}

int Choices::pick(int alternatives) {
  if (at_ == taken_.size()) taken_.emplace_back(0, alternatives);
  return taken_[at_++].first;
}

bool Choices::advance() {
  if (++walked_ > kMaxAlternatives) throw Unproven{"there are too many cases"};
  spend(1);
  taken_.resize(at_);
  while (!taken_.empty() && taken_.back().first + 1 == taken_.back().second) taken_.pop_back();
  if (taken_.empty()) return false;
  ++taken_.back().first;
  return true;
}

}  // namespace narrows::program
