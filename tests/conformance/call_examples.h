// SPDX-License-Identifier: Apache-2.0
// call_examples.h -- one call of every op and kind of kernel, small and large, for tests that are about calls and not about
// numbers. It governs calls.cpp and guard_pages.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/harness.h"

namespace narrows::test {

// An op with tensors of its own; an absent one is nullptr.
struct Example {
  std::string what;
  const char* op;
  std::vector<std::unique_ptr<Tensor>> inputs, outputs;
  Blob params;

  std::vector<const Tensor*> input_pointers() const;
  std::vector<Tensor*> output_pointers() const;
  // Runs it through the harness.
  Result run(const char* kernel = nullptr) const;
  // The bytes of all outputs' elements.
  std::vector<unsigned char> bytes() const;
};

// Both directions of each op. A convolution with zeros before x alone, as many as y is then as long as x; or a stride and no zeros.
std::vector<Example> conv1d_examples(DType dtype, int64_t batch, int64_t channels, int64_t filters, int64_t length, int64_t taps,
                                     int64_t groups);
std::vector<Example> strided_conv1d_examples(DType dtype, int64_t batch, int64_t channels, int64_t filters, int64_t length,
                                             int64_t taps, int64_t groups, int64_t stride);
std::vector<Example> elementwise_examples(DType dtype, int64_t rows, int64_t columns);  // b is broadcast along the rows
std::vector<Example> lltm_examples(DType dtype, int64_t batch, int64_t features, int64_t states);
std::vector<Example> lltm_sequence_examples(DType dtype, int64_t steps, int64_t batch, int64_t features, int64_t states);
// Functions of one to three operands, forward and backward, all tensors of one shape.
std::vector<Example> matrix_examples(DType dtype, int64_t rows, int64_t columns);

// An op that came after these gives its example where its tests are: `const LaterOp kExample(make);` of a function that makes a
// call of it with matrices of that size.
struct LaterOp {
  using Make = Example (*)(DType dtype, int64_t rows, int64_t columns);
  explicit LaterOp(Make make);
};
std::vector<Example> later_examples(DType dtype, int64_t rows, int64_t columns);

// One of each kind, large enough for threads and workspaces; of integers element-wise ones alone.
std::vector<Example> large_examples(DType dtype);

// The example with tensors in other layouts, and the same values; contiguous past the end of a list.
Example with_layouts(const Example& e, const std::vector<Layout>& inputs, const std::vector<Layout>& outputs);

// The call succeeded, and its outputs are those of the same call on other tensors, but for what the order of a sum may change.
void expect_like(const Result& result, const Example& got, const std::vector<std::vector<Exact>>& outputs);
std::vector<std::vector<Exact>> output_values(const Example& e);
Tolerance other_order(DType dtype);

}  // namespace narrows::test
