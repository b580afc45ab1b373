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

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

Names parts_of(const std::string& text, char separator) {
  Names out;
  std::istringstream in(text + separator);
  for (std::string part; std::getline(in, part, separator);) out.push_back(trimmed(part));
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

// What follows the word, which is cut off with it; nothing: the word is not there.
std::string cut(std::string& text, const std::string& word) {
  const size_t at = text.find(" " + word + " ");
  if (at == std::string::npos) return "";
  const std::string tail = text.substr(at + word.size() + 2);
  text.resize(at);
  return tail;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

// The names of a way: sizes, and integer fields, that are multiplied by the number of calls.
Names read_way(const nw_op& op, std::string text) {
  const std::string condition = cut(text, "where"), once = cut(text, "once");
  for (const std::string& name : once.empty() ? Names{} : parts_of(once, ','))
    if (!is_tensor(op, name))
      throw_failure(NW_INVALID, -1, "op '%s' declares batch '%s': '%s' stands behind 'once'; expected the name of a tensor",
                    op.name, op.batch, name.c_str());
  if (condition.empty()) return parts_of(text, ',');
  const size_t equals = condition.find('=');
  std::string field = condition.substr(0, equals);
  if (!field.empty() && field.back() == '<') field.pop_back();
  if (equals == std::string::npos || !is_integer_field(op, trimmed(field)) || !is_number(trimmed(condition.substr(equals + 1))))
    throw_failure(NW_INVALID, -1,
                  "op '%s' declares batch '%s': where '%s'; expected 'FIELD = N' or 'FIELD <= N', an integer field of its params",
                  op.name, op.batch, condition.c_str());
  return parts_of(text, ',');
}

void check_way(const nw_op& op, const ShapeRule& rule, const Names& way) {
  Names sizes;
  for (const auto& alternative : rule.named_dims())
    for (const Names& dims : alternative) {
      int axes = 0;
      for (const std::string& name : dims)
        if (has(way, name) && !is_integer_field(op, name)) sizes.push_back(name), ++axes;
      if (axes > 1)
        throw_failure(NW_INVALID, -1, "op '%s' declares batch '%s': one tensor has two axes in one way; expected one axis at most",
                      op.name, op.batch);
    }
  for (const std::string& name : way)
    if (name.empty() || (!has(sizes, name) && !is_integer_field(op, name)))
      throw_failure(NW_INVALID, -1,
                    "op '%s' declares batch '%s': '%s' is no size of its shape rule and no integer field of its params", op.name,
                    op.batch, name.c_str());
  if (sizes.empty())
    throw_failure(NW_INVALID, -1, "op '%s' declares batch '%s': expected a size of its shape rule in each way", op.name, op.batch);
}

// Element-wise: every axis is a batch, and so is a new leading one.
void check_element_wise(const nw_op& op, const ShapeRule& rule) {
  if (const std::string dims = rule.first_of_fixed_rank(); !dims.empty())
    throw_failure(NW_INVALID, -1,
                  "op '%s' declares batch '*', and shape rule \"%s\" has %s; expected '...', '*', 'broadcast' or 'like i' alone",
                  op.name, op.shape_rule, dims.c_str());
}

}  // namespace

void check_batch(const nw_op& op, const ShapeRule* rule) {
  if ((op.flags & NW_OP_BATCHABLE) != 0 && rule != nullptr && !rule->takes_a_leading_dimension())
    throw_failure(
        NW_INVALID, -1,
        "op '%s' has the flag NW_OP_BATCHABLE, and shape rule \"%s\" takes no tensors of one leading dimension more; expected "
        "'...,' before the dimensions, or an alternative with it, as \"L -> L | B,L -> B,L\"",
        op.name, op.shape_rule);
  if (op.batch == nullptr) return;
  if (rule == nullptr)
    throw_failure(NW_INVALID, -1, "op '%s' declares batch '%s' and no shape rule, whose sizes it names", op.name, op.batch);
  if (std::strcmp(op.batch, "*") == 0) return check_element_wise(op, *rule);
  for (const std::string& way : parts_of(op.batch, '|')) check_way(op, *rule, read_way(op, way));
}

}  // namespace narrows
