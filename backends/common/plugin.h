// SPDX-License-Identifier: Apache-2.0
// plugin.h -- what every backend's plugin does alike: refusals and the statuses that they become, the reading of a signature and
// its params, the declarations of built-in ops. Steps 4 and 5 of a tensor's path. It knows no device.
#pragma once

#include <narrows/abi.h>
#include <narrows/ops.h>
#include <narrows/plugin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

namespace narrows::common {

// ---- errors: exceptions inside a plugin, statuses outside ----

// What a plugin throws to refuse a call, or to say that the device failed.
struct Refusal {
  int32_t status;
  int32_t argument;  // as in nw_error
  std::string message;
  int64_t native_code = 0;
};
[[noreturn]] void refuse(int32_t status, int32_t argument, const char* format, ...) __attribute__((format(printf, 3, 4)));

// Fills `error`, which may be NULL, and gives `status` back.
int32_t fail(nw_error* error, int32_t status, int32_t argument, const char* message, int64_t native_code = 0) noexcept;

// Runs body and turns what it throws into a status.
template <class Body>
int32_t guarded(nw_error* error, Body&& body) noexcept {
  try {
    body();
    return NW_OK;
  } catch (const Refusal& refusal) {
    return fail(error, refusal.status, refusal.argument, refusal.message.c_str(), refusal.native_code);
  } catch (const std::bad_alloc&) {
    return fail(error, NW_OUT_OF_MEMORY, -1, "out of host memory");
  } catch (const std::exception& e) {
    return fail(error, NW_FAILED, -1, e.what());
  } catch (...) {
    return fail(error, NW_FAILED, -1, "an unknown exception");
  }
}

// Copies the part of a struct that the caller's struct_size has room for; its struct_size stays the caller's.
template <class T>
void write_sized(T* out, T value, size_t size = sizeof(T)) {
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, std::min<size_t>(out->struct_size, size));
}

// The body of narrows_plugin_query: table() for a host of our major, NULL and the reason for another one, and where table() throws.
template <class Table>
const nw_plugin* query(const char* name, uint32_t host_major, nw_error* error, Table&& table) noexcept {
  const nw_plugin* plugin = nullptr;
  guarded(error, [&] {
    if (host_major != NW_ABI_MAJOR)
      refuse(NW_UNSUPPORTED, -1, "%s: the host speaks ABI %u and this plugin ABI %d; use a plugin built for the host's", name,
             host_major, NW_ABI_MAJOR);
    plugin = table();
  });
  return plugin;
}

// ---- signatures ----

// Refuses a blob that is not zero past the bytes that the op knows: none, for an op without params.
inline void check_params_tail(const nw_sig& sig, uint64_t known) {
  const auto* bytes = static_cast<const unsigned char*>(sig.params);
  for (uint64_t i = known; i < sig.params_size; ++i)
    if (bytes[i] != 0)
      refuse(NW_UNSUPPORTED, -1, "%s: params byte %llu is %d; this backend knows %llu bytes and takes only 0 after them", sig.op,
             static_cast<unsigned long long>(i), bytes[i], static_cast<unsigned long long>(known));
}

// The params struct of a signature: a short blob is extended with zeros, a longer one that is not zero there is refused.
template <class Params>
Params read_params(const nw_sig& sig) {
  Params params{};
  check_params_tail(sig, sizeof(Params));
  if (sig.params_size != 0) std::memcpy(&params, sig.params, sig.params_size < sizeof(Params) ? sig.params_size : sizeof(Params));
  return params;
}

// The variant that the call forces, as an index into `kernels`, of which the op has those from `first` on; -1: none is forced. An
// unknown name is refused.
int forced_kernel(const nw_sig& sig, const char* const* kernels, int first = 0);

inline const nw_tensor_sig& input(const nw_sig& sig, uint32_t i) { return sig.tensors[i]; }
inline const nw_tensor_sig& output(const nw_sig& sig, uint32_t i) { return sig.tensors[sig.num_inputs + i]; }
inline bool has_input(const nw_sig& sig, uint32_t i) { return i < sig.num_inputs && sig.tensors[i].ndim >= 0; }
inline bool has_output(const nw_sig& sig, uint32_t i) { return i < sig.num_outputs && output(sig, i).ndim >= 0; }
inline bool has_elements(const nw_tensor_sig& t) { return std::count(t.shape, t.shape + std::max(t.ndim, 0), 0) == 0; }
// Bytes that the address of the first element is a multiple of, as far as the signature says.
inline int64_t alignment(const nw_tensor_sig& t) { return int64_t{1} << t.align_log2; }
// Whether every element of the tensor lies on a multiple of its size; so does a tensor that is absent.
inline bool is_aligned(const nw_tensor_sig& t) { return t.ndim < 0 || alignment(t) >= t.dtype.bits / 8; }
inline bool is(DLDataType t, uint8_t code, uint8_t bits) { return t.code == code && t.bits == bits; }

// Address of a tensor's first element. NULL for an absent tensor. Of a tensor without elements it may be any number, so it is
// not added to as a pointer.
template <class T>
T* data(const DLTensor* t) {
  return t == nullptr || t->data == nullptr ? nullptr : reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(t->data) + t->byte_offset);
}

// ---- plans and ops ----

// An immutable planned call. The call given to launch() fits the signature that it was planned for; its workspace holds
// workspace_size bytes.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual void launch(const nw_call& call) const = 0;

  uint64_t workspace_size = 0;
  uint32_t traits = NW_PLAN_CAPTURABLE;
  const char* kernel = nullptr;  // one of the op's kernel names
  int32_t device_id = 0;         // filled in by plan_op()
};

// One op of a backend: its name, the names of its kernel variants (NULL-terminated), and how it is planned.
// plan() throws Refusal; it checks what it reads of the params itself and relies on the host for the op's contract.
template <class Instance>
struct Op {
  const char* name;
  const char* const* kernels;
  std::unique_ptr<Plan> (*plan)(const Instance& instance, const nw_sig& sig);
};

// Refuses an unknown flag, and a device of another type.
inline void check_signature(const nw_sig& sig, int32_t device_type) {
  if (sig.flags & ~uint32_t{NW_DETERMINISTIC})
    refuse(NW_UNSUPPORTED, -1, "%s: flags are 0x%x; this backend knows 0x%x", sig.op, sig.flags, NW_DETERMINISTIC);
  if (sig.device.device_type != device_type)
    refuse(NW_UNSUPPORTED, -1, "%s: device type %d; this backend serves %d", sig.op, static_cast<int>(sig.device.device_type),
           static_cast<int>(device_type));
}

// Refuses an op that is not in the list, and what check_signature() refuses.
template <class Instance, size_t N>
const Op<Instance>& find_op(const Op<Instance>* const (&ops)[N], const nw_sig& sig, int32_t device_type) {
  const auto found = std::find_if(ops, ops + N, [&](const Op<Instance>* op) { return std::strcmp(op->name, sig.op) == 0; });
  if (found == ops + N) refuse(NW_UNSUPPORTED, -1, "no op '%s'", sig.op);
  check_signature(sig, device_type);
  return **found;
}

// The end of the slots that plan: writes `info` if it is there, hands the plan out if it is wanted.
inline void give_plan(std::unique_ptr<Plan> planned, const nw_sig& sig, void** out, nw_plan_info* info) {
  planned->device_id = sig.device.device_id;
  if ((sig.flags & NW_DETERMINISTIC) && (planned->traits & NW_PLAN_NONDETERMINISTIC))
    refuse(NW_UNSUPPORTED, -1, "%s: kernel '%s' may give other bits when it runs again", sig.op, planned->kernel);
  if (info != nullptr)  // the host fills in `backend`
    write_sized(info, {0, planned->traits, planned->workspace_size, planned->kernel, nullptr}, offsetof(nw_plan_info, backend));
  if (out != nullptr) *out = planned.release();
}

// The slot `plan` after find_op().
template <class Instance>
void plan_op(const Op<Instance>& op, const Instance& instance, const nw_sig& sig, void** out, nw_plan_info* info) {
  give_plan(op.plan(instance, sig), sig, out, info);
}

// The declarations of built-in ops: the host knows all but the kernels.
template <size_t N>
struct Declarations {
  std::array<nw_op, N> ops{};
  std::array<const nw_op*, N> pointers{};
  template <class Instance>
  explicit Declarations(const Op<Instance>* const (&list)[N]) {
    for (size_t i = 0; i < N; ++i) {
      ops[i].struct_size = sizeof(nw_op);
      ops[i].name = list[i]->name;
      ops[i].kernels = list[i]->kernels;
      pointers[i] = &ops[i];
    }
  }
};

}  // namespace narrows::common
