// backend.h -- what the parts of the cpu backend share: the instance, plans, refusals. Steps 4 and 5 of a tensor's path:
// plugin.cpp holds the table and turns exceptions into statuses; each ops/<op>.cpp plans and launches one op.
#pragma once

#include <narrows/abi.h>
#include <narrows/ops.h>
#include <narrows/plugin.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace narrows::cpu {

// Thrown while planning; plugin.cpp turns it into the status and the message.
struct Refusal {
  int32_t status;
  int32_t argument;  // as in nw_error
  std::string message;
};
[[noreturn]] void refuse(int32_t status, int32_t argument, const char* format, ...) __attribute__((format(printf, 3, 4)));

// What create() makes, once per runtime. Immutable afterwards.
struct Instance {
  const nw_host* host;
  // Index of the Highway target whose kernels are used: the best that the CPU has, capped by NARROWS_CPU_TARGET. See targets.h.
  int target_index;

  int64_t num_threads() const { return host->num_threads; }

  // body(begin, end) over pieces of [0, n) of at least `grain`; how it is cut must not change results.
  template <class Body>
  void parallel_for(int64_t n, int64_t grain, Body&& body) const {
    host->parallel_for(
        host->ctx, n, grain, [](void* arg, int64_t begin, int64_t end) { (*static_cast<Body*>(arg))(begin, end); }, &body);
  }
};

// An immutable planned call. The call given to launch() fits the signature that it was planned for; its workspace holds
// workspace_size bytes.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual void launch(const nw_call& call) const = 0;

  uint64_t workspace_size = 0;
  const char* kernel = nullptr;  // one of the op's kernel names
};

// One op of the backend: its name, the names of its kernel variants (NULL-terminated), and how it is planned.
// plan() throws Refusal; it checks what it reads of the params itself and relies on the host for the op's contract.
struct Op {
  const char* name;
  const char* const* kernels;
  std::unique_ptr<Plan> (*plan)(const Instance& instance, const nw_sig& sig);
};
extern const Op conv1d, conv1d_backward, elementwise, elementwise_backward, lltm, lltm_backward;

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

// The variant that the call forces, as an index into `kernels`; -1: none is forced. An unknown name is refused.
int forced_kernel(const nw_sig& sig, const char* const* kernels);

inline const nw_tensor_sig& input(const nw_sig& sig, uint32_t i) { return sig.tensors[i]; }
inline const nw_tensor_sig& output(const nw_sig& sig, uint32_t i) { return sig.tensors[sig.num_inputs + i]; }
inline bool has_input(const nw_sig& sig, uint32_t i) { return i < sig.num_inputs && sig.tensors[i].ndim >= 0; }
inline bool has_output(const nw_sig& sig, uint32_t i) { return i < sig.num_outputs && output(sig, i).ndim >= 0; }
inline bool is(DLDataType t, uint8_t code, uint8_t bits) { return t.code == code && t.bits == bits; }

// Address of a tensor's first element. NULL for an absent tensor. Of a tensor without elements it may be any number, so it is
// not added to as a pointer.
template <class T>
T* data(const DLTensor* t) {
  return t == nullptr || t->data == nullptr ? nullptr : reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(t->data) + t->byte_offset);
}

}  // namespace narrows::cpu
