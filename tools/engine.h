// SPDX-License-Identifier: Apache-2.0
// engine.h -- the narrows command's own view of the C API: a runtime, tensors on one device, operations on them, as values that
// clean up after themselves.
#pragma once

#include <narrows/narrows.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace narrows::tools {

// A status other than NW_OK, with what the library said.
struct StatusError : std::runtime_error {
  StatusError(int32_t code, const std::string& message) : std::runtime_error(message), status(code) {}
  int32_t status;
};

class Runtime {
 public:
  // plugin_path "": NARROWS_PLUGIN_PATH. Warnings about plugins go to stderr, unless the caller tells them itself.
  enum class Warnings { to_stderr, told_by_caller };
  explicit Runtime(const std::string& plugin_path, Warnings warnings = Warnings::to_stderr);
  ~Runtime() { nw_runtime_destroy(runtime_); }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  nw_runtime* get() const { return runtime_; }

  std::vector<nw_backend_info> backends() const;
  nw_device_info device(DLDevice device) const;
  // What plugins have said by the way, as of devices that they leave out; where warnings are told by the caller.
  std::vector<std::string> notes() const;

 private:
  mutable std::mutex mutex_;  // a plugin may speak from any thread
  std::vector<std::string> notes_;
  nw_runtime* runtime_ = nullptr;
};

// A float32 tensor of up to four dimensions, or a view of one; views share the memory.
class Tensor {
 public:
  using Extents = std::initializer_list<int64_t>;
  Tensor() = default;
  Tensor(std::shared_ptr<void> memory, DLDevice device, Extents shape);

  int ndim() const { return ndim_; }
  int64_t size(int axis) const { return shape_[axis]; }
  int64_t elements() const;
  bool contiguous() const;
  std::string shape_text() const;  // "(7, 32)"

  // The same memory seen otherwise: from element `offset` on, with this shape and these strides in elements.
  Tensor view(int64_t offset, Extents shape, Extents strides) const;
  Tensor reshape(Extents shape) const;  // contiguous only
  Tensor slice(int axis, int64_t begin, int64_t count) const;
  Tensor operator[](int64_t index) const;  // along axis 0, which goes away
  Tensor transposed() const;               // of two axes

  DLTensor dl() const;  // borrows from this object

 private:
  friend class Engine;
  std::shared_ptr<void> memory_;
  DLDevice device_{};
  int ndim_ = 0;
  int64_t offset_ = 0;  // elements
  std::array<int64_t, 4> shape_{}, strides_{};
};

// The params struct of any op, by value.
struct Params {
  Params() = default;
  template <class T>
  Params(const T& fields) : size(sizeof(T)) {
    static_assert(sizeof(T) <= sizeof(bytes));
    std::memcpy(bytes, &fields, sizeof(T));
  }
  alignas(8) std::byte bytes[64];
  size_t size = 0;
};

struct Operation {
  const char* op;
  std::vector<const Tensor*> inputs, outputs;  // nullptr: absent
  Params params{};
};

// An operand of elementwise: a tensor, or a number that stands for one.
struct Operand {
  Operand(const Tensor& t) : tensor(&t) {}
  Operand(double n) : number(n) {}
  const Tensor* tensor = nullptr;
  double number = 0;
};
// out = function(operands); the first operand is a tensor.
Operation elementwise(int32_t function, std::initializer_list<Operand> operands, const Tensor& out);

// What planning chose for an operation.
struct Chosen {
  std::string backend;
  std::string kernel;  // "" where the variant has no name
};

// One device of a runtime, with its stream. Everything that runs here is ordered on that stream.
class Engine {
 public:
  // backend "": a plugin for the CPU where there is one, else the first that has a device. Throws StatusError.
  Engine(const Runtime& runtime, const std::string& backend);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Tensor empty(Tensor::Extents shape) const;
  Tensor zeros(Tensor::Extents shape) const;
  Tensor upload(std::span<const float> values, Tensor::Extents shape) const;
  std::vector<float> download(const Tensor& tensor) const;  // waits for the stream

  void run(const Operation& operation) const;
  Chosen chosen(const Operation& operation) const;
  void sync() const;
  // Median over batches of runs, each waited for; the operation must give the same when run again.
  double seconds_per_run(const Operation& operation) const;

  const std::string& device_name() const { return device_name_; }
  const std::string& arch() const { return arch_; }

 private:
  std::shared_ptr<void> allocate(int64_t elements) const;

  nw_runtime* runtime_;
  std::string backend_;  // "": not forced
  DLDevice device_{};
  void* stream_ = nullptr;
  std::string device_name_, arch_;
};

const char* device_type_name(int32_t device_type);  // "CPU", "CUDA", ...

}  // namespace narrows::tools
