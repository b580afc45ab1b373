// SPDX-License-Identifier: Apache-2.0
// Grids: a device that counts few work groups along a row, or few rows. Whatever the op, they are folded into rows, with the same
// result.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "calls.h"
#include "driver.h"

namespace narrows::vulkan::test {
namespace {

// Calls of some thousand elements, so that what they dispatch has more than three work groups.
std::vector<Call> small_calls(DLDataType dtype) {
  std::vector<Call> calls;
  const auto add = [&](const char* name, Call call) {
    call.name = std::string(call.op) + ", " + name;
    calls.push_back(std::move(call));
  };
  const auto tensor = [&](const Shape& shape, const Shape& strides = {}) { return Tensor{dtype, shape, strides}; };
  const Tensor run = tensor({20'003}), rows = tensor({70, 401}), transposed = tensor({70, 401}, {1, 70}), row = tensor({401});
  add("a run", elementwise(NW_EW_ADD, {run, run}, run));
  add("transposed and broadcast", elementwise(NW_EW_MUL, {transposed, row}, rows));
  add("four dimensions", elementwise(NW_EW_NEG, {tensor({5, 7, 9, 31}, {40'000, 4'000, 320, 2})}, tensor({5, 7, 9, 31})));
  const Tensor wide = tensor({3, 6'400}), wide_row = tensor({6'400});
  add("wide rows", elementwise(NW_EW_MUL, {wide, wide_row}, wide));
  add("wide and strided", elementwise(NW_EW_MUL, {tensor({3, 6'400}, {12'900, 2}), wide_row}, wide));
  add("three wide dimensions", elementwise(NW_EW_NEG, {tensor({3, 4, 2'000}, {20'000, 4'100, 2})}, tensor({3, 4, 2'000})));
  add("cast", elementwise(NW_EW_CAST, {{kI32, {20'003}}}, {dtype.bits == 16 ? kF16 : kF32, {20'003}}));
  add("where", elementwise(NW_EW_WHERE, {{kBool, {20'003}}, run, run}, run));
  add("maps", elementwise_backward(NW_EW_MUL, {run, run}, run));
  add("sums of columns and of rows", elementwise_backward(NW_EW_MUL, {tensor({401}), tensor({70, 1})}, rows));
  add("a sum in slices", elementwise_backward(NW_EW_MUL, {run, tensor({1})}, run));
  add("sums in slices", elementwise_backward(NW_EW_MUL, {tensor({512, 600}), tensor({600})}, tensor({512, 600})));
  add("an absent gradient", elementwise_backward(NW_EW_MUL, {run, run}, run, true));

  const Conv signal{2, 1, 5'001, 1, 3, {.pad_right = 2}}, strided{2, 1, 5'001, 1, 3, {.stride = 2}},
      depthwise{2, 6, 1'100, 6, 4, {.groups = 6, .pad_left = 3}}, dense{2, 20, 300, 24, 3, {}},
      residues{2, 3, 3'001, 3, 2, {.stride = 3}}, few_outputs{2, 20, 9, 130, 3, {}};
  for (const auto& [name, conv] : {std::pair{"a signal", signal},
                                   {"strided", strided},
                                   {"depthwise", depthwise},
                                   {"dense", dense},
                                   {"residues without taps", residues}}) {
    add(name, conv1d(dtype, conv));
    add(name, conv1d_backward(dtype, conv));
  }
  add("few outputs", conv1d(dtype, few_outputs));
  add("an absent gradient", conv1d_backward(dtype, dense, true));
  add("a cell", lltm(dtype, 33, 20, 40));
  add("many cells", lltm(dtype, 160, 3, 110));
  add("a cell", lltm_backward(dtype, 33, 20, 40));
  add("a long batch", lltm_backward(dtype, 600, 5, 6));
  add("an absent gradient", lltm_backward(dtype, 33, 20, 40, true));
  return calls;
}

struct Given {
  std::string call;
  int32_t status;
  std::vector<Bytes> outputs;
  bool folded, is_many, has_rows;  // is_many: it takes more than three work groups; has_rows: a layout may have rows of its own
};

// What every variant that takes it gives of each call; op: of its calls alone.
std::vector<Given> results(const Said& said, const std::string& op = "") {
  const Driver driver(said);
  const Runtime rt(here());
  std::vector<Given> all;
  std::set<std::string> ran;
  for (const DLDataType dtype : {kF32, kF16}) {
    std::vector<Call> calls = small_calls(dtype);
    calls.push_back(lltm(dtype, 300, 64, 96));
    calls.back().name = "a layer";
    if (!op.empty()) std::erase_if(calls, [&](const Call& call) { return op != call.op; });
    for (const Call& call : calls)
      for (const char* kernel : kernels(rt, call.op)) {
        const std::string name = call.name + " of " + std::to_string(dtype.bits) + " bits, kernel " + (kernel ? kernel : "its own");
        Prepared prepared(rt, call, kernel);
        nw_error error{};
        const int before = driver.folded();
        const int32_t status = prepared.run(&error);
        INFO(name << ": " << error.message);
        CHECK((status == NW_OK || (status == NW_UNSUPPORTED && kernel != nullptr)));
        if (status == NW_OK && kernel != nullptr) ran.insert(std::string(call.op) + " " + kernel);
        // A cell is a single tile of GPUs' matrix units, a layer is several.
        const bool is_many = kernel == nullptr || std::strcmp(kernel, "coopmat") != 0 || call.name != "lltm, a cell";
        const bool has_rows =
            std::any_of(call.inputs.begin(), call.inputs.end(), [](const Tensor& t) { return t.shape.size() > 1; }) &&
            std::string(call.op).starts_with("elementwise");
        all.push_back({name, status, prepared.outputs(), driver.folded() > before, is_many, has_rows});
      }
  }
  for (const char* each : {"elementwise", "elementwise_backward", "conv1d", "conv1d_backward", "lltm", "lltm_backward"})
    for (const char* kernel : kernels(rt, each))
      if ((op.empty() || op == each) && kernel != nullptr && std::strcmp(kernel, "coopmat") != 0)
        CHECK(ran.count(std::string(each) + " " + kernel) == 1);
  return all;
}

void check_same(const std::vector<Given>& got, const std::vector<Given>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(got[i].call);
    CHECK(got[i].status == expected[i].status);
    CHECK((got[i].outputs == expected[i].outputs));
  }
}

void check_folded(const std::vector<Given>& got, const std::vector<Given>& expected) {
  check_same(got, expected);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(got[i].call);
    if (!expected[i].has_rows) CHECK_FALSE(expected[i].folded);
    if (got[i].status == NW_OK && got[i].is_many) CHECK(got[i].folded);
  }
}

TEST_CASE("grids: every op and variant on a device that counts three work groups along a row", "[grids]") {
  check_folded(results({.columns = 3}), results({}));
}

TEST_CASE("grids: layouts as a GPU has them, of more columns than a row counts", "[grids]") {
  check_folded(results({.as_discrete = true, .columns = 3}, "elementwise"), results({.as_discrete = true}, "elementwise"));
}

TEST_CASE("grids: layouts of more rows than the device counts", "[grids]") {
  for (const bool as_discrete : {false, true})
    check_same(results({.as_discrete = as_discrete, .columns = 40, .rows = 20}, "elementwise"),
               results({.as_discrete = as_discrete}, "elementwise"));
}

TEST_CASE("grids: a copy within a GPU that counts three work groups along a row", "[grids]") {
  const Driver driver({.as_discrete = true, .columns = 3});
  const Runtime rt(here());
  const Tensor words{kI32, {5'000}};
  Prepared call(rt, elementwise(NW_EW_NEG, {words}, words));
  REQUIRE(call.run() == NW_OK);
  const std::vector<Bytes> negated = call.outputs();
  void *const from = call.handed.outputs[0]->data, *const to = call.handed.inputs[0]->data;
  const int before = driver.folded();
  REQUIRE(nw_copy(rt.handle, on(0), to, on(0), from, 20'000, nullptr, nullptr) == NW_OK);
  CHECK(driver.folded() == before + 1);
  Bytes copied(20'000);
  REQUIRE(nw_copy(rt.handle, {kDLCPU, 0}, copied.data(), on(0), to, copied.size(), nullptr, nullptr) == NW_OK);
  REQUIRE(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
  CHECK((copied == negated[0]));
}

TEST_CASE("grids: more work groups than a device counts are refused, and nothing of the call is left", "[grids]") {
  const Driver driver({.columns = 3, .rows = 60});
  const Runtime rt(here());
  const Tensor many{kF32, {700'000}}, few{kF32, {100'000}};
  Prepared refused(rt, elementwise(NW_EW_ADD, {many, many}, many)), taken(rt, elementwise(NW_EW_ADD, {few, few}, few));
  const std::vector<Bytes> before = refused.outputs();
  nw_error error{};
  CHECK(refused.run(&error) == NW_UNSUPPORTED);
  INFO(error.message);
  CHECK(std::strstr(error.message, " work groups; ") != nullptr);
  CHECK(std::strstr(error.message, " runs 2 x 60") != nullptr);
  CHECK((refused.outputs() == before));
  CHECK(taken.run() == NW_OK);
}

TEST_CASE("grids: more work groups than 32 bits count are refused when the call is planned", "[grids]") {
  const Runtime rt;
  // Two long dimensions beside a short one, of which a work group covers one, and of the other at most 2^9: 2^34 groups or more.
  Shape shape{1 << 23, 1 << 20, 3}, strides{1 << 23, 4, 1};
  const DLTensor huge{reinterpret_cast<void*>(4096), on(0), 3, kF32, shape.data(), strides.data(), 0};
  const DLTensor *inputs[] = {&huge, &huge}, *outputs[] = {&huge};
  nw_elementwise_params p{};
  p.function = NW_EW_ADD;
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = "elementwise", call.device = on(0), call.backend = "vulkan";
  call.num_inputs = 2, call.inputs = inputs, call.num_outputs = 1, call.outputs = outputs;
  call.params = &p, call.params_size = sizeof p;
  nw_error error{};
  for (const char* kernel : {static_cast<const char*>(nullptr), "strided", "scalar"}) {
    call.kernel = kernel;
    CHECK(nw_plan_get(rt.handle, &call, nullptr, nullptr, &error) == NW_UNSUPPORTED);
    INFO(error.message);
    CHECK(std::strstr(error.message, "more work groups than 32 bits can count") != nullptr);
  }
  shape[0] = 1 << 10;
  CHECK(nw_plan_get(rt.handle, &call, nullptr, nullptr, &error) == NW_OK);
}

}  // namespace
}  // namespace narrows::vulkan::test
