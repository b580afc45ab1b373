// SPDX-License-Identifier: Apache-2.0
// test_bad_input.cpp -- what no caller may do, whatever the op: each is refused with the argument and the reason, and no output
// changes. The ops' own contracts have their tests in tests/conformance.
#include <functional>

#include "fixture.h"

using namespace narrows::test;

namespace {

constexpr int64_t kHuge = int64_t{1} << 40;

// probe.strict/1 takes a (0) and b (1) and gives first (2), like a, and second (3), like b. Both are (4, 2) of f32.
struct Strict {
  Array a{{4, 2}}, b{{4, 2}}, first{{4, 2}}, second{{4, 2}};
  Call call{"probe.strict/1", {&a, &b}, {&first, &second}};
};

struct Bad {
  const char* what;
  std::function<void(Strict&)> bend;
  int32_t argument;
  std::vector<const char*> words;
  int32_t status = NW_INVALID;
};

void set_shape(Array& array, std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
  array.shape = std::move(shape);
  array.strides = std::move(strides);
  array->ndim = static_cast<int32_t>(array.shape.size());
  array->shape = array.shape.data();
  array->strides = array.strides.empty() ? nullptr : array.strides.data();
}

const Bad kBad[] = {
    {"no op", [](Strict& s) { s.call.raw.op = nullptr; }, -1, {"op", "NULL"}},
    {"inputs NULL", [](Strict& s) { s.call.raw.inputs = nullptr; }, -1, {"inputs", "NULL", "2"}},
    {"outputs NULL", [](Strict& s) { s.call.raw.outputs = nullptr; }, -1, {"outputs", "NULL", "2"}},
    {"33 inputs", [](Strict& s) { s.call.raw.num_inputs = 33; }, -1, {"33", "32"}},
    {"very many inputs", [](Strict& s) { s.call.raw.num_inputs = UINT32_MAX; }, -1, {"4294967295", "32"}},
    {"very many outputs", [](Strict& s) { s.call.raw.num_outputs = UINT32_MAX; }, -1, {"4294967295", "32"}},
    {"33 tensors", [](Strict& s) { s.call.raw.num_inputs = 17, s.call.raw.num_outputs = 16; }, -1, {"17", "16", "32"}},
    {"an input too few, which has no index", [](Strict& s) { s.call.raw.num_inputs = 1; }, -1, {"strict/1: b is absent"}},
    {"an input NULL", [](Strict& s) { s.call.inputs[0] = nullptr; }, 0, {"NULL"}},
    {"the last input NULL", [](Strict& s) { s.call.inputs[1] = nullptr; }, 1, {"NULL"}},
    {"all inputs NULL", [](Strict& s) { s.call.inputs[0] = s.call.inputs[1] = nullptr; }, 0, {"NULL"}},
    {"an input too many",
     [](Strict& s) {
       s.call.inputs.push_back(&s.a.tensor);
       s.call.raw.inputs = s.call.inputs.data();
       s.call.raw.num_inputs = 3;
     },
     2,
     {"3 inputs", "2"}},
    {"an output too few", [](Strict& s) { s.call.raw.num_outputs = 1; }, -1, {"1 output", "2"}},
    {"no output", [](Strict& s) { s.call.raw.num_outputs = 0; }, -1, {"0 output", "2"}},
    {"an output NULL", [](Strict& s) { s.call.outputs[1] = nullptr; }, 3, {"second", "NULL"}},

    {"data NULL of an input", [](Strict& s) { s.b->data = nullptr; }, 1, {"data", "NULL", "(4, 2)"}},
    {"data NULL of an output", [](Strict& s) { s.first->data = nullptr; }, 2, {"first", "data", "NULL"}},
    {"data NULL with an offset", [](Strict& s) { s.a->data = nullptr, s.a->byte_offset = 64; }, 0, {"data", "NULL"}},
    {"shape NULL", [](Strict& s) { s.a->shape = nullptr; }, 0, {"shape", "NULL", "ndim 2"}},
    {"ndim -1", [](Strict& s) { s.b->ndim = -1; }, 1, {"ndim", "-1", "16"}},
    {"ndim 17", [](Strict& s) { s.second->ndim = 17; }, 3, {"second", "ndim", "17", "16"}},
    {"ndim huge", [](Strict& s) { s.a->ndim = INT32_MAX; }, 0, {"ndim", "2147483647"}},
    {"a negative extent", [](Strict& s) { set_shape(s.a, {4, -1}); }, 0, {"(4, -1)"}},
    {"the most negative extent", [](Strict& s) { set_shape(s.first, {INT64_MIN, 1}); }, 2, {"first", "-9223372036854775808"}},
    {"a negative extent beside a 0", [](Strict& s) { set_shape(s.a, {0, -2}); }, 0, {"(0, -2)"}},

    {"elements beyond 64 bits", [](Strict& s) { set_shape(s.a, {kHuge, kHuge}); }, 0, {"1099511627776"}},
    {"bytes beyond 64 bits", [](Strict& s) { set_shape(s.b, {INT64_MAX / 2}); }, 1, {"4611686018427387903"}},
    {"bytes beyond the address space",
     [](Strict& s) {
       set_shape(s.a, {INT64_MAX / 4});
       s.a->byte_offset = UINT64_MAX / 2;
     },
     0,
     {"(2305843009213693951,)", "9223372036854775807", "address space"}},
    {"a stride beyond 64 bits", [](Strict& s) { set_shape(s.a, {4, 2}, {INT64_MAX, 1}); }, 0, {"9223372036854775807"}},
    {"a stride beyond the address space", [](Strict& s) { set_shape(s.a, {2}, {INT64_MAX / 2}); }, 0, {"4611686018427387903"}},
    {"a stride below the address space",
     [](Strict& s) { set_shape(s.a, {2}, {-(int64_t{1} << 60)}); },
     0,
     {"-1152921504606846976"}},
    {"the most negative stride", [](Strict& s) { set_shape(s.a, {2}, {INT64_MIN}); }, 0, {"-9223372036854775808"}},
    {"a byte_offset beyond the address space",
     [](Strict& s) { s.a->byte_offset = UINT64_MAX - 64; },
     0,
     {"18446744073709551551", "address space"}},

    {"lanes 4", [](Strict& s) { s.a->dtype.lanes = 4; }, 0, {"4 lanes", "expected 1"}},
    {"lanes 0", [](Strict& s) { s.b->dtype.lanes = 0; }, 1, {"0 lanes", "expected 1"}},
    {"the first code that DLPack does not know",
     [](Strict& s) { s.b->dtype.code = kDLFloat4_e2m1fn + 1; },
     1,
     {"dtype code 18", "expected", "0 to 17"}},
    {"dtype code 200", [](Strict& s) { s.a->dtype.code = 200; }, 0, {"dtype code 200", "expected", "0 to 17"}},
    {"0 bits", [](Strict& s) { s.a->dtype.bits = 0; }, 0, {"0 bits", "expected whole bytes"}},
    {"half bytes", [](Strict& s) { s.b->dtype.bits = 12; }, 1, {"12 bits", "expected whole bytes"}},

    {"an output of another dtype", [](Strict& s) { s.first->dtype = kI32; }, 2, {"first", "int32", "float32"}},
    {"an output of another width", [](Strict& s) { s.first->dtype = kF16; }, 2, {"first", "float16", "float32"}},
    {"an output of lanes 2", [](Strict& s) { s.first->dtype.lanes = 2; }, 2, {"2 lanes", "expected 1"}},
    {"an output of an unknown dtype", [](Strict& s) { s.second->dtype.code = 99; }, 3, {"dtype code 99", "expected"}},
    {"an output of another shape", [](Strict& s) { set_shape(s.first, {2, 4}); }, 2, {"first", "(2, 4)", "(4, 2)"}},
    {"an output of another rank", [](Strict& s) { set_shape(s.second, {8}); }, 3, {"second", "(8,)", "(4, 2)"}},
    {"an output without elements", [](Strict& s) { set_shape(s.second, {0, 2}); }, 3, {"second", "(0, 2)", "(4, 2)"}},

    {"params NULL", [](Strict& s) { s.call.raw.params_size = 8; }, -1, {"params", "NULL", "8"}},
    {"params with a tail",
     [](Strict& s) {
       std::vector<unsigned char> blob(sizeof(ProbeParams) + 9, 0);
       blob.back() = 3;
       s.call.blob(blob);
     },
     -1,
     {"params", "32", "24"},
     NW_UNSUPPORTED},
    {"params with one byte more than the op knows",
     [](Strict& s) {
       std::vector<unsigned char> blob(sizeof(ProbeParams) + 1, 0);
       blob.back() = 1;
       s.call.blob(blob);
     },
     -1,
     {"params byte 24 is not 0", "24 bytes"},
     NW_UNSUPPORTED},
    {"an unknown flag", [](Strict& s) { s.call.raw.flags = 0x40; }, -1, {"flags 0x40", "0x1"}, NW_UNSUPPORTED},

    {"an output of stride 0", [](Strict& s) { set_shape(s.first, {4, 2}, {0, 1}); }, 2, {"first", "(0, 1)"}},
    {"an output of strides that meet", [](Strict& s) { set_shape(s.first, {4, 2}, {1, 1}); }, 2, {"first", "(1, 1)"}},
    {"an output of strides that meet far away",
     [](Strict& s) {
       set_shape(s.first, {2, 4}, {3, 1});
       set_shape(s.a, {2, 4});
     },
     2,
     {"first", "(3, 1)"}},
    {"an output that is an input", [](Strict& s) { s.first->data = s.a->data; }, 2, {"same memory as a;", "in place"}},
    {"an output that is another input", [](Strict& s) { s.second->data = s.a->data; }, 3, {"same memory as a;", "in place"}},
    {"one output twice", [](Strict& s) { s.second->data = s.first->data; }, 3, {"overlaps first of shape", "expected memory"}},
};

// probe.noop/1 works in place, so only other overlaps are refused. All views lie in 64 floats of one memory.
struct View {
  std::vector<int64_t> shape, strides;
  uint64_t offset;  // in bytes
  DLDataType dtype = kF32;
};
struct Overlap {
  const char* what;
  View input, output;
  bool fine;
};
const Overlap kOverlaps[] = {
    {"the same view", {{4}, {}, 16}, {{4}, {1}, 16}, true},
    {"neighbours", {{4}, {}, 0}, {{4}, {}, 16}, true},
    {"one element shared", {{4}, {}, 0}, {{4}, {}, 12}, false},
    {"half an element shared", {{4}, {}, 0}, {{4}, {}, 14}, false},
    {"one byte shared", {{4}, {}, 15}, {{4}, {}, 0}, false},
    {"even and odd elements", {{4}, {2}, 0}, {{4}, {2}, 4}, true},
    {"even elements, and even elements later on", {{4}, {2}, 0}, {{4}, {2}, 8}, false},
    {"even elements, and even elements behind", {{4}, {2}, 0}, {{4}, {2}, 32}, true},
    {"even and odd, a byte off", {{4}, {2}, 0}, {{4}, {2}, 5}, false},
    {"left and right half of a matrix", {{4, 4}, {8, 1}, 0}, {{4, 4}, {8, 1}, 16}, true},
    {"left and middle part of a matrix", {{4, 4}, {8, 1}, 0}, {{4, 4}, {8, 1}, 12}, false},
    {"left half, and right half from the second row", {{3, 4}, {8, 1}, 0}, {{3, 4}, {8, 1}, 48}, true},
    {"upper and lower half of a matrix", {{2, 8}, {8, 1}, 0}, {{2, 8}, {8, 1}, 64}, true},
    {"checkers", {{3, 3}, {16, 2}, 0}, {{3, 3}, {16, 2}, 4}, true},
    {"three interleaved axes", {{2, 2, 2}, {16, 4, 1}, 0}, {{2, 2, 2}, {16, 4, 1}, 8}, true},
    {"three axes that meet", {{2, 2, 2}, {16, 4, 1}, 0}, {{2, 2, 2}, {16, 4, 1}, 4}, false},
    {"the same elements backwards", {{4}, {1}, 0}, {{4}, {-1}, 12}, false},
    {"odd elements backwards, even ones backwards", {{4}, {-2}, 24}, {{4}, {-2}, 28}, true},
    {"the same elements transposed", {{4, 4}, {4, 1}, 0}, {{4, 4}, {1, 4}, 0}, false},
    {"an axis of extent 1", {{1, 4}, {}, 0}, {{1, 4}, {}, 16}, true},
    {"an axis of extent 1 and an element shared", {{1, 4}, {}, 0}, {{1, 4}, {}, 12}, false},
    {"a broadcast input under the output", {{4}, {0}, 4}, {{4}, {1}, 0}, false},
    {"a broadcast input beside the output", {{4}, {0}, 16}, {{4}, {1}, 0}, true},
};

}  // namespace

TEST_CASE("bad tensors and calls are refused") {
  Loaded rt({"probe"});
  const char* const names[] = {"a", "b", "first", "second"};
  Strict good;
  good.call.ok(rt);
  nw_plan* plan = nullptr;
  REQUIRE(good.call.plan(rt, &plan) == NW_OK);
  const int launches = rt.probe().launches;
  for (const Bad& bad : kBad) {
    INFO(bad.what);
    Strict s;
    bad.bend(s);
    const int32_t status = s.call.run(rt);
    CHECK(std::string(nw_status_name(status)) == nw_status_name(bad.status));
    if (status == NW_OK) continue;
    INFO("message: " << s.call.error.text());
    CHECK(s.call.error.status == status);
    CHECK(s.call.error.argument == bad.argument);
    for (const char* word : bad.words) {
      INFO("expected word: " << word);
      CHECK(contains(s.call.error.text(), word));
    }
    if (bad.argument >= 0 && !contains(bad.what, "too many"))
      CHECK(contains(s.call.error.text(), std::string("probe.strict/1: ") + names[bad.argument] + " "));
    CHECK(nw_run(rt, &s.call.raw, nullptr) == status);
    // The question alone has the same answer; of data it reads the alignment only.
    if (!contains(bad.what, "data NULL")) CHECK(nw_plan_get(rt, &s.call.raw, nullptr, nullptr, nullptr) == status);
    // A plan that is held is no way round the checks: the call is bad, or at least not the one that was planned.
    Error error;
    CHECK(nw_launch(plan, &s.call.raw, &error) != NW_OK);
    CHECK(!error.text().empty());
    CHECK(s.first.pristine());
    CHECK(s.second.pristine());
  }
  CHECK(rt.probe().launches == launches);
  nw_plan_release(plan);
}

TEST_CASE("what is wrong with an input is refused by nw_infer too") {
  Loaded rt({"probe"});
  int asked = 0;
  for (const Bad& bad : kBad) {
    // It reads neither addresses nor outputs.
    bool read = bad.argument < 2;
    for (const char* word :
         {"output", "data", "byte_offset", "bytes beyond the address", "below the address", "33 tensors", "all inputs"})
      read &= !contains(bad.what, word);
    if (!read) continue;
    INFO(bad.what);
    ++asked;
    Strict s;
    bad.bend(s);
    std::vector<nw_spec> specs(2);
    for (nw_spec& spec : specs) spec.ndim = 1234;
    expect_refused(s.call.infer(rt, specs), s.call.error, bad.status, bad.argument, {});
    for (const char* word : bad.words) CHECK(contains(s.call.error.text(), word));
    for (const nw_spec& spec : specs) CHECK(spec.ndim == 1234);
  }
  CHECK(asked > 20);
}

TEST_CASE("a call or a runtime that is NULL") {
  Loaded rt({"probe"});
  Strict s;
  Error error;
  nw_plan* plan = nullptr;
  nw_spec spec;
  expect_refused(nw_run(rt, nullptr, &error), error, NW_INVALID, -1, {"call", "NULL"});
  expect_refused(nw_run(nullptr, &s.call.raw, &error), error, NW_INVALID, -1, {"runtime", "NULL"});
  expect_refused(nw_plan_get(rt, nullptr, &plan, nullptr, &error), error, NW_INVALID, -1, {"call", "NULL"});
  expect_refused(nw_plan_get(nullptr, &s.call.raw, &plan, nullptr, &error), error, NW_INVALID, -1, {"runtime", "NULL"});
  expect_refused(nw_infer(rt, nullptr, &spec, 1, &error), error, NW_INVALID, -1, {"call", "NULL"});
  expect_refused(nw_launch(nullptr, &s.call.raw, &error), error, NW_INVALID, -1, {"plan", "NULL"});
  REQUIRE(s.call.plan(rt, &plan) == NW_OK);
  expect_refused(nw_launch(plan, nullptr, &error), error, NW_INVALID, -1, {"call", "NULL"});
  nw_plan_release(plan);
  nw_plan_release(nullptr);
  nw_plan_cache_clear(nullptr);
}

TEST_CASE("views that share a byte are refused and views that don't are not") {
  Loaded rt({"probe"});
  for (const Overlap& overlap : kOverlaps) {
    INFO(overlap.what);
    Array base({64});
    Array a = Array::view(base, overlap.input.shape, overlap.input.strides, overlap.input.offset);
    Array out = Array::view(base, overlap.output.shape, overlap.output.strides, overlap.output.offset);
    Call call("probe.noop/1", {&a}, {&out});
    if (overlap.fine) {
      call.ok(rt);
      continue;
    }
    call.refused(rt, NW_INVALID, 1, {": out of shape", "overlaps a of shape", "expected memory of its own"});
    CHECK(base.pristine());
  }
}

TEST_CASE("outputs that share a byte are refused interleaved ones are not") {
  Loaded rt({"probe"});
  for (const Overlap& overlap : kOverlaps) {
    if (std::string(overlap.what).find("broadcast") != std::string::npos) continue;  // no output has stride 0
    INFO(overlap.what);
    const bool fine = overlap.fine && std::string(overlap.what) != "the same view";
    Array base({64}), a(overlap.input.shape), b(overlap.output.shape);
    Array first = Array::view(base, overlap.input.shape, overlap.input.strides, overlap.input.offset);
    Array second = Array::view(base, overlap.output.shape, overlap.output.strides, overlap.output.offset);
    Call call("probe.strict/1", {&a, &b}, {&first, &second});
    if (fine) {
      call.ok(rt);
      continue;
    }
    call.refused(rt, NW_INVALID, 3, {": second of shape", "overlaps first of shape", "expected memory of its own"});
  }
}

TEST_CASE("views of one memory by other widths or other strides are refused when their bytes meet") {
  Loaded rt({"probe"});
  Array base({64}), a({4});
  Array out = Array::view(base, {4}, {});
  Array words = Array::view(base, {4}, {});
  words.tensor.dtype = kI32;  // an input of another dtype over the output
  Call("probe.noop/1", {&a, &words}, {&out}).refused(rt, NW_INVALID, 3 - 1, {"out", "b"});
  Array bytes = Array::view(base, {4}, {}, 12);
  bytes.tensor.dtype = kU8;
  Call("probe.noop/1", {&a, &bytes}, {&out}).refused(rt, NW_INVALID, 2, {"out", "b"});
  Array third = Array::view(base, {4}, {3}, 4), even = Array::view(base, {4}, {2});  // undecided is refused
  Call("probe.noop/1", {&a, &third}, {&even}).refused(rt, NW_INVALID, 2, {"out", "b"});
  Call("probe.noop/1", {&out, &words}, {&out}).refused(rt, NW_INVALID, 2, {"out", "b"});  // in place with a, but over b
}

TEST_CASE("of views of one memory the shape decides whether they are one tensor") {
  Loaded rt({"probe"});
  Array base({64}), a({4}), wide({2, 6});
  Array flat = Array::view(base, {4}, {}), square = Array::view(base, {2, 2}, {});
  Call("probe.noop/1", {&a, &square}, {&flat}).refused(rt, NW_INVALID, 2, {"overlaps b of shape (2, 2)"});
  Array out = Array::view(base, {2, 6}, {}), other = Array::view(base, {3, 4}, {});
  Call("probe.noop/1", {&wide, &other}, {&out}).refused(rt, NW_INVALID, 2, {"overlaps b of shape (3, 4)"});
}

TEST_CASE("views of one stride and of other extents share a byte or not") {
  Loaded rt({"probe"});
  Array base({64}), a({4});
  Array out = Array::view(base, {4}, {4});  // elements 0, 4, 8, 12
  Array between = Array::view(base, {2}, {4}, 4), hit = Array::view(base, {2}, {4}, 16);
  Array row = Array::view(base, {1, 4}, {4, 4}, 4), rows = Array::view(base, {2, 4}, {0, 4}, 8);
  Call("probe.noop/1", {&a, &between}, {&out}).ok(rt);
  Call("probe.noop/1", {&a, &hit}, {&out}).refused(rt, NW_INVALID, 2, {"overlaps b of shape (2,)"});
  Array matrix({1, 4}), flat_out = Array::view(base, {1, 4}, {4, 4});
  Call("probe.noop/1", {&matrix, &row}, {&flat_out}).ok(rt);
  Array skewed = Array::view(base, {2, 2}, {2, 5}), a2({2, 2});  // elements 0, 5, 2, 7
  Array one_row = Array::view(base, {1, 2}, {2, 5}, 4), touching = Array::view(base, {1, 2}, {2, 5}, 8);
  Call("probe.noop/1", {&a2, &one_row}, {&skewed}).ok(rt);
  Call("probe.noop/1", {&a2, &touching}, {&skewed}).refused(rt, NW_INVALID, 2, {"overlaps b of shape (1, 2)"});
  // Every element of one axis in one place, of the input and of the output: the output's own fault.
  Array repeated = Array::view(base, {2, 4}, {0, 4}), like({2, 4});
  Call("probe.noop/1", {&like, &rows}, {&repeated}).refused(rt, NW_INVALID, 2, {"out of shape (2, 4)", "share a place"});
}

TEST_CASE("a dtype without bits is named and not the memory in which its tensor would lie") {
  Loaded rt({"probe"});
  Array base({64}), a({4});
  Array out = Array::view(base, {4}, {}), inside = Array::view(base, {1}, {}, 8);
  inside->dtype.bits = 0;
  Call("probe.noop/1", {&a, &inside}, {&out}).refused(rt, NW_INVALID, 1, {"b has 0 bits per element"});
}

TEST_CASE("a name of more than 255 bytes is refused") {
  Loaded rt({"probe"});
  Strict s;
  const std::string name(256, 'k');
  s.call.raw.kernel = name.c_str();
  s.call.refused(rt, NW_INVALID, -1, {"kernel has a name of more than 255 bytes"});
  s.call.raw.kernel = name.c_str() + 1;
  s.call.refused(rt, NW_UNSUPPORTED, -1, {"no kernel 'kkk"});
  s.call.raw.kernel = nullptr;
  s.call.raw.op = name.c_str();
  s.call.refused(rt, NW_INVALID, -1, {"op has a name of more than 255 bytes"});
}

TEST_CASE("lanes are named and not the overlap that their bytes would make") {
  Loaded rt({"probe"});
  for (const uint16_t lanes : {0, 4, 65535}) {
    Array base({64});
    Array a = Array::view(base, {4}, {}), out = Array::view(base, {4}, {}, 16);
    a->dtype.lanes = lanes;
    Call("probe.noop/1", {&a}, {&out})
        .refused(rt, NW_INVALID, 0, {": a has", std::to_string(lanes).c_str(), "lanes", "expected 1"});
    a->dtype.lanes = 1;
    out->dtype.lanes = lanes;
    Call("probe.noop/1", {&a}, {&out})
        .refused(rt, NW_INVALID, 1, {": out has", std::to_string(lanes).c_str(), "lanes", "expected 1"});
  }
}

TEST_CASE("a hard question about overlap is answered in bounded time") {
  Loaded rt({"probe"});
  // Strides that make the search wide: many ways to reach a byte.
  const std::vector<int64_t> shape{7, 7, 7, 7, 7, 7}, strides{30030, 15015, 10010, 6006, 4290, 2730};
  Array base({600000}, kProbe, kU8);
  Array a = Array::view(base, shape, strides), b = Array::view(base, shape, strides, 1);
  b.tensor.dtype = a.tensor.dtype = kU8;
  Array out(shape, kProbe, kU8);
  Call call("probe.noop/1", {&out, &a}, {&b});
  CHECK(call.run(rt) == NW_INVALID);  // by its own overlap, or undecided
}

// 16 dimensions of 3 elements: 3^16 indices, of which the search can look at few. In truth no two of them meet, and neither do the
// two tensors; what is not decided is refused. The memory is not there: it is not looked at either.
TEST_CASE("what is not decided about overlap is refused") {
  Loaded rt({"probe"});
  const std::vector<int64_t> shape(NW_MAX_NDIM, 3);
  std::vector<int64_t> even, distinct, padded;  // strides
  int64_t power = 1, room = 1;
  for (int d = 0; d < NW_MAX_NDIM; ++d, power *= 3, room *= 6) {
    even.push_back(2000 + 2 * d);
    distinct.push_back(1'000'000'000 + power);  // a sum of such has its digits to the base of 3
    padded.push_back(room);
  }
  Array base({1}, kProbe, kU8);
  const auto view = [&](const std::vector<int64_t>& strides, uint64_t offset) {
    Array array = Array::view(base, shape, strides, offset);
    array.tensor.dtype = kU8;
    return array;
  };
  Array a = view(padded, uint64_t{1} << 43), input = view(even, 1), output = view(even, 0), apart = view(distinct, 0);
  Array plain = view(padded, 0), meeting = view(padded, 2), apart_from_it = view(padded, 3);
  Error error;
  const auto refused = [&](const Call& call, std::initializer_list<const char*> words) {
    expect_refused(nw_run(rt, &call.raw, &error), error, NW_INVALID, static_cast<int32_t>(call.inputs.size()), words);
  };
  refused(Call("probe.noop/1", {&a, &input}, {&output}), {": out of shape", "overlaps b of shape", "expected memory of its own"});
  refused(Call("probe.noop/1", {&a}, {&apart}), {": out of shape", "strides", "by which two elements share a place"});
  // As many that are decided.
  refused(Call("probe.noop/1", {&a, &meeting}, {&plain}), {": out of shape", "overlaps b of shape"});
  const Call beside("probe.noop/1", {&a, &apart_from_it}, {&plain});
  CHECK(nw_run(rt, &beside.raw, &error) == NW_OK);
}

TEST_CASE("on the CPU the stream is NULL") {
  Loaded rt({"probecpu"});
  Array a({4}, kCpu), out({4}, kCpu);
  Call call("probe.noop/1", {&a}, {&out});
  for (const bool cached : {false, true}) {
    INFO((cached ? "cached" : "not cached"));
    call.raw.stream = &a;
    call.refused(rt, NW_INVALID, -1, {"stream", "NULL", "CPU"});
    call.raw.stream = nullptr;
    call.ok(rt);
  }
  nw_plan* plan = nullptr;
  REQUIRE(call.plan(rt, &plan) == NW_OK);
  call.raw.stream = &a;
  Error error;
  expect_refused(nw_launch(plan, &call.raw, &error), error, NW_INVALID, -1, {"stream", "NULL"});
  nw_plan_release(plan);
}

TEST_CASE("outputs whose strides do not matter") {
  Loaded rt({"probe"});
  Array base({64}), one({1, 4}), none({0, 4});
  Array flat = Array::view(base, {1, 4}, {0, 1}), empty = Array::view(base, {0, 4}, {0, 0}),
        reversed = Array::view(base, {4}, {-1}, 12), gaps = Array::view(base, {2, 3}, {12, 4}),
        woven = Array::view(base, {2, 3}, {3, 2}), column = Array::view(base, {3, 4}, {1, 3});
  Call("probe.noop/1", {&one}, {&flat}).ok(rt);
  Call("probe.noop/1", {&none}, {&empty}).ok(rt);
  Array a({4}), b({2, 3}), c({3, 4});
  Call("probe.noop/1", {&a}, {&reversed}).ok(rt);
  Call("probe.noop/1", {&b}, {&gaps}).ok(rt);
  Call("probe.noop/1", {&b}, {&woven}).ok(rt);  // elements 0, 2, 4 and 3, 5, 7
  Call("probe.noop/1", {&c}, {&column}).ok(rt);
}
