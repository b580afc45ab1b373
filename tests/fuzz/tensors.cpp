// SPDX-License-Identifier: Apache-2.0
// tensors.cpp -- fuzz target: the metadata of every op's tensors. It makes a legal call of small tensors in any layout, possibly in
// one another's memory, then bends some of it: extents, strides, offsets, ranks, dtypes, devices, NULLs. Oracle: check.cpp.
//
// An input: op, dtype, sizes and params, presence, a layout for each tensor, then the bends, in the order in which make() reads.
#include <algorithm>
#include <climits>
#include <string_view>

#include "oracle.h"
#include "reference/elementwise.h"

namespace narrows::fuzz {
namespace {

using Shape = std::vector<int64_t>;

constexpr int64_t kNumbers[] = {0,
                                1,
                                -1,
                                2,
                                3,
                                4,
                                5,
                                7,
                                8,
                                -2,
                                -3,
                                16,
                                17,
                                63,
                                64,
                                65,
                                127,
                                -128,
                                255,
                                256,
                                1000,
                                4096,
                                65535,
                                65536,
                                INT32_MAX,
                                INT32_MIN,
                                int64_t{1} << 31,
                                int64_t{1} << 32,
                                (int64_t{1} << 32) + 1,
                                int64_t{1} << 40,
                                int64_t{1} << 59,
                                int64_t{1} << 60,
                                int64_t{1} << 61,
                                int64_t{1} << 62,
                                -(int64_t{1} << 61),
                                -(int64_t{1} << 62),
                                INT64_MAX,
                                INT64_MAX - 1,
                                INT64_MIN,
                                INT64_MIN + 1};
int64_t number(Bytes& in) {
  const uint8_t kind = in.byte();
  if (kind < 128) return kNumbers[kind % std::size(kNumbers)];
  return kind < 200 ? in.number<int8_t>() : in.number<int64_t>();
}

// ---- legal calls ----

int64_t size(Bytes& in, int64_t most) { return static_cast<int64_t>(in.below(static_cast<size_t>(most + 1))); }

void conv1d_inputs(Bytes& in, DType dtype, Case* c) {
  const int64_t batch = size(in, 3), groups = 1 + size(in, 3), length = size(in, 60), taps = 1 + size(in, 9);
  const int64_t channels = groups * (1 + size(in, 4)), filters = groups * (1 + size(in, 4));
  const size_t rank = 1 + in.below(3);
  nw_conv1d_params p{1 + size(in, 3), 1 + size(in, 3), rank == 1 ? 1 : groups, size(in, 20), size(in, 20), 0};
  c->params.assign(reinterpret_cast<uint8_t*>(&p), reinterpret_cast<uint8_t*>(&p + 1));
  const Shape x{batch, channels, length};
  c->inputs = {tensor(dtype, {x.end() - static_cast<int64_t>(rank), x.end()}),
               tensor(dtype, rank == 1 ? Shape{taps} : Shape{filters, channels / groups, taps}),
               tensor(dtype, {rank == 1 ? 1 : filters})};
}

void elementwise_inputs(Bytes& in, DType dtype, Case* c) {
  nw_elementwise_params p{};
  p.function = 1 + static_cast<int32_t>(in.below(reference::functions().size()));
  if (p.function == NW_EW_CAST) p.out_dtype = 1 + static_cast<int32_t>(in.below(13));
  p.alpha = p.function == NW_EW_ELU ? 0.5 : 0;
  const int operands = reference::function(p.function).operands;
  Shape full(in.below(6));
  for (int64_t& extent : full) extent = full.size() > 3 ? size(in, 4) : in.flag() ? size(in, 9) : size(in, 40);
  if (in.byte() >= 192)
    full.assign(full.size(), full.empty() ? 0 : std::min<int64_t>(full[0], 7));  // transposed it is the same shape
  for (int i = 0; i < 3; ++i) {
    const uint8_t how = in.byte();
    Shape own(full.begin() + (how & 4 ? static_cast<int64_t>(how >> 3) % static_cast<int64_t>(full.size() + 1) : 0), full.end());
    for (size_t d = 0; d < own.size() && (how & 3) == 3; ++d)
      if (how >> (d % 5 + 3) & 1) own[d] = 1;
    c->inputs.push_back(tensor(i == 0 && p.function == NW_EW_WHERE ? DType::boolean : dtype, own));
    c->inputs.back().present = i < operands && (i == 0 || how < 224);
  }
  if (operands > 1 && !c->inputs[1].present && !test::is_float(dtype)) p.b_int = 1;
  c->params.assign(reinterpret_cast<uint8_t*>(&p), reinterpret_cast<uint8_t*>(&p + 1));
}

void lltm_inputs(Bytes& in, DType dtype, Case* c) {
  const int64_t batch = size(in, 20), features = size(in, 20), states = size(in, 20);
  c->inputs = {tensor(dtype, {batch, features}), tensor(dtype, {3 * states, states + features}),
               tensor(dtype, in.flag() ? Shape{1, 3 * states} : Shape{3 * states}), tensor(dtype, {batch, states}),
               tensor(dtype, {batch, states})};
}

std::vector<TensorSpec> outputs(const Case& c) {
  std::vector<TensorSpec> out(facts(c.op).num_outputs);
  const Verdict v = judge_inputs(c);
  for (size_t i = 0; i < v.outputs.size() && v.illegal.empty(); ++i)
    if (v.outputs[i].possible) out[i] = tensor(v.outputs[i].dtype, v.outputs[i].shape);
  return out;
}

// From the inputs of the forward op to those of `op`.
void make_backward(Op op, Case* c) {
  const std::vector<TensorSpec> y = outputs(*c);
  std::vector<TensorSpec> inputs{y[0]};
  if (op == Op::lltm_backward) inputs.push_back(y[1]);
  inputs.insert(inputs.end(), c->inputs.begin(), c->inputs.end());
  inputs.insert(inputs.end(), y.begin(), y.end());
  c->op = op;
  c->inputs = inputs;
}

// ---- layouts ----

void lay_out(Bytes& in, TensorSpec* t) {
  const uint8_t how = in.byte();
  const size_t n = t->shape.size();
  switch (how % 8) {
    case 1: t->strides_null = true; break;
    case 2:
      for (int64_t& stride : t->strides) stride = -stride;
      break;
    case 3:
      for (size_t d = 0, s = 1; d < n; s *= static_cast<size_t>(t->shape[d] > 0 ? t->shape[d] : 1), ++d)
        t->strides[d] = static_cast<int64_t>(s);
      break;
    case 4: {
      const int64_t step = 2 + static_cast<int64_t>(in.below(4));
      for (int64_t& stride : t->strides) stride *= step;
      break;
    }
    case 5:
      for (int64_t& stride : t->strides) stride = in.number<int8_t>();
      break;
    case 6:
      for (int64_t& stride : t->strides) stride = in.flag() ? 0 : stride;
      break;
    default: break;
  }
  if ((how & 16) != 0) t->misalign = in.byte() % 16;
  if ((how & 32) != 0) t->byte_offset = in.pick<uint64_t>({1, 2, 4, 8, 64, 4096, uint64_t{1} << 40, UINT64_MAX});
}

void share(Bytes& in, size_t i, const Case& c, TensorSpec* t) {
  const uint8_t how = in.byte();
  if (how < 192 || i == 0) return;
  t->shares_with = static_cast<int>(in.below(i));
  const TensorSpec& other = c.tensor(static_cast<size_t>(t->shares_with));
  if ((how & 1) != 0 && other.shape.size() == t->shape.size()) t->strides = other.strides, t->strides_null = other.strides_null;
  if ((how & 8) != 0) std::reverse(t->strides.begin(), t->strides.end());
  if ((how & 2) != 0) t->shift = in.number<int16_t>();
  if ((how & 4) != 0) t->shift = in.number<int8_t>() * t->dtype.bits / 8;
}

// ---- bends ----

void bend_axis(Bytes& in, TensorSpec* t) {
  if (t->shape.empty()) return;
  const size_t d = in.below(t->shape.size());
  switch (in.below(4)) {
    case 0: t->shape[d] = number(in); break;
    case 1: t->strides[d] = number(in), t->strides_null = false; break;
    case 2:
      t->shape.erase(t->shape.begin() + static_cast<int64_t>(d)), t->strides.erase(t->strides.begin() + static_cast<int64_t>(d));
      break;
    default: t->shape[d] = number(in), t->strides[d] = number(in), t->strides_null = false; break;
  }
  t->ndim = static_cast<int32_t>(t->shape.size());
}

// Any rank; the arrays have as many numbers, where there is such a rank.
void bend_rank(Bytes& in, TensorSpec* t) {
  t->ndim = static_cast<int32_t>(number(in));
  if (t->ndim < 0 || t->ndim > NW_MAX_NDIM) return;
  t->shape.resize(static_cast<size_t>(t->ndim), 1);
  t->strides.resize(static_cast<size_t>(t->ndim), 1);
}

void bend(Bytes& in, Case* c) {
  const size_t i = in.below(c->size());
  TensorSpec* t = i < c->inputs.size() ? &c->inputs[i] : &c->outputs[i - c->inputs.size()];
  switch (in.below(12)) {
    case 0: t->dtype = test::dl_dtype(in.pick(test::kAllDTypes)); break;
    case 1: t->dtype = {in.byte(), in.byte(), static_cast<uint16_t>(in.byte() % 3)}; break;
    case 2: t->present = !t->present && t->dtype.bits != 0; break;
    case 3: t->data_null = true; break;
    case 4: (in.flag() ? t->shape_null : t->strides_null) = true; break;
    case 5: t->device = {static_cast<DLDeviceType>(in.byte() % 20), static_cast<int32_t>(number(in))}; break;
    case 6: bend_rank(in, t); break;
    case 7: t->byte_offset = static_cast<uint64_t>(number(in)); break;
    case 8:
      while (t->shape.size() < NW_MAX_NDIM && t->shape.size() < 17)
        t->shape.insert(t->shape.begin(), 1), t->strides.insert(t->strides.begin(), number(in));
      t->ndim = static_cast<int32_t>(t->shape.size());
      break;
    case 9: (in.flag() ? c->inputs : c->outputs).resize(in.below(12)); break;
    default: bend_axis(in, t); break;
  }
}

Case make(Bytes in) {
  Case c;
  const auto op = static_cast<Op>(in.below(num_ops()));
  const bool own = oracle(op).inputs != nullptr, backward = !own && std::string_view(facts(op).name).ends_with("_backward");
  c.op = backward ? static_cast<Op>(static_cast<int>(op) - 1) : op;
  const DType dtype = c.op == Op::elementwise ? in.pick(test::kAllDTypes) : in.pick(test::kFloatDTypes);
  c.seed = in.byte();
  if (own)
    oracle(op).inputs(in, dtype, &c);
  else if (c.op == Op::conv1d)
    conv1d_inputs(in, dtype, &c);
  else if (c.op == Op::elementwise)
    elementwise_inputs(in, dtype, &c);
  else
    lltm_inputs(in, dtype, &c);
  if (op != c.op) make_backward(op, &c);
  const auto absent = in.number<uint16_t>();
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if ((facts(op).required_inputs >> i & 1) == 0 && (absent >> i & 1) != 0 && op != Op::elementwise) c.inputs[i].present = false;
  c.outputs = outputs(c);
  c.kernel = in.pick<const char*>({nullptr, nullptr, nullptr, nullptr, "scalar", "gemm", "direct", "stream", "mixed", "vector"});
  for (size_t i = 0; i < c.outputs.size(); ++i)
    if ((facts(op).required_outputs >> i & 1) == 0 && (absent >> (i + 11) % 16 & 1) != 0) c.outputs[i].present = false;
  for (size_t i = 0; i < c.size(); ++i) {
    TensorSpec* t = i < c.inputs.size() ? &c.inputs[i] : &c.outputs[i - c.inputs.size()];
    lay_out(in, t);
    share(in, i, c, t);
  }
  for (size_t n = in.below(8) < 3 ? 0 : 1 + in.below(3); n > 0 && c.size() != 0; --n) bend(in, &c);
  return c;
}

}  // namespace
}  // namespace narrows::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  narrows::fuzz::check(narrows::fuzz::make({data, size}));
  return 0;
}
