// SPDX-License-Identifier: Apache-2.0
// calls.cpp -- see calls.h.
#include "calls.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace narrows::vulkan::test {
namespace {

constexpr DLDevice kHost = {kDLCPU, 0};
constexpr int kUnwritten = 0xC5;

size_t bytes_of(const DLDataType& dtype) { return dtype.bits / 8u; }

// Of a multiple of 1/8 from -1 to 1.
uint16_t half(float value) {
  if (value == 0) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(std::abs(value), &exponent);
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | static_cast<int>((2 * mantissa - 1) * 1024));
}

template <class T>
void store(unsigned char* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

void store_number(unsigned char* to, const DLDataType& dtype, int eighths) {
  const float value = static_cast<float>(eighths) / 8;
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (dtype.code == kDLBool) return store(to, static_cast<uint8_t>(eighths & 1 ? eighths : 0));
  if (dtype.code == kDLUInt) return store(to, static_cast<uint8_t>(eighths + 8));
  if (dtype.code == kDLInt) return store(to, eighths);
  if (dtype.code == kDLBfloat) return store(to, static_cast<uint16_t>(bits >> 16));
  if (dtype.bits == 16) return store(to, half(value));
  if (dtype.bits == 64) return store(to, static_cast<double>(value));
  store(to, value);
}

Bytes numbers(const Tensor& t, uint32_t seed) {
  const size_t size = bytes_of(t.dtype), count = static_cast<size_t>(t.elements());
  Bytes bytes(count * size);
  uint32_t random = seed * 2654435761u + 1;
  for (size_t i = 0; i < count; ++i) {
    random = random * 1664525 + 1013904223;
    store_number(&bytes[i * size], t.dtype, static_cast<int>((random >> 16) % 17) - 8);
  }
  return bytes;
}

}  // namespace

int64_t Tensor::elements() const {
  int64_t last = first, contiguous = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    const int64_t stride = strides.empty() ? contiguous : strides[d];
    if (shape[d] == 0) return 0;
    last += std::max<int64_t>(stride, 0) * (shape[d] - 1);
    contiguous *= shape[d];
  }
  return last + 1;
}

// ---- a call on the device ----

Prepared::Prepared(const Runtime& rt, const Call& call, const char* kernel) : rt_(rt), call_(call) {
  const size_t inputs = call_.inputs.size(), count = inputs + call_.outputs.size();
  tensors_.resize(count);
  pointers_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Tensor& t = tensor(i);
    if (!t.is_there()) continue;
    const size_t size = bytes_of(t.dtype);
    tensors_[i] = {nullptr,
                   on(0),
                   static_cast<int32_t>(t.shape.size()),
                   t.dtype,
                   const_cast<int64_t*>(t.shape.data()),
                   t.strides.empty() ? nullptr : const_cast<int64_t*>(t.strides.data()),
                   static_cast<uint64_t>(t.first) * size};
    pointers_[i] = &tensors_[i];
    REQUIRE(nw_alloc(rt_.handle, on(0), static_cast<uint64_t>(t.elements()) * size, nullptr, &tensors_[i].data, nullptr) == NW_OK);
  }
  reset();
  handed.struct_size = sizeof handed;
  handed.op = call_.op, handed.kernel = kernel, handed.device = on(0), handed.backend = "vulkan";
  handed.num_inputs = static_cast<uint32_t>(inputs), handed.inputs = pointers_.data();
  handed.num_outputs = static_cast<uint32_t>(count - inputs), handed.outputs = pointers_.data() + inputs;
  if (!call_.params.empty()) handed.params = call_.params.data(), handed.params_size = call_.params.size();
}

Prepared::~Prepared() {
  (void)nw_stream_sync(rt_.handle, on(0), nullptr, nullptr);
  for (const DLTensor& t : tensors_) (void)nw_free(rt_.handle, on(0), t.data, nullptr, nullptr);
  (void)nw_free(rt_.handle, on(0), handed.workspace, nullptr, nullptr);
}

void Prepared::write(void* to, const Bytes& bytes) const {
  if (bytes.empty()) return;
  REQUIRE(nw_copy(rt_.handle, on(0), to, kHost, bytes.data(), bytes.size(), nullptr, nullptr) == NW_OK);
  REQUIRE(nw_stream_sync(rt_.handle, on(0), nullptr, nullptr) == NW_OK);  // before the bytes go
}

nw_plan_info Prepared::plan() const {
  nw_plan_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  const int32_t status = nw_plan_get(rt_.handle, &handed, nullptr, &info, &error);
  INFO(error.message);
  REQUIRE(status == NW_OK);
  return info;
}

void Prepared::give_workspace() {
  handed.workspace_size = plan().workspace_size;
  if (handed.workspace_size == 0) return;
  REQUIRE(nw_alloc(rt_.handle, on(0), handed.workspace_size, nullptr, &handed.workspace, nullptr) == NW_OK);
}

void Prepared::fill_workspace(int byte) { write(handed.workspace, Bytes(handed.workspace_size, static_cast<unsigned char>(byte))); }

void Prepared::reset() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensor(i);
    if (!t.is_there()) continue;
    const bool is_input = i < call_.inputs.size();
    write(tensors_[i].data, is_input ? numbers(t, static_cast<uint32_t>(i))
                                     : Bytes(static_cast<size_t>(t.elements()) * bytes_of(t.dtype), kUnwritten));
  }
}

void Prepared::swap(size_t input, size_t output) { std::swap(tensors_[input].data, tensors_[call_.inputs.size() + output].data); }

std::vector<Bytes> Prepared::outputs() const {
  std::vector<Bytes> all;
  for (size_t i = 0; i < call_.outputs.size(); ++i) {
    const Tensor& t = call_.outputs[i];
    if (!t.is_there()) continue;
    Bytes& bytes = all.emplace_back(static_cast<size_t>(t.elements()) * bytes_of(t.dtype));
    const void* const from = tensors_[call_.inputs.size() + i].data;
    REQUIRE(nw_copy(rt_.handle, kHost, bytes.data(), on(0), from, bytes.size(), nullptr, nullptr) == NW_OK);
  }
  REQUIRE(nw_stream_sync(rt_.handle, on(0), nullptr, nullptr) == NW_OK);
  return all;
}

std::vector<const char*> kernels(const Runtime& rt, const char* op) {
  std::vector<const char*> names{nullptr};
  for (uint32_t i = 0; i < nw_backend_count(rt.handle); ++i) {
    nw_backend_info info{};
    info.struct_size = sizeof info;
    if (nw_backend(rt.handle, i, &info, nullptr) != NW_OK || std::strcmp(info.name, "vulkan") != 0) continue;
    for (uint32_t k = 0; k < info.num_ops; ++k)
      if (std::strcmp(info.ops[k]->name, op) == 0)
        for (const char* const* name = info.ops[k]->kernels; *name != nullptr; ++name) names.push_back(*name);
    break;  // the one that was loaded first
  }
  return names;
}

// ---- the six ops ----

Call elementwise(int32_t function, const std::vector<Tensor>& inputs, const Tensor& out, double number) {
  nw_elementwise_params p{};
  p.function = function;
  if (inputs.size() > 1 && !inputs[1].is_there()) p.b_real = number;
  if (inputs.size() > 2 && !inputs[2].is_there()) p.c_real = number;
  if (function == NW_EW_CAST) p.out_dtype = out.dtype.bits == 16 ? NW_DTYPE_FLOAT16 : NW_DTYPE_FLOAT32;
  return {"", "elementwise", inputs, {out}, params(p)};
}

Call elementwise_backward(int32_t function, const std::vector<Tensor>& inputs, const Tensor& out, bool absent, double number) {
  Call call = elementwise(function, inputs, out, number);
  call.op = "elementwise_backward";
  call.inputs.insert(call.inputs.begin(), absent ? Tensor{} : out);
  call.outputs.assign(3, {});
  for (size_t i = 0; i < inputs.size(); ++i) call.outputs[i] = {inputs[i].dtype, inputs[i].shape, {}, 0};
  return call;
}

int64_t Conv::outputs() const {
  const int64_t stride = std::max<int64_t>(params.stride, 1);
  return (length + params.pad_left + params.pad_right - taps) / stride + 1;
}

Call conv1d(DLDataType dtype, const Conv& c) {
  const int64_t ins = c.channels / std::max<int64_t>(c.params.groups, 1);
  return {"",
          "conv1d",
          {{dtype, {c.batch, c.channels, c.length}}, {dtype, {c.outs, ins, c.taps}}, {dtype, {c.outs}}},
          {{dtype, {c.batch, c.outs, c.outputs()}}},
          params(c.params)};
}

Call conv1d_backward(DLDataType dtype, const Conv& c, bool absent) {
  const Call forward = conv1d(dtype, c);
  const Tensor &x = forward.inputs[0], &w = forward.inputs[1], &bias = forward.inputs[2];
  return {"", "conv1d_backward", {absent ? Tensor{} : forward.outputs[0], x, w}, {x, w, bias}, forward.params};
}

Call lltm(DLDataType dtype, int64_t batch, int64_t features, int64_t state) {
  const Tensor input{dtype, {batch, features}}, weights{dtype, {3 * state, state + features}}, bias{dtype, {3 * state}},
      cell{dtype, {batch, state}}, gates{dtype.bits == 16 ? kF32 : dtype, {batch, 3 * state}};
  return {"", "lltm", {input, weights, bias, cell, cell}, {cell, cell, gates}, {}};
}

Call lltm_backward(DLDataType dtype, int64_t batch, int64_t features, int64_t state, bool absent) {
  const Call forward = lltm(dtype, batch, features, state);
  Call call{"", "lltm_backward", {}, forward.inputs, {}};
  call.inputs.assign(2, absent ? Tensor{} : forward.outputs[0]);
  for (const auto* more : {&forward.inputs, &forward.outputs}) call.inputs.insert(call.inputs.end(), more->begin(), more->end());
  return call;
}

}  // namespace narrows::vulkan::test
