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

std::string first_line(const Instance& instance) {
  if (CCompiler::is_present()) return std::string("// cpu: kernel 'compiled' runs, for ") + instance.target + "\n";
  return "// cpu: kernel 'interpreter' runs, for there is no C compiler; 'compiled' would be\n";
}

}  // namespace

common::Bound any_call(const common::Lowered& lowered, const std::vector<const ir::Buffer*>& optional, size_t mask,
                       bool is_strided) {
  common::Bound out;
  out.lowered = &lowered;
  const auto add = [&](const ir::Buffer& buffer, bool strided) {
    common::BoundBuffer bound;
    bound.buffer = &buffer;
    int64_t step = strided ? 2 : 1;
    for (const ir::ExprPtr& extent : buffer.shape) bound.shape.push_back(strided ? 3 : ir::constant(extent).value_or(3));
    bound.strides.resize(bound.shape.size());
    for (size_t d = bound.shape.size(); d-- > 0;) {
      bound.strides[d] = step;
      if (__builtin_mul_overflow(step, std::max<int64_t>(bound.shape[d], 1), &step)) step = INT64_MAX;
    }
    const auto bit = std::find(optional.begin(), optional.end(), &buffer);
    bound.present = bit == optional.end() || (mask >> (bit - optional.begin()) & 1) != 0;
    out.buffers[buffer.name] = std::move(bound);
  };
  for (const ir::Buffer& tensor : lowered.program.tensors) add(tensor, is_strided && !tensor.shape.empty());
  for (const ir::Buffer& allocation : lowered.allocations) add(allocation, false);
  return out;
}

std::string source_of_program(const Instance& instance, std::string_view text) {
  try {
    const common::Lowered lowered = common::lower(ir::parse(text));
    return first_line(instance) + print_c(any_call(lowered), c_target(instance)).text;
  } catch (const Failure& failure) {
    throw common::Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::cpu
