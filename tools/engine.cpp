// SPDX-License-Identifier: Apache-2.0
// engine.cpp -- a thin owner of what the C API hands out. See engine.h.
#include "engine.h"

#include <narrows/plugin.h>

#include <algorithm>
#include <chrono>

namespace narrows::tools {
namespace {

void check(int32_t status, const nw_error& error) {
  if (status != NW_OK) throw StatusError(status, std::string(nw_status_name(status)) + ": " + error.message);
}

// A call and the DLTensors that it points to. Lives for one call.
struct Bound {
  Bound(const Operation& operation, DLDevice device, void* stream, const std::string& backend) {
    bind(operation.inputs), bind(operation.outputs);
    call.struct_size = sizeof call;
    call.num_inputs = static_cast<uint32_t>(operation.inputs.size());
    call.num_outputs = static_cast<uint32_t>(operation.outputs.size());
    call.op = operation.op;
    call.inputs = pointers.data();
    call.outputs = pointers.data() + operation.inputs.size();
    call.params = operation.params.size == 0 ? nullptr : operation.params.bytes;
    call.params_size = operation.params.size;
    call.stream = stream;
    call.device = device;
    call.backend = backend.empty() ? nullptr : backend.c_str();
  }
  Bound(const Bound&) = delete;

  void bind(const std::vector<const Tensor*>& list) {
    for (const Tensor* tensor : list) {
      if (tensor != nullptr) tensors[count] = tensor->dl();
      pointers[count] = tensor == nullptr ? nullptr : &tensors[count];
      ++count;
    }
  }
  std::array<DLTensor, NW_MAX_TENSORS> tensors;
  std::array<const DLTensor*, NW_MAX_TENSORS> pointers;
  size_t count = 0;
  nw_call call{};
};

}  // namespace

const char* device_type_name(int32_t device_type) {
  switch (device_type) {
    case 0: return "unknown";
    case kDLCPU: return "CPU";
    case kDLCUDA: return "CUDA";
    case kDLOpenCL: return "OpenCL";
    case kDLVulkan: return "Vulkan";
    case kDLMetal: return "Metal";
    case kDLROCM: return "ROCm";
    case kDLOneAPI: return "oneAPI";
    case kDLWebGPU: return "WebGPU";
    case kDLHexagon: return "Hexagon";
    case kDLExtDev: return "extension device";
    default: return "other";
  }
}

Runtime::Runtime(const std::string& plugin_path, Warnings warnings) {
  nw_options options{};
  options.struct_size = sizeof options;
  options.plugin_path = plugin_path.empty() ? nullptr : plugin_path.c_str();
  options.log_ctx = this;
  if (warnings == Warnings::told_by_caller) {
    options.log = [](void* self, int32_t level, const char* message) {
      if (level != NW_LOG_INFO) return;
      auto& runtime = *static_cast<Runtime*>(self);
      const std::lock_guard lock(runtime.mutex_);
      runtime.notes_.emplace_back(message);
    };
  }
  nw_error error{};
  check(nw_runtime_create(&options, &runtime_, &error), error);
}

std::vector<std::string> Runtime::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

std::vector<nw_backend_info> Runtime::backends() const {
  std::vector<nw_backend_info> all(nw_backend_count(runtime_));
  for (uint32_t i = 0; i < all.size(); ++i) {
    nw_error error{};
    all[i].struct_size = sizeof(nw_backend_info);
    check(nw_backend(runtime_, i, &all[i], &error), error);
  }
  return all;
}

nw_device_info Runtime::device(DLDevice device) const {
  nw_device_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  check(nw_device(runtime_, device, &info, &error), error);
  return info;
}

Tensor::Tensor(std::shared_ptr<void> memory, DLDevice device, Extents shape)
    : memory_(std::move(memory)), device_(device), ndim_(static_cast<int>(shape.size())) {
  std::copy(shape.begin(), shape.end(), shape_.begin());
  int64_t stride = 1;
  for (int axis = ndim_ - 1; axis >= 0; --axis) strides_[axis] = stride, stride *= shape_[axis];
}

int64_t Tensor::elements() const {
  int64_t product = 1;
  for (int axis = 0; axis < ndim_; ++axis) product *= shape_[axis];
  return product;
}

bool Tensor::contiguous() const {
  int64_t stride = 1;
  for (int axis = ndim_ - 1; axis >= 0; --axis) {
    if (shape_[axis] != 1 && strides_[axis] != stride) return false;
    stride *= shape_[axis];
  }
  return true;
}

std::string Tensor::shape_text() const {
  std::string text = "(";
  for (int axis = 0; axis < ndim_; ++axis) text += (axis == 0 ? "" : ", ") + std::to_string(shape_[axis]);
  return text + ")";
}

Tensor Tensor::view(int64_t offset, Extents shape, Extents strides) const {
  Tensor t = *this;
  t.ndim_ = static_cast<int>(shape.size());
  t.offset_ += offset;
  std::copy(shape.begin(), shape.end(), t.shape_.begin());
  std::copy(strides.begin(), strides.end(), t.strides_.begin());
  return t;
}

Tensor Tensor::reshape(Extents shape) const {
  Tensor t(memory_, device_, shape);
  if (!contiguous() || t.elements() != elements()) throw std::logic_error("reshape of " + shape_text());
  t.offset_ = offset_;
  return t;
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t count) const {
  Tensor t = *this;
  t.offset_ += begin * strides_[axis];
  t.shape_[axis] = count;
  return t;
}

Tensor Tensor::operator[](int64_t index) const {
  Tensor t = *this;
  t.offset_ += index * strides_[0];
  --t.ndim_;
  std::copy(shape_.begin() + 1, shape_.end(), t.shape_.begin());
  std::copy(strides_.begin() + 1, strides_.end(), t.strides_.begin());
  return t;
}

Tensor Tensor::transposed() const {
  Tensor t = *this;
  std::swap(t.shape_[0], t.shape_[1]);
  std::swap(t.strides_[0], t.strides_[1]);
  return t;
}

DLTensor Tensor::dl() const {
  DLTensor t{};
  t.data = memory_.get();
  t.device = device_;
  t.ndim = ndim_;
  t.dtype = {kDLFloat, 32, 1};
  t.shape = const_cast<int64_t*>(shape_.data());
  t.strides = const_cast<int64_t*>(strides_.data());
  t.byte_offset = static_cast<uint64_t>(offset_) * sizeof(float);
  return t;
}

Operation elementwise(int32_t function, std::initializer_list<Operand> operands, const Tensor& out) {
  nw_elementwise_params params{};
  params.function = function;
  Operation operation{"elementwise", {}, {&out}};
  int index = 0;
  for (const Operand& operand : operands) {
    operation.inputs.push_back(operand.tensor);
    if (index == 1) params.b_real = operand.number;
    if (index == 2) params.c_real = operand.number;
    ++index;
  }
  operation.params = params;
  return operation;
}

Engine::Engine(const Runtime& runtime, const std::string& backend) : runtime_(runtime.get()), backend_(backend) {
  const nw_backend_info* found = nullptr;
  const nw_backend_info* refused = nullptr;  // of that name: another file of it may do
  std::string unavailable;
  const auto all = runtime.backends();
  for (const nw_backend_info& b : all) {
    if (!backend.empty() && backend != b.name) continue;
    if (!backend.empty() && b.status != NW_OK && refused == nullptr) refused = &b;
    if (b.status == NW_UNAVAILABLE && b.name[0] != 0) unavailable += std::string("; ") + b.reason;
    if (b.status != NW_OK || b.flags & NW_BACKEND_SHADOWED || b.device_count == 0) continue;
    if (found == nullptr || (b.device_type == kDLCPU && found->device_type != kDLCPU)) found = &b;
  }
  if (found == nullptr && refused != nullptr) throw StatusError(refused->status, "backend '" + backend + "': " + refused->reason);
  if (found == nullptr)
    throw StatusError(NW_UNAVAILABLE, backend.empty()
                                          ? "no plugin with a device was found; `narrows info` says what was searched" + unavailable
                                          : "no backend '" + backend + "' with a device; `narrows info` lists those found");
  device_ = {static_cast<DLDeviceType>(found->device_type), 0};
  const nw_device_info info = runtime.device(device_);
  device_name_ = info.name, arch_ = info.arch;
  nw_error error{};
  check(nw_stream_create(runtime_, device_, &stream_, &error), error);
}

Engine::~Engine() {
  nw_stream_sync(runtime_, device_, stream_, nullptr);
  nw_stream_destroy(runtime_, device_, stream_, nullptr);
}

std::shared_ptr<void> Engine::allocate(int64_t elements) const {
  void* data = nullptr;
  nw_error error{};
  check(nw_alloc(runtime_, device_, static_cast<uint64_t>(elements) * sizeof(float), stream_, &data, &error), error);
  return {data, [rt = runtime_, device = device_, stream = stream_](void* p) { nw_free(rt, device, p, stream, nullptr); }};
}

Tensor Engine::empty(Tensor::Extents shape) const {
  Tensor t(nullptr, device_, shape);
  t.memory_ = allocate(t.elements());
  return t;
}

Tensor Engine::zeros(Tensor::Extents shape) const {
  const Tensor t(nullptr, device_, shape);
  return upload(std::vector<float>(static_cast<size_t>(t.elements())), shape);
}

Tensor Engine::upload(std::span<const float> values, Tensor::Extents shape) const {
  const Tensor t = empty(shape);
  if (t.elements() != static_cast<int64_t>(values.size())) throw std::logic_error("upload of another size than " + t.shape_text());
  nw_error error{};
  check(nw_copy(runtime_, device_, t.memory_.get(), {kDLCPU, 0}, values.data(), values.size_bytes(), stream_, &error), error);
  return t;
}

std::vector<float> Engine::download(const Tensor& tensor) const {
  if (!tensor.contiguous()) throw std::logic_error("download of a strided view");
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  // The device's address is offset by hand: the convention of every device type so far is that this may be done.
  const auto* from = static_cast<const char*>(tensor.memory_.get()) + tensor.offset_ * static_cast<int64_t>(sizeof(float));
  nw_error error{};
  check(nw_copy(runtime_, {kDLCPU, 0}, values.data(), device_, from, values.size() * sizeof(float), stream_, &error), error);
  return values;
}

void Engine::run(const Operation& operation) const {
  const Bound bound(operation, device_, stream_, backend_);
  nw_error error{};
  check(nw_run(runtime_, &bound.call, &error), error);
}

Chosen Engine::chosen(const Operation& operation) const {
  const Bound bound(operation, device_, stream_, backend_);
  nw_plan_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  nw_plan* plan = nullptr;
  check(nw_plan_get(runtime_, &bound.call, &plan, &info, &error), error);
  Chosen result{info.backend == nullptr ? "" : info.backend, info.kernel == nullptr ? "" : info.kernel};
  nw_plan_release(plan);
  return result;
}

void Engine::sync() const {
  nw_error error{};
  check(nw_stream_sync(runtime_, device_, stream_, &error), error);
}

double Engine::seconds_per_run(const Operation& operation) const {
  using Clock = std::chrono::steady_clock;
  const auto batch = [&](int runs) {
    const auto start = Clock::now();
    for (int i = 0; i < runs; ++i) run(operation);
    sync();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  batch(1);  // plans, and touches the memory
  constexpr double kBatchSeconds = 0.004;
  const int runs = std::clamp(static_cast<int>(kBatchSeconds / std::max(batch(1), 1e-9)), 1, 10'000);
  std::array<double, 7> seconds;
  for (double& s : seconds) s = batch(runs) / runs;
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace narrows::tools
