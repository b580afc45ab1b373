// SPDX-License-Identifier: Apache-2.0
// dispatcher.cpp -- see dispatcher.h.
#include "core/dispatcher.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "core/contract.h"
#include "core/label.h"
#include "core/nvtx.h"
#include "core/plugin_loader.h"
#include "core/signature.h"
#include "core/thread_pool.h"

namespace narrows {
namespace {

// The caller's nw_call as this library knows it: a shorter one is extended with zeros; what a longer one says there must be 0.
nw_call complete(const nw_call& given, bool with_outputs = true) {
  nw_call call;
  const size_t size = given.struct_size;
  if (__builtin_expect(size == sizeof call, 1)) {
    call = given;
  } else {
    const size_t needed = offsetof(nw_call, params);
    if (size < needed)
      throw_failure(NW_INVALID, -1, "nw_call.struct_size is %zu; expected sizeof(nw_call), and never below %zu", size, needed);
    std::memset(&call, 0, sizeof call);
    std::memcpy(&call, &given, std::min(size, sizeof call));
    const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
    for (size_t i = sizeof call; i < size; ++i)
      if (bytes[i] != 0)
        throw_failure(NW_UNSUPPORTED, -1, "nw_call byte %zu is %d; this library knows %zu bytes and takes only 0 after them", i,
                      bytes[i], sizeof call);
  }
  if (!with_outputs) {
    call.num_outputs = 0;
    call.outputs = nullptr;
  }
  if (call.op == nullptr) throw_failure(NW_INVALID, -1, "nw_call.op is NULL; expected the name of an op");
  if (call.num_inputs != 0 && call.inputs == nullptr)
    throw_failure(NW_INVALID, -1, "%s: inputs is NULL, but num_inputs = %u; expected as many pointers", call.op, call.num_inputs);
  if (call.num_outputs != 0 && call.outputs == nullptr)
    throw_failure(NW_INVALID, -1, "%s: outputs is NULL, but num_outputs = %u; expected as many pointers", call.op,
                  call.num_outputs);
  if (call.num_inputs > NW_MAX_TENSORS || call.num_outputs > NW_MAX_TENSORS - call.num_inputs)
    throw_failure(NW_INVALID, -1, "%s: %u inputs and %u outputs; expected %d tensors at most", call.op, call.num_inputs,
                  call.num_outputs, NW_MAX_TENSORS);
  return call;
}

const DLTensor* tensor_of(const nw_call& call, uint32_t i) {
  return i < call.num_inputs ? call.inputs[i] : call.outputs[i - call.num_inputs];
}

class Names final : public TensorNames {
 public:
  Names(const nw_runtime& runtime, const nw_call& call) : runtime_(runtime), call_(call) {}
  std::string tensor(uint32_t i) const override {
    const nw_op* op = runtime_.find_op(call_.op);
    const bool input = i < call_.num_inputs;
    if (op == nullptr) return input ? format("input %u", i) : format("output %u", i - call_.num_inputs);
    return input ? input_name(*op, i) : output_name(*op, i - call_.num_inputs);
  }

 private:
  const nw_runtime& runtime_;
  const nw_call& call_;
};

[[noreturn]] void refuse_mixed(const nw_runtime& runtime, const nw_call& call, uint32_t first, uint32_t second) {
  const Names names(runtime, call);
  throw_failure(NW_INVALID, static_cast<int32_t>(second), "%s: %s lives on %s, and %s on %s; expected one device", call.op,
                names.tensor(first).c_str(), show_device(tensor_of(call, first)->device).c_str(), names.tensor(second).c_str(),
                show_device(tensor_of(call, second)->device).c_str());
}

bool same_device(DLDevice a, DLDevice b) { return a.device_type == b.device_type && a.device_id == b.device_id; }

// Of a tensor that lives elsewhere: is it memory that the device can address?
void check_on(const nw_runtime& runtime, const nw_call& call, DLDevice device, uint32_t i) {
  const DLDevice at = tensor_of(call, i)->device;
  const Backend* owner = runtime.owner_of_shared(at.device_type);
  if (owner != nullptr && (device.device_type == owner->table().device_type || device.device_type == kDLCPU)) return;
  throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s lives on %s; expected %s, which the call names", call.op,
                Names(runtime, call).tensor(i).c_str(), show_device(at).c_str(), show_device(device).c_str());
}

// Where tensors of several devices, or of pinned or managed memory, are computed.
DLDevice resolve_shared(const nw_runtime& runtime, const nw_call& call, uint32_t count) {
  std::optional<uint32_t> resident;  // the first tensor in a device's own memory, which decides
  DLDevice fallback{kDLCPU, 0};      // of pinned memory alone
  for (uint32_t i = 0; i < count; ++i) {
    const DLTensor* t = tensor_of(call, i);
    if (t == nullptr) continue;
    if (const Backend* owner = runtime.owner_of_shared(t->device.device_type)) {
      const nw_plugin& table = owner->table();
      if (table.managed_type == t->device.device_type)
        fallback = {static_cast<DLDeviceType>(table.device_type), t->device.device_id};
      continue;
    }
    if (!resident) resident = i;
    if (!same_device(tensor_of(call, *resident)->device, t->device)) refuse_mixed(runtime, call, *resident, i);
  }
  return resident ? tensor_of(call, *resident)->device : fallback;
}

DLDevice resolve_device(const nw_runtime& runtime, const nw_call& call) {
  const uint32_t count = call.num_inputs + call.num_outputs;
  const bool named = call.device.device_type != 0;
  DLDevice device = call.device;
  bool found = named;
  for (uint32_t i = 0; i < count; ++i) {
    const DLTensor* t = tensor_of(call, i);
    if (t == nullptr) continue;
    if (!found) {
      device = t->device;
      found = true;
    }
    if (same_device(t->device, device)) continue;
    if (!named) return resolve_shared(runtime, call, count);
    check_on(runtime, call, device, i);
  }
  if (!found) throw_failure(NW_INVALID, -1, "%s: the call has no tensor and names no device; expected nw_call.device", call.op);
  return named || runtime.is_served(device.device_type) ? device : resolve_shared(runtime, call, count);
}

// The plugin that the call or NARROWS_BACKEND names; "" where none does. NARROWS_BACKEND chooses among the plugins of a device, so
// it says nothing of devices that the named one does not serve.
std::string forced_backend(const nw_runtime& runtime, const nw_call& call, DLDevice device) {
  const bool by_call = call.backend != nullptr;
  std::string name = by_call ? call.backend : runtime.preferred_backend();
  if (name.empty() && !by_call) return "";
  std::string loaded;
  for (const Backend* backend : runtime.usable()) {
    loaded += (loaded.empty() ? "" : ", ") + backend->name();
    if (backend->name() != name) continue;
    if (backend->table().device_type == device.device_type) return name;
    if (!by_call) return "";
    throw_failure(NW_INVALID, -1, "%s: backend '%s' serves %s, and the call is on %s", call.op, name.c_str(),
                  show_device({static_cast<DLDeviceType>(backend->table().device_type), 0}).c_str(), show_device(device).c_str());
  }
  throw_failure(NW_INVALID, -1, "%s: unknown backend '%s'%s; loaded: %s", call.op, name.c_str(),
                by_call ? "" : " (from NARROWS_BACKEND)", loaded.empty() ? "none" : loaded.c_str());
}

const Contract& contract_of(const nw_runtime& runtime, const nw_call& call) {
  if (const Contract* contract = runtime.find_contract(call.op)) return *contract;
  runtime.refuse_unknown_op(call.op);
}

// The usable plugins of the device that offer the op, in search order; there is one at least.
std::vector<Backend*> candidates(const nw_runtime& runtime, const nw_call& call, DLDevice device) {
  const std::string forced = forced_backend(runtime, call, device);
  const bool program = runtime.find_program(call.op) != nullptr;
  std::vector<Backend*> out;
  std::string without;
  for (Backend* backend : runtime.usable()) {
    if (backend->table().device_type != device.device_type || (!forced.empty() && forced != backend->name())) continue;
    if (program ? backend->serves_programs() : backend->find_op(call.op) != nullptr)
      out.push_back(backend);
    else
      without += (without.empty() ? "" : ", ") + backend->name();
  }
  if (!out.empty()) return out;
  if (!without.empty() && program) throw_failure(NW_UNSUPPORTED, -1, "%s: %s has no tensor programs", call.op, without.c_str());
  if (!without.empty()) throw_failure(NW_UNSUPPORTED, -1, "%s: not among the ops of %s", call.op, without.c_str());
  throw_failure(NW_UNAVAILABLE, -1, "%s: %s", call.op, no_plugin_serves(device).c_str());
}

// Failure.argument in terms of the call, whose inputs may be more than the signature's: absent ones at the end were stripped. An
// input that the call lacks altogether has no index there; that place is an output's.
Failure in_terms_of_call(Failure failure, uint32_t num_inputs) {
  const auto inputs = static_cast<int32_t>(num_inputs);
  if (failure.argument >= kOutputArgument)
    failure.argument += inputs - kOutputArgument;
  else if (failure.argument >= inputs)
    failure.argument = -1;
  return failure;
}

// The same from a plugin, which counts the signature's inputs, then outputs; of any other number nothing is known.
Failure from_plugin(Failure failure, uint32_t num_inputs, uint32_t num_outputs) {
  const auto inputs = static_cast<int32_t>(num_inputs), all = inputs + static_cast<int32_t>(num_outputs);
  if (failure.argument < 0 || failure.argument >= all)
    failure.argument = -1;
  else if (failure.argument >= inputs)
    failure.argument += kOutputArgument - inputs;
  return failure;
}

// Asks one candidate after the other: one that is unavailable, or lacks the device's number, is passed over as if its file were
// absent; one that answers unsupported gives way to the next. Nothing when one accepted; else why none did.
template <class Ask>
std::optional<Failure> ask_in_turn(nw_runtime& runtime, const nw_call& call, const nw_sig& sig, Ask&& ask) {
  std::optional<Failure> absent, refusal;
  const std::string start = std::string(call.op) + ": ";
  std::string reasons;  // of several plugins, each with its name
  for (Backend* backend : candidates(runtime, call, sig.device)) {
    if (!backend->has(runtime.host(), sig.device)) {
      if (!absent) absent = backend->missing_device(runtime.host(), sig.device);
      continue;
    }
    try {
      ask(*backend);
      return std::nullopt;
    } catch (Failure& failure) {
      failure = from_plugin(std::move(failure), sig.num_inputs, sig.num_outputs);
      if (failure.status != NW_UNSUPPORTED) throw;
      const std::string reason = failure.message.substr(failure.message.starts_with(start) ? start.size() : 0);
      const std::string named = reason.starts_with(backend->name() + ": ") ? reason : backend->name() + ": " + reason;
      reasons += (refusal ? "; " : "") + named;
      failure.message = start + (refusal ? reasons : reason);
      refusal = std::move(failure);
    }
  }
  return refusal ? refusal : absent;
}

std::vector<nw_spec> infer_specs(nw_runtime& runtime, const nw_call& call, const Contract& contract, const nw_sig& sig) {
  nw_sig inputs = sig;
  inputs.num_outputs = 0;
  std::vector<nw_spec> specs, inferred;
  if (contract.rule) specs = infer_by_rule(contract, inputs);
  if (find_builtin(contract.op.name) != nullptr || is_program_name(contract.op.name)) return specs;
  const std::optional<Failure> refusal = ask_in_turn(runtime, call, inputs, [&](Backend& backend) {
    try {
      inferred = backend.infer(inputs, contract.op.num_outputs);
    } catch (const Failure& failure) {
      if (!contract.rule || failure.status != NW_UNSUPPORTED) throw;  // else the rule's dtypes stand
    }
  });
  if (refusal) throw *refusal;
  if (!contract.rule) return inferred;
  const DLDataType* const declared = contract.op.output_dtypes;
  for (size_t i = 0; i < inferred.size(); ++i)
    if (declared == nullptr || declared[i].bits == 0) specs[i].dtype = inferred[i].dtype;
  return specs;
}

bool knows_kernel(const char* const* kernels, const char* kernel) {
  for (const char* const* name = kernels; name != nullptr && *name != nullptr; ++name)
    if (std::strcmp(*name, kernel) == 0) return true;
  return false;
}

std::string kernel_names(const char* const* kernels) {
  std::string out;
  for (const char* const* name = kernels; name != nullptr && *name != nullptr; ++name)
    out += (out.empty() ? "" : ", ") + std::string(*name);
  return out.empty() ? "none by name" : out;
}

// Asks one plugin; handle == NULL asks only. Throws Failure.
void ask(nw_runtime& runtime, Backend& backend, const nw_sig& sig, void** handle, nw_plan_info* info) {
  const ProgramOp* const program = runtime.find_program(sig.op);
  const char* const* const kernels = program != nullptr ? backend.table().program_kernels : backend.find_op(sig.op)->kernels;
  if (sig.kernel != nullptr && !knows_kernel(kernels, sig.kernel))
    throw_failure(NW_UNSUPPORTED, -1, "%s: no kernel '%s'; it has: %s", backend.name().c_str(), sig.kernel,
                  kernel_names(kernels).c_str());
  if (handle != nullptr) *handle = nullptr;
  *info = nw_plan_info{};
  info->struct_size = sizeof *info;
  if (program != nullptr)
    backend.plan_program(runtime.texts_of(*program, backend.name()), sig, handle, info);
  else
    backend.plan(sig, handle, info);
  if ((info->traits & NW_PLAN_NONDETERMINISTIC) != 0 && (sig.flags & NW_DETERMINISTIC) != 0) {
    if (handle != nullptr) backend.plan_free(*handle);
    throw_failure(NW_UNSUPPORTED, -1, "%s: its kernel is not deterministic, and NW_DETERMINISTIC is set", backend.name().c_str());
  }
  info->backend = backend.name().c_str();
}

// The miss path: everything that depends on the signature alone. handle == NULL asks only; gives the plugin that said yes.
Backend& plan_now(nw_runtime& runtime, const nw_call& call, const nw_sig& sig, void** handle, nw_plan_info* info) {
  try {
    const Contract& contract = contract_of(runtime, call);
    check_inputs(contract, sig);
    check_outputs(contract, sig, infer_specs(runtime, call, contract, sig));
    Backend* planner = nullptr;
    const std::optional<Failure> refusal = ask_in_turn(runtime, call, sig, [&](Backend& backend) {
      ask(runtime, backend, sig, handle, info);
      planner = &backend;
    });
    if (refusal) throw *refusal;
    return *planner;
  } catch (const Failure& failure) {
    throw in_terms_of_call(failure, call.num_inputs);
  }
}

PlanRef find_or_plan(nw_runtime& runtime, const nw_call& call, const Signature& signature) {
  const Key key = signature.key();
  if (PlanRef found = runtime.cache().find(key); found.get() != nullptr) return found;
  return runtime.cache().plan(key, [&] {
    auto plan = std::make_unique<nw_plan>(&runtime);
    const nw_sig& sig = signature.sig();
    plan->backend = &plan_now(runtime, call, sig, &plan->handle, &plan->info);
    plan->flags = sig.flags, plan->num_inputs = sig.num_inputs, plan->params_size = sig.params_size, plan->device = sig.device;
    return plan;
  });
}

void check_stream(const nw_call& call, const Backend& backend) {
  if (backend.table().device_type == kDLCPU && call.stream != nullptr)
    throw_failure(NW_INVALID, -1, "%s: stream = %p; expected NULL on the CPU, where a call is done when it returns", call.op,
                  call.stream);
}

void check_workspace(const nw_call& call, uint64_t needed) {
  if (call.workspace_size < needed)
    throw_failure(NW_INVALID, -1, "%s: workspace_size = %llu; this plan needs %llu bytes", call.op,
                  static_cast<unsigned long long>(call.workspace_size), static_cast<unsigned long long>(needed));
  if (reinterpret_cast<uintptr_t>(call.workspace) % NW_WORKSPACE_ALIGN != 0)
    throw_failure(NW_INVALID, -1, "%s: workspace = %p; expected an address divisible by %d", call.op, call.workspace,
                  NW_WORKSPACE_ALIGN);
}

// Memory for one launch, in stream order.
class Workspace {
 public:
  Workspace(Backend& backend, int32_t device_id, uint64_t size, void* stream)
      : backend_(backend), device_id_(device_id), stream_(stream), data_(backend.alloc(device_id, size, stream)) {}
  ~Workspace() {
    try {
      backend_.free(device_id_, data_, stream_);
    } catch (...) {
      // The launch's own outcome is what the caller needs to know.
    }
  }
  void* data() const { return data_; }

 private:
  Backend& backend_;
  int32_t device_id_;
  void* stream_;
  void* data_;
};

void launch_checked(const nw_plan& plan, nw_call& call) {
  Backend& backend = *plan.backend;
  backend.check_process();
  check_stream(call, backend);
  const uint64_t needed = plan.info.workspace_size;
  if (needed != 0 && call.workspace != nullptr) check_workspace(call, needed);
  const uint32_t num_inputs = call.num_inputs;
  call.struct_size = sizeof call;
  call.num_inputs = plan.num_inputs;
  call.params_size = plan.params_size;
  if (plan.params_size == 0) call.params = nullptr;
  call.device = plan.device;
  const ThreadLimit limit(call.max_threads);
  try {
    if (needed == 0 || call.workspace != nullptr) return backend.launch(plan.handle, call);
    const Workspace workspace(backend, plan.device.device_id, needed, call.stream);
    call.workspace = workspace.data();
    call.workspace_size = needed;
    backend.launch(plan.handle, call);
  } catch (const Failure& failure) {
    throw in_terms_of_call(from_plugin(failure, plan.num_inputs, call.num_outputs), num_inputs);
  }
}

// What NVTX shows of a launch.
std::string label_of_launch(const nw_runtime& runtime, const nw_call& call) {
  const nw_op* const op = runtime.find_op(call.op);
  return std::string("narrows::") + (op == nullptr ? call.op : label_of(*op, call.params, call.params_size));
}

void check_fits(const nw_plan& plan, const nw_call& call) {
  nw_runtime& runtime = *plan.runtime;
  const DLDevice device = resolve_device(runtime, call);
  const Signature signature(call, device, call.backend, Memory::needed, Names(runtime, call));
  if (!signature.fits(plan.key))
    throw_failure(
        NW_INVALID, -1,
        "%s: the call does not fit the plan, which was made for another op, backend, kernel, flags, device, params, or for "
        "tensors of another dtype, shape, stride, aliasing or a higher alignment",
        call.op);
}

}  // namespace

void run(nw_runtime& runtime, const nw_call& given) {
  nw_call call = complete(given);
  const DLDevice device = resolve_device(runtime, call);
  const Signature signature(call, device, call.backend, Memory::needed, Names(runtime, call));
  const PlanRef plan = find_or_plan(runtime, call, signature);
  const NvtxRange range([&] { return label_of_launch(runtime, call); });
  launch_checked(*plan.get(), call);
}

void launch(const nw_plan& plan, const nw_call& given) {
  nw_call call = complete(given);
  const bool known = (call.flags & NW_FITS) != 0;
  call.flags &= ~uint32_t{NW_FITS};
  if (!known)
    check_fits(plan, call);
  else if (call.flags != plan.flags)
    throw_failure(NW_INVALID, -1, "%s: flags are 0x%x beside NW_FITS; expected 0x%x, the plan's", call.op, call.flags, plan.flags);
  const NvtxRange range([&] { return label_of_launch(*plan.runtime, call); });
  launch_checked(plan, call);
}

PlanRef get_plan(nw_runtime& runtime, const nw_call& given, bool ask_only, nw_plan_info* info) {
  const nw_call call = complete(given);
  const DLDevice device = resolve_device(runtime, call);
  const Signature signature(call, device, call.backend, Memory::alignment, Names(runtime, call));
  if (ask_only) {
    plan_now(runtime, call, signature.sig(), nullptr, info);
    return PlanRef();
  }
  PlanRef plan = find_or_plan(runtime, call, signature);
  *info = plan->info;
  return plan;
}

std::vector<nw_spec> infer(nw_runtime& runtime, const nw_call& given) {
  const nw_call call = complete(given, false);
  const DLDevice device = resolve_device(runtime, call);
  const Signature signature(call, device, call.backend, Memory::ignored, Names(runtime, call));
  try {
    const Contract& contract = contract_of(runtime, call);
    check_inputs(contract, signature.sig());
    return infer_specs(runtime, call, contract, signature.sig());
  } catch (const Failure& failure) {
    throw in_terms_of_call(failure, call.num_inputs);
  }
}

}  // namespace narrows
