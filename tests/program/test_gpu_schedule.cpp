// SPDX-License-Identifier: Apache-2.0
// test_gpu_schedule.cpp -- the default schedule of GPUs: which tiles products get, and how rows are shared out. What the programs
// then compute is test_gpu_program.cpp's and test_gpu_products.cpp's matter.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/program/auto.h"
#include "schedules.h"
#include "tensorized.h"

using Catch::Matchers::ContainsSubstring;

namespace {

std::string for_gpu(const std::string& text, bool has_unit = true) {
  narrows::program::Schedule out(narrows::program::parse(text));
  narrows::program::schedule_for_gpu(&out, has_unit);
  CHECK_NOTHROW(out.require_scopes());
  return narrows::program::print(out.program());
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  INFO(text);
  for (const std::string& part : parts) CHECK_THAT(text, ContainsSubstring(part));
}

}  // namespace

TEST_CASE("a product for a matrix unit gets the largest tile that leaves enough blocks") {
  struct Row {
    int64_t rows, columns, depth;
    std::vector<std::string> parts;  // blocks, warps, products side by side and along k
  };
  const Row all[] = {
      {4096, 4096, 64, {"in 32 bind block.y", "in 16 bind block.x", "in 8 bind thread.z", "for j_1 in 32:", "for k_1 in 4:"}},
      {2048, 1024, 64, {"in 16 bind block.y", "in 8 bind block.x", "in 8 bind thread.z", "for j_1 in 16:", "for k_1 in 4:"}},
      {1024, 1024, 64, {"in 16 bind block.y", "in 8 bind block.x", "in 4 bind thread.z", "for j_1 in 16:", "for k_1 in 4:"}},
      {128, 192, 64, {"in 2 bind block.y", "in 3 bind block.x", "in 4 bind thread.z", "for j_1 in 8:", "for k_1 in 4:"}},
      {64, 64, 96, {"in 1 bind block.y", "in 1 bind block.x", "in 4 bind thread.z", "for j_1 in 8:", "for k_1 in 2:"}}};
  for (const Row& row : all) {
    const std::string text = for_gpu(text_of_product({row.rows, row.columns, row.depth, "f16", "f16", false, false}));
    expect_parts(text, row.parts);
    expect_parts(text, {"in 8 bind thread.x", "in 4 bind thread.y", "pipeline 4", "tensorize \"mma.f16.f32\""});
  }
  // Rows of whole panels are not padded, others are.
  CHECK_THAT(for_gpu(text_of_product({64, 64, 96, "bf16", "f32", false, false})),
             ContainsSubstring("A_shared: bf16[64, 96] shared pad [0, 8]"));
  CHECK_THAT(for_gpu(text_of_product({64, 64, 64, "bf16", "f32", false, false})),
             ContainsSubstring("A_shared: bf16[64, 64] shared\n"));
  CHECK_THAT(for_gpu(text_of_product({64, 64, 64, "f16", "f16", false, false}), false), !ContainsSubstring("tensorize"));
}

TEST_CASE("a product of f32 gets large tiles where there are many, and copies ahead where tiles are whole") {
  const std::string large = for_gpu(text_of_product({2048, 1024, 64, "f32", "f32", false, false}));
  expect_parts(
      large, {"in 16 bind block.y", "in 8 bind block.x", "for k_0 in 4 pipeline 3:", "in 8 unroll", "in 2 unroll", "in 4 vectorize",
              "A_shared: f32[2048, 64] shared pad [0, 4]", "B_shared: f32[64, 1024] shared\n", "{\"contract\": \"true\"}"});
  const std::string small = for_gpu(text_of_product({1024, 1024, 64, "f32", "f32", false, false}));
  expect_parts(small, {"in 16 bind block.y", "in 16 bind block.x", "for k_0 in 4 pipeline 3:", "in 4 unroll", "in 4 vectorize",
                       "A_shared: f32[1024, 64] shared pad [0, 4]"});
  const std::string partial = for_gpu(text_of_product({1024, 1024, 72, "f32", "f32", false, false}));
  expect_parts(partial, {"in 16 bind block.y", "in 16 bind block.x", "for k_0 in 5:", "in 4 unroll"});
}

TEST_CASE("a row that several blocks read is kept by its threads") {
  const auto softmax = [](const std::string& columns) {
    std::string text = read_file(std::filesystem::path(TEXTS) / "softmax.program");
    const std::pair<std::string, std::string> sizes[] = {
        {"[M, N]", "[6, " + columns + "]"}, {"[M]", "[6]"}, {"(M)", "(6)"},
        {"(N)", "(" + columns + ")"},       {" M:", " 6:"}, {" N:", " " + columns + ":"}};
    for (const auto& [from, to] : sizes)
      for (size_t at = text.find(from); at != std::string::npos; at = text.find(from)) text.replace(at, from.size(), to);
    return for_gpu(text);
  };
  expect_parts(softmax("4096"), {"x_local: f32[6, 4096] local", "in 256 bind thread.x", "in 4 unroll", "in 4 vectorize"});
  CHECK_THAT(softmax("1000"), !ContainsSubstring("x_local"));   // no whole runs for all threads
  CHECK_THAT(softmax("32768"), !ContainsSubstring("x_local"));  // more than a thread keeps
}
