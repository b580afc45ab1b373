// SPDX-License-Identifier: Apache-2.0
// plugin.h -- the plans of our backends, and the declarations of built-in ops. It knows no device. What plugins of others share
// with ours is in narrows/plugin_base.hpp.
#pragma once

#include <narrows/abi.h>
#include <narrows/ops.h>
#include <narrows/plugin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <narrows/plugin_base.hpp>
#include <string>

namespace narrows::common {

using namespace narrows::plugin;  // refusals, the reading of signatures

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

// Gives a text as the functions of nw_program_source do: what fits, a NUL last, and the bytes that all of it takes.
inline void give_text(const std::string& text, char* out, uint64_t size, uint64_t* needed) {
  if (needed == nullptr || (out == nullptr && size > 0))
    refuse(NW_INVALID, -1, "'%s' is NULL; expected a place for %s", needed == nullptr ? "needed" : "out",
           needed == nullptr ? "the number of bytes" : "the text");
  *needed = text.size() + 1;
  if (size > 0) out[text.copy(out, size - 1)] = '\0';
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
    refuse(NW_UNSUPPORTED, -1, "%s: kernel '%s' is not deterministic, and NW_DETERMINISTIC is set", sig.op, planned->kernel);
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
