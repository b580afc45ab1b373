// SPDX-License-Identifier: Apache-2.0
// call.h -- one call of an op as a fuzz target makes it up: any metadata, any blob. It governs what the parts of the oracle share:
//   contract.cpp  is the call legal by docs/ops.md, and which outputs does it give? Written from that page, not from core.
//   oracle.h      what is known of each op
//   memory.cpp    real memory, exactly as large as the metadata reaches
//   expected.cpp  what the outputs must hold, by tests/reference
//   check.cpp     makes the call and holds it against all of that
#pragma once

#include <narrows/narrows.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "support/dtype.h"

namespace narrows::fuzz {

using test::DType;
using test::Exact;
__extension__ typedef __int128 Wide;

struct TensorSpec {
  bool present = false;
  DLDataType dtype{};
  int32_t ndim = 0;
  std::vector<int64_t> shape, strides;  // ndim of each, where 0 <= ndim <= NW_MAX_NDIM; else what was there before
  bool shape_null = false, strides_null = false, data_null = false;
  uint64_t byte_offset = 0;
  uint32_t misalign = 0;  // bytes past an address that is divisible by 16
  DLDevice device{kDLCPU, 0};
  int shares_with = -1;  // a tensor of a lower number in whose memory it lies ...
  int32_t shift = 0;     // ... this many bytes after that one's first element

  std::optional<DType> known_dtype() const;
  int64_t stride(size_t d) const;  // as given, or that of a contiguous tensor
};
// A contiguous tensor of memory of its own.
TensorSpec tensor(DType dtype, std::vector<int64_t> shape);

#define NARROWS_OP(name) name,
enum class Op {
#include "core/ops/ops.inc"
};
#undef NARROWS_OP
struct OpFacts {
  const char* name;
  uint32_t min_inputs, max_inputs, num_outputs;
  uint32_t required_inputs, required_outputs;  // bit i: tensor i may not be NULL
  size_t params_size;
};
const OpFacts& facts(Op op);
size_t num_ops();

struct Case {
  Op op = Op::conv1d;
  std::vector<TensorSpec> inputs, outputs;
  std::vector<uint8_t> params;
  bool params_null = false;  // params == NULL whatever params_size says
  uint32_t flags = 0;
  const char* kernel = nullptr;
  uint64_t seed = 0;  // of what the memory holds

  const TensorSpec* input(size_t i) const { return i < inputs.size() && inputs[i].present ? &inputs[i] : nullptr; }
  const TensorSpec* output(size_t i) const { return i < outputs.size() && outputs[i].present ? &outputs[i] : nullptr; }
  const TensorSpec& tensor(size_t i) const { return i < inputs.size() ? inputs[i] : outputs[i - inputs.size()]; }
  size_t size() const { return inputs.size() + outputs.size(); }

  // The blob, extended by zeros. What is too long is not looked at here.
  template <class P>
  P params_as() const {
    P out{};
    if (!params.empty()) std::memcpy(&out, params.data(), std::min(params.size(), sizeof out));
    return out;
  }
  nw_conv1d_params conv1d() const { return params_as<nw_conv1d_params>(); }
  nw_elementwise_params elementwise() const { return params_as<nw_elementwise_params>(); }
};

// ---- contract.cpp ----

// Bytes that the elements of a tensor cover, from its first element. No element: empty.
struct Reach {
  Wide below = 0, above = 0;  // <= 0, >= 0
  Wide elements = 1;
  bool empty() const { return elements == 0; }
};
// Nothing where the metadata is no tensor's, or it needs more than 2^63 - 1 bytes or elements.
std::optional<Reach> reach(const TensorSpec& t);

// Why the inputs, the params or the flags make the call illegal; "" when they do not. `outputs`: what the call then gives.
struct OutputSpec {
  bool possible = false;  // false: the gradient of an input that is absent
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};
struct Verdict {
  std::string illegal;    // a refusal is demanded, because ...
  std::string unsettled;  // else, not empty: the docs allow a refusal, because ...
  std::vector<OutputSpec> outputs;
};
Verdict judge_inputs(const Case& c);
// The same of the whole call but for what depends on addresses, which is memory.cpp's.
Verdict judge(const Case& c);

// ---- expected.cpp ----

// Values in C order and by how much a result may be off before it is rounded to its dtype. Not compared: no values.
struct Expected {
  std::vector<Exact> values, bounds;
};
// `values`: what the tensors of the call hold before it, inputs then outputs. The call is legal, and small.
std::vector<Expected> expected(const Case& c, const std::vector<std::vector<Exact>>& values);
// Elements that the call, or the reference, walks over.
Wide work(const Case& c);

// ---- check.cpp ----

// Calls nw_infer, nw_plan_get and, where memory for it can be had, nw_run; ends the process where they break the contract.
void check(const Case& c);
std::string describe(const Case& c);

}  // namespace narrows::fuzz
