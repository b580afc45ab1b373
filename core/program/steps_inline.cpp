// SPDX-License-Identifier: Apache-2.0
// steps_inline.cpp -- compute_inline and reverse_compute_inline: a block becomes a part of the expressions of another.
#include <algorithm>

#include "core/error.h"
#include "core/program/affine.h"
#include "core/program/expr.h"
#include "core/program/reduction.h"
#include "core/program/steps.h"
#include "core/program/types.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

void require_plain(const Block& block) {
  const bool is_spatial =
      std::all_of(block.axes.begin(), block.axes.end(), [](const Axis& axis) { return axis.kind == Axis::Kind::spatial; });
  if (!is_spatial || !block.init.empty())
    throw_failure(NW_INVALID, -1, "block '%s' has an R or C axis, or an init; expected S axes only, to put it into another block",
                  block.name.c_str());
}

// What the axes are where the subscripts, which are the axes themselves, have the given values.
Substitution solve(const Block& block, const std::vector<ExprPtr>& subscripts, const std::vector<ExprPtr>& values) {
  Substitution out;
  for (size_t i = 0; i < subscripts.size(); ++i) {
    const bool is_name = subscripts[i]->kind == Expr::Kind::name;
    const auto is_it = [&](const Axis& axis) { return is_name && axis.name == subscripts[i]->name; };
    if (std::any_of(block.axes.begin(), block.axes.end(), is_it) && out.emplace(subscripts[i]->name, values[i]).second) continue;
    throw_failure(NW_INVALID, -1,
                  "block '%s': expected a different axis as each subscript of its store, to put it into another block",
                  block.name.c_str());
  }
  for (const Axis& axis : block.axes) {
    if (out.count(axis.name) > 0) continue;
    if (constant(axis.extent) != 1)
      throw_failure(NW_INVALID, -1, "axis '%s' of block '%s' is in no subscript of its store; expected each axis in one",
                    axis.name.c_str(), block.name.c_str());
    out.emplace(axis.name, make_integer(0));
  }
  return out;
}

// The names of the blocks that store into the buffer, or that load from it.
std::vector<std::string> users(const Program& program, const std::string& buffer, bool of_stores) {
  std::vector<std::string> out;
  for (const Path& path : paths(program))
    if (of_stores ? stores(*path.block, buffer) : loads(*path.block, buffer)) out.push_back(path.block->name);
  return out;
}

void remove_buffer(Program& program, const std::string& name) {
  std::erase_if(program.allocations, [&](const Buffer& buffer) { return buffer.name == name; });
}

// The loads of a buffer replaced by what `value` makes of their subscripts, in the bodies and the inits.
using Value = std::function<ExprPtr(const std::vector<ExprPtr>&)>;
ExprPtr replace_loads(const ExprPtr& expr, const std::string& buffer, const Value& value) {
  return rewrite(expr, [&](const ExprPtr& part) -> ExprPtr {
    if (part->kind != Expr::Kind::load || part->name != buffer) return nullptr;
    std::vector<ExprPtr> subscripts;
    for (const ExprPtr& index : part->operands) subscripts.push_back(replace_loads(index, buffer, value));
    return value(subscripts);
  });
}

void replace_loads(Block& block, const std::string& buffer, const Value& value) {
  for (std::vector<Store>* list : {&block.init, &block.body}) {
    for (Store& store : *list) {
      for (ExprPtr& index : store.indices) index = replace_loads(index, buffer, value);
      store.value = replace_loads(store.value, buffer, value);
    }
  }
}

// The verifier orders runs. Within one run, the reader's own init and earlier stores come before its last load, too.
void require_undisturbed(const Block& producer, const Block& reader) {
  if (reader.body.size() == 1 && reader.init.empty()) return;  // it loads before it stores
  for_each_load(producer, [&](const Expr& load) {
    if (stores(reader, load.name))
      throw_failure(NW_INVALID, -1, "block '%s' stores into '%s', which block '%s' reads", reader.name.c_str(), load.name.c_str(),
                    producer.name.c_str());
  });
}

const Buffer& need_private(const Program& program, const Block& producer) {
  if (producer.body.size() != 1)
    throw_failure(NW_INVALID, -1, "block '%s' has %zu stores; expected one, to put it into another block", producer.name.c_str(),
                  producer.body.size());
  const Buffer& buffer = *find_buffer(program, producer.body[0].buffer);
  if (buffer.role != Buffer::Role::allocated)
    throw_failure(NW_INVALID, -1, "block '%s' writes the tensor '%s'; expected an allocation", producer.name.c_str(),
                  buffer.name.c_str());
  if (users(program, buffer.name, true).size() != 1)
    throw_failure(NW_INVALID, -1, "'%s' is written by other blocks than '%s', too", buffer.name.c_str(), producer.name.c_str());
  if (reads(producer.body[0].value, buffer.name))
    throw_failure(NW_INVALID, -1, "block '%s' reads what it writes", producer.name.c_str());
  return buffer;
}

}  // namespace

void compute_inline(Draft& draft, const StepLine& line) {
  line.allow({"block"});
  const std::vector<Path> all = paths(draft.current);
  const Block producer = *need_block(all, line.text("block")).block;
  require_plain(producer);
  const std::string buffer = need_private(draft.current, producer).name;
  for (const std::string& reader : users(draft.current, buffer, false)) {
    require_undisturbed(producer, *need_block(all, reader).block);
    const std::string why = draft.verifier.moved(producer.name, reader, buffer, false);
    if (!why.empty()) throw_failure(NW_INVALID, -1, "%s", why.c_str());
  }
  const Store& store = producer.body[0];
  int64_t parts = 0, made = 0;
  for_each_part(store.value, [&](const Expr&) { ++parts; });
  const Value value = [&](const std::vector<ExprPtr>& subscripts) {
    made += parts;
    if (made > 2 * kMaxParts)  // of the two programs
      throw_failure(NW_INVALID, -1, "'%s' is read too often; the program would have more than %d parts", buffer.c_str(), kMaxParts);
    return substitute(store.value, solve(producer, store.indices, subscripts));
  };
  for (Program* program : {&draft.reference, &draft.current}) {
    program->body = replace_block(program->body, producer.name, {});
    program->body = edit_blocks(program->body, [&](Block& block) {
      if (loads(block, buffer)) replace_loads(block, buffer, value);
    });
    remove_buffer(*program, buffer);
  }
  draft.changes_reference = true;
}

namespace {

// The one block that writes what `consumer` reads and nobody else does.
const Block& find_producer(const Program& program, const std::vector<Path>& all, const Block& consumer) {
  const Block* found = nullptr;
  for (const Path& path : all) {
    const Block& block = *path.block;
    const bool feeds = &block != &consumer && std::any_of(block.body.begin(), block.body.end(), [&](const Store& store) {
      return find_buffer(program, store.buffer)->role == Buffer::Role::allocated && loads(consumer, store.buffer);
    });
    if (feeds && found != nullptr)
      throw_failure(NW_INVALID, -1, "block '%s' reads what both '%s' and '%s' write", consumer.name.c_str(), found->name.c_str(),
                    block.name.c_str());
    if (feeds) found = &block;
  }
  if (found == nullptr)
    throw_failure(NW_INVALID, -1, "block '%s' reads no allocated buffer that another block writes", consumer.name.c_str());
  return *found;
}

// The subscripts by which the consumer loads the buffer; they are the same in each load.
std::vector<ExprPtr> load_place(const Block& consumer, const std::string& buffer) {
  std::optional<std::vector<ExprPtr>> out;
  for_each_load(consumer, [&](const Expr& load) {
    if (load.name != buffer) return;
    if (out && !same(*out, load.operands))
      throw_failure(NW_INVALID, -1, "block '%s' reads '%s' at two places", consumer.name.c_str(), buffer.c_str());
    out = load.operands;
  });
  return *out;
}

// Does the producer run for each point of the consumer? It may read under where(…), and so have points for which nothing is
// produced.
void require_all_points(const Program& program, const Block& producer, const Block& consumer, const Substitution& axes) {
  const std::vector<std::string> sizes = size_names(program);
  const auto region = [&](bool of_consumer) {
    Region out(sizes.size() + consumer.axes.size());
    explore([&](Choices& choices) {
      Affine affine(program, choices);
      std::vector<Linear> shown;
      shown.reserve(sizes.size());
      for (const std::string& size : sizes) shown.push_back(affine.size(size));
      Values values;
      for (const Axis& axis : (of_consumer ? consumer : producer).axes)
        values.set(axis.name, affine.variable(axis.name, axis.extent, values));
      for (const Axis& axis : consumer.axes)
        shown.push_back(affine.index(of_consumer ? make_name(axis.name) : axes.at(axis.name), values));
      if (!of_consumer && !affine.exact) throw Unproven{"its subscripts are more than sums of axes and sizes"};
      out.unite(Region(affine.system, shown));
      return false;
    });
    return out;
  };
  try {
    if (region(true).minus(region(false)).is_empty()) return;
  } catch (const Unproven& reason) {
    throw_failure(NW_INVALID, -1, "that block '%s' runs for each point of block '%s' could not be proven: %s",
                  producer.name.c_str(), consumer.name.c_str(), reason.why.c_str());
  }
  throw_failure(NW_INVALID, -1, "block '%s' has points for which block '%s' does not run", consumer.name.c_str(),
                producer.name.c_str());
}

}  // namespace

void reverse_compute_inline(Draft& draft, const StepLine& line) {
  line.allow({"block"});
  const std::vector<Path> all = paths(draft.current);
  const Block consumer = *need_block(all, line.text("block")).block;
  require_plain(consumer);
  const Block producer = find_producer(draft.current, all, *need_block(all, consumer.name).block);
  require_plain(producer);
  const std::string buffer = need_private(draft.current, producer).name;
  if (users(draft.current, buffer, false).size() != 1)
    throw_failure(NW_INVALID, -1, "'%s' has other readers than '%s'", buffer.c_str(), consumer.name.c_str());
  require_undisturbed(producer, consumer);
  const Store& store = producer.body[0];
  const Substitution axes = solve(consumer, load_place(consumer, buffer), store.indices);
  std::vector<For> domain;
  domain.reserve(producer.axes.size());
  for (const Axis& axis : producer.axes) domain.push_back(make_loop(axis.name, axis.extent));
  for (const Axis& axis : consumer.axes) {
    const ExprPtr& value = axes.at(axis.name);
    if (!is_never_negative(draft.current, domain, nullptr, value) || !is_within(draft.current, domain, nullptr, value, axis.extent))
      throw_failure(NW_INVALID, -1, "block '%s' writes elements of '%s' that block '%s' does not read", producer.name.c_str(),
                    buffer.c_str(), consumer.name.c_str());
  }
  require_all_points(draft.current, producer, consumer, axes);
  const std::string why = draft.verifier.moved(producer.name, consumer.name, buffer, true);
  if (!why.empty()) throw_failure(NW_INVALID, -1, "%s", why.c_str());
  std::vector<Store> body;
  for (const Store& old : consumer.body) {
    Store merged = old;
    for (ExprPtr& index : merged.indices) index = substitute(index, axes);
    merged.value = replace_loads(substitute(old.value, axes), buffer, [&](const std::vector<ExprPtr>&) { return store.value; });
    body.push_back(std::move(merged));
  }
  for (Program* program : {&draft.reference, &draft.current}) {
    program->body = replace_block(program->body, consumer.name, {});
    program->body = edit_blocks(program->body, [&](Block& block) {
      if (block.name == producer.name) block.body = body;
    });
    remove_buffer(*program, buffer);
  }
  draft.changes_reference = true;
}

}  // namespace narrows::program
