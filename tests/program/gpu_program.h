// SPDX-License-Identifier: Apache-2.0
// gpu_program.h -- a program on a GPU's plugin beside the reference that runs it in long double.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "examples.h"
#include "reference/program.h"

// What the reference makes of the tensors of a call.
inline narrows::reference::Evaluation evaluated(const narrows::program::Program& program, std::vector<Tensor>& inputs,
                                                const std::vector<Param>& params) {
  narrows::reference::Arguments arguments;
  size_t next = 0;
  for (const narrows::program::Buffer& tensor : program.tensors) {
    if (tensor.role == narrows::program::Buffer::Role::output) continue;
    Tensor& input = inputs[next++];
    if (input.absent) continue;
    for (size_t d = 0; d < tensor.shape.size(); ++d)
      if (tensor.shape[d]->kind == narrows::program::Expr::Kind::name) arguments.sizes[tensor.shape[d]->name] = input.shape[d];
    std::vector<narrows::reference::Exact>& values = arguments.tensors[tensor.name];
    for (int64_t i = 0; i < input.elements(); ++i) values.push_back(input.exact(i));
  }
  for (size_t i = 0; i < params.size(); ++i)
    arguments.params[program.params[i].name] = params[i].is_real ? static_cast<narrows::reference::Exact>(params[i].real)
                                                                 : static_cast<narrows::reference::Exact>(params[i].integer);
  return narrows::reference::evaluate(program, arguments);
}

inline void expect_close(const std::string& name, Tensor& got, const narrows::reference::Array& want, double tolerance) {
  for (int64_t i = 0; i < got.elements(); ++i) {
    const auto value = static_cast<double>(got.exact(i)), right = static_cast<double>(want.values[static_cast<size_t>(i)]);
    if (std::isnan(right) ? std::isnan(value) : value == right) continue;
    if (std::fabs(value - right) <= tolerance * std::max(1.0, std::fabs(right))) continue;
    INFO("element " << i << " of " << name << " is " << value << "; expected " << right);
    FAIL();
  }
  INFO(name);
  CHECK(got.is_clean_outside());
}

// Runs the text, and compares each output. `unscheduled`: what the reference runs, if not the text itself.
inline void expect_right(const std::string& text, std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                         const std::vector<Param>& params, double tolerance, const std::string& unscheduled = "") {
  const narrows::program::Program program = narrows::program::parse(unscheduled.empty() ? text : unscheduled);
  const narrows::reference::Evaluation want = evaluated(program, inputs, params);
  const Answer answer = Call{plugin(), text, pointers(inputs), pointers(outputs), nullptr, params}.run();
  INFO(answer.message);
  REQUIRE(answer);
  size_t next = 0;
  for (const narrows::program::Buffer& tensor : program.tensors)
    if (tensor.role != narrows::program::Buffer::Role::input)
      expect_close(tensor.name, outputs[next++], want.arrays.at(tensor.name), tolerance);
}
