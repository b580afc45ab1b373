// SPDX-License-Identifier: Apache-2.0
// own_ops.cpp -- the ops of a plugin's own, of which the suite knows nothing but the declaration: calls that are accepted are found
// (op_sampler.h), and each is made in many ways that must agree. There is no reference; own_backward.cpp has the derivatives.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <thread>

#include "plugin_table.h"
#include "sample_tensors.h"

using namespace narrows::test;

namespace {

constexpr size_t kSamples = 8;  // of an op, where one call is made in very many ways

std::vector<const nw_op*> own_ops() {
  std::vector<const nw_op*> own;
  for (const nw_op* op : offered_ops())
    if (is_own(*op)) own.push_back(op);
  if (own.empty()) SKIP("the backend brings no op of its own");
  return own;
}

// At most `most` of an op, of all dtypes and forms that were found; the test fails where an op has none.
std::vector<Sample> own_samples(size_t most = 1000) {
  std::vector<Sample> all;
  for (const nw_op* op : own_ops()) {
    const std::vector<Sample>& found = samples_of(*op).filled;
    const size_t count = std::min(most, found.size());
    if (count == 0) FAIL_CHECK(op->name << ": no accepted call found; the last refusal: " << samples_of(*op).refusal);
    for (size_t i = 0; i < count; ++i) all.push_back(found[i * found.size() / count]);
  }
  return all;
}

bool is_deterministic(const Sample& s) { return (plan_traits(s) & NW_PLAN_NONDETERMINISTIC) == 0; }

// What a layout, or anything else that an op may decline, gives: the reference's values, or unsupported.
void expect_same_or_unsupported(const Result& result, const SampleTensors& got, const std::vector<std::vector<Exact>>& reference) {
  if (result.status == NW_UNSUPPORTED)
    SUCCEED();
  else
    expect_agrees(result, got, reference);
}

// The values of `from`, which has the same shapes.
void set_inputs(SampleTensors& to, const SampleTensors& from) {
  for (size_t i = 0; i < to.inputs.size(); ++i)
    if (to.inputs[i] != nullptr) to.inputs[i]->set(from.inputs[i]->exact());
}

std::vector<Layout> layouts_for(const Sample& s) {
  std::vector<Layout> layouts;
  for (const TensorSpec& t : s.inputs)
    if (t.present) {
      layouts = all_layouts(2, t.dtype);
      break;
    }
  layouts.push_back(Layout::contiguous().with_misalignment(2));
  layouts.push_back(Layout::contiguous().with_misalignment(4));
  return layouts;
}

}  // namespace

TEST_CASE("own: every op has calls that are accepted, and each writes every element", "[own]") {
  for (const Sample& s : own_samples()) {
    const SampleTensors t(s);
    const Result result = t.run();
    expect_ok(result);
    if (!result.ok()) continue;
    const std::string stale = stale_elements(t);
    if (!stale.empty()) FAIL_CHECK(result.what << "\n  elements were never written:" << stale);
  }
}

TEST_CASE("own: tensors without elements are taken or refused, and what is left is written", "[own]") {
  size_t taken = 0;
  for (const nw_op* op : own_ops())
    for (const Sample& s : samples_of(*op).empty) {
      ++taken;
      const SampleTensors t(s);
      const Result result = t.run();
      expect_ok(result);
      if (result.ok() && !stale_elements(t).empty())
        FAIL_CHECK(result.what << "\n  elements were never written:" << stale_elements(t));
    }
  if (taken == 0) SKIP("no op of the plugin's own takes tensors without elements");
}

TEST_CASE("own: the same bits again, also by a new plan", "[own][determinism]") {
  for (const Sample& s : own_samples()) {
    const SampleTensors t(s);
    const bool deterministic = is_deterministic(s);
    const Result first = t.run(nullptr, deterministic ? NW_DETERMINISTIC : 0);
    if (deterministic && first.status == NW_UNSUPPORTED) continue;  // it does not promise what it does
    expect_ok(first);
    const auto bytes = t.bytes();
    const auto values = t.values();
    for (int again = 0; again < 3; ++again) {
      if (again == 1) nw_plan_cache_clear(runtime());
      const Result result = t.run(nullptr, deterministic ? NW_DETERMINISTIC : 0);
      expect_agrees(result, t, values);
      if (deterministic && t.bytes() != bytes) FAIL_CHECK(result.what << "\n  other bits than before, in run " << again + 2);
    }
  }
}

TEST_CASE("own: the same on two streams at once", "[own][stream]") {
  for (const Sample& s : own_samples(kSamples)) {
    const SampleTensors one(s), two(s), alone(s);
    expect_ok(alone.run());
    std::vector<std::pair<const SampleTensors*, void*>> sides{{&one, nullptr}, {&two, nullptr}};
    for (auto& [tensors, stream] : sides) {
      REQUIRE(nw_stream_create(runtime(), device(), &stream, nullptr) == NW_OK);
      for (Tensor* t : tensors->out())
        if (t != nullptr) t->poison();
    }
    std::vector<int32_t> statuses(2, NW_OK);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        Call call(s.op->name, sides[i].first->in(), sides[i].first->out(), Blob(s.params));
        call.raw.stream = sides[i].second;
        for (int round = 0; round < 4 && statuses[i] == NW_OK; ++round) statuses[i] = nw_run(runtime(), &call.raw, nullptr);
        if (statuses[i] == NW_OK) statuses[i] = nw_stream_sync(runtime(), device(), sides[i].second, nullptr);
      });
    for (std::thread& thread : threads) thread.join();
    INFO(s.describe());
    const bool deterministic = is_deterministic(s);
    for (size_t i = 0; i < 2; ++i) {
      CHECK(statuses[i] == NW_OK);
      CHECK((!deterministic || sides[i].first->bytes() == alone.bytes()));
      CHECK(nw_stream_destroy(runtime(), device(), sides[i].second, nullptr) == NW_OK);
    }
  }
}

TEST_CASE("own: every kernel variant agrees with the backend's own choice", "[own]") {
  for (const Sample& s : own_samples()) {
    const SampleTensors t(s);
    expect_ok(t.run());
    const auto reference = t.values();
    for (const char* kernel : kernels(s.op->name))
      if (kernel != nullptr) expect_same_or_unsupported(t.run(kernel), t, reference);
  }
}

TEST_CASE("own: any layout gives the same values, or is unsupported", "[own][layout]") {
  for (const Sample& s : own_samples(kSamples)) {
    const SampleTensors contiguous(s);
    expect_ok(contiguous.run());
    const auto reference = contiguous.values();
    for (const Layout& layout : layouts_for(s)) {
      for (const auto& [in, out] : {std::pair{layout, Layout{}}, {Layout{}, layout}, {layout, layout}}) {
        const SampleTensors t(s, in, out);
        expect_same_or_unsupported(t.run(), t, reference);
      }
    }
    for (size_t i = 0; i < s.inputs.size(); ++i) {  // one input at a time, so that no other's layout hides it
      if (!s.inputs[i].present) continue;
      for (const Layout& layout : {Layout::strided(2), Layout::reversed(), Layout::transposed()}) {
        SampleTensors t(s);
        const std::vector<Exact> values = t.inputs[i]->exact();
        t.inputs[i] = std::make_unique<Tensor>(s.inputs[i].dtype, s.inputs[i].shape, layout);
        t.inputs[i]->set(values);
        expect_same_or_unsupported(t.run(), t, reference);
      }
    }
  }
}

TEST_CASE("own: an input of stride 0 gives what its copy gives, or is unsupported", "[own][layout]") {
  for (const Sample& s : own_samples(kSamples))
    for (const bool every_axis : {true, false}) {
      const SampleTensors t(s, Layout::broadcast({true, every_axis, every_axis, every_axis}));
      SampleTensors copy(s);
      set_inputs(copy, t);
      expect_ok(copy.run());
      expect_same_or_unsupported(t.run(), t, copy.values());
    }
}

TEST_CASE("own: in place is as out of place where the op allows it, else refused", "[own][inplace]") {
  for (const Sample& s : own_samples(kSamples)) {
    const SampleTensors apart(s);
    expect_ok(apart.run());
    const auto reference = apart.values();
    for (size_t i = 0; i < s.inputs.size(); ++i)
      for (size_t o = 0; o < s.outputs.size(); ++o) {
        const TensorSpec &in = s.inputs[i], &out = s.outputs[o];
        if (!in.present || !out.present || in.dtype != out.dtype || in.shape != out.shape) continue;
        for (const Layout& layout : {Layout::contiguous(), Layout::strided(2)}) {
          SampleTensors t(s, layout);
          std::vector<Tensor*> outputs = t.out();
          outputs[o] = t.inputs[i].get();
          const Result result = run(s.op->name, t.in(), outputs, Blob(s.params), nullptr, 0, "in place " + s.describe());
          if ((s.op->flags & NW_OP_INPLACE) == 0) {
            expect_refused(result, NW_INVALID, static_cast<int32_t>(s.inputs.size() + o), {"in place"});
          } else if (result.status != NW_UNSUPPORTED) {
            t.outputs[o] = std::move(t.inputs[i]);
            expect_agrees(result, t, reference);
          }
        }
      }
  }
}

TEST_CASE("own: a batch of calls is the calls one by one, where the op says so", "[own][batch]") {
  constexpr int64_t kBatch = 3;
  size_t batchable = 0;
  for (const Sample& s : own_samples(kSamples)) {
    if ((s.op->flags & NW_OP_BATCHABLE) == 0) continue;
    ++batchable;
    size_t rank = 0;
    for (const TensorSpec& t : s.inputs) rank = std::max(rank, t.shape.size());
    Sample batched = s;
    for (TensorSpec& t : batched.inputs) {
      if (!t.present) continue;
      t.shape.insert(t.shape.begin(), rank - t.shape.size(), 1);
      t.shape.insert(t.shape.begin(), kBatch);
    }
    nw_error error{};
    INFO(s.describe() << " with a leading axis of " << kBatch << ": " << error.message);
    const bool inferred = infer_outputs(batched, &error);
    CHECK(inferred);
    if (!inferred) continue;
    const SampleTensors all(batched);
    const Result result = all.run();
    std::vector<std::vector<Exact>> expected(s.outputs.size());
    for (int64_t b = 0; b < kBatch; ++b) {
      const SampleTensors one(s);
      for (size_t i = 0; i < one.inputs.size(); ++i) {
        if (one.inputs[i] == nullptr) continue;
        const std::vector<Exact> stacked = all.inputs[i]->exact();
        const auto first = stacked.begin() + b * one.inputs[i]->size();
        one.inputs[i]->set(std::vector<Exact>(first, first + one.inputs[i]->size()));
      }
      expect_ok(one.run());
      const auto values = one.values();
      for (size_t o = 0; o < expected.size(); ++o) expected[o].insert(expected[o].end(), values[o].begin(), values[o].end());
    }
    for (size_t o = 0; o < expected.size(); ++o)
      if (all.outputs[o] != nullptr) CHECK((!all.outputs[o]->shape().empty() && all.outputs[o]->shape()[0] == kBatch));
    expect_agrees(result, all, expected);
  }
  if (batchable == 0) SKIP("no op of the plugin's own is batchable");
}

TEST_CASE("own: the plugin's infer agrees with the shape rule, and is pure", "[own][infer]") {
  const nw_plugin& table = tested_table();
  const std::vector<Sample> samples = own_samples();
  if (table.infer == nullptr) SKIP("the plugin has no infer: its ops have shape rules");
  const Instance instance;
  for (const Sample& s : samples) {
    Signature signature(s, {8, 1}, 0, false);
    std::vector<nw_spec> specs(s.outputs.size()), again(s.outputs.size());
    nw_error error{};
    const int32_t status = table.infer(instance.self(), signature.get(), specs.data(), s.op->num_outputs, &error);
    INFO(s.describe() << ": infer: " << nw_status_name(status) << " " << error.message);
    CHECK((status == NW_OK || (status == NW_UNSUPPORTED && s.op->shape_rule != nullptr)));
    CHECK(table.infer(instance.self(), signature.get(), again.data(), s.op->num_outputs, nullptr) == status);
    if (status != NW_OK) continue;
    CHECK(std::memcmp(specs.data(), again.data(), specs.size() * sizeof(nw_spec)) == 0);
    for (size_t i = 0; i < specs.size(); ++i) {
      DType dtype{};
      INFO("output " << i);
      CHECK((find_dtype(specs[i].dtype, &dtype) && dtype == s.outputs[i].dtype));
      CHECK(std::vector<int64_t>(specs[i].shape, specs[i].shape + std::max(specs[i].ndim, 0)) == s.outputs[i].shape);
      for (int32_t axis = std::max(specs[i].ndim, 0); axis < NW_MAX_NDIM; ++axis) CHECK(specs[i].shape[axis] == 0);
    }
  }
}

TEST_CASE("own: params of any length, and what they may not hold", "[own][refusal]") {
  for (const Sample& s : own_samples(kSamples)) {
    const SampleTensors t(s);
    expect_ok(t.run());
    const auto reference = t.values();
    std::vector<unsigned char> blob = s.params;
    while (!blob.empty() && blob.back() == 0) {
      blob.pop_back();
      expect_agrees(t.run(Blob(blob)), t, reference);
    }
    blob = s.params;
    blob.resize(blob.size() + 16, 0);
    expect_agrees(t.run(Blob(blob)), t, reference);
    for (const size_t at : {s.params.size(), s.params.size() + 15}) {
      std::vector<unsigned char> tail = blob;
      tail[at] = 1;
      expect_refused(t.run(Blob(tail)), NW_UNSUPPORTED, -1, {std::to_string(at).c_str()});
    }
    for (int bit = 1; bit < 32; ++bit) expect_refused(t.run(nullptr, 1u << bit), NW_UNSUPPORTED, -1, {"flags"});
  }
}

TEST_CASE("own: an unknown number of a numbered field is unsupported", "[own][refusal]") {
  int fields = 0;
  for (const Sample& s : own_samples(kSamples))
    for (const nw_param* const* field = s.op->params; field != nullptr && *field != nullptr; ++field) {
      DType dtype{};
      if ((*field)->values == nullptr || !find_dtype((*field)->dtype, &dtype)) continue;
      ++fields;
      int64_t count = 0;
      while ((*field)->values[count] != nullptr) ++count;
      Sample wrong = s;
      for (const int64_t number : {count, count + 50}) {
        store(dtype, static_cast<Exact>(number), wrong.params.data() + (*field)->offset);
        const Result result = SampleTensors(wrong).run();
        INFO(result.what << "\n  " << (*field)->name << " = " << number << " gives " << nw_status_name(result.status));
        CHECK(result.status == NW_UNSUPPORTED);
      }
    }
  if (fields == 0) SKIP("no op of the plugin's own has a field whose numbers have names");
}
