// SPDX-License-Identifier: Apache-2.0
// intrinsics.cpp -- see intrinsics.h.
#include "core/program/intrinsics.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/reduction.h"
#include "core/program/text.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

constexpr std::array<Intrinsic, 3> kIntrinsics = {{
    {"mma.f16.f32", DType::f16, DType::f32, 16, 8, 16},
    {"mma.bf16.f32", DType::bf16, DType::f32, 16, 8, 16},
    {"dot.i8.i32", DType::i8, DType::i32, 1, 1, 4},
}};

std::string shown(int64_t m, int64_t n, int64_t k) { return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k); }

class ProductReader {
 public:
  explicit ProductReader(const For& loop) : loop_(loop), intrinsic_(need_intrinsic(loop.intrinsic)) {}

  Product run() {
    find_block();
    find_factors();
    const Moves sums = moves_of(store().buffer, store().indices);
    const Moves first = moves_of(factors_[0]->name, factors_[0]->operands);
    const Moves second = moves_of(factors_[1]->name, factors_[1]->operands);
    const For *of_first = nullptr, *of_second = nullptr, *of_both = nullptr;
    for (const For* const loop : loops_) {
      const bool in_sums = sums.count(loop->name) > 0, in_first = first.count(loop->name) > 0,
                 in_second = second.count(loop->name) > 0;
      const bool is_one_of_two = in_sums + in_first + in_second == 2;
      const For*& role = !in_second ? of_first : !in_first ? of_second : of_both;
      if (!is_one_of_two || role != nullptr)
        bad("loop '" + loop->name + "' chooses elements of " + listed(in_sums, in_first, in_second) +
            (is_one_of_two ? ", as loop '" + role->name + "' does" : "; expected two of the sum and its two factors"));
      role = loop;
    }
    const int64_t m = extent(of_first), n = extent(of_second), k = extent(of_both);
    const bool is_swapped = m != intrinsic_.m || n != intrinsic_.n;  // a product of transposed matrices is one, too
    if (k != intrinsic_.k || (is_swapped ? n : m) != intrinsic_.m || (is_swapped ? m : n) != intrinsic_.n)
      bad("its loops are a product of " + shown(m, n, k) + "; expected " + shown(intrinsic_.m, intrinsic_.n, intrinsic_.k));
    if (is_swapped) return {&intrinsic_, block_, of_second, of_first, of_both, factors_[1], factors_[0]};
    return {&intrinsic_, block_, of_first, of_second, of_both, factors_[0], factors_[1]};
  }

 private:
  using Moves = std::map<std::string, int64_t>;  // the loops of the nest in the subscripts of an access, with their factors

  [[noreturn]] void bad(const std::string& why) const {
    throw_failure(NW_INVALID, -1, "loop '%s' is not the product '%s': %s", loop_.name.c_str(), intrinsic_.name, why.c_str());
  }

  const Store& store() const { return block_->body[0]; }
  static int64_t extent(const For* loop) { return loop == nullptr ? 1 : *constant(loop->extent); }

  std::string listed(bool in_sums, bool in_first, bool in_second) const {
    std::string out;
    for (const auto& [is_there, name] :
         {std::pair{in_sums, store().buffer}, {in_first, factors_[0]->name}, {in_second, factors_[1]->name}})
      if (is_there) out += (out.empty() ? "'" : " and '") + name + "'";
    return out.empty() ? "nothing" : out;
  }

  void find_block() {
    const For* loop = &loop_;
    while (block_ == nullptr) {
      const auto extent = constant(loop->extent);
      if (!extent) bad("loop '" + loop->name + "' has " + print(loop->extent) + " iterations; expected a number");
      const bool is_in_order =
          loop->kind == For::Kind::serial || loop->kind == For::Kind::unroll || loop->kind == For::Kind::vectorize;
      if (loop != &loop_ && !is_in_order)
        bad("loop '" + loop->name + "' in it is of another kind; expected one that is serial, vectorized or unrolled");
      if (loop->body.size() != 1)
        bad("loop '" + loop->name + "' holds " + std::to_string(loop->body.size()) + " statements; expected 1");
      if (*extent != 1) loops_.push_back(loop);
      if (const auto* const inner = std::get_if<std::shared_ptr<const For>>(&loop->body[0]))
        loop = inner->get();
      else
        block_ = std::get<std::shared_ptr<const Block>>(loop->body[0]).get();
    }
    const std::string who = "block '" + block_->name + "' ";
    if (block_->predicate != nullptr)
      bad(who + "runs only if " + print(block_->predicate) + "; expected a block without a condition");
    if (!block_->init.empty()) bad(who + "has an init; expected decompose_reduction before");
    if (block_->body.size() != 1) bad(who + "has " + std::to_string(block_->body.size()) + " stores; expected 1");
    for (const Axis& axis : block_->axes)
      if (axis.kind == Axis::Kind::carried) bad(who + "has the C axis '" + axis.name + "', which keeps its order");
  }

  // The store adds f32(a) * f32(b), where a and b are loads.
  void find_factors() {
    const auto sum = reduction_of(store());
    const bool is_sum =
        sum.has_value() && sum->combine == "add" && sum->element->kind == Expr::Kind::call && sum->element->name == "mul";
    if (!is_sum) bad("block '" + block_->name + "' stores " + print(store().value) + "; expected a sum of products");
    if (store().value->dtype != intrinsic_.sums)
      bad(std::string("its sums are ") + name_of(store().value->dtype) + "; expected " + name_of(intrinsic_.sums));
    for (const ExprPtr& factor : sum->element->operands) {
      const Expr& inner = factor->kind == Expr::Kind::cast ? *factor->operands[0] : *factor;
      if (inner.kind != Expr::Kind::load || inner.dtype != intrinsic_.factors)
        bad("the factor " + print(factor) + " is no element of " + name_of(intrinsic_.factors));
      factors_.push_back(&inner);
    }
  }

  bool is_moved(const ExprPtr& index) const {
    const std::set<std::string> names = names_in(index);
    return std::any_of(loops_.begin(), loops_.end(), [&](const For* loop) { return names.count(loop->name) > 0; });
  }

  // Adds the loops of index * factor; false: it is no sum of multiples of them.
  bool add_moves(const ExprPtr& index, int64_t factor, Moves& out) const {
    if (!is_moved(index)) return true;
    if (index->kind == Expr::Kind::name) return !__builtin_add_overflow(out[index->name], factor, &out[index->name]);
    if (index->kind != Expr::Kind::call) return false;
    const ExprPtr &left = index->operands[0], &right = index->operands[1];
    if (index->name == "add") return add_moves(left, factor, out) && add_moves(right, factor, out);
    if (index->name == "sub") return add_moves(left, factor, out) && factor != INT64_MIN && add_moves(right, -factor, out);
    if (index->name != "mul") return false;
    const auto by = constant(left) ? constant(left) : constant(right);
    return by && !__builtin_mul_overflow(factor, *by, &factor) && add_moves(constant(left) ? right : left, factor, out);
  }

  // Each subscript is moved by one loop at most, by one element, and each loop moves one subscript: a matrix with two pitches.
  Moves moves_of(const std::string& buffer, const std::vector<ExprPtr>& indices) const {
    Substitution bindings;
    for (const Axis& axis : block_->axes) bindings[axis.name] = axis.binding;
    Moves out;
    for (const ExprPtr& subscript : indices) {
      const ExprPtr index = substitute(subscript, bindings);
      Moves moves;
      const bool is_sum = add_moves(index, 1, moves);
      std::erase_if(moves, [](const auto& move) { return move.second == 0; });
      const std::string where = "the subscript " + print(index) + " of '" + buffer + "' ";
      if (!is_sum || moves.size() > 1 || (moves.size() == 1 && moves.begin()->second != 1))
        bad(where + "is no sum of one of its loops and what is outside of them");
      for (const auto& [loop, factor] : moves)
        if (!out.emplace(loop, factor).second)
          bad(std::string(where).append("is moved by loop '").append(loop).append("', and another one is, too"));
    }
    return out;
  }

  const For& loop_;
  const Intrinsic& intrinsic_;
  const Block* block_ = nullptr;
  std::vector<const For*> loops_;  // of more than one iteration, from the outermost
  std::vector<const Expr*> factors_;
};

}  // namespace

const Intrinsic& need_intrinsic(const std::string& name) {
  std::string names;
  for (const Intrinsic& each : kIntrinsics) {
    if (name == each.name) return each;
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  throw_failure(NW_INVALID, -1, "there is no intrinsic '%s'; there are: %s", name.c_str(), names.c_str());
}

Product require_product(const For& loop) { return ProductReader(loop).run(); }

}  // namespace narrows::program
