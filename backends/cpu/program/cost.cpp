// SPDX-License-Identifier: Apache-2.0
// cost.cpp -- see cost.h. Measured on a Xeon with AVX-512, where a multiply-add of a tile takes 0.03 ns.
#include "program/cost.h"

#include <algorithm>

#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/functions.h"
#include "program/c_printer.h"

namespace narrows::cpu {
namespace {

using Kind = ir::Expr::Kind;
using ir::DType;

constexpr double kAddition = 0.2;          // of a vector, for each element
constexpr double kLoad = 1.5, kStore = 2;  // of 4 bytes, in a second-level cache
constexpr double kSum = 0.1;               // a result that stays in a register meanwhile
constexpr double kHalf = 12;               // from f16 or bf16, or to it
constexpr double kScalar = 8;              // without vectors
constexpr double kCall = 500;              // a function for one element
constexpr double kStrip = 256;             // elements that share a call

// Whether a store's elements lie along the loop.
bool lies_along(const std::vector<ir::ExprPtr>& indices, const std::string& loop) {
  for (size_t d = 0; d + 1 < indices.size(); ++d)
    if (mentions(indices[d], loop)) return false;
  if (indices.empty()) return false;
  const Linear last = common::linear(indices.back());
  return last.factor_of(loop) == 1 && !mentions(common::expression(last.without(loop)), loop);
}

// Whether a loop's iterations become lanes, as Printer::vector_loop() has it.
bool is_vector(const Node& loop) {
  if (loop.loop_kind == ir::For::Kind::vectorize) return true;
  bool out = loop.loop_kind == ir::For::Kind::serial;
  for (const Node& child : loop.body) {
    out = out && child.kind == Node::Kind::stores;
    for (const ir::Store& store : child.stores) {
      out = out && lies_along(store.indices, loop.name);
      for_each_load(store.value, [&](const ir::Expr& load) {
        out = out && (load.name != store.buffer || ir::same(load.operands, store.indices));
      });
    }
  }
  return out;
}

class Counter {
 public:
  Counter(const LoopPath& around, const Numbers& numbers, double function)
      : around_(around), numbers_(numbers), function_(function), is_vector_(!around.empty() && is_vector(*around.back())),
        each_(is_vector_ ? 1 : kScalar) {
    for (const Node* loop : around)
      if (const auto extent = ir::constant(loop->extent); extent.has_value()) extents_[loop->name] = *extent;
  }

  double stores(const Node& node) {
    double out = 0;
    for (const ir::Store& store : node.stores) {
      const bool sums = is_sum(store);
      if (sums) seen_.push_back(ir::make_load(store.buffer, store.value->dtype, store.indices));
      out += sums ? kSum * each_ : access(kStore, store.value->dtype, store.indices);
      out += value(store.value);
    }
    return out;
  }

 private:
  // Does it add to an element that one of the loops around adds to again?
  bool is_sum(const ir::Store& store) const {
    bool reads = false;
    for_each_load(store.value, [&](const ir::Expr& load) {
      reads = reads || (load.name == store.buffer && ir::same(load.operands, store.indices));
    });
    return reads && std::any_of(around_.begin(), around_.end(), [&](const Node* loop) { return !along(store.indices, *loop); });
  }

  static bool along(const std::vector<ir::ExprPtr>& indices, const Node& loop) {
    return std::any_of(indices.begin(), indices.end(), [&](const auto& index) { return mentions(index, loop.name); });
  }

  static double width(DType dtype) { return std::max(1.0, static_cast<double>(common::bytes_of(dtype)) / 4); }

  // How many iterations share what these expressions give: of the innermost loop, and of those around it that are written out.
  double sharers(const std::vector<ir::ExprPtr>& parts) const {
    double out = 1;
    for (size_t i = around_.size(); i-- > 0;) {
      const Node& loop = *around_[i];
      const bool is_written_out = loop.loop_kind == ir::For::Kind::unroll || loop.loop_kind == ir::For::Kind::vectorize;
      if (!is_written_out && i + 1 < around_.size()) break;
      if (!along(parts, loop)) out *= std::max(1.0, trips_of(loop, numbers_));
    }
    return out;
  }

  double access(double cost, DType dtype, const std::vector<ir::ExprPtr>& indices) const {
    std::vector<ir::ExprPtr> places;
    places.reserve(indices.size());
    for (const ir::ExprPtr& index : indices) places.push_back(common::expression(common::linear(index, extents_)));
    const bool is_gather = is_vector_ && along(places, *around_.back()) && !lies_along(places, around_.back()->name);
    return (cost * width(dtype) + (is_half(dtype) ? kHalf : 0)) * (is_gather ? kScalar : each_) / sharers(places);
  }

  double value(const ir::ExprPtr& expr) {
    double out = 0;
    if (expr->kind == Kind::load) {
      if (std::any_of(seen_.begin(), seen_.end(), [&](const ir::ExprPtr& one) { return ir::same(one, expr); })) return 0;
      seen_.push_back(expr);
      out = access(kLoad, expr->dtype, expr->operands);
    } else if (expr->kind == Kind::call || expr->kind == Kind::cast) {
      out = expr->operands[0]->dtype == DType::index ? 0 : operation(*expr);
    }
    for (const ir::ExprPtr& operand : expr->operands) out += value(operand);
    return out;
  }

  double operation(const ir::Expr& expr) const {
    const ir::Function* const found = expr.kind == Kind::call ? ir::find_function(expr.name) : nullptr;
    if (found != nullptr && found->is_costly()) {
      const double each = kAddition * found->cost * width(expr.operands[0]->dtype) * function_;
      if (!is_vector_) return kCall + each;
      if (along(expr.operands, *around_.back())) return each;
      return (kCall + each) / std::clamp(trips_of(*around_.back(), numbers_), 1.0, kStrip);  // once for a whole strip
    }
    const double additions = (found == nullptr ? 1 : found->cost) * width(expr.operands[0]->dtype);
    const double one = kAddition * additions + (is_half(expr.dtype) ? kHalf : 0);
    return one * each_ / sharers(expr.operands);
  }

  const LoopPath& around_;
  const Numbers& numbers_;
  const double function_;
  const bool is_vector_;
  const double each_;              // what an element that is no vector's costs more
  Extents extents_;                // of the loops around
  std::vector<ir::ExprPtr> seen_;  // loads that are counted
};

double cost_of_body(const std::vector<Node>& body, const Numbers& numbers, LoopPath* around) {
  double out = 0;
  for (const Node& node : body) {
    if (node.kind == Node::Kind::stores) {
      out += cost_of_stores(node, *around, numbers);
      continue;
    }
    around->push_back(&node);
    out += trips_of(node, numbers) * cost_of_body(node.body, numbers, around);
    around->pop_back();
  }
  return out;
}

}  // namespace

double trips_of(const Node& loop, const Numbers& numbers) {
  try {
    return static_cast<double>(std::max<int64_t>(0, ir::evaluate(loop.extent, numbers)));
  } catch (const Failure&) {  // it depends on a loop
    return kUnknownTrips;
  }
}

double cost_of(const std::vector<Node>& body, const Numbers& numbers) {
  LoopPath around;
  return cost_of_body(body, numbers, &around);
}

double cost_of_stores(const Node& stores, const LoopPath& around, const Numbers& numbers, double function) {
  return Counter(around, numbers, function).stores(stores);
}

}  // namespace narrows::cpu
