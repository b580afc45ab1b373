// SPDX-License-Identifier: Apache-2.0
// private_names.cpp -- see private_names.h. The names are those of torch 2.8 to 2.15, unless a line says otherwise.
#include "bindings/torch/private_names.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

namespace narrows::torch {
namespace {

// One of torch's libraries, if the process has loaded it.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_NOLOAD | RTLD_LAZY)) {}
  template <class F>
  void find(const char* name, F** function) const {
    if (handle_ != nullptr) *function = reinterpret_cast<F*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

void find_in_core(PrivateNames* names) {
  const Library c10("libc10.so");
  c10.find("_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", &names->mode_count);
  c10.find("_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE", &names->key_included);
  c10.find("_ZN3c1013InferenceMode10is_enabledEv", &names->inference_mode);
  c10.find("_ZNK3c1010TensorImpl13requires_gradEv", &names->impl_requires_grad);
}

void find_on_cpu(PrivateNames* names) {
  const Library cpu("libtorch_cpu.so");
  cpu.find("_ZN2at4impl27torch_function_mode_enabledEv", &names->function_mode);
  cpu.find("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", &names->function_mode_count);
  cpu.find("_ZN2at17toDLPackNonOwningERKNS_6TensorEP8DLTensor", &names->to_dlpack);        // to 2.14
  cpu.find("_ZN2at17toDLPackNonOwningERKNS_6TensorEP8DLTensorb", &names->to_dlpack_with);  // from 2.15
  cpu.find("_ZN2at6native6is_negERKNS_6TensorE", &names->lazily_negated);
  cpu.find("_ZN2at6native12is_inferenceERKNS_6TensorE", &names->is_inference);
  cpu.find("_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", &names->bump_version);
  cpu.find("_ZN2at6detail17empty_strided_cpuEN3c108ArrayRefIlEES3_NS1_10ScalarTypeEb", &names->new_on_cpu);
  cpu.find("_ZN2at12hasCallbacksEv", &names->has_callbacks);
  cpu.find("_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE", &names->step_callbacks);
}

void find_on_gpu(PrivateNames* names) {
  const Library c10("libc10_cuda.so");
  c10.find("_ZN3c104cuda9GetDeviceEPa", &names->current_gpu);
  c10.find("_ZN3c104cuda12device_countEv", &names->gpu_count);
  Library("libtorch_cuda.so")
      .find("_ZN2at6detail18empty_strided_cudaEN3c108ArrayRefIlEES3_NS1_10ScalarTypeESt8optionalINS1_6DeviceEE",
            &names->new_on_gpu);
}

PrivateNames look_up() {
  PrivateNames names;
  if (!private_names_allowed()) return names;
  find_in_core(&names);
  find_on_cpu(&names);
  find_on_gpu(&names);
  Library("libtorch_python.so").find("_Z16THPVariable_WrapON2at10TensorBaseE", &names.wrap);
  return names;
}

}  // namespace

bool private_names_allowed() {
  static const bool allowed = [] {
    const char* const value = std::getenv("NARROWS_TORCH_FAST");
    return value == nullptr || std::string_view(value) != "0";
  }();
  return allowed;
}

const PrivateNames& private_names() {
  static const PrivateNames found = look_up();
  return found;
}

}  // namespace narrows::torch
