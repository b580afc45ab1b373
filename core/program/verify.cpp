// SPDX-License-Identifier: Apache-2.0
// verify.cpp -- see verify.h. Rule V2: what read a value in the reference reads it still.
#include "core/program/verify.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/program/cover.h"
#include "core/program/expr.h"
#include "core/program/order.h"
#include "core/program/proven.h"
#include "core/program/race.h"
#include "core/program/reference.h"
#include "core/program/unit.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

template <typename Body>
void proving(const char* what, const Body& body) {
  try {
    body();
  } catch (const Unproven& reason) {
    throw_failure(NW_INVALID, -1, "%s could not be proven: %s", what, reason.why.c_str());
  }
}

}  // namespace

// What the reference says and does not change: its units, and the accesses that come one after the other.
struct Verifier::State {
  explicit State(const Program& program) : reference(program), all(units(reference)) {
    for (const Unit& unit : all) by_name[unit.name()] = &unit;
  }
  State(const State&) = delete;

  std::mutex mutex;  // schedules that were copied share a verifier; held while one checks
  Program reference;
  std::vector<Unit> all;
  std::map<std::string, const Unit*> by_name;
  std::vector<Dependence> dependences;
  // Facts of the programs that were checked, in a checked form: a refused one leaves them as true as they are.
  std::map<std::string, Coverage> coverage;
  Proven proven;
};

namespace {

// One check of a scheduled program.
class Check {
 public:
  Check(Verifier::State& state, const Program& current)
      : state_(state), reference_(state.reference), current_(current), units_(units(current)) {}

  void run_all() {
    cover_all();
    for (size_t i = 0; i < state_.dependences.size(); ++i) {
      const Dependence& dependence = state_.dependences[i];
      const std::string what =
          "the order of blocks '" + dependence.first.unit->name() + "' and '" + dependence.second.unit->name() + "'";
      proving(what.c_str(), [&] { keep(dependence, "order " + std::to_string(i)); });
    }
    proving("that concurrent loops share nothing", [&] { races().check(); });
  }

  void require_scopes() {
    cover_all();
    proving("that each scope fits", [&] { races().check_scopes(); });
  }

  std::string home_of(const std::string& name) {
    cover_all();
    const Buffer* const buffer = find_buffer(current_, name);
    if (buffer == nullptr) throw_failure(NW_INVALID, -1, "there is no buffer '%s'", name.c_str());
    const Unit* user = nullptr;
    for (const Unit& unit : units_)
      if (user == nullptr && (stores(unit, name))) user = &unit;
    std::string home;
    for (int depth = 0; user != nullptr && depth < static_cast<int>(user->path.loops.size()); ++depth) {
      if (!races().shared_why(*user, depth, *buffer).empty()) break;
      home = user->path.loops[depth]->name;
    }
    return home;
  }

 private:
  void cover_all() {
    for (const Unit& unit : units_) {
      by_name_[unit.name()] = &unit;
      const Basis basis(unit);
      if (state_.proven.knows("cover " + unit.name(), basis)) continue;
      proving(("coverage of block '" + unit.name() + "'").c_str(), [&] { state_.coverage[unit.name()] = cover(current_, unit); });
      state_.proven.add("cover " + unit.name(), basis);
    }
  }

  Races races() { return Races(reference_, current_, units_, state_.coverage, state_.dependences, state_.proven); }

  static bool stores(const Unit& unit, const std::string& buffer) {
    return std::any_of(unit.body.begin(), unit.body.end(),
                       [&](const Access& it) { return it.is_write && it.buffer->name == buffer; });
  }

  Part here(const Part& part) const {
    const auto found = by_name_.find(part.unit->name());
    if (found == by_name_.end()) throw_failure(NW_FAILED, -1, "block '%s' is missing", part.unit->name().c_str());
    return {found->second, part.is_init};
  }

  void keep(const Dependence& dependence, const std::string& subject) {
    const Pair pair(here(dependence.first), here(dependence.second));
    const bool is_repeated = state_.coverage.at(pair.a.unit->name()) == Coverage::repeated;
    if (dependence.has_twin && !is_repeated) return;
    if (!is_repeated && pair.common == 0 && pair.a_first) return;
    const Basis basis(pair);
    if (state_.proven.knows(subject, basis)) return;
    if (dependence.is_flow() && is_repeated) {
      keep_repeated(dependence, pair);
    } else {
      keep_each(dependence, pair);
    }
    state_.proven.add(subject, basis);
  }

  void keep_each(const Dependence& dependence, const Pair& pair) const {
    explore([&](Choices& choices) {
      Affine affine(reference_, choices);
      Runs now, before;
      if (!place_not_before(affine, pair, now, "a:", "b:")) return false;
      if (!dependence.place(affine, before)) return false;
      if (dependence.is_ordered_by_loops()) {
        equate_axes(affine, pair.a, now.a, before.a);
        equate_axes(affine, pair.b, now.b, before.b);
      }
      const std::vector<Linear> target = element(affine, dependence.access_of(0), now.a);
      equate(affine, target, element(affine, dependence.access_of(1), now.b));
      if (affine.system.is_empty()) return false;
      refuse(dependence, pair, affine, now, target);
    });
  }

  // Of a block that runs several times: one of its runs comes before, in the same iteration of the loops that both share. A run of
  // another iteration writes the same values, and is over or has not begun.
  void keep_repeated(const Dependence& dependence, const Pair& pair) const {
    const Unit& writer = *pair.a.unit;
    const int shared = std::min(common_loops(writer.path, pair.b.unit->path), pair.b.depth());
    const bool is_first = writer.path.at[shared] < pair.b.unit->path.at[shared];
    if (!is_first || shared > writer.outer)
      throw_failure(NW_INVALID, -1, "block '%s' is repeated, and block '%s' reads %s before all of a repetition has run",
                    writer.name().c_str(), pair.b.unit->name().c_str(), dependence.access_of(0).buffer->name.c_str());
    const Part repeated{&writer, !writer.init.empty()};
    const Region missing = wanted(dependence, pair, repeated).minus(given(pair, repeated, shared));
    const auto point = missing.point();
    if (!point) return;
    std::string loops;
    size_t at_key = 0;
    for (size_t d = 0; d < pair.b.unit->path.loops.size(); ++d) {
      loops += (d == 0 ? "" : " ") + pair.b.unit->path.loops[d]->name + "=" + std::to_string((*point)[at_key]);
      at_key = key_count(*pair.b.unit, static_cast<int>(d) + 1);
    }
    throw_failure(NW_INVALID, -1, "%s%s reads what block '%s' has not written there", at(loops).c_str(),
                  pair.b.unit->name().c_str(), writer.name().c_str());
  }

  std::vector<Linear> shown(Affine& affine, const Part& writer, const Run& reader, const Run& instance) const {
    std::vector<Linear> out = reader.all_keys(static_cast<int>(reader.keys.size()));
    for (const Axis& axis : writer.unit->block().axes)
      if (axis.kind == Axis::Kind::spatial) out.push_back(*instance.values.find(axis.name));
    for (const std::string& name : size_names(reference_)) out.push_back(affine.size(name));
    return out;
  }

  size_t dims(const Pair& pair, const Part& writer) const {
    const std::vector<Axis>& axes = writer.unit->block().axes;
    const auto is_spatial = [](const Axis& axis) { return axis.kind == Axis::Kind::spatial; };
    return key_count(*pair.b.unit, static_cast<int>(pair.b.unit->path.loops.size())) +
           std::count_if(axes.begin(), axes.end(), is_spatial) + size_names(reference_).size();
  }

  // Runs of the reader, and the points of the writer whose element they read.
  Region wanted(const Dependence& dependence, const Pair& pair, const Part& writer) const {
    Region out(dims(pair, writer));
    explore([&](Choices& choices) {
      Affine affine(reference_, choices);
      Runs before;
      if (!dependence.place(affine, before)) return false;
      const Run reader = run(affine, pair.b, "b:");
      const Run instance = free_run(affine, *pair.a.unit);
      if (dependence.is_ordered_by_loops()) {
        equate_axes(affine, dependence.first, instance, before.a);
        equate_axes(affine, pair.b, reader, before.b);
      }
      equate(affine, element(affine, dependence.access_of(0), instance), element(affine, dependence.access_of(1), reader));
      out.unite(Region(affine.system, shown(affine, writer, reader, instance)));
      return false;
    });
    return out;
  }

  // Runs of the reader, and the points of the writer that have run before them within the shared loops.
  Region given(const Pair& pair, const Part& writer, int shared) const {
    Region out(dims(pair, writer));
    explore([&](Choices& choices) {
      Affine affine(reference_, choices);
      const Run reader = run(affine, pair.b, "b:");
      affine.exact = true;
      const Run instance = run(affine, writer, "a:", &reader, shared);
      if (!affine.exact) throw Unproven{"what is repeated depends on more than sums of loops and sizes"};
      out.unite(Region(affine.system, shown(affine, writer, reader, instance)));
      return false;
    });
    return out;
  }

  [[noreturn]] void refuse(const Dependence& dependence, const Pair& pair, const Affine& affine, const Runs& now,
                           const std::vector<Linear>& target) const {
    const auto point = affine.system.point(unknowns_of(now.b.loops)).value();
    const Access& a = dependence.access_of(0);
    const Access& b = dependence.access_of(1);
    const std::string what = tell_element(a, target, point);
    const std::string where = at(tell_loops(pair.b, now.b, point));
    const std::string sizes = tell_sizes(reference_, affine.system, point);
    const char* const first = pair.a.unit->name().c_str();
    const char* const second = pair.b.unit->name().c_str();
    const std::string last = tell_last(pair, affine, now, point);
    if (a.is_write && !b.is_write)
      throw_failure(NW_INVALID, -1, "%s%s reads %s, which %s%s%s", where.c_str(), second, what.c_str(),
                    pair.a.is_init ? "the init of " : "", first, (complete(pair, last) + sizes).c_str());
    throw_failure(NW_INVALID, -1, "%s%s%s writes %s before %s %s it%s%s", where.c_str(), pair.b.is_init ? "the init of " : "",
                  second, what.c_str(), first, a.is_write ? "writes" : "reads", last.empty() ? "" : (", at " + last).c_str(),
                  sizes.c_str());
  }

  static std::string complete(const Pair& pair, const std::string& last) {
    if (last.empty()) return pair.a.is_init ? " sets later" : " writes later";
    return " completes only " + std::string(pair.a.is_init ? "at " : "after ") + last;
  }

  // The last run of the first part that touches the element of that run of the second, as far as its loops differ.
  std::string tell_last(const Pair& pair, const Affine& affine, const Runs& now, const std::vector<int64_t>& point) const {
    System system = affine.system;
    for (const Linear& loop : now.b.all_keys(static_cast<int>(now.b.keys.size())))
      system.equal(loop, number(value_of(loop, point)));
    for (size_t i = 0; i < affine.system.names().size(); ++i) {
      const std::vector<std::string> sizes = size_names(reference_);
      if (std::binary_search(sizes.begin(), sizes.end(), system.names()[i]))
        system.equal({{{static_cast<int>(i), 1}}, 0}, number(point[i]));
    }
    std::vector<int> order;
    for (const Linear& loop : now.a.all_keys(static_cast<int>(now.a.keys.size()))) {
      const Linear negated = system.unknown("");
      system.zero(negated + loop);
      order.push_back(negated.terms[0].first);
    }
    const auto found = system.point(order);
    const std::vector<int64_t>& last = found ? *found : point;
    int from = 0;
    const auto same_value = [&](int d) {
      const auto value = [](const std::vector<Linear>& keys, const std::vector<int64_t>& at) {
        std::vector<int64_t> out;
        out.reserve(keys.size());
        for (const Linear& key : keys) out.push_back(value_of(key, at));
        return out;
      };
      return value(now.a.keys[d], last) == value(now.b.keys[d], point);
    };
    while (from < pair.common && same_value(from)) ++from;
    return tell_loops(pair.a, now.a, last, from);
  }

  Verifier::State& state_;
  const Program& reference_;
  const Program& current_;
  std::vector<Unit> units_;
  std::map<std::string, const Unit*> by_name_;
};

}  // namespace

Verifier::Verifier(const Program& reference) : state_(std::make_unique<State>(reference)) {
  const Reference checks(state_->reference, state_->all);
  proving("the program", [&] { checks.check(); });
  proving("the order of the program", [&] { state_->dependences = checks.dependences(); });
}

Verifier::~Verifier() = default;

void Verifier::check(const Program& current) const {
  const std::lock_guard lock(state_->mutex);
  Check(*state_, current).run_all();
}

namespace {

// Does a run of `between` come after one of `earlier` and before one of `later` that reads its value, and touch what moves?
bool disturbs(const Program& program, const Part& earlier, const Part& later, const Part& between, const std::string& buffer,
              const Access& moving, const Access& other) {
  return explore([&](Choices& choices) {
    Affine affine(program, choices);
    Runs first, second;
    if (!place_before(affine, Pair(earlier, between), first, "a:", "w:")) return false;
    if (!place_before(affine, Pair(between, later), second, "w:", "b:")) return false;
    const int depth = static_cast<int>(first.b.keys.size());
    equate(affine, first.b.all_keys(depth), second.a.all_keys(depth));
    std::vector<const Access*> flows;
    for (const Access& access : later.accesses())
      if (access.buffer->name == buffer && !access.is_write) flows.push_back(&access);
    if (flows.empty()) return false;
    const Access& read = *flows[affine.pick(static_cast<int>(flows.size()))];
    for (const Access& write : earlier.accesses())
      if (write.is_write) equate(affine, element(affine, write, first.a), element(affine, read, second.b));
    const bool of_later =
        std::any_of(later.accesses().begin(), later.accesses().end(), [&](const Access& it) { return &it == &moving; });
    equate(affine, element(affine, moving, of_later ? second.b : first.a), element(affine, other, first.b));
    return !affine.system.is_empty();
  });
}

}  // namespace

std::string Verifier::moved(const std::string& earlier, const std::string& later, const std::string& buffer, bool goes_up) const {
  const std::vector<Part> all = parts(state_->all);
  std::string why;
  const auto test = [&](const Part& from, const Part& to) {
    for (const Part& between : all) {
      for (const Access& moving : (goes_up ? to : from).accesses()) {
        for (const Access& other : between.accesses()) {
          if (moving.buffer != other.buffer || !(moving.is_write || other.is_write) || moving.buffer->name == buffer) continue;
          if (why.empty() && disturbs(state_->reference, from, to, between, buffer, moving, other))
            why = format("block '%s' %s '%s' after block '%s' and before block '%s'", between.unit->name().c_str(),
                         other.is_write ? "writes" : "reads", other.buffer->name.c_str(), earlier.c_str(), later.c_str());
        }
      }
    }
  };
  proving("that the value may move", [&] {
    for (const Part& from : all)
      for (const Part& to : all)
        if (from.unit->name() == earlier && to.unit->name() == later) test(from, to);
  });
  return why;
}

std::string Verifier::home_of(const Program& current, const std::string& buffer) const {
  const std::lock_guard lock(state_->mutex);
  return Check(*state_, current).home_of(buffer);
}

void Verifier::require_scopes(const Program& current) const {
  const std::lock_guard lock(state_->mutex);
  Check(*state_, current).require_scopes();
}

void verify(const Program& program) { Verifier(program).check(program); }

}  // namespace narrows::program
