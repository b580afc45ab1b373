// SPDX-License-Identifier: Apache-2.0
/// @file plugin_base.hpp
/// @brief What every plugin in C++ does alike: refusals and the statuses that they become, the
/// reading of a signature and of its params.
///
/// Header only, C++17. plugin.hpp makes a whole plugin of ops and kernels, and is made of this. A
/// plugin that plans by itself, for a device of its own, starts here. Narrows' own backends do.
///
/// This is step 4 of a tensor's path in docs/design.md.
#ifndef NARROWS_PLUGIN_BASE_HPP
#define NARROWS_PLUGIN_BASE_HPP

#include <narrows/plugin.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

namespace narrows::plugin {

/// @defgroup cpp_plugin_base C++: what plugins do alike
/// @{

/// What a plugin throws to refuse a call, or to say that the device failed. refuse() throws it.
struct Refusal {
  int32_t status;           ///< As in nw_error.
  int32_t argument;         ///< As in nw_error; -1: no tensor's.
  std::string message;      ///< Cut to the size of nw_error.message.
  int64_t native_code = 0;  ///< As in nw_error.
};

/// Throws a Refusal. `argument` is as in nw_error; `format` and what follows are printf()'s.
[[noreturn]] inline void refuse(int32_t status, int32_t argument, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
inline void refuse(int32_t status, int32_t argument, const char* format, ...) {
  char message[sizeof(nw_error::message)];
  va_list args;
  va_start(args, format);
  std::vsnprintf(message, sizeof(message), format, args);
  va_end(args);
  throw Refusal{status, argument, message};
}

/// Fills `error`, which may be NULL, and returns `status`.
inline int32_t fail(nw_error* error, int32_t status, int32_t argument, const char* message,
                    int64_t native_code = 0) noexcept {
  if (error != nullptr) {
    error->status = status;
    error->argument = argument;
    error->native_code = native_code;
    std::snprintf(error->message, sizeof(error->message), "%s", message);
  }
  return status;
}

/// Runs `body`. Returns #NW_OK, or the status of what it throws, with `error` filled in.
template <class Body>
int32_t guarded(nw_error* error, Body&& body) noexcept {
  try {
    body();
    return NW_OK;
  } catch (const Refusal& refusal) {
    return fail(error, refusal.status, refusal.argument, refusal.message.c_str(),
                refusal.native_code);
  } catch (const std::bad_alloc&) {
    return fail(error, NW_OUT_OF_MEMORY, -1, "out of host memory");
  } catch (const std::exception& e) {
    return fail(error, NW_FAILED, -1, e.what());
  } catch (...) {
    return fail(error, NW_FAILED, -1, "an unknown exception");
  }
}

/// Runs `body`, which is the work of an op. What it throws names the op: "mine.scale/1: ...". An
/// exception that is no Refusal becomes one of that status. std::bad_alloc stays what it is.
template <class Body>
void in_op(const char* op, int32_t status, Body&& body) {
  const auto named = [op](const std::string& what) {
    return what.rfind(op, 0) == 0 ? what : std::string(op) + ": " + what;
  };
  try {
    body();
  } catch (Refusal& refusal) {
    refusal.message = named(refusal.message);
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw Refusal{status, -1, named(e.what())};
  } catch (...) {
    throw Refusal{NW_FAILED, -1, named("an unknown exception")};
  }
}

/// Copies the part of a struct that the caller's struct_size has room for. Its struct_size stays
/// the caller's.
template <class T>
void write_sized(T* out, T value, size_t size = sizeof(T)) {
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, std::min<size_t>(out->struct_size, size));
}

/// The body of narrows_plugin_query(): `table()` for a host of our major. For another one, or where
/// `table()` throws, NULL, and `error` has the reason.
template <class Table>
const nw_plugin* query(const char* name, uint32_t host_major, nw_error* error,
                       Table&& table) noexcept {
  const nw_plugin* plugin = nullptr;
  guarded(error, [&] {
    if (host_major != NW_ABI_MAJOR)
      refuse(NW_UNSUPPORTED, -1,
             "%s: the host speaks ABI %u and this plugin ABI %d; use a plugin built for the host's",
             name, host_major, NW_ABI_MAJOR);
    plugin = table();
  });
  return plugin;
}

/// Refuses params that are not zero past the `known` bytes.
inline void check_params_tail(const nw_sig& sig, uint64_t known) {
  const auto* bytes = static_cast<const unsigned char*>(sig.params);
  for (uint64_t i = known; i < sig.params_size; ++i)
    if (bytes[i] != 0)
      refuse(NW_UNSUPPORTED, -1,
             "%s: params byte %llu is %d; this backend knows %llu bytes and takes only 0 after "
             "them",
             sig.op, static_cast<unsigned long long>(i), bytes[i],
             static_cast<unsigned long long>(known));
}

/// The params struct of a signature. Bytes that the caller left out are 0. More bytes than the
/// struct has are refused unless they are 0.
template <class Params>
Params read_params(const nw_sig& sig) {
  Params params{};
  check_params_tail(sig, sizeof(Params));
  if (sig.params_size != 0)
    std::memcpy(static_cast<void*>(&params), sig.params,
                std::min<uint64_t>(sig.params_size, sizeof(Params)));
  return params;
}

/// The kernel variant that the call forces, as an index into `kernels`, of which the op has those
/// from `first` on. -1: none is forced. An unknown name is refused.
inline int forced_kernel(const nw_sig& sig, const char* const* kernels, int first = 0) {
  if (sig.kernel == nullptr) return -1;
  std::string names;
  for (int i = first; kernels[i] != nullptr; ++i) {
    if (std::strcmp(kernels[i], sig.kernel) == 0) return i;
    names += names.empty() ? kernels[i] : std::string(", ") + kernels[i];
  }
  refuse(NW_UNSUPPORTED, -1, "%s: this backend has no kernel '%s'; it has %s", sig.op, sig.kernel,
         names.c_str());
}

/// Input `i` of the signature.
inline const nw_tensor_sig& input(const nw_sig& sig, uint32_t i) { return sig.tensors[i]; }
/// Output `i` of the signature.
inline const nw_tensor_sig& output(const nw_sig& sig, uint32_t i) {
  return sig.tensors[sig.num_inputs + i];
}
/// Whether input `i` is there.
inline bool has_input(const nw_sig& sig, uint32_t i) {
  return i < sig.num_inputs && sig.tensors[i].ndim >= 0;
}
/// Whether output `i` is wanted.
inline bool has_output(const nw_sig& sig, uint32_t i) {
  return i < sig.num_outputs && output(sig, i).ndim >= 0;
}
/// Whether the tensor has an element.
inline bool has_elements(const nw_tensor_sig& t) {
  return std::count(t.shape, t.shape + std::max(t.ndim, 0), 0) == 0;
}
/// Bytes that the address of the first element is a multiple of, as far as the signature says.
inline int64_t alignment(const nw_tensor_sig& t) { return int64_t{1} << t.align_log2; }
/// Whether every element of the tensor lies on a multiple of its size. So does a tensor that is
/// absent.
inline bool is_aligned(const nw_tensor_sig& t) {
  return t.ndim < 0 || alignment(t) >= t.dtype.bits / 8;
}
/// Whether the tensor is C-contiguous: row-major, without gaps. So is one without elements.
inline bool is_contiguous(const nw_tensor_sig& t) {
  if (!has_elements(t)) return true;  // the other extents may be huge
  int64_t dense = 1;
  for (int32_t d = t.ndim - 1; d >= 0; --d) {
    if (t.shape[d] != 1 && t.strides[d] != dense) return false;
    dense *= t.shape[d];
  }
  return true;
}
/// Whether the dtype is that one, of one lane.
inline bool is(DLDataType t, uint8_t code, uint8_t bits) {
  return t.code == code && t.bits == bits;
}

/// Address of a tensor's first element. NULL for an absent tensor. Of a tensor without elements it
/// may be any number, so it is not added to as a pointer.
template <class T>
T* data(const DLTensor* t) {
  return t == nullptr || t->data == nullptr
             ? nullptr
             : reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(t->data) + t->byte_offset);
}

/// @}

}  // namespace narrows::plugin
#endif
