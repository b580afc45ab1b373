// SPDX-License-Identifier: Apache-2.0
// source.cpp -- extension nw_program_source: the C text of a program, for a reader.
#include <narrows/program.h>

#include <algorithm>

#include "common/program_bind.h"
#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/text.h"
#include "program/program.h"

namespace narrows::cpu {
namespace {

// A call with dense tensors, all of them there, of no sizes in particular: the text depends on none, and a size that would do for
// one extent may make another one negative. An extent that is not a number is 3, so that no stride is 1 by chance.
common::Bound dense_call(const common::Lowered& lowered) {
  common::Bound out;
  out.lowered = &lowered;
  const auto add = [&](const ir::Buffer& buffer) {
    common::BoundBuffer& bound = out.buffers[buffer.name];
    bound.buffer = &buffer;
    for (const ir::ExprPtr& extent : buffer.shape) bound.shape.push_back(ir::constant(extent).value_or(3));
    bound.strides.assign(bound.shape.size(), 1);
    for (size_t d = bound.shape.size(); d-- > 1;)
      if (__builtin_mul_overflow(bound.strides[d], std::max<int64_t>(bound.shape[d], 1), &bound.strides[d - 1]))
        fail(NW_INVALID, -1, "'%s' has more elements than 64 bits count; expected fewer", buffer.name.c_str());
  };
  for (const ir::Buffer& tensor : lowered.program.tensors) add(tensor);
  for (const ir::Buffer& allocation : lowered.allocations) add(allocation);
  return out;
}

std::string first_line(const Instance& instance) {
  if (CCompiler::is_present()) return std::string("// cpu: kernel 'compiled' runs, for ") + instance.target + "\n";
  return "// cpu: kernel 'interpreter' runs, for there is no C compiler; 'compiled' would be\n";
}

}  // namespace

std::string source_of_program(const Instance& instance, std::string_view text) {
  try {
    const common::Lowered lowered = common::lower(ir::parse(text));
    return first_line(instance) + print_c(dense_call(lowered), c_target(instance)).text;
  } catch (const Failure& failure) {
    throw common::Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::cpu
