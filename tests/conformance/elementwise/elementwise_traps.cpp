// SPDX-License-Identifier: Apache-2.0
// elementwise_traps.cpp -- the mistakes that docs/ops.md names for elementwise, one test each: what kernels of this kind get
// wrong in the wild.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>

#include "elementwise_cases.h"

using namespace narrows::test;
using narrows::reference::function;

namespace {

void check_add(DType dtype, const Shape& a, const Shape& b, const std::vector<Layout>& layouts = {}, const Layout& out = {}) {
  check({function(NW_EW_ADD), dtype, {a, b}, narrows::reference::broadcast_shape(a, b), layouts, out}, "trap");
}

}  // namespace

TEST_CASE("trap: tails that x4 and x8 kernels leave unwritten, shapes (3,1026) and (4,6)", "[elementwise][trap]") {
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::boolean) continue;
    check_add(dtype, {3, 1026}, {3, 1026});
    check_add(dtype, {4, 6}, {4, 6});
  }
}

TEST_CASE("trap: stores past the end of the output", "[elementwise][trap]") {
  // Every residue modulo the widest vector of the narrowest dtype; run() looks at the bytes behind the last element.
  for (int64_t n = 1; n <= 130; ++n)
    for (const DType dtype : {DType::f32, DType::f16, DType::u8}) check_add(dtype, {n}, {n});
}

TEST_CASE("trap: loads before the bounds are checked", "[elementwise][trap]") {
  // NaN behind and before the operands must not reach the results, nor trap: the pattern around each tensor is finite, so the
  // tensors here lie within a larger one that is all NaN.
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t n : {1, 3, 5, 9, 17, 31, 33}) {
      Tensor outer(dtype, {n + 64}), out(dtype, {n});
      std::vector<Exact> values(n + 64, kNaN);
      for (int64_t i = 0; i < n; ++i) values[32 + i] = static_cast<Exact>(i);
      outer.set(values);
      const Tensor inner(outer, dtype, {n}, {1}, 32 * item_size(dtype));
      std::vector<Exact> reference(n);
      for (int64_t i = 0; i < n; ++i) reference[i] = 2 * static_cast<Exact>(i);
      for (const char* kernel : kernels("elementwise")) {
        const Result result = run_function(function(NW_EW_ADD), {&inner, &inner}, out, kernel);
        if (!result.was_declined()) expect_close(result, out, reference, kExact);
      }
    }
  }
}

TEST_CASE("trap: a launch of zero threads when a row is shorter than a vector", "[elementwise][trap]") {
  for (const DType dtype : {DType::f32, DType::f16, DType::i8})
    for (const int64_t k : {1, 2, 3, 5, 7})
      check_add(dtype, {1000, k}, {1000, k}, {Layout::with_steps({2}), Layout::with_steps({3})});
}

TEST_CASE("trap: more than 65535 rows", "[elementwise][trap]") {
  check_add(DType::f32, {70001, 3}, {70001, 3}, {Layout::with_steps({2})}, Layout::with_steps({2}));
  check_add(DType::f16, {70001, 2}, {2}, {Layout::transposed()});
  check_add(DType::i32, {70001, 1}, {1, 3});
}

TEST_CASE("trap: XLA's A[i] = B[i % 128] + C[i] is (16,128) + (128)", "[elementwise][trap]") {
  for (const DType dtype : kFloatDTypes) check_add(dtype, {16, 128}, {128});
  Tensor c(DType::f32, {16, 128}), b(DType::f32, {128}), out(DType::f32, {16, 128});
  std::vector<double> rising(2048), cycle(128), reference(2048);
  for (int i = 0; i < 2048; ++i) rising[i] = i;
  for (int i = 0; i < 128; ++i) cycle[i] = 10000 + i;
  for (int i = 0; i < 2048; ++i) reference[i] = i + 10000 + i % 128;
  c.set(rising);
  b.set(cycle);
  expect_close(run_function(function(NW_EW_ADD), {&c, &b}, out), out, reference, kExact);
}

TEST_CASE("trap: sizes counted in 32 bits", "[elementwise][trap]") {
  // 2^31 + 5 elements in one byte of memory: shape and strides alone must carry 64 bits. The output is inferred, not made.
  Tensor a(DType::u8, {1});
  a.set(std::vector<double>{1});
  int64_t shape[1] = {(int64_t{1} << 31) + 5}, strides[1] = {0};
  DLTensor huge = *a.dl();
  huge.shape = shape;
  huge.strides = strides;
  const DLTensor* inputs[1] = {&huge};
  const nw_elementwise_params p = params_for(function(NW_EW_NEG));
  Call call("elementwise", {}, {}, p);
  call.raw.num_inputs = 1;
  call.raw.inputs = inputs;
  nw_spec spec{};
  nw_error error{};
  REQUIRE(nw_infer(runtime(), &call.raw, &spec, 1, &error) == NW_OK);
  CHECK(spec.shape[0] == shape[0]);
}

TEST_CASE("trap: an operand with more than 2^31 elements", "[elementwise][trap][large]") {
  // 2^31 + 5 results of one byte; the input is one element with stride 0.
  expect_offered("elementwise");
  if (device().device_type != kDLCPU) SKIP("memory of this size is a matter of each device's own suite");
  const int64_t n = (int64_t{1} << 31) + 5;
  Tensor a(DType::u8, {1});
  a.set(std::vector<double>{7});
  void* memory = nullptr;
  nw_error error{};
  const int32_t status = nw_alloc(runtime(), device(), static_cast<uint64_t>(n) + 1, nullptr, &memory, &error);
  REQUIRE(status == NW_OK);
  auto* bytes = static_cast<unsigned char*>(memory);
  bytes[n] = 0xC7;
  int64_t shape[1] = {n}, zero_stride[1] = {0};
  DLTensor in = *a.dl(), out = *a.dl();
  in.shape = out.shape = shape;
  in.strides = zero_stride;
  out.strides = nullptr;
  out.data = memory;
  out.byte_offset = 0;
  const DLTensor *inputs[1] = {&in}, *outputs[1] = {&out};
  const nw_elementwise_params p = params_for(function(NW_EW_BITWISE_NOT));
  Call call("elementwise", {}, {}, p);
  call.raw.num_inputs = call.raw.num_outputs = 1;
  call.raw.inputs = inputs;
  call.raw.outputs = outputs;
  CHECK(nw_run(runtime(), &call.raw, &error) == NW_OK);
  // All bytes alike: the first is right, and the rest equals itself shifted by one.
  CHECK(bytes[0] == 0xF8);
  CHECK(std::memcmp(bytes, bytes + 1, static_cast<size_t>(n) - 1) == 0);
  CHECK(bytes[n] == 0xC7);
  nw_free(runtime(), device(), memory, nullptr, nullptr);
}

TEST_CASE("trap: no check of shape, alignment or device", "[elementwise][trap]") {
  const nw_elementwise_params p = params_for(function(NW_EW_ADD));
  Tensor a(DType::f32, {8}), b(DType::f32, {7}), c(DType::f32, {8}), out(DType::f32, {8});
  expect_refused(run_params(p, {&a, &b}, out), NW_INVALID, 1, {"(8,)", "(7,)", "broadcast"});
  check_add(DType::f32, {33}, {33}, {Layout{}.with_misalignment(1), Layout{}.with_misalignment(2)}, Layout{}.with_misalignment(3));
  c.dl()->device = {device().device_type == kDLCPU ? kDLCUDA : kDLCPU, 0};
  expect_refused(run_params(p, {&a, &c}, out), NW_INVALID, 1, {"expected one device"});
}

TEST_CASE("trap: fast-math that flushes subnormals or loses NaN and signed zero", "[elementwise][trap]") {
  for (const DType dtype : kFloatDTypes) {
    const Exact tiny = smallest_subnormal(dtype), normal = std::ldexp(Exact(1), float_format(dtype).min_exponent);
    std::vector<Exact> a, b, sum, product;
    for (int lane = 0; lane < 41; ++lane) {
      for (const Exact v : {tiny, 3 * tiny, normal - tiny, normal, -tiny}) {
        a.push_back(v);
        b.push_back(tiny);
        sum.push_back(v + tiny);
        product.push_back(v * 2);
      }
    }
    const auto n = static_cast<int64_t>(a.size());
    Tensor x(dtype, {n}), y(dtype, {n}), two(dtype, {1}), out(dtype, {n});
    x.set(a);
    y.set(b);
    two.set(std::vector<double>{2});
    for (const char* kernel : kernels("elementwise")) {
      if (const Result r = run_function(function(NW_EW_ADD), {&x, &y}, out, kernel); !r.was_declined())
        expect_close(r, out, sum, kExact);
      if (const Result r = run_function(function(NW_EW_MUL), {&x, &two}, out, kernel); !r.was_declined())
        expect_close(r, out, product, kExact);
      if (const Result r = run_function(function(NW_EW_ABS), {&x}, out, kernel); !r.was_declined())
        expect_close(r, out, expected(function(NW_EW_ABS), {&x}, {n}), kExact);
      Tensor is(DType::boolean, {n});
      if (const Result r = run_function(function(NW_EW_EQ), {&x, &two}, is, kernel); !r.was_declined())
        expect_close(r, is, std::vector<double>(n, 0), kExact);
      if (const Result r = run_function(function(NW_EW_LOGICAL_NOT), {&x}, is, kernel); !r.was_declined())
        expect_close(r, is, std::vector<double>(n, 0), kExact);
    }
  }
}

TEST_CASE("trap: comparisons that take subnormals for 0", "[elementwise][trap]") {
  for (const DType dtype : kFloatDTypes) {
    const Exact tiny = smallest_subnormal(dtype), below = std::ldexp(Exact(1), float_format(dtype).min_exponent) - tiny;
    const std::vector<Exact> values = {tiny, 3 * tiny, below, -tiny, -3 * tiny, -below, 0};
    std::vector<Exact> a, b;
    for (const Exact x : values)
      for (const Exact y : values) a.push_back(x), b.push_back(y);
    const auto n = static_cast<int64_t>(a.size());
    Tensor x(dtype, {n}), y(dtype, {n});
    x.set(a);
    y.set(b);
    for (const int32_t number : {NW_EW_MAXIMUM, NW_EW_MINIMUM, NW_EW_ATAN2, NW_EW_ELU, NW_EW_RELU, NW_EW_SIGN, NW_EW_EQ, NW_EW_NE,
                                 NW_EW_LT, NW_EW_LE, NW_EW_GT, NW_EW_GE, NW_EW_LOGICAL_AND, NW_EW_LOGICAL_XOR}) {
      const Function& f = function(number);
      const std::vector<const Tensor*> operands =
          f.operands == 1 ? std::vector<const Tensor*>{&x} : std::vector<const Tensor*>{&x, &y};
      Tensor out(f.gives_bool ? DType::boolean : dtype, {n});
      for (const char* kernel : kernels("elementwise"))
        if (const Result r = run_function(f, operands, out, kernel); !r.was_declined())
          expect_close(r, out, expected(f, operands, {n}), tolerance(f, dtype));
    }
  }
}

TEST_CASE("trap: f16 arithmetic rounded after every step instead of once", "[elementwise][trap]") {
  // a*b is 1 + 2^-9 + 2^-20; rounded to f16 it is 1 + 2^-9, and nothing is left when c is added.
  Tensor a(DType::f16, {9}), b(DType::f16, {9}), c(DType::f16, {9}), out(DType::f16, {9});
  a.set(std::vector<double>(9, 1 + 0x1p-10));
  b.set(std::vector<double>(9, 1 + 0x1p-10));
  c.set(std::vector<double>(9, -1 - 0x1p-9));
  for (const char* kernel : kernels("elementwise")) {
    const Result result = run_function(function(NW_EW_FMA), {&a, &b, &c}, out, kernel);
    if (!result.was_declined()) expect_close(result, out, std::vector<Exact>(9, 0x1p-20L), kExact);
  }
}

TEST_CASE("trap: cancellation in expm1, log1p, sinh, tanh, asinh and atanh near 0", "[elementwise][trap]") {
  for (const int32_t number :
       {NW_EW_EXPM1, NW_EW_LOG1P, NW_EW_SINH, NW_EW_TANH, NW_EW_ASINH, NW_EW_ATANH, NW_EW_ELU, NW_EW_ERF, NW_EW_SIN}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Function& f = function(number);
      std::vector<Exact> values;
      for (int e = -1; e > float_format(dtype).min_exponent; e -= 7)
        for (const Exact m : {1.0L, -1.37L, 1.73L}) values.push_back(std::ldexp(m, e - 1));
      Tensor a(dtype, {static_cast<int64_t>(values.size())}), out(dtype, a.shape());
      a.set(values);
      for (const char* kernel : kernels("elementwise")) {
        const Result result = run_function(f, {&a}, out, kernel);
        if (!result.was_declined()) expect_close(result, out, expected(f, {&a}, a.shape()), tolerance(f, dtype));
      }
    }
  }
}

TEST_CASE("trap: erf by a table whose series is short or whose last point comes early", "[elementwise][trap]") {
  const Function& f = function(NW_EW_ERF);
  for (const DType dtype : {DType::f32, DType::f64}) {
    std::vector<Exact> values;
    for (int i = 1; i <= 1536; ++i) {  // to 6, where erf is 1: points of a table, its edges between them, and what lies beside both
      const Exact edge = i / 256.0L, unit = std::ldexp(epsilon(dtype), std::ilogb(edge));
      for (const Exact a : {edge, edge - unit, edge + unit, edge + 0x1p-9L}) values.push_back(i % 2 ? a : -a);
    }
    Tensor a(dtype, {static_cast<int64_t>(values.size())}), out(dtype, a.shape());
    a.set(values);
    for (const char* kernel : kernels("elementwise")) {
      const Result result = run_function(f, {&a}, out, kernel);
      if (!result.was_declined()) expect_close(result, out, expected(f, {&a}, a.shape()), tolerance(f, dtype));
    }
  }
}

TEST_CASE("trap: hypot and the sigmoids overflow in between", "[elementwise][trap]") {
  for (const DType dtype : kFloatDTypes) {
    const Exact big = rounded(dtype, largest(dtype) * 0.6L), small = 4 * smallest_subnormal(dtype);
    Tensor a(dtype, {4}), b(dtype, {4}), out(dtype, {4});
    a.set(std::vector<Exact>{big, -big, small, 3 * small / 4});
    b.set(std::vector<Exact>{big, 1, small, small});
    for (const int32_t number : {NW_EW_HYPOT, NW_EW_LOGADDEXP}) {
      for (const char* kernel : kernels("elementwise")) {
        const Result result = run_function(function(number), {&a, &b}, out, kernel);
        if (!result.was_declined())
          expect_close(result, out, expected(function(number), {&a, &b}, {4}), tolerance(function(number), dtype));
      }
    }
  }
}

TEST_CASE("trap: NaN eaten by relu, maximum, minimum, clamp and elu in a vector", "[elementwise][trap]") {
  for (const DType dtype : kFloatDTypes) {
    for (const int32_t number : {NW_EW_RELU, NW_EW_ELU, NW_EW_MAXIMUM, NW_EW_MINIMUM, NW_EW_CLAMP, NW_EW_SIGN}) {
      const Function& f = function(number);
      for (int which = 0; which < f.operands; ++which) {  // the operand that holds the NaN
        std::vector<std::unique_ptr<Tensor>> tensors;
        std::vector<const Tensor*> operands;
        for (int i = 0; i < f.operands; ++i) {
          std::vector<Exact> values(67, i);
          if (i == which)
            for (int64_t k = 0; k < 67; k += 5) values[k] = kNaN;
          tensors.push_back(std::make_unique<Tensor>(dtype, Shape{67}));
          tensors.back()->set(values);
          operands.push_back(tensors.back().get());
        }
        Tensor out(dtype, {67});
        for (const char* kernel : kernels("elementwise")) {
          const Result result = run_function(f, operands, out, kernel);
          if (result.was_declined()) continue;
          expect_ok(result);
          const auto values = out.exact();
          for (int64_t k = 0; k < 67; ++k)
            if (std::isnan(values[k]) != (k % 5 == 0))
              FAIL_CHECK(result.what << "\n  NaN in operand " << which << ", element " << k << " is " << values[k]);
        }
      }
    }
  }
}
