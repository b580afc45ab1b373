// SPDX-License-Identifier: Apache-2.0
// cpu_plugin.h -- a backend's plugin that serves programs, or one that the cpu backend exported, by itself, with a host of the
// test's own: programs are planned and launched through its table. Tensors are numbers in double beside their bytes; where the
// plugin is not the CPU's, each call copies them to its device and back.
#pragma once

#include <dlfcn.h>
#include <narrows/ops.h>
#include <narrows/plugin.h>
#include <narrows/program.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/dtype.h"

// ---- the host ----

inline thread_local int64_t loops_on_threads = 0;  // of this thread: those that were given to more than one
inline void run_threads(void*, int64_t n, int64_t, void (*body)(void*, int64_t, int64_t), void* arg) {
  if (n > 1) ++loops_on_threads;
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < n; ++i) threads.emplace_back([=] { body(arg, i, i + 1); });
  if (n > 0) body(arg, 0, 1);
  for (std::thread& thread : threads) thread.join();
}
inline const nw_host kHost = {sizeof(nw_host),
                              2,
                              nullptr,
                              [](void*, int32_t, const char*) {},
                              run_threads,
                              [](void*) { return 2U; },
                              [](void*, const char*, const char*) -> const void* { return nullptr; }};

class Plugin {
 public:
  explicit Plugin(const char* path = nullptr) : table_(table(path)) {
    nw_error error{};
    if (table_->create(&kHost, &self_, &error) != NW_OK) throw std::runtime_error(error.message);
  }
  static int32_t status(nw_error* error) {
    void* self = nullptr;
    const int32_t made = table(nullptr)->create(&kHost, &self, error);
    if (made == NW_OK) table(nullptr)->destroy(self);
    return made;
  }
  static bool is_usable(nw_error* error) { return status(error) == NW_OK; }
  ~Plugin() { table_->destroy(self_); }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // `text`: the program, or the name of an op of an exported plugin.
  int32_t plan(const std::string& text, const nw_sig& sig, void** out, nw_plan_info* info, nw_error* error) const {
    if (text.find('\n') == std::string::npos) {
      nw_sig named = sig;
      named.op = text.c_str();
      return table_->plan(self_, &named, out, info, error);
    }
    const nw_program_text program = {sizeof(program), 0, text.c_str(), nullptr};
    return table_->plan_program(self_, &program, &sig, out, info, error);
  }
  int32_t launch(const void* plan, const nw_call& call, nw_error* error) const { return table_->launch(self_, plan, &call, error); }
  void free(void* plan) const { table_->plan_free(self_, plan); }
  bool is_of_cpu() const { return table_->device_type == kDLCPU; }
  DLDevice device() const { return {static_cast<DLDeviceType>(table_->device_type), 0}; }
  void* alloc(uint64_t size) const {
    void* data = nullptr;
    nw_error error{};
    if (table_->alloc(self_, 0, size, nullptr, &data, &error) != NW_OK) throw std::runtime_error(error.message);
    return data;
  }
  void free_memory(void* data) const { (void)table_->free(self_, 0, data, nullptr, nullptr); }
  void copy(DLDevice to, void* target, DLDevice from, const void* source, uint64_t size) const {
    nw_error error{};
    if (table_->copy(self_, to, target, from, source, size, nullptr, &error) != NW_OK) throw std::runtime_error(error.message);
  }
  // What the plugin makes of a program, for a reader.
  std::string source(const std::string& text) const {
    const auto* extension = static_cast<const nw_program_source*>(table_->extension(self_, "program_source/1"));
    if (extension == nullptr) throw std::runtime_error("it has no source");
    nw_error error{};
    uint64_t size = 0;
    if (extension->source(extension->self, text.c_str(), nullptr, 0, &size, &error) != NW_OK)
      throw std::runtime_error(error.message);
    std::string out(size, '\0');
    if (extension->source(extension->self, text.c_str(), out.data(), size, &size, &error) != NW_OK)
      throw std::runtime_error(error.message);
    out.resize(size - 1);
    return out;
  }
  const nw_op& op(uint32_t i) const { return *table_->ops[i]; }
  int32_t export_to(const std::string& path, const std::vector<std::string>& texts, const char* op, nw_error* error) const {
    const auto* exporter = static_cast<const nw_program_exporter*>(table_->extension(self_, "program_export/1"));
    if (exporter == nullptr) throw std::runtime_error("it exports nothing");
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    return exporter->write(exporter->self, pointers.data(), static_cast<uint32_t>(texts.size()), op, path.c_str(), error);
  }

 private:
  static const nw_plugin* table(const char* path) {
    // A spoilt plugin in its place: see mutants.
    static const char* const spoilt = std::getenv("NARROWS_TEST_CPU_PLUGIN");
    void* const library = dlopen(path != nullptr ? path : spoilt != nullptr ? spoilt : PROGRAM_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    nw_error error{};
    return reinterpret_cast<nw_plugin_query_fn>(dlsym(library, NW_PLUGIN_QUERY))(NW_ABI_MAJOR, &error);
  }

  const nw_plugin* table_;
  void* self_ = nullptr;
};

// ---- tensors ----

using narrows::test::DType;

// Elements anywhere in `bytes`: `step` stretches the strides of a dense tensor, a negative one walks backwards; `shift` moves the
// first element off its alignment.
struct Tensor {
  static constexpr unsigned char kUntouched = 0xAB;
  DType dtype = DType::f32;
  std::vector<int64_t> shape, strides;  // in elements
  std::vector<unsigned char> bytes;
  int64_t first = 0;  // bytes to the first element
  bool absent = false;
  unsigned char* outside = nullptr;  // where the first element lies, if not in `bytes`

  Tensor() = default;
  Tensor(DType type, std::vector<int64_t> extents, int64_t step = 1, int64_t shift = 0) : dtype(type), shape(std::move(extents)) {
    const int64_t size = narrows::test::item_size(type);
    strides.resize(shape.size());
    int64_t next = step, low = 0, high = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      strides[d] = next;
      next *= std::max<int64_t>(shape[d], 1);
      (next < 0 ? low : high) += std::max<int64_t>(shape[d] - 1, 0) * strides[d];
    }
    bytes.assign(static_cast<size_t>((high - low + 1) * size + shift + 64), kUntouched);
    first = 32 / size * size - low * size + shift;
  }

  int64_t elements() const {
    int64_t out = 1;
    for (const int64_t extent : shape) out *= extent;
    return out;
  }
  unsigned char* begin() { return outside != nullptr ? outside : bytes.data() + first; }
  // Whether no byte between, before or behind the elements was written.
  bool is_clean_outside() {
    if (outside != nullptr) return true;
    std::vector<unsigned char> rest = bytes;
    const int64_t size = narrows::test::item_size(dtype);
    for (int64_t i = 0; i < elements(); ++i) std::fill_n(rest.begin() + (at(i) - bytes.data()), size, kUntouched);
    return std::all_of(rest.begin(), rest.end(), [](unsigned char byte) { return byte == kUntouched; });
  }
  unsigned char* at(int64_t index) {  // of the elements in row-major order
    int64_t offset = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      offset += index % shape[d] * strides[d];
      index /= shape[d];
    }
    return begin() + offset * narrows::test::item_size(dtype);
  }
  double get(int64_t index) { return static_cast<double>(narrows::test::load(dtype, at(index))); }
  narrows::test::Exact exact(int64_t index) { return narrows::test::load(dtype, at(index)); }
  void set(int64_t index, narrows::test::Exact value) { narrows::test::store(dtype, value, at(index)); }

  Tensor& fill(unsigned seed, double low = -2, double high = 2) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < elements(); ++i) {
      const double x = low + (high - low) * static_cast<double>(random()) / 4294967296.0;
      if (dtype == DType::boolean)
        set(i, x > 0 ? 1 : 0);
      else
        set(i, narrows::test::is_float(dtype) ? static_cast<double>(narrows::test::rounded(dtype, x))
                                              : std::floor(narrows::test::is_signed_int(dtype) ? x : std::fabs(x)));
    }
    return *this;
  }

  DLTensor view(DLDevice device, unsigned char* copy) {  // of its bytes on a device
    DLTensor out = view();
    out.device = device;
    out.data = copy;
    return out;
  }
  DLTensor view() {
    return {outside != nullptr ? outside : bytes.data(),
            {kDLCPU, 0},
            static_cast<int32_t>(shape.size()),
            narrows::test::dl_dtype(dtype),
            shape.data(),
            strides.data(),
            outside != nullptr ? 0 : static_cast<uint64_t>(first)};
  }
  nw_tensor_sig signature() {
    if (absent) return {{0, 0, 0}, -1, 0, 0, -1, nullptr, nullptr};
    const auto address = reinterpret_cast<uintptr_t>(begin());
    const uint16_t align = elements() == 0 ? 8 : static_cast<uint16_t>(std::min(8, __builtin_ctzll(address | 256)));
    return {narrows::test::dl_dtype(dtype), static_cast<int32_t>(shape.size()), align, 0, -1, shape.data(), strides.data()};
  }
};

// ---- a call ----

struct Param {
  double real = 0;
  int64_t integer = 0;
  bool is_real = false;
};

// A copy of bytes on the plugin's device, which may lie on the CPU's: then it is what it is a copy of.
class OnDevice {
 public:
  OnDevice(const Plugin& plugin, unsigned char* bytes, uint64_t size) : plugin_(plugin), host_(bytes), size_(size), data_(bytes) {
    if (plugin.is_of_cpu()) return;
    data_ = static_cast<unsigned char*>(plugin.alloc(size));
    plugin.copy(plugin.device(), data_, {kDLCPU, 0}, host_, size_);
  }
  ~OnDevice() {
    if (data_ != host_) plugin_.free_memory(data_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  unsigned char* data() const { return data_; }
  void copy_back() const {
    if (data_ != host_) plugin_.copy({kDLCPU, 0}, host_, plugin_.device(), data_, size_);
  }

 private:
  const Plugin& plugin_;
  unsigned char* const host_;
  const uint64_t size_;
  unsigned char* data_;
};

// Aligned to 256 bytes, with bytes of a pattern in front of it and behind it.
class Workspace {
 public:
  explicit Workspace(uint64_t size)
      : size_(size), memory_(static_cast<unsigned char*>(std::aligned_alloc(kGuard, (size + 3 * kGuard - 1) / kGuard * kGuard))) {
    std::memset(memory_, 0xA5, kGuard);
    std::memset(data(), 0xCD, size);
    std::memset(data() + size, 0xA5, kGuard);
  }
  ~Workspace() { std::free(memory_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  unsigned char* data() const { return memory_ + kGuard; }
  unsigned char* begin() const { return memory_; }
  uint64_t whole() const { return size_ + 2 * kGuard; }
  bool is_clean_outside() const {
    const auto is_clean = [](const unsigned char* guard) {
      return std::all_of(guard, guard + kGuard, [](unsigned char byte) { return byte == 0xA5; });
    };
    return is_clean(memory_) && is_clean(data() + size_);
  }

 private:
  static constexpr uint64_t kGuard = 256;
  uint64_t size_;
  unsigned char* memory_;
};

struct Answer {
  int32_t status = NW_OK;
  std::string message, kernel;
  int32_t argument = -1;  // of an error
  uint64_t workspace = 0;
  explicit operator bool() const { return status == NW_OK; }
};

struct Call {
  const Plugin& plugin;
  std::string text;
  std::vector<Tensor*> inputs, outputs;
  const char* kernel = nullptr;
  std::vector<Param> params = {};
  int alias_of = -1;  // of output 0
  int launches = 1;

  Answer run() const { return perform(false); }
  // Whether the plugin would run it, and by which kernel.
  Answer ask() const { return perform(true); }

 private:
  Answer perform(bool asks) const {
    std::vector<nw_tensor_sig> sigs;
    std::vector<DLTensor> views(inputs.size() + outputs.size());
    std::vector<const DLTensor*> in, out;
    std::map<Tensor*, std::unique_ptr<OnDevice>> copies;
    for (size_t i = 0; i < views.size(); ++i) {
      Tensor& tensor = i < inputs.size() ? *inputs[i] : *outputs[i - inputs.size()];
      sigs.push_back(tensor.signature());
      views[i] = tensor.view();
      if (!plugin.is_of_cpu() && !tensor.absent) {
        std::unique_ptr<OnDevice>& copy = copies[&tensor];
        if (copy == nullptr) copy = std::make_unique<OnDevice>(plugin, tensor.bytes.data(), tensor.bytes.size());
        views[i] = tensor.view(plugin.device(), copy->data());
        const auto address = reinterpret_cast<uintptr_t>(copy->data()) + static_cast<uintptr_t>(tensor.first);
        sigs.back().align_log2 = static_cast<uint16_t>(std::min(8, __builtin_ctzll(address | 256)));
      }
      (i < inputs.size() ? in : out).push_back(tensor.absent ? nullptr : &views[i]);
    }
    if (!outputs.empty()) sigs[inputs.size()].alias_of = alias_of;
    std::vector<unsigned char> blob(params.size() * 8);
    for (size_t i = 0; i < params.size(); ++i)
      std::memcpy(&blob[8 * i], params[i].is_real ? static_cast<const void*>(&params[i].real) : &params[i].integer, 8);
    const nw_sig sig = {sizeof(nw_sig),
                        0,
                        static_cast<uint32_t>(in.size()),
                        static_cast<uint32_t>(out.size()),
                        "program.test",
                        kernel,
                        sigs.data(),
                        blob.data(),
                        blob.size(),
                        plugin.device()};
    nw_plan_info info{};
    info.struct_size = sizeof(info);
    nw_error error{};
    void* plan = nullptr;
    if (const int32_t status = plugin.plan(text, sig, asks ? nullptr : &plan, &info, &error); status != NW_OK)
      return {status, error.message, "", error.argument};
    if (asks) return {NW_OK, "", info.kernel == nullptr ? "" : info.kernel};
    Workspace workspace(info.workspace_size);
    nw_call call{};
    call.struct_size = sizeof(call);
    call.num_inputs = sig.num_inputs;
    call.num_outputs = sig.num_outputs;
    call.inputs = in.data();
    call.outputs = out.data();
    const OnDevice memory(plugin, workspace.begin(), workspace.whole());
    call.workspace = memory.data() + (workspace.data() - workspace.begin());
    call.workspace_size = info.workspace_size;
    Answer answer{NW_OK, "", info.kernel == nullptr ? "" : info.kernel, -1, info.workspace_size};
    for (int i = 0; i < launches && answer; ++i) answer.status = plugin.launch(plan, call, &error);
    if (!answer) answer.message = error.message, answer.argument = error.argument;
    if (answer) {
      memory.copy_back();
      for (const auto& [tensor, copy] : copies) copy->copy_back();
    }
    if (!workspace.is_clean_outside()) answer = {NW_FAILED, "the kernel wrote beside its workspace", answer.kernel};
    plugin.free(plan);
    return answer;
  }
};
