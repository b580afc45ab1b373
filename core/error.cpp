// SPDX-License-Identifier: Apache-2.0
// error.cpp -- see error.h.
#include "core/error.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

namespace narrows {
namespace {

std::string format_list(const char* text, va_list list) {
  va_list again;
  va_copy(again, list);
  const int size = std::vsnprintf(nullptr, 0, text, again);
  va_end(again);
  std::string out(static_cast<size_t>(std::max(size, 0)), '\0');
  std::vsnprintf(out.data(), out.size() + 1, text, list);
  return out;
}

// The longest prefix of at most `limit` bytes that does not cut a UTF-8 character.
size_t utf8_prefix(const char* text, size_t limit) {
  const size_t size = std::strlen(text);
  if (size <= limit) return size;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return limit;
}

}  // namespace

std::string format(const char* text, ...) {
  va_list list;
  va_start(list, text);
  std::string out = format_list(text, list);
  va_end(list);
  return out;
}

void throw_failure(int32_t status, int32_t argument, const char* text, ...) {
  va_list list;
  va_start(list, text);
  std::string message = format_list(text, list);
  va_end(list);
  throw Failure{status, argument, 0, std::move(message)};
}

int32_t write_error(nw_error* error, int32_t status, int32_t argument, int64_t native_code, const char* message) noexcept {
  if (error == nullptr) return status;
  error->status = status;
  error->argument = argument;
  error->native_code = native_code;
  const size_t size = utf8_prefix(message, sizeof error->message - 1);
  std::memcpy(error->message, message, size);
  std::memset(error->message + size, 0, sizeof error->message - size);
  return status;
}

Failure caught(const char* who, const char* what) noexcept {
  const auto in = [&] { return who != nullptr ? std::string(who) + ": " + what : std::string(what); };
  try {
    try {
      throw;
    } catch (const Failure& failure) {
      return failure;
    } catch (const std::bad_alloc&) {
      return {NW_OUT_OF_MEMORY, -1, 0, in() + ": out of host memory"};
    } catch (const std::exception& thrown) {
      return {NW_FAILED, -1, 0, in() + " threw an exception: " + thrown.what()};
    } catch (...) {
      return {NW_FAILED, -1, 0, in() + " threw an exception"};
    }
  } catch (...) {
    return {NW_OUT_OF_MEMORY, -1, 0, "out of memory"};  // so few bytes lie within the string itself
  }
}

const char* status_name(int32_t status) {
  static const char* const names[] = {"ok",     "invalid",    "unsupported", "unavailable", "out of memory", "not capturable",
                                      "failed", "device lost"};
  return status >= 0 && status <= NW_DEVICE_LOST ? names[status] : "unknown status";
}

void refuse_slot(int32_t status, const nw_error& error, const std::string& plugin, const char* op) {
  if (status < 0 || status > NW_DEVICE_LOST)
    throw_failure(NW_FAILED, -1, "%s: the plugin returned status %d, which does not exist", plugin.c_str(), status);
  std::string reason(error.message, strnlen(error.message, sizeof error.message));
  if (reason.empty()) reason = status_name(status);
  const bool says = reason.starts_with(plugin + ": ") || (op != nullptr && reason.starts_with(op));
  throw Failure{status, error.argument, error.native_code, says ? reason : plugin + ": " + reason};
}

std::string show_shape(const int64_t* shape, int32_t ndim) {
  std::string out = "(";
  for (int32_t i = 0; i < ndim; ++i) out += (i != 0 ? ", " : "") + std::to_string(shape[i]);
  return out + (ndim == 1 ? ",)" : ")");
}

std::string show_dtype(DLDataType dtype) {
  static const char* const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  static const char* const small[] = {"float8_e3m4",     "float8_e4m3",     "float8_e4m3b11fnuz",
                                      "float8_e4m3fn",   "float8_e4m3fnuz", "float8_e5m2",
                                      "float8_e5m2fnuz", "float8_e8m0fnu",  "float6_e2m3fn",
                                      "float6_e3m2fn",   "float4_e2m1fn",   "of an unknown code"};  // bits are in the names
  const std::string lanes = dtype.lanes != 1 ? format("x%d", dtype.lanes) : "";
  if (dtype.code == kDLBool && dtype.bits == 8 && dtype.lanes == 1) return "bool";
  if (dtype.code <= kDLBool) return names[dtype.code] + std::to_string(dtype.bits) + lanes;
  return small[std::min<int>(dtype.code, kDLFloat4_e2m1fn + 1) - kDLFloat8_e3m4] + lanes;
}

std::string show_device(DLDevice device) {
  const char* name = nullptr;
  switch (device.device_type) {
    case kDLCPU: name = "CPU"; break;
    case kDLCUDA: name = "CUDA"; break;
    case kDLCUDAHost: name = "CUDAHost"; break;
    case kDLCUDAManaged: name = "CUDAManaged"; break;
    case kDLROCM: name = "ROCM"; break;
    case kDLROCMHost: name = "ROCMHost"; break;
    case kDLVulkan: name = "Vulkan"; break;
    case kDLMetal: name = "Metal"; break;
    case kDLOpenCL: name = "OpenCL"; break;
    case kDLOneAPI: name = "OneAPI"; break;
    default: return format("device type %d:%d", static_cast<int>(device.device_type), device.device_id);
  }
  return format("%s:%d", name, device.device_id);
}

}  // namespace narrows
