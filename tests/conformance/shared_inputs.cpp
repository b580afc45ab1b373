// SPDX-License-Identifier: Apache-2.0
// shared_inputs.cpp -- inputs that are one tensor, or views of one memory: the results are those of copies. A kernel that knows two
// equal addresses may take a shorter way, and has to be right there too: x - x is NaN where x is.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "call_examples.h"
#include "conformance/elementwise/elementwise_cases.h"
#include "sample_tensors.h"

using namespace narrows::test;

namespace {

constexpr int64_t kSize = 67;

// What every operand of the function can hold: its own domain, and special values among them.
std::unique_ptr<Tensor> operand(const Function& f, DType dtype, const Shape& shape, const Layout& layout = {}) {
  Rng rng("shared", static_cast<uint64_t>(f.number) * 16 + static_cast<uint64_t>(dtype));
  auto t = std::make_unique<Tensor>(dtype, shape, layout);
  const int last = f.operands - 1;  // of pow the exponents, whose range is the smaller one
  t->set(sample(f, last, dtype, t->size(), rng));
  return t;
}

// All operands of the dtype are `t`; where's mask has another, unless that is bool too.
void check_one_tensor(const Function& f, DType dtype, const Shape& shape, const Layout& layout) {
  const auto t = operand(f, dtype, shape, layout), mask = operand(f, DType::boolean, shape);
  std::vector<const Tensor*> operands;
  for (int i = 0; i < f.operands; ++i) operands.push_back(operand_dtype(f, i, dtype) == dtype ? t.get() : mask.get());
  const std::vector<Exact> reference = expected(f, operands, shape), before = t->exact();
  Tensor out(narrows::reference::out_dtype(f, dtype), shape, layout.steps.empty() ? layout : Layout{});
  for (const char* kernel : kernels("elementwise")) {
    const Result result = run_function(f, operands, out, kernel);
    if (result.was_declined()) continue;
    expect_close(result, out, reference, tolerance(f, dtype));
    if (out.dtype() != dtype) continue;
    const Result in_place = run_function(f, operands, *t, kernel);
    if (in_place.was_declined()) continue;
    expect_close(in_place, *t, reference, tolerance(f, dtype));
    t->set(before);
  }
}

void check_views(const Function& f, DType dtype) {
  const int64_t item = item_size(dtype);
  const auto base = operand(f, dtype, {kSize + 2});
  const Tensor first(*base, dtype, {kSize}, {1}, 0), next(*base, dtype, {kSize}, {1}, item),
      behind(*base, dtype, {kSize}, {1}, 2 * item), backwards(*base, dtype, {kSize}, {-1}, (kSize - 1) * item),
      one(*base, dtype, {}, {}, 0);
  const auto mask = operand(f, DType::boolean, {kSize});
  const std::vector<const Tensor*> choices[] = {
      {&first, &next, &behind}, {&next, &first, &next}, {&first, &backwards, &first}, {&first, &one, &next}};
  for (std::vector<const Tensor*> operands : choices) {
    operands.resize(static_cast<size_t>(f.operands));
    for (int i = 0; i < f.operands; ++i)
      if (operand_dtype(f, i, dtype) != dtype) operands[static_cast<size_t>(i)] = mask.get();
    Tensor out(narrows::reference::out_dtype(f, dtype), {kSize});
    const std::vector<Exact> reference = expected(f, operands, {kSize});
    for (const char* kernel : kernels("elementwise")) {
      const Result result = run_function(f, operands, out, kernel);
      if (!result.was_declined()) expect_close(result, out, reference, tolerance(f, dtype));
    }
  }
}

void for_each_of_several(const std::function<void(const Function&, DType)>& body) {
  expect_offered("elementwise");
  for_each_function([&](const Function& f, DType dtype) {
    if (f.operands > 1) body(f, dtype);
  });
}

// ---- every op: the same call with the inputs as views of one tensor of each dtype, `apart` elements from one to the next ----

struct Together {
  explicit Together(const Example& e, int64_t apart) {
    for (const auto& input : e.inputs) {
      views.push_back(nullptr);
      if (input == nullptr) continue;
      const DType dtype = input->dtype();
      views.back() = std::make_unique<Tensor>(base(e, dtype, apart), dtype, input->shape(), contiguous(input->shape()),
                                              taken[static_cast<size_t>(dtype)]++ * apart * item_size(dtype));
    }
  }
  std::vector<const Tensor*> pointers() const {
    std::vector<const Tensor*> out;
    for (const auto& t : views) out.push_back(t.get());
    return out;
  }
  static std::vector<int64_t> contiguous(const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t axis = strides.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
    return strides;
  }
  const Tensor& base(const Example& e, DType dtype, int64_t apart) {
    std::unique_ptr<Tensor>& own = bases[static_cast<size_t>(dtype)];
    if (own != nullptr) return *own;
    int64_t size = 0, count = 0;
    for (const auto& t : e.inputs)
      if (t != nullptr && t->dtype() == dtype) size = std::max(size, t->size()), ++count;
    own = std::make_unique<Tensor>(dtype, std::vector<int64_t>{size + count * apart});
    Rng rng("together");
    own->fill_uniform(rng, is_float(dtype) ? -1 : 0, is_float(dtype) ? 1 : 100);
    return *own;
  }

  std::unique_ptr<Tensor> bases[16];
  int64_t taken[16] = {};
  std::vector<std::unique_ptr<Tensor>> views;
};

void check_together(const Example& e, int64_t apart) {
  const Together together(e, apart);
  for (size_t i = 0; i < e.inputs.size(); ++i)
    if (e.inputs[i] != nullptr) e.inputs[i]->set(together.views[i]->exact());  // the copies
  for (const char* kernel : kernels(e.op)) {
    const Result copies = e.run(kernel);
    if (copies.was_declined()) continue;
    expect_ok(copies);
    const auto values = output_values(e);
    const Result result =
        run(e.op, together.pointers(), e.output_pointers(), e.params, kernel, 0, e.what + ", the inputs in one memory");
    if (!result.was_declined()) expect_like(result, e, values);
  }
}

std::vector<Example> of_several_inputs(DType dtype) {
  std::vector<Example> all;
  const auto add = [&all](std::vector<Example> more) {
    for (Example& e : more)
      if (offers(e.op) && e.inputs.size() > 1) all.push_back(std::move(e));
  };
  add(matrix_examples(dtype, 5, 33));
  add(elementwise_examples(dtype, 5, 33));
  if (!is_float(dtype)) return all;
  add(conv1d_examples(dtype, 1, 1, 1, 40, 5, 1));
  add(conv1d_examples(dtype, 1, 1, 1, 9, 9, 1));  // x and w of one size
  add(conv1d_examples(dtype, 2, 4, 4, 33, 3, 4));
  add(conv1d_examples(dtype, 2, 18, 17, 21, 3, 1));
  add(conv1d_examples(dtype, 1, 34, 40, 24, 1, 1));
  add(lltm_examples(dtype, 6, 7, 7));  // input, old_h and old_cell of one size
  add(lltm_examples(dtype, 33, 16, 16));
  add(lltm_sequence_examples(dtype, 1, 6, 7, 7));  // a step's input, and the states, of one size
  add(later_examples(dtype, 5, 33));
  return all;
}

}  // namespace

TEST_CASE("elementwise: all operands one tensor, out of place and in place", "[elementwise][shared]") {
  for_each_of_several([](const Function& f, DType dtype) {
    check_one_tensor(f, dtype, {kSize}, {});
    check_one_tensor(f, dtype, {5, 13}, Layout::padded());
    check_one_tensor(f, dtype, {kSize}, Layout::strided(2));
  });
}

TEST_CASE("elementwise: operands that are views of one memory", "[elementwise][shared]") { for_each_of_several(check_views); }

TEST_CASE("calls: inputs at one address, or overlapping, of every op of several inputs", "[calls][shared]") {
  bool some = false;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32})
    for (const Example& e : of_several_inputs(dtype))
      for (const int64_t apart : {0, 1}) {
        some = true;
        check_together(e, apart);
      }
  if (!some) SKIP("the backend offers no built-in op");
}

TEST_CASE("own: inputs that are one tensor give what copies give", "[own][shared]") {
  bool some = false;
  for (const nw_op* op : offered_ops()) {
    if (!is_own(*op)) continue;
    for (const Sample& s : samples_of(*op).filled) {
      const SampleTensors copies(s);
      std::vector<const Tensor*> shared = copies.in();
      for (size_t i = 1; i < shared.size(); ++i)
        for (size_t k = i; k-- > 0;) {
          const bool alike = shared[i] != nullptr && shared[k] != nullptr && shared[i]->dtype() == shared[k]->dtype() &&
                             shared[i]->shape() == shared[k]->shape();
          if (alike) copies.inputs[i]->set(shared[k]->exact()), shared[i] = shared[k];
        }
      if (shared == copies.in()) continue;
      some = true;
      expect_ok(copies.run());
      const auto values = copies.values();
      const Result result = run(s.op->name, shared, copies.out(), Blob(s.params), nullptr, 0, "one tensor for several inputs");
      if (result.status != NW_UNSUPPORTED) expect_agrees(result, copies, values);
    }
  }
  if (!some) SKIP("no op of the backend's own takes two inputs of one dtype and shape");
}
