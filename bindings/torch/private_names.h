// SPDX-License-Identifier: Apache-2.0
// private_names.h -- functions of torch that no version promises: C++ ones, found by their mangled names. They are quicker than the
// ways that torch documents, and each is used only where it is found. No other file names one. NARROWS_TORCH_FAST=0 leaves all out.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace narrows::torch {

// at::TensorBase: a pointer to its implementation. It is returned through memory, since it is not trivial.
struct NewTensor {
  void* implementation;
  NewTensor(const NewTensor&) = delete;
  ~NewTensor() {}  // wrap() moves it on; where even that finds no memory for an object, the tensor is lost
};
// c10::ArrayRef<int64_t>.
struct Extents {
  const int64_t* data;
  size_t size;
};
// c10::Device.
struct Place {
  int8_t type, index;
};
static_assert(sizeof(std::optional<Place>) == 3 && std::is_trivially_copyable_v<std::optional<Place>>);

// What at::getStepCallbacksUnlessEmpty writes: a std::optional of torch's own type, whose size differs from version to version.
struct alignas(16) StepCallbacks {
  unsigned char bytes[1024];
};

// `impl` is a TensorImpl*, `tensor` the address of one: that is an at::Tensor. A function is NULL where torch lacks it.
struct PrivateNames {
  // Which modes are on.
  int64_t (*mode_count)() = nullptr;             // c10::impl::TorchDispatchModeTLS::stack_len
  bool (*function_mode)() = nullptr;             // at::impl::torch_function_mode_enabled
  int64_t (*function_mode_count)() = nullptr;    // at::impl::PythonTorchFunctionTLS::stack_len
  bool (*key_included)(uint16_t key) = nullptr;  // c10::impl::tls_is_dispatch_key_included
  bool (*inference_mode)() = nullptr;            // c10::InferenceMode::is_enabled

  // A tensor.
  bool (*impl_requires_grad)(const void* impl) = nullptr;                                // c10::TensorImpl::requires_grad
  void (*to_dlpack)(void* const* tensor, DLTensor* out) = nullptr;                       // at::toDLPackNonOwning to 2.14
  void (*to_dlpack_with)(void* const* tensor, DLTensor* out, bool read_only) = nullptr;  // the same from 2.15
  bool (*lazily_negated)(void* const* tensor) = nullptr;                                 // at::native::is_neg
  bool (*is_inference)(void* const* tensor) = nullptr;                                   // at::native::is_inference
  void (*bump_version)(void* const* tensor) = nullptr;                                   // torch::autograd::impl::bump_version

  // A new tensor, and the Python object of one: THPVariable_Wrap. c10::ScalarType is a byte.
  NewTensor (*new_on_cpu)(Extents shape, Extents strides, int8_t dtype, bool pinned) = nullptr;
  NewTensor (*new_on_gpu)(Extents shape, Extents strides, int8_t dtype, std::optional<Place> device) = nullptr;
  void* (*wrap)(NewTensor&& tensor) = nullptr;

  // GPUs: c10::cuda::GetDevice and device_count.
  int (*current_gpu)(int8_t* device) = nullptr;
  int8_t (*gpu_count)() = nullptr;

  // Profilers: at::hasCallbacks and at::getStepCallbacksUnlessEmpty.
  bool (*has_callbacks)() = nullptr;
  void* (*step_callbacks)(StepCallbacks* result, uint8_t scope) = nullptr;
};

// Whether NARROWS_TORCH_FAST allows them; any value but 0 does. Read once.
bool private_names_allowed();

// Those of the torch that is loaded. Looked up at the first call, which must come after torch was loaded.
const PrivateNames& private_names();

}  // namespace narrows::torch
