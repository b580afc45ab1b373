// SPDX-License-Identifier: Apache-2.0
// plugin_table.cpp -- see plugin_table.h.
#include "plugin_table.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "support/floating_point.h"
#include "support/session.h"

namespace narrows::test {
namespace {

using Body = void (*)(void* arg, int64_t begin, int64_t end);
constexpr DLDevice kHostMemory{kDLCPU, 0};
constexpr uint32_t kThreads = 3;

void quiet(void*, int32_t, const char*) {}

std::atomic<int> modes_changed{0};

void run_piece(Body body, void* arg, int64_t begin, int64_t end) {
  const FloatingPointMode mode;
  body(arg, begin, end);
  if (!mode.change().empty()) ++modes_changed;
}

void run_pieces(int64_t n, int64_t grain, bool backwards, Body body, void* arg) {
  const int64_t pieces = (n + grain - 1) / grain;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = (backwards ? pieces - 1 - i : i) * grain;
    run_piece(body, arg, begin, std::min(begin + grain, n));
  }
}

void run_threads(int64_t n, int64_t grain, Body body, void* arg) {
  const int64_t step = std::max<int64_t>(grain, (n + kThreads - 1) / kThreads);
  std::vector<std::thread> threads;
  for (int64_t begin = 0; begin < n; begin += step) threads.emplace_back(run_piece, body, arg, begin, std::min(begin + step, n));
  for (std::thread& thread : threads) thread.join();
}

void parallel_for(void* ctx, int64_t n, int64_t grain, Body body, void* arg) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  switch (*static_cast<const Cut*>(ctx)) {
    case Cut::whole: return run_piece(body, arg, 0, n);
    case Cut::pieces: return run_pieces(n, grain, false, body, arg);
    case Cut::backwards: return run_pieces(n, grain, true, body, arg);
    case Cut::threads: return run_threads(n, grain, body, arg);
  }
}

uint32_t usable_threads(void* ctx) { return *static_cast<const Cut*>(ctx) == Cut::whole ? 1 : kThreads; }

// Of the plugins that the session has: a plugin may be one of another one's devices.
const void* extension(void*, const char* backend, const char* name) { return nw_extension(runtime(), backend, name); }

// Strides in elements as nw_tensor_sig has them: canonical where an extent is 0 or 1.
std::vector<int64_t> strides_for(const TensorSpec& spec, int64_t step) {
  std::vector<int64_t> strides(spec.shape.size());
  int64_t contiguous = 1, apart = 1;
  for (size_t axis = strides.size(); axis-- > 0;) {
    const int64_t extent = spec.shape[axis];
    strides[axis] = extent > 1 && spec.size() != 0 ? step * apart : contiguous;
    contiguous *= extent;
    apart *= std::max<int64_t>(extent, 1) * std::abs(step);
  }
  return strides;
}

void require_ok(int32_t status, const nw_error& error, const char* slot) {
  if (status != NW_OK) throw std::runtime_error(std::string(slot) + ": " + nw_status_name(status) + ": " + error.message);
}

}  // namespace

// ---- the table ----

nw_plugin_query_fn tested_query() {
  static const nw_plugin_query_fn query = [] {
    const std::string path = tested().path;
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const symbol = library == nullptr ? nullptr : dlsym(library, NW_PLUGIN_QUERY);
    if (symbol == nullptr) throw std::runtime_error(path + ": no " + NW_PLUGIN_QUERY);
    return reinterpret_cast<nw_plugin_query_fn>(symbol);
  }();
  return query;
}

const nw_plugin& tested_table() {
  static const nw_plugin* const table = tested_query()(NW_ABI_MAJOR, nullptr);
  if (table == nullptr) throw std::runtime_error("the query gives NULL, and the host has loaded this plugin");
  return *table;
}

// ---- errors ----

WatchedError::WatchedError() { std::memset(&error, 0xA7, sizeof error); }
bool WatchedError::untouched() const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&error);
  return std::all_of(bytes, bytes + sizeof error, [](unsigned char byte) { return byte == 0xA7; });
}

std::string WatchedError::message() const {
  return untouched() ? "" : std::string(error.message, strnlen(error.message, sizeof error.message));
}

std::string refusal_fault(int32_t got, const nw_error& error, int32_t expected) {
  if (got == NW_OK) return "it was accepted";
  if (expected != 0 && got != expected)
    return std::string("status ") + nw_status_name(got) + ", expected " + nw_status_name(expected);
  if (got < NW_OK || got > NW_NOT_CAPTURABLE)
    return "status " + std::to_string(got) + "; expected 1 to 5, by which nothing was done";
  if (error.status != got) return "error.status is " + std::to_string(error.status) + ", the slot returned " + std::to_string(got);
  if (std::memchr(error.message, '\0', sizeof error.message) == nullptr) return "the message has no end";
  if (error.message[0] == '\0') return "the message is empty";
  return {};
}

// ---- an instance ----

Instance::Instance(Cut cut, size_t tail) : cut_(cut) {
  const nw_host host{.struct_size = sizeof(nw_host),
                     .num_threads = cut == Cut::whole ? 1 : kThreads,
                     .ctx = &cut_,
                     .log = quiet,
                     .parallel_for = parallel_for,
                     .usable_threads = usable_threads,
                     .extension = extension};
  host_ = std::make_unique<Sized<nw_host>>(host, sizeof host + tail, 0xA5);
  nw_error error{};
  require_ok(tested_table().create(host_->get(), &self_, &error), error, "create");
}
Instance::~Instance() {
  if (tested_table().destroy != nullptr) tested_table().destroy(self_);
}

// ---- a signature ----

Signature::Signature(const Sample& sample, Look look, size_t tail, bool with_outputs) : op_(sample.op->name) {
  std::vector<TensorSpec> specs = sample.inputs;
  while (!specs.empty() && !specs.back().present) specs.pop_back();  // as the host does
  const auto num_inputs = static_cast<uint32_t>(specs.size());
  if (with_outputs) specs.insert(specs.end(), sample.outputs.begin(), sample.outputs.end());
  for (const TensorSpec& spec : specs) {
    shapes_.push_back(spec.shape);
    strides_.push_back(strides_for(spec, look.step));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    nw_tensor_sig t{};
    t.ndim = -1;
    if (specs[i].present) {
      t = {dl_dtype(specs[i].dtype), static_cast<int32_t>(shapes_[i].size()), 8, 0, -1, shapes_[i].data(), strides_[i].data()};
      if (specs[i].size() != 0) t.align_log2 = look.align_log2;
    }
    tensors_.push_back(t);
  }
  const nw_sig sig{.struct_size = sizeof(nw_sig),
                   .flags = 0,
                   .num_inputs = num_inputs,
                   .num_outputs = with_outputs ? static_cast<uint32_t>(sample.outputs.size()) : 0,
                   .op = op_.c_str(),
                   .kernel = nullptr,
                   .tensors = tensors_.data(),
                   .params = nullptr,
                   .params_size = 0,
                   .device = device()};
  sig_ = std::make_unique<Sized<nw_sig>>(sig, sizeof sig + tail, 0xA5);
  set_params(sample.params);
}

void Signature::set_params(std::vector<unsigned char> blob) {
  while (!blob.empty() && blob.back() == 0) blob.pop_back();
  params_ = std::move(blob);
  get()->params = params_.empty() ? nullptr : params_.data();
  get()->params_size = params_.size();
}

void* plan_or_fail(const Instance& instance, Signature& signature, nw_plan_info* info) {
  *info = {};
  info->struct_size = sizeof *info;
  nw_error error{};
  void* plan = nullptr;
  const FloatingPointMode mode;
  require_ok(tested_table().plan(instance.self(), signature.get(), &plan, info, &error), error, "plan");
  if (const std::string change = mode.change(); !change.empty()) throw std::runtime_error("plan: " + change);
  return plan;
}

// ---- a call ----

struct DirectRun::Memory {
  Memory(void* self, std::vector<unsigned char> host, const TensorSpec& spec)
      : self(self), bytes(std::move(host)), shape(spec.shape), strides(strides_for(spec, 1)) {
    nw_error error{};
    const nw_plugin& table = tested_table();
    require_ok(table.alloc(self, device().device_id, bytes.size(), nullptr, &data, &error), error, "alloc");
    dl = {data, device(), static_cast<int32_t>(shape.size()), dl_dtype(spec.dtype), shape.data(), strides.data(), 0};
  }
  ~Memory() { tested_table().free(self, device().device_id, data, nullptr, nullptr); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void write() {
    if (bytes.empty()) return;
    nw_error error{};
    require_ok(tested_table().copy(self, device(), data, kHostMemory, bytes.data(), bytes.size(), nullptr, &error), error, "copy");
  }
  std::vector<unsigned char> read() const {
    std::vector<unsigned char> out(bytes.size());
    if (bytes.empty()) return out;
    nw_error error{};
    require_ok(tested_table().copy(self, kHostMemory, out.data(), device(), data, out.size(), nullptr, &error), error, "copy");
    return out;
  }
  void* self;
  std::vector<unsigned char> bytes;  // what is put there
  std::vector<int64_t> shape, strides;
  void* data = nullptr;
  DLTensor dl{};
};

DirectRun::DirectRun(const Instance& instance, const Sample& sample) : instance_(instance), sample_(sample) {
  Rng rng("direct");
  std::vector<TensorSpec> inputs = sample.inputs;
  while (!inputs.empty() && !inputs.back().present) inputs.pop_back();
  for (const TensorSpec& spec : inputs) add(spec, rng, &inputs_);
  for (const TensorSpec& spec : sample.outputs) add(spec, rng, &outputs_);
}
DirectRun::~DirectRun() = default;

void DirectRun::add(const TensorSpec& spec, Rng& rng, std::vector<const DLTensor*>* to) {
  to->push_back(nullptr);
  if (!spec.present) return;
  const auto item = static_cast<size_t>(item_size(spec.dtype));
  std::vector<unsigned char> bytes(static_cast<size_t>(spec.size()) * item);
  for (size_t i = 0; i < bytes.size(); i += item) store(spec.dtype, sample_value(spec.dtype, rng), bytes.data() + i);
  if (to == &outputs_) std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0xC3));
  memory_.push_back(std::make_unique<Memory>(instance_.self(), std::move(bytes), spec));
  memory_.back()->write();
  to->back() = &memory_.back()->dl;
}

std::vector<unsigned char> DirectRun::launch(const void* plan, const nw_plan_info& info, size_t tail) {
  return launch(info, [&](const nw_call& call) {
    nw_error error{};
    Sized<nw_call> sized(call, sizeof call + tail, 0);
    require_ok(tested_table().launch(instance_.self(), plan, sized.get(), &error), error, "launch");
  });
}

std::vector<unsigned char> DirectRun::launch(const nw_plan_info& info, const std::function<void(const nw_call&)>& launch) {
  const nw_plugin& table = tested_table();
  nw_error error{};
  for (const auto& m : memory_) m->write();
  Memory workspace(instance_.self(), std::vector<unsigned char>(info.workspace_size, 0xA9),
                   {true, DType::u8, {static_cast<int64_t>(info.workspace_size)}});
  workspace.write();
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = sample_.op->name;
  call.num_inputs = static_cast<uint32_t>(inputs_.size());
  call.num_outputs = static_cast<uint32_t>(outputs_.size());
  call.inputs = inputs_.data();
  call.outputs = outputs_.data();
  call.params = sample_.params.empty() ? nullptr : sample_.params.data();
  call.params_size = sample_.params.size();
  call.workspace = workspace.data;
  call.workspace_size = info.workspace_size;
  call.device = device();
  const FloatingPointMode mode;
  launch(call);
  if (const std::string change = mode.change(); !change.empty()) throw std::runtime_error("launch: " + change);
  if (modes_changed.exchange(0) != 0)
    throw std::runtime_error("parallel_for: a body changed the floating-point mode of its thread");
  require_ok(table.stream_sync(instance_.self(), device().device_id, nullptr, &error), error, "stream_sync");
  std::vector<unsigned char> all;
  for (const auto& m : memory_) {
    if (std::find(outputs_.begin(), outputs_.end(), &m->dl) == outputs_.end()) continue;
    const auto more = m->read();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::vector<unsigned char> DirectRun::run() {
  nw_plan_info info{};
  void* plan = nullptr;
  {
    Signature gone(sample_);
    plan = plan_or_fail(instance_, gone, &info);
  }
  std::vector<unsigned char> bytes = launch(plan, info);
  tested_table().plan_free(instance_.self(), plan);
  return bytes;
}

std::vector<Sample> plugin_samples(size_t each) {
  std::vector<Sample> all;
  for (const nw_op* op : offered_ops()) {
    const std::vector<Sample>& found = samples_of(*op).filled;
    for (size_t i = 0; i < std::min(each, found.size()); ++i) all.push_back(found[i * found.size() / std::min(each, found.size())]);
  }
  if (all.empty()) FAIL("no call of any op that the plugin offers was accepted");
  return all;
}

}  // namespace narrows::test
