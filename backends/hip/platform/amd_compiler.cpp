// SPDX-License-Identifier: Apache-2.0
// amd_compiler.cpp -- hiprtc, HIP's run-time compiler, opened when it is first asked for. It was compiled, and never run on AMD's
// hardware: docs/gpu.md. backends/cuda/platform/compiler.cpp is the other one.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <mutex>
#include <vector>

#include "common/program_files.h"
#include "ops/program/compiler.h"

namespace narrows::gpu {
namespace {

using Program = struct ProgramOpaque*;
struct Hiprtc {
  const char* (*error_string)(int);
  int (*version)(int*, int*);
  int (*create)(Program*, const char* text, const char* name, int, const char* const*, const char* const*);
  int (*compile)(Program, int count, const char* const* options);
  int (*code_size)(Program, size_t*);
  int (*code)(Program, char*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*destroy)(Program*);
  int major = 0, minor = 0;
};

// Alone since HIP 5.3, before that a part of the runtime. The runtime that is linked knows code of its own version.
constexpr const char* kNames[] = {"libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libamdhip64.so.5"};

#ifdef HIP_EMULATION
void* symbol(void*, const char* name) { return hip_emulation_compiler(name); }
void* open_library() { return reinterpret_cast<void*>(1); }
#else
void* symbol(void* file, const char* name) { return dlsym(file, name); }
void* open_library() {
  for (const int only_loaded : {RTLD_NOLOAD, 0})
    for (const char* name : kNames)
      if (void* const file = dlopen(name, RTLD_NOW | RTLD_LOCAL | only_loaded); file != nullptr)
        if (dlsym(file, "hiprtcCompileProgram") != nullptr) return file;
  return nullptr;
}
#endif

template <class Function>
bool find(void* file, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(symbol(file, name));
  return *function != nullptr;
}

const Hiprtc* open_hiprtc() {
  void* const file = open_library();
  if (file == nullptr) return nullptr;
  auto& out = *new Hiprtc;
  const bool good = find(file, "hiprtcGetErrorString", &out.error_string) && find(file, "hiprtcVersion", &out.version) &&
                    find(file, "hiprtcCreateProgram", &out.create) && find(file, "hiprtcCompileProgram", &out.compile) &&
                    find(file, "hiprtcGetCodeSize", &out.code_size) && find(file, "hiprtcGetCode", &out.code) &&
                    find(file, "hiprtcGetProgramLogSize", &out.log_size) && find(file, "hiprtcGetProgramLog", &out.log) &&
                    find(file, "hiprtcDestroyProgram", &out.destroy);
  return good && out.version(&out.major, &out.minor) == 0 ? &out : nullptr;
}

const Hiprtc& hiprtc() {
  static std::mutex& lock = *new std::mutex;
  static const Hiprtc* opened = nullptr;
  const std::lock_guard hold(lock);
  if (opened == nullptr) opened = open_hiprtc();
  if (opened == nullptr)
    refuse(NW_UNAVAILABLE, -1,
           "tensor programs need hiprtc, HIP's run-time compiler, which could not be opened; apt install hiprtc, or on Debian 12 "
           "libamdhip64-5");
  return *opened;
}

void expect(int status, const char* doing) {
  if (status != 0) refuse(NW_FAILED, -1, "hiprtc: %s: %s", doing, hiprtc().error_string(status));
}

std::string log_of(Program program) {
  size_t size = 0;
  if (hiprtc().log_size(program, &size) != 0 || size == 0) return "";
  std::string out(size, '\0');
  (void)hiprtc().log(program, out.data());
  out.resize(std::min<size_t>(std::strlen(out.c_str()), 600));
  return out;
}

}  // namespace

std::string compiler_identity() {
  const Hiprtc& found = hiprtc();
  return "hiprtc " + std::to_string(found.major) + "." + std::to_string(found.minor);
}

std::string compiler_description() {
  Dl_info info{};
  const bool is_file = dladdr(reinterpret_cast<const void*>(hiprtc().version), &info) != 0 && info.dli_fname != nullptr;
  return compiler_identity() + (is_file ? std::string(", ") + info.dli_fname : "");
}

// The architectures are those of prelude.cpp. What has no unit there may be emulated, as NVIDIA's.
common::GpuLimits limits_for_programs(const Device& device, const std::string& target) {
  common::GpuLimits out;
  const std::string name = target.substr(0, target.find(':'));
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const bool is_cdna = is_one_of({"gfx908", "gfx90a", "gfx940", "gfx941", "gfx942"});
  if (is_cdna || is_one_of({"gfx1100", "gfx1101", "gfx1102", "gfx1103"})) {
    out.unit_lanes = is_cdna ? 64 : 32;
    out.has_pairs = true;
    if (name == "gfx908") out.no_unit["mma.bf16.f32"] = "gfx908 multiplies no matrices of bf16 by 16 along k";
    return out;
  }
  out.unit_lanes = unit_lanes(device.compute_capability);
  out.has_panels = out.copies_ahead = out.unit_lanes != 0;
  return out;
}

// With its features, as "gfx90a:sramecc+:xnack-".
std::string compiler_target(const Device& device) {
  gpuDeviceProp properties;
  check(gpuGetDeviceProperties(&properties, device.id), "reading a device's properties");
  return properties.gcnArchName;
}

std::string compile_text(const std::string& text, const std::string& target) {
  const Hiprtc& compiler = hiprtc();
  Program program = nullptr;
  expect(compiler.create(&program, text.c_str(), "program.hip", 0, nullptr, nullptr), "taking a text");
  const std::string architecture = "--offload-arch=" + target;
  const char* const options[] = {architecture.c_str(), "-std=c++20", "-O3", "-ffp-contract=off", "-w"};
  const int status = compiler.compile(program, static_cast<int>(std::size(options)), options);
  std::string code;
  if (status == 0) {
    size_t size = 0;
    expect(compiler.code_size(program, &size), "asking for the size of code");
    code.resize(size);
    expect(compiler.code(program, code.data()), "asking for code");
  }
  const std::string log = status == 0 ? "" : log_of(program);
  (void)compiler.destroy(&program);
  if (status != 0)
    refuse(NW_FAILED, -1, "hiprtc %d.%d fails on a program's kernels (%s): %s", compiler.major, compiler.minor,
           compiler.error_string(status), log.c_str());
  return code;
}

void* load_module(const std::string& code) {
  hipModule_t module = nullptr;
  check(hipModuleLoadData(&module, code.data()), "loading a program's kernels");
  return module;
}

// No program asks for more shared memory than each kernel has: see limits_for_programs().
gpuFunction_t find_in_module(void* module, const std::string& name, int64_t) {
  hipFunction_t function = nullptr;
  check(hipModuleGetFunction(&function, static_cast<hipModule_t>(module), name.c_str()), "looking for a program's kernel");
  return function;
}

}  // namespace narrows::gpu
