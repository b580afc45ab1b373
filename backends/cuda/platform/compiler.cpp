// SPDX-License-Identifier: Apache-2.0
// compiler.cpp -- NVRTC, CUDA's run-time compiler, opened when it is first asked for: neither its headers nor its library are
// needed to build. HIP for NVIDIA takes this file too. backends/hip/platform/amd_compiler.cpp is the other one.
#include "ops/program/compiler.h"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "common/program_files.h"

namespace narrows::gpu {
namespace {

using Program = struct ProgramOpaque*;
struct Nvrtc {
  const char* (*error_string)(int);
  int (*version)(int*, int*);
  int (*num_architectures)(int*);
  int (*architectures)(int*);
  int (*create)(Program*, const char* text, const char* name, int, const char* const*, const char* const*);
  int (*compile)(Program, int count, const char* const* options);
  int (*code_size)(Program, size_t*);
  int (*code)(Program, char*);
  int (*ptx_size)(Program, size_t*);
  int (*ptx)(Program, char*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*destroy)(Program*);
  int major = 0, minor = 0;
  std::vector<int> known;  // architectures, 90 for sm_90
};

// Of the CUDA that the plugin was built with first: a newer compiler's code may need a newer driver.
constexpr const char* kNames[] = {CUDART_VERSION >= 13000 ? "libnvrtc.so.13" : "libnvrtc.so.12",
                                  CUDART_VERSION >= 13000 ? "libnvrtc.so.12" : "libnvrtc.so.13"};

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// The file that holds a loaded address, links resolved; "": not known.
std::string file_at(const void* address) {
  Dl_info info{};
  char real[PATH_MAX];
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr || realpath(info.dli_fname, real) == nullptr) return "";
  return real;
}
std::string folder_at(const void* address) { return folder_of(file_at(address)); }

// NVRTC opens its built-in headers' library by a bare name, which is found where one of that name is open already.
void open_builtins(const std::string& folder) {
  DIR* const all = opendir(folder.c_str());
  if (all == nullptr) return;
  while (const dirent* const entry = readdir(all)) {
    const std::string name = entry->d_name;
    if (name.rfind("libnvrtc-builtins.so.", 0) == 0) (void)dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  closedir(all);
}

// Where packages put it: pip's, beside this plugin's own; and CUDA's usual folder.
std::vector<std::string> usual_folders() {
  std::vector<std::string> out;
  static const char anchor = 0;
  for (std::string folder = folder_at(&anchor); !folder.empty(); folder = folder_of(folder)) {
    out.push_back(folder + "/nvidia/cu13/lib");
    out.push_back(folder + "/nvidia/cuda_nvrtc/lib");
    if (folder.find('/') == std::string::npos) break;
  }
  out.emplace_back("/usr/local/cuda/lib64");
  return out;
}

void* open_library(std::string* why) {
  const std::string named = environment("NARROWS_NVRTC");
  if (named == "0") {
    *why = "NARROWS_NVRTC is 0";
    return nullptr;
  }
  if (!named.empty()) {
    if (void* const file = dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL); file != nullptr) return file;
    *why = std::string("NARROWS_NVRTC: ") + dlerror();
    return nullptr;
  }
  for (const int only_loaded : {RTLD_NOLOAD, 0})
    for (const char* name : kNames)
      if (void* const file = dlopen(name, RTLD_NOW | RTLD_LOCAL | only_loaded); file != nullptr) return file;
  const char* const error = dlerror();
  *why = error == nullptr ? "it is not there" : error;
  for (const std::string& folder : usual_folders())
    for (const char* name : kNames)
      if (void* const file = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL); file != nullptr) return file;
  return nullptr;
}

template <class Function>
bool find(void* file, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(file, name));
  return *function != nullptr;
}

// nullptr: there is none, and `why` says so.
const Nvrtc* open_nvrtc(std::string* why) {
  void* const file = open_library(why);
  if (file == nullptr) return nullptr;
  auto& out = *new Nvrtc;
  const bool good = find(file, "nvrtcGetErrorString", &out.error_string) && find(file, "nvrtcVersion", &out.version) &&
                    find(file, "nvrtcGetNumSupportedArchs", &out.num_architectures) &&
                    find(file, "nvrtcGetSupportedArchs", &out.architectures) && find(file, "nvrtcCreateProgram", &out.create) &&
                    find(file, "nvrtcCompileProgram", &out.compile) && find(file, "nvrtcGetCUBINSize", &out.code_size) &&
                    find(file, "nvrtcGetCUBIN", &out.code) && find(file, "nvrtcGetPTXSize", &out.ptx_size) &&
                    find(file, "nvrtcGetPTX", &out.ptx) && find(file, "nvrtcGetProgramLogSize", &out.log_size) &&
                    find(file, "nvrtcGetProgramLog", &out.log) && find(file, "nvrtcDestroyProgram", &out.destroy);
  if (!good) {
    *why = "its NVRTC is older than 11.2";
    return nullptr;
  }
  open_builtins(folder_at(reinterpret_cast<const void*>(out.version)));
  int count = 0;
  if (out.version(&out.major, &out.minor) != 0 || out.num_architectures(&count) != 0 || count < 1) {
    *why = "it does not say what it compiles for";
    return nullptr;
  }
  out.known.resize(static_cast<size_t>(count));
  (void)out.architectures(out.known.data());
  return &out;
}

const Nvrtc& nvrtc() {
  static std::mutex& lock = *new std::mutex;
  static const Nvrtc* opened = nullptr;
  const std::lock_guard hold(lock);
  std::string why;
  if (opened == nullptr) opened = open_nvrtc(&why);
  if (opened == nullptr)
    refuse(NW_UNAVAILABLE, -1,
           "tensor programs need NVRTC, CUDA's run-time compiler, which could not be opened (%s); pip install nvidia-cuda-nvrtc%s",
           why.c_str(), CUDART_VERSION >= 13000 ? "" : "-cu12");
  return *opened;
}

void expect(int status, const char* doing) {
  if (status != 0) refuse(NW_FAILED, -1, "NVRTC: %s: %s", doing, nvrtc().error_string(status));
}

std::string log_of(Program program) {
  size_t size = 0;
  if (nvrtc().log_size(program, &size) != 0 || size == 0) return "";
  std::string out(size, '\0');
  (void)nvrtc().log(program, out.data());
  out.resize(std::min<size_t>(out.find('\0'), 600));
  return out;
}

}  // namespace

std::string compiler_identity() {
  const Nvrtc& found = nvrtc();
  return "NVRTC " + std::to_string(found.major) + "." + std::to_string(found.minor);
}

std::string compiler_description() { return compiler_identity() + ", " + file_at(reinterpret_cast<const void*>(nvrtc().version)); }

// wgmma is Hopper's alone, and sm_90a is the target that has it.
common::GpuLimits limits_for_programs(const Device& device, const std::string& target) {
  common::GpuLimits out;
  out.unit_lanes = unit_lanes(device.compute_capability);
  out.has_panels = out.unit_lanes != 0;
  out.copies_ahead = device.compute_capability >= 80;
  out.has_groups = target == "sm_90a";
  out.shared_bytes = std::max(out.shared_bytes, static_cast<int64_t>(device.shared_memory));
  return out;
}

// Code for the device where the compiler knows it, else an intermediate text for the newest one before it.
std::string compiler_target(const Device& device) {
  int best = 0;
  for (const int known : nvrtc().known)
    if (known <= device.compute_capability) best = std::max(best, known);
  if (best == 0) refuse(NW_UNSUPPORTED, -1, "this NVRTC compiles for no sm_%d", device.compute_capability);
  if (best != device.compute_capability) return "compute_" + std::to_string(best);
  return best == 90 ? "sm_90a" : "sm_" + std::to_string(best);
}

std::string compile_text(const std::string& text, const std::string& target) {
  const Nvrtc& compiler = nvrtc();
  Program program = nullptr;
  expect(compiler.create(&program, text.c_str(), "program.cu", 0, nullptr, nullptr), "taking a text");
  const std::string architecture = "--gpu-architecture=" + target;
  const char* const options[] = {architecture.c_str(), "--std=c++20", "--fmad=false", "--prec-div=true", "--prec-sqrt=true",
                                 "--ftz=false",        "-w"};
  const int status = compiler.compile(program, static_cast<int>(std::size(options)), options);
  std::string code;
  if (status == 0) {
    const bool is_code = target.rfind("sm_", 0) == 0;
    size_t size = 0;
    expect(is_code ? compiler.code_size(program, &size) : compiler.ptx_size(program, &size), "asking for the size of code");
    code.resize(size);
    expect(is_code ? compiler.code(program, code.data()) : compiler.ptx(program, code.data()), "asking for code");
  }
  const std::string log = status == 0 ? "" : log_of(program);
  (void)compiler.destroy(&program);
  if (status != 0)
    refuse(NW_FAILED, -1, "NVRTC %d.%d fails on a program's kernels (%s): %s", compiler.major, compiler.minor,
           compiler.error_string(status), log.c_str());
  return code;
}

}  // namespace narrows::gpu
