// SPDX-License-Identifier: Apache-2.0
// numbers.cpp -- a number that stands for an operand has the bits that an element of a tensor would have. Backends of GPUs alone
// ask for them.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/elementwise.h"
#include "support/dtype.h"

using namespace narrows::common;
using namespace narrows::test;

namespace {

uint64_t element(DType dtype, Exact value) {
  unsigned char bytes[8] = {};
  store(dtype, value, bytes);
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

uint64_t low_bytes(DType dtype, uint64_t bits) {
  return item_size(dtype) == 8 ? bits : bits & ((uint64_t{1} << 8 * item_size(dtype)) - 1);
}

// The numbers of a dtype of 16 bits, what lies between neighbours, and what lies beside that; and numbers that are none.
std::vector<double> numbers(DType dtype) {
  std::vector<double> out = {
      std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), 1e300, -1e300, 1e-300, -1e-300};
  const auto at = [&](unsigned bits) {
    const auto element = static_cast<uint16_t>(bits);
    unsigned char bytes[2];
    std::memcpy(bytes, &element, sizeof(bytes));
    return static_cast<double>(load(dtype, bytes));
  };
  for (const unsigned sign : {0U, 0x8000U}) {
    for (unsigned bits = 0; std::isfinite(at(sign | bits)); ++bits) {
      const double here = at(sign | bits),
                   next = std::isfinite(at(sign | (bits + 1))) ? at(sign | (bits + 1)) : 2 * here - at(sign | (bits - 1));
      const double middle = (here + next) / 2;
      out.insert(out.end(), {here, middle, std::nextafter(middle, here), std::nextafter(middle, next)});
    }
  }
  return out;
}

}  // namespace

TEST_CASE("a number of a half is stored as an element is, and computed with as one") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto number = static_cast<int>(dtype);
    for (const double x : numbers(dtype)) {
      const Exact right = rounded(dtype, x);
      const uint64_t stored = stored_number_of(number, x, 7), computed = number_of(number, x, 7);
      if (stored == element(dtype, right) && computed == element(DType::f32, right)) continue;
      INFO(name(dtype) << ": " << x << " is stored as " << stored << ", expected " << element(dtype, right));
      FAIL("computed with as " << computed << ", expected " << element(DType::f32, right));
    }
    for (const double sign : {1.0, -1.0}) {
      const uint64_t stored = stored_number_of(number, std::copysign(std::nan(""), sign), 7);
      unsigned char bytes[8];
      std::memcpy(bytes, &stored, sizeof(bytes));
      CHECK(std::isnan(load(dtype, bytes)));
      CHECK(std::signbit(load(dtype, bytes)) == (sign < 0));
      CHECK(stored < 0x10000);
    }
  }
}

TEST_CASE("a number of any other dtype is stored as an element is") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double x : {0.0, -0.0, 1.5, -0.1, 1e-45, 3.5e38, -1e300, 16777217.0})
      for (const auto& bits : {number_of, stored_number_of})
        CHECK(bits(static_cast<int>(dtype), x, 7) == element(dtype, rounded(dtype, x)));
  for (const DType dtype : kIntDTypes)
    for (const Exact x : {lowest(dtype), Exact(0), Exact(1), Exact(100), largest(dtype)}) {
      const auto integer = x < 0 ? static_cast<int64_t>(x) : static_cast<int64_t>(static_cast<uint64_t>(x));
      for (const auto& bits : {number_of, stored_number_of})
        CHECK(low_bytes(dtype, bits(static_cast<int>(dtype), 0.5, integer)) == element(dtype, x));
    }
  for (const int64_t x : {0, 1, 2, -1, 256})
    for (const auto& bits : {number_of, stored_number_of}) CHECK(bits(NW_DTYPE_BOOL, 0.5, x) == (x != 0 ? 1 : 0));
}

TEST_CASE("what is computed in what, and what moves as bits") {
  for (const DType dtype : kAllDTypes) {
    const bool half = dtype == DType::f16 || dtype == DType::bf16;
    CHECK(compute_dtype(static_cast<int>(dtype)) == static_cast<int>(half ? DType::f32 : dtype));
    const auto bits = static_cast<DType>(bits_dtype(static_cast<int>(dtype)));
    CHECK(item_size(bits) == item_size(dtype));
    CHECK((dtype == DType::boolean ? bits == dtype : is_int(bits) && !is_signed_int(bits)));
  }
  for (int function = 1; function <= NW_EW_COPYSIGN; ++function)
    CHECK(moves_bits(function) == (function == NW_EW_WHERE || function == NW_EW_COPYSIGN));
}
