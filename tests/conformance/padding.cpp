// SPDX-License-Identifier: Apache-2.0
// padding.cpp -- tensors whose rows are parts of longer ones, each tensor of a call in a layout of its own: the values are those of
// contiguous tensors, and what lies between the rows is neither written nor part of any result. And outputs that hold NaN before.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "call_examples.h"
#include "sample_tensors.h"

using namespace narrows::test;

namespace {

// Rows and columns: more of the one or of the other, whole vectors or not, as many of both.
constexpr int64_t kSizes[][2] = {{8, 5}, {5, 8}, {3, 64}, {33, 6}, {16, 16}};

std::vector<Example> matrices(DType dtype) {
  std::vector<Example> all;
  const auto add = [&all](std::vector<Example> more) {
    for (Example& e : more)
      if (offers(e.op)) all.push_back(std::move(e));
  };
  for (const auto& [rows, columns] : kSizes) add(matrix_examples(dtype, rows, columns));
  add(elementwise_examples(dtype, 9, 5));
  if (!is_float(dtype)) return all;
  add(conv1d_examples(dtype, 6, 1, 1, 5, 3, 1));  // a batch of signals, as many as a row could have
  add(conv1d_examples(dtype, 2, 8, 9, 5, 3, 1));
  add(conv1d_examples(dtype, 2, 4, 4, 3, 2, 4));
  add(conv1d_examples(dtype, 1, 34, 40, 24, 3, 1));
  add(strided_conv1d_examples(dtype, 2, 8, 16, 13, 3, 1, 2));
  add(lltm_examples(dtype, 9, 5, 4));
  add(lltm_examples(dtype, 33, 17, 16));
  add(lltm_sequence_examples(dtype, 3, 9, 5, 4));
  add(later_examples(dtype, 9, 5));
  add(later_examples(dtype, 33, 16));
  return all;
}

std::vector<Layout> transposed_too(std::vector<Layout> layouts) {
  for (size_t i = layouts.size(); i-- > 0;) {
    layouts.push_back(layouts[i]);
    layouts.back().name += " transposed";
    layouts.back().order = Layout::transposed().order;
  }
  return layouts;
}

// A pitch of one more than a row, of every extent of the tensor, and of whole vectors; rows, or columns, adjacent.
std::vector<Layout> pitches(const Tensor& t) {
  if (t.shape().size() < 2) return {Layout::contiguous(), Layout::strided(2), Layout::reversed()};
  std::vector<int64_t> numbers = t.shape();
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<Layout> layouts{Layout::contiguous(), Layout::padded()};
  for (const int64_t n : numbers) layouts.push_back(Layout::padded(n));
  layouts.push_back(Layout::padded((t.shape().back() + 31) / 16 * 16));
  return transposed_too(layouts);
}

// Of each tensor the one of its pitches that is `turn` places behind; neighbours differ.
std::vector<Layout> mixed(const std::vector<std::unique_ptr<Tensor>>& tensors, size_t turn) {
  std::vector<Layout> layouts;
  for (const auto& t : tensors) {
    const std::vector<Layout> own = t == nullptr ? std::vector<Layout>{} : pitches(*t);
    layouts.push_back(own.empty() ? Layout{} : own[(turn + 3 * layouts.size()) % own.size()]);
  }
  return layouts;
}

constexpr size_t kTurns = 8;

template <class Check>
void for_each_call(std::initializer_list<DType> dtypes, const Check& check) {
  bool some = false;
  for (const DType dtype : dtypes)
    for (const Example& e : matrices(dtype))
      for (const char* kernel : kernels(e.op)) {
        some = true;
        const Result plain = e.run(kernel);
        if (plain.was_declined()) continue;
        expect_ok(plain);
        if (plain.ok()) check(e, kernel, output_values(e));
      }
  if (!some) SKIP("the backend offers no built-in op");
}

void expect_same(const Example& e, const char* kernel, const std::vector<std::vector<Exact>>& values) {
  const Result result = e.run(kernel);
  if (!result.was_declined()) expect_like(result, e, values);
}

}  // namespace

TEST_CASE("calls: outputs with padding between their rows, each in a layout of its own", "[calls][layout][padding]") {
  for_each_call({DType::f32, DType::f64, DType::f16, DType::bf16, DType::u8, DType::i32},
                [](const Example& e, const char* kernel, const auto& values) {
                  for (size_t turn = 0; turn < kTurns; ++turn)
                    expect_same(with_layouts(e, {}, mixed(e.outputs, turn)), kernel, values);
                });
}

TEST_CASE("calls: inputs with NaN between their rows, each in a layout of its own", "[calls][layout][padding]") {
  for_each_call({DType::f32, DType::f16, DType::i32}, [](const Example& e, const char* kernel, const auto& values) {
    for (size_t turn = 0; turn < kTurns; turn += 2) {
      const Example padded = with_layouts(e, mixed(e.inputs, turn), mixed(e.outputs, turn + 1));
      for (const auto& t : padded.inputs)
        if (t != nullptr) t->fill_gaps_nan();
      expect_same(padded, kernel, values);
    }
  });
}

TEST_CASE("calls: in place on padded rows", "[calls][layout][padding]") {
  bool some = false;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::u8})
    for (const Example& e : matrices(dtype)) {
      if (std::string(e.op) != "elementwise" || e.inputs[0]->shape() != e.outputs[0]->shape() ||
          e.inputs[0]->dtype() != e.outputs[0]->dtype())
        continue;
      for (const char* kernel : kernels(e.op)) {
        const Result plain = e.run(kernel);
        if (plain.was_declined()) continue;
        some = true;
        const auto values = output_values(e);
        for (const Layout& layout : pitches(*e.inputs[0])) {
          Example own = with_layouts(e, {layout}, {});
          Tensor& target = *own.inputs[0];
          const Result result = run(e.op, own.input_pointers(), {&target}, e.params, kernel, 0, e.what + " in place");
          if (!result.was_declined()) expect_close(result, target, values[0], other_order(target.dtype()));
        }
      }
    }
  if (!some) SKIP("the backend has no element-wise functions");
}

// As a product with a factor of 0 for what was there before would tell.
TEST_CASE("calls: outputs that hold NaN before do not hold it after", "[calls][padding]") {
  for_each_call({DType::f32, DType::f64, DType::f16, DType::bf16}, [](const Example& e, const char* kernel, const auto& values) {
    Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
    call.raw.kernel = kernel;
    call.note = e.what;
    call.nan_before = true;
    expect_like(call.run(), e, values);
  });
}

TEST_CASE("own: each output in a layout of its own", "[own][layout][padding]") {
  bool some = false;
  for (const nw_op* op : offered_ops()) {
    if (!is_own(*op)) continue;
    some = true;
    const std::vector<Sample>& found = samples_of(*op).filled;
    for (size_t i = 0; i < std::min<size_t>(8, found.size()); ++i) {
      const SampleTensors plain(found[i * found.size() / std::min<size_t>(8, found.size())]);
      expect_ok(plain.run());
      for (size_t turn = 0; turn < kTurns; ++turn) {
        SampleTensors t(plain.sample);
        const std::vector<Layout> layouts = mixed(t.outputs, turn);
        for (size_t o = 0; o < t.outputs.size(); ++o)
          if (t.outputs[o] != nullptr)
            t.outputs[o] = std::make_unique<Tensor>(t.outputs[o]->dtype(), t.outputs[o]->shape(), layouts[o]);
        const Result result = t.run();
        if (result.status != NW_UNSUPPORTED) expect_agrees(result, t, plain.values());
      }
    }
  }
  if (!some) SKIP("the backend brings no op of its own");
}
