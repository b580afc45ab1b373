// SPDX-License-Identifier: Apache-2.0
// float_mode.cpp -- results do not depend on the floating-point mode of the thread that calls, which stays as it is.
#include <narrows/ops.h>

#include <catch2/catch_test_macros.hpp>
#include <cfenv>
#include <narrows/narrows.hpp>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// out = a * b, of n floats each.
std::vector<float> product(const narrows::Runtime& runtime, float a, float b, int64_t n) {
  const size_t size = static_cast<size_t>(n);
  std::vector<float> x(size, a), y(size, b), out(size);
  nw_elementwise_params params{};
  params.function = NW_EW_MUL;
  runtime.run("elementwise", {x, y}, {out}, params);
  return out;
}

constexpr int64_t kMany = 1 << 20;  // of which each thread gets a share
constexpr float kSmall = 1e-38F, kTenth = 0.1F, kThird = 1 / 3.0F;

}  // namespace

#if defined(__x86_64__)
TEST_CASE("subnormal numbers are kept where the caller flushes them") {
  narrows::Options options;
  options.num_threads = 2;
  constexpr unsigned kFlush = 0x8040;  // FTZ and DAZ
  const std::vector<float> expected(kMany, kSmall * kTenth);
  for (const bool before_workers : {true, false}) {
    const narrows::Runtime runtime(options);
    if (!before_workers) CHECK(product(runtime, 1, 2, kMany) == std::vector<float>(kMany, 2));
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | kFlush);
    const std::vector<float> got = product(runtime, kSmall, kTenth, kMany);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    CHECK((after & 0xffc0) == ((before | kFlush) & 0xffc0));
    CHECK((got == expected));
  }
}
#endif

TEST_CASE("results are rounded to nearest where the caller rounds otherwise") {
  narrows::Options options;
  options.num_threads = 2;
  const std::vector<float> expected(kMany, kThird * kTenth);
  for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    const narrows::Runtime runtime(options);
    REQUIRE(std::fesetround(rounding) == 0);
    const std::vector<float> got = product(runtime, kThird, kTenth, kMany);
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(after == rounding);
    CHECK((got == expected));
  }
}
