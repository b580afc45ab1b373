// SPDX-License-Identifier: Apache-2.0
// batch.cpp -- see batch.h. Core checks the declaration when its op is declared; bindings follow it.
#include "core/batch.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "core/error.h"

namespace narrows {
namespace {

using Names = std::vector<std::string>;

Names parts_of(const std::string& text, char separator) {
  Names out;
  std::istringstream in(text + separator);
  for (std::string part; std::getline(in, part, separator);) {
    const size_t begin = part.find_first_not_of(' '), end = part.find_last_not_of(' ');
    out.push_back(begin == std::string::npos ? "" : part.substr(begin, end - begin + 1));
  }
  return out;
}

bool has(const Names& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); }

bool is_integer_field(const nw_op& op, const std::string& name) {
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field) {
    const DLDataType type = (*field)->dtype;
    if (name == (*field)->name) return (type.code == kDLInt || type.code == kDLUInt) && type.lanes == 1;
  }
  return false;
}

bool is_tensor(const nw_op& op, const std::string& name) {
  const auto is_in = [&](const char* const* names) {
    for (; *names != nullptr; ++names)
      if (*names == name || *names == name + "?") return true;
    return false;
  };
  return is_in(op.inputs) || is_in(op.outputs);
}

// One way to join a batch: sizes, and integer fields, that are multiplied by the number of calls; the tensors that count once; the
// field that has to be 1.
struct Way {
  Names names, once;
  std::string field;
};

// What follows the word, which is cut off with it; nothing: the word is not there.
std::string cut(std::string& text, const std::string& word) {
  const size_t at = text.find(" " + word + " ");
  if (at == std::string::npos) return "";
  const std::string tail = text.substr(at + word.size() + 2);
  text.resize(at);
  return tail;
}

Way read_way(const nw_op& op, std::string text) {
  const std::string condition = cut(text, "where"), once = cut(text, "once");
  Way way{parts_of(text, ','), once.empty() ? Names{} : parts_of(once, ','), ""};
  for (const std::string& name : way.once)
    if (!is_tensor(op, name))
      fail(NW_INVALID, -1, "op '%s' declares batch '%s': '%s' counts once; expected the name of a tensor", op.name, op.batch,
           name.c_str());
  if (condition.empty()) return way;
  const Names sides = parts_of(condition, '=');
  if (sides.size() != 2 || sides[1] != "1" || !is_integer_field(op, sides[0]))
    fail(NW_INVALID, -1, "op '%s' declares batch '%s': where '%s'; expected 'FIELD = 1', an integer field of its params", op.name,
         op.batch, condition.c_str());
  way.field = sides[0];
  return way;
}

void check_way(const nw_op& op, const ShapeRule& rule, const Names& way) {
  Names sizes;
  for (const auto& alternative : rule.named_dims())
    for (const Names& dims : alternative) {
      int axes = 0;
      for (const std::string& name : dims)
        if (has(way, name) && !is_integer_field(op, name)) sizes.push_back(name), ++axes;
      if (axes > 1) fail(NW_INVALID, -1, "op '%s' declares batch '%s': a tensor has two axes of one way", op.name, op.batch);
    }
  for (const std::string& name : way)
    if (name.empty() || (!has(sizes, name) && !is_integer_field(op, name)))
      fail(NW_INVALID, -1, "op '%s' declares batch '%s': '%s' is no size of its shape rule and no integer field of its params",
           op.name, op.batch, name.c_str());
  if (sizes.empty())
    fail(NW_INVALID, -1, "op '%s' declares batch '%s': expected a size of its shape rule in each way", op.name, op.batch);
}

// Element-wise: every axis is a batch, and so is a new leading one.
void check_element_wise(const nw_op& op, const ShapeRule& rule) {
  if (const std::string dims = rule.first_of_fixed_rank(); !dims.empty())
    fail(NW_INVALID, -1,
         "op '%s' declares batch '*', and shape rule \"%s\" has %s; expected '...', '*', 'broadcast' or 'like i' alone", op.name,
         op.shape_rule, dims.c_str());
}

}  // namespace

void check_batch(const nw_op& op, const ShapeRule* rule) {
  if ((op.flags & NW_OP_BATCHABLE) != 0 && rule != nullptr && !rule->takes_a_leading_dimension())
    fail(NW_INVALID, -1,
         "op '%s' has the flag NW_OP_BATCHABLE, and shape rule \"%s\" takes no tensors of one leading dimension more; expected "
         "'...,' before the dimensions, or an alternative with it, as \"L -> L | B,L -> B,L\"",
         op.name, op.shape_rule);
  if (op.batch == nullptr) return;
  if (rule == nullptr)
    fail(NW_INVALID, -1, "op '%s' declares batch '%s' and no shape rule, whose sizes it names", op.name, op.batch);
  if (std::strcmp(op.batch, "*") == 0) return check_element_wise(op, *rule);
  for (const std::string& way : parts_of(op.batch, '|')) check_way(op, *rule, read_way(op, way).names);
}

}  // namespace narrows
