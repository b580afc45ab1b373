// SPDX-License-Identifier: Apache-2.0
// c_partial.cpp -- partial tiles, of which some point is there. Sums in registers are computed for the whole tile, without a test
// in the reduction: what stands in for rows that are not there is the last one that is, and memory gives the lanes that are there.
// So it takes as long as a full tile. See c_printer.h.
#include <algorithm>

#include "core/program/dtype.h"
#include "core/program/text.h"
#include "program/c_printer.h"

namespace narrows::cpu {

using Kind = ir::Expr::Kind;

namespace {

constexpr const char* kVaries = "!";  // a condition that is another one from use to use

std::string nested_minimum(const std::vector<std::string>& values) {
  std::string out = values[0];
  for (size_t i = 1; i < values.size(); ++i)
    out = std::string("nw_minimum(").append(out).append(", ").append(values[i]).append(")");
  return out;
}

bool has_load(const ir::ExprPtr& expr) {
  bool found = false;
  for_each_load(expr, [&](const ir::Expr&) { found = true; });
  return found;
}

}  // namespace

// Loops count from 0.
bool Printer::always_holds(const Linear& sum) const {
  if (const auto bounds = range(sum, extents_); bounds.has_value()) return bounds->least >= 0;
  return sum.constant >= 0 && std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Term& term) {
           return term.is_name() && term.factor > 0 && kinds_.count(term.atom->name) != 0;
         });
}

// Whether a condition holds at the first point of the loops inside the one at `depth`. NULL: it cannot be said so, or data decides,
// which another condition may guard.
ir::ExprPtr Printer::test_of_first(const ir::ExprPtr& condition, const std::vector<std::string>& path, size_t depth) const {
  std::optional<Linear> sum = as_inequality(condition, extents_);
  if (!sum.has_value() || has_load(condition)) return nullptr;
  for (size_t i = depth + 1; i < path.size(); ++i) {
    sum = sum->without(path[i]);
    if (mentions(expression(*sum), path[i])) return nullptr;
  }
  return ir::make_call("ge", {expression(*sum), ir::make_integer(0)});
}

// The loop's body, for a tile whose first point is there.
std::string Printer::tile_text(const Node& node, const Names& decided, const Names& lacking) {
  std::string outside;
  outside.swap(out_);
  tile_ = Tile{path_.size() - 1, decided, lacking, {}, false};
  scope(node.allocations, node.body);
  outside.swap(out_);
  return outside;
}

// Writes a tile whose first point is there: without its second half of rows, of vectors, or both, where these are not there, else
// whole. False, and nothing written: it has no stores that need no conditions.
bool Printer::partial_tile(const Node& node, const std::map<std::string, ir::ExprPtr>& firsts) {
  const std::string out_before = out_, functions_before = functions_;
  const int indent = indent_;
  std::vector<ir::ExprPtr> conditions;
  Names decided;
  for (const auto& [key, test] : firsts) {
    conditions.push_back(test);
    decided.insert(key);
  }
  const std::string test = condition_text(conditions);
  open("if (" + test + ") {");
  ++indent_;
  const std::string whole = tile_text(node, decided, {});
  --indent_;
  const Tile tile = *std::exchange(tile_, std::nullopt);
  if (!tile.used) {
    out_ = out_before;
    functions_ = functions_before;
    indent_ = indent;
    return false;
  }
  Names both = tile.halves[0];
  both.insert(tile.halves[1].begin(), tile.halves[1].end());
  for (const Names& lacking : {both, tile.halves[0], tile.halves[1]}) {
    if (lacking.empty() || (lacking == both && (tile.halves[0].empty() || tile.halves[1].empty()))) continue;
    open("if (" + join({lacking.begin(), lacking.end()}, " && ") + ") {");
    out_ += tile_text(node, decided, lacking);
    close("} else");
  }
  tile_.reset();
  open("{");
  out_ += whole;
  close();
  close("} else {");
  ++indent_;
  return true;
}

// The conditions of stores, by which uses of an element are compared.
std::string Printer::conditions_key(const Node& node) const {
  Names texts;
  for (const ir::ExprPtr& condition : open_conditions(node)) {
    const std::optional<Linear> sum = as_inequality(resolved(condition), extents_);
    if (!sum.has_value()) return kVaries;
    const ir::ExprPtr left = expression(*sum);
    for (size_t i = tile_->depth + 1; i < path_.size(); ++i)
      if (mentions(left, path_[i])) return kVaries;
    texts.insert(ir::print(left));
  }
  std::string out;
  for (const std::string& text : texts) out += text + ";";
  return out;
}

// Elements of a partial tile that are used under one condition everywhere may hold anything where it does not.
void Printer::note_use(const std::pair<int64_t, int>& element, Registers* registers) const {
  if (!tile_.has_value() || !registers->is_free) return;
  const auto [entry, is_new] = registers->conditions.insert({element, here_});
  if (here_ == kVaries || entry->second != here_) registers->is_mixed = true;
}

// May a load be made for a tile's point that stands in for another one, of the lanes that are there?
bool Printer::may_load_freely(const ir::Expr& load, const Node& loop) const {
  if (load.name[0] == '#') return false;
  if (const auto found = registers_.find(load.name); found != registers_.end()) return found->second.is_free;
  if (std::any_of(load.operands.begin(), load.operands.end(), has_load)) return false;  // a gather
  for (size_t d = 0; d < load.operands.size(); ++d) {
    const Linear sum = linear(load.operands[d], extents_);
    const bool last = d + 1 == load.operands.size();
    if (mentions(expression(sum.without(loop.name)), loop.name)) return false;
    if (const int64_t factor = sum.factor_of(loop.name); factor != 0 && !(last && factor == 1)) return false;
  }
  return true;
}

// What the open conditions of stores leave of the loops that are written out, and of the lanes. False: it is not that simple.
bool Printer::tile_bounds(const Node& node, const Node& loop, const ir::ExprPtr& base, TileBounds* out) {
  for (const ir::ExprPtr& condition : open_conditions(node)) {
    const ir::ExprPtr first = test_of_first(condition, path_, tile_->depth);
    if (first == nullptr || tile_->decided.count(ir::print(first)) == 0) return false;
    const Linear sum = *as_inequality(condition, extents_);
    std::string inner;
    for (size_t i = tile_->depth + 1; i < path_.size(); ++i) {
      if (sum.factor_of(path_[i]) == 0) continue;
      if (!inner.empty()) return false;
      inner = path_[i];
    }
    const int64_t factor = sum.factor_of(inner);
    if (factor > 0) continue;  // it holds at the first value, and so at all of them
    if (factor != -1) return false;
    const Linear rest = linear(resolved(expression(sum.without(inner))), extents_);
    if (!std::all_of(rest.terms.begin(), rest.terms.end(), [](const Term& term) { return term.is_name(); })) return false;
    const auto number = replaced_.find(inner);
    if (inner == loop.name)
      out->lanes.push_back(sum_text(rest + linear(base, extents_) * -1) + " + 1");
    else if (number != replaced_.end() && number->second->kind == Kind::integer)
      out->loops[inner].push_back(sum_text(rest));
    else
      return false;
  }
  return true;
}

// Is this part of the tile's second half of vectors or rows, and written for a tile without that? The tests for it are noted.
bool Printer::is_lacking(const TileBounds& bounds, const ir::ExprPtr& base) {
  bool out = false;
  const auto note = [&](int half, const std::string& test) {
    tile_->halves[half].insert(test);
    out = out || tile_->lacking.count(test) != 0;
  };
  if (!bounds.lanes.empty() && base->kind == Kind::integer && base->integer > 0)
    note(0, "(" + nested_minimum(bounds.lanes) + ") <= 0");
  for (const auto& [name, last] : bounds.loops) {
    const int64_t half = (extents_.at(name) + 1) / 2;
    if (half > 1 && replaced_.at(name)->integer >= half) note(1, "(" + nested_minimum(last) + ") < " + std::to_string(half));
  }
  return out;
}

// The value with its uses of registers resolved, so that loops in it may be replaced by others.
ir::ExprPtr Printer::with_registers(const ir::ExprPtr& expr) const {
  if (expr->kind == Kind::load && registers_.count(expr->name) != 0) return resolved(expr);
  ir::Expr out = *expr;
  for (ir::ExprPtr& operand : out.operands) operand = with_registers(operand);
  return std::make_shared<const ir::Expr>(std::move(out));
}

// Stores into registers of a partial tile, without their conditions. False, and nothing written: they need them.
bool Printer::free_stores(const Node& node, const Node& loop, const ir::ExprPtr& base, int lanes) {
  bool free = tile_.has_value();
  for (const ir::Store& store : node.stores) {
    const auto found = registers_.find(store.buffer);
    free = free && found != registers_.end() && found->second.is_free;
    for_each_load(store.value, [&](const ir::Expr& load) { free = free && may_load_freely(load, loop); });
  }
  TileBounds bounds;
  if (!free || !tile_bounds(node, loop, base, &bounds) || (lanes == 1 && !bounds.lanes.empty())) return false;
  tile_->used = true;
  if (is_lacking(bounds, base)) return true;
  const std::string out_before = out_;
  const ir::Substitution replaced_before = replaced_;
  Node changed = node;
  for (ir::Store& store : changed.stores) {
    store.indices = resolved(store.indices);
    store.value = with_registers(store.value);
  }
  open("{");
  for (auto& [name, last] : bounds.loops) {
    const int64_t at = replaced_.at(name)->integer;
    last.insert(last.begin(), std::to_string(at));
    const std::string stand_in = keep("i64", nested_minimum(last));
    c_names_["#" + stand_in] = stand_in;
    extents_["#" + stand_in] = at + 1;
    replaced_[name] = ir::make_name("#" + stand_in);
  }
  if (!bounds.lanes.empty()) {
    bounds.lanes.insert(bounds.lanes.begin(), std::to_string(lanes));
    part_ = Part{"0", keep("i64", nested_minimum(bounds.lanes)), false};
  }
  set_lanes(lanes);
  keeps_lanes_ = false;
  write(changed);
  keeps_lanes_ = true;
  set_lanes(1);
  const bool good = !part_.has_value() || !part_->failed;
  part_.reset();
  replaced_ = replaced_before;
  close();
  if (!good) out_ = out_before;
  return good;
}

}  // namespace narrows::cpu
