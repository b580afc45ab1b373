// SPDX-License-Identifier: Apache-2.0
// kit_test.cpp -- the C++ kit for CUDA, compiled for HIP: its plugin's devices, memory, streams, copies and launches.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <narrows/narrows.hpp>
#include <string>
#include <vector>

namespace {

constexpr DLDevice kGpu{kDLROCM, 0};
constexpr DLDataType kFloat{kDLFloat, 32, 1};

struct Params {
  float factor;
};

// Where the plugin is the one that serves the device, whatever else lies beside libnarrows.
narrows::Runtime with_kit() {
  narrows::Runtime runtime;
  runtime.load(KIT_PLUGIN);
  return runtime;
}

std::vector<float> scaled(const std::vector<float>& x, float factor) {
  std::vector<float> y;
  for (const float value : x) y.push_back(factor * value);
  return y;
}

std::vector<float> numbers(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) - 3.5F;
  return x;
}

}  // namespace

TEST_CASE("a plugin in CUDA is one of HIP's devices", "[kit]") {
  const narrows::Runtime runtime = with_kit();
  const nw_backend_info* found = nullptr;
  const auto backends = runtime.backends();
  for (const nw_backend_info& b : backends)
    if (std::strcmp(b.name, "kit_on_hip") == 0) found = &b;
  REQUIRE(found != nullptr);
  CHECK(found->status == NW_OK);
  CHECK(found->device_type == kDLROCM);
  CHECK(std::string(runtime.device(kGpu).arch) == "emulated");
}

TEST_CASE("its ops compute on HIP's memory and streams", "[kit]") {
  const narrows::Runtime runtime = with_kit();
  const narrows::Stream stream(runtime, kGpu);
  narrows::CallOptions options;
  options.backend = "kit_on_hip";
  options.stream = stream.get();
  for (const size_t n : {size_t{1}, size_t{255}, size_t{256}, size_t{1000}}) {
    const std::vector<float> x = numbers(n);
    const narrows::Buffer in(runtime, kFloat, {static_cast<int64_t>(n)}, kGpu),
        out(runtime, kFloat, {static_cast<int64_t>(n)}, kGpu);
    in.write(x.data());
    runtime.run("kit.scale/1", {in}, {out}, Params{2.5F}, options);
    stream.sync();
    std::vector<float> y(n);
    out.read(y.data());
    CHECK(y == scaled(x, 2.5F));
  }
}

namespace {

// x as (11, 7): what was (7, 11), turned; and its first row again and again.
struct Turned {
  narrows::Runtime runtime = with_kit();
  std::vector<float> x = numbers(7 * 11), y = x;
  narrows::Buffer in{runtime, kFloat, {7, 11}, kGpu}, out{runtime, kFloat, {11, 7}, kGpu};
  narrows::Tensor turned{in.data(), kFloat, {11, 7}, {1, 11}, kGpu}, row{in.data(), kFloat, {11, 7}, {0, 1}, kGpu};

  void run(const char* op, narrows::Tensors inputs, narrows::Params params) {
    narrows::CallOptions options;
    options.backend = "kit_on_hip";
    in.write(x.data());
    runtime.run(op, inputs, {out}, params, options);
    out.read(y.data());
  }
};

}  // namespace

TEST_CASE("tensors with gaps are copied by a kernel of the kit", "[kit]") {
  Turned t;
  t.run("kit.scale/1", {t.turned}, Params{3});
  for (size_t i = 0; i < 11; ++i)
    for (size_t j = 0; j < 7; ++j) CHECK(t.y[i * 7 + j] == 3.0F * t.x[j * 11 + i]);
}

TEST_CASE("a kernel walks tensors of any strides together", "[kit]") {
  Turned t;
  t.run("kit.add/1", {t.turned, t.row}, {});
  for (size_t i = 0; i < 11; ++i)
    for (size_t j = 0; j < 7; ++j) CHECK(t.y[i * 7 + j] == t.x[j * 11 + i] + t.x[j]);
}

TEST_CASE("a device that is not there is named", "[kit]") {
  const narrows::Runtime runtime = with_kit();
  CHECK_THROWS_WITH(runtime.device({kDLROCM, 7}), Catch::Matchers::ContainsSubstring("7"));
}
