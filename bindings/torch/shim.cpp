// SPDX-License-Identifier: Apache-2.0
// shim.cpp -- see shim.h.
#include "bindings/torch/shim.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <mutex>

namespace narrows::torch {
namespace {

struct NamedDtype {
  const char* name;
  DLDataType dtype;
};
constexpr NamedDtype kDtypes[] = {
    {"aoti_torch_dtype_float32", {kDLFloat, 32, 1}}, {"aoti_torch_dtype_float64", {kDLFloat, 64, 1}},
    {"aoti_torch_dtype_float16", {kDLFloat, 16, 1}}, {"aoti_torch_dtype_bfloat16", {kDLBfloat, 16, 1}},
    {"aoti_torch_dtype_int8", {kDLInt, 8, 1}},       {"aoti_torch_dtype_int16", {kDLInt, 16, 1}},
    {"aoti_torch_dtype_int32", {kDLInt, 32, 1}},     {"aoti_torch_dtype_int64", {kDLInt, 64, 1}},
    {"aoti_torch_dtype_uint8", {kDLUInt, 8, 1}},     {"aoti_torch_dtype_uint16", {kDLUInt, 16, 1}},
    {"aoti_torch_dtype_uint32", {kDLUInt, 32, 1}},   {"aoti_torch_dtype_uint64", {kDLUInt, 64, 1}},
    {"aoti_torch_dtype_bool", {kDLBool, 8, 1}}};

// Whoever loaded torch may have kept its names to itself, as Python does: then they are found in the library alone.
void* find(void* library, const char* name) { return dlsym(library != nullptr ? library : RTLD_DEFAULT, name); }

void fill_dtypes(void* library, Shim& shim) {
  std::fill(std::begin(shim.dtypes), std::end(shim.dtypes), DLDataType{255, 0, 0});
  for (const NamedDtype& known : kDtypes) {
    auto* const number = reinterpret_cast<int32_t (*)()>(find(library, known.name));
    const int32_t n = number == nullptr ? -1 : number();
    if (n >= 0 && n < 64) shim.dtypes[n] = known.dtype;
  }
}

// "torch 2.9", if it says so.
std::string version(uint64_t (*packed)()) {
  if (packed == nullptr) return "a torch of an unknown version";
  return "torch " + std::to_string(packed() >> 56) + "." + std::to_string(packed() >> 48 & 255);
}

const Shim* load(int32_t* status, std::string* why) {
  void* const library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  static Shim shim;
  const char* missing = nullptr;
  size_t count = 0;
#define F(Result, name, arguments)                                         \
  shim.name = reinterpret_cast<decltype(shim.name)>(find(library, #name)); \
  (shim.name != nullptr ? ++count : 0, missing = shim.name != nullptr || missing != nullptr ? missing : #name);
  NARROWS_TORCH_SHIM(F)
#undef F
  if (count == 0) {
    *status = NW_UNAVAILABLE, *why = "there is no libtorch in this process; expected torch 2.10 or later, loaded before";
    return nullptr;
  }
  if (missing != nullptr) {
    *status = NW_UNSUPPORTED;
    *why = version(shim.aoti_torch_abi_version) + " has no symbol " + missing + "; expected torch 2.10 or later";
    return nullptr;
  }
  shim.torch_delete_stable_ivalue =
      reinterpret_cast<decltype(shim.torch_delete_stable_ivalue)>(find(library, "torch_delete_stable_ivalue"));
  shim.torch_exception_get_what_without_backtrace = reinterpret_cast<decltype(shim.torch_exception_get_what_without_backtrace)>(
      find(library, "torch_exception_get_what_without_backtrace"));
  fill_dtypes(library, shim);
  shim.cpu = shim.aoti_torch_device_type_cpu(), shim.cuda = shim.aoti_torch_device_type_cuda();
  return &shim;
}

using StreamOf = int32_t (*)(int32_t, void**);
struct Streams {
  StreamOf current = nullptr;
  DLDeviceType device = kDLCUDA;
};

Streams find_streams() {
  const char* const name = "aoti_torch_get_current_cuda_stream";  // of ROCm too
  for (const auto& [file, device] : {std::pair{"libtorch_cuda.so", kDLCUDA}, {"libtorch_hip.so", kDLROCM}})
    if (void* const library = dlopen(file, RTLD_NOLOAD | RTLD_LAZY))
      if (auto* const found = reinterpret_cast<StreamOf>(dlsym(library, name))) return {found, device};
  return {reinterpret_cast<StreamOf>(dlsym(RTLD_DEFAULT, name)), kDLCUDA};
}

}  // namespace

int32_t Shim::dtype_number(DLDataType dtype) const {
  for (int32_t i = 0; i < 64; ++i)
    if (dtypes[i].code == dtype.code && dtypes[i].bits == dtype.bits && dtypes[i].lanes == dtype.lanes) return i;
  return -1;
}

const Shim* find_shim(int32_t* status, std::string* why) {
  static std::mutex mutex;
  static std::atomic<const Shim*> found;  // until torch is there, it is looked for each time
  if (const Shim* const known = found.load(std::memory_order_acquire)) return known;
  const std::lock_guard lock(mutex);
  if (found == nullptr) found = load(status, why);
  return found;
}

bool find_stream(int32_t index, DLDevice* device, void** stream) {
  static const Streams streams = find_streams();  // there is a tensor on a GPU, so all of torch is loaded
  *device = {streams.device, index};
  return streams.current != nullptr && streams.current(index, stream) == 0;
}

}  // namespace narrows::torch
