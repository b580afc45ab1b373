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
#include "tensorized.h"

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

std::string printed(const Program& program, int64_t unit_lanes) {
  narrows::common::GpuLimits limits;
  limits.unit_lanes = unit_lanes;
  const auto kernels = narrows::common::make_kernels(program, limits);
  return narrows::gpu::print_gpu(kernels, narrows::common::any_call(kernels.lowered), {}).text;
}

void check_compiles(const Program& program, int64_t unit_lanes = 32, const char* target = "sm_90") {
  const std::string text = printed(program, unit_lanes);
  std::string why;
  try {
    CHECK(narrows::gpu::compile_text(text, target).size() > 100);
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

namespace {

// How often `part` stands in the text.
size_t count(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

}  // namespace

TEST_CASE("a tensorized loop's text says whether the matrix unit or plain loops compute it, and NVRTC takes both") {
  std::string why;
  if (!has_compiler(&why)) SKIP(why);
  const auto program = [](const Product& product, const Tiles& tiles) {
    return narrows::program::parse(tensorized(product, tiles));
  };
  const Product product{256, 256, 64, "f16", "f16", false, false};
  const Tiles tiles{4, 2, 8, 2};
  for (const char* const dtype : {"f16", "bf16"})
    for (const bool is_across : {false, true}) {
      const Program one = program({256, 256, 64, dtype, dtype, is_across, is_across}, tiles);
      for (const char* const target : {"sm_75", "sm_80", "sm_90"}) check_compiles(one, 32, target);
      const std::string text = printed(one, 32);
      INFO(text);
      CHECK(count(text, std::string("// mma.") + dtype + ".f32: a warp together, on the matrix unit where there is one\n") == 1);
      CHECK(count(text, std::string("nw_mma_") + dtype + "(m") == 1);
      CHECK(count(text, is_across ? "nw_read_tiles_across(m" : "nw_read_tiles(m") == 1);  // A's; of B it is the other one
      CHECK(count(text, is_across ? "nw_read_tiles(m" : "nw_read_tiles_across(m") == 1);
    }
  const auto is_plain = [&](const Program& one, int64_t lanes, const std::string& reason) {
    const std::string text = printed(one, lanes);
    INFO(text);
    CHECK(count(text, "// mma.f16.f32: plain loops, since " + reason + "\n") == 1);
    CHECK(count(text, "nw_mma_f16(m") == 0);
    check_compiles(one, lanes);
  };
  is_plain(program(product, tiles), 0, "there is no unit for it here");
  Tiles few = tiles;
  few.lanes_y = 4;
  is_plain(program(product, few), 32, "it is no warp's: expected it in no loop of the first 32 threads, and in all others");
  Tiles unbound = tiles;
  unbound.is_bound = false;
  is_plain(program(product, unbound), 32, "no loop around it is bound to threads");
}
