// SPDX-License-Identifier: Apache-2.0
// What is planned for a GPU and not for a CPU that plays one: tiles that are larger, more elements a thread, other variants. Where
// the device is a CPU it says that it is one, and what it gives is compared with what it gives as a CPU.
#include <algorithm>
#include <cmath>
#include <utility>

#include "calls.h"
#include "driver.h"
#include "opened.h"

namespace narrows::vulkan::test {
namespace {

struct Case {
  Call call;
  bool tiled;   // of so many elements that a GPU takes the large tiles
  bool rounds;  // to what depends on the order of sums; else the bits are the same
};

constexpr DLDataType kDTypes[] = {kF32, kF64, kF16};

std::vector<Case> cases(DLDataType dtype) {
  const auto tensor = [&](const Shape& shape, const Shape& strides = {}) { return Tensor{dtype, shape, strides}; };
  const Tensor run = tensor({20'003}), rows = tensor({70, 404}), transposed = tensor({70, 404}, {1, 70}), row = tensor({404});
  std::vector<Case> all;
  const auto add = [&](const char* name, Call call, bool tiled = false, bool rounds = false) {
    call.name = std::string(call.op) + ", " + name + " of " + std::to_string(dtype.bits) + " bits";
    all.push_back({std::move(call), tiled, rounds});
  };
  add("a run", elementwise(NW_EW_ADD, {run, run}, run));
  add("a heavy function", elementwise(NW_EW_TANH, {run}, run));
  add("rows", elementwise(NW_EW_MUL, {rows, row}, rows));
  add("transposed", elementwise(NW_EW_MUL, {transposed, row}, rows));
  add("a run and a number", elementwise(NW_EW_MUL, {run, {}}, run, 3));
  add("rows and a number", elementwise(NW_EW_FMA, {rows, row, {}}, rows, 3));
  add("transposed and a number", elementwise(NW_EW_MUL, {transposed, {}}, rows, 3));
  add("transposed, a heavy function", elementwise(NW_EW_TANH, {transposed}, rows));
  add("three dimensions, transposed", elementwise(NW_EW_NEG, {tensor({70, 3, 40}, {1, 2'870, 70})}, tensor({70, 3, 40})));
  add("four dimensions", elementwise(NW_EW_NEG, {tensor({5, 7, 9, 31}, {40'000, 4'000, 320, 2})}, tensor({5, 7, 9, 31})));
  add("every second element", elementwise(NW_EW_MUL, {tensor({5'003}, {2}), tensor({5'003})}, tensor({5'003})));
  add("three columns", elementwise(NW_EW_MUL, {tensor({700, 3}, {4, 1}), tensor({3})}, tensor({700, 3})));
  add("a transposed mask", elementwise(NW_EW_WHERE, {{kBool, {70, 404}, {1, 70}}, transposed, row}, rows));
  add("maps", elementwise_backward(NW_EW_MUL, {run, run}, run));
  add("transposed and a number", elementwise_backward(NW_EW_MUL, {transposed, {}}, rows, false, 3));
  add("rows", elementwise_backward(NW_EW_DIV, {transposed, tensor({70, 1})}, rows));
  add("transposed", elementwise_backward(NW_EW_CLAMP, {transposed, rows, transposed}, rows));
  add("sums", elementwise_backward(NW_EW_MUL, {tensor({512, 600}), tensor({600})}, tensor({512, 600})));

  const Conv dense{2, 8, 4'101, 130, 3, {.pad_left = 1, .pad_right = 1}}, strided{2, 8, 8'203, 130, 3, {.stride = 2}},
      inputs{2, 70, 8'195, 8, 3, {}}, depthwise{2, 6, 1'100, 6, 4, {.groups = 6, .pad_left = 3}};
  add("depthwise", conv1d(dtype, depthwise));
  add("depthwise", conv1d_backward(dtype, depthwise));
  add("few cells", lltm(dtype, 33, 20, 40));
  add("more cells", lltm(dtype, 160, 3, 110));
  add("few cells", lltm_backward(dtype, 33, 20, 40));
  if (dtype.bits == 16) return all;  // of f32's tiles, whose pipelines take lavapipe seconds
  add("dense", conv1d(dtype, dense), true);
  add("strided", conv1d(dtype, strided));
  add("dense", conv1d_backward(dtype, dense), true);
  add("many inputs", conv1d_backward(dtype, inputs), true);
  add("many cells", lltm(dtype, 8'200, 5, 90), true);
  add("many cells", lltm_backward(dtype, 8'200, 5, 90), true, true);
  return all;
}

struct Given {
  std::string kernel;
  uint64_t specialized;  // the pipelines that it was the first to need
  bool by_pairs;         // as the newest pipeline computes
  std::vector<Bytes> outputs;
};

constexpr uint32_t kPairs = 16;  // PAIRS of shaders/elementwise_loop.glsl

std::vector<Given> results(const Said& said, const std::vector<Case>& cases) {
  const Driver driver(said);
  const Runtime rt(here());
  std::vector<Given> all;
  for (const Case& c : cases) {
    Prepared prepared(rt, c.call);
    nw_error error{};
    const uint64_t before = driver.specialized();
    const int32_t status = prepared.run(&error);
    INFO(c.call.name << ": " << error.message);
    REQUIRE(status == NW_OK);
    all.push_back({prepared.plan().kernel, driver.specialized() - before, driver.constant(kPairs) == 1, prepared.outputs()});
  }
  return all;
}

double number(const unsigned char* from, const DLDataType& dtype) {
  const auto as = [&](auto value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  return dtype.bits == 64 ? as(double{}) : as(float{});
}

// The largest difference, in parts of the largest number.
double difference(const Bytes& a, const Bytes& b, const DLDataType& dtype) {
  REQUIRE(a.size() == b.size());
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); i += dtype.bits / 8) {
    const double x = number(&a[i], dtype), y = number(&b[i], dtype);
    if (!std::isfinite(x) || !std::isfinite(y)) return HUGE_VAL;
    most = std::max(most, std::abs(x - y)), largest = std::max(largest, std::abs(x));
  }
  return most / largest;
}

TEST_CASE("plans: what is planned for a GPU gives what is planned for a CPU", "[plans]") {
  if (!Opened().physical.is_cpu()) SKIP("on a GPU everything is planned for it: a device that is a CPU says that it is none");
  for (const DLDataType dtype : kDTypes) {
    const std::vector<Case> all = cases(dtype);
    const std::vector<Given> as_cpu = results({}, all), as_gpu = results({.as_discrete = true}, all);
    for (size_t i = 0; i < all.size(); ++i) {
      const Given &cpu = as_cpu[i], &gpu = as_gpu[i];
      INFO(all[i].call.name << ", kernels '" << cpu.kernel << "' and '" << gpu.kernel << "'");
      if (all[i].tiled) CHECK(cpu.specialized != gpu.specialized);
      if (!all[i].rounds) CHECK((cpu.outputs == gpu.outputs));
      const double tolerance = dtype.bits == 64 ? 1e-13 : 1e-5;
      for (size_t k = 0; k < cpu.outputs.size() && all[i].rounds; ++k)
        CHECK(difference(cpu.outputs[k], gpu.outputs[k], dtype) <= tolerance);
    }
  }
}

// By pairs where the driver is NVIDIA's, whose conversions are known; the functions' own steps are the same.
TEST_CASE("plans: pairs of f16 are what single elements are", "[plans]") {
  if (!Opened().physical.is_cpu())
    SKIP(
        "a GPU computes either pairs or single elements, and cannot be compared with itself: the conformance suite judges what it "
        "does");
  const Tensor run{kF16, {20'003}}, whole{kF16, {64, 128}}, row{kF16, {128}}, column{kF16, {64, 1}};
  std::vector<Case> all;
  const auto add = [&](const char* name, Call call) {
    call.name = name;
    all.push_back({std::move(call), false, false});
  };
  add("a run", elementwise(NW_EW_ADD, {run, run}, run));
  add("whole vectors", elementwise(NW_EW_MAXIMUM, {whole, whole}, whole));
  add("a number for b", elementwise(NW_EW_MUL, {run, {}}, run, 3));
  add("a number for c", elementwise(NW_EW_FMA, {run, run, {}}, run, 3));
  add("rows", elementwise(NW_EW_SUB, {whole, row}, whole));
  add("a column", elementwise(NW_EW_MUL, {whole, column}, whole));
  add("a function", elementwise(NW_EW_TANH, {run}, run));
  add("elu's alpha", elementwise(NW_EW_ELU, {run}, run, 0.5));
  for (const bool as_discrete : {false, true}) {
    const std::vector<Given> single = results({.as_discrete = as_discrete}, all),
                             pairs = results({.as_discrete = as_discrete, .as_nvidia = true}, all);
    for (size_t i = 0; i < all.size(); ++i) {
      INFO(all[i].call.name);
      CHECK_FALSE(single[i].by_pairs);
      CHECK(pairs[i].by_pairs);
      CHECK((single[i].outputs == pairs[i].outputs));
    }
  }
}

}  // namespace
}  // namespace narrows::vulkan::test
