// SPDX-License-Identifier: Apache-2.0
// shim.h -- the functions of torch's stable C shim that the library calls, found at run time: nothing of torch is included or
// linked. torch documents them in torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h.
#pragma once

#include <narrows/abi.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace narrows::torch {

using Value = uint64_t;  // what torch calls a StableIValue: a number, or a handle
using Handle = void*;    // of a tensor, a list, a string or a library
using Kernel = void (*)(Value* stack, uint64_t num_arguments, uint64_t num_returns);

// All of them are in torch 2.10; those that give a status give 0 for success.
#define NARROWS_TORCH_SHIM(F)                                                                                                 \
  F(uint64_t, aoti_torch_abi_version, ())                                                                                     \
  F(int32_t, aoti_torch_library_init_fragment, (const char* space, const char* file, uint32_t line, Handle* out))             \
  F(int32_t, aoti_torch_library_init_impl, (const char* space, const char* key, const char* file, uint32_t line, Handle*))    \
  F(int32_t, aoti_torch_library_def, (Handle library, const char* schema))                                                    \
  F(int32_t, torch_library_impl, (Handle library, const char* op, Kernel kernel, uint64_t version))                           \
  F(int32_t, aoti_torch_delete_tensor_object, (Handle tensor))                                                                \
  F(int32_t, aoti_torch_is_defined, (Handle tensor, bool* out))                                                               \
  F(int32_t, aoti_torch_is_contiguous, (Handle tensor, bool* out))                                                            \
  F(int32_t, aoti_torch_get_dim, (Handle tensor, int64_t* out))                                                               \
  F(int32_t, aoti_torch_get_sizes, (Handle tensor, int64_t** borrowed))                                                       \
  F(int32_t, aoti_torch_get_strides, (Handle tensor, int64_t** borrowed))                                                     \
  F(int32_t, aoti_torch_get_dtype, (Handle tensor, int32_t* out))                                                             \
  F(int32_t, aoti_torch_get_device_type, (Handle tensor, int32_t* out))                                                       \
  F(int32_t, aoti_torch_get_device_index, (Handle tensor, int32_t* out))                                                      \
  F(int32_t, aoti_torch_get_data_ptr, (Handle tensor, void** borrowed))                                                       \
  F(int32_t, torch_get_const_data_ptr, (Handle tensor, const void** borrowed))                                                \
  F(int32_t, aoti_torch_empty_strided,                                                                                        \
    (int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device_type, int32_t index, Handle*)) \
  F(int32_t, aoti_torch_copy_, (Handle to, Handle from, int32_t non_blocking))                                                \
  F(int32_t, aoti_torch_device_type_cpu, ())                                                                                  \
  F(int32_t, aoti_torch_device_type_cuda, ())                                                                                 \
  F(int32_t, aoti_torch_dtype_uint8, ())                                                                                      \
  F(int32_t, torch_get_num_threads, (uint32_t* out))                                                                          \
  F(int32_t, torch_new_list_reserve_size, (size_t size, Handle* out))                                                         \
  F(int32_t, torch_list_push_back, (Handle list, Value element))                                                              \
  F(int32_t, torch_list_size, (Handle list, size_t* out))                                                                     \
  F(int32_t, torch_list_get_item, (Handle list, size_t index, Value* out))                                                    \
  F(int32_t, torch_delete_list, (Handle list))                                                                                \
  F(int32_t, torch_string_c_str, (Handle string, const char** borrowed))                                                      \
  F(int32_t, torch_string_length, (Handle string, size_t* out))                                                               \
  F(int32_t, torch_delete_string, (Handle string))

struct Shim {
#define F(Result, name, arguments) Result(*name) arguments;
  NARROWS_TORCH_SHIM(F)  // NOLINT(readability-identifier-naming): torch's names
#undef F
  int32_t (*torch_delete_stable_ivalue)(Value* box);            // from 2.13; before, what torch made by new
  const char* (*torch_exception_get_what_without_backtrace)();  // from 2.13
  DLDataType dtypes[64];                                        // by torch's number; of code 255: none of ours
  int32_t cpu, cuda;                                            // torch's device types

  int32_t dtype_number(DLDataType dtype) const;  // -1: torch has none
};

// The version of the shim that the kernels are written for, as torch packs one.
constexpr uint64_t kShimVersion = uint64_t{2} << 56 | uint64_t{10} << 48;

// NULL: `status` and `why` say what is missing. Found once.
const Shim* find_shim(int32_t* status, std::string* why);

// The current stream of a GPU, and by which device type DLPack knows it. False: this torch has no GPUs.
bool find_stream(int32_t index, DLDevice* device, void** stream);

}  // namespace narrows::torch
