// SPDX-License-Identifier: Apache-2.0
// cover.cpp -- see cover.h.
#include "core/program/cover.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/order.h"

namespace narrows::program {
namespace {

// The usual case without a solver: each loop feeds one axis, an axis is the sum of its loops times strides, each stride is the
// number of iterations within it, and the predicate says no more than that axes stay within their extents.
class Digits {
 public:
  Digits(const Program& program, const Unit& unit) : unit_(unit), affine_(program, choices_) {}

  bool fit() {
    if (!read_predicate(unit_.block().predicate)) return false;
    if (init_may_be_left_out()) return false;
    for (size_t d = 0; d < unit_.path.loops.size(); ++d) {  // without bounds of sizes: what is asked here is asked of sizes
      const For& loop = *unit_.path.loops[d];
      const PlacedLoop placed = place_loop(affine_, loop, unit_.forms[d], loop.name, values_, false);
      for (const auto& [digit, end] : placed.digits) {
        loops_.push_back(digit);
        ends_.push_back(end);
      }
      values_.set(loop.name, placed.value);
    }
    used_.resize(loops_.size(), false);
    for (const Axis& axis : unit_.block().axes)
      if (!fits(axis)) return false;
    if (choices_.has_picked()) return false;
    for (size_t d = 0; d < loops_.size(); ++d)
      if (!used_[d] && !(ends_[d].is_constant() && ends_[d].constant == 1)) return false;
    return true;
  }

 private:
  struct Digit {
    int64_t stride;
    size_t loop;
  };

  // A loop over spatial points and, fused with it, a reduction of some size: without an update it has no iteration, and no init
  // either.
  bool init_may_be_left_out() const {
    for (size_t d = 0; d < unit_.path.loops.size() && !unit_.init.empty(); ++d)
      if (unit_.forms[d].is_product && unit_.feeds_spatial[d] && unit_.feeds_other[d]) return true;
    return false;
  }

  // Each part of the predicate is `binding < extent` of an axis.
  bool read_predicate(const ExprPtr& condition) {
    if (condition == nullptr) return true;
    if (condition->kind != Expr::Kind::call) return false;
    if (condition->name == "logical_and") return read_predicate(condition->operands[0]) && read_predicate(condition->operands[1]);
    if (condition->name != "lt") return false;
    for (const Axis& axis : unit_.block().axes) {
      if (!same(condition->operands[0], axis.binding) || !same(condition->operands[1], axis.extent)) continue;
      guarded_.push_back(&axis);
      return true;
    }
    return false;
  }

  std::optional<std::vector<Digit>> digits(const Linear& binding) {
    std::vector<Digit> out;
    if (binding.constant != 0) return std::nullopt;
    for (const auto& [id, factor] : binding.terms) {
      const auto is_it = [&, id = id](const Linear& loop) { return loop.terms[0].first == id; };
      const auto found = std::find_if(loops_.begin(), loops_.end(), is_it);
      if (found == loops_.end() || factor < 1) return std::nullopt;
      const size_t loop = found - loops_.begin();
      if (used_[loop]) return std::nullopt;
      used_[loop] = true;
      out.push_back({factor, loop});
    }
    std::sort(out.begin(), out.end(), [](const Digit& a, const Digit& b) { return a.stride < b.stride; });
    return out;
  }

  bool fits(const Axis& axis) {
    const auto found = digits(affine_.index(axis.binding, values_));
    if (!found) return false;
    Linear reached = number(1);
    for (const Digit& digit : *found) {
      if (!reached.is_constant() || reached.constant != digit.stride) return false;
      reached = ends_[digit.loop] * digit.stride;
    }
    const Linear end = affine_.index(axis.extent, values_);
    if (reached == end) return true;
    const bool is_guarded = std::find(guarded_.begin(), guarded_.end(), &axis) != guarded_.end();
    return is_guarded && is_at_least(reached, end);
  }

  bool is_at_least(const Linear& reached, const Linear& end) const {
    System system = affine_.system;
    system.less(reached, end);
    return system.is_empty();
  }

  const Unit& unit_;
  Choices choices_;
  Affine affine_;
  Values values_;
  std::vector<Linear> loops_, ends_;  // the digits of the loops
  std::vector<bool> used_;
  std::vector<const Axis*> guarded_;
};

class Cover {
 public:
  Cover(const Program& program, const Unit& unit)
      : program_(program), unit_(unit), part_{&unit, false}, names_(size_names(program)) {}

  Coverage check() const {
    require_domain();
    const bool is_repeated = repeats();
    const std::optional<std::string> missing = missing_point();
    if (!unit_.init.empty()) require_init(!missing);
    if (!unit_.init.empty()) require_whole();
    if (!is_repeated && !missing) return Coverage::once;
    if (missing && (unit_.reads_its_writes || unit_.writes_tensor))
      throw_failure(NW_INVALID, -1, "block '%s' does not run at %s", unit_.name().c_str(), missing->c_str());
    return Coverage::repeated;
  }

 private:
  void require_domain() const {
    for (const Axis& axis : unit_.block().axes) {
      explore([&](Choices& choices) {
        Affine affine(program_, choices);
        const Run one = run(affine, part_, "");
        const Linear value = *one.values.find(axis.name);
        const Linear end = affine.index(axis.extent, one.values);
        if (affine.pick(2) == 0) {
          affine.system.less(value, number(0));
        } else {
          affine.system.not_negative(value - end);
        }
        if (affine.system.is_empty()) return false;
        const auto point = affine.system.point(unknowns_of(one.loops)).value();
        throw_failure(NW_INVALID, -1, "%sblock '%s' has %s = %lld, which is not within 0 <= %s < %lld%s",
                      at(tell_loops(part_, one, point)).c_str(), unit_.name().c_str(), axis.name.c_str(),
                      static_cast<long long>(value_of(value, point)), axis.name.c_str(),
                      static_cast<long long>(value_of(end, point)), tell_sizes(program_, affine.system, point).c_str());
      });
    }
  }

  // Does a point run twice? Refused where that changes values: in a block that reads what it writes, and within one reduction.
  bool repeats() const {
    const Pair pair(part_, part_);
    bool out = false;
    for (int depth = static_cast<int>(unit_.path.loops.size()) - 1; depth >= 0; --depth) {
      out = explore([&](Choices& choices) {
              Affine affine(program_, choices);
              Runs runs;
              if (!place_apart(affine, pair, runs, depth, "a:", "b:")) return false;
              equate_axes(affine, part_, runs.a, runs.b);
              if (affine.system.is_empty()) return false;
              if (unit_.reads_its_writes || depth >= unit_.outer) refuse_twice(affine, runs);
              return true;
            }) ||
            out;
    }
    return out;
  }

  [[noreturn]] void refuse_twice(const Affine& affine, const Runs& runs) const {
    const auto point = affine.system.point(unknowns_of(runs.a.loops)).value();
    throw_failure(NW_INVALID, -1, "block '%s' runs twice at %s: at %s and at %s%s", unit_.name().c_str(),
                  tell_axes(runs.a, point).c_str(), tell_loops(part_, runs.a, point).c_str(),
                  tell_loops(part_, runs.b, point).c_str(), tell_sizes(program_, affine.system, point).c_str());
  }

  std::string tell_axes(const Run& run, const std::vector<int64_t>& point) const {
    std::string out;
    for (const Axis& axis : unit_.block().axes)
      out += (out.empty() ? "" : " ") + axis.name + "=" + std::to_string(value_of(*run.values.find(axis.name), point));
    return out;
  }

  std::vector<Linear> shown_axes(const Run& run, bool only_spatial) const {
    std::vector<Linear> out;
    for (const Axis& axis : unit_.block().axes)
      if (!only_spatial || axis.kind == Axis::Kind::spatial) out.push_back(*run.values.find(axis.name));
    return out;
  }

  // The points that the sizes and some values allow, over all alternatives. `build` gives the values that are shown.
  template <typename Build>
  Region region(size_t dims, bool has_to_be_exact, const Build& build) const {
    Region out(dims);
    explore([&](Choices& choices) {
      Affine affine(program_, choices);
      const std::vector<Linear> shown = build(affine);
      if (has_to_be_exact && !affine.exact) throw Unproven{"it depends on more than sums of loops and sizes"};
      out.unite(Region(affine.system, shown));
      return false;
    });
    return out;
  }

  // Sizes come in front of what is shown, so that two regions speak of the same sizes.
  std::vector<Linear> with_sizes(Affine& affine, std::vector<Linear> shown) const {
    std::vector<Linear> out;
    out.reserve(names_.size() + shown.size());
    for (const std::string& name : names_) out.push_back(affine.size(name));
    out.insert(out.end(), shown.begin(), shown.end());
    return out;
  }
  size_t sizes() const { return names_.size(); }

  // A point of the domain that no iteration reaches.
  std::optional<std::string> missing_point() const {
    const size_t dims = sizes() + unit_.block().axes.size();
    const Region domain =
        region(dims, false, [&](Affine& affine) { return with_sizes(affine, shown_axes(free_run(affine, unit_), false)); });
    const Region reached =
        region(dims, true, [&](Affine& affine) { return with_sizes(affine, shown_axes(run(affine, part_, ""), false)); });
    const auto point = domain.minus(reached).point();
    if (!point) return std::nullopt;
    std::string out;
    for (size_t i = 0; i < unit_.block().axes.size(); ++i)
      out += (i == 0 ? "" : " ") + unit_.block().axes[i].name + "=" + std::to_string((*point)[sizes() + i]);
    return out + tell(*point);
  }

  std::string tell(const std::vector<int64_t>& point) const {
    std::string out;
    for (size_t i = 0; i < names_.size(); ++i) out += (i == 0 ? " (" : ", ") + names_[i] + "=" + std::to_string(point[i]);
    return names_.empty() ? out : out + ")";
  }

  std::vector<Linear> outer_loops(const Run& run) const { return run.all_keys(unit_.outer); }
  size_t outer_keys() const { return key_count(unit_, unit_.outer); }

  // Where one update of a spatial point runs, all of them do, in the same iteration of the loops around the reduction.
  void require_whole() const {
    const size_t dims = sizes() + outer_keys() + unit_.block().axes.size();
    const Region wanted = region(dims, false, [&](Affine& affine) {
      const Run begun = run(affine, part_, "");
      std::vector<Linear> shown = outer_loops(begun);
      for (const Axis& axis : unit_.block().axes) {
        shown.push_back(axis.kind == Axis::Kind::spatial ? *begun.values.find(axis.name)
                                                         : affine.variable(axis.name, axis.extent, begun.values));
      }
      return with_sizes(affine, std::move(shown));
    });
    const Region reached = region(dims, true, [&](Affine& affine) {
      const Run one = run(affine, part_, "");
      std::vector<Linear> shown = outer_loops(one);
      for (const Linear& value : shown_axes(one, false)) shown.push_back(value);
      return with_sizes(affine, std::move(shown));
    });
    if (const auto point = wanted.minus(reached).point())
      throw_failure(NW_INVALID, -1, "block '%s' is repeated, but not as a whole reduction each time%s", unit_.name().c_str(),
                    tell(*point).c_str());
  }

  // The init runs for each spatial point, and where updates run: no more and no less.
  void require_init(bool of_all) const {
    const Part init{&unit_, true};
    const auto pairs = [&](const Part& part) {
      return [&, part](Affine& affine) {
        const Run one = run(affine, part, "");
        std::vector<Linear> shown = outer_loops(one);
        for (const Linear& value : shown_axes(one, true)) shown.push_back(value);
        if (!part.is_init) return with_sizes(affine, std::move(shown));
        for (const Axis& axis : unit_.block().axes)  // without updates there is nothing to compare
          if (axis.kind != Axis::Kind::spatial) affine.variable(axis.name, axis.extent, one.values);
        return with_sizes(affine, std::move(shown));
      };
    };
    const size_t spatial = shown_count();
    const Region inits = region(sizes() + outer_keys() + spatial, true, pairs(init));
    const Region updates = region(sizes() + outer_keys() + spatial, true, pairs(part_));
    if (const auto point = inits.minus(updates).point())
      throw_failure(NW_INVALID, -1, "the init of block '%s' runs where no update does%s", unit_.name().c_str(),
                    tell(*point).c_str());
    if (const auto point = updates.minus(inits).point())
      throw_failure(NW_INVALID, -1, "block '%s' is updated where its init does not run%s", unit_.name().c_str(),
                    tell(*point).c_str());
    if (of_all) require_all_initialised(spatial, init);
  }

  void require_all_initialised(size_t spatial, const Part& init) const {
    const Region domain = region(sizes() + spatial, false, [&](Affine& affine) {
      return with_sizes(affine, shown_axes(free_run(affine, unit_, true), true));
    });
    const Region reached = region(sizes() + spatial, true,
                                  [&](Affine& affine) { return with_sizes(affine, shown_axes(run(affine, init, ""), true)); });
    if (const auto point = domain.minus(reached).point())
      throw_failure(NW_INVALID, -1, "the init of block '%s' does not reach each spatial point%s", unit_.name().c_str(),
                    tell(*point).c_str());
  }

  size_t shown_count() const {
    const std::vector<Axis>& axes = unit_.block().axes;
    return std::count_if(axes.begin(), axes.end(), [](const Axis& axis) { return axis.kind == Axis::Kind::spatial; });
  }

  const Program& program_;
  const Unit& unit_;
  Part part_;
  std::vector<std::string> names_;
};

}  // namespace

Coverage cover(const Program& program, const Unit& unit) {
  if (Digits(program, unit).fit()) return Coverage::once;
  return Cover(program, unit).check();
}

}  // namespace narrows::program
