// SPDX-License-Identifier: Apache-2.0
// shape_pattern.h -- the inputs' side of an op's shape rule, read to sample shapes that fit it (docs/abi.md, "Shape rules"). What
// it cannot read it leaves open: every sample is put to nw_infer, so a mistake here costs samples and never passes a wrong one. It
// governs op_sampler.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace narrows::test {

// The pattern of one input: the text of its dimensions, or any shape.
struct TensorPattern {
  bool any = false;
  bool optional = false;
  std::vector<std::string> dims;
};

// The alternatives of a rule that say something of the inputs; empty where the rule (which may be NULL) says nothing.
std::vector<std::vector<TensorPattern>> input_patterns(const char* shape_rule);

bool is_name(const std::string& dim);

// The value of an expression over bound names; nothing where a name is unknown or the text is no expression.
using Names = std::map<std::string, int64_t>;
std::optional<int64_t> evaluate(const std::string& expression, const Names& names);

}  // namespace narrows::test
