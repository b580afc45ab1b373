// SPDX-License-Identifier: Apache-2.0
// sample_tensors.cpp -- see sample_tensors.h.
#include "sample_tensors.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace narrows::test {

SampleTensors::SampleTensors(const Sample& s, const Layout& input_layout, const Layout& output_layout, bool positive) : sample(s) {
  Rng rng(s.describe());
  for (const TensorSpec& spec : s.inputs) {
    inputs.push_back(nullptr);
    if (!spec.present) continue;
    inputs.back() = std::make_unique<Tensor>(spec.dtype, spec.shape, input_layout);
    std::vector<double> numbers(static_cast<size_t>(spec.size()));
    for (double& number : numbers) number = sample_value(spec.dtype, rng, positive);
    inputs.back()->set(numbers);
  }
  for (const TensorSpec& spec : s.outputs)
    outputs.push_back(spec.present ? std::make_unique<Tensor>(spec.dtype, spec.shape, output_layout) : nullptr);
}

std::vector<const Tensor*> SampleTensors::in() const {
  std::vector<const Tensor*> pointers;
  for (const auto& t : inputs) pointers.push_back(t.get());
  return pointers;
}
std::vector<Tensor*> SampleTensors::out() const {
  std::vector<Tensor*> pointers;
  for (const auto& t : outputs) pointers.push_back(t.get());
  return pointers;
}

Result SampleTensors::run(const char* kernel, uint32_t flags) const {
  return test::run(sample.op->name, in(), out(), Blob(sample.params), kernel, flags, sample.describe());
}
Result SampleTensors::run(const Blob& params) const {
  return test::run(sample.op->name, in(), out(), params, nullptr, 0, sample.describe());
}

std::vector<unsigned char> SampleTensors::bytes() const {
  std::vector<unsigned char> all;
  for (const auto& t : outputs) {
    if (t == nullptr) continue;
    const auto more = t->element_bytes();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::vector<std::vector<Exact>> SampleTensors::values() const {
  std::vector<std::vector<Exact>> all;
  for (const auto& t : outputs) all.push_back(t == nullptr ? std::vector<Exact>() : t->exact());
  return all;
}

Tolerance generic_tolerance(DType dtype, const std::vector<Exact>& reference) {
  if (!is_float(dtype)) return {};
  Exact largest = 0;
  for (const Exact value : reference)
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  const double units = dtype == DType::f32 || dtype == DType::f64 ? 256 : 8, relative = units * static_cast<double>(epsilon(dtype));
  return {.rtol = relative, .atol = relative * static_cast<double>(largest), .l2 = relative};
}

void expect_agrees(const Result& result, const SampleTensors& got, const std::vector<std::vector<Exact>>& reference) {
  expect_ok(result);
  if (!result.ok()) return;
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    if (got.outputs[i] == nullptr) continue;
    expect_close(result, *got.outputs[i], reference[i], generic_tolerance(got.outputs[i]->dtype(), reference[i]));
  }
}

std::string stale_elements(const SampleTensors& tensors) {
  std::string text;
  for (size_t i = 0; i < tensors.outputs.size(); ++i) {
    const Tensor* t = tensors.outputs[i].get();
    if (t == nullptr) continue;
    const int64_t stale = t->count_stale();
    const bool may_equal = item_size(t->dtype()) == 1 && t->dtype() != DType::boolean;
    if (stale > (may_equal ? t->size() / 2 : 0)) text += " " + std::to_string(stale) + " of output " + std::to_string(i);
  }
  return text;
}

uint32_t plan_traits(const Sample& sample) {
  const SampleTensors t(sample);
  Call call(sample.op->name, t.in(), t.out(), Blob(sample.params));
  nw_plan_info info{};
  info.struct_size = sizeof info;
  return nw_plan_get(runtime(), &call.raw, nullptr, &info, nullptr) == NW_OK ? info.traits : 0;
}

}  // namespace narrows::test
