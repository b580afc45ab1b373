// SPDX-License-Identifier: Apache-2.0
// fixture.h -- what the tests of core stand on: folders of plugins, runtimes, tensors in plain memory, calls and their errors.
// It governs tests/core and tests/abi; only the public C API is used.
#pragma once

#include <narrows/narrows.h>
#include <narrows/plugin.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/probe.h"

namespace narrows::test {

// ---- files ----

// The path of a plugin that tests/core/CMakeLists.txt builds: "probe" -> .../narrows_probe.so
std::string plugin_file(const std::string& name);
std::vector<unsigned char> read_file(const std::string& path);
void write_file(const std::string& path, const std::vector<unsigned char>& bytes);

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Copies a test plugin into it; as: the file's name, else the one it was built with. Returns its path.
  std::string add(const std::string& plugin, const std::string& as = "") const;

 private:
  std::string path_;
};

// An environment variable for the length of a scope; nullptr: unset.
class Environment {
 public:
  Environment(const char* name, const char* value);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

// ---- errors ----

// An nw_error that starts as garbage, so that a test sees what was written.
struct Error : nw_error {
  Error();
  std::string text() const { return std::string(message, strnlen(message, sizeof message)); }
  bool untouched() const;
};

// The status came with that argument and a message that holds every word (in any case), and that fits its 496 bytes.
void expect_refused(int32_t status, const Error& error, int32_t expected, int32_t argument,
                    std::initializer_list<const char*> words);
bool contains(const std::string& text, const std::string& part);  // letters' case does not count

// ---- runtimes ----

struct Options {
  std::string path = {};  // plugin_path; "": none but the folder beside libnarrows
  uint32_t num_threads = 2;
  uint32_t plan_cache_capacity = 0;
};

class Runtime {
 public:
  explicit Runtime(const Options& options = {});
  explicit Runtime(const Folder& folder) : Runtime(Options{.path = folder.path()}) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  operator nw_runtime*() const { return rt_; }

  std::vector<nw_backend_info> backends() const;                   // in search order
  nw_backend_info backend_of_file(const std::string& path) const;  // fails the test if it is not listed, or listed twice
  std::vector<std::string> names() const;                          // of the backends with NW_OK and not shadowed
  Probe& probe(const char* backend = "probe") const;
  std::string log() const;  // "level message\n" for everything that was logged

 private:
  static void write_log(void* self, int32_t level, const char* message);
  nw_runtime* rt_ = nullptr;
  mutable std::mutex mutex_;
  std::string log_;
};

// A runtime and the test plugins that are loaded into it.
struct Loaded {
  Folder folder;
  std::unique_ptr<Runtime> runtime;
  explicit Loaded(std::initializer_list<const char*> plugins, Options options = {});
  operator nw_runtime*() const { return *runtime; }
  Probe& probe(const char* backend = "probe") const { return runtime->probe(backend); }
};

// ---- tensors and calls ----

inline constexpr DLDataType kF32{kDLFloat, 32, 1}, kF64{kDLFloat, 64, 1}, kF16{kDLFloat, 16, 1}, kI32{kDLInt, 32, 1},
    kI64{kDLInt, 64, 1}, kU8{kDLUInt, 8, 1}, kB8{kDLBool, 8, 1};
inline constexpr DLDevice kCpu{kDLCPU, 0}, kProbe{kDLExtDev, 0}, kNowhere{};
inline DLDevice probe_device(int32_t id) { return {kDLExtDev, id}; }

// A tensor over memory that others may share; 256-byte aligned, filled with 0x11.
class Array {
 public:
  explicit Array(std::vector<int64_t> shape, DLDevice device = kProbe, DLDataType dtype = kF32);
  // Another view of base's memory: strides in elements, offset in bytes as DLTensor.byte_offset.
  static Array view(const Array& base, std::vector<int64_t> shape, std::vector<int64_t> strides, uint64_t byte_offset = 0);
  DLTensor* operator->() { return &tensor; }
  const std::vector<unsigned char>& bytes() const { return *memory_; }
  bool pristine() const;  // all bytes are still 0x11
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(static_cast<char*>(tensor.data) + tensor.byte_offset);
  }

  Array(Array&& other) noexcept;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  DLTensor tensor{};
  std::vector<int64_t> shape, strides;  // strides empty: NULL

 private:
  Array() = default;
  void bind();
  std::shared_ptr<std::vector<unsigned char>> memory_;
};

// A call before it is made: bend `raw`, then run().
class Call {
 public:
  explicit Call(const char* op, std::vector<Array*> inputs = {}, std::vector<Array*> outputs = {});
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  template <class P>
  Call& params(const P& value) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
    return blob({bytes, bytes + sizeof value});
  }
  Call& blob(std::vector<unsigned char> bytes);
  int32_t run(nw_runtime* rt);
  int32_t infer(nw_runtime* rt, std::vector<nw_spec>& outputs);
  int32_t plan(nw_runtime* rt, nw_plan** out, nw_plan_info* info = nullptr);
  // run() gives NW_OK, and the error is not touched.
  void ok(nw_runtime* rt);
  // run() is refused so, and no output changed.
  void refused(nw_runtime* rt, int32_t status, int32_t argument, std::initializer_list<const char*> words);

  nw_call raw{};
  Error error;
  std::vector<const DLTensor*> inputs, outputs;

 private:
  std::vector<Array*> arrays_;
  std::vector<unsigned char> params_;
};

template <class Struct>
Struct sized() {
  Struct out{};
  out.struct_size = sizeof out;
  return out;
}

}  // namespace narrows::test
