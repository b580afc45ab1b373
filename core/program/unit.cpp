// SPDX-License-Identifier: Apache-2.0
// unit.cpp -- see unit.h.
#include "core/program/unit.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/text.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

const Axis* find_axis(const Block& block, const std::string& name) {
  const auto found = std::find_if(block.axes.begin(), block.axes.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == block.axes.end() ? nullptr : &*found;
}

class Reader {
 public:
  Reader(const Program& program, Unit& unit, std::vector<Access>& out) : program_(program), unit_(unit), out_(out) {}

  void store(const Store& store) {
    for (const ExprPtr& index : store.indices) read(index);
    read(store.value);
    out_.push_back({buffer(store.buffer), &store.indices, true, true, {}});
  }

 private:
  const Buffer* buffer(const std::string& name) const {
    const Buffer* const found = find_buffer(program_, name);
    if (found == nullptr)
      throw_failure(NW_INVALID, -1, "block '%s' uses the buffer '%s', which does not exist", unit_.name().c_str(), name.c_str());
    return found;
  }

  bool is_target(const Expr& load) const {
    const std::vector<Store>& body = unit_.block().body;
    return std::any_of(body.begin(), body.end(),
                       [&](const Store& store) { return store.buffer == load.name && same(store.indices, load.operands); });
  }

  void read(const ExprPtr& expr) {
    if (expr->kind == Expr::Kind::name) return check_name(expr->name);
    if (expr->kind == Expr::Kind::load) out_.push_back({buffer(expr->name), &expr->operands, false, is_target(*expr), guards_});
    const bool is_where = expr->kind == Expr::Kind::call && expr->name == "where";
    for (size_t i = 0; i < expr->operands.size(); ++i) {
      if (is_where && i > 0) guards_.push_back({expr->operands[0], i == 1});
      read(expr->operands[i]);
      if (is_where && i > 0) guards_.pop_back();
    }
  }

  void check_name(const std::string& name) const {
    if (unit_.path.depth_of(name) >= 0)
      throw_failure(NW_INVALID, -1, "the body of block '%s' reads the loop '%s'; a body reads the axes of its block",
                    unit_.name().c_str(), name.c_str());
    const Axis* const axis = find_axis(unit_.block(), name);
    if (&out_ == &unit_.init && axis != nullptr && axis->kind != Axis::Kind::spatial)
      throw_failure(NW_INVALID, -1, "the init of block '%s' reads the axis '%s', which is not spatial", unit_.name().c_str(),
                    name.c_str());
  }

  const Program& program_;
  Unit& unit_;
  std::vector<Access>& out_;
  std::vector<Guard> guards_;
};

void find_feeds(Unit& unit) {
  const size_t depth = unit.path.loops.size();
  unit.outer = static_cast<int>(depth);
  for (size_t d = 0; d < depth; ++d) {
    bool spatial = false, other = false;
    for (const Axis& axis : unit.block().axes) {
      if (mentions(axis.binding, unit.path.loops[d]->name)) (axis.kind == Axis::Kind::spatial ? spatial : other) = true;
    }
    unit.feeds_spatial.push_back(spatial);
    unit.feeds_other.push_back(other);
    if (other) unit.outer = std::min(unit.outer, static_cast<int>(d));
  }
}

// The strides at which an expression divides the loop: c / a of (loop * a + …) // c.
void find_strides(const ExprPtr& expr, const std::string& loop, int64_t divisor, int64_t factor, std::set<int64_t>& out) {
  if (expr == nullptr || !mentions(expr, loop)) return;
  if (expr->kind == Expr::Kind::name) {
    if (divisor > 0 && divisor % factor == 0) out.insert(divisor / factor);
    return;
  }
  if (expr->kind == Expr::Kind::call && expr->operands.size() == 2) {
    const auto right = constant(expr->operands[1]);
    const auto left = constant(expr->operands[0]);
    const bool divides = expr->name == "floor_div" || expr->name == "remainder";
    if (divides && right && *right > 0) {
      find_strides(expr->operands[0], loop, *right, 1, out);
      int64_t whole = divisor;
      if (divisor == 0 || (expr->name == "floor_div" && __builtin_mul_overflow(divisor, *right, &whole))) return;
      return find_strides(expr->operands[0], loop, whole, factor, out);
    }
    if (expr->name == "mul" && ((right && *right > 0) || (left && *left > 0))) {
      int64_t whole = factor;
      if (__builtin_mul_overflow(factor, right ? *right : *left, &whole)) return;
      return find_strides(expr->operands[right ? 0 : 1], loop, divisor, whole, out);
    }
  }
  for (const ExprPtr& operand : expr->operands) find_strides(operand, loop, divisor, factor, out);
}

bool is_call(const ExprPtr& expr, const char* name) { return expr->kind == Expr::Kind::call && expr->name == name; }
bool is_product(const ExprPtr& extent) { return is_call(extent, "mul") && !constant(extent->operands[1]); }

// Is `value`, of the extent high * low, used only as value // low and value % low, and so on for a high that is a product?
bool only_divided(const ExprPtr& expr, const ExprPtr& value, const ExprPtr& extent) {
  if (expr == nullptr) return true;
  if (same(expr, value)) return !is_product(extent);
  if (is_product(extent)) {
    const ExprPtr& low = extent->operands[1];
    if (is_call(expr, "remainder") && same(expr->operands[0], value) && same(expr->operands[1], low)) return true;
    const ExprPtr quotient = floor_div(value, low);
    if (same(expr, quotient)) return !is_product(extent->operands[0]);
    if (is_call(expr, "floor_div") || is_call(expr, "remainder")) {
      if (same(expr->operands[0], quotient)) return only_divided(expr, quotient, extent->operands[0]);
    }
  }
  return std::all_of(expr->operands.begin(), expr->operands.end(),
                     [&](const ExprPtr& e) { return only_divided(e, value, extent); });
}

LoopForm form_of(const Block& block, const For& loop) {
  LoopForm out;
  std::vector<ExprPtr> all{block.predicate};
  for (const Axis& axis : block.axes) all.push_back(axis.binding);
  const auto extent = constant(loop.extent);
  if (!extent) {
    const ExprPtr name = make_name(loop.name);
    out.is_product = is_product(loop.extent) && std::all_of(all.begin(), all.end(), [&](const ExprPtr& expr) {
                       return only_divided(expr, name, loop.extent);
                     });
    return out;
  }
  std::set<int64_t> strides;
  for (const ExprPtr& expr : all) find_strides(expr, loop.name, 0, 1, strides);
  int64_t before = 1;
  for (const int64_t stride : strides) {
    if (stride <= before || stride >= *extent || stride % before != 0 || *extent % stride != 0) continue;
    out.strides.push_back(stride);
    before = stride;
  }
  return out;
}

void require_init(const Unit& unit) {
  const Block& block = unit.block();
  for (const Store& init : block.init) {
    const bool known = std::any_of(block.body.begin(), block.body.end(), [&](const Store& store) {
      return store.buffer == init.buffer && same(store.indices, init.indices);
    });
    if (!known)
      throw_failure(NW_INVALID, -1, "the init of block '%s' writes %s, which no store of its body does", unit.name().c_str(),
                    print(init).c_str());
  }
  for (const Access& access : unit.init) {
    const auto is_written = [&](const Access& other) { return other.is_write && other.buffer == access.buffer; };
    if (!access.is_write && std::any_of(unit.init.begin(), unit.init.end(), is_written))
      throw_failure(NW_INVALID, -1, "the init of block '%s' reads the buffer '%s', which it writes", unit.name().c_str(),
                    access.buffer->name.c_str());
  }
}

bool is_initialised(const Block& block, const std::string& buffer) {
  return std::any_of(block.init.begin(), block.init.end(), [&](const Store& store) { return store.buffer == buffer; });
}

Unit make_unit(const Program& program, const Path& path) {
  Unit unit;
  unit.path = path;
  const Block& block = *path.block;
  for (const Store& store : block.body) Reader(program, unit, unit.body).store(store);
  for (const Store& store : block.init) Reader(program, unit, unit.init).store(store);
  if (!block.init.empty()) require_init(unit);
  find_feeds(unit);
  for (const ForPtr& loop : path.loops) unit.forms.push_back(form_of(block, *loop));
  for (const Access& write : unit.body) {
    if (!write.is_write) continue;
    unit.writes_tensor = unit.writes_tensor || write.buffer->role != Buffer::Role::allocated;
    for (const Access& read : unit.body) {
      if (!read.is_write && read.buffer == write.buffer && !(read.is_target && is_initialised(block, read.buffer->name)))
        unit.reads_its_writes = true;
    }
  }
  return unit;
}

}  // namespace

std::vector<Unit> units(const Program& program) {
  std::vector<Unit> out;
  for (const Path& path : paths(program)) out.push_back(make_unit(program, path));
  return out;
}

std::vector<Part> parts(const std::vector<Unit>& units) {
  std::vector<Part> out;
  for (const Unit& unit : units) {
    if (!unit.init.empty()) out.push_back({&unit, true});
    out.push_back({&unit, false});
  }
  return out;
}

namespace {

// value = high * low + rest, which is not linear: the value is an unknown that is only taken apart.
PlacedLoop place_product(Affine& affine, const ExprPtr& extent, const std::string& name, const Values& values, bool is_bounded) {
  const auto single = [&](const ExprPtr& end, const std::string& called) {
    PlacedLoop out;
    out.value = is_bounded ? affine.variable(called, end, values) : affine.system.unknown(called);
    out.keys = {out.value};
    out.digits = {{out.value, affine.index(end, values)}};
    return out;
  };
  if (!is_product(extent)) return single(extent, name);
  PlacedLoop high = place_product(affine, extent->operands[0], name, values, is_bounded);
  const PlacedLoop low = single(extent->operands[1], name + "'");
  const Linear whole = affine.system.unknown("");
  affine.define_quotient(whole, low.digits[0].second, high.value, low.value);
  high.value = whole;
  high.keys.push_back(low.value);
  high.digits.push_back(low.digits[0]);
  return high;
}

}  // namespace

PlacedLoop place_loop(Affine& affine, const For& loop, const LoopForm& form, const std::string& name, const Values& values,
                      bool is_bounded) {
  if (form.is_product) return place_product(affine, loop.extent, name, values, is_bounded);
  PlacedLoop out;
  const auto extent = constant(loop.extent);
  if (!extent || *extent < 1) {
    const Linear end = affine.index(loop.extent, values);
    out.value = is_bounded ? affine.variable(name, loop.extent, values) : affine.system.unknown(name);
    out.digits = {{out.value, end}};
  } else {
    int64_t stride = 1;
    for (size_t i = 0; i <= form.strides.size(); ++i) {
      const int64_t next = i < form.strides.size() ? form.strides[i] : *extent;
      out.digits.emplace_back(affine.system.digit(name, next / stride), number(next / stride));
      out.value = out.value + out.digits.back().first * stride;
      stride = next;
    }
  }
  out.keys = {out.value};
  return out;
}

size_t key_count(const Unit& unit, int depth) {
  size_t out = 0;
  for (int d = 0; d < depth; ++d) {
    ++out;
    if (!unit.forms[d].is_product) continue;
    for (ExprPtr extent = unit.path.loops[d]->extent; is_product(extent); extent = extent->operands[0]) ++out;
  }
  return out;
}

std::vector<Linear> Run::all_keys(int depth) const {
  std::vector<Linear> out;
  for (int d = 0; d < depth; ++d) out.insert(out.end(), keys[d].begin(), keys[d].end());
  return out;
}

Run run(Affine& affine, const Part& part, const std::string& prefix, const Run* with, int shared) {
  Run out;
  const Unit& unit = *part.unit;
  for (int d = 0; d < static_cast<int>(unit.path.loops.size()); ++d) {
    const For& loop = *unit.path.loops[d];
    const bool matters = d < part.depth() || unit.feeds_spatial[d];
    if (d < shared) {
      out.loops.push_back(with->loops[d]);
      out.keys.push_back(with->keys[d]);
    } else if (matters) {
      PlacedLoop placed = place_loop(affine, loop, unit.forms[d], prefix + loop.name, out.values, true);
      out.loops.push_back(std::move(placed.value));
      out.keys.push_back(std::move(placed.keys));
    } else {
      out.loops.push_back(affine.system.unknown(""));
      out.keys.push_back({out.loops.back()});
    }
    out.values.set(loop.name, out.loops.back());
  }
  if (!part.is_init) affine.assume(unit.block().predicate, true, out.values);
  std::vector<std::pair<std::string_view, Linear>> axes;
  for (const Axis& axis : unit.block().axes) {
    if (part.is_init && axis.kind != Axis::Kind::spatial) continue;
    axes.emplace_back(axis.name, affine.index(axis.binding, out.values));
    if (!part.is_init) continue;
    affine.system.not_negative(axes.back().second);
    affine.system.less(axes.back().second, affine.index(axis.extent, out.values));
  }
  for (auto& [name, value] : axes) out.values.set(name, std::move(value));
  return out;
}

std::vector<Linear> element(Affine& affine, const Access& access, const Run& run) {
  for (const Guard& guard : access.guards) affine.assume(guard.condition, guard.holds, run.values);
  std::vector<Linear> out;
  out.reserve(access.indices->size());
  for (const ExprPtr& index : *access.indices) out.push_back(affine.index(index, run.values));
  return out;
}

Run free_run(Affine& affine, const Unit& unit, bool only_spatial) {
  Run out;
  for (const Axis& axis : unit.block().axes)
    if (!only_spatial || axis.kind == Axis::Kind::spatial)
      out.values.set(axis.name, affine.variable(axis.name, axis.extent, out.values));
  return out;
}

}  // namespace narrows::program
