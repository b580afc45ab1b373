// SPDX-License-Identifier: Apache-2.0
// elementwise_integer.cpp -- integers and bool where they differ from real numbers: wraparound, division by zero, INT_MIN / -1,
// shifts, powers. 8-bit types are tried on all pairs, the wider ones on their edges; expectations at the edges are written out.
#include <catch2/catch_test_macros.hpp>

#include "elementwise_cases.h"
#include "support/bool_bytes.h"

using namespace narrows::test;
using narrows::reference::allows;
using narrows::reference::function;
using narrows::reference::out_dtype;

namespace {

void run_on_all_kernels(const Function& f, const std::vector<const Tensor*>& operands, const Shape& shape,
                        const std::vector<Exact>& reference) {
  Tensor out(out_dtype(f, operands.back()->dtype()), shape);
  for (const char* kernel : kernels("elementwise")) {
    const Result result = run_function(f, operands, out, kernel);
    if (!result.was_declined()) expect_close(result, out, reference, kExact);
  }
}

struct Row {
  int32_t function;
  Exact a, b, result;  // of a unary function b is not read
};

// Each row in every lane of a long tensor.
void check_rows(DType dtype, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const Function& f = function(row.function);
    Tensor a(dtype, {71}), b(dtype, {71});
    a.set(std::vector<Exact>(71, row.a));
    b.set(std::vector<Exact>(71, row.b));
    run_on_all_kernels(f, f.operands == 1 ? std::vector<const Tensor*>{&a} : std::vector<const Tensor*>{&a, &b}, {71},
                       std::vector<Exact>(71, row.result));
  }
}

std::vector<Exact> edges(DType dtype) {
  std::vector<Exact> values{
      0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 64, 100, largest(dtype), largest(dtype) - 1, largest(dtype) / 2 + 0.5L};
  if (is_signed_int(dtype))
    for (const Exact v : {Exact(-1), Exact(-2), Exact(-3), Exact(-7), Exact(-64), lowest(dtype), lowest(dtype) + 1})
      values.push_back(v);
  return values;
}

// n bytes of dtype bool, each of them `times` times before the next one.
std::vector<Exact> bool_bytes(int n, int times) {
  std::vector<Exact> bytes;
  for (int i = 0; i < n; ++i) bytes.push_back(kBoolBytes[i / times % 6]);
  return bytes;
}

}  // namespace

TEST_CASE("integers: every binary function on all pairs of 8-bit values", "[elementwise][integer]") {
  for (const DType dtype : {DType::i8, DType::u8}) {
    Tensor a(dtype, {256, 1}), b(dtype, {256});
    std::vector<Exact> all;
    for (Exact v = lowest(dtype); v <= largest(dtype); ++v) all.push_back(v);
    a.set(all);
    b.set(all);
    for (const Function& f : functions())
      if (f.operands == 2 && allows(f.domain, dtype))
        run_on_all_kernels(f, {&a, &b}, {256, 256}, expected(f, {&a, &b}, {256, 256}));
  }
}

TEST_CASE("integers: every unary function on all 8-bit values", "[elementwise][integer]") {
  for (const DType dtype : {DType::i8, DType::u8}) {
    Tensor a(dtype, {256});
    std::vector<Exact> all;
    for (Exact v = lowest(dtype); v <= largest(dtype); ++v) all.push_back(v);
    a.set(all);
    for (const Function& f : functions())
      if (f.operands == 1 && f.number != NW_EW_CAST && allows(f.domain, dtype))
        run_on_all_kernels(f, {&a}, {256}, expected(f, {&a}, {256}));
  }
}

TEST_CASE("integers: every function at the edges of every width", "[elementwise][integer]") {
  for (const DType dtype : kIntDTypes) {
    const std::vector<Exact> values = edges(dtype);
    const auto n = static_cast<int64_t>(values.size());
    for (const Function& f : functions()) {
      if (f.number == NW_EW_CAST || f.number == NW_EW_WHERE || !allows(f.domain, dtype)) continue;
      Tensor a(dtype, {n, 1, 1}), b(dtype, {n, 1}), c(dtype, {n});
      for (Tensor* t : {&a, &b, &c}) t->set(values);
      std::vector<const Tensor*> operands{&a, &b, &c};
      operands.resize(f.operands);
      const Shape shape = f.operands == 1 ? Shape{n, 1, 1} : f.operands == 2 ? Shape{n, n, 1} : Shape{n, n, n};
      run_on_all_kernels(f, operands, shape, expected(f, operands, shape));
    }
  }
}

// clang-format off: tables, as many rows in a line as fit
TEST_CASE("integers: the edges in numbers", "[elementwise][integer]") {
  for (const DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64}) {
    const Exact low = lowest(dtype), high = largest(dtype), width = static_cast<Exact>(item_size(dtype) * 8);
    check_rows(dtype, {{NW_EW_NEG, low, 0, low},          {NW_EW_ABS, low, 0, low},           {NW_EW_ADD, high, 1, low},
                       {NW_EW_SUB, low, 1, high},         {NW_EW_MUL, low, -1, low},          {NW_EW_MUL, high, 2, -2},
                       {NW_EW_DIV, low, -1, low},         {NW_EW_DIV, -7, 2, -3},             {NW_EW_DIV, 5, 0, 0},
                       {NW_EW_DIV, low, 0, 0},            {NW_EW_FMOD, low, -1, 0},           {NW_EW_FMOD, -7, 3, -1},
                       {NW_EW_FMOD, 7, -3, 1},            {NW_EW_FMOD, 7, 0, 0},              {NW_EW_REMAINDER, low, -1, 0},
                       {NW_EW_REMAINDER, -7, 3, 2},       {NW_EW_REMAINDER, 7, -3, -2},       {NW_EW_REMAINDER, 7, 0, 0},
                       {NW_EW_REMAINDER, low, high, high - 1}, {NW_EW_POW, 2, width - 1, low}, {NW_EW_POW, 2, width, 0},
                       {NW_EW_POW, -1, -3, -1},           {NW_EW_POW, -1, -2, 1},             {NW_EW_POW, 1, -5, 1},
                       {NW_EW_POW, 2, -1, 0},             {NW_EW_POW, 0, -1, 0},              {NW_EW_POW, 0, 0, 1},
                       {NW_EW_POW, -1, low, 1},           {NW_EW_POW, -3, 3, -27},            {NW_EW_SIGN, low, 0, -1},
                       {NW_EW_SQUARE, low, 0, 0},         {NW_EW_BITWISE_NOT, 0, 0, -1},      {NW_EW_RELU, low, 0, 0},
                       {NW_EW_BITWISE_LEFT_SHIFT, 1, width - 1, low}, {NW_EW_BITWISE_LEFT_SHIFT, 1, width, 0},
                       {NW_EW_BITWISE_LEFT_SHIFT, 1, -1, 0}, {NW_EW_BITWISE_LEFT_SHIFT, 3, high, 0},
                       {NW_EW_BITWISE_RIGHT_SHIFT, -8, 1, -4}, {NW_EW_BITWISE_RIGHT_SHIFT, low, width - 1, -1},
                       {NW_EW_BITWISE_RIGHT_SHIFT, -1, width, -1}, {NW_EW_BITWISE_RIGHT_SHIFT, 5, width, 0},
                       {NW_EW_BITWISE_RIGHT_SHIFT, -5, -1, -1}, {NW_EW_BITWISE_RIGHT_SHIFT, 5, low, 0}});
  }
  for (const DType dtype : {DType::u8, DType::u16, DType::u32, DType::u64}) {
    const Exact high = largest(dtype), width = static_cast<Exact>(item_size(dtype) * 8);
    check_rows(dtype, {{NW_EW_NEG, 1, 0, high},      {NW_EW_ADD, high, 1, 0},      {NW_EW_SUB, 0, 1, high},          {NW_EW_MUL, high, high, 1},
                       {NW_EW_DIV, high, 0, 0},      {NW_EW_DIV, high, 2, (high - 1) / 2}, {NW_EW_FMOD, high, 0, 0}, {NW_EW_REMAINDER, high, 10, 5},
                       {NW_EW_POW, 2, width, 0},     {NW_EW_POW, high, 2, 1},      {NW_EW_SIGN, high, 0, 1},         {NW_EW_ABS, high, 0, high},
                       {NW_EW_RELU, high, 0, high},  {NW_EW_BITWISE_NOT, 0, 0, high}, {NW_EW_MAXIMUM, high, 1, high}, {NW_EW_GT, high, 1, 1},
                       {NW_EW_BITWISE_LEFT_SHIFT, high, width - 1, (high + 1) / 2},  {NW_EW_BITWISE_LEFT_SHIFT, 1, high, 0},
                       {NW_EW_BITWISE_RIGHT_SHIFT, high, width - 1, 1},              {NW_EW_BITWISE_RIGHT_SHIFT, high, width, 0}});
  }
}

TEST_CASE("integers: 64-bit values do not pass through a double", "[elementwise][integer]") {
  const Exact odd = 0x1p53L + 1, big = 9007199254740993.0L * 1023;
  check_rows(DType::i64, {{NW_EW_ADD, odd, 0, odd}, {NW_EW_MAXIMUM, odd, odd - 1, odd}, {NW_EW_EQ, odd, odd - 1, 0}, {NW_EW_LT, odd - 1, odd, 1},
                          {NW_EW_DIV, big, 1023, odd}, {NW_EW_ABS, -odd, 0, odd}, {NW_EW_REMAINDER, odd, 2, 1}, {NW_EW_FLOOR, odd, 0, odd},
                          {NW_EW_SQUARE, 3037000499.0L, 0, 9223372030926249001.0L}});
}
// clang-format on

TEST_CASE("bool: every function that takes it, on all values", "[elementwise][integer]") {
  Tensor a(DType::boolean, {6, 1, 1}), b(DType::boolean, {6, 1}), c(DType::boolean, {6});
  for (Tensor* t : {&a, &b, &c}) t->set(bool_bytes(6, 1));
  for (const Function& f : functions()) {
    if (f.number == NW_EW_CAST || !allows(f.domain, DType::boolean)) continue;
    std::vector<const Tensor*> operands{&a, &b, &c};
    operands.resize(f.operands);
    const Shape shape = f.operands == 1 ? Shape{6, 1, 1} : f.operands == 2 ? Shape{6, 6, 1} : Shape{6, 6, 6};
    run_on_all_kernels(f, operands, shape, expected(f, operands, shape));
  }
}

TEST_CASE("bool: any byte but 0 is true, in every layout and in place", "[elementwise][integer]") {
  const Shape shape{12, 18};  // all triples of the six bytes
  for (const Function& f : functions()) {
    if (f.number == NW_EW_CAST || !allows(f.domain, DType::boolean)) continue;
    for (const Layout& layout : all_layouts(2, DType::boolean))
      for (const char* kernel : kernels("elementwise"))
        for (int target = -1; target < f.operands; ++target) {  // the operand that is the output; -1: none
          Tensor a(DType::boolean, shape, layout), b(DType::boolean, shape), c(DType::boolean, shape, layout),
              out(DType::boolean, shape, layout);
          Tensor* const all[] = {&a, &b, &c};
          for (int i = 0; i < 3; ++i) all[i]->set(bool_bytes(216, i == 0 ? 36 : i == 1 ? 6 : 1));
          std::vector<const Tensor*> operands(all, all + f.operands);
          const auto reference = expected(f, operands, shape);
          Tensor& to = target < 0 ? out : *all[target];
          const Result result = run_function(f, operands, to, kernel);
          if (!result.was_declined()) expect_close(result, to, reference, kExact);
        }
  }
}

TEST_CASE("bool: a mask of any bytes chooses numbers of every width", "[elementwise][integer]") {
  const Shape shape{12, 18};
  for (const DType dtype : {DType::u8, DType::f16, DType::f32, DType::f64})
    for (const Layout& layout : {Layout::contiguous(), Layout::strided(2), Layout::transposed()})
      for (const char* kernel : kernels("elementwise")) {
        Tensor mask(DType::boolean, shape, layout), b(dtype, shape), c(dtype, shape, layout), out(dtype, shape);
        mask.set(bool_bytes(216, 1));
        b.set(std::vector<Exact>(216, 1));
        c.set(std::vector<Exact>(216, 2));
        std::vector<Exact> reference;
        for (int i = 0; i < 216; ++i) reference.push_back(i % 6 == 0 ? 2 : 1);
        const Result result = run_function(function(NW_EW_WHERE), {&mask, &b, &c}, out, kernel);
        if (!result.was_declined()) expect_close(result, out, reference, kExact);
      }
}
