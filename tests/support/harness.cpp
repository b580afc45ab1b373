// SPDX-License-Identifier: Apache-2.0
// harness.cpp -- seeds and calls. See harness.h. What is judged: session.cpp; tensors: tensor.cpp; comparison: compare.cpp.
#include "harness.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <mutex>
#include <utility>

#include "floating_point.h"

namespace narrows::test {
namespace {

// What this process has done since the last take_tally().
std::mutex tally_lock;
Tally tally;

// Of the first tensor that is present; "" without one, or of a dtype that is none of ours.
std::string dtype_of_first(const DLTensor* const* tensors, uint32_t count) {
  for (uint32_t i = 0; tensors != nullptr && i < count; ++i) {
    if (tensors[i] == nullptr) continue;
    for (const DType dtype : kAllDTypes)
      if (const DLDataType d = dl_dtype(dtype); d.code == tensors[i]->dtype.code && d.bits == tensors[i]->dtype.bits)
        return name(dtype);
    return {};
  }
  return {};
}

// "erf" of a call of elementwise or its backward; "" of anything else.
std::string function_name(const nw_call& call) {
  const nw_op* op = nullptr;
  if (call.op == nullptr || nw_find_op(runtime(), call.op, &op, nullptr) != NW_OK) return {};
  for (const nw_param* const* p = op->params; p != nullptr && *p != nullptr; ++p) {
    if (std::strcmp((*p)->name, "function") != 0 || (*p)->values == nullptr) continue;
    int32_t number = 0;
    if (call.params == nullptr || call.params_size < (*p)->offset + sizeof number) return {};
    std::memcpy(&number, static_cast<const char*>(call.params) + (*p)->offset, sizeof number);
    for (const char* const* value = (*p)->values; *value != nullptr; ++value)
      if (number-- == 0) return *value;
  }
  return {};
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

Tally take_tally() {
  const std::lock_guard<std::mutex> hold(tally_lock);
  return std::exchange(tally, {});
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
         ") kernel=" + (raw.kernel == nullptr ? "-" : raw.kernel);
}

// The bytes of all that a call points to but the tensors' memory. What a test has bent to something else it keeps to itself.
std::vector<unsigned char> Call::lent() const {
  std::vector<unsigned char> bytes = params_.bytes;
  const auto add = [&bytes](const void* from, size_t size) {
    const auto* const first = static_cast<const unsigned char*>(from);
    bytes.insert(bytes.end(), first, first + size);
  };
  add(&raw, sizeof raw);
  for (const auto* pointers : {&input_pointers_, &output_pointers_}) add(pointers->data(), pointers->size() * sizeof(void*));
  const auto add_tensor = [&](const Tensor* t) {
    if (t == nullptr) return;
    const DLTensor& dl = *t->dl();
    add(&dl, sizeof dl);
    const std::vector<int64_t>& shape = t->shape();
    if (dl.shape != shape.data() || static_cast<size_t>(dl.ndim) != shape.size()) return;
    add(dl.shape, shape.size() * sizeof(int64_t));
    if (dl.strides != nullptr) add(dl.strides, shape.size() * sizeof(int64_t));
  };
  for (const Tensor* t : inputs_) add_tensor(t);
  for (const Tensor* t : outputs_) add_tensor(t);
  return bytes;
}

Result Call::run() {
  for (const Tensor* t : inputs_)
    if (t != nullptr) t->accept();  // it may be the output of an earlier call
  for (Tensor* t : outputs_)
    if (t != nullptr && !shares_memory(inputs_, t)) nan_before ? t->fill_nan() : t->poison();
  Result result;
  result.what = describe();
  result.forced = raw.kernel != nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  const std::vector<unsigned char> lent_before = lent();
  const FloatingPointMode mode;
  const int32_t would = nw_plan_get(runtime(), &raw, nullptr, &info, nullptr);
  result.traits = info.traits;
  result.status = nw_run(runtime(), &raw, &result.error);
  if (const std::string change = mode.change(); !change.empty()) FAIL_CHECK(result.what << "\n  " << change);
  if (lent() != lent_before) FAIL_CHECK(result.what << "\n  the call's params, or a tensor's shape or strides, were written");
  if (result.status == NW_OK) {
    nw_error sync_error{};
    if (nw_stream_sync(runtime(), device(), raw.stream, &sync_error) != NW_OK)
      FAIL_CHECK(result.what << "\n  sync: " << sync_error.message);
    if (would != NW_OK) FAIL_CHECK(result.what << "\n  nw_run succeeded, and nw_plan_get had answered " << nw_status_name(would));
    check_success(result);
  } else {
    check_refusal(result);
  }
  count(result);
  return result;
}

// What the plugin does not list, and what the manifest excludes, it may decline. Accepting what the manifest excludes is counted
// against the exclusion.
void Call::count(Result& result) const {
  const std::string op = raw.op == nullptr ? "" : raw.op, kernel = raw.kernel == nullptr ? "" : raw.kernel;
  const std::vector<Exclusion*> exclusions = manifest().covering(
      {op, function_name(raw), dtype_of_first(raw.inputs, raw.num_inputs), dtype_of_first(raw.outputs, raw.num_outputs), kernel});
  const nw_op* known = nullptr;
  result.offered = offers(op.c_str()) || nw_find_op(runtime(), op.c_str(), &known, nullptr) != NW_OK;
  const std::lock_guard<std::mutex> hold(tally_lock);
  if (result.status == NW_UNSUPPORTED && !result.offered) {
    result.declined = std::string(backend()) + " does not offer " + op;
  } else if (result.status == NW_UNSUPPORTED && !exclusions.empty()) {
    result.declined = "excluded, " + exclusions[0]->text() + ": " + exclusions[0]->reason;
    for (Exclusion* e : exclusions) ++e->declined;
  }
  if (!result.declined.empty()) {
    tally.declined.insert(result.declined);
  } else if (!result.ok()) {
    ++tally.refused;
  } else {
    ++tally.accepted;
    for (Exclusion* e : exclusions) ++e->accepted;
    if (raw.kernel != nullptr) tally.variants.insert(op + "/" + kernel);
  }
}

// Inputs as they were, outputs changed in their elements only, and nw_infer of the outputs' dtype and shape.
void Call::check_success(const Result& result) const {
  const std::vector<const Tensor*> outputs(outputs_.begin(), outputs_.end());
  for (const Tensor* t : inputs_) {
    if (t == nullptr || shares_memory(outputs, t)) continue;
    if (const std::string damage = t->damage(); !damage.empty()) FAIL_CHECK(result.what << "\n  an input changed: " << damage);
  }
  std::vector<nw_spec> specs(raw.num_outputs);
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
