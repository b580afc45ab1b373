// SPDX-License-Identifier: Apache-2.0
// sample_tensors.h -- a sampled call (op_sampler.h) on test tensors: filled, laid out, run through the harness, and its results
// compared with those of another way to make the same call. It governs own_*.cpp and repeat.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "op_sampler.h"

namespace narrows::test {

struct SampleTensors {
  // The same values whatever the layouts. `positive`: floats in [0.2, 0.8] alone.
  explicit SampleTensors(const Sample& sample, const Layout& inputs = {}, const Layout& outputs = {}, bool positive = false);
  std::vector<const Tensor*> in() const;
  std::vector<Tensor*> out() const;
  Result run(const char* kernel = nullptr, uint32_t flags = 0) const;
  Result run(const Blob& params) const;
  std::vector<unsigned char> bytes() const;        // of all outputs' elements
  std::vector<std::vector<Exact>> values() const;  // of each output; none where it is absent

  Sample sample;
  std::vector<std::unique_ptr<Tensor>> inputs, outputs;  // an absent one is nullptr
};

// How far apart two ways of computing one thing may be: sums in another order, fused or not. 256 units of rounding for f32 and f64,
// 8 for f16 and bf16 (which are rounded once or twice), of the value or of the largest in the tensor. Integers and bool: equal.
Tolerance generic_tolerance(DType dtype, const std::vector<Exact>& reference);

// The run succeeded, and each output agrees so with `reference`.
void expect_agrees(const Result& result, const SampleTensors& got, const std::vector<std::vector<Exact>>& reference);

// Elements of the outputs that nobody wrote; of 8-bit integers, which may equal the poison, only if they are more than half.
std::string stale_elements(const SampleTensors& tensors);

// The traits of the plan of a sample, by nw_plan_get.
uint32_t plan_traits(const Sample& sample);

}  // namespace narrows::test
