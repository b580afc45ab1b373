// SPDX-License-Identifier: Apache-2.0
// check_block.cpp -- see check_block.h.
#include "core/program/check_block.h"

#include <algorithm>

#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/lexer.h"
#include "core/program/reduction.h"
#include "core/program/text.h"
#include "core/program/types.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

constexpr size_t kMaxNote = 4096;  // bytes

class BlockChecker {
 public:
  BlockChecker(const Block& block, const std::set<std::string>& loops, Names& names)
      : block_(block), loops_(loops), names_(names), who_("block '" + block.name + "'") {}

  void run() {
    check_counts();
    for (const Axis& axis : block_.axes) check_axis(axis);
    if (block_.predicate != nullptr)
      check_expr(block_.predicate, DType::boolean, {who_ + ": its condition", &loops_, nullptr, false, false}, names_);
    check_notes(block_.notes, who_);
    if (block_.body.empty()) bad("it stores nothing");
    for (const Store& store : block_.init) check_store(store, true);
    for (const Store& store : block_.body) check_store(store, false);
    check_init();
    for (const Store& store : block_.body) check_places(store);
    check_order();
  }

 private:
  [[noreturn]] void bad(const std::string& message) const {
    throw_failure(NW_INVALID, -1, "%s: %s", who_.c_str(), message.c_str());
  }

  bool has(Axis::Kind kind) const {
    return std::any_of(block_.axes.begin(), block_.axes.end(), [&](const Axis& axis) { return axis.kind == kind; });
  }

  void check_counts() const {
    const size_t stores = std::max(block_.body.size(), block_.init.size());
    if (block_.axes.size() > kMaxAxes) bad(std::to_string(block_.axes.size()) + " axes; at most " + std::to_string(kMaxAxes));
    if (stores > kMaxStores) bad(std::to_string(stores) + " stores; at most " + std::to_string(kMaxStores));
  }

  void check_axis(const Axis& axis) {
    const std::string what = who_ + ": axis '" + axis.name + "'";
    if (!is_name(axis.name)) bad("'" + axis.name + "' is no name for an axis");
    const bool taken = names_.sizes.count(axis.name) != 0 || names_.params.count(axis.name) != 0 ||
                       names_.buffers.count(axis.name) != 0 || loops_.count(axis.name) != 0;
    if (taken || !axes_.insert(axis.name).second) bad("there is a '" + axis.name + "' already; an axis has a name of its own");
    if (axis.kind == Axis::Kind::spatial) spatial_.insert(axis.name);
    check_extent(axis.extent, {what + ": its extent", nullptr, nullptr, false, false}, names_);
    check_expr(axis.binding, DType::index, {what + ": its value", &loops_, nullptr, false, false}, names_);
  }

  void check_store(const Store& store, bool init) {
    const std::string what = who_ + ": the store into '" + store.buffer + "'";
    const auto found = names_.buffers.find(store.buffer);
    if (found == names_.buffers.end()) bad("there is no buffer '" + store.buffer + "' to store into");
    const Buffer& buffer = *found->second;
    if (buffer.role == Buffer::Role::input)
      bad("'" + store.buffer + "' is an input, and cannot be stored into; one that can is 'out' or 'inout'");
    if (buffer.shape.size() != store.indices.size())
      bad("'" + store.buffer + "' has " + std::to_string(buffer.shape.size()) + " dimensions, but is stored into by " +
          std::to_string(store.indices.size()) + " subscripts");
    const std::set<std::string>& axes = init ? spatial_ : axes_;
    for (const ExprPtr& index : store.indices)
      check_expr(index, DType::index, {what + ": a subscript", nullptr, &axes, false, false}, names_);
    check_expr(store.value, buffer.dtype,
               {what + (init ? ": its first value, of S axes" : ": its value"), nullptr, &axes, true, true}, names_);
    for (const std::vector<Store>* stores : {&block_.init, &block_.body}) {
      const auto same_buffer =
          std::count_if(stores->begin(), stores->end(), [&](const Store& other) { return other.buffer == store.buffer; });
      if (same_buffer > 1) bad("it stores into '" + store.buffer + "' twice; a block stores once into a buffer");
    }
  }

  void check_init() const {
    if (!block_.init.empty() && !has(Axis::Kind::reduction) && !has(Axis::Kind::carried))
      bad("an init without an R or C axis; nothing is added to what it stores");
    for (const Store& first : block_.init) {
      const auto target =
          std::find_if(block_.body.begin(), block_.body.end(), [&](const Store& store) { return store.buffer == first.buffer; });
      if (target == block_.body.end()) bad("its init stores into '" + first.buffer + "', its body does not");
      if (!same(first.indices, target->indices)) bad("its init stores at another place of '" + first.buffer + "' than its body");
      for (const Store& store : block_.body) {
        if (reads(first.value, store.buffer)) bad("its init reads '" + store.buffer + "', which the block computes");
      }
    }
  }

  // Each S axis chooses the place, no R axis does.
  void check_places(const Store& store) const {
    std::set<std::string> used;
    for (const ExprPtr& index : store.indices) used.merge(names_in(index));
    for (const Axis& axis : block_.axes) {
      const bool uses = used.count(axis.name) != 0;
      if (axis.kind == Axis::Kind::spatial && !uses && constant(axis.extent) != 1)
        bad("S axis '" + axis.name + "' does not choose the place in '" + store.buffer +
            "', so each of its points stores there; an axis that is reduced over is R, one that keeps its order is C");
      if (axis.kind == Axis::Kind::reduction && uses)
        bad("R axis '" + axis.name + "' chooses the place in '" + store.buffer + "', so it reduces nothing; it is S or C");
    }
  }

  // What the points of S and R axes compute does not depend on their order.
  void check_order() const {
    for (const Store& store : block_.body) {
      if (has(Axis::Kind::reduction)) {
        check_reduction(store);
      } else if (!has(Axis::Kind::carried)) {
        for (const Store& target : block_.body) check_own_reads(store, target);
      }
    }
  }

  void check_reduction(const Store& store) const {
    const auto form = reduction_of(store);
    const std::string place =
        print(std::make_shared<const Expr>(Expr{Expr::Kind::load, DType::index, 0, 0, store.buffer, store.indices}));
    if (!form.has_value())
      bad("the R axes need an update of the form " + place + " = " + place +
          " + …, or with *, maximum, minimum, and, or; this is none: " + print(store) + ". An axis whose order counts is C");
    for (const Store& other : block_.body) {
      if (reads(form->element, other.buffer))
        bad("'" + store.buffer + "' is made of '" + other.buffer +
            "', which the same R axes update; an axis whose order counts is C");
    }
  }

  void check_own_reads(const Store& store, const Store& target) const {
    for_each_load(store.value, [&](const Expr& load) {
      if (load.name == target.buffer && !same(load.operands, target.indices))
        bad("it reads '" + target.buffer +
            "' at another place than it stores; S axes have no order, an axis whose order counts is C");
    });
  }

  const Block& block_;
  const std::set<std::string>& loops_;
  Names& names_;
  std::string who_;
  std::set<std::string> axes_, spatial_;
};

}  // namespace

void check_block(const Block& block, const std::set<std::string>& loops, Names& names) { BlockChecker(block, loops, names).run(); }

void check_extent(const ExprPtr& extent, const Place& place, Names& names) {
  check_expr(extent, DType::index, place, names);
  if (constant(extent).value_or(0) < 0)
    throw_failure(NW_INVALID, -1, "%s is %s; expected 0 or more", place.what.c_str(), print(extent).c_str());
}

void check_notes(const std::vector<std::pair<std::string, std::string>>& notes, const std::string& what) {
  std::set<std::string> keys;
  for (const auto& [key, value] : notes) {
    if (!keys.insert(key).second) throw_failure(NW_INVALID, -1, "%s: it has two notes \"%s\"", what.c_str(), key.c_str());
    const auto right = [](const std::string& text) {
      return text.size() <= kMaxNote && is_utf8(text) && std::all_of(text.begin(), text.end(), [](unsigned char c) {
               return (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t';
             });
    };
    if (!right(key) || !right(value))
      throw_failure(NW_INVALID, -1, "%s: a note is UTF-8 of at most %zu bytes without control characters", what.c_str(), kMaxNote);
  }
}

}  // namespace narrows::program
