// SPDX-License-Identifier: Apache-2.0
// OPNAME.cpp -- OPNAME by every kernel variant against the float64 reference: sizes, layouts, special values, and what it refuses.
#include "reference/OPNAME.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "conformance/call_examples.h"
#include "support/harness.h"

using namespace narrows::test;

namespace {

constexpr Tolerance kTolerance{.ulps = 1};

// For the tests that are about calls and not about numbers: layouts with padding, workspaces, threads, guard pages.
const LaterOp kExample([](DType dtype, int64_t rows, int64_t columns) {
  Rng rng("OPNAME example");
  Example e{.what = "OPNAME", .op = "OPNAME", .inputs = {}, .outputs = {}, .params = {}};
  e.inputs.push_back(std::make_unique<Tensor>(dtype, std::vector<int64_t>{rows, columns}));
  e.inputs.back()->fill_uniform(rng, -4, 4);
  e.outputs.push_back(std::make_unique<Tensor>(dtype, std::vector<int64_t>{rows, columns}));
  return e;
});

void check(const Tensor& x, Tensor& y) {
  expect_offered("OPNAME");
  const std::vector<double> expected = narrows::reference::OPNAME(x.values());
  for (const char* kernel : kernels("OPNAME")) {
    const Result result = run("OPNAME", {&x}, {&y}, {}, kernel);
    if (result.was_declined()) continue;
    expect_close(result, y, expected, kTolerance);
  }
}

}  // namespace

TEST_CASE("OPNAME: sizes around every vector width, without elements and of rank 0", "[FORWARD]") {
  for (const DType dtype : kFloatDTypes)
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {0}, {1}, {7}, {16}, {33}, {129}, {3, 0, 2}, {2, 3, 5}, {70, 300}}) {
      Rng rng("OPNAME sizes");
      Tensor x(dtype, shape), y(dtype, shape);
      x.fill_uniform(rng, -4, 4);
      check(x, y);
    }
}

TEST_CASE("OPNAME: every layout of x and of y", "[FORWARD][layout]") {
  for (const DType dtype : kFloatDTypes)
    for (const Layout& of_y : all_layouts(3, dtype)) {
      std::vector<Layout> of_x = all_layouts(3, dtype);
      of_x.push_back(Layout::broadcast({true, false, true}));
      for (const Layout& layout : of_x) {
        Rng rng("OPNAME layouts");
        Tensor x(dtype, {3, 4, 5}, layout), y(dtype, {3, 4, 5}, of_y);
        x.fill_uniform(rng, -4, 4);
        check(x, y);
      }
    }
}

TEST_CASE("OPNAME: special values", "[FORWARD][special]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : kFloatDTypes) {
    const auto subnormal = static_cast<double>(smallest_subnormal(dtype));
    Tensor x(dtype, {7}), y(dtype, {7});
    x.set(std::vector<double>{0.0, -0.0, kInfinity, -kInfinity, kNaN, subnormal, -subnormal});
    check(x, y);
  }
}

TEST_CASE("OPNAME bad input: dtypes, shapes, params and kernels", "[FORWARD][bad]") {
  Tensor x(DType::f32, {2, 3}), y(DType::f32, {2, 3}), integers(DType::i32, {2, 3}), wide(DType::f64, {2, 3});
  Tensor other(DType::f32, {3, 2});
  for (const Tensor* t : {&x, &integers, &other}) const_cast<Tensor*>(t)->set(std::vector<double>(6, 1.0));
  expect_ok(run("OPNAME", {&x}, {&y}));
  expect_refused(run("OPNAME", {nullptr}, {&y}), NW_INVALID, 0, {"OPNAME", "x ", "absent"});
  expect_refused(run("OPNAME", {&integers}, {&y}), NW_INVALID, 0, {"OPNAME", "x ", "int32"});
  expect_refused(run("OPNAME", {&x}, {&wide}), NW_INVALID, 1, {"y ", "float64", "expected float32"});
  expect_refused(run("OPNAME", {&x}, {&other}), NW_INVALID, 1, {"y ", "(3, 2)", "expected"});
  std::vector<unsigned char> longer(PARAMSSIZE + 4);
  longer[PARAMSSIZE + 2] = 1;  // behind what is known
  const std::string byte = "byte " + std::to_string(PARAMSSIZE + 2);
  expect_refused(run("OPNAME", {&x}, {&y}, Blob(longer)), NW_UNSUPPORTED, -1, {"params", byte.c_str()});
  nw_FORWARD_params params{};                          // with params
  params.FIELDNAME = 1;                                // each field
  expect_ok(run("OPNAME", {&x}, {&y}, Blob(params)));  // with params
  expect_refused(run("OPNAME", {&x}, {&y}, {}, "no such kernel"), NW_UNSUPPORTED, -1, {"no such kernel"});
}
