// SPDX-License-Identifier: Apache-2.0
// Matrices: gradients by a GPU's matrix unit, in calls so large that they take its large tiles, in slices, in whole stages and
// parts of them, beside the kernels without it, which the conformance suite judges.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "calls.h"
#include "opened.h"

namespace narrows::vulkan::test {
namespace {

constexpr DLDataType kHalves[] = {kF16, kBf16};

// Of f16 or bf16.
double number(DLDataType dtype, const unsigned char* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  const int digits = dtype.code == kDLFloat ? 10 : 7, most = dtype.code == kDLFloat ? 31 : 255;
  const int exponent = bits >> digits & most, fraction = bits & ((1 << digits) - 1), least = digits + most / 2 - 1;
  const double size = exponent == 0      ? std::ldexp(fraction, -least)
                      : exponent == most ? (fraction != 0 ? NAN : INFINITY)
                                         : std::ldexp(fraction + (1 << digits), exponent - 1 - least);
  return bits >> 15 != 0 ? -size : size;
}

// The outputs of a call by one of its op's variants; none where that declines it.
std::vector<Bytes> results(const Runtime& rt, const Call& call, const char* kernel) {
  Prepared prepared(rt, call, kernel);
  nw_error error{};
  const int32_t status = prepared.run(&error);
  INFO(error.message);
  CHECK((status == NW_OK || status == NW_UNSUPPORTED));
  return status == NW_OK ? prepared.outputs() : std::vector<Bytes>{};
}

// The dtypes of which the device multiplies matrices; without one, or on a CPU, whose unit is a loop, the test is skipped.
std::vector<DLDataType> dtypes(const Runtime& rt) {
  std::vector<DLDataType> all;
  for (const DLDataType dtype : kHalves)
    if (!results(rt, lltm_backward(dtype, 2, 8, 8), "coopmat").empty()) all.push_back(dtype);
  nw_vulkan_device device{};
  device.struct_size = sizeof device;
  REQUIRE(rt.vulkan->device(rt.vulkan->self, 0, &device, nullptr) == NW_OK);
  const PhysicalDevice physical(static_cast<VkInstance>(device.instance), static_cast<VkPhysicalDevice>(device.physical_device));
  if (all.empty() || physical.is_cpu()) SKIP("the device has no matrix unit, or is a CPU, whose unit is a loop");
  return all;
}

// Two roundings to 16 bits, and what sums of thousands of f32 lose where they cancel.
void check_close(DLDataType dtype, const std::vector<Bytes>& got, const std::vector<Bytes>& expected) {
  REQUIRE(got.size() == expected.size());
  const double ulp = dtype.code == kDLFloat ? 0x1p-10 : 0x1p-7;
  for (size_t i = 0; i < got.size(); ++i) {
    REQUIRE(got[i].size() == expected[i].size());
    double largest = 0;
    size_t wrong = 0;
    for (size_t at = 0; at < got[i].size(); at += 2) largest = std::max(largest, std::fabs(number(dtype, &expected[i][at])));
    for (size_t at = 0; at < got[i].size(); at += 2) {
      const double value = number(dtype, &expected[i][at]);
      wrong += !(std::fabs(number(dtype, &got[i][at]) - value) <= 2 * ulp * std::fabs(value) + 0x1p-16 * largest);
    }
    INFO("output " << i << ": " << wrong << " of " << got[i].size() / 2 << " elements differ; the largest is " << largest);
    CHECK(wrong == 0);
    CHECK((got[i].empty() || largest > 0));
  }
}

TEST_CASE("matrices: conv1d's gradient of w alone, in large tiles and slices", "[matrices]") {
  const Runtime rt(here());
  const nw_conv1d_params padded{.pad_left = 1, .pad_right = 1};
  const Conv whole{2, 128, 4096, 128, 3, padded}, parts{3, 130, 1001, 140, 3, padded}, one_tap{2, 256, 2048, 136, 1, {}},
      strided{2, 128, 4097, 128, 3, {.stride = 2}}, groups{2, 160, 2048, 160, 5, {.groups = 2, .pad_left = 2, .pad_right = 2}};
  for (const DLDataType dtype : dtypes(rt))
    for (const Conv& conv : {whole, parts, one_tap, strided, groups}) {
      Call call = conv1d_backward(dtype, conv);
      call.outputs[0] = call.outputs[2] = {};
      INFO(conv.batch << " x " << conv.channels << " x " << conv.length << ", dtype " << int{dtype.code});
      CHECK(std::strcmp(Prepared(rt, call).plan().kernel, "coopmat") == 0);
      check_close(dtype, results(rt, call, "coopmat"), results(rt, call, "gemm"));
    }
}

TEST_CASE("matrices: lltm_backward in large tiles and slices", "[matrices]") {
  const Runtime rt(here());
  const int64_t sizes[][3] = {{256, 512, 512}, {2048, 128, 256}, {300, 264, 520}, {301, 259, 523}, {1, 8, 264}, {700, 0, 64}};
  for (const DLDataType dtype : dtypes(rt)) {
    CHECK(std::strcmp(Prepared(rt, lltm_backward(dtype, 256, 512, 512)).plan().kernel, "coopmat") == 0);
    CHECK(std::strcmp(Prepared(rt, lltm_backward(dtype, 16, 32, 64)).plan().kernel, "tiled") == 0);
    for (const auto& [batch, features, states] : sizes) {
      INFO(batch << " x " << features << " and " << states << ", dtype " << int{dtype.code});
      const Call call = lltm_backward(dtype, batch, features, states);
      check_close(dtype, results(rt, call, "coopmat"), results(rt, call, "tiled"));
    }
  }
}

}  // namespace
}  // namespace narrows::vulkan::test
