// SPDX-License-Identifier: Apache-2.0
// harness_test.cpp -- the measure is measured: what the comparison and the canaries must not let pass.
#include <catch2/catch_test_macros.hpp>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#include "floating_point.h"
#include "harness.h"
#include "patterns.h"

using namespace narrows::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool passes(DType dtype, const std::vector<double>& got, const std::vector<double>& ref, const Tolerance& tolerance) {
  Tensor t(dtype, {static_cast<int64_t>(got.size())});
  t.set(got);
  return difference(t, ref, tolerance).empty();
}

// Overwrites one byte of device memory, `at` bytes from element 0, as a wrong kernel would.
void scribble(const Tensor& t, int64_t at, unsigned char byte) {
  char* to = static_cast<char*>(t.dl()->data) + t.dl()->byte_offset + at;
  REQUIRE(nw_copy(runtime(), device(), to, {kDLCPU, 0}, &byte, 1, nullptr, nullptr) == NW_OK);
}

const Tolerance kLoose{.rtol = 1, .atol = 1e6};

}  // namespace

TEST_CASE("comparison: NaN fails unless the reference is NaN", "[harness]") {
  for (const DType dtype : kFloatDTypes) {
    CHECK_FALSE(passes(dtype, {1, kNaN}, {1, 2}, kLoose));
    CHECK_FALSE(passes(dtype, {1, 2}, {1, kNaN}, kLoose));
    CHECK(passes(dtype, {1, kNaN}, {1, kNaN}, kExact));
    CHECK_FALSE(passes(dtype, {1, 1}, {1, 1.5}, {.rtol = kNaN}));  // a NaN in the bound does not open it
  }
}

TEST_CASE("comparison: infinity matches the same infinity only", "[harness]") {
  for (const DType dtype : kFloatDTypes) {
    CHECK(passes(dtype, {kInf, -kInf}, {kInf, -kInf}, kExact));
    CHECK_FALSE(passes(dtype, {kInf}, {-kInf}, kLoose));
    CHECK_FALSE(passes(dtype, {kInf}, {1e3}, {.rtol = 1}));
    CHECK_FALSE(passes(dtype, {1e3}, {kInf}, {.rtol = 1, .atol = 1e300}));
  }
}

TEST_CASE("comparison: overflow follows the dtype", "[harness]") {
  CHECK(passes(DType::f16, {kInf}, {65520}, {.ulps = 0}));        // rounds to infinity
  CHECK_FALSE(passes(DType::f16, {kInf}, {65519}, {.ulps = 0}));  // rounds to 65504
  CHECK(passes(DType::f16, {65504}, {65519}, {.ulps = 0.5}));
  CHECK_FALSE(passes(DType::f16, {65504}, {1e5}, {.ulps = 1}));
  CHECK(passes(DType::f32, {kInf}, {1e39}, {.ulps = 1}));
}

TEST_CASE("comparison: one wrong element among large values fails", "[harness]") {
  std::vector<double> got(10000, 1e6), ref(10000, 1e6);
  got[1234] = 1e-3;
  ref[1234] = 2e-3;
  CHECK_FALSE(passes(DType::f32, got, ref, {.rtol = 1e-4}));
  std::vector<double> off(1000), right(1000);  // each within atol, all of them to one side
  for (size_t i = 0; i < off.size(); ++i) {
    right[i] = 1e-3;
    off[i] = 1.5e-3;
  }
  CHECK_FALSE(passes(DType::f32, off, right, {.rtol = 1e-3, .atol = 1e-3}));
}

TEST_CASE("comparison: ulps are the dtype's", "[harness]") {
  const double next = 1 + 0x1p-10;
  CHECK(passes(DType::f16, {next}, {1}, {.ulps = 1}));
  CHECK_FALSE(passes(DType::f16, {next}, {1}, {.ulps = 0.9}));
  CHECK_FALSE(passes(DType::f32, {next}, {1}, {.ulps = 8191}));
  CHECK(passes(DType::f32, {0x1p-149}, {0}, {.ulps = 1}));
  CHECK_FALSE(passes(DType::f32, {0x2p-149}, {0}, {.ulps = 1}));
}

TEST_CASE("comparison: the sign of zero counts where asked", "[harness]") {
  CHECK_FALSE(passes(DType::f32, {0.0}, {-0.0}, kExact));
  CHECK(passes(DType::f32, {0.0}, {-0.0}, {}));
}

TEST_CASE("comparison: 64-bit integers keep every bit", "[harness]") {
  Tensor t(DType::u64, {2});
  const Exact top = largest(DType::u64);
  t.set(std::vector<Exact>{top, top - 1});
  CHECK(difference(t, std::vector<Exact>{top, top - 1}, kExact).empty());
  CHECK_FALSE(difference(t, std::vector<Exact>{top, top}, kExact).empty());
}

TEST_CASE("comparison: another number of elements fails", "[harness]") {
  CHECK_FALSE(passes(DType::f32, {1, 2}, {1}, kLoose));
  CHECK(passes(DType::f32, {}, {}, kExact));
}

TEST_CASE("an output that was never written is noticed", "[harness]") {
  for (const DType dtype : kAllDTypes) {
    Tensor t(dtype, {3, 5}, Layout::strided(2));
    t.poison();
    CHECK(t.is_stale(7));
    const auto ref = dtype == DType::boolean || is_int(dtype) ? std::vector<double>(15, 1) : std::vector<double>(15, 1.25);
    const std::string text = difference(t, ref, {.rtol = 1e-3});
    CHECK(text.find("never written") != std::string::npos);
  }
}

TEST_CASE("canaries: a store before, after or between the elements is noticed", "[harness]") {
  for (const Layout& layout : all_layouts(2, DType::f32)) {
    Tensor t(DType::f32, {3, 4}, layout);
    t.poison();
    CHECK(t.damage().empty());
    int64_t low = 0, high = 0;
    for (int axis = 0; axis < 2; ++axis) {
      const int64_t stride = (t.dl()->strides != nullptr ? t.dl()->strides[axis] : axis == 0 ? 4 : 1) * 4;
      (stride < 0 ? low : high) += stride * (t.shape()[axis] - 1);
    }
    for (const int64_t at : {low - 1, low - 200, high + 4, high + 200}) {
      scribble(t, at, 0x11);
      CHECK_FALSE(t.damage_outside_elements().empty());
      CHECK_FALSE(t.damage().empty());
      t.poison();
    }
    scribble(t, 0, 0x11);
    CHECK(t.damage_outside_elements().empty());
    CHECK_FALSE(t.damage().empty());
  }
  Tensor gaps(DType::f32, {8}, Layout::strided(2));
  gaps.poison();
  scribble(gaps, 4, 0x11);
  CHECK_FALSE(gaps.damage_outside_elements().empty());
}

TEST_CASE("values survive every layout", "[harness]") {
  for (const DType dtype : kAllDTypes) {
    for (const Layout& layout : all_layouts(3, dtype)) {
      Rng rng("values survive");
      Tensor t(dtype, {2, 3, 5}, layout);
      t.fill_uniform(rng, 0, 1);
      const auto once = t.exact();
      t.set(once);
      CHECK(difference(t, once, kExact).empty());
      const auto address = reinterpret_cast<uintptr_t>(t.dl()->data) + t.dl()->byte_offset;
      if (device().device_type == kDLCPU) CHECK(address % 16 == (layout.misalign + layout.byte_offset) % 16);
    }
  }
}

TEST_CASE("16-bit rounding is to nearest, ties to even", "[harness]") {
  CHECK(rounded(DType::f16, 2049) == 2048);
  CHECK(rounded(DType::f16, 2051) == 2052);
  CHECK(rounded(DType::f16, 0x1p-25) == 0);
  CHECK(rounded(DType::f16, 0x1.8p-25) == 0x1p-24);
  CHECK(rounded(DType::f16, 65519.99L) == 65504);
  CHECK(std::isinf(rounded(DType::f16, 65520)));
  CHECK(rounded(DType::bf16, 257) == 256);
  CHECK(rounded(DType::bf16, 259) == 260);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {  // every pattern is its own fixed point
    for (const DType dtype : {DType::f16, DType::bf16}) {
      unsigned char from[2] = {static_cast<unsigned char>(bits), static_cast<unsigned char>(bits >> 8)}, to[2];
      const Exact value = load(dtype, from);
      store(dtype, value, to);
      if (std::isnan(value) ? !std::isnan(load(dtype, to)) : std::memcmp(from, to, 2) != 0)
        FAIL_CHECK(name(dtype) << " 0x" << std::hex << bits);
    }
  }
  float one = 1.5f;  // bf16 is the upper half of f32
  uint32_t word;
  std::memcpy(&word, &one, 4);
  unsigned char half[2] = {static_cast<unsigned char>(word >> 16), static_cast<unsigned char>(word >> 24)};
  CHECK(load(DType::bf16, half) == 1.5);
  const unsigned char f16_third[2] = {0x55, 0x35};  // 0x3555 is the f16 nearest to 1/3
  unsigned char made[2];
  store(DType::f16, Exact(1) / 3, made);
  CHECK(std::memcmp(made, f16_third, 2) == 0);
}

namespace {

Result negate(const Tensor& a, Tensor& out, const char* kernel = nullptr) {
  nw_elementwise_params p{};
  p.function = NW_EW_NEG;
  return run("elementwise", {&a}, {&out}, p, kernel);
}

}  // namespace

TEST_CASE("a variant counts as run when it was forced and did run", "[harness]") {
  expect_offered("elementwise");
  Tensor a(DType::f32, {64}), out(DType::f32, {64});
  a.set(std::vector<double>(64, 1));
  expect_refused(negate(a, out, "unheard of"), NW_UNSUPPORTED, -1, {"unheard of"});
  std::set<std::string> ran;
  take_tally();
  for (const char* kernel : kernels("elementwise"))
    if (negate(a, out, kernel).ok() && kernel != nullptr) ran.insert(std::string("elementwise/") + kernel);
  CHECK(take_tally().variants == ran);
  CHECK((!ran.empty() || kernels("elementwise").size() == 1));
  CHECK(kernels("no such op").size() == 1);
}

TEST_CASE("patterns: hidden tests are run where a pattern says so, and not where a tag of theirs does", "[harness]") {
  CHECK(without_hidden("") == "");
  CHECK(without_hidden("*") == "~[.]*");
  CHECK(without_hidden("[conv1d],[lltm]~[backward]") == "~[.][conv1d],~[.][lltm]~[backward]");
  CHECK(without_hidden("[.huge]") == "[.huge]");
  CHECK(without_hidden("[bench][conv1d],conv1d*") == "[bench][conv1d],~[.]conv1d*");
  CHECK(without_hidden("huge: lltm with an input of more than 2^31 elements") ==
        "huge: lltm with an input of more than 2^31 elements");
  CHECK(without_hidden("a\\, b,\"c, d\"") == "~[.]a\\, b,\"c, d\"");  // names with commas
  CHECK(without_hidden(",") == ",");                                  // as between the lines of a file of names
}

TEST_CASE("bytes are shown as numbers, of any length", "[harness]") {
  const auto shown = [](const std::vector<unsigned char>& bytes) { return Catch::Detail::stringify(bytes); };
  CHECK(shown({}) == "0 bytes:");
  CHECK(shown({0x1B, '[', 0xC3, 0}) == "4 bytes: 1B 5B C3 00");
  CHECK(shown(std::vector<unsigned char>(65, 0x1B)).substr(0, 12) == "65 bytes: 1B");
  CHECK(shown(std::vector<unsigned char>(65, 0x1B)).size() == 9 + 64 * 3 + 4);
}

TEST_CASE("the floating-point mode: a change is told and put right", "[harness]") {
  const FloatingPointMode mode;
  CHECK(mode.change() == "");
  std::fesetround(FE_UPWARD);
  CHECK(mode.change().find("the floating-point mode was changed") == 0);
  CHECK(mode.change() == "");
  CHECK(std::fegetround() == FE_TONEAREST);
}

TEST_CASE("layouts: rows with padding, the gaps between them apart from the elements", "[harness]") {
  const Tensor rows(DType::f32, {8, 5}, Layout::padded()), longer(DType::f32, {5, 8}, Layout::padded()),
      two(DType::f32, {3, 4}, Layout::padded(7));
  CHECK(std::vector<int64_t>(rows.dl()->strides, rows.dl()->strides + 2) == std::vector<int64_t>{8, 1});
  CHECK(std::vector<int64_t>(longer.dl()->strides, longer.dl()->strides + 2) == std::vector<int64_t>{9, 1});
  CHECK(std::vector<int64_t>(two.dl()->strides, two.dl()->strides + 2) == std::vector<int64_t>{7, 1});
  Tensor gaps(DType::f32, {2, 2}, Layout::padded(3));
  gaps.set(std::vector<double>{1, 2, 3, 4});
  gaps.fill_gaps_nan();
  CHECK(gaps.values() == std::vector<double>{1, 2, 3, 4});
  scribble(gaps, 8, 0);
  CHECK(gaps.damage_outside_elements() != "");
}

// Verdicts that must fail their test: Catch2 counts each of these as passed only if it fails.
TEST_CASE("expect_close fails on a wrong element", "[harness][!shouldfail]") {
  Tensor a(DType::f32, {3}), out(DType::f32, {3});
  a.set(std::vector<double>{1, 2, 3});
  expect_close(negate(a, out), out, std::vector<double>{-1, -2, 3}, {.rtol = 1e-3});
}
TEST_CASE("expect_close fails on a refused call", "[harness][!shouldfail]") {
  Tensor a(DType::f32, {3}), out(DType::f32, {4});
  expect_close(negate(a, out), out, out.exact(), kExact);
}
TEST_CASE("expect_refused fails on a call that succeeds", "[harness][!shouldfail]") {
  Tensor a(DType::f32, {3}), out(DType::f32, {3});
  expect_refused(negate(a, out), NW_INVALID, 1, {});
}
TEST_CASE("expect_refused fails on another argument", "[harness][!shouldfail]") {
  Tensor a(DType::f32, {3}), out(DType::f32, {4});
  expect_refused(negate(a, out), NW_INVALID, 0, {});
}
TEST_CASE("expect_refused fails on a message without the word", "[harness][!shouldfail]") {
  Tensor a(DType::f32, {3}), out(DType::f32, {4});
  expect_refused(negate(a, out), NW_INVALID, 1, {"pomegranate"});
}
