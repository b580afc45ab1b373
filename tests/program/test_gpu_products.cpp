// SPDX-License-Identifier: Apache-2.0
// test_gpu_products.cpp -- loops that are marked as a matrix unit's products, on a GPU's plugin beside the reference: by the unit
// where the backend has one, by plain loops elsewhere.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/program/auto.h"
#include "gpu_program.h"
#include "tensorized.h"

using Catch::Matchers::ContainsSubstring;

namespace {

DType dtype_of(const std::string& name) { return name == "f16" ? DType::f16 : name == "bf16" ? DType::bf16 : DType::f32; }

std::vector<narrows::reference::Exact> relu_of_product(const Product& product, std::vector<Tensor>& inputs) {
  std::vector<std::vector<double>> values(2);
  for (size_t i = 0; i < 2; ++i)
    for (int64_t e = 0; e < inputs[i].elements(); ++e) values[i].push_back(static_cast<double>(inputs[i].exact(e)));
  const auto a = [&](int64_t m, int64_t k) { return values[0][product.a_across ? k * product.m + m : m * product.k + k]; };
  const auto b = [&](int64_t k, int64_t n) { return values[1][product.b_across ? n * product.k + k : k * product.n + n]; };
  std::vector<narrows::reference::Exact> out;
  for (int64_t m = 0; m < product.m; ++m)
    for (int64_t n = 0; n < product.n; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < product.k; ++k) sum += a(m, k) * b(k, n);
      out.push_back(std::max(sum, 0.0));
    }
  return out;
}

// Runs the schedule's program, and compares with the product.
void expect_right(const Product& product, const std::string& scheduled, int64_t step, unsigned seed = 1) {
  INFO(scheduled << "step " << step);
  const DType factor = dtype_of(product.factor), result = dtype_of(product.result);
  const auto shape = [](bool across, int64_t rows, int64_t columns) {
    return across ? std::vector<int64_t>{columns, rows} : std::vector<int64_t>{rows, columns};
  };
  std::vector<Tensor> inputs{Tensor(factor, shape(product.a_across, product.m, product.k), step),
                             Tensor(factor, shape(product.b_across, product.k, product.n), step)};
  std::vector<Tensor> outputs{Tensor(result, {product.m, product.n}, step)};
  inputs[0].fill(seed);
  inputs[1].fill(seed + 1);
  const double tolerance = result == DType::f32 ? 1e-4 : result == DType::f16 ? 2e-3 : 1.6e-2;
  const narrows::reference::Array want{result, {product.m, product.n}, relu_of_product(product, inputs), {}, {}};
  const Answer answer = Call{plugin(), scheduled, pointers(inputs), pointers(outputs), nullptr, {}}.run();
  INFO(answer.message);
  REQUIRE(answer);
  expect_close("C", outputs[0], want, tolerance);
}

// Two ranges of k that a block takes into shared memory at a time. Vulkan's plain loops have one: lavapipe ends a thread's loops
// after 65,535 iterations.
int64_t staged_depth() { return plugin().device().device_type == kDLVulkan ? 32 : 64; }

}  // namespace

TEST_CASE("a tensorized product is right in shared memory, whichever way its factors lie") {
  for (const char* const dtype : {"f16", "bf16"})
    for (const bool a_across : {false, true})
      for (const bool b_across : {false, true}) {
        const Product product{64, 64, staged_depth(), dtype, dtype, a_across, b_across};
        expect_right(product, tensorized(product, {2, 2, 4, 2}), a_across == b_across ? 1 : 2);
      }
}

TEST_CASE("a tensorized product is right if its factors are copied ahead, in panels, whichever way they lie") {
  // In one iteration and in several, fewer and more than there are stages. Four warps may compute together; two may not.
  const bool is_short = plugin().device().device_type == kDLVulkan;
  for (const int64_t stages : {2, 3, 4})
    for (const int64_t iterations : is_short ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2, 5})
      for (const int64_t warps : {4, 2}) {
        Tiles tiles{warps, 1, 8, staged_depth() / 16};
        tiles.padding = 0;
        tiles.stages = stages;
        const bool a_across = iterations == 2, b_across = iterations != 5;
        const char* const dtype = stages == 3 ? "bf16" : "f16";
        const Product product{64, 64, staged_depth() * iterations, dtype, "f32", a_across, b_across};
        expect_right(product, tensorized(product, tiles), 1);
      }
  if (is_short) return;
  Tiles wide{8, 1, 16, 4};
  wide.padding = 0;
  wide.stages = 4;
  for (const bool across : {false, true}) {
    const Product product{256, 128, 192, "f16", "f16", across, across};
    expect_right(product, tensorized(product, wide), 1);
  }
}

TEST_CASE("copies that run ahead bring each iteration its elements, in runs of any width") {
  // Each thread reads what another one has copied.
  const auto text = [](const std::string& dtype, int64_t run, const std::string& stages, const std::string& pad, bool is_plain) {
    const auto number = [](int64_t value) { return std::to_string(value); };
    const std::string sizes = "[6, " + number(5 * 16 * run) + "]", length = number(5 * run);
    const std::string head = "program 1 f(X: " + dtype + sizes + ", Y: out f32[6, 16]):\n",
                      block = "block Y(vi: S(6) = i, vj: S(16) = j, ";
    const std::string sum = "Y[vi, vj] = Y[vi, vj] + f32(" + std::string(is_plain ? "X" : "S") + "[vi, vk * 16 + (15 - vj)])\n";
    if (is_plain)
      return head + "  for i in 6:\n    for j in 16:\n      for k in " + length + ":\n        " + block + "vk: R(" + length +
             ") = k):\n          init:\n            Y[vi, vj] = f32(0)\n          " + sum;
    return head + "  alloc S: " + dtype + sizes + " shared" + pad +
           "\n  for i in 6 bind block.x:\n    for j0 in 16 bind thread.x:\n" +
           "      block Z(vi: S(6) = i, vj: S(16) = j0):\n        Y[vi, vj] = f32(0)\n    for k in 5 pipeline " + stages +
           ":\n      for t in 16 bind thread.x:\n        for l in " + number(run) +
           " vectorize:\n          block S(vi: S(6) = i, vk: S(" + number(5 * 16 * run) + ") = k * " + number(16 * run) +
           " + (t * " + number(run) + " + l)):\n            S[vi, vk] = X[vi, vk]\n" +
           "      for j in 16 bind thread.x:\n        for u in " + number(run) + ":\n          " + block + "vk: R(" + length +
           ") = k * " + number(run) + " + u):\n            " + sum;
  };
  const std::vector<std::tuple<DType, std::string, std::vector<int64_t>>> all{
      {DType::f32, "f32", {1, 2, 4, 8}}, {DType::f16, "f16", {1, 2, 8}}, {DType::i8, "i8", {1, 2, 16}}};
  for (const auto& [dtype, name, runs] : all)
    for (const int64_t run : runs)
      for (const char* const stages : {"2", "4", "8"}) {
        const std::string pad = std::string(stages) == "4" ? " pad [0, 4]" : "";  // then a stage is no multiple of 16 bytes
        std::vector<Tensor> inputs{filled(dtype, {6, 5 * 16 * run}, 1)}, outputs{Tensor(DType::f32, {6, 16})};
        const std::string plain = text(name, run, stages, pad, true);
        expect_right(text(name, run, stages, pad, false), inputs, outputs, {}, 1e-4, plain);
      }
}

TEST_CASE("a tensorized product is right wherever its sums and factors lie") {
  Tiles tiles{2, 1, 2, 1};
  tiles.scope = "shared";
  tiles.is_staged = false;  // factors are the tensors themselves, with any strides
  const Product product{64, 32, 48, "f16", "f32", false, false};
  for (const int64_t step : {1, 3, -1}) expect_right(product, tensorized(product, tiles), step);
  const Product across{64, 32, 48, "bf16", "f32", true, true};
  expect_right(across, tensorized(across, tiles), 1);
  for (const char* const scope : {"global", "local"}) {
    tiles.scope = scope;
    expect_right(product, tensorized(product, tiles), 1);
  }
  tiles.padding = 3;  // rows at odd addresses: element by element
  tiles.is_staged = true;
  expect_right(product, tensorized(product, tiles), 1);
  // 256 x 64 sums are more than shared memory has.
  const Product large{256, 64, 32, "f16", "f16", false, false};
  expect_right(large, tensorized(large, {16, 1, 8, 1}), 1);
}

TEST_CASE("a product that is tensorized adds to its output, from several loops") {
  // The sums are a tensor of the caller's, which two nests of one kernel add to; each warp has its rows.
  const std::string plain = R"(program 1 f(A: f16[64, 32], B: f16[32, 16], D: f16[32, 16], Y: inout f32[64, 16]):
  for i in 64:
    for j in 16:
      for k in 32:
        block Y(vi: S(64) = i, vj: S(16) = j, vk: R(32) = k):
          Y[vi, vj] = Y[vi, vj] + f32(A[vi, vk]) * f32(B[vk, vj])
  for i1 in 64:
    for j1 in 16:
      for k1 in 32:
        block Z(vi: S(64) = i1, vj: S(16) = j1, vk: R(32) = k1):
          Y[vi, vj] = Y[vi, vj] + f32(D[vk, vj]) * f32(A[vi, vk])
)";
  const std::string text = R"(program 1 f(A: f16[64, 32], B: f16[32, 16], D: f16[32, 16], Y: inout f32[64, 16]):
  for b in 2 bind block.x:
    for l0 in 32 bind thread.x:
      for w0 in 2 bind thread.y:
        for h in 8:
          block H(vi: S(64) = b * 32 + l0, vj: S(16) = w0 * 8 + h):
            Y[vi, vj] = Y[vi, vj] * f32(1)
    for w in 2 bind thread.y:
      for k0 in 2:
        for j0 in 2:
          for i in 16 tensorize "mma.f16.f32":
            for j in 8:
              for k in 16:
                block Y(vi: S(64) = b * 32 + w * 16 + i, vj: S(16) = j0 * 8 + j, vk: R(32) = k0 * 16 + k):
                  Y[vi, vj] = Y[vi, vj] + f32(A[vi, vk]) * f32(B[vk, vj])
      for k2 in 2:
        for k1 in 16 tensorize "mma.f16.f32":
          for j1 in 16:
            for i1 in 8:
              block Z(vi: S(64) = b * 32 + w * 16 + i1, vj: S(16) = j1, vk: R(32) = k2 * 16 + k1):
                Y[vi, vj] = Y[vi, vj] + f32(D[vk, vj]) * f32(A[vi, vk])
        for k3 in 16 tensorize "mma.f16.f32":
          for j3 in 16:
            for i3 in 8:
              block Z2(vi: S(64) = b * 32 + w * 16 + 8 + i3, vj: S(16) = j3, vk: R(32) = k2 * 16 + k3):
                Y[vi, vj] = Y[vi, vj] + f32(D[vk, vj]) * f32(A[vi, vk])
)";
  std::vector<Tensor> inputs{filled(DType::f16, {64, 32}, 1), filled(DType::f16, {32, 16}, 2), filled(DType::f16, {32, 16}, 3),
                             filled(DType::f32, {64, 16}, 4)};
  std::vector<Tensor> outputs{Tensor(DType::f32, {64, 16})};
  expect_right(text, inputs, outputs, {}, 1e-4, plain);
}

TEST_CASE("a product that fits no warp or no tile is right by plain loops") {
  Tiles tiles{2, 1, 1, 1};
  tiles.lanes_y = 4;
  const Product product{32, 8, 32, "f16", "f32", false, false};
  expect_right(product, tensorized(product, tiles), 1);
  const Product odd{33, 10, 17, "bf16", "f32", false, false};
  tiles.lanes_y = 8;
  tiles.fits = false;
  expect_right(odd, tensorized(odd, tiles), 1);
  tiles.is_bound = false;
  tiles.fits = true;
  expect_right(product, tensorized(product, tiles), 1);
}

TEST_CASE("the default schedule for a device with a matrix unit tensorizes products that its tiles fit") {
  const auto scheduled = [](const Product& product) {
    narrows::program::Schedule schedule(narrows::program::parse(text_of_product(product)));
    narrows::program::schedule_for_gpu(&schedule, true);
    CHECK_NOTHROW(schedule.require_scopes());
    return narrows::program::print(schedule.program());
  };
  for (const bool across : {false, true}) {
    const Product product{128, 64, staged_depth(), across ? "bf16" : "f16", across ? "f32" : "f16", across, across};
    const std::string text = scheduled(product);
    CHECK_THAT(text, ContainsSubstring("tensorize \"mma." + product.factor + ".f32\""));
    expect_right(product, text, 1);
  }
  for (const char* const part : {"for i_1 in 8 bind thread.z", "for j_1 in 32", "pipeline 4"})
    CHECK_THAT(scheduled({4096, 4096, 64, "f16", "f16", false, false}), ContainsSubstring(part));
  for (const Product& product :
       {Product{128, 64, 40, "f16", "f16", false, false}, Product{128, 64, 64, "f32", "f32", false, false}})
    CHECK_THAT(scheduled(product), !ContainsSubstring("tensorize") && ContainsSubstring("bind thread.x"));
}

TEST_CASE("the default schedule tensorizes a product whose sums are its output") {
  const int64_t depth = staged_depth();
  const std::string k = std::to_string(depth);
  const std::string plain = "program 1 mm(A: f16[64, " + k + "], B: f16[" + k + ", 64], Y: out f32[64, 64]):\n" + R"(  for i in 64:
    for j in 64:
      for k in )" + k + R"(:
        block Y(vi: S(64) = i, vj: S(64) = j, vk: R()" +
                            k + R"() = k):
          init:
            Y[vi, vj] = f32(0.5)
          Y[vi, vj] = Y[vi, vj] + f32(A[vi, vk]) * f32(B[vk, vj])
)";
  narrows::program::Schedule schedule(narrows::program::parse(plain));
  narrows::program::schedule_for_gpu(&schedule, true);
  const std::string text = narrows::program::print(schedule.program());
  CHECK_THAT(text, ContainsSubstring("tensorize"));
  std::vector<Tensor> inputs{filled(DType::f16, {64, depth}, 1), filled(DType::f16, {depth, 64}, 2)},
      outputs{Tensor(DType::f32, {64, 64})};
  expect_right(text, inputs, outputs, {}, 1e-4, plain);
}
