// harness.cpp -- the runtime under test, seeds, and calls. See harness.h. Tensors: tensor.cpp; comparison: compare.cpp.
#include "harness.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

namespace narrows::test {
namespace {

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "narrows tests: %s\n", why.c_str());
  std::exit(1);
}

// A device named by NARROWS_TEST_DEVICE, "2:0"; the CPU without it.
DLDevice device_from_environment() {
  const char* text = std::getenv("NARROWS_TEST_DEVICE");
  if (text == nullptr) return {kDLCPU, 0};
  int type = 0, id = 0, end = 0;
  if (std::sscanf(text, "%d:%d%n", &type, &id, &end) != 2 || text[end] != '\0')
    die(std::string("NARROWS_TEST_DEVICE is '") + text + "'; expected DLDeviceType:id, such as 1:0");
  return {static_cast<DLDeviceType>(type), id};
}

nw_backend_info backend_info(uint32_t index) {
  nw_backend_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  if (nw_backend(runtime(), index, &info, &error) != NW_OK) die(std::string("nw_backend: ") + error.message);
  return info;
}

// The plugin under test: named by NARROWS_TEST_BACKEND, else the first that serves the device.
nw_backend_info backend_under_test() {
  const char* wanted = std::getenv("NARROWS_TEST_BACKEND");
  std::string seen;
  for (uint32_t i = 0; i < nw_backend_count(runtime()); ++i) {
    const nw_backend_info info = backend_info(i);
    if (info.status == NW_OK && (info.flags & NW_BACKEND_SHADOWED) == 0 && info.device_type == device().device_type &&
        (wanted == nullptr || std::strcmp(wanted, info.name) == 0))
      return info;
    seen += std::string("\n  ") + info.path + ": " + (info.status == NW_OK ? "serves another device" : info.reason);
  }
  die("no usable backend for device " + std::to_string(device().device_type) + ":" + std::to_string(device().device_id) +
      "; plugins found:" + (seen.empty() ? " none" : seen));
}

const nw_backend_info& tested_backend() {
  static const nw_backend_info info = backend_under_test();
  return info;
}

// Which forced variants ran, by "op/kernel".
struct Coverage {
  std::mutex lock;
  std::set<std::string> ran;
};
Coverage& coverage() {
  static Coverage c;
  return c;
}

void record_run(const nw_call& call) {
  if (call.kernel == nullptr) return;
  const std::lock_guard<std::mutex> hold(coverage().lock);
  coverage().ran.insert(std::string(call.op) + "/" + call.kernel);
}

bool shares_memory(const std::vector<const Tensor*>& tensors, const Tensor* t) {
  for (const Tensor* other : tensors)
    if (other != nullptr && other->shares_memory(*t)) return true;
  return false;
}

std::string describe_all(const std::vector<const Tensor*>& tensors) {
  std::string text;
  for (const Tensor* t : tensors) text += (text.empty() ? "" : ", ") + (t == nullptr ? std::string("-") : t->describe());
  return text;
}

}  // namespace

nw_runtime* runtime() {
  static nw_runtime* const rt = [] {
    nw_options options{};
    options.struct_size = sizeof options;
    nw_runtime* made = nullptr;
    nw_error error{};
    if (nw_runtime_create(&options, &made, &error) != NW_OK) die(std::string("nw_runtime_create: ") + error.message);
    return made;
  }();
  return rt;
}

DLDevice device() {
  static const DLDevice d = device_from_environment();
  return d;
}

const char* backend() { return tested_backend().name; }

uint64_t base_seed() {
  static const uint64_t seed = [] {
    const char* text = std::getenv("NARROWS_TEST_SEED");
    return text == nullptr ? uint64_t{20260101} : std::strtoull(text, nullptr, 0);
  }();
  return seed;
}

std::string arch() {
  nw_device_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  if (nw_device(runtime(), device(), &info, &error) != NW_OK) die(std::string("nw_device: ") + error.message);
  return info.arch;
}

std::vector<const char*> kernels(const char* op) {
  std::vector<const char*> names{nullptr};
  const nw_backend_info& info = tested_backend();
  for (uint32_t i = 0; i < info.num_ops; ++i) {
    if (std::strcmp(info.ops[i]->name, op) != 0 || info.ops[i]->kernels == nullptr) continue;
    for (const char* const* k = info.ops[i]->kernels; *k != nullptr; ++k) names.push_back(*k);
  }
  return names;
}

std::vector<std::string> variants_never_run() {
  std::vector<std::string> missing;
  const nw_backend_info& info = tested_backend();
  for (uint32_t i = 0; i < info.num_ops; ++i)
    for (const char* kernel : kernels(info.ops[i]->name))
      if (kernel != nullptr && coverage().ran.count(std::string(info.ops[i]->name) + "/" + kernel) == 0)
        missing.push_back(std::string(info.ops[i]->name) + "/" + kernel);
  return missing;
}

// ---- Rng ----

Rng::Rng(std::string_view tag, uint64_t extra) : state_(base_seed() + extra * 0x9E3779B97F4A7C15u) {
  for (const char c : tag) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
}
uint64_t Rng::bits() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
double Rng::uniform(double low, double high) { return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53); }
int64_t Rng::integer(int64_t low, int64_t high) {
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;  // 0: all 2^64
  return static_cast<int64_t>(static_cast<uint64_t>(low) + (span == 0 ? bits() : bits() % span));
}

// ---- Call ----

Call::Call(const char* op, std::vector<const Tensor*> inputs, std::vector<Tensor*> outputs, Blob params)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)), params_(std::move(params)) {
  for (const Tensor* t : inputs_) input_pointers_.push_back(t == nullptr ? nullptr : t->dl());
  for (const Tensor* t : outputs_) output_pointers_.push_back(t == nullptr ? nullptr : t->dl());
  raw.struct_size = sizeof raw;
  raw.op = op;
  raw.num_inputs = static_cast<uint32_t>(input_pointers_.size());
  raw.num_outputs = static_cast<uint32_t>(output_pointers_.size());
  raw.inputs = input_pointers_.data();
  raw.outputs = output_pointers_.data();
  raw.params = params_.bytes.empty() ? nullptr : params_.bytes.data();
  raw.params_size = params_.bytes.size();
  raw.backend = backend();
}

std::string Call::describe() const {
  return std::string(raw.op == nullptr ? "(no op)" : raw.op) + (note.empty() ? "" : "[" + note + "]") + " (" +
         describe_all(inputs_) + ") -> (" + describe_all({outputs_.begin(), outputs_.end()}) +
         ") kernel=" + (raw.kernel == nullptr ? "-" : raw.kernel) + " NARROWS_TEST_SEED=" + std::to_string(base_seed());
}

Result Call::run() {
  for (const Tensor* t : inputs_)
    if (t != nullptr) t->accept();  // it may be the output of an earlier call
  for (Tensor* t : outputs_)
    if (t != nullptr && !shares_memory(inputs_, t)) t->poison();
  Result result;
  result.what = describe();
  result.forced = raw.kernel != nullptr;
  const int32_t would = nw_plan_get(runtime(), &raw, nullptr, nullptr, nullptr);
  result.status = nw_run(runtime(), &raw, &result.error);
  if (result.status == NW_OK) {
    nw_error sync_error{};
    if (nw_stream_sync(runtime(), device(), raw.stream, &sync_error) != NW_OK)
      FAIL_CHECK(result.what << "\n  sync: " << sync_error.message);
    if (would != NW_OK) FAIL_CHECK(result.what << "\n  nw_run succeeded, and nw_plan_get had answered " << nw_status_name(would));
    record_run(raw);
    check_success(result);
  } else {
    check_refusal(result);
  }
  return result;
}

// Inputs as they were, outputs changed in their elements only, and nw_infer of the outputs' dtype and shape.
void Call::check_success(const Result& result) const {
  const std::vector<const Tensor*> outputs(outputs_.begin(), outputs_.end());
  for (const Tensor* t : inputs_) {
    if (t == nullptr || shares_memory(outputs, t)) continue;
    if (const std::string damage = t->damage(); !damage.empty()) FAIL_CHECK(result.what << "\n  an input changed: " << damage);
  }
  std::vector<nw_spec> specs(outputs_.size());
  nw_error error{};
  const int32_t status = nw_infer(runtime(), &raw, specs.data(), raw.num_outputs, &error);
  if (status != NW_OK) FAIL_CHECK(result.what << "\n  nw_run succeeded, and nw_infer says: " << error.message);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Tensor* t = outputs_[i];
    if (t == nullptr) continue;
    if (const std::string damage = t->damage_outside_elements(); !damage.empty())
      FAIL_CHECK(result.what << "\n  output " << i << ": " << damage);
    const DLDataType dtype = dl_dtype(t->dtype());
    if (status == NW_OK && (specs[i].dtype.code != dtype.code || specs[i].dtype.bits != dtype.bits ||
                            std::vector<int64_t>(specs[i].shape, specs[i].shape + specs[i].ndim) != t->shape()))
      FAIL_CHECK(result.what << "\n  nw_infer gives output " << i << " another dtype or shape than nw_run accepted");
  }
}

// Statuses 1 to 5 leave every byte as it was.
void Call::check_refusal(const Result& result) const {
  if (result.status >= NW_FAILED) return;
  if (result.error.status != result.status)
    FAIL_CHECK(result.what << "\n  nw_error.status is " << result.error.status << ", nw_run returned " << result.status);
  if (std::memchr(result.error.message, '\0', sizeof result.error.message) == nullptr || result.error.message[0] == '\0')
    FAIL_CHECK(result.what << "\n  a refusal without a message");
  for (const Tensor* t : inputs_)
    if (t != nullptr && !t->damage().empty()) FAIL_CHECK(result.what << "\n  a refused call changed an input: " << t->damage());
  for (const Tensor* t : outputs_)
    if (t != nullptr && !t->damage().empty()) FAIL_CHECK(result.what << "\n  a refused call touched an output: " << t->damage());
}

Result run(const char* op, std::vector<const Tensor*> inputs, std::vector<Tensor*> outputs, Blob params, const char* kernel,
           uint32_t flags, std::string note) {
  Call call(op, std::move(inputs), std::move(outputs), std::move(params));
  call.raw.kernel = kernel;
  call.raw.flags = flags;
  call.note = std::move(note);
  return call.run();
}

}  // namespace narrows::test
