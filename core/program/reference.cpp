// SPDX-License-Identifier: Apache-2.0
// reference.cpp -- see reference.h.
#include "core/program/reference.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/program/cover.h"
#include "core/program/expr.h"
#include "core/program/text.h"

namespace narrows::program {
namespace {

const Axis* plain_axis(const Block& block, const ExprPtr& index) {
  if (index->kind != Expr::Kind::name) return nullptr;
  const auto found = std::find_if(block.axes.begin(), block.axes.end(), [&](const Axis& axis) { return axis.name == index->name; });
  return found == block.axes.end() ? nullptr : &*found;
}

bool always_runs(const Axis& axis) {
  const auto extent = constant(axis.extent);
  return extent && *extent > 0;
}

// Does the write reach each element of its buffer, as can be seen from its subscripts: axes, each once, of the buffer's extents?
bool fills(const Part& part, const Access& write) {
  const Block& block = part.unit->block();
  std::set<std::string> seen;
  for (size_t i = 0; i < write.indices->size(); ++i) {
    const Axis* const axis = plain_axis(block, (*write.indices)[i]);
    if (axis == nullptr || !same(axis->extent, write.buffer->shape[i]) || !seen.insert(axis->name).second) return false;
  }
  return std::all_of(block.axes.begin(), block.axes.end(), [&](const Axis& axis) {
    return seen.count(axis.name) > 0 || always_runs(axis) || (part.is_init && axis.kind != Axis::Kind::spatial);
  });
}

// Has the write reached each element that is read, within the same iteration of the loops that both share? So it is if it fills the
// buffer, and each shared loop is an axis of it whose subscript the reader has, too: then the iteration runs all of that axis's
// point.
bool fills_ahead(const Pair& pair, const Access& write, const Access& read) {
  if (!pair.a_first || !fills(pair.a, write)) return false;
  const Block &writer = pair.a.unit->block(), &reader = pair.b.unit->block();
  std::set<std::string> followed;
  for (size_t i = 0; i < write.indices->size(); ++i) {
    const Axis& axis = *plain_axis(writer, (*write.indices)[i]);
    const Axis* const other = plain_axis(reader, (*read.indices)[i]);
    if (axis.binding->kind == Expr::Kind::name && other != nullptr && same(axis.binding, other->binding))
      followed.insert(axis.name);
  }
  const std::vector<ForPtr>& loops = pair.a.unit->path.loops;
  return std::all_of(loops.begin(), loops.begin() + pair.common, [&](const ForPtr& loop) {
    int moving = 0, following = 0;  // axes
    for (const Axis& axis : writer.axes) {
      if (!mentions(axis.binding, loop->name)) continue;
      ++moving;
      following += static_cast<int>(followed.count(axis.name));
    }
    return moving > 0 && moving == following;
  });
}

bool has_carried(const Unit& unit) {
  const std::vector<Axis>& axes = unit.block().axes;
  return std::any_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.kind == Axis::Kind::carried; });
}

std::string show(const Access& access, const std::vector<Linear>& indices, const std::vector<int64_t>& point) {
  return tell_element(access, indices, point);
}

std::vector<Linear> with_sizes(Affine& affine, const Program& program, std::vector<Linear> shown) {
  for (const std::string& name : size_names(program)) shown.push_back(affine.size(name));
  return shown;
}

std::string tell_axes(const Unit& unit, const Run& run, const std::vector<int64_t>& point) {
  std::string out;
  for (const Axis& axis : unit.block().axes) {
    const Linear* const value = run.values.find(axis.name);
    if (value != nullptr) out += (out.empty() ? "" : " ") + axis.name + "=" + std::to_string(value_of(*value, point));
  }
  return out;
}

}  // namespace

bool Dependence::place(Affine& affine, Runs& runs) const {
  const Pair pair(first, second);
  return pair.common == 0 || place_before(affine, pair, runs, "r:", "s:");
}

bool may_conflict(const Part& first, const Access& a, const Part& second, const Access& b) {
  if (a.buffer != b.buffer || !(a.is_write || b.is_write)) return false;
  if (first.unit != second.unit) return true;
  if (first.is_init && second.is_init) return false;  // of two spatial points
  if (first.is_init != second.is_init) return !(a.is_target && b.is_target);
  return has_carried(*first.unit);  // spatial points touch nothing of each other, and a reduction's order is free
}

void Reference::check() const {
  for (const Unit& unit : units_) {
    require_bounds(unit);
    require_spatial(unit);
    if (cover(program_, unit) != Coverage::once)
      throw_failure(NW_INVALID, -1, "block '%s' does not run exactly once for each point of its axes", unit.name().c_str());
  }
  const std::vector<Part> all = parts(units_);
  for (const Part& part : all) {
    for (const Part& other : all)
      if (part.is_init && other.unit != part.unit) require_quiet_init(part, other);
    for (const Access& access : part.accesses()) require_written(part, access);
  }
  for (const Buffer& tensor : program_.tensors)
    if (tensor.role == Buffer::Role::output) require_complete(tensor);
}

void Reference::require_bounds(const Unit& unit) const {
  for (const std::vector<Access>* list : {&unit.init, &unit.body}) {
    for (const Access& access : *list) {
      for (size_t dim = 0; dim < access.indices->size(); ++dim) {
        const Axis* const axis = plain_axis(unit.block(), (*access.indices)[dim]);
        if (axis == nullptr || !same(axis->extent, access.buffer->shape[dim]))
          require_bounds(unit, access, dim, list == &unit.init);
      }
    }
  }
}

void Reference::require_bounds(const Unit& unit, const Access& access, size_t dim, bool is_init) const {
  explore([&](Choices& choices) {
    Affine affine(program_, choices);
    const Run one = free_run(affine, unit, is_init);
    const std::vector<Linear> indices = element(affine, access, one);
    const Linear end = affine.index(access.buffer->shape[dim], one.values);
    if (affine.pick(2) == 0) {
      affine.system.less(indices[dim], number(0));
    } else {
      affine.system.not_negative(indices[dim] - end);
    }
    if (affine.system.is_empty()) return false;
    const auto point = affine.system.point().value();
    const std::string sizes = tell_sizes(program_, affine.system, point);
    throw_failure(NW_INVALID, -1, "%sblock '%s' %s %s, out of bounds: dimension %zu of '%s' is %lld%s",
                  at(tell_axes(unit, one, point)).c_str(), unit.name().c_str(), access.is_write ? "writes" : "reads",
                  show(access, indices, point).c_str(), dim, access.buffer->name.c_str(),
                  static_cast<long long>(value_of(end, point)), sizes.c_str());
  });
}

// Points of a block that differ in a spatial axis, and not in a carried one, touch nothing of each other.
void Reference::require_spatial(const Unit& unit) const {
  std::vector<const Axis*> spatial;
  for (const Axis& axis : unit.block().axes)
    if (axis.kind == Axis::Kind::spatial) spatial.push_back(&axis);
  const auto query = [&](const Access& a, const Access& b) {
    explore([&](Choices& choices) {
      Affine affine(program_, choices);
      const Axis& differs = *spatial[affine.pick(static_cast<int>(spatial.size()))];
      const Run one = free_run(affine, unit);
      const Run other = free_run(affine, unit);
      affine.system.less(*one.values.find(differs.name), *other.values.find(differs.name));
      for (const Axis& axis : unit.block().axes)
        if (axis.kind == Axis::Kind::carried) affine.system.equal(*one.values.find(axis.name), *other.values.find(axis.name));
      const std::vector<Linear> target = element(affine, a, one);
      equate(affine, target, element(affine, b, other));
      if (affine.system.is_empty()) return false;
      const auto point = affine.system.point().value();
      throw_failure(
          NW_INVALID, -1,
          "axis '%s' of block '%s' is spatial, but at %s and at %s it touches one element, %s%s; a C axis keeps its order",
          differs.name.c_str(), unit.name().c_str(), tell_axes(unit, one, point).c_str(), tell_axes(unit, other, point).c_str(),
          show(a, target, point).c_str(), tell_sizes(program_, affine.system, point).c_str());
    });
  };
  for (const Access& a : unit.body) {
    std::set<std::string> seen;
    for (const ExprPtr& index : *a.indices)
      if (const Axis* const axis = plain_axis(unit.block(), index)) seen.insert(axis->name);
    const bool keeps_apart =
        std::all_of(spatial.begin(), spatial.end(), [&](const Axis* axis) { return seen.count(axis->name) > 0; });
    for (const Access& b : unit.body) {
      if (a.buffer != b.buffer || !(a.is_write || b.is_write) || spatial.empty()) continue;
      if (keeps_apart && same(*a.indices, *b.indices)) continue;
      query(a, b);
    }
  }
}

// What an init sets belongs to its block alone until the reduction is complete.
void Reference::require_quiet_init(const Part& init, const Part& other) const {
  const int outer = init.unit->outer;
  if (common_loops(init.unit->path, other.unit->path) <= outer || other.depth() <= outer) return;
  for (const Access& a : init.accesses()) {
    for (const Access& b : other.accesses()) {
      if (!may_conflict(init, a, other, b)) continue;
      explore([&](Choices& choices) {
        Affine affine(program_, choices);
        const Run one = run(affine, init, "a:");
        const Run two = run(affine, other, "b:", &one, outer);
        const std::vector<Linear> target = element(affine, a, one);
        equate(affine, target, element(affine, b, two));
        if (affine.system.is_empty()) return false;
        const auto point = affine.system.point(unknowns_of(two.loops)).value();
        throw_failure(NW_INVALID, -1, "%sblock '%s' %s %s within the reduction of block '%s', whose init %s it",
                      at(tell_loops(other, two, point)).c_str(), other.unit->name().c_str(), b.is_write ? "writes" : "reads",
                      show(a, target, point).c_str(), init.unit->name().c_str(), a.is_write ? "sets" : "reads");
      });
    }
  }
}

void Reference::require_written(const Part& reader, const Access& access) const {
  const Buffer& buffer = *access.buffer;
  if (access.is_write || buffer.role == Buffer::Role::input || buffer.role == Buffer::Role::inout) return;
  const auto sets = [&](const Access& init) { return init.is_write && init.buffer == access.buffer; };
  if (access.is_target && std::any_of(reader.unit->init.begin(), reader.unit->init.end(), sets)) return;
  const std::vector<Part> all = parts(units_);
  const int all_loops = static_cast<int>(reader.unit->path.loops.size());
  const size_t dims = key_count(*reader.unit, all_loops) + buffer.shape.size() + size_names(program_).size();
  Region missing(dims);
  explore([&](Choices& choices) {
    Affine affine(program_, choices);
    const Run one = run(affine, reader, "");
    std::vector<Linear> shown = one.all_keys(all_loops);
    for (const Linear& index : element(affine, access, one)) shown.push_back(index);
    missing.unite(Region(affine.system, with_sizes(affine, program_, std::move(shown))));
    return false;
  });
  for (const Part& writer : all) {
    const Pair pair(writer, reader);
    for (const Access& write : writer.accesses()) {
      if (!write.is_write || write.buffer != access.buffer) continue;
      if (fills_ahead(pair, write, access)) return;
      explore([&](Choices& choices) {
        Affine affine(program_, choices);
        Runs runs;
        if (!place_before(affine, pair, runs, "a:", "b:")) return false;
        std::vector<Linear> shown = runs.b.all_keys(all_loops);
        for (const Linear& index : element(affine, write, runs.a)) shown.push_back(index);
        if (affine.exact) missing = missing.minus(Region(affine.system, with_sizes(affine, program_, std::move(shown))));
        return false;
      });
    }
  }
  const auto point = missing.point();
  if (!point) return;
  std::string loops, element;
  const size_t depth = key_count(*reader.unit, all_loops);
  for (int d = 0; d < all_loops; ++d)
    loops += (d == 0 ? "" : " ") + reader.unit->path.loops[d]->name + "=" + std::to_string((*point)[key_count(*reader.unit, d)]);
  for (size_t d = 0; d < buffer.shape.size(); ++d) element += (d == 0 ? "" : ", ") + std::to_string((*point)[depth + d]);
  throw_failure(NW_INVALID, -1, "%sblock '%s' reads %s[%s], which nothing has written before", at(loops).c_str(),
                reader.unit->name().c_str(), buffer.name.c_str(), element.c_str());
}

void Reference::require_complete(const Buffer& output) const {
  const std::vector<Part> all = parts(units_);
  const size_t dims = output.shape.size() + size_names(program_).size();
  for (const Part& writer : all)
    for (const Access& write : writer.accesses())
      if (write.is_write && write.buffer == &output && fills(writer, write)) return;
  Region missing(dims);
  explore([&](Choices& choices) {
    Affine affine(program_, choices);
    std::vector<Linear> shown;
    shown.reserve(output.shape.size());
    for (const ExprPtr& dim : output.shape) shown.push_back(affine.variable("", dim, {}));
    missing.unite(Region(affine.system, with_sizes(affine, program_, std::move(shown))));
    return false;
  });
  for (const Part& writer : all) {
    for (const Access& write : writer.accesses()) {
      if (!write.is_write || write.buffer != &output) continue;
      explore([&](Choices& choices) {
        Affine affine(program_, choices);
        const Run one = run(affine, writer, "");
        const std::vector<Linear> shown = element(affine, write, one);
        if (affine.exact) missing = missing.minus(Region(affine.system, with_sizes(affine, program_, shown)));
        return false;
      });
    }
  }
  const auto point = missing.point();
  if (!point) return;
  std::string element;
  for (size_t d = 0; d < output.shape.size(); ++d) element += (d == 0 ? "" : ", ") + std::to_string((*point)[d]);
  throw_failure(NW_INVALID, -1, "%s[%s] is never written", output.name.c_str(), element.c_str());
}

bool same_elements(const Access& a, const Access& b) {
  const auto same_guard = [](const Guard& x, const Guard& y) { return x.holds == y.holds && same(x.condition, y.condition); };
  return a.buffer == b.buffer && same(*a.indices, *b.indices) &&
         std::equal(a.guards.begin(), a.guards.end(), b.guards.begin(), b.guards.end(), same_guard);
}

namespace {

constexpr size_t kMaxDependences = 1 << 20;  // about 60 MiB of them

// A dependence of the same elements, a flow if there is one. Those of the same two parts stand from `begin` on.
const Dependence* find_twin(const std::vector<Dependence>& all, size_t begin, const Dependence& wanted) {
  const Dependence* out = nullptr;
  for (size_t i = begin; i < all.size(); ++i) {
    const Dependence& known = all[i];
    const bool is_it =
        same_elements(known.access_of(0), wanted.access_of(0)) && same_elements(known.access_of(1), wanted.access_of(1));
    if (is_it && (out == nullptr || known.is_flow())) out = &known;
  }
  return out;
}

}  // namespace

bool Reference::exists(const Dependence& dependence) const {
  return explore([&](Choices& choices) {
    Affine affine(program_, choices);
    Runs runs;
    if (!place_before(affine, Pair(dependence.first, dependence.second), runs, "a:", "b:")) return false;
    equate(affine, element(affine, dependence.access_of(0), runs.a), element(affine, dependence.access_of(1), runs.b));
    return !affine.system.is_empty();
  });
}

std::vector<Dependence> Reference::dependences() const {
  std::vector<Dependence> out;
  const std::vector<Part> all = parts(units_);
  for (const Part& first : all) {
    for (const Part& second : all) {
      const Pair pair(first, second);
      if (pair.common == 0 && !pair.a_first) continue;
      const size_t begin = out.size();
      if (begin > kMaxDependences) throw Unproven{"its blocks share elements in too many ways"};
      for (size_t a = 0; a < first.accesses().size(); ++a) {
        for (size_t b = 0; b < second.accesses().size(); ++b) {
          if (!may_conflict(first, first.accesses()[a], second, second.accesses()[b])) continue;
          Dependence found{first, second, {a, b}};
          const Dependence* const known = find_twin(out, begin, found);
          if (known != nullptr && !found.is_flow() && !known->is_flow()) continue;
          found.has_twin = known != nullptr && !found.is_flow();
          if (known != nullptr || pair.common == 0 || exists(found)) out.push_back(found);
        }
      }
    }
  }
  const auto is_of_body = [](const Dependence& it) { return !it.first.is_init; };
  std::stable_partition(out.begin(), out.end(), is_of_body);  // what is refused is then told of updates, if it is of both
  return out;
}

}  // namespace narrows::program
