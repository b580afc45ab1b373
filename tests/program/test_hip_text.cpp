// SPDX-License-Identifier: Apache-2.0
// test_hip_text.cpp -- hipcc compiles the text of tensorized loops for AMD's matrix units, by the instruction that they have. No
// GPU is needed, and none has run it.
#include <catch2/catch_translate_exception.hpp>
#include <cstdlib>

#include "common/program_bind.h"
#include "common/program_kernels.h"
#include "ops/program/source.h"
#include "programs.h"
#include "tensorized.h"

namespace {

namespace fs = std::filesystem;

std::string printed(const Product& product, const Tiles& tiles, int64_t lanes) {
  narrows::common::GpuLimits limits;
  limits.unit_lanes = lanes;
  limits.has_pairs = true;
  const auto kernels = narrows::common::make_kernels(narrows::program::parse(tensorized(product, tiles)), limits);
  return narrows::gpu::print_gpu(kernels, narrows::common::any_call(kernels.lowered), {}).text;
}

// How often `part` stands in the text.
size_t count(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

// The assembly that it becomes.
std::string compiled(const std::string& text, const std::string& target) {
  std::string pattern = (fs::temp_directory_path() / "narrows-test-XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  const std::string base = pattern + "/kernel";
  std::ofstream(base + ".hip") << "#include <hip/hip_runtime.h>\n" << text;
  const std::string command = std::string("HIP_PLATFORM=amd ") + HIPCC + " -x hip --cuda-device-only --offload-arch=" + target +
                              " -nogpulib -std=c++20 -O1 -ffp-contract=off -w -S -o " + base + ".s " + base + ".hip >" + base +
                              ".log 2>&1";
  const bool good = std::system(command.c_str()) == 0;
  const std::string said = read_file(base + ".log"), out = good ? read_file(base + ".s") : "";
  fs::remove_all(pattern);
  INFO(said << text);
  CHECK(good);
  return out;
}

const std::string kJoint = ": a warp together, on the matrix unit where there is one, by matrices of 16 x 16 x 16\n";

}  // namespace

CATCH_TRANSLATE_EXCEPTION(const narrows::Failure& failure) { return failure.message; }

TEST_CASE("AMD's units multiply two products side by side as one") {
  struct Unit {
    const char *target, *dtype, *instruction;
    int64_t lanes;
  };
  const Unit units[] = {{"gfx1100", "f16", "v_wmma_f32_16x16x16_f16", 32},
                        {"gfx1100", "bf16", "v_wmma_f32_16x16x16_bf16", 32},
                        {"gfx90a", "f16", "v_mfma_f32_16x16x16f16", 64},
                        {"gfx90a", "bf16", "v_mfma_f32_16x16x16bf16_1k", 64},
                        {"gfx908", "f16", "v_mfma_f32_16x16x16f16", 64}};
  for (const Unit& unit : units)
    for (const bool is_across : {false, true}) {
      Tiles tiles{2, 2, 4, 2};
      tiles.lanes_y = unit.lanes / 4;
      const std::string text = printed({64, 64, 64, unit.dtype, "f32", is_across, is_across}, tiles, unit.lanes);
      INFO(text);
      CHECK(count(text, std::string("// mma.") + unit.dtype + ".f32" + kJoint) == 1);
      CHECK(count(text, "  nw_sums m") == 1);
      CHECK(count(text, "nw_read_factor(m") == 1);  // the side that lies along k
      const std::string assembly = compiled(text, unit.target);
      CHECK(count(assembly, std::string("\t") + unit.instruction + " ") >= 4);  // 2 x 2 matrices
    }
}

TEST_CASE("a product alone is plain loops on AMD's units") {
  const std::string text = printed({64, 32, 64, "f16", "f32", false, false}, {2, 2, 1, 2}, 32);
  CHECK(count(text, "plain loops, since the unit's products are 16 wide, and there are not two of them side by side\n") == 1);
  CHECK(count(text, "  nw_sums m") == 0);
}
