// SPDX-License-Identifier: Apache-2.0
// shape_rule.h -- the small language in which an op declares the shapes of its outputs. docs/abi.md, "Shape rules".
// A rule is parsed once, when its op is declared, and evaluated whenever a call is planned or inferred.
#pragma once

#include <narrows/abi.h>

#include <memory>
#include <string>
#include <vector>

namespace narrows {

struct Shape {
  bool present = false;  // false: an absent tensor
  std::vector<int64_t> extents;
};

class ShapeRule {
 public:
  // Throws Failure (NW_INVALID) that shows the rule and the place where it went wrong.
  ShapeRule(const std::string& text, uint32_t max_inputs, uint32_t num_outputs);
  ~ShapeRule();
  ShapeRule(ShapeRule&&) noexcept;

  // Checks the inputs, as many as the op has at most, and gives the outputs; an output that is "like" an absent input is absent.
  // `op` has the names of inputs and fields that errors and expressions speak of; `params` is its blob, extended with zeros. Throws
  // Failure (NW_INVALID).
  std::vector<Shape> evaluate(const nw_op& op, const std::vector<Shape>& inputs, const void* params, uint64_t params_size) const;

  // Of each alternative, each input and then each output: its dimensions that are a bare name or "..."; "" for another dimension.
  std::vector<std::vector<std::vector<std::string>>> named_dims() const;

  // The text of the first tensor that does not take one more leading dimension with all others; "" if all do.
  std::string first_of_fixed_rank() const;

  // Whether calls of some rank may have one more leading dimension on every tensor: what NW_OP_BATCHABLE says.
  bool takes_a_leading_dimension() const;

  struct Expression;
  struct Dims;
  struct Tensor;
  struct Output;
  struct Alternative;

 private:
  std::string text_;
  std::vector<Alternative> alternatives_;
};

// NumPy's broadcasting of all present shapes. Throws Failure that names the two inputs that do not fit.
Shape broadcast(const nw_op& op, const std::vector<Shape>& inputs);

// "x" for input 0 of conv1d: a declared name without its '?', or "input 7" where none is declared.
std::string input_name(const nw_op& op, uint32_t i);
std::string output_name(const nw_op& op, uint32_t i);

}  // namespace narrows
