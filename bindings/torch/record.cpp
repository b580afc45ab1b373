// record.cpp -- see record.h.
#include "bindings/torch/record.h"

#include <dlfcn.h>

#include <cstring>

namespace narrows::torch {
namespace {

// What at::getStepCallbacksUnlessEmpty writes: a std::optional of torch's own type, whose size differs from version to version.
struct alignas(16) Steps {
  unsigned char bytes[1024];
};
constexpr uint8_t kFunctionScope = 0;

struct Recorder {
  // torch's C shim.
  int32_t (*start)(const char* name, void* keywords, void* const* inputs, uint64_t count, void** guard) = nullptr;
  int32_t (*end)(void* guard) = nullptr;
  int32_t (*to_ivalue)(void* tensor, void** ivalue) = nullptr;
  int32_t (*delete_ivalue)(void* ivalue) = nullptr;
  // Private names, the same in torch 2.8 to 2.15. Without the second one is_recorded() takes a lock; without both each call is an
  // event.
  bool (*has_callbacks)() = nullptr;
  void* (*step_callbacks)(Steps* result, uint8_t scope) = nullptr;
  int flag = -1;  // the byte of Steps that says whether there are callbacks; -1: not found
};

// Where nobody looks on, that byte is all that is written. Found by two calls into memory of two patterns.
int find_flag(const Recorder& r) {
  if (r.step_callbacks == nullptr || r.has_callbacks == nullptr || r.has_callbacks()) return -1;
  Steps a, b;
  std::memset(&a, 0xAA, sizeof a);
  std::memset(&b, 0x55, sizeof b);
  r.step_callbacks(&a, kFunctionScope);
  r.step_callbacks(&b, kFunctionScope);
  int found = -1;
  for (int i = 0; i < static_cast<int>(sizeof a.bytes); ++i) {
    if (a.bytes[i] == 0xAA && b.bytes[i] == 0x55) continue;
    if (found >= 0 || a.bytes[i] != 0 || b.bytes[i] != 0) return -1;
    found = i;
  }
  return found;
}

template <class F>
void look_up(void* library, const char* name, F** function) {
  *function = reinterpret_cast<F*>(dlsym(library, name));
}

Recorder load() {
  Recorder r;
  void* const library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return r;
  look_up(library, "aoti_record_function_start", &r.start);
  look_up(library, "aoti_record_function_end", &r.end);
  look_up(library, "aoti_torch_tensor_to_ivalue", &r.to_ivalue);
  look_up(library, "aoti_torch_delete_c10_value_object", &r.delete_ivalue);
  look_up(library, "_ZN2at12hasCallbacksEv", &r.has_callbacks);
  look_up(library, "_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE", &r.step_callbacks);
  r.flag = find_flag(r);
  return r;
}

const Recorder& recorder() {
  static const Recorder made = load();
  return made;
}

}  // namespace

bool is_recorded() {
  const Recorder& r = recorder();
  if (r.start == nullptr || r.end == nullptr) return false;
  if (r.flag < 0) return r.has_callbacks == nullptr || r.has_callbacks();
  Steps steps;
  r.step_callbacks(&steps, kFunctionScope);  // more than four callbacks at a time would be kept on the heap, and lost
  return steps.bytes[r.flag] != 0;
}

void Record::begin(const char* name, void* const* tensors, uint64_t count) {
  const Recorder& r = recorder();
  if (r.start == nullptr) return;
  void* inputs[NW_MAX_TENSORS];
  uint64_t made = 0;
  for (uint64_t i = 0; r.to_ivalue != nullptr && r.delete_ivalue != nullptr && i < count && i < NW_MAX_TENSORS; ++i) {
    void* implementation = tensors[i];  // which is all that torch's tensor holds
    if (r.to_ivalue(static_cast<void*>(&implementation), &inputs[made]) == 0) ++made;
  }
  if (r.start(name, nullptr, inputs, made, &guard_) != 0) guard_ = nullptr;
  for (uint64_t i = 0; i < made; ++i) r.delete_ivalue(inputs[i]);
}

void Record::end() {
  if (recorder().end != nullptr) recorder().end(guard_);
}

}  // namespace narrows::torch
