// mutant.cpp -- a plugin that runs the cpu backend's kernels and spoils what any op may spoil, in one way of those that faults.txt
// has for it. Faults that need a wrong kernel are in the naive plugin.
#include <dlfcn.h>
#include <narrows/ops.h>
#include <narrows/plugin.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fault.h"

namespace {

using mutants::fault;
using mutants::Fault;

const nw_plugin* real_plugin() {
  static const nw_plugin* const plugin = [] {
    void* const library = dlopen(NARROWS_REAL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return static_cast<const nw_plugin*>(nullptr);
    const auto query = reinterpret_cast<nw_plugin_query_fn>(dlsym(library, NW_PLUGIN_QUERY));
    return query == nullptr ? nullptr : query(NW_ABI_MAJOR, nullptr);
  }();
  return plugin;
}

int64_t count(const DLTensor& t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t.ndim; ++d) n *= t.shape[d];
  return n;
}

bool contiguous(const DLTensor& t) {
  int64_t stride = 1;
  for (int32_t d = t.ndim; d-- > 0;) {
    if (t.strides != nullptr && t.shape[d] > 1 && t.strides[d] != stride) return false;
    stride *= t.shape[d];
  }
  return true;
}

unsigned char* first(const DLTensor& t) { return static_cast<unsigned char*>(t.data) + t.byte_offset; }
bool is_f32(const DLTensor& t) { return t.dtype.code == kDLFloat && t.dtype.bits == 32; }

std::atomic<int> launches{0};

// What a wrong kernel does to a contiguous output after it has computed it. `before`: its bytes before the launch;
// `forced`: the call names a kernel.
void spoil(const DLTensor& out, const std::vector<unsigned char>& before, bool forced) {
  const int64_t n = count(out), item = out.dtype.bits / 8;
  unsigned char* const bytes = first(out);
  if (fault(Fault::zeros)) std::memset(bytes, 0, n * item);
  if (fault(Fault::one_variant) && forced) std::memset(bytes, 0, n * item);
  if (fault(Fault::tail)) std::memcpy(bytes + (n - 1) * item, before.data() + (n - 1) * item, item);
  if (fault(Fault::overrun)) bytes[n * item] ^= 1;
  if (fault(Fault::underrun)) bytes[-1] ^= 1;
  if (fault(Fault::random)) bytes[0] ^= static_cast<unsigned char>(launches++ & 1);
  if (fault(Fault::one_element) && n > 20) bytes[(n / 2) * item + item - 1] ^= 0x20;
  if (!is_f32(out)) return;
  for (int64_t i = 0; i < n; ++i) {
    float value;
    std::memcpy(&value, bytes + i * 4, 4);
    if (fault(Fault::nan)) value = std::numeric_limits<float>::quiet_NaN();
    if (fault(Fault::nan_to_zero) && std::isnan(value)) value = 0;
    if (fault(Fault::inf_to_max) && std::isinf(value)) value = std::copysign(std::numeric_limits<float>::max(), value);
    if (fault(Fault::flush) && std::fabs(value) < std::numeric_limits<float>::min()) value = std::copysign(0.0f, value);
    if (fault(Fault::positive_zero) && value == 0) value = 0;
    if (fault(Fault::last_bit)) value = std::nextafter(value, 2 * value);
    std::memcpy(bytes + i * 4, &value, 4);
  }
}

// A kernel that writes through the gap behind the first element: there is one where every stride is even.
void fill_gap(const DLTensor& out) {
  if (out.strides == nullptr || count(out) < 2) return;
  for (int32_t d = 0; d < out.ndim; ++d)
    if (out.shape[d] > 1 && out.strides[d] % 2 != 0) return;
  first(out)[out.dtype.bits / 8] ^= 1;
}

int32_t launch(void* self, const void* plan, const nw_call* given, nw_error* error) {
  nw_call call = *given;
  std::vector<DLTensor> tensors(call.num_inputs);
  std::vector<const DLTensor*> inputs(call.inputs, call.inputs + call.num_inputs);
  for (uint32_t i = 0; i < call.num_inputs; ++i) {
    if (inputs[i] == nullptr) continue;
    tensors[i] = *inputs[i];
    if (fault(Fault::byte_offset)) tensors[i].byte_offset = 0;
    if (fault(Fault::swapped) && call.num_inputs == 2 && inputs[1 - i] != nullptr && count(*inputs[0]) == count(*inputs[1]))
      tensors[i].data = inputs[1 - i]->data;
    inputs[i] = &tensors[i];
  }
  call.inputs = inputs.data();
  const DLTensor* const out = call.num_outputs != 0 ? call.outputs[0] : nullptr;
  const bool plain = out != nullptr && count(*out) != 0 && contiguous(*out);
  std::vector<unsigned char> before;
  if (plain) before.assign(first(*out), first(*out) + count(*out) * (out->dtype.bits / 8));
  if (fault(Fault::nothing)) return NW_OK;  // success, and the output unwritten
  const int32_t status = real_plugin()->launch(self, plan, &call, error);
  if (fault(Fault::workspace) && call.workspace != nullptr) static_cast<unsigned char*>(call.workspace)[call.workspace_size] ^= 1;
  if (plain) spoil(*out, before, call.kernel != nullptr);
  if (out != nullptr && fault(Fault::gap)) fill_gap(*out);
  if (fault(Fault::writes_input) && inputs[0] != nullptr && count(*inputs[0]) != 0) first(*inputs[0])[0] ^= 1;
  return status;
}

// The real plan, but for mutants that take no notice of the kernel's name, or refuse without a word.
int32_t plan(void* self, const nw_sig* given, void** out, nw_plan_info* info, nw_error* error) {
  nw_sig sig = *given;
  if (fault(Fault::kernel_ignored)) sig.kernel = nullptr;
  if (fault(Fault::variants_refuse) && sig.kernel != nullptr) return NW_UNSUPPORTED;
  return real_plugin()->plan(self, &sig, out, info, fault(Fault::no_message) ? nullptr : error);
}

// With room behind it, so that a store past the end of a workspace is the test's to notice and not the allocator's.
int32_t alloc(void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  const uint64_t room = fault(Fault::workspace) && size != 0 ? NW_WORKSPACE_ALIGN : 0;
  return real_plugin()->alloc(self, device_id, size + room, stream, data, error);
}

}  // namespace

const nw_plugin* narrows_plugin_query(uint32_t, nw_error* error) {
  static nw_plugin table;
  mutants::active_fault = mutants::wanted_fault();
  if (real_plugin() == nullptr || mutants::active_fault < 0) {
    if (error != nullptr)
      std::snprintf(error->message, sizeof error->message, "%s cannot be loaded, or NARROWS_TEST_FAULT is none of faults.txt",
                    NARROWS_REAL_PLUGIN);
    return nullptr;
  }
  table = *real_plugin();
  table.name = "mutant";
  table.alloc = alloc;
  table.plan = plan;
  table.launch = launch;
  return &table;
}
