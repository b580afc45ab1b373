// SPDX-License-Identifier: Apache-2.0
// test_shape_rule.cpp -- core/shape_rule.cpp: every construct of the language, evaluated through nw_infer, and its errors.
#include <optional>

#include "fixture.h"
#include "plugins/shape_cases.h"

using namespace narrows::test;

namespace {

using Extents = std::vector<int64_t>;
using Inputs = std::vector<std::optional<Extents>>;
constexpr int64_t kMax = INT64_MAX, kMin = INT64_MIN;
constexpr std::nullopt_t kAbsent = std::nullopt;

struct Good {
  const char* op;
  Inputs inputs;
  RuleParams params;
  std::vector<Extents> outputs;
};

struct Bad {
  const char* op;
  Inputs inputs;
  RuleParams params;
  int32_t argument;
  std::vector<const char*> words;
};

// The extents are only numbers here: nothing is allocated.
struct Shapes {
  std::vector<Extents> extents;
  std::vector<DLTensor> tensors;
  std::vector<const DLTensor*> pointers;
  explicit Shapes(const Inputs& inputs) : extents(inputs.size()), tensors(inputs.size()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]) extents[i] = *inputs[i];
      tensors[i].device = kProbe;
      tensors[i].dtype = kF16;
      tensors[i].ndim = static_cast<int32_t>(extents[i].size());
      tensors[i].shape = extents[i].data();
      pointers.push_back(inputs[i] ? &tensors[i] : nullptr);
    }
  }
};

int32_t infer(nw_runtime* rt, const char* op, const Inputs& inputs, const RuleParams& params, std::vector<nw_spec>& specs,
              Error& error) {
  Shapes shapes(inputs);
  auto call = sized<nw_call>();
  call.op = op;
  call.device = kProbe;
  call.inputs = shapes.pointers.data();
  call.num_inputs = static_cast<uint32_t>(inputs.size());
  call.params = &params;
  call.params_size = sizeof params;
  return nw_infer(rt, &call, specs.data(), static_cast<uint32_t>(specs.size()), &error);
}

uint32_t outputs_of(const char* op) {
  for (const RuleCase& rule : kRules)
    if (std::string(rule.name) == op) return rule.outputs;
  FAIL("no such rule: " << op);
  return 0;
}

const Good kGood[] = {
    {"shapes.matmul/1", {{{2, 3}}, {{3, 4}}}, {}, {{2, 4}}},
    {"shapes.matmul/1", {{{0, 3}}, {{3, 0}}}, {}, {{0, 0}}},
    {"shapes.ranks/1", {{{2, 3, 4}}}, {}, {{2, 4}}},
    {"shapes.ranks/1", {{{3, 4}}}, {}, {{4}}},
    {"shapes.ranks/1", {{{4}}}, {}, {{}}},
    {"shapes.literal/1", {{{2, 5}}}, {}, {{5, 2}}},
    {"shapes.optional/1", {{{3}}}, {}, {{3}}},
    {"shapes.optional/1", {{{3}}, kAbsent}, {}, {{3}}},
    {"shapes.optional/1", {{{3}}, {{4}}}, {}, {{3}}},
    {"shapes.any/1", {{{1, 2, 3}}, kAbsent, {{4}}}, {}, {{4}}},
    {"shapes.any/1", {{Extents{}}, {{9, 9}}, {{4}}}, {}, {{4}}},
    {"shapes.unchecked/1", {{{7, 7, 7}}}, {.n = 3, .k = 4}, {{3, 5}}},
    {"shapes.unchecked/1", {}, {.n = 3, .k = 4}, {{3, 5}}},
    {"shapes.unchecked/1", {}, {}, {{0, 1}}},
    {"shapes.arithmetic/1", {{{7, 2}}}, {}, {{9, 5, 14, 3, 7, 2, 18, 11}}},
    {"shapes.associative/1", {{{3}}}, {}, {{6, 16, 7, 16, 5}}},
    {"shapes.floor/1", {{{1}}}, {.n = 7, .k = 2}, {{13}}},
    {"shapes.floor/1", {{{1}}}, {.n = -7, .k = 2}, {{6}}},
    {"shapes.floor/1", {{{1}}}, {.n = 7, .k = -2}, {{6}}},
    {"shapes.floor/1", {{{1}}}, {.n = -7, .k = -2}, {{13}}},
    {"shapes.floor/1", {{{1}}}, {.n = -8, .k = 2}, {{6}}},
    {"shapes.product/1", {{{3}}}, {.n = 5}, {{15}}},
    {"shapes.sum/1", {{{1}}}, {.n = kMax, .k = 0}, {{kMax}}},
    {"shapes.fields/1", {{{1}}}, {.s = -3, .u = 200}, {{97, 200}}},
    {"shapes.fields/1", {{{1}}}, {.s = 3, .u = 0}, {{103, 0}}},
    {"shapes.wide/1", {{{1}}}, {.wide = INT64_MAX}, {{kMax / 2}}},
    {"shapes.expression/1", {{{3, 4}}}, {}, {{3}}},
    {"shapes.order/1", {{{4}}, {{3}}}, {}, {{3}}},
    {"shapes.repeated/1", {{{3, 3}}, {{3}}}, {}, {{3}}},
    {"shapes.scalar/1", {{Extents{}}, {{5}}}, {}, {{5}}},
    {"shapes.scalar/1", {{{5}}, {Extents{}}}, {}, {{}}},
    {"shapes.two/1", {{{4}}}, {}, {{4}, {4, 5}}},
    {"shapes.like/1", {{{1, 2}}, {{3}}}, {}, {{3}, {1, 2}}},
    {"shapes.broadcast/1", {{{3, 1}}, {{4}}}, {}, {{3, 4}}},
    {"shapes.broadcast/1", {{{16, 128}}, {{128}}, {Extents{}}}, {}, {{16, 128}}},
    {"shapes.broadcast/1", {{{2}}, kAbsent, {{3, 1}}}, {}, {{3, 2}}},
    {"shapes.broadcast/1", {{{0}}, {{1}}}, {}, {{0}}},
    {"shapes.broadcast/1", {{{1}}, {{0}}}, {}, {{0}}},
    {"shapes.broadcast/1", {{Extents{}}}, {}, {{}}},
    {"shapes.mixed/1", {{{2, 3}}, {{5, 1, 1}}}, {}, {{2, 3}, {5, 2, 3}, {6}}},
    {"shapes.spaces/1", {{{2, 3}}, {{4}}}, {}, {{2, 3, 4}}},
    {"shapes.unbound/1", {{{2}}, {{3}}}, {}, {{5}}},
    {"shapes.difference/1", {{{1}}}, {.n = 5, .k = 2}, {{3}}},
    {"shapes.nested/1", {{{9}}}, {.n = 4, .k = 3}, {{4, 9}}},
    {"shapes.nested/1", {{{9}}}, {.n = 1, .k = 8}, {{7, 9}}},
    {"shapes.same/1", {{{2, 3}}, {{2, 3}}}, {}, {{2, 3}}},
    {"shapes.same/1", {{Extents{}}, kAbsent}, {}, {{}}},
    {"shapes.same/1", {{Extents(16, 1)}}, {}, {Extents(16, 1)}},
    {"shapes.rows/1", {{{4, 0, 3}}, {{3}}}, {.n = 7}, {{4, 0}, {4, 0, 3, 7}}},
    {"shapes.rows/1", {{{3}}, {{3}}}, {.n = 0}, {{}, {3, 0}}},
    {"shapes.late/1", {{{5, 6, 7}}, {{5, 6}}}, {}, {{7, 2}}},
    {"shapes.absent/1", {{{5}}, {{2, 2}}}, {}, {{2, 2}}},
};

const Bad kBad[] = {
    {"shapes.matmul/1", {{{2, 3}}, {{5, 4}}}, {}, 1, {"b", "(5, 4)", "3"}},
    {"shapes.matmul/1", {{{2, 3, 1}}, {{3, 4}}}, {}, 0, {"a", "(2, 3, 1)", "N, C"}},
    {"shapes.matmul/1", {{{2, 3}}, {{3}}}, {}, 1, {"b", "(3,)", "C, M"}},
    {"shapes.matmul/1", {{{2, 3}}}, {}, -1, {"b", "absent"}},
    {"shapes.matmul/1", {kAbsent, {{2, 3}}}, {}, 0, {"a", "absent"}},
    {"shapes.ranks/1", {{Extents{}}}, {}, 0, {"a", "N, C, L", "expected"}},
    {"shapes.ranks/1", {{{1, 2, 3, 4}}}, {}, 0, {"a", "(1, 2, 3, 4)"}},
    {"shapes.literal/1", {{{3, 5}}}, {}, 0, {"a", "(3, 5)", "2"}},
    {"shapes.optional/1", {{{3}}, {{4, 4}}}, {}, 1, {"b", "(4, 4)"}},
    {"shapes.any/1", {kAbsent, kAbsent, {{4}}}, {}, 0, {"a"}},
    {"shapes.any/1", {{{1}}, kAbsent, {{4, 4}}}, {}, 2, {"c", "(4, 4)"}},
    {"shapes.arithmetic/1", {{{2, 7}}}, {}, -1, {"negative", "A-B", "-5", "x"}},
    {"shapes.arithmetic/1", {{{2, 0}}}, {}, -1, {"0"}},
    {"shapes.unchecked/1", {}, {.n = -1}, -1, {"negative", "x", "-1"}},
    {"shapes.floor/1", {{{1}}}, {.n = 1, .k = 0}, -1, {"divide"}},
    {"shapes.floor/1", {{{1}}}, {.n = kMin, .k = -1}, -1, {"overflow"}},
    {"shapes.floor/1", {{{1}}}, {.n = kMin, .k = 2}, -1, {"negative", "n//k+10 = -4611686018427387894"}},
    {"shapes.product/1", {{{2}}}, {.n = int64_t{1} << 62}, -1, {"overflow"}},
    {"shapes.sum/1", {{{1}}}, {.n = kMax, .k = 1}, -1, {"overflow"}},
    {"shapes.difference/1", {{{1}}}, {.n = kMin, .k = 1}, -1, {"overflow"}},
    {"shapes.wide/1", {{{1}}}, {.wide = UINT64_MAX - 3}, -1, {"wide", "18446744073709551612", "overflow"}},
    {"shapes.expression/1", {{{3, 5}}}, {}, 0, {"a", "(3, 5)", "4"}},
    {"shapes.order/1", {{{5}}, {{3}}}, {}, 0, {"a", "(5,)", "4"}},
    {"shapes.repeated/1", {{{3, 4}}, {{3}}}, {}, 0, {"a", "(3, 4)"}},
    {"shapes.repeated/1", {{{3, 3}}, {{4}}}, {}, 1, {"b", "(4,)"}},
    {"shapes.scalar/1", {{{2}}, {{5}}}, {}, 1, {"b"}},
    {"shapes.broadcast/1", {{{2}}, {{3}}}, {}, 1, {"a", "(2,)", "b", "(3,)", "broadcast"}},
    {"shapes.broadcast/1", {{{4, 2}}, {{1}}, {{3, 2}}}, {}, 2, {"a", "(4, 2)", "c", "(3, 2)"}},
    {"shapes.broadcast/1", {{{0}}, {{2}}}, {}, 1, {"a", "b", "0", "2"}},
    {"shapes.unbound/1", {{{2}}}, {}, -1, {"M"}},
    {"shapes.same/1", {{{2, 3}}, {{2, 4}}}, {}, 1, {"b", "(2, 4)", "expected (...), where '...' is (2, 3) here"}},
    {"shapes.same/1", {{{2, 3}}, {{3}}}, {}, 1, {"b", "(3,)", "'...' is (2, 3) here"}},
    {"shapes.rows/1", {{{2, 3}}, {{4}}}, {}, 1, {"b", "(4,)", "expected (D), whose dimension 0 is 3 here"}},
    {"shapes.rows/1", {{Extents{}}, {{4}}}, {}, 0, {"a", "()", "(..., D)"}},
    {"shapes.rows/1", {{Extents(16, 1)}, {{1}}}, {}, -1, {"y", "(..., D, n)", "17 dimensions; at most 16"}},
    {"shapes.late/1", {{{5, 6}}, {{6}}}, {}, 0, {"a", "(5, 6)", "expected (..., A), where '...' is (6,) here"}},
    {"shapes.late/1", {{{5}}}, {}, -1, {"b", "absent", "(...) | (..., A, A)"}},
    {"shapes.absent/1", {{{5}}}, {}, -1, {"x", "(...)", "every input with '...' is absent"}},
};

}  // namespace

TEST_CASE("shape rules give shapes") {
  Loaded rt({"shapes"});
  for (const Good& good : kGood) {
    std::vector<nw_spec> specs(outputs_of(good.op));
    for (nw_spec& spec : specs) std::memset(&spec, 0xAB, sizeof spec);
    Error error;
    const int32_t status = infer(rt, good.op, good.inputs, good.params, specs, error);
    INFO(good.op << " case " << &good - kGood << ": " << (status == NW_OK ? "" : error.text()));
    CHECK(status == NW_OK);
    if (status != NW_OK) continue;
    REQUIRE(specs.size() == good.outputs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      CHECK(specs[i].ndim == static_cast<int32_t>(good.outputs[i].size()));
      Extents padded = good.outputs[i];
      padded.resize(NW_MAX_NDIM);  // the entries past ndim are 0
      CHECK(Extents(specs[i].shape, specs[i].shape + NW_MAX_NDIM) == padded);
      if (!good.inputs.empty()) CHECK((specs[i].dtype.code == kDLFloat && specs[i].dtype.bits == 16 && specs[i].dtype.lanes == 1));
    }
  }
}

TEST_CASE("shape rules refuse") {
  Loaded rt({"shapes"});
  for (const Bad& bad : kBad) {
    std::vector<nw_spec> specs(outputs_of(bad.op));
    for (nw_spec& spec : specs) spec.ndim = 1234;
    Error error;
    const int32_t status = infer(rt, bad.op, bad.inputs, bad.params, specs, error);
    INFO(bad.op << " case " << &bad - kBad << ": " << (status == NW_OK ? "accepted" : error.text()));
    CHECK(status == NW_INVALID);
    if (status == NW_OK) continue;
    CHECK(error.argument == bad.argument);
    for (const char* word : bad.words) {
      INFO("expected word: " << word);
      CHECK(contains(error.text(), word));
    }
    CHECK(contains(error.text(), bad.op));
    for (const nw_spec& spec : specs) CHECK(spec.ndim == 1234);
  }
}

TEST_CASE("every shape rule has a case that holds") {
  for (const RuleCase& rule : kRules) {
    bool used = false;
    for (const Good& good : kGood) used |= std::string(good.op) == rule.name;
    INFO(rule.name);
    CHECK(used);
  }
}

TEST_CASE("nw_infer wants room for each output") {
  Loaded rt({"shapes"});
  std::vector<nw_spec> specs(1);
  Error error;
  expect_refused(infer(rt, "shapes.two/1", {{{4}}}, {}, specs, error), error, NW_INVALID, -1, {"2", "1"});
  const Shapes shapes(Inputs{Extents{4}});
  auto call = sized<nw_call>();
  call.op = "shapes.two/1";
  call.inputs = shapes.pointers.data();
  call.num_inputs = 1;
  error = Error();
  expect_refused(nw_infer(rt, &call, nullptr, 2, &error), error, NW_INVALID, -1, {"outputs", "NULL"});
  expect_refused(nw_infer(rt, nullptr, specs.data(), 1, &error), error, NW_INVALID, -1, {"call", "NULL"});
  expect_refused(nw_infer(nullptr, &call, specs.data(), 1, &error), error, NW_INVALID, -1, {"runtime", "NULL"});
}
