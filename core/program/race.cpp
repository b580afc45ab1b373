// SPDX-License-Identifier: Apache-2.0
// race.cpp -- see race.h.
#include "core/program/race.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/shape_of_loops.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

const char* kind_of(const For& loop) {
  switch (loop.kind) {
    case For::Kind::parallel: return "parallel";
    case For::Kind::vectorize: return "vectorized";
    default: return "bound";
  }
}

bool runs_at_once(const For& loop) {
  return loop.kind == For::Kind::parallel || loop.kind == For::Kind::vectorize || loop.kind == For::Kind::bind;
}

bool is_under(const Unit& unit, const ForPtr& loop, int depth) {
  return static_cast<int>(unit.path.loops.size()) > depth && unit.path.loops[depth] == loop;
}

bool is_thread(const For& loop) { return loop.kind == For::Kind::bind && loop.thread.rfind("thread.", 0) == 0; }

bool writes(const std::vector<Access>& accesses, const std::string& buffer) {
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access& it) { return it.is_write && it.buffer->name == buffer; });
}

bool touches(const std::vector<Access>& accesses, const Buffer& buffer) {
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) { return access.buffer->name == buffer.name; });
}

}  // namespace

void Races::check() const {
  std::set<const For*> seen;
  for (const Unit& unit : units_) {
    for (int depth = 0; depth < static_cast<int>(unit.path.loops.size()); ++depth) {
      const ForPtr& loop = unit.path.loops[depth];
      if (!seen.insert(loop.get()).second) continue;
      require_shape(*loop);
      if (runs_at_once(*loop)) check_loop(unit, depth);
      if (loop->kind == For::Kind::pipeline) check_stages(unit, depth);
    }
  }
  require_threads(current_);
}

void Races::check_scopes() const {
  for (const Buffer& buffer : current_.allocations) {
    if (buffer.scope != Buffer::Scope::global) check_nest(buffer);
    if (buffer.scope != Buffer::Scope::global) check_shared(buffer);
    if (buffer.scope == Buffer::Scope::local) check_local(buffer);
  }
}

namespace {

// The accesses, those of the same elements as one: a write if one of them is.
std::vector<Access> distinct(const std::vector<Access>& accesses) {
  std::vector<Access> out;
  for (const Access& access : accesses) {
    const auto known = std::find_if(out.begin(), out.end(), [&](const Access& other) { return same_elements(access, other); });
    if (known == out.end()) {
      out.push_back(access);
    } else {
      known->is_write = known->is_write || access.is_write;
    }
  }
  return out;
}

}  // namespace

void Races::check_loop(const Unit& unit, int depth) const {
  const ForPtr& loop = unit.path.loops[depth];
  const std::vector<Part> all = parts(units_);
  for (const Part& first : all) {
    for (const Part& second : all) {
      if (!is_under(*first.unit, loop, depth) || !is_under(*second.unit, loop, depth)) continue;
      if (first.depth() <= depth || second.depth() <= depth) continue;  // an init that runs before the loop
      const Pair pair(first, second);
      const Basis basis(pair, depth);
      const std::string subject = "race " + first.unit->name() + (first.is_init ? " init " : " ") + second.unit->name() +
                                  (second.is_init ? " init " : " ") + loop->name;
      if (proven_.knows(subject, basis)) continue;
      bool meets = false;
      for (const Access& a : distinct(first.accesses()))
        for (const Access& b : distinct(second.accesses()))
          if (a.buffer == b.buffer && (a.is_write || b.is_write)) meets = check_pair(unit, depth, pair, a, b) || meets;
      if (!meets) proven_.add(subject, basis);
    }
  }
}

bool Races::check_pair(const Unit& unit, int depth, const Pair& pair, const Access& a, const Access& b) const {
  return explore([&](Choices& choices) {
    Affine affine(current_, choices);
    Runs runs;
    if (!place_apart(affine, pair, runs, depth, "a:", "b:")) return false;
    const std::vector<Linear> target = element(affine, a, runs.a);
    equate(affine, target, element(affine, b, runs.b));
    if (affine.system.is_empty()) return false;
    const std::string why = shared_why(unit, depth, *a.buffer);
    if (why.empty()) return true;
    const For& loop = *unit.path.loops[depth];
    const auto point = affine.system.point(unknowns_of(runs.a.loops)).value();
    throw_failure(NW_INVALID, -1, "loop '%s' is %s, but %s%s %s %s, and %s%s %s it%s%s", loop.name.c_str(), kind_of(loop),
                  at(tell_loops(pair.a, runs.a, point)).c_str(), pair.a.unit->name().c_str(), a.is_write ? "writes" : "reads",
                  tell_element(a, target, point).c_str(), at(tell_loops(pair.b, runs.b, point)).c_str(),
                  pair.b.unit->name().c_str(), b.is_write ? "writes" : "reads", tell_sizes(current_, affine.system, point).c_str(),
                  why == "-" ? "" : ("; " + why).c_str());
  });
}

namespace {

// The block of a statement that does nothing but copy: loops around one store of a load. NULL: it does more.
const Block* copy_in(const Stmt& stmt) {
  const Stmt* at = &stmt;
  while (const auto* const loop = std::get_if<ForPtr>(at)) {
    if ((*loop)->body.size() != 1) return nullptr;
    at = &(*loop)->body[0];
  }
  const Block& block = *std::get<BlockPtr>(*at);
  const bool is_spatial =
      std::all_of(block.axes.begin(), block.axes.end(), [](const Axis& axis) { return axis.kind == Axis::Kind::spatial; });
  const bool is_copy = is_spatial && block.init.empty() && block.body.size() == 1 && block.body[0].value->kind == Expr::Kind::load;
  return is_copy ? &block : nullptr;
}

}  // namespace

// The copies in front run up to stages - 1 iterations before the rest. So nothing in the loop writes what they read, and each
// iteration has the buffers that they write for itself.
void Races::check_stages(const Unit& unit, int depth) const {
  const ForPtr& loop = unit.path.loops[depth];
  std::set<std::string> copied;
  size_t count = 0;
  for (; count < loop->body.size(); ++count) {
    const Block* const copy = copy_in(loop->body[count]);
    if (copy == nullptr || find_buffer(current_, copy->body[0].buffer)->role != Buffer::Role::allocated) break;
    bool goes_on = false;  // with what a copy before has made: that is a use of it
    for_each_load(*copy, [&](const Expr& load) { goes_on = goes_on || copied.count(load.name) > 0; });
    if (goes_on) break;
    copied.insert(copy->body[0].buffer);
  }
  if (count == 0 || count == loop->body.size())
    throw_failure(NW_INVALID, -1, "loop '%s' is pipelined, but %s; expected copies into allocated buffers, and then what uses them",
                  loop->name.c_str(),
                  count == 0 ? "its first statement is no copy into an allocated buffer" : "all of its statements are copies");
  for (size_t i = 0; i < count; ++i) {
    const Block& copy = *copy_in(loop->body[i]);
    const std::string& target = copy.body[0].buffer;
    const std::string why = shared_why(unit, depth, *find_buffer(current_, target));
    if (!why.empty())
      throw_failure(NW_INVALID, -1, "loop '%s' is pipelined, but '%s' cannot be one for each iteration: %s", loop->name.c_str(),
                    target.c_str(), why.c_str());
    for (const Unit& other : units_) {
      if (!is_under(other, loop, depth)) continue;
      for_each_load(copy, [&](const Expr& load) {
        if (writes(other.body, load.name) || writes(other.init, load.name))
          throw_failure(NW_INVALID, -1, "loop '%s' is pipelined, but block '%s' copies '%s', which block '%s' of the loop writes",
                        loop->name.c_str(), copy.name.c_str(), load.name.c_str(), other.name().c_str());
      });
    }
  }
}

const Unit* Races::here(const Unit& of_reference) const {
  const auto found =
      std::find_if(units_.begin(), units_.end(), [&](const Unit& unit) { return unit.name() == of_reference.name(); });
  return found == units_.end() ? nullptr : &*found;
}

std::string Races::shared_why(const Unit& unit, int depth, const Buffer& buffer) const {
  const ForPtr& loop = unit.path.loops[depth];
  if (buffer.role != Buffer::Role::allocated) return "-";
  if (buffer.scope == Buffer::Scope::shared && is_thread(*loop)) return "'" + buffer.name + "' is shared by all threads";
  for (const Unit& user : units_) {
    const bool by_init = touches(user.init, buffer);
    if (!by_init && !touches(user.body, buffer)) continue;
    if (!is_under(user, loop, depth))
      return "'" + buffer.name + "' is used by block '" + user.name() + "', too, which is not within the loop";
    if (by_init && user.outer <= depth) return "the init of block '" + user.name() + "' runs before the loop";
  }
  for (const Dependence& dependence : dependences_) {
    const Access& from = dependence.access_of(0);
    if (from.buffer->name != buffer.name || !from.is_write || dependence.access_of(1).is_write) continue;
    if (coverage_.at(dependence.first.unit->name()) == Coverage::once && crosses(dependence, depth))
      return "a value of '" + buffer.name + "' is written in one iteration and read in another";
  }
  return "";
}

// Does a value go from one iteration of the outermost loops, up to this one, into another?
bool Races::crosses(const Dependence& dependence, int depth) const {
  const Pair pair({here(*dependence.first.unit), dependence.first.is_init},
                  {here(*dependence.second.unit), dependence.second.is_init});
  return explore([&](Choices& choices) {
    Affine affine(reference_, choices);
    Runs now, before;
    const int differs = affine.pick(depth + 1);
    const bool is_forward = affine.pick(2) == 0;
    const Pair ordered = is_forward ? pair : Pair(pair.b, pair.a);
    if (!place_apart(affine, ordered, now, differs, "a:", "b:")) return false;
    if (!is_forward) std::swap(now.a, now.b);
    if (!dependence.place(affine, before)) return false;
    if (dependence.is_ordered_by_loops()) {
      equate_axes(affine, pair.a, now.a, before.a);
      equate_axes(affine, pair.b, now.b, before.b);
    }
    equate(affine, element(affine, dependence.access_of(0), now.a), element(affine, dependence.access_of(1), now.b));
    return !affine.system.is_empty();
  });
}

// A nest with bound loops is one launch, and what a block or a thread has does not outlive it.
void Races::check_nest(const Buffer& buffer) const {
  const Unit* first = nullptr;
  bool is_bound = false;
  for (const Unit& unit : units_) {
    if (!touches(unit.body, buffer) && !touches(unit.init, buffer)) continue;
    is_bound = is_bound || std::any_of(unit.path.loops.begin(), unit.path.loops.end(),
                                       [](const ForPtr& loop) { return loop->kind == For::Kind::bind; });
    if (first == nullptr) first = &unit;
    if (is_bound && unit.path.at[0] != first->path.at[0])
      throw_failure(NW_INVALID, -1, "'%s' is %s, but blocks '%s' and '%s' use it in two nests", buffer.name.c_str(),
                    buffer.scope == Buffer::Scope::local ? "local" : "shared", first->name().c_str(), unit.name().c_str());
  }
}

// Shared and local memory is one block's: no value leaves an iteration of a loop that is bound to blocks.
void Races::check_shared(const Buffer& buffer) const {
  for (const Unit& unit : units_) {
    if (!touches(unit.body, buffer) && !touches(unit.init, buffer)) continue;
    for (int depth = 0; depth < static_cast<int>(unit.path.loops.size()); ++depth) {
      const For& loop = *unit.path.loops[depth];
      if (loop.kind != For::Kind::bind || is_thread(loop)) continue;
      const std::string why = shared_why(unit, depth, buffer);
      if (!why.empty())
        throw_failure(NW_INVALID, -1, "'%s' is %s and cannot be one for each iteration of the loop '%s', which is bound to %s: %s",
                      buffer.name.c_str(), buffer.scope == Buffer::Scope::local ? "local" : "shared", loop.name.c_str(),
                      loop.thread.c_str(), why.c_str());
    }
  }
}

namespace {

int depth_of_thread(const Part& part, const std::string& thread) {
  for (int d = 0; d < part.depth(); ++d)
    if (part.unit->path.loops[d]->thread == thread) return d;
  return -1;
}

}  // namespace

// Local memory is one thread's: an element belongs to the thread that runs all its accesses.
void Races::check_local(const Buffer& buffer) const {
  const std::vector<Part> all = parts(units_);
  for (const char* const thread : {"thread.x", "thread.y", "thread.z"}) {
    const auto is_bound = [&](const Part& part) { return touches(part.accesses(), buffer) && depth_of_thread(part, thread) >= 0; };
    if (std::none_of(all.begin(), all.end(), is_bound)) continue;
    for (const Part& first : all) {
      for (const Part& second : all) {
        for (const Access& a : first.accesses())
          for (const Access& b : second.accesses())
            if (a.buffer->name == buffer.name && b.buffer->name == buffer.name)
              check_owner(buffer, Pair(first, second), a, b, thread);
      }
    }
  }
}

void Races::check_owner(const Buffer& buffer, const Pair& pair, const Access& a, const Access& b, const std::string& thread) const {
  const int depth_a = depth_of_thread(pair.a, thread);
  const int depth_b = depth_of_thread(pair.b, thread);
  for (const auto& [part, depth] : {std::pair{&pair.a, depth_a}, std::pair{&pair.b, depth_b}}) {
    if (depth < 0)
      throw_failure(NW_INVALID, -1, "'%s' is local, but block '%s' uses it outside of the loops that are bound to %s",
                    buffer.name.c_str(), part->unit->name().c_str(), thread.c_str());
  }
  int blocks = 0;  // the loops around both up to the last that is bound to blocks: each iteration of them has its own buffer
  for (int d = 0; d < pair.common; ++d) {
    const For& loop = *pair.a.unit->path.loops[d];
    if (loop.kind == For::Kind::bind && !is_thread(loop)) blocks = d + 1;
  }
  explore([&](Choices& choices) {
    Affine affine(current_, choices);
    const Run one = run(affine, pair.a, "a:");
    const Run other = run(affine, pair.b, "b:", &one, blocks);
    order_loops(affine, one.keys[depth_a], other.keys[depth_b]);
    const std::vector<Linear> target = element(affine, a, one);
    equate(affine, target, element(affine, b, other));
    if (affine.system.is_empty()) return false;
    const auto point = affine.system.point(unknowns_of(one.loops)).value();
    throw_failure(NW_INVALID, -1, "'%s' is local, but %s belongs to two threads: %s%s uses it, and %s%s%s", buffer.name.c_str(),
                  tell_element(a, target, point).c_str(), at(tell_loops(pair.a, one, point)).c_str(), pair.a.unit->name().c_str(),
                  at(tell_loops(pair.b, other, point)).c_str(), pair.b.unit->name().c_str(),
                  tell_sizes(current_, affine.system, point).c_str());
  });
}

}  // namespace narrows::program
