// SPDX-License-Identifier: Apache-2.0
// steps_loops.cpp -- steps that change loops alone: split, fuse, reorder, a loop's kind, notes.
#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/intrinsics.h"
#include "core/program/shape_of_loops.h"
#include "core/program/steps.h"
#include "core/program/text.h"

namespace narrows::program {
namespace {

constexpr int64_t kMaxSplit = int64_t{1} << 31;  // an extent rounded up to a multiple of it stays far from 64 bits

// Every expression below a loop with names replaced: extents, bindings, predicates.
std::vector<Stmt> substitute_below(const std::vector<Stmt>& body, const Substitution& values) {
  std::vector<Stmt> out;
  for (const Stmt& stmt : body) {
    if (const ForPtr* const loop = std::get_if<ForPtr>(&stmt)) {
      For copy = **loop;
      copy.extent = substitute(copy.extent, values);
      copy.body = substitute_below(copy.body, values);
      out.push_back(make_stmt(std::move(copy)));
      continue;
    }
    Block copy = *std::get<BlockPtr>(stmt);
    copy.predicate = substitute(copy.predicate, values);
    for (Axis& axis : copy.axes) axis.binding = substitute(axis.binding, values);
    out.push_back(make_stmt(std::move(copy)));
  }
  return out;
}

// The extents of a split: the one that is None is what is left, rounded up.
std::vector<ExprPtr> split_extents(const For& loop, const std::vector<StepLine::Number>& factors) {
  int64_t product = 1;
  for (const StepLine::Number& factor : factors) {
    if (factor && *factor < 1) throw_failure(NW_INVALID, -1, "a factor is at least 1, not %lld", static_cast<long long>(*factor));
    if (factor && (__builtin_mul_overflow(product, *factor, &product) || product > kMaxSplit))
      throw_failure(NW_INVALID, -1, "the product of the factors is more than %lld; expected smaller factors",
                    static_cast<long long>(kMaxSplit));
  }
  const size_t unknown = std::count(factors.begin(), factors.end(), std::nullopt);
  if (factors.size() < 2)
    throw_failure(NW_INVALID, -1, "expected two factors or more, as one for each new loop; given: %zu", factors.size());
  if (unknown > 1) throw_failure(NW_INVALID, -1, "%zu factors are None; expected one at most", unknown);
  if (unknown == 1 && factors[0] && !constant(loop.extent))
    throw_failure(NW_INVALID, -1, "loop '%s' has %s iterations, a size; of such a loop only the first factor may be None",
                  loop.name.c_str(), print(loop.extent).c_str());
  const ExprPtr whole = make_integer(product);
  std::vector<ExprPtr> out;
  out.reserve(factors.size());
  for (const StepLine::Number& factor : factors)
    out.push_back(factor ? make_integer(*factor) : floor_div(loop.extent + (product - 1), whole));
  return out;
}

// i_0 * (f1 * f2) + i_1 * f2 + i_2.
ExprPtr flat_value(const std::vector<For>& parts) {
  ExprPtr out = make_integer(0);
  ExprPtr stride = make_integer(1);
  for (size_t i = parts.size(); i-- > 0;) {
    const ExprPtr term = make_name(parts[i].name) * stride;
    out = i + 1 == parts.size() ? term : term + out;
    stride = stride * parts[i].extent;
  }
  return out;
}

struct SplitLoop {
  const Program& program;
  const For& loop;
  std::vector<For> parts;
  ExprPtr value;  // of the loop, from its parts

  // The predicate of one block below, so that the value stays within the loop's extent. Where an axis takes its highest digit from
  // the loop, the axis' own extent says it.
  ExprPtr guard_of(const Path& path, const ExprPtr& predicate) const {
    std::vector<For> loops;
    for (const ForPtr& around : path.loops) {
      if (around->name == loop.name) {
        loops.insert(loops.end(), parts.begin(), parts.end());
      } else {
        loops.push_back(*around);
      }
    }
    if (is_within(program, loops, predicate, value, loop.extent)) return predicate;
    for (const Axis& axis : path.block->axes) {
      if (!mentions(axis.binding, loop.name)) continue;
      const ExprPtr bound = make_call("lt", {substitute(axis.binding, {{loop.name, value}}), axis.extent});
      if (is_within(program, loops, both(predicate, bound), value, loop.extent)) return both(predicate, bound);
    }
    return both(predicate, make_call("lt", {value, loop.extent}));
  }
};

void add_predicates(std::vector<Stmt>& body, const SplitLoop& split, const std::vector<Path>& before) {
  body =
      edit_blocks(body, [&](Block& block) { block.predicate = split.guard_of(need_block(before, block.name), block.predicate); });
}

bool is_enough(const Program& program, const For& loop, const std::vector<For>& around, int64_t product) {
  return is_within(program, around, nullptr, loop.extent - 1, make_integer(product));
}

std::vector<For> loops_around(const Program& program, const std::string& loop) {
  std::vector<For> out;
  const std::vector<Path> below = paths_under(program, loop);
  for (const ForPtr& it : below[0].loops) {
    if (it->name == loop) break;
    out.push_back(*it);
  }
  return out;
}

// The loops from `outer` down, as far as each holds the next one alone, until all of `names` are found.
std::vector<ForPtr> chain(const Program& program, const std::vector<std::string>& names) {
  if (names.empty()) throw_failure(NW_INVALID, -1, "there has to be a loop");
  const Path path = paths_under(program, need_loop(program, names[0])->name)[0];
  int first = path.depth_of(names[0]);
  int last = first;
  for (const std::string& name : names) {
    need_loop(program, name);
    const int depth = path.depth_of(name);
    if (depth < 0) throw_failure(NW_INVALID, -1, "loops '%s' and '%s' are not within each other", names[0].c_str(), name.c_str());
    if (std::count(names.begin(), names.end(), name) > 1) throw_failure(NW_INVALID, -1, "loop '%s' is named twice", name.c_str());
    first = std::min(first, depth);
    last = std::max(last, depth);
  }
  for (int depth = first; depth < last; ++depth) {
    if (path.loops[depth]->body.size() != 1)
      throw_failure(NW_INVALID, -1, "loop '%s' holds more than the loop '%s'", path.loops[depth]->name.c_str(),
                    path.loops[depth + 1]->name.c_str());
  }
  return {path.loops.begin() + first, path.loops.begin() + last + 1};
}

// A kind takes the place of the one that the loop had.
void set_kind(Draft& draft, const StepLine& line, For::Kind kind, const std::string& thread = "", int64_t stages = 0,
              const std::string& intrinsic = "") {
  const ForPtr loop = need_loop(draft.current, line.text("loop"));
  For copy = *loop;
  copy.kind = kind;
  copy.thread = thread;
  copy.stages = stages;
  copy.intrinsic = intrinsic;
  require_shape(copy);
  draft.current.body = replace_loop(draft.current.body, loop->name, {make_stmt(std::move(copy))});
}

void set_note(std::vector<std::pair<std::string, std::string>>& notes, const std::string& key, const std::string& value) {
  const auto found = std::find_if(notes.begin(), notes.end(), [&](const auto& note) { return note.first == key; });
  if (found != notes.end()) {
    found->second = value;
  } else {
    notes.emplace_back(key, value);
  }
}

}  // namespace

void split(Draft& draft, const StepLine& line) {
  line.allow({"loop", "factors"});
  const ForPtr loop = need_loop(draft.current, line.text("loop"));
  require_unbound(*loop);
  const std::vector<StepLine::Number> factors = line.numbers("factors");
  const std::vector<ExprPtr> extents = split_extents(*loop, factors);
  std::set<std::string> used = used_names(draft.current);
  SplitLoop split{draft.current, *loop, {}, make_integer(0)};
  int64_t product = 1;
  for (size_t i = 0; i < extents.size(); ++i) {
    split.parts.push_back(make_loop(fresh_name(used, loop->name + "_" + std::to_string(i)), extents[i]));
    if (factors[i]) product *= *factors[i];
  }
  const bool is_whole = std::count(factors.begin(), factors.end(), std::nullopt) == 0;
  if (is_whole && !is_enough(draft.current, *loop, loops_around(draft.current, loop->name), product))
    throw_failure(NW_INVALID, -1, "the factors give %lld iterations, but loop '%s' has %s", static_cast<long long>(product),
                  loop->name.c_str(), print(loop->extent).c_str());
  split.value = flat_value(split.parts);
  std::vector<Stmt> body = substitute_below(loop->body, {{loop->name, split.value}});
  add_predicates(body, split, paths_under(draft.current, loop->name));
  for (size_t i = split.parts.size(); i-- > 0;) {
    For part = split.parts[i];
    part.notes = i == 0 ? loop->notes : part.notes;
    part.body = std::move(body);
    body = {make_stmt(std::move(part))};
    draft.made.insert(draft.made.begin(), split.parts[i].name);
  }
  draft.current.body = replace_loop(draft.current.body, loop->name, body);
}

void fuse(Draft& draft, const StepLine& line) {
  line.allow({"loops"});
  const std::vector<std::string>& names = line.texts("loops");
  const std::vector<ForPtr> loops = chain(draft.current, names);
  if (names.size() < 2 || loops.size() != names.size())
    throw_failure(NW_INVALID, -1, "fuse takes two or more loops, each nested directly inside the previous one");
  for (size_t i = 0; i < loops.size(); ++i) {
    require_unbound(*loops[i]);
    if (loops[i]->name != names[i])
      throw_failure(NW_INVALID, -1, "the loops of fuse are named from the outermost to the innermost");
    for (size_t j = 0; j < i; ++j) {
      if (mentions(loops[i]->extent, loops[j]->name))
        throw_failure(NW_INVALID, -1, "the extent of loop '%s' depends on the loop '%s'", loops[i]->name.c_str(),
                      loops[j]->name.c_str());
    }
  }
  std::string wanted;
  ExprPtr extent = make_integer(1);
  for (const ForPtr& loop : loops) {
    wanted += loop->name + "_";
    extent = extent * loop->extent;
  }
  std::set<std::string> used = used_names(draft.current);
  For fused = make_loop(fresh_name(used, wanted + "fused"), extent);
  Substitution values;
  ExprPtr rest = make_name(fused.name);
  for (size_t i = loops.size(); i-- > 0;) {
    values[loops[i]->name] = i == 0 ? rest : remainder(rest, loops[i]->extent);
    rest = floor_div(rest, loops[i]->extent);
  }
  fused.body = substitute_below(loops.back()->body, values);
  draft.made = {fused.name};
  draft.current.body = replace_loop(draft.current.body, loops[0]->name, {make_stmt(std::move(fused))});
}

void reorder(Draft& draft, const StepLine& line) {
  line.allow({"loops"});
  const std::vector<std::string>& names = line.texts("loops");
  std::vector<ForPtr> loops = chain(draft.current, names);
  const std::string outermost = loops[0]->name;
  std::vector<Stmt> body = loops.back()->body;
  size_t next = 0;
  for (ForPtr& loop : loops)
    if (std::find(names.begin(), names.end(), loop->name) != names.end()) loop = need_loop(draft.current, names[next++]);
  for (size_t i = loops.size(); i-- > 0;) {
    for (size_t j = i; j < loops.size(); ++j) {
      if (mentions(loops[i]->extent, loops[j]->name))
        throw_failure(NW_INVALID, -1, "the extent of loop '%s' depends on the loop '%s', which would be within it",
                      loops[i]->name.c_str(), loops[j]->name.c_str());
    }
    For copy = *loops[i];
    copy.body = std::move(body);
    body = {make_stmt(std::move(copy))};
  }
  draft.current.body = replace_loop(draft.current.body, outermost, body);
}

void parallel(Draft& draft, const StepLine& line) {
  line.allow({"loop"});
  set_kind(draft, line, For::Kind::parallel);
}

void vectorize(Draft& draft, const StepLine& line) {
  line.allow({"loop"});
  set_kind(draft, line, For::Kind::vectorize);
}

void unroll(Draft& draft, const StepLine& line) {
  line.allow({"loop"});
  set_kind(draft, line, For::Kind::unroll);
}

void bind(Draft& draft, const StepLine& line) {
  line.allow({"loop", "thread"});
  constexpr std::array<const char*, 6> kThreads = {"block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z"};
  std::string thread = line.text("thread");
  if (thread.rfind("blockIdx.", 0) == 0) thread = "block." + thread.substr(9);
  if (thread.rfind("threadIdx.", 0) == 0) thread = "thread." + thread.substr(10);
  if (std::find(kThreads.begin(), kThreads.end(), thread) == kThreads.end())
    throw_failure(NW_INVALID, -1, "'%s' is none of block.x, block.y, block.z, thread.x, thread.y and thread.z", thread.c_str());
  set_kind(draft, line, For::Kind::bind, thread);
}

void pipeline(Draft& draft, const StepLine& line) {
  line.allow({"loop", "stages"});
  set_kind(draft, line, For::Kind::pipeline, "", line.number("stages", 2));
}

void tensorize(Draft& draft, const StepLine& line) {
  line.allow({"loop", "intrinsic"});
  set_kind(draft, line, For::Kind::tensorize, "", 0, need_intrinsic(line.text("intrinsic")).name);
}

// A note on a block or a loop: data for a backend, which says which ones it knows. It changes no order, so there is nothing to
// prove.
void annotate(Draft& draft, const StepLine& line) {
  line.allow({"loop", "block", "key", "value"});
  const std::string loop = line.text("loop", "");
  if (loop.empty() == line.text("block", "").empty()) throw_failure(NW_INVALID, -1, "annotate takes a loop or a block");
  if (!loop.empty()) {
    For copy = *need_loop(draft.current, loop);
    set_note(copy.notes, line.text("key"), line.text("value"));
    draft.current.body = replace_loop(draft.current.body, loop, {make_stmt(std::move(copy))});
    return;
  }
  const std::vector<Path> all = paths(draft.current);
  Block copy = *need_block(all, line.text("block")).block;
  set_note(copy.notes, line.text("key"), line.text("value"));
  const std::string name = copy.name;
  draft.current.body = replace_block(draft.current.body, name, {make_stmt(std::move(copy))});
}

}  // namespace narrows::program
