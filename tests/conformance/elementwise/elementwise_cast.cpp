// SPDX-License-Identifier: Apache-2.0
// elementwise_cast.cpp -- cast between all thirteen dtypes: to nearest even into floating point, saturating into integers,
// NaN to 0, anything but 0 to true.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "elementwise_cases.h"
#include "support/bool_bytes.h"

using namespace narrows::test;

namespace {

nw_elementwise_params cast_to(DType to) {
  nw_elementwise_params p{};
  p.function = NW_EW_CAST;
  p.out_dtype = static_cast<int32_t>(to);
  return p;
}

void check_cast(const Tensor& a, DType to, const Layout& layout = {}) {
  std::vector<Exact> reference = a.exact();
  for (Exact& v : reference) v = narrows::reference::cast(a.dtype(), to, v);
  Tensor out(to, a.shape(), layout);
  for (const char* kernel : kernels("elementwise")) {
    const Result result = run_params(cast_to(to), {&a}, out, kernel);
    if (!result.was_declined()) expect_close(result, out, reference, {.zero_sign = is_float(to)});
  }
}

// The limits of every dtype, and what lies just inside and outside of them, as far as `from` can hold it.
std::vector<Exact> interesting(DType from) {
  std::vector<Exact> values{0, 1, 2, 3, 100};
  const auto add = [&](Exact v) {
    if (is_float(from))
      values.push_back(rounded(from, v));
    else if (v == std::trunc(v) && v >= lowest(from) && v <= largest(from))
      values.push_back(v);
  };
  for (const DType to : kAllDTypes)
    for (const Exact limit : {largest(to), lowest(to)})
      for (const Exact off :
           {0.0L, 0.5L, -0.5L, 1.0L, -1.0L, 2.0L, -2.0L, limit / 0x1p9L, limit / 0x1p24L, limit, -limit / 0x1p12L})
        add(limit + off);
  for (const Exact v : {0.5L, -0.5L, 0.999L, -0.999L, 1.5L, 2.5L, -1.5L, 0x1p-30L, -1.0L, -2.0L, 1e10L, -1e10L}) add(v);
  for (const int bits : {8, 11, 24, 53}) {  // ties of every significand, and one bit beside them
    const Exact unit = std::ldexp(Exact(1), bits);
    for (const Exact off : {1.0L, 2.0L, 3.0L, 5.0L, 6.0L, 7.0L}) {
      add(unit + off);
      add(-(unit + off));
    }
  }
  if (is_float(from)) values.insert(values.end(), special_values(from).begin(), special_values(from).end());
  return values;
}

}  // namespace

TEST_CASE("cast: all 13 x 13 pairs of dtypes at their limits", "[elementwise][cast]") {
  for (const DType from : kAllDTypes) {
    std::vector<Exact> values = interesting(from);
    if (from == DType::boolean) values.assign(std::begin(kBoolBytes), std::end(kBoolBytes));
    for (int i = 0; i < 3; ++i) values.push_back(values[i]);  // an odd size
    Tensor a(from, {static_cast<int64_t>(values.size())});
    a.set(values);
    for (const DType to : kAllDTypes) check_cast(a, to);
  }
}

TEST_CASE("bool: a cast gives 0 and 1 for any byte", "[elementwise][cast]") {
  const std::vector<Exact> bytes = {0, 1, 2, 127, 128, 255}, truths = {0, 1, 1, 1, 1, 1};
  std::vector<Exact> values, reference;
  for (int i = 0; i < 13; ++i) {
    values.insert(values.end(), bytes.begin(), bytes.end());
    reference.insert(reference.end(), truths.begin(), truths.end());
  }
  for (const Layout& layout : {Layout::contiguous(), Layout::transposed(), Layout::strided(2)})
    for (const DType to : kAllDTypes)
      for (const char* kernel : kernels("elementwise")) {
        Tensor a(DType::boolean, {6, 13}, layout), out(to, {6, 13}, layout);
        a.set(values);
        const Result result = run_params(cast_to(to), {&a}, out, kernel);
        if (!result.was_declined()) expect_close(result, out, reference, kExact);
      }
}

TEST_CASE("cast: any bit pattern, strided and misaligned", "[elementwise][cast]") {
  for (const DType from : kAllDTypes) {
    Rng rng("cast bits", static_cast<uint64_t>(from));
    for (const Layout& layout :
         {Layout::contiguous(), Layout::strided(3), Layout::contiguous().with_misalignment(1), Layout::reversed()}) {
      Tensor a(from, {5, 211}, layout);
      a.fill_bits(rng);
      for (const DType to : kAllDTypes) check_cast(a, to, layout);
    }
  }
}

TEST_CASE("cast: f64 and i64 round once on the way to 16 bits", "[elementwise][cast]") {
  // Through f32 the tail is lost first, and the tie that is left goes to even.
  Tensor a(DType::f64, {2}), f16(DType::f16, {2}), bf16(DType::bf16, {2});
  a.set(std::vector<double>{1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40});
  expect_close(run_params(cast_to(DType::f16), {&a}, f16), f16, std::vector<Exact>{1 + 0x1p-10, 1 + 0x1p-8}, kExact);
  expect_close(run_params(cast_to(DType::bf16), {&a}, bf16), bf16, std::vector<Exact>{1, 1 + 0x1p-7}, kExact);
  Tensor i(DType::i64, {1}), out(DType::bf16, {1});
  i.set(std::vector<Exact>{0x1p40L + 0x1p32L + 1});
  expect_close(run_params(cast_to(DType::bf16), {&i}, out), out, std::vector<Exact>{0x1p40L + 0x1p33L}, kExact);
}

TEST_CASE("cast: every f16 and bf16 value to every dtype", "[elementwise][cast]") {
  for (const DType from : {DType::f16, DType::bf16}) {
    Tensor a(from, {65536});
    std::vector<Exact> all;
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const unsigned char bytes[2] = {static_cast<unsigned char>(bits), static_cast<unsigned char>(bits >> 8)};
      all.push_back(load(from, bytes));
    }
    a.set(all);
    for (const DType to : kAllDTypes) check_cast(a, to);
  }
}
