// SPDX-License-Identifier: Apache-2.0
// The functions of f32 where fma() rounds once, as lavapipe's does not: by a module whose fma() is a stand-in for NVIDIA's.
#include <narrows/ops.h>

#include <cmath>
#include <cstring>
#include <random>

#include "opened.h"
#include "reference/elementwise.h"

namespace narrows::vulkan::test {
namespace {

using narrows::test::DType;
using narrows::test::Exact;

// What such an fma() does exactly: quotients, roots, products in two parts, angles. `ulps` as in the conformance suite.
struct Row {
  int32_t function;
  double ulps, subnormal = 0;
  float most = INFINITY;  // of the size of an operand
  uint32_t count = 40'000;
};
constexpr double kIeee = 0.5 + 0x1p-9;
constexpr Row kRows[] = {{NW_EW_FMA, kIeee},       {NW_EW_DIV, kIeee},      {NW_EW_RECIPROCAL, kIeee},
                         {NW_EW_SQRT, kIeee},      {NW_EW_RSQRT, 1.5},      {NW_EW_FMOD, 0},
                         {NW_EW_REMAINDER, kIeee}, {NW_EW_SIN, 4, 0, 2e5f}, {NW_EW_COS, 4, 0, 2e5f},
                         {NW_EW_TAN, 4, 0, 2e5f},  {NW_EW_POW, 4},          {NW_EW_HYPOT, 4},
                         {NW_EW_ATAN2, 4},         {NW_EW_EXP, 4},          {NW_EW_EXPM1, 4},
                         {NW_EW_LOG1P, 4},         {NW_EW_ASINH, 4},        {NW_EW_ASIN, 4},
                         {NW_EW_TANH, 4},          {NW_EW_ERFC, 4},         {NW_EW_ERFC, 4, 0, 12, 400'000},
                         {NW_EW_SILU, 6},          {NW_EW_GELU, 6, 40},     {NW_EW_GELU, 6, 40, 20, 400'000},
                         {NW_EW_GELU_TANH, 6}};

// Of f32: half of all sizes, half about 1, each with its neighbours among them; special values come first, each with each.
std::vector<float> operands(size_t n, size_t place, float most) {
  const float specials[] = {0,          -0.0f,     1,        -1,      0.5f,          -2,       3,         0x1p-149f,
                            -0x1p-127f, 0x1p-126f, 0x1p-63f, 0x1p63f, 3.4028234e38f, INFINITY, -INFINITY, NAN,
                            1.88728154f};  // where erfc() was off by 4.2 units once
  constexpr size_t kSpecials = std::size(specials);
  std::mt19937 random(static_cast<uint32_t>(place) + 1);
  std::uniform_real_distribution<float> near(-110, 110);
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random());
    std::memcpy(&values[i], &bits, 4);
    if (i % 2 == 0) values[i] = near(random);
    if (i % 4 == 0) values[i] /= static_cast<float>(1 + (i / 4) % 4096);
    if (i < kSpecials * kSpecials)
      values[i] = specials[(place == 0 ? i : place == 1 ? i / kSpecials : i + i / kSpecials) % kSpecials];
    if (std::fabs(values[i]) > most) values[i] = near(random) * most / 110;
  }
  return values;
}

std::vector<uint32_t> words_of(DType dtype, const std::vector<float>& values) {
  std::vector<uint32_t> words(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    narrows::test::store(dtype, narrows::test::rounded(dtype, values[i]), reinterpret_cast<unsigned char*>(&words[i]));
  return words;
}
Exact value_of(DType dtype, uint32_t word) { return narrows::test::load(dtype, reinterpret_cast<const unsigned char*>(&word)); }

bool is_right(DType dtype, Exact got, Exact exact, const Row& row) {
  const Exact rounded = narrows::test::rounded(dtype, exact);
  if (std::isnan(rounded) || std::isinf(rounded) || std::isinf(got))
    return std::isnan(rounded) ? std::isnan(got) : got == rounded || std::fabs(exact) > 0.999999L * narrows::test::largest(dtype);
  const double ulps = dtype == DType::f32 ? row.ulps : row.ulps <= 1 ? kIeee + 0x1p-8 : 0.75;
  const Exact bound = ulps * narrows::test::ulp(dtype, exact) + row.subnormal * narrows::test::smallest_subnormal(dtype);
  return std::fabs(got - exact) <= bound && (exact != 0 || std::signbit(got) == std::signbit(exact));
}

TEST_CASE("functions: within their bounds where fma() rounds once and takes subnormal numbers for 0", "[kernels][functions]") {
  Opened opened;
  if (!opened.physical.features.shaderFloat64) SKIP("the stand-in is of f64");
  if (opened.physical.fma_rounds_once) SKIP("this device's own fma() rounds once: the conformance suite has the functions with it");
  opened.physical.fma_rounds_once = true;
  Stream& stream = *opened->stream(nullptr);
  for (const Row& row : kRows)
    for (const DType dtype : {DType::f32, DType::f16}) {
      const reference::Function& function = reference::function(row.function);
      CAPTURE(function.name, narrows::test::name(dtype));
      std::vector<uint32_t> all;
      for (size_t place = 0; place < 3; ++place) {
        const std::vector<uint32_t> each = words_of(dtype, operands(row.count, place, row.most));
        all.insert(all.end(), each.begin(), each.end());
      }
      const Words words(*opened, all);
      const struct {
        Address words;
        uint32_t count, padding;
      } push{words.address, row.count, 0};
      const Kernel kernel =
          opened->kernels().get(shaders::functions, {static_cast<uint32_t>(row.function), static_cast<uint32_t>(dtype)});
      stream.record([&](Recorder& recorder) { recorder.dispatch(kernel, push, ceil_div(int64_t{row.count}, 64)); });
      const std::vector<uint32_t> got = words.read(stream);
      size_t wrong = 0;
      for (size_t i = 0; i < row.count; ++i) {
        const Exact x = value_of(dtype, all[i]), y = value_of(dtype, all[row.count + i]),
                    z = value_of(dtype, all[2 * row.count + i]);
        const Exact result = value_of(dtype, got[i]), exact = reference::apply(function, dtype, {.a = x, .b = y, .c = z});
        if (is_right(dtype, result, exact, row)) continue;
        if (wrong++ == 0) UNSCOPED_INFO("of " << x << ", " << y << " and " << z << ": " << result << ", not " << exact);
      }
      CHECK(wrong == 0);
    }
}

}  // namespace
}  // namespace narrows::vulkan::test
