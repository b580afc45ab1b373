// SPDX-License-Identifier: Apache-2.0
// test_cuda_text.cpp -- NVRTC compiles the CUDA text of every example program, as it is written and by its default schedule. No GPU
// is needed. What the kernels compute is test_gpu_program.cpp's matter. Skipped where there is no NVRTC.
#include <catch2/catch_translate_exception.hpp>

#include "common/program_bind.h"
#include "common/program_kernels.h"
#include "core/program/adjoint.h"
#include "core/program/auto.h"
#include "core/program/dtype.h"
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

// As limits_for_programs() has them, of a call whose tensors lie at multiples of 16 bytes.
std::string printed(const Program& program, int64_t unit_lanes, const std::string& target = "sm_80",
                    int64_t shared_bytes = 99 << 10) {
  narrows::common::GpuLimits limits;
  limits.unit_lanes = unit_lanes;
  limits.has_panels = unit_lanes != 0;
  limits.copies_ahead = target != "sm_75";
  limits.has_groups = target == "sm_90a";
  limits.shared_bytes = shared_bytes;
  const auto kernels = narrows::common::make_kernels(program, limits);
  narrows::common::KernelLayout layout;
  for (const narrows::program::Buffer& tensor : program.tensors)
    layout.alignment[tensor.name] = std::max(1, 128 / narrows::program::bits_of(tensor.dtype));
  return narrows::gpu::print_gpu(kernels, narrows::common::any_call(kernels.lowered), layout).text;
}

void check_compiles(const Program& program, int64_t unit_lanes = 32, const char* target = "sm_90a") {
  const std::string text = printed(program, unit_lanes, target);
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

TEST_CASE("what is stored as f16 is rounded by the store alone") {
  const std::string text =
      printed(narrows::program::parse(
                  "program 1 sum(x: f16[n], y: out f16[n], z: out f16[n]):\n  for i in n:\n    block y(v: S(n) = i):\n"
                  "      y[v] = x[v] + x[v]\n  for j in n:\n    block z(v: S(n) = j):\n      z[v] = x[v] * x[v] + x[v]\n"),
              0);
  INFO(text);
  CHECK(count(text, "nw_to_f16((nw_from_f16(") == 1);
  CHECK(count(text, "nw_to_f16((nw_round_f16((nw_from_f16(") == 1);  // of the product
}

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
      for (const char* const target : {"sm_75", "sm_80", "sm_90a"}) check_compiles(one, 32, target);
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

TEST_CASE("a pipelined loop's text says how far copies run ahead, and which warps compute together") {
  std::string why;
  if (!has_compiler(&why)) SKIP(why);
  Tiles tiles{4, 1, 8, 4};
  tiles.padding = 0;
  tiles.stages = 8;
  for (const bool is_across : {false, true}) {
    const Program one = narrows::program::parse(tensorized({256, 128, 256, "f16", "f16", is_across, is_across}, tiles));
    const auto has = [&](const std::string& target, int64_t shared_bytes, const std::string& part) {
      const std::string text = printed(one, 32, target, shared_bytes);
      INFO(text);
      CHECK(count(text, part) == 1);
    };
    // A stage has 16 KiB, and the sums lend theirs.
    has("sm_90a", 99 << 10, "// pipeline: copies 4 iterations ahead, in 6 stages\n");
    has("sm_90a", 99 << 10, "// mma.f16.f32: four warps together, from shared memory\n");
    has("sm_90a", 99 << 10, is_across ? "nw_group_mma_f16_64_10(m" : "nw_group_mma_f16_64_01(m");
    has("sm_90a", 227 << 10, "in 8 stages\n");
    has("sm_80", 99 << 10, "// pipeline: copies 5 iterations ahead, in 6 stages\n");
    has("sm_80", 99 << 10, "// mma.f16.f32: a warp together, on the matrix unit where there is one\n");
    has("sm_80", 48 << 10, "in 3 stages\n");
    has("sm_75", 64 << 10, "// pipeline: a plain loop, since there are no copies beside computing here\n");
    CHECK(count(printed(one, 32), "nw_copy_ahead<8>(") == 4);  // of both factors, before the loop and in it
    for (const char* const target : {"sm_75", "sm_80", "sm_90a"}) check_compiles(one, 32, target);
  }
  Tiles large{8, 1, 16, 4};
  large.padding = 0;
  large.stages = 2;
  const Program one = narrows::program::parse(tensorized({256, 128, 256, "bf16", "f32", false, false}, large));
  CHECK(count(printed(one, 32, "sm_80", 48 << 10), "since shared memory has no room for a second stage of 32768 bytes\n") == 1);
}
