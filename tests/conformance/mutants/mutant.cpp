// SPDX-License-Identifier: Apache-2.0
// mutant.cpp -- a plugin that runs the kernels of a real one (real_plugin.h; the cpu backend where none is named) and spoils what
// any op may spoil, in one way of those that faults.txt has for it. It waits for the launch and reaches the outputs by the real
// plugin's `copy`, so that it is a mutant of any device. Faults that need a wrong kernel are in the naive plugin.
#include <narrows/ops.h>
#include <narrows/plugin.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "fault.h"
#include "real_plugin.h"

namespace {

using mutants::fault;
using mutants::Fault;

const nw_plugin* load_real(nw_error* error) { return mutants::load_plugin(mutants::real_plugin_path(NARROWS_REAL_PLUGIN), error); }
const nw_plugin& real() {
  static const nw_plugin& plugin = *load_real(nullptr);
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

int64_t item_size(const DLTensor& t) { return t.dtype.bits / 8; }
bool is_f32(const DLTensor& t) { return t.dtype.code == kDLFloat && t.dtype.bits == 32; }

using Bytes = std::vector<unsigned char>;

// Memory of one launch's device, in the order of its stream. What went wrong with a copy is what the launch gives back.
class Memory {
 public:
  Memory(void* self, const nw_call& call, nw_error* error) : self_(self), call_(call), error_(error) {}

  int32_t status = NW_OK;

  void wait() { take(real().stream_sync(self_, call_.device.device_id, call_.stream, error_)); }

  // `size` bytes of a tensor from byte `at` on, counted from its first element.
  Bytes read(const DLTensor& t, int64_t at, int64_t size) { return read(address(t, at), t.device, size); }
  void write(const DLTensor& t, int64_t at, const Bytes& bytes) { write(address(t, at), t.device, bytes); }
  // Another value in that byte.
  void flip(const DLTensor& t, int64_t at) { flip(address(t, at), t.device); }
  void flip(char* address, DLDevice device) {
    Bytes byte = read(address, device, 1);
    byte[0] ^= 1;
    write(address, device, byte);
  }

 private:
  static constexpr DLDevice kHost{kDLCPU, 0};

  static char* address(const DLTensor& t, int64_t at) { return static_cast<char*>(t.data) + t.byte_offset + at; }
  Bytes read(const char* from, DLDevice device, int64_t size) {
    Bytes bytes(static_cast<size_t>(size));
    take(real().copy(self_, kHost, bytes.data(), device, from, bytes.size(), call_.stream, error_));
    return bytes;
  }
  void write(char* to, DLDevice device, const Bytes& bytes) {
    take(real().copy(self_, device, to, kHost, bytes.data(), bytes.size(), call_.stream, error_));
  }
  void take(int32_t result) {
    if (status == NW_OK) status = result;
  }

  void* self_;
  const nw_call& call_;
  nw_error* error_;
};

std::atomic<int> launches{0};

// What a wrong kernel does to the bytes of an output after it has computed them. `last`: those of its last element before the
// launch; `forced`: the call names a kernel. There is a byte before the first element and one behind the last.
void spoil(unsigned char* bytes, int64_t n, int64_t item, const Bytes& last, bool forced) {
  if (fault(Fault::zeros)) std::memset(bytes, 0, n * item);
  if (fault(Fault::one_variant) && forced) std::memset(bytes, 0, n * item);
  if (fault(Fault::tail)) std::memcpy(bytes + (n - 1) * item, last.data(), item);
  if (fault(Fault::overrun)) bytes[n * item] ^= 1;
  if (fault(Fault::underrun)) bytes[-1] ^= 1;
  if (fault(Fault::random)) bytes[0] ^= static_cast<unsigned char>(launches++ & 1);
  if (fault(Fault::one_element) && n > 20) bytes[(n / 2) * item + item - 1] ^= 0x20;
}

void spoil_f32(unsigned char* bytes, int64_t n) {
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

// A contiguous output, spoilt where it lies. The bytes around it are touched by the faults alone that are about them: an output is
// not always a test tensor, which has others around it.
void spoil(Memory& memory, const DLTensor& out, const Bytes& last, bool forced) {
  const int64_t n = count(out), item = item_size(out);
  const int64_t before = fault(Fault::underrun) ? 1 : 0, behind = fault(Fault::overrun) ? 1 : 0;
  const Bytes right = memory.read(out, -before, before + n * item + behind);
  Bytes wrong = right;
  spoil(wrong.data() + before, n, item, last, forced);
  if (is_f32(out)) spoil_f32(wrong.data() + before, n);
  if (wrong != right) memory.write(out, -before, wrong);
}

// A kernel that writes through the gap behind the first element: there is one where every stride is even.
void fill_gap(Memory& memory, const DLTensor& out) {
  if (out.strides == nullptr || count(out) < 2) return;
  for (int32_t d = 0; d < out.ndim; ++d)
    if (out.shape[d] > 1 && out.strides[d] % 2 != 0) return;
  memory.flip(out, item_size(out));
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
  Memory memory(self, call, error);
  Bytes last;
  if (plain && fault(Fault::tail)) last = memory.read(*out, (count(*out) - 1) * item_size(*out), item_size(*out));
  if (fault(Fault::nothing)) return NW_OK;  // success, and the output unwritten
  if (fault(Fault::stream_ignored)) {
    call.stream = nullptr;
    return real().launch(self, plan, &call, error);  // and nobody waits
  }
  if (const int32_t status = real().launch(self, plan, &call, error); status != NW_OK) return status;
  memory.wait();
  if (fault(Fault::workspace) && call.workspace != nullptr)
    memory.flip(static_cast<char*>(call.workspace) + call.workspace_size, call.device);
  if (plain) spoil(memory, *out, last, call.kernel != nullptr);
  if (out != nullptr && fault(Fault::gap)) fill_gap(memory, *out);
  if (fault(Fault::writes_input) && inputs[0] != nullptr && count(*inputs[0]) != 0) memory.flip(*inputs[0], 0);
  return memory.status;
}

// The real plan, but for mutants that take no notice of the kernel's name, or refuse without a word.
int32_t plan(void* self, const nw_sig* given, void** out, nw_plan_info* info, nw_error* error) {
  nw_sig sig = *given;
  if (fault(Fault::kernel_ignored)) sig.kernel = nullptr;
  if (fault(Fault::variants_refuse) && sig.kernel != nullptr) return NW_UNSUPPORTED;
  return real().plan(self, &sig, out, info, fault(Fault::no_message) ? nullptr : error);
}

int32_t plan_program(void* self, const nw_program_text* given, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  nw_program_text program = *given;
  if (fault(Fault::flags_ignored)) program.flags = 0;
  return real().plan_program(self, &program, sig, out, info, error);
}

// With room behind it, so that a store past the end of a workspace is the test's to notice and not the allocator's.
int32_t alloc(void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  const uint64_t room = fault(Fault::workspace) && size != 0 ? NW_WORKSPACE_ALIGN : 0;
  return real().alloc(self, device_id, size + room, stream, data, error);
}

}  // namespace

const nw_plugin* narrows_plugin_query(uint32_t, nw_error* error) {
  static nw_plugin table;
  mutants::active_fault = mutants::wanted_fault();
  if (mutants::active_fault < 0) {
    if (error != nullptr) *error = {NW_INVALID, -1, 0, "mutant: NARROWS_TEST_FAULT is none of faults.txt"};
    return nullptr;
  }
  if (load_real(error) == nullptr) return nullptr;
  table = real();
  table.name = "mutant";
  table.alloc = alloc;
  table.plan = plan;
  if (table.plan_program != nullptr) table.plan_program = plan_program;
  table.launch = launch;
  return &table;
}
