// SPDX-License-Identifier: Apache-2.0
// steps_buffers.cpp -- steps that change buffers: cache_read, cache_write, set_scope, transform_layout, pad.
#include <algorithm>

#include "core/error.h"
#include "core/program/affine.h"
#include "core/program/expr.h"
#include "core/program/parse_expr.h"
#include "core/program/ranges.h"
#include "core/program/steps.h"
#include "core/program/text.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

// A copy of a whole buffer into another of its shape: a nest of one loop for each dimension.
Stmt copy_nest(const Buffer& from, const Buffer& to, const std::string& block_name, std::set<std::string>& used) {
  Block block;
  block.name = block_name;
  std::vector<For> loops;
  std::vector<ExprPtr> place;
  for (size_t i = 0; i < from.shape.size(); ++i) {
    loops.push_back(make_loop(fresh_name(used, "ax" + std::to_string(i)), from.shape[i]));
    block.axes.push_back(
        {fresh_name(used, "v" + std::to_string(i)), Axis::Kind::spatial, from.shape[i], make_name(loops.back().name)});
    place.push_back(make_name(block.axes.back().name));
  }
  block.body = {{to.name, place, make_load(from.name, from.dtype, place)}};
  return nest(loops, make_stmt(std::move(block)));
}

ExprPtr rename_loads(const ExprPtr& expr, const std::string& from, const std::string& to) {
  return rewrite(expr, [&](const ExprPtr& part) -> ExprPtr {
    if (part->kind != Expr::Kind::load || part->name != from) return nullptr;
    Expr copy = *part;
    copy.name = to;
    for (ExprPtr& index : copy.operands) index = rename_loads(index, from, to);
    return std::make_shared<const Expr>(std::move(copy));
  });
}

void rename_in(Block& block, const std::string& from, const std::string& to, bool stores_too) {
  for (std::vector<Store>* list : {&block.init, &block.body}) {
    for (Store& store : *list) {
      if (stores_too && store.buffer == from) store.buffer = to;
      for (ExprPtr& index : store.indices) index = rename_loads(index, from, to);
      store.value = rename_loads(store.value, from, to);
    }
  }
}

size_t top_of(const Program& program, const std::string& block) {
  for (size_t i = 0; i < program.body.size(); ++i) {
    const std::vector<std::string> names = block_names({program.body[i]});
    if (std::find(names.begin(), names.end(), block) != names.end()) return i;
  }
  throw_failure(NW_FAILED, -1, "block '%s' is missing", block.c_str());
}

// A new buffer beside an old one, and the block that copies, in both programs. `place` says where in each the copy stands.
class Cache {
 public:
  Cache(Draft& draft, const StepLine& line, bool is_read) : draft_(draft) {
    if (is_read)
      line.allow({"block", "buffer", "scope", "consumers"});
    else
      line.allow({"block", "buffer", "scope"});
    const std::vector<Path> all = paths(draft.current);
    block_ = need_block(all, line.text("block")).block->name;
    users_ = {block_};
    for (const std::string& name : line.texts("consumers", {})) users_.insert(need_block(all, name).block->name);
    const Buffer* const found = find_buffer(draft.current, line.text("buffer"));
    if (found == nullptr) {
      std::vector<std::string> names;
      for (const std::vector<Buffer>* buffers : {&draft.current.tensors, &draft.current.allocations})
        for (const Buffer& buffer : *buffers) names.push_back(buffer.name);
      const std::string& name = line.text("buffer");
      throw_failure(NW_INVALID, -1, "there is no buffer '%s'%s", name.c_str(), instead_of(name, names).c_str());
    }
    old_ = *found;
    if (old_.optional)
      throw_failure(NW_INVALID, -1, "'%s' is optional; only a tensor that is always there is copied", old_.name.c_str());
    const std::string scope = line.text("scope", "global");
    cached_ = old_;
    cached_.role = Buffer::Role::allocated;
    cached_.padding.clear();
    cached_.scope = parse_scope(scope);
    used_ = used_names(draft.current);
    used_.merge(used_names(draft.reference));
    cached_.name = fresh_name(used_, old_.name + "_" + scope);
    copier_ = fresh_block(draft.current, draft.reference, cached_.name);
    used_.insert(copier_);
  }

  void read() {
    require_unwritten();
    apply(true);
  }
  void write() {
    for (const Path& path : paths(draft_.current)) {
      if (path.block->name != block_ && stores(*path.block, old_.name))
        throw_failure(NW_INVALID, -1, "'%s' is written by block '%s', too", old_.name.c_str(), path.block->name.c_str());
      if (path.block->name == block_ && !stores(*path.block, old_.name))
        throw_failure(NW_INVALID, -1, "block '%s' does not write '%s'", block_.c_str(), old_.name.c_str());
    }
    require_unread();
    apply(false);
  }

 private:
  // The first and the last nest of those that use the buffer.
  std::pair<size_t, size_t> tops(const Program& program) const {
    std::pair<size_t, size_t> out{program.body.size(), 0};
    for (const std::string& user : users_) {
      const size_t top = top_of(program, user);
      out = {std::min(out.first, top), std::max(out.second, top)};
    }
    return out;
  }

  // In the unscheduled program the copy stands before the nests of the readers: nothing there may write the buffer.
  void require_unwritten() const {
    const std::vector<Path> all = paths(draft_.reference);
    for (const std::string& user : users_)
      if (!loads(*need_block(all, user).block, old_.name))
        throw_failure(NW_INVALID, -1, "block '%s' does not read '%s'", user.c_str(), old_.name.c_str());
    const auto [first, last] = tops(draft_.reference);
    Program nests;
    nests.body.assign(draft_.reference.body.begin() + static_cast<std::ptrdiff_t>(first),
                      draft_.reference.body.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    for (const Path& path : paths(nests))
      if (stores(*path.block, old_.name))
        throw_failure(
            NW_INVALID, -1, "block '%s' writes '%s' %s", path.block->name.c_str(), old_.name.c_str(),
            first == last ? ("within the same loops as block '" + block_ + "'").c_str() : "before the last of the blocks reads it");
  }

  // The copy stands after the whole nest of the writer: no other block of the nest may read the buffer.
  void require_unread() const {
    Program nest;
    nest.body = {draft_.reference.body[top_of(draft_.reference, block_)]};
    for (const Path& path : paths(nest))
      if (path.block->name != block_ && loads(*path.block, old_.name))
        throw_failure(NW_INVALID, -1, "block '%s' reads '%s' within the same loops as block '%s'", path.block->name.c_str(),
                      old_.name.c_str(), block_.c_str());
  }

  void apply(bool is_read) {
    const Stmt copy = is_read ? copy_nest(old_, cached_, copier_, used_) : copy_nest(cached_, old_, copier_, used_);
    for (Program* program : {&draft_.reference, &draft_.current}) {
      program->allocations.push_back(cached_);
      const size_t top = is_read ? tops(*program).first : tops(*program).second + 1;
      program->body = edit_blocks(program->body, [&](Block& block) {
        if (users_.count(block.name) != 0) rename_in(block, old_.name, cached_.name, !is_read);
      });
      program->body.insert(program->body.begin() + static_cast<std::ptrdiff_t>(top), copy);
    }
    draft_.changes_reference = true;
    draft_.made = {copier_};
  }

  Draft& draft_;
  std::string block_, copier_;
  std::set<std::string> users_;  // the block, and the other ones that read the copy
  Buffer old_, cached_;
  std::set<std::string> used_;
};

// The names before "->", and the subscripts after it.
struct Layout {
  std::vector<std::string> names;
  std::vector<ExprPtr> subscripts;
};

Layout parse_layout(const std::string& text) {
  const size_t arrow = text.find("->");
  if (arrow == std::string::npos)
    throw_failure(NW_INVALID, -1, "the map '%s' has no '->'; expected the form 'i, j -> i // 8, j, i %% 8'", text.c_str());
  Layout out;
  Scope scope;
  const auto stripped = [](const std::string& part) {  // blanks in front would be an indented line
    const size_t from = part.find_first_not_of(' ');
    return from == std::string::npos ? "" : part.substr(from, part.find_last_not_of(' ') + 1 - from);
  };
  const std::string left = stripped(text.substr(0, arrow));
  Cursor names(left);
  while (names.at(Token::Kind::name)) {
    out.names.push_back(names.name("a name"));
    if (!scope.values.emplace(out.names.back(), DType::index).second)
      throw_failure(NW_INVALID, -1, "the map names '%s' twice", out.names.back().c_str());
    if (!names.take(",")) break;
  }
  const std::string right = stripped(text.substr(arrow + 2));
  Cursor cursor(right);
  do {
    out.subscripts.push_back(parse_index(cursor, scope, "a subscript of the map"));
  } while (cursor.take(","));
  if (!cursor.at(Token::Kind::newline) && !cursor.at(Token::Kind::end)) cursor.bad("',' or the end of the map");
  return out;
}

std::vector<ExprPtr> new_shape(const Program& program, const Buffer& buffer, const Layout& layout) {
  Ranges ranges;
  for (size_t i = 0; i < layout.names.size(); ++i) ranges[layout.names[i]] = {make_integer(0), simplify(buffer.shape[i] - 1)};
  std::vector<ExprPtr> out;
  for (const ExprPtr& subscript : layout.subscripts) {
    const auto range = range_of(subscript, ranges);
    if (!range || constant(range->low) != 0)
      throw_failure(NW_INVALID, -1, "the least value of '%s' has to be 0, for all elements of '%s'", print(subscript).c_str(),
                    buffer.name.c_str());
    const ExprPtr extent = simplify(range->high + 1);  // of no elements it may be negative, as N * 2 - 1
    out.push_back(is_never_negative(program, {}, nullptr, extent) ? extent : make_call("maximum", {extent, make_integer(0)}));
  }
  return out;
}

// Two elements never come to one place.
void require_injective(const Program& program, const Buffer& buffer, const Layout& layout) {
  const size_t rank = layout.names.size();
  for (size_t differs = 0; differs < rank; ++differs) {
    explore([&](Choices& choices) {
      Affine affine(program, choices);
      Values one, other;
      for (size_t i = 0; i < rank; ++i) one.set(layout.names[i], affine.variable(layout.names[i], buffer.shape[i], {}));
      for (size_t i = 0; i < rank; ++i) other.set(layout.names[i], affine.variable(layout.names[i], buffer.shape[i], {}));
      affine.system.less(*one.find(layout.names[differs]), *other.find(layout.names[differs]));
      for (const ExprPtr& subscript : layout.subscripts)
        affine.system.equal(affine.index(subscript, one), affine.index(subscript, other));
      if (affine.system.is_empty()) return false;
      throw_failure(NW_INVALID, -1, "the map puts two elements of '%s' that differ in %s into one place", buffer.name.c_str(),
                    layout.names[differs].c_str());
    });
  }
}

}  // namespace

void cache_read(Draft& draft, const StepLine& line) { Cache(draft, line, true).read(); }
void cache_write(Draft& draft, const StepLine& line) { Cache(draft, line, false).write(); }

void set_scope(Draft& draft, const StepLine& line) {
  line.allow({"buffer", "scope"});
  const Buffer::Scope scope = parse_scope(line.text("scope"));
  need_allocation(draft.current, line.text("buffer")).scope = scope;
  need_allocation(draft.reference, line.text("buffer")).scope = scope;
}

void transform_layout(Draft& draft, const StepLine& line) {
  line.allow({"buffer", "map"});
  const Buffer old = need_allocation(draft.current, line.text("buffer"));
  if (!old.padding.empty())
    throw_failure(NW_INVALID, -1, "'%s' is padded along its dimensions as they are; expected transform_layout before pad",
                  old.name.c_str());
  const Layout layout = parse_layout(line.text("map"));
  if (layout.names.size() != old.shape.size())
    throw_failure(NW_INVALID, -1, "'%s' has %zu dimensions, but the map names %zu", old.name.c_str(), old.shape.size(),
                  layout.names.size());
  try {
    require_injective(draft.current, old, layout);
  } catch (const Unproven& reason) {
    throw_failure(NW_INVALID, -1, "that the map keeps elements apart could not be proven: %s", reason.why.c_str());
  }
  const std::vector<ExprPtr> shape = new_shape(draft.current, old, layout);
  const auto move = [&](const std::vector<ExprPtr>& subscripts) {
    Substitution values;
    for (size_t i = 0; i < subscripts.size(); ++i) values[layout.names[i]] = subscripts[i];
    std::vector<ExprPtr> out;
    out.reserve(layout.subscripts.size());
    for (const ExprPtr& subscript : layout.subscripts) out.push_back(substitute(subscript, values));
    return out;
  };
  const std::function<ExprPtr(const ExprPtr&)> moved = [&](const ExprPtr& part) -> ExprPtr {
    if (part->kind != Expr::Kind::load || part->name != old.name) return nullptr;
    std::vector<ExprPtr> subscripts;
    for (const ExprPtr& index : part->operands) subscripts.push_back(rewrite(index, moved));
    return make_load(old.name, old.dtype, move(subscripts));
  };
  for (Program* program : {&draft.reference, &draft.current}) {
    need_allocation(*program, old.name).shape = shape;
    program->body = edit_blocks(program->body, [&](Block& block) {
      for (std::vector<Store>* list : {&block.init, &block.body}) {
        for (Store& store : *list) {
          for (ExprPtr& index : store.indices) index = rewrite(index, moved);
          store.value = rewrite(store.value, moved);
          if (store.buffer == old.name) store.indices = move(store.indices);
        }
      }
    });
  }
  draft.changes_reference = true;
}

// Elements behind the end of a dimension, which no access reaches: where the next row begins, and no value, depends on them.
void pad(Draft& draft, const StepLine& line) {
  line.allow({"buffer", "axis", "elements"});
  const std::string& name = line.text("buffer");
  const auto rank = static_cast<int64_t>(need_allocation(draft.current, name).shape.size());
  const int64_t axis = line.number("axis"), elements = line.number("elements");
  if (axis < 0 || axis >= rank)
    throw_failure(NW_INVALID, -1, "axis %lld of '%s'; it has %lld dimensions, of which the first is 0",
                  static_cast<long long>(axis), name.c_str(), static_cast<long long>(rank));
  for (Program* program : {&draft.reference, &draft.current}) {
    std::vector<int64_t>& padding = need_allocation(*program, name).padding;
    padding.resize(static_cast<size_t>(rank));
    padding[static_cast<size_t>(axis)] = elements;
    if (std::all_of(padding.begin(), padding.end(), [](int64_t each) { return each == 0; })) padding.clear();
  }
}

}  // namespace narrows::program
