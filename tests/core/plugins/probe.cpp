// SPDX-License-Identifier: Apache-2.0
// probe.cpp -- a plugin that does what the test tells it and remembers what it was asked (probe.h). Its devices are host memory
// under another DLDeviceType. Built several times with other values of:
//   PROBE_NAME "probe"   PROBE_DEVICE_TYPE, PROBE_PINNED_TYPE, PROBE_MANAGED_TYPE: DLDeviceType   PROBE_DEVICES: how many
#include "probe.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace {

using namespace narrows::test;

constexpr uint64_t kAlive = 0xA11CE, kFreed = 0xDEAD;

struct Plan {
  uint64_t state;
  uint64_t workspace_size;
};

struct Instance {
  Probe probe;
};

Probe& probe_of(void* self) { return static_cast<Instance*>(self)->probe; }

int32_t answer(const Probe& probe, int32_t status, nw_error* error) {
  if (status == NW_OK || error == nullptr) return status;
  error->status = status;
  error->argument = probe.argument;
  error->native_code = 77;
  std::strncpy(error->message, probe.message.c_str(), sizeof error->message - 1);
  return status;
}

SeenSig copy_of(const nw_sig& sig) {
  SeenSig out;
  out.struct_size = sig.struct_size;
  out.flags = sig.flags;
  out.num_inputs = sig.num_inputs;
  out.num_outputs = sig.num_outputs;
  out.op = sig.op;
  if (sig.kernel != nullptr) out.kernel = sig.kernel;
  out.device = sig.device;
  const auto* params = static_cast<const unsigned char*>(sig.params);
  out.params.assign(params, params + sig.params_size);
  for (uint32_t i = 0; i < sig.num_inputs + sig.num_outputs; ++i) {
    const nw_tensor_sig& t = sig.tensors[i];
    SeenTensor seen{t.dtype, t.ndim, t.align_log2, t.flags, t.alias_of, {}, {}};
    if (t.ndim > 0) {
      seen.shape.assign(t.shape, t.shape + t.ndim);
      seen.strides.assign(t.strides, t.strides + t.ndim);
    }
    out.tensors.push_back(std::move(seen));
  }
  return out;
}

int32_t create(const nw_host* host, void** self, nw_error*) {
  host->log(host->ctx, NW_LOG_DEBUG, PROBE_NAME " is created");
  auto* instance = new Instance;
  instance->probe.host = host;
  *self = instance;
  return NW_OK;
}

void destroy(void* self) {
  const std::unique_ptr<Instance> instance(static_cast<Instance*>(self));
  if (instance->probe.on_destroy) instance->probe.on_destroy();
}

int32_t device_count(void* self, int32_t* count, nw_error*) {
  probe_of(self).enter("device_count");
  *count = PROBE_DEVICES + probe_of(self).more_devices;
  return NW_OK;
}

int32_t device_info(void* self, int32_t device_id, nw_device_info* out, nw_error*) {
  probe_of(self).enter("device_info");
  std::strcpy(out->name, PROBE_NAME " device");
  std::strcpy(out->arch, "host memory");
  out->uuid[0] = static_cast<uint8_t>(device_id + 1);
  out->total_memory = uint64_t{1} << (30 + device_id);
  return NW_OK;
}

int32_t alloc(void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  Probe& probe = probe_of(self);
  probe.enter("alloc");
  const int32_t status = device_id == probe.lost ? NW_DEVICE_LOST : probe.alloc_status.load();
  *data = status != NW_OK || size == 0 ? nullptr : std::aligned_alloc(256, (size + 255) / 256 * 256);
  probe.record({"alloc", device_id, stream, *data, size});
  return answer(probe, status, error);
}

int32_t free_memory(void* self, int32_t device_id, void* data, void* stream, nw_error*) {
  probe_of(self).record({"free", device_id, stream, data, 0});
  std::free(data);
  probe_of(self).enter("free");  // last, so that a hook that throws leaks nothing
  return NW_OK;
}

int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error*) {
  probe_of(self).enter("copy");
  probe_of(self).record(
      {"copy " + std::to_string(from.device_type) + " to " + std::to_string(to.device_type), to.device_id, stream, dst, size});
  if (size != 0) std::memcpy(dst, src, size);
  return NW_OK;
}

int32_t stream_create(void* self, int32_t device_id, void** stream, nw_error*) {
  probe_of(self).enter("stream_create");
  *stream = new char{};
  probe_of(self).record({"stream_create", device_id, *stream, nullptr, 0});
  return NW_OK;
}

int32_t stream_destroy(void* self, int32_t device_id, void* stream, nw_error*) {
  probe_of(self).enter("stream_destroy");
  probe_of(self).record({"stream_destroy", device_id, stream, nullptr, 0});
  delete static_cast<char*>(stream);
  return NW_OK;
}

int32_t stream_sync(void* self, int32_t device_id, void* stream, nw_error* error) {
  probe_of(self).enter("stream_sync");
  probe_of(self).record({"stream_sync", device_id, stream, nullptr, 0});
  return device_id == probe_of(self).lost ? answer(probe_of(self), NW_DEVICE_LOST, error) : NW_OK;
}

int32_t stream_wait(void* self, int32_t device_id, void* waiter, void* signaler, nw_error*) {
  probe_of(self).enter("stream_wait");
  probe_of(self).record({"stream_wait", device_id, waiter, signaler, 0});
  return NW_OK;
}

DLDataType dtype_of_first_input(const nw_sig& sig) {
  for (uint32_t i = 0; i < sig.num_inputs; ++i)
    if (sig.tensors[i].ndim >= 0) return sig.tensors[i].dtype;
  return {kDLFloat, 32, 1};
}

int32_t infer(void* self, const nw_sig* sig, nw_spec* outputs, uint32_t num_outputs, nw_error* error) {
  Probe& probe = probe_of(self);
  ++probe.infers;
  probe.see(copy_of(*sig));
  for (uint32_t i = 0; i < num_outputs; ++i) outputs[i].dtype = dtype_of_first_input(*sig);
  if (probe.on_infer) probe.on_infer(*sig, outputs, num_outputs);
  return answer(probe, probe.infer_status, error);
}

bool knows_kernel(const char* kernel) {
  return kernel == nullptr || std::strcmp(kernel, "fast") == 0 || std::strcmp(kernel, "slow") == 0;
}

int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  Probe& probe = probe_of(self);
  ++(out == nullptr ? probe.asks : probe.plans);
  probe.see(copy_of(*sig));
  if (probe.on_plan) probe.on_plan(*sig);
  if (probe.plan_status != NW_OK) return answer(probe, probe.plan_status, error);
  if (!knows_kernel(sig->kernel)) return answer(probe, NW_UNSUPPORTED, error);
  if (info != nullptr) {
    info->traits = probe.traits;
    info->workspace_size = probe.workspace_size;
    info->kernel = sig->kernel != nullptr && std::strcmp(sig->kernel, "slow") == 0 ? "slow" : "fast";
  }
  if (out != nullptr) {
    *out = new Plan{kAlive, probe.workspace_size};
    ++probe.plans_made;
  }
  return NW_OK;
}

// Of the device types that probes serve ExtDev has programs, and the others have none.
int32_t plan_program(void* self, const nw_program_text* program, const nw_sig* sig, void** out, nw_plan_info* info,
                     nw_error* error) {
  Probe& probe = probe_of(self);
  probe.text = program->text;
  probe.scheduled = program->scheduled == nullptr ? "" : program->scheduled;
  return plan(self, sig, out, info, error);
}

void plan_free(void* self, void* plan) {
  static_cast<Plan*>(plan)->state = kFreed;
  delete static_cast<Plan*>(plan);
  ++probe_of(self).plans_freed;
}

// Writes 0x5A over the first byte of each output, so that a test sees whether it ran.
int32_t launch(void* self, const void* plan, const nw_call* call, nw_error* error) {
  Probe& probe = probe_of(self);
  ++probe.launches;
  const auto* planned = static_cast<const Plan*>(plan);
  if (planned->state != kAlive) ++probe.dead_plans;
  probe.record({"launch", call->device.device_id, call->stream, call->workspace, call->workspace_size});
  if (probe.on_launch) probe.on_launch(*call);
  if (planned->state != kAlive) ++probe.dead_plans;
  if (call->device.device_id == probe.lost) return answer(probe, NW_DEVICE_LOST, error);
  if (planned->workspace_size != 0) std::memset(call->workspace, 0x77, planned->workspace_size);
  for (uint32_t i = 0; i < call->num_outputs; ++i)
    if (const DLTensor* t = call->outputs[i]; t != nullptr && t->data != nullptr)
      static_cast<char*>(t->data)[t->byte_offset] = 0x5A;
  return answer(probe, probe.launch_status, error);
}

const void* extension(void* self, const char* name) {
  probe_of(self).enter("extension");
  return std::strcmp(name, "probe/1") == 0 ? &probe_of(self) : nullptr;
}

// ---- the declarations ----

constexpr DLDataType kInt64{kDLInt, 64, 1};
const nw_param kN{"n", kInt64, 0, nullptr, 0}, kM{"m", kInt64, 8, nullptr, 0}, kSpare{"spare", kInt64, 16, nullptr, 0};
const nw_param* const kParams[] = {&kN, &kM, &kSpare, nullptr};
const char* const kKernels[] = {"fast", "slow", nullptr};

nw_op op(const char* name, uint32_t min_inputs, const char* const* inputs, const char* const* outputs, const char* rule) {
  nw_op out{};
  out.struct_size = sizeof(nw_op);
  out.name = name;
  out.min_inputs = min_inputs;
  while (inputs[out.max_inputs] != nullptr) ++out.max_inputs;
  while (outputs[out.num_outputs] != nullptr) ++out.num_outputs;
  out.inputs = inputs;
  out.outputs = outputs;
  out.shape_rule = rule;
  out.params = kParams;
  out.params_size = sizeof(ProbeParams);
  return out;
}

const char* const kNone[] = {nullptr};
const char* const kA[] = {"a", nullptr};
const char* const kAB[] = {"a", "b", nullptr};
const char* const kABC[] = {"a", "b?", "c?", nullptr};
const char* const kOut[] = {"out", nullptr};
const char* const kTwo[] = {"first", "second", nullptr};
const char* const kAux[] = {"y", "aux?", nullptr};
const char* const kGrad[] = {"grad_y?", "a", "y?", "aux?", nullptr};
const char* const kGradA[] = {"grad_a?", nullptr};

nw_op noop_op() {  // in place; two named kernels
  nw_op out = op("probe.noop/1", 1, kABC, kOut, "like 0");
  out.flags = NW_OP_INPLACE;
  out.kernels = kKernels;
  return out;
}
nw_op aux_op() {
  nw_op out = op("probe.aux/1", 1, kA, kAux, "like 0 ; like 0");
  out.num_aux = 1;
  out.backward = "probe.aux_backward/1";
  out.saved = 1 | uint64_t{1} << 33;
  return out;
}

const nw_op kOps[] = {
    noop_op(),
    op("probe.strict/1", 2, kAB, kTwo, "like 0 ; like 1"),  // nothing in place
    op("probe.source/1", 0, kNone, kOut, nullptr),          // outputs only: infer() says which
    op("probe.infer/1", 1, kABC, kTwo, nullptr),            // infer() says shapes and dtypes
    op("probe.dtype/1", 1, kA, kOut, "like 0"),             // infer() says dtypes
    aux_op(),
    op("probe.aux_backward/1", 2, kGrad, kGradA, "like 1"),
    [] {
      nw_op out{};  // a built-in: its name, and its kernels
      out.struct_size = sizeof(nw_op);
      out.name = "elementwise";
      out.kernels = kKernels;
      return out;
    }(),
};
constexpr uint32_t kNumOps = sizeof kOps / sizeof kOps[0];
const nw_op* const kOpPointers[] = {&kOps[0], &kOps[1], &kOps[2], &kOps[3], &kOps[4], &kOps[5], &kOps[6], &kOps[7]};
static_assert(sizeof kOpPointers / sizeof kOpPointers[0] == kNumOps);

const nw_plugin kPlugin = {sizeof(nw_plugin),
                           NW_ABI_MAJOR,
                           PROBE_NAME,
                           "1.2.3",
                           PROBE_DEVICE_TYPE,
                           PROBE_PINNED_TYPE,
                           PROBE_MANAGED_TYPE,
                           kNumOps,
                           kOpPointers,
                           create,
                           destroy,
                           device_count,
                           device_info,
                           alloc,
                           free_memory,
                           copy,
                           stream_create,
                           stream_destroy,
                           stream_sync,
                           stream_wait,
                           infer,
                           plan,
                           plan_free,
                           launch,
                           extension,
                           PROBE_DEVICE_TYPE == kDLExtDev ? plan_program : nullptr,
                           kKernels};

}  // namespace

const nw_plugin* narrows_plugin_query(uint32_t, nw_error*) { return &kPlugin; }
