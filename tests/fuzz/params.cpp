// SPDX-License-Identifier: Apache-2.0
// params.cpp -- fuzz target: params blobs of any length and content, for every op and kernel variant, over valid tensors of fixed
// shapes. The outputs are made as the blob demands, by the rules of docs/ops.md, so that a legal one is computed. Oracle:
// check.cpp.
//
// An input: a byte each for op, dtype, shapes, absent tensors, kernel, what the memory holds; the rest is the blob.
#include <string_view>

#include "oracle.h"

namespace narrows::fuzz {
namespace {

const char* const kKernels[] = {nullptr, nullptr, nullptr, "direct", "gemm", "mixed", "scalar", "vector", "stream", "none such"};

std::vector<TensorSpec> conv1d_inputs(DType dtype, uint8_t shapes) {
  const int rank = 1 + shapes % 3;
  const int64_t group_channels = 4 >> (shapes / 3 % 3);  // of groups 1, 2 or 4
  const std::vector<int64_t> x{2, 4, 13};
  if (rank == 1) return {tensor(dtype, {13}), tensor(dtype, {3}), tensor(dtype, {1})};
  return {tensor(dtype, {x.end() - rank, x.end()}), tensor(dtype, {8, group_channels, 3}), tensor(dtype, {8})};
}

std::vector<TensorSpec> elementwise_inputs(DType dtype, uint8_t shapes) {
  const bool where = shapes % 4 == 3;
  const std::vector<int64_t> b = shapes % 4 == 1 ? std::vector<int64_t>{5} : std::vector<int64_t>{7, 5};
  return {tensor(where ? DType::boolean : dtype, {7, 5}), tensor(dtype, b),
          tensor(dtype, shapes % 4 == 2 ? std::vector<int64_t>{7, 1} : b)};
}

std::vector<TensorSpec> lltm_inputs(DType dtype) {
  const int64_t batch = 3, features = 5, states = 4;
  return {tensor(dtype, {batch, features}), tensor(dtype, {3 * states, states + features}), tensor(dtype, {3 * states}),
          tensor(dtype, {batch, states}), tensor(dtype, {batch, states})};
}

// grad of the outputs, inputs, and what else backward takes.
std::vector<TensorSpec> backward_inputs(Op op, DType dtype, const std::vector<TensorSpec>& forward, const TensorSpec& y) {
  std::vector<TensorSpec> inputs{y};
  if (op == Op::lltm_backward) inputs.push_back(y);
  inputs.insert(inputs.end(), forward.begin(), forward.end());
  inputs.push_back(y);
  if (op != Op::lltm_backward) return inputs;
  inputs.push_back(y);
  inputs.push_back(tensor(dtype == DType::f64 ? DType::f64 : DType::f32, {3, 12}));
  return inputs;
}

std::vector<TensorSpec> forward_inputs(Op op, DType dtype, uint8_t shapes) {
  if (oracle(op).inputs != nullptr) {
    Case c;
    c.op = op;
    const std::vector<uint8_t> sizes(64, shapes);
    Bytes in(sizes.data(), sizes.size());
    oracle(op).inputs(in, dtype, &c);
    return c.inputs;
  }
  switch (op) {
    case Op::conv1d:
    case Op::conv1d_backward: return conv1d_inputs(dtype, shapes);
    case Op::elementwise:
    case Op::elementwise_backward: return elementwise_inputs(dtype, shapes);
    default: return lltm_inputs(dtype);
  }
}

bool is_small(const OutputSpec& spec) {
  Wide count = 1;
  for (const int64_t extent : spec.shape) count *= extent;
  return spec.possible && count <= 1 << 12;
}

// What the call gives, if that is small; else, or if the call is illegal anyway, what it gives without a blob.
std::vector<TensorSpec> outputs(const Case& c, const TensorSpec& fallback) {
  const Verdict v = judge_inputs(c);
  std::vector<TensorSpec> out(facts(c.op).num_outputs, fallback);
  for (size_t i = 0; i < v.outputs.size() && v.illegal.empty(); ++i) {
    if (is_small(v.outputs[i])) out[i] = tensor(v.outputs[i].dtype, v.outputs[i].shape);
    if (!v.outputs[i].possible) out[i].present = false;
  }
  return out;
}

// The gradient of an op follows it.
Op forward_of(Op op) {
  const bool backward = std::string_view(facts(op).name).ends_with("_backward");
  return backward && oracle(op).inputs == nullptr ? static_cast<Op>(static_cast<int>(op) - 1) : op;
}

Case make(Bytes bytes) {
  Case c;
  c.op = static_cast<Op>(bytes.below(num_ops()));
  const DType dtype = bytes.pick(test::kAllDTypes);
  const uint8_t shapes = bytes.byte(), absent = bytes.byte();
  c.kernel = bytes.pick(kKernels);
  c.seed = bytes.byte();
  c.flags = bytes.pick({0u, 0u, 0u, 0u, 0u, 0u, 1u, 2u});
  c.params = bytes.rest();
  c.params_null = c.params.empty() && (absent & 0x80) != 0;
  const auto optional_absent = [&](std::vector<TensorSpec>& tensors, uint32_t required, uint8_t bits) {
    for (size_t i = 0; i < tensors.size(); ++i)
      if ((required >> i & 1) == 0 && (bits >> i % 8 & 1) != 0) tensors[i].present = false;
  };
  Case forward = c;
  forward.op = forward_of(c.op);
  forward.inputs = forward_inputs(c.op, dtype, shapes);
  const TensorSpec y = outputs(forward, forward.inputs[0])[0];
  c.inputs = c.op == forward.op ? forward.inputs : backward_inputs(c.op, dtype, forward.inputs, y);
  optional_absent(c.inputs, facts(c.op).required_inputs, absent);
  c.outputs = outputs(c, y);
  optional_absent(c.outputs, facts(c.op).required_outputs, absent >> 4);
  return c;
}

}  // namespace
}  // namespace narrows::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  narrows::fuzz::check(narrows::fuzz::make({data, size}));
  return 0;
}
