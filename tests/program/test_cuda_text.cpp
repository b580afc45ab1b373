// SPDX-License-Identifier: Apache-2.0
// test_cuda_text.cpp -- NVRTC compiles the CUDA text of every example program, as it is written and by its default schedule. No GPU
// is needed. What the kernels compute is test_gpu_program.cpp's matter. Skipped where there is no NVRTC.
#include <catch2/catch_translate_exception.hpp>

#include "common/program_bind.h"
#include "common/program_kernels.h"
#include "core/program/adjoint.h"
#include "core/program/auto.h"
#include "ops/program/compiler.h"
#include "ops/program/source.h"
#include "programs.h"

namespace {

using narrows::program::Program;

bool has_compiler(std::string* why) {
  try {
    (void)narrows::gpu::compiler_identity();
    return true;
  } catch (const narrows::plugin::Refusal& refusal) {
    *why = refusal.message;
    return false;
  }
}

void check_compiles(const Program& program) {
  const auto kernels = narrows::common::make_kernels(program, {});
  const std::string text = narrows::gpu::print_gpu(kernels, narrows::common::any_call(kernels.lowered), {}).text;
  std::string why;
  try {
    CHECK(narrows::gpu::compile_text(text, "sm_90").size() > 100);
  } catch (const narrows::plugin::Refusal& refusal) {
    why = refusal.message;
  }
  INFO(text);
  CHECK(why == "");
}

// As it is, and by the default schedule.
void check_both(const Program& program) {
  check_compiles(program);
  narrows::program::Schedule schedule{program};
  REQUIRE(narrows::program::schedule_by_default(&schedule, "cuda"));
  check_compiles(schedule.program());
}

}  // namespace

CATCH_TRANSLATE_EXCEPTION(const narrows::Failure& failure) { return failure.message; }

TEST_CASE("NVRTC compiles every example program and its adjoint") {
  std::string why;
  if (!has_compiler(&why)) SKIP(why);
  size_t adjoints = 0;
  for (const auto& file : program_files()) {
    INFO(file);
    const Program program = narrows::program::parse(read_file(file));
    check_both(program);
    try {
      const Program adjoint = narrows::program::adjoint(program);
      check_both(adjoint);
      ++adjoints;
    } catch (const narrows::Failure&) {  // it has none: test_adjoint.cpp
    }
  }
  CHECK(adjoints >= 8);
}

TEST_CASE("NVRTC compiles casts between all dtypes, and the functions of floating point") {
  std::string why;
  if (!has_compiler(&why)) SKIP(why);
  const std::vector<std::string> dtypes = {"f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "bool"};
  for (const std::string& from : dtypes) {
    std::string tensors = "x: " + from + "[n]", blocks;
    for (const std::string& to : dtypes) {
      tensors += ", y_" + to + ": out " + to + "[n]";
      blocks +=
          "  for i_" + to + " in n:\n    block b_" + to + "(v: S(n) = i_" + to + "):\n      y_" + to + "[v] = " + to + "(x[v])\n";
    }
    check_compiles(narrows::program::parse("program 1 casts(" + tensors + "):\n" + blocks));
  }
  for (const std::string dtype : {"f16", "bf16", "f32", "f64"}) {
    INFO(dtype);
    std::string value = "fma(x[v], x[v], abs(x[v])) / maximum(x[v], pow(x[v], x[v]))";
    for (const char* function : {"exp", "log", "sin", "cos", "tanh", "sqrt", "erf", "gelu", "sigmoid"})
      value = function + ("(" + value) + ")";
    const std::string tensors = "(x: " + dtype + "[n], y: out " + dtype + "[n])";
    check_compiles(narrows::program::parse("program 1 functions" + tensors +
                                           ":\n  for i in n:\n    block y(v: S(n) = i):\n      y[v] = " + value + "\n"));
  }
}
