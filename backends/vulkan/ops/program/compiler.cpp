// SPDX-License-Identifier: Apache-2.0
// compiler.cpp -- see compiler.h. Its header is needed to build, its library only to run programs.
#include "ops/program/compiler.h"

#include <dlfcn.h>
#include <shaderc/shaderc.h>
#include <spirv/unified1/spirv.h>
#include <sys/stat.h>

#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "common/plugin.h"
#include "common/program_files.h"
#include "program_texts.h"

namespace narrows::vulkan {

using common::refuse;

namespace {

struct Shaderc {
  decltype(&shaderc_compiler_initialize) compiler_initialize;
  decltype(&shaderc_compile_options_initialize) options_initialize;
  decltype(&shaderc_compile_options_release) options_release;
  decltype(&shaderc_compile_options_set_target_env) set_target;
  decltype(&shaderc_compile_options_set_optimization_level) set_optimization;
  decltype(&shaderc_compile_options_set_suppress_warnings) suppress_warnings;
  decltype(&shaderc_compile_options_set_include_callbacks) set_includes;
  decltype(&shaderc_compile_into_spv) compile;
  decltype(&shaderc_result_release) release;
  decltype(&shaderc_result_get_compilation_status) status;
  decltype(&shaderc_result_get_length) length;
  decltype(&shaderc_result_get_bytes) bytes;
  decltype(&shaderc_result_get_error_message) message;
  decltype(&shaderc_get_spv_version) spv_version;
  shaderc_compiler_t compiler;
  std::string file;
};

// Debian's name, and that of the Vulkan SDK; then the one that the build made where the distribution's cannot be opened
// (shaderc.cmake).
constexpr const char* kNames[] = {"libshaderc.so.1", "libshaderc_shared.so.1"};
constexpr const char* kOwnName = "libnarrows_shaderc.so";

std::string path_of(const void* address) {
  Dl_info info{};
  char real[PATH_MAX];
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr || realpath(info.dli_fname, real) == nullptr) return "";
  return real;
}
std::string own_folder() {
  static const char anchor = 0;
  const std::string path = path_of(&anchor);
  return path.substr(0, path.rfind('/') + 1);
}

void* open_library(std::string* why) {
  const std::string named = common::environment("NARROWS_SHADERC");
  if (named == "0") {
    *why = "NARROWS_SHADERC is 0";
    return nullptr;
  }
  if (!named.empty()) {
    if (void* const file = dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL); file != nullptr) return file;
    *why = std::string("NARROWS_SHADERC: ") + dlerror();
    return nullptr;
  }
  for (const char* name : kNames) {
    if (void* const file = dlopen(name, RTLD_NOW | RTLD_LOCAL); file != nullptr) return file;
    const char* const error = dlerror();
    if (why->empty() && error != nullptr) *why = error;
  }
  return dlopen((own_folder() + kOwnName).c_str(), RTLD_NOW | RTLD_LOCAL);
}

// The library of the build has shaderc's functions behind one of its own.
void* symbol(void* file, const char* name) {
  if (void* const own = dlsym(file, "narrows_shaderc_function"); own != nullptr)
    return reinterpret_cast<void* (*)(const char*)>(own)(name);
  return dlsym(file, name);
}
template <class Function>
bool find(void* file, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(symbol(file, name));
  return *function != nullptr;
}

const Shaderc* open_shaderc(std::string* why) {
  void* const file = open_library(why);
  if (file == nullptr) return nullptr;
  auto& out = *new Shaderc;
  const bool good = find(file, "shaderc_compiler_initialize", &out.compiler_initialize) &&
                    find(file, "shaderc_compile_options_initialize", &out.options_initialize) &&
                    find(file, "shaderc_compile_options_release", &out.options_release) &&
                    find(file, "shaderc_compile_options_set_target_env", &out.set_target) &&
                    find(file, "shaderc_compile_options_set_optimization_level", &out.set_optimization) &&
                    find(file, "shaderc_compile_options_set_suppress_warnings", &out.suppress_warnings) &&
                    find(file, "shaderc_compile_options_set_include_callbacks", &out.set_includes) &&
                    find(file, "shaderc_compile_into_spv", &out.compile) && find(file, "shaderc_result_release", &out.release) &&
                    find(file, "shaderc_result_get_compilation_status", &out.status) &&
                    find(file, "shaderc_result_get_length", &out.length) && find(file, "shaderc_result_get_bytes", &out.bytes) &&
                    find(file, "shaderc_result_get_error_message", &out.message) &&
                    find(file, "shaderc_get_spv_version", &out.spv_version);
  if (!good) {
    *why = "it lacks a function of shaderc 2023.2";
    return nullptr;
  }
  out.compiler = out.compiler_initialize();
  if (out.compiler == nullptr) {
    *why = "it does not start";
    return nullptr;
  }
  out.file = path_of(reinterpret_cast<const void*>(out.compile));
  return &out;
}

const Shaderc& shaderc() {
  static std::mutex& lock = *new std::mutex;
  static const Shaderc* opened = nullptr;
  const std::lock_guard hold(lock);
  std::string why;
  if (opened == nullptr) opened = open_shaderc(&why);
  if (opened == nullptr)
    refuse(NW_UNAVAILABLE, -1,
           "tensor programs need shaderc, the shader compiler, which could not be opened (%s); apt-get install libshaderc1. "
           "Debian 12's cannot be loaded: there, build the vulkan backend with libshaderc-dev and glslang-dev",
           why.c_str());
  return *opened;
}

// ---- what shaders include ----

shaderc_include_result* found(std::string_view name, std::string_view text) {
  return new shaderc_include_result{name.data(), name.size(), text.data(), text.size(), nullptr};
}
shaderc_include_result* include(void*, const char* wanted, int, const char*, size_t) {
  const std::string_view name = wanted;
  for (const IncludedText& one : kIncluded)
    if (one.name == name) return found(one.name, one.text);
  for (const IncludedText& one : kIncluded)  // by a file beside it
    if (one.name.size() > name.size() && one.name.substr(one.name.size() - name.size() - 1) == "/" + std::string(name))
      return found(one.name, one.text);
  return found("", "it is not there");  // an empty name says that there is none
}

std::string digest_of_included() {
  std::string all;
  for (const IncludedText& one : kIncluded) all.append(one.name).append("\n").append(one.text);
  return common::hex_digest(all);
}

// glslang keeps one width of each execution mode: of a module with f64 the float controls of f32 are missing. They are added.
std::string with_both_widths(const std::string& code) {
  constexpr size_t kHeader = 5;
  std::vector<uint32_t> words(code.size() / sizeof(uint32_t)), out;
  std::memcpy(words.data(), code.data(), code.size());
  for (size_t i = 0; i < words.size();) {
    const size_t count = i == 0 ? kHeader : words[i] >> 16;
    out.insert(out.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.begin() + static_cast<std::ptrdiff_t>(i + count));
    const bool is_mode = i != 0 && (words[i] & 0xffff) == SpvOpExecutionMode && count == 4;
    if (is_mode && words[i + 2] >= SpvExecutionModeDenormPreserve && words[i + 2] <= SpvExecutionModeRoundingModeRTZ &&
        words[i + 3] == 64)
      out.insert(out.end(), {words[i], words[i + 1], words[i + 2], 32});
    i += count;
  }
  return {reinterpret_cast<const char*>(out.data()), out.size() * sizeof(uint32_t)};
}

// The SPIR-V of a text, or what is wrong with it.
struct Compiled {
  bool good;
  std::string out;
};
// Not optimized: a driver does that, and inlining all functions into one another first makes modules several times as large.
Compiled compile(const Shaderc& compiler, const std::string& text) {
  shaderc_compile_options_t options = compiler.options_initialize();
  compiler.set_target(options, shaderc_target_env_vulkan, shaderc_env_version_vulkan_1_2);
  compiler.set_optimization(options, shaderc_optimization_level_zero);
  compiler.suppress_warnings(options);
  compiler.set_includes(options, include, [](void*, shaderc_include_result* result) { delete result; }, nullptr);
  shaderc_compilation_result_t result =
      compiler.compile(compiler.compiler, text.data(), text.size(), shaderc_compute_shader, "program.comp", "main", options);
  compiler.options_release(options);
  Compiled out{compiler.status(result) == shaderc_compilation_status_success, ""};
  out.out = out.good ? std::string(compiler.bytes(result), compiler.length(result)) : compiler.message(result);
  compiler.release(result);
  return out;
}

}  // namespace

std::string compiler_identity() {
  const Shaderc& compiler = shaderc();
  static const std::string& included = *new std::string(digest_of_included());
  struct stat info{};
  (void)stat(compiler.file.c_str(), &info);
  return compiler.file + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_mtime) + " " + included;
}

std::string compiler_description() {
  const Shaderc& compiler = shaderc();
  unsigned version = 0, revision = 0;
  compiler.spv_version(&version, &revision);
  return "shaderc for SPIR-V " + std::to_string(version >> 16 & 0xff) + "." + std::to_string(version >> 8 & 0xff) + " revision " +
         std::to_string(revision) + ", " + compiler.file;
}

bool compiler_knows(const std::string& extension) {
  static std::mutex& lock = *new std::mutex;
  static auto& tried = *new std::map<std::string, bool>;
  const Shaderc* compiler = nullptr;
  try {
    compiler = &shaderc();
  } catch (const common::Refusal&) {
    return false;
  }
  const std::lock_guard hold(lock);
  const auto [entry, is_new] = tried.emplace(extension, false);
  if (is_new) entry->second = compile(*compiler, "#version 460\n#extension " + extension + " : require\nvoid main() {}\n").good;
  return entry->second;
}

std::string compile_glsl(const std::string& text) {
  const Compiled made = compile(shaderc(), text);
  if (!made.good)
    refuse(NW_FAILED, -1, "%s fails on a program's kernel: %s", compiler_description().c_str(), made.out.substr(0, 600).c_str());
  return with_both_widths(made.out);
}

}  // namespace narrows::vulkan
