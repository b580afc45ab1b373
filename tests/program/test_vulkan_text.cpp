// SPDX-License-Identifier: Apache-2.0
// test_vulkan_text.cpp -- the shaders of tensorized loops for matrix units that this machine need not have: what they say, and that
// they compile to valid modules where there is a compiler that knows cooperative matrices. What they compute is
// test_gpu_products.cpp's matter.
#include <catch2/catch_translate_exception.hpp>
#include <cstdlib>
#include <functional>

#include "common/program_bind.h"
#include "common/program_kernels.h"
#include "core/program/auto.h"
#include "ops/program/compiler.h"
#include "ops/program/source.h"
#include "programs.h"
#include "tensorized.h"

namespace {

namespace fs = std::filesystem;
using narrows::common::GpuLimits;
using narrows::common::KernelProgram;
using narrows::vulkan::MatrixUnit;
using narrows::vulkan::ProductUnits;

constexpr MatrixUnit kWide{16, 16, 16, 32, true};  // NVIDIA
constexpr MatrixUnit kSquare{16, 16, 16, 32, false};
constexpr MatrixUnit kSmall{8, 8, 8, 8, true};  // lavapipe

ProductUnits units_of(const MatrixUnit& unit) {
  ProductUnits out;
  out.units.f16 = out.units.bf16 = unit;
  return out;
}

std::string printed(const std::string& text, const ProductUnits& units, const GpuLimits& more = {}) {
  GpuLimits limits = more;
  limits.unit_lanes = narrows::vulkan::unit_lanes(units.units);
  const KernelProgram kernels = narrows::common::make_kernels(narrows::program::parse(text), limits);
  const auto bound = narrows::common::any_call(kernels.lowered);
  return narrows::vulkan::print_glsl(kernels, bound, {}, units).kernels.at(0).text;
}

// How often `part` stands in the text.
size_t count(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "narrows-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

// SPIR-V of the text by shaderc, else by glslang's command. "": neither knows the extensions.
std::string module_of(const std::string& text, const Folder& folder, bool has_bf16) {
  const bool knows = narrows::vulkan::compiler_knows("GL_KHR_cooperative_matrix") &&
                     (!has_bf16 || narrows::vulkan::compiler_knows("GL_EXT_bfloat16"));
  if (knows) return narrows::vulkan::compile_glsl(text);
  const std::string base = (folder.path / "kernel").string(),
                    command = std::string(GLSLANG) + " -V --target-env vulkan1.2 -I" SHADERS;
  const auto compile = [&](const std::string& source) {
    std::ofstream(base + ".comp") << source;
    return std::system((command + " -o " + base + ".spv " + base + ".comp >" + base + ".log 2>&1").c_str()) == 0;
  };
  const std::string head = "#version 460\n#extension GL_KHR_cooperative_matrix : require\n";
  if (!compile(head + (has_bf16 ? "#extension GL_EXT_bfloat16 : require\n" : "") + "void main() {}\n")) return "";
  const bool good = compile(text);
  INFO(read_file(base + ".log"));
  REQUIRE(good);
  return read_file(base + ".spv");
}

void check_module(const std::string& text, bool has_bf16 = false) {
  const Folder folder;
  const std::string module = module_of(text, folder, has_bf16);
  if (module.empty()) return;
#ifdef SPIRV_VAL
  const std::string base = (folder.path / "module").string();
  std::ofstream(base + ".spv", std::ios::binary) << module;
  const bool good = std::system((SPIRV_VAL " --target-env vulkan1.2 " + base + ".spv >" + base + ".log 2>&1").c_str()) == 0;
  const std::string said = read_file(base + ".log");
  INFO(text << said);
  CHECK((good || said.find("Invalid capability operand: 6022") != std::string::npos));  // an older one does not know matrices
#endif
}

const std::string kJoint = ": a warp together, on the matrix unit where there is one, by matrices of ";

}  // namespace

CATCH_TRANSLATE_EXCEPTION(const narrows::Failure& failure) { return failure.message; }

TEST_CASE("two products side by side are one of a unit that is 16 wide, from shared memory as it lies there") {
  for (const std::string dtype : {"f16", "bf16"})
    for (const bool a_across : {false, true})
      for (const bool b_across : {false, true}) {
        const std::string text =
            printed(tensorized({256, 256, 64, dtype, dtype, a_across, b_across}, {4, 2, 8, 2}), units_of(kWide));
        INFO(text);
        CHECK(count(text, "// mma." + dtype + ".f32" + kJoint + "16 x 16 x 16\n") == 1);
        CHECK(count(text, "Accumulator> m") == 1);
        CHECK(count(text, "MatrixUseAccumulator> m18[8];") == 1);  // of 2 x 8 products
        CHECK(count(text, " = coopMatMulAdd(") == 1);
        CHECK(count(text, "coopMatLoad(") == 3);
        CHECK(count(text, "coopMatStore(") == 1);
        CHECK(count(text, "shared uvec4 a") == 2);  // copies of the factors, eight elements in each
        CHECK(count(text, "LayoutColumnMajor") == (a_across ? 1U : 0U) + (b_across ? 1U : 0U));
        CHECK(count(text, "nw_factors") + count(text, "nw_sums") + count(text, "nw_is_first_subgroup") == 0);
        CHECK(count(text, "#define NW_BF16_MATRICES\n") == (dtype == "bf16" ? 1U : 0U));
        check_module(text, dtype == "bf16");
      }
}

TEST_CASE("a product alone is one of a unit that is 8 wide, or plain loops") {
  const std::string one = tensorized({64, 32, 64, "f16", "f16", false, false}, {2, 2, 1, 2});
  const std::string narrow = printed(one, units_of(kWide));
  INFO(narrow);
  CHECK(count(narrow, kJoint + "16 x 8 x 16\n") == 1);
  check_module(narrow);
  const std::string plain = printed(one, units_of(kSquare));
  INFO(plain);
  CHECK(count(plain,
              "// mma.f16.f32: plain loops, since the unit's products are 16 wide, and there are not two of them side by side") ==
        1);
  CHECK(count(plain, "coopmat") + count(plain, "NW_SUBGROUP") == 0);
  CHECK(count(plain, "nw_half(a") == 1);  // of the copy of A
  check_module(plain);
}

TEST_CASE("a product is some of a smaller unit's, by the first subgroup of the warp") {
  const std::string text = printed(tensorized({64, 64, 64, "f16", "f16", false, true}, {2, 2, 4, 2}), units_of(kSmall));
  INFO(text);
  CHECK(count(text, kJoint + "8 x 8 x 8\n") == 1);
  CHECK(count(text, " = coopMatMulAdd(") == 4);  // 2 x 1 sums, 2 along k
  CHECK(count(text, "#define NW_SUBGROUP 8u\n#define NW_WARP 32u\n") == 1);
  CHECK(count(text, "if (nw_is_first_subgroup) {") == 3);
  check_module(text);
}

TEST_CASE("what lies elsewhere, or at no multiples of 16 bytes, goes by a patch in shared memory, if there is room") {
  Tiles tiles{2, 1, 4, 1};
  tiles.padding = 3;
  const std::string odd = tensorized({64, 64, 48, "f16", "f32", false, false}, tiles);
  const std::string text = printed(odd, units_of(kWide));
  INFO(text);
  CHECK(count(text, "shared u16 nw_factors[512];\n") == 1);  // 256 for each of two warps
  CHECK(count(text, "nw_sums") == 0);
  CHECK(count(text, "coopMatLoad(m") == 3);
  CHECK(count(text, ", nw_factors, nw_warp * 256u, 16u, gl_CooperativeMatrixLayoutRowMajor)") == 2);
  check_module(text);
  Tiles others{2, 1, 2, 1};  // whose sums shared memory does not take, and factors are the tensors
  others.is_staged = false;
  const std::string far = printed(tensorized({64, 32, 48, "f16", "f32", false, false}, others), units_of(kWide));
  INFO(far);
  CHECK(count(far, "shared f32 nw_sums[512];\n") == 1);
  CHECK(count(far, "coopMatStore(m") == 1);
  check_module(far);
  ProductUnits units = units_of(kWide);
  units.shared_bytes = 32 * 32 * 4 + 16 * (32 + 3) * 2 + 1000;  // of sums, and of a copy of B
  const std::string plain = printed(odd, units);
  INFO(plain);
  CHECK(count(plain, "// mma.f16.f32: plain loops, since it needs 1024 bytes of shared memory, and 1000 are left\n") == 1);
  CHECK(count(plain, "coopmat") == 0);
}

TEST_CASE("shaders of every example compile with subscripts of 64 bits") {
  if (!narrows::vulkan::compiler_knows("GL_GOOGLE_include_directive")) SKIP("there is no shaderc");
  for (const auto& file : program_files()) {
    INFO(file);
    narrows::program::Schedule schedule(narrows::program::parse(read_file(file)));
    narrows::program::schedule_for_gpu(&schedule);
    const KernelProgram kernels = narrows::common::make_kernels(schedule.program(), {});
    const auto source = narrows::vulkan::print_glsl(kernels, narrows::common::any_call(kernels.lowered), {}, {});
    for (const auto& kernel : source.kernels) {
      INFO(kernel.text);
      CHECK(count(kernel.text, "#define ix int64_t\n") == 1);
      std::string why;
      try {
        (void)narrows::vulkan::compile_glsl(kernel.text);
      } catch (const narrows::plugin::Refusal& refusal) {
        why = refusal.message;
      }
      CHECK(why == "");
    }
  }
}

TEST_CASE("a unit that lacks a product says why") {
  GpuLimits limits;
  limits.no_unit["mma.bf16.f32"] = "so it is";
  const std::string text = printed(tensorized({64, 64, 64, "bf16", "f32", false, false}, {2, 2, 4, 2}), units_of(kWide), limits);
  CHECK(count(text, "// mma.bf16.f32: plain loops, since so it is\n") == 1);
  CHECK(count(text, "coopmat") == 0);
}
