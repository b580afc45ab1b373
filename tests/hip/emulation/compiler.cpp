// SPDX-License-Identifier: Apache-2.0
// compiler.cpp -- the emulation's hiprtc: the C++ compiler, which makes a shared object of a text. "Code" is that object's bytes
// behind a head that says how many there are.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "hip/hip_runtime.h"

namespace hip_emulation {
namespace {

constexpr char kHead[] = "emulated %020zu\n";
constexpr size_t kHeadSize = 30;

struct Program {
  std::string text, code, log;
};

enum Result { kGood = 0, kFailed = 6 };

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A folder that goes away with what is in it.
class Folder {
 public:
  Folder() {
    if (mkdtemp(path_) == nullptr) path_[0] = '\0';
  }
  ~Folder() {
    for (const char* name : {"/text.cpp", "/log", "/object.so"}) unlink((path_ + std::string(name)).c_str());
    rmdir(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return path_ + std::string(name); }

 private:
  char path_[64] = "/tmp/hip-emulation-XXXXXX";
};

const char* error_string(int error) { return error == kGood ? "no error" : "compilation failed"; }
int version(int* major, int* minor) {
  *major = 0;
  *minor = 1;
  return kGood;
}
int create(Program** program, const char* text, const char*, int, const char* const*, const char* const*) {
  *program = new Program{text, "", ""};
  return kGood;
}
int compile(Program* program, int, const char* const*) {
  const Folder folder;
  const std::string source = folder.file("/text.cpp"), object = folder.file("/object.so"), log = folder.file("/log");
  std::ofstream(source) << program->text;
  std::string command = EMULATION_COMPILER
      " -std=c++20 -shared -fPIC -O1 -w -fvisibility=hidden -fno-gnu-unique -fno-strict-aliasing -ffp-contract=off "
      "-include " EMULATION_FOLDER "/hip/compiled.h ";
  if (*EMULATION_SANITIZE != '\0')
    command += "-fsanitize=" EMULATION_SANITIZE " -fno-sanitize-recover=all -fno-sanitize=null,object-size,pointer-overflow ";
  command += "-o " + object + " " + source + " >" + log + " 2>&1";
  const int status = std::system(command.c_str());
  program->log = read_file(log);
  if (status != 0) return kFailed;
  const std::string bytes = read_file(object);
  char head[kHeadSize + 1];
  std::snprintf(head, sizeof(head), kHead, bytes.size());
  program->code = head + bytes;
  return kGood;
}
int code_size(Program* program, size_t* size) {
  *size = program->code.size();
  return kGood;
}
int code(Program* program, char* out) {
  program->code.copy(out, program->code.size());
  return kGood;
}
int log_size(Program* program, size_t* size) {
  *size = program->log.size() + 1;
  return kGood;
}
int read_log(Program* program, char* out) {
  std::memcpy(out, program->log.c_str(), program->log.size() + 1);
  return kGood;
}
int destroy(Program** program) {
  delete *program;
  *program = nullptr;
  return kGood;
}

struct Bindings {  // as in hip/compiled.h
  Position *thread, *block, *block_size, *grid_size;
  void (*barrier)();
};

}  // namespace
}  // namespace hip_emulation

using namespace hip_emulation;

void* hip_emulation_compiler(const char* name) {
  const struct {
    std::string_view name;
    void* function;
  } all[] = {
      {"hiprtcGetErrorString", reinterpret_cast<void*>(error_string)}, {"hiprtcVersion", reinterpret_cast<void*>(version)},
      {"hiprtcCreateProgram", reinterpret_cast<void*>(create)},        {"hiprtcCompileProgram", reinterpret_cast<void*>(compile)},
      {"hiprtcGetCodeSize", reinterpret_cast<void*>(code_size)},       {"hiprtcGetCode", reinterpret_cast<void*>(code)},
      {"hiprtcGetProgramLogSize", reinterpret_cast<void*>(log_size)},  {"hiprtcGetProgramLog", reinterpret_cast<void*>(read_log)},
      {"hiprtcDestroyProgram", reinterpret_cast<void*>(destroy)}};
  for (const auto& one : all)
    if (one.name == name) return one.function;
  return nullptr;
}

hipError_t hipModuleLoadData(hipModule_t* module, const void* data) {
  size_t size = 0;
  if (std::sscanf(static_cast<const char*>(data), "emulated %zu", &size) != 1) return hipErrorNoBinaryForGpu;
  const Folder folder;
  const std::string object = folder.file("/object.so");
  std::ofstream(object, std::ios::binary).write(static_cast<const char*>(data) + kHeadSize, static_cast<std::streamsize>(size));
  void* const loaded = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    std::fprintf(stderr, "hip emulation: %s\n", dlerror());
    return hipErrorNoBinaryForGpu;
  }
  const auto bind = reinterpret_cast<void (*)(const Bindings*)>(dlsym(loaded, "hip_emulation_bind"));
  const Bindings bindings{&thread_index, &block_index, &block_size, &grid_size, barrier};
  bind(&bindings);
  *module = reinterpret_cast<hipModule_t>(loaded);
  return hipSuccess;
}

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  *function = reinterpret_cast<hipFunction_t>(dlsym(module, name));
  return *function != nullptr ? hipSuccess : hipErrorNotFound;
}
