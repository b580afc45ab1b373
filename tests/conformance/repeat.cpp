// SPDX-License-Identifier: Apache-2.0
// repeat.cpp -- one call made again in other circumstances: by another plan, beside another that empties the plan cache, on two
// streams at once, and with forward on one backend and backward on another. call_examples.h has the calls.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <thread>

#include "call_examples.h"
#include "sample_tensors.h"

using namespace narrows::test;

namespace {

constexpr DLDevice kHost{kDLCPU, 0};

std::vector<Example> offered_examples(DType dtype) {
  std::vector<Example> some;
  for (Example& e : large_examples(dtype))
    if (offers(e.op)) some.push_back(std::move(e));
  return some;
}

void expect_some_op() {
  if (offered_examples(DType::f32).empty()) SKIP("the backend offers no built-in op");
}

// The outputs' bytes where the plan promises the same bits again; nothing where it does not, or where there is no such variant.
bool promised_bytes(const Example& e, const char* kernel, std::vector<unsigned char>* bytes, uint32_t flags) {
  const Result result = run(e.op, e.input_pointers(), e.output_pointers(), e.params, kernel, flags, e.what);
  if (result.status == NW_UNSUPPORTED) return false;
  expect_ok(result);
  *bytes = e.bytes();
  return result.promises_same_bits();
}
bool deterministic_bytes(const Example& e, const char* kernel, std::vector<unsigned char>* bytes) {
  return promised_bytes(e, kernel, bytes, NW_DETERMINISTIC);
}

// The same bits twice by one plan and once by the next; false where its plan does not promise them.
bool check_same_bits(const Example& e, const char* kernel, uint32_t flags) {
  std::vector<unsigned char> expected, again, anew;
  if (!promised_bytes(e, kernel, &expected, flags)) return false;
  const bool both = promised_bytes(e, kernel, &again, flags);
  nw_plan_cache_clear(runtime());
  INFO(e.what << " kernel " << (kernel == nullptr ? "-" : kernel) << " flags " << flags);
  CHECK((both && promised_bytes(e, kernel, &anew, flags)));
  const bool same = again == expected && anew == expected;
  CHECK(same);
  return true;
}

// A call with outputs of its own, on a stream of its own.
struct StreamCall {
  explicit StreamCall(const Example& e) : call(e.op, e.input_pointers(), own_outputs(e), e.params) {
    call.raw.flags = NW_DETERMINISTIC;
    REQUIRE(nw_stream_create(runtime(), device(), &call.raw.stream, nullptr) == NW_OK);
    for (const auto& t : outputs)
      if (t != nullptr) t->poison();
  }
  ~StreamCall() { nw_stream_destroy(runtime(), device(), call.raw.stream, nullptr); }
  StreamCall(const StreamCall&) = delete;
  StreamCall& operator=(const StreamCall&) = delete;
  std::vector<Tensor*> own_outputs(const Example& e) {
    std::vector<Tensor*> pointers;
    for (const auto& t : e.outputs) {
      outputs.push_back(t == nullptr ? nullptr : std::make_unique<Tensor>(t->dtype(), t->shape()));
      pointers.push_back(outputs.back().get());
    }
    return pointers;
  }
  int32_t sync() const { return nw_stream_sync(runtime(), device(), call.raw.stream, nullptr); }
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> all;
    for (const auto& t : outputs) {
      if (t == nullptr) continue;
      const auto more = t->element_bytes();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  std::vector<std::unique_ptr<Tensor>> outputs;
  Call call;
};

// ---- backends side by side ----

struct Place {
  std::string backend;
  DLDevice device;
};

// The other usable backends that offer the op.
std::vector<Place> other_places(const std::string& op) {
  std::vector<Place> places;
  for (uint32_t i = 0; i < nw_backend_count(runtime()); ++i) {
    nw_backend_info info{};
    info.struct_size = sizeof info;
    if (nw_backend(runtime(), i, &info, nullptr) != NW_OK || info.status != NW_OK || (info.flags & NW_BACKEND_SHADOWED) != 0)
      continue;
    if (info.device_count < 1 || std::strcmp(info.name, backend()) == 0) continue;
    // An address of Vulkan's means something within one VkDevice only, and each backend has its own.
    if (info.device_type == kDLVulkan && device().device_type == kDLVulkan) continue;
    for (uint32_t k = 0; k < info.num_ops; ++k)
      if (op == info.ops[k]->name) places.push_back({info.name, {static_cast<DLDeviceType>(info.device_type), 0}});
  }
  return places;
}

// A tensor on the host, and a copy of it on some device.
struct HostTensor {
  TensorSpec spec;
  std::vector<unsigned char> bytes;
};
class Moved {
 public:
  Moved(const Place& place, HostTensor& host) : place_(place), host_(host) {
    dl.device = place.device;
    dl.ndim = static_cast<int32_t>(host.spec.shape.size());
    dl.dtype = dl_dtype(host.spec.dtype);
    dl.shape = host.spec.shape.data();
    nw_error error{};
    if (nw_alloc(runtime(), place.device, host.bytes.size(), nullptr, &dl.data, &error) != NW_OK) FAIL(error.message);
    if (!host.bytes.empty() &&
        nw_copy(runtime(), place.device, dl.data, kHost, host.bytes.data(), host.bytes.size(), nullptr, &error) != NW_OK)
      FAIL(error.message);
  }
  ~Moved() { nw_free(runtime(), place_.device, dl.data, nullptr, nullptr); }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;
  void bring_back() {
    nw_error error{};
    if (!host_.bytes.empty() &&
        nw_copy(runtime(), kHost, host_.bytes.data(), place_.device, dl.data, host_.bytes.size(), nullptr, &error) != NW_OK)
      FAIL(error.message);
  }
  DLTensor dl{};

 private:
  Place place_;
  HostTensor& host_;
};

// Runs a call there, its tensors moved there and its outputs back.
int32_t run_at(const Place& place, const char* op, std::vector<HostTensor>& inputs, std::vector<HostTensor>& outputs,
               const std::vector<unsigned char>& params, nw_error* error) {
  std::vector<std::unique_ptr<Moved>> moved;
  std::vector<const DLTensor*> pointers;
  for (auto* list : {&inputs, &outputs})
    for (HostTensor& t : *list) {
      moved.push_back(t.spec.present ? std::make_unique<Moved>(place, t) : nullptr);
      pointers.push_back(t.spec.present ? &moved.back()->dl : nullptr);
    }
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = op;
  call.backend = place.backend.c_str();
  call.device = place.device;
  call.num_inputs = static_cast<uint32_t>(inputs.size());
  call.num_outputs = static_cast<uint32_t>(outputs.size());
  call.inputs = pointers.data();
  call.outputs = pointers.data() + inputs.size();
  call.params = params.empty() ? nullptr : params.data();
  call.params_size = params.size();
  int32_t status = nw_run(runtime(), &call, error);
  if (status == NW_OK) status = nw_stream_sync(runtime(), place.device, nullptr, error);
  for (size_t i = inputs.size(); i < moved.size() && status == NW_OK; ++i)
    if (moved[i] != nullptr) moved[i]->bring_back();
  return status;
}

std::vector<HostTensor> filled(const std::vector<TensorSpec>& specs, const std::string& tag, bool poisoned) {
  Rng rng(tag);
  std::vector<HostTensor> tensors;
  for (const TensorSpec& spec : specs) {
    const auto item = static_cast<size_t>(item_size(spec.dtype));
    HostTensor t{spec, std::vector<unsigned char>(static_cast<size_t>(spec.size()) * item, 0xC3)};
    for (size_t i = 0; i < t.bytes.size() && !poisoned; i += item) store(spec.dtype, sample_value(spec.dtype, rng), &t.bytes[i]);
    tensors.push_back(std::move(t));
  }
  return tensors;
}

std::vector<Exact> numbers_of(const HostTensor& t) {
  std::vector<Exact> values;
  const auto item = static_cast<size_t>(item_size(t.spec.dtype));
  for (size_t i = 0; i < t.bytes.size(); i += item) values.push_back(load(t.spec.dtype, &t.bytes[i]));
  return values;
}

// The gradients, with forward at one place and backward at another. The status is that of the first call that was refused.
int32_t gradients(const Sample& forward, const Sample& backward, const Place& first, const Place& second,
                  std::vector<HostTensor>* gradients, nw_error* error) {
  std::vector<HostTensor> inputs = filled(forward.inputs, forward.describe(), false);
  std::vector<HostTensor> outputs = filled(forward.outputs, "", true);
  if (const int32_t status = run_at(first, forward.op->name, inputs, outputs, forward.params, error); status != NW_OK)
    return status;
  std::vector<HostTensor> all = filled(backward.inputs, backward.describe(), false);  // the gradients of the outputs stay
  const size_t plain = forward.op->num_outputs - forward.op->num_aux;
  for (size_t i = plain; i < all.size(); ++i) {
    const size_t k = i - plain;
    if (all[i].spec.present) all[i] = k < inputs.size() ? inputs[k] : outputs[k - inputs.size()];
  }
  *gradients = filled(backward.outputs, "", true);
  return run_at(second, backward.op->name, all, *gradients, backward.params, error);
}

Exact largest_of(const std::vector<Exact>& values) {
  Exact largest = 0;
  for (const Exact value : values)
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  return largest;
}

// A gradient may be a sum of several steps that cancels: of one element it has nothing beside it to be measured by. So all
// gradients of a call are, by the largest of them.
void expect_same_gradients(const std::vector<HostTensor>& got, const std::vector<HostTensor>& reference, const std::string& what) {
  Exact largest = 0;
  for (const HostTensor& t : reference)
    if (t.spec.present) largest = std::max(largest, largest_of(numbers_of(t)));
  for (size_t i = 0; i < got.size(); ++i) {
    if (!got[i].spec.present) continue;
    const std::vector<Exact> expected = numbers_of(reference[i]);
    Tolerance tolerance = generic_tolerance(got[i].spec.dtype, expected);
    if (const Exact own = largest_of(expected); own > 0) {
      const auto factor = static_cast<double>(largest / own);
      tolerance.atol *= factor, tolerance.l2 *= factor;
    }
    Tensor shown(got[i].spec.dtype, got[i].spec.shape);
    shown.set(numbers_of(got[i]));
    const std::string text = difference(shown, expected, tolerance);
    if (!text.empty()) FAIL_CHECK(what << ": gradient " << i << ": " << text);
  }
}

}  // namespace

TEST_CASE("calls: the same bits again, also by a new plan", "[calls][determinism]") {
  expect_some_op();
  int64_t made = 0;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::u8, DType::i32, DType::i64})
    for (const Example& e : offered_examples(dtype))
      for (const char* kernel :
           kernels(e.op))  // what no flag asks for is what callers get; NW_DETERMINISTIC where that is not promised
        made += check_same_bits(e, kernel, 0) || check_same_bits(e, kernel, NW_DETERMINISTIC);
  if (made == 0) SKIP("the backend promises no call the same bits");
}

TEST_CASE("calls: another thread empties the plan cache all the time", "[calls][threads]") {
  expect_some_op();
  std::atomic<bool> done{false};
  std::thread emptier([&] {
    while (!done) {
      nw_plan_cache_clear(runtime());
      std::this_thread::yield();
    }
  });
  struct Join {
    std::atomic<bool>& done;
    std::thread& thread;
    ~Join() {
      done = true;
      thread.join();
    }
  } const join{done, emptier};
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Example& e : offered_examples(dtype)) {
      std::vector<unsigned char> expected, bytes;
      if (!deterministic_bytes(e, nullptr, &expected)) continue;
      bool same = true;
      for (int round = 0; round < 5; ++round) same &= deterministic_bytes(e, nullptr, &bytes) && bytes == expected;
      INFO(e.what);
      CHECK(same);
    }
}

TEST_CASE("calls: one op on two streams at once, by two threads and by one", "[calls][threads][stream]") {
  expect_some_op();
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Example& e : offered_examples(dtype)) {
      std::vector<unsigned char> expected;
      if (!deterministic_bytes(e, nullptr, &expected)) continue;
      for (const bool threaded : {false, true}) {
        StreamCall one(e), two(e);
        int32_t statuses[2] = {NW_OK, NW_OK};
        const auto launch = [&](int i) {
          for (int round = 0; round < 3 && statuses[i] == NW_OK; ++round)
            statuses[i] = nw_run(runtime(), i == 0 ? &one.call.raw : &two.call.raw, nullptr);
        };
        if (threaded) {
          std::thread first(launch, 0), second(launch, 1);
          first.join();
          second.join();
        } else {
          launch(0);
          launch(1);
        }
        INFO(e.what << (threaded ? " by two threads" : " by one thread"));
        CHECK((statuses[0] == NW_OK && statuses[1] == NW_OK));
        CHECK((one.sync() == NW_OK && two.sync() == NW_OK));
        const bool same = one.bytes() == expected && two.bytes() == expected;
        CHECK(same);
      }
    }
}

TEST_CASE("calls: forward on one backend and backward on another give the gradients of one", "[calls][backends]") {
  constexpr size_t kSamples = 24;
  const Place here{backend(), device()};
  int64_t compared = 0;
  std::string others, refused;
  for (const nw_op* op : offered_ops()) {
    if (op->backward == nullptr || !offers(op->backward)) continue;
    const std::vector<Sample>& found = samples_of(*op).filled;
    for (const Place& other : other_places(op->name)) {
      others += " " + other.backend;
      for (size_t i = 0; i < std::min(kSamples, found.size()); ++i) {
        const Sample& forward = found[i * found.size() / std::min(kSamples, found.size())];
        Sample backward;
        std::vector<HostTensor> expected, got;
        nw_error error{};
        if (!backward_of(forward, &backward) || gradients(forward, backward, here, here, &expected, &error) != NW_OK) continue;
        for (const auto& [first, second] : {std::pair{here, other}, {other, here}}) {
          const std::string what = forward.describe() + ", forward on " + first.backend + ", backward on " + second.backend;
          const int32_t status = gradients(forward, backward, first, second, &got, &error);
          if (status == NW_UNSUPPORTED) {
            refused = error.message;
            continue;
          }
          INFO(what << ": " << error.message);
          CHECK(status == NW_OK);
          if (status != NW_OK) continue;
          expect_same_gradients(got, expected, what);
          ++compared;
        }
      }
    }
  }
  if (others.empty()) SKIP("there is no other usable backend with an op and its backward");
  INFO("other backends:" << others << "; the last refusal: " << refused);
  CHECK(compared > 0);
}
