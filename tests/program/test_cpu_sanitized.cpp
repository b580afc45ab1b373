// SPDX-License-Identifier: Apache-2.0
// test_cpu_sanitized.cpp -- a fault that AddressSanitizer has to see in what the cpu backend compiled. It ends its process.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "examples.h"

namespace {

const char* const kPlusOne =
    "program 1 f(A: f32[N], C: out f32[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n      C[vi] = A[vi] + f32(1)\n";

}  // namespace

TEST_CASE("a compiled program that is told of one element more than there is", "[.fault]") {
  std::vector<float> memory(21);
  Tensor a(kF, {22}), c(kF, {22});
  a.outside = reinterpret_cast<unsigned char*>(memory.data());
  (void)Call{plugin(), kPlusOne, {&a}, {&c}, "compiled"}.run();
}
