// SPDX-License-Identifier: Apache-2.0
// calls.cpp -- what every op owes to its callers besides numbers: plans for each call's own shapes and params, the call's stream,
// many threads at once, and a process that was forked. Workspaces: workspaces.cpp.
#include "call_examples.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <thread>

#include "conformance/conv1d/conv1d_case.h"
#include "conformance/elementwise/elementwise_cases.h"
#include "conformance/lltm/lltm_case.h"

using namespace narrows::test;

#if defined(__SANITIZE_THREAD__)
#define SKIP_UNDER_SANITIZERS() SKIP("ThreadSanitizer allows no threads in the child of a process with threads")
#elif defined(__SANITIZE_ADDRESS__)
#define SKIP_UNDER_SANITIZERS() SKIP("AddressSanitizer's allocator stays locked in the child when another thread was inside it")
#else
#define SKIP_UNDER_SANITIZERS() (void)0
#endif

namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

// A call with outputs of its own, so that several threads can make it at once.
struct OwnCall {
  OwnCall(const Example& e, const char* kernel) : example(e), call(e.op, e.input_pointers(), own_outputs(), e.params) {
    call.raw.kernel = kernel;
    for (const auto& t : outputs)
      if (t != nullptr) t->poison();
  }
  std::vector<Tensor*> own_outputs() {
    std::vector<Tensor*> pointers;
    for (const auto& t : example.outputs) {
      outputs.push_back(t == nullptr ? nullptr : std::make_unique<Tensor>(t->dtype(), t->shape()));
      pointers.push_back(outputs.back().get());
    }
    return pointers;
  }
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> all;
    for (const auto& t : outputs) {
      if (t == nullptr) continue;
      const auto more = t->element_bytes();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  bool damaged() const {
    for (const auto& t : outputs)
      if (t != nullptr && !t->damage_outside_elements().empty()) return true;
    return false;
  }

  const Example& example;
  std::vector<std::unique_ptr<Tensor>> outputs;
  Call call;
};

// What a child does while its parent's other threads were busy; it may not use Catch2. 0: every op gave the same bytes.
int child(const std::vector<Example>& examples, const std::vector<std::vector<unsigned char>>& expected) {
  for (size_t i = 0; i < examples.size(); ++i) {
    OwnCall own(examples[i], nullptr);
    if (nw_run(runtime(), &own.call.raw, nullptr) != NW_OK) return static_cast<int>(i) + 1;
    if (own.bytes() != expected[i]) return static_cast<int>(i) + 101;
  }
  return 0;
}

// The exit code; minus the signal that ended the child, -1000 where it did not end.
int exit_code_of(pid_t pid) {
  for (int i = 0; i < 12000; ++i) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    usleep(10000);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return -1000;
}

// Calls of each op that are done soon.
std::vector<Example> small_examples() {
  std::vector<Example> all = conv1d_examples(DType::f32, 1, 1, 1, 2011, 9, 1);
  for (Example& e : conv1d_examples(DType::f32, 3, 17, 18, 51, 3, 1)) all.push_back(std::move(e));
  for (Example& e : elementwise_examples(DType::f32, 31, 167)) all.push_back(std::move(e));
  for (Example& e : lltm_examples(DType::f32, 33, 20, 17)) all.push_back(std::move(e));
  return all;
}

// The same calls with other numbers: each input's are rotated by `places`.
std::vector<Example> rotated(std::vector<Example> examples, size_t places) {
  for (const Example& e : examples)
    for (const auto& t : e.inputs) {
      if (t == nullptr || t->size() == 0) continue;
      std::vector<Exact> values = t->exact();
      std::rotate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(places % values.size()), values.end());
      t->set(values);
    }
  return examples;
}

}  // namespace

// What a plan is made for but is not said by op, params and dtypes: one call after the other differs in one such thing from those
// before it. The smallest and plainest comes first, and each comes again after the others.
TEST_CASE("calls: a plan for another shape, layout or alignment is not used again", "[calls]") {
  for (const DType dtype : kDTypes)
    for (int round = 0; round < 2; ++round)
      for (const int64_t n : {3, 7, 40, 41, 6}) {
        Rng rng("calls plans");
        for (const Layout& layout : all_layouts(1, dtype)) {
          check({narrows::reference::function(NW_EW_ADD), dtype, {{n}, {n}}, {n}, {layout, {}}, {}}, "plans, a");
          check({narrows::reference::function(NW_EW_ADD), dtype, {{n}, {n}}, {n}, {{}, layout}, layout}, "plans, b and out");
          Conv1dCase c{.shape = {.length = n, .taps = 3, .pad_left = 2}, .dtype = dtype, .rank = 1};
          c.x_layout = layout;
          check_conv1d(c, rng);
          check_conv1d_backward(c, rng, kGradX | kGradW | kGradBias);
        }
        for (const Layout& layout : all_layouts(2, dtype)) {
          check_lltm({.shape = {3, n, 4}, .dtype = dtype, .layouts = everywhere(layout)}, rng);
          check_lltm_backward({.shape = {3, n, 4}, .dtype = dtype, .layouts = everywhere(layout)}, rng);
        }
      }
}

TEST_CASE("calls: a plan for other params is not used again", "[calls]") {
  for (const DType dtype : kDTypes)
    for (int round = 0; round < 2; ++round) {
      Rng rng("calls params");
      for (const int64_t left : {0, 2, 4, 1}) {  // y is as long as x whatever the side
        const narrows::reference::Conv1d shape{.length = 21, .taps = 3, .dilation = 2, .pad_left = left, .pad_right = 4 - left};
        check_conv1d({.shape = shape, .dtype = dtype, .rank = 1}, rng);
        check_conv1d_backward({.shape = shape, .dtype = dtype, .rank = 1}, rng);
      }
      for (const int32_t function : {NW_EW_SUB, NW_EW_ELU})
        for (const double number : {0.5, 2.0, -3.0, 1.0}) {
          Tensor a(dtype, {19}), out(dtype, {19});
          a.set(std::vector<double>(19, function == NW_EW_ELU ? -60000 : 4));  // elu is -alpha there
          nw_elementwise_params p{};
          p.function = function;
          (function == NW_EW_ELU ? p.alpha : p.b_real) = number;
          const double expected = function == NW_EW_ELU ? -number : 4 - number;
          for (const char* kernel : kernels("elementwise")) {
            const Result result = run_params(p, {&a}, out, kernel);
            if (!result.was_declined()) expect_close(result, out, std::vector<double>(19, expected), {});
          }
        }
    }
}

TEST_CASE("trap: work goes to the stream that the call names, not to the default one", "[calls][trap]") {
  void* stream = nullptr;
  nw_error error{};
  REQUIRE(nw_stream_create(runtime(), device(), &stream, &error) == NW_OK);
  int nobodys = 0;
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Example& e : large_examples(dtype)) {
      const Result first = e.run();
      if (first.was_declined()) continue;
      expect_ok(first);
      const auto expected = e.bytes();
      Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
      call.note = e.what;
      call.raw.stream = stream;
      expect_ok(call.run());  // which synchronises that stream alone
      INFO(e.what);
      CHECK(e.bytes() == expected);
      if (device().device_type != kDLCPU) continue;
      call.raw.stream = &nobodys;
      expect_refused(call.run(), NW_INVALID, -1, {e.op, "stream = ", "expected NULL on the CPU"});
    }
  CHECK(nw_stream_destroy(runtime(), device(), stream, &error) == NW_OK);
}

// The stream is busy for long when the call is put on it: one that is put elsewhere reads the inputs that were there before.
TEST_CASE("trap: a call reads what its stream wrote before it, and is done for what its stream does next",
          "[calls][stream][trap]") {
  if (device().device_type == kDLCPU) SKIP("the CPU has one stream");
  constexpr uint64_t kSize = 64 << 20;
  constexpr int kCopies = 32;  // some milliseconds on the fastest GPU
  void *stream = nullptr, *from = nullptr, *to = nullptr;
  nw_error error{};
  REQUIRE(nw_stream_create(runtime(), device(), &stream, &error) == NW_OK);
  for (void** data : {&from, &to}) REQUIRE(nw_alloc(runtime(), device(), kSize, nullptr, data, &error) == NW_OK);
  const std::vector<unsigned char> zeros(kSize);
  REQUIRE(nw_copy(runtime(), device(), from, {kDLCPU, 0}, zeros.data(), kSize, nullptr, &error) == NW_OK);
  const auto copy = [&](void* there, const void* here, uint64_t size) {
    return nw_copy(runtime(), device(), there, device(), here, size, stream, &error);
  };
  const auto copy_tensor = [&](const std::unique_ptr<Tensor>& there, const std::unique_ptr<Tensor>& here) {
    if (there != nullptr)
      CHECK(copy(there->dl()->data, here->dl()->data, static_cast<uint64_t>(there->size() * item_size(there->dtype()))) == NW_OK);
  };
  const std::vector<Example> right = small_examples(), before = rotated(small_examples(), 17);
  for (size_t i = 0; i < right.size(); ++i) {
    const Result result = right[i].run();
    if (result.was_declined()) continue;
    expect_ok(result);
    const auto expected = right[i].bytes();
    Call call(before[i].op, before[i].input_pointers(), before[i].output_pointers(), before[i].params);
    expect_ok(call.run());
    for (const auto& t : right[i].outputs)
      if (t != nullptr) t->poison();
    REQUIRE(nw_stream_sync(runtime(), device(), nullptr, &error) == NW_OK);
    INFO(right[i].what);
    for (int k = 0; k < kCopies; ++k) CHECK(copy(to, from, kSize) == NW_OK);
    for (size_t k = 0; k < right[i].inputs.size(); ++k) copy_tensor(before[i].inputs[k], right[i].inputs[k]);
    call.raw.stream = stream;
    CHECK(nw_run(runtime(), &call.raw, &error) == NW_OK);
    for (size_t k = 0; k < right[i].outputs.size(); ++k) copy_tensor(right[i].outputs[k], before[i].outputs[k]);
    CHECK(nw_stream_sync(runtime(), device(), stream, &error) == NW_OK);
    CHECK(right[i].bytes() == expected);
  }
  for (void* data : {from, to}) CHECK(nw_free(runtime(), device(), data, nullptr, &error) == NW_OK);
  CHECK(nw_stream_destroy(runtime(), device(), stream, &error) == NW_OK);
}

TEST_CASE("calls: six threads make the same call at once, by one plan and each its own", "[calls][threads]") {
  constexpr int kThreads = 6, kRounds = 4;
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Example& e : large_examples(dtype))
      for (const char* kernel : kernels(e.op)) {
        if (e.run(kernel).was_declined()) continue;
        const auto expected = e.bytes();
        std::vector<std::unique_ptr<OwnCall>> calls;
        for (int i = 0; i < kThreads; ++i) calls.push_back(std::make_unique<OwnCall>(e, kernel));
        nw_plan* plan = nullptr;
        REQUIRE(nw_plan_get(runtime(), &calls[0]->call.raw, &plan, nullptr, nullptr) == NW_OK);
        std::atomic<int> bad{0}, ready{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < kThreads; ++i)
          threads.emplace_back([&, i] {
            const nw_call& raw = calls[static_cast<size_t>(i)]->call.raw;
            for (++ready; ready < kThreads;) std::this_thread::yield();
            for (int k = 0; k < kRounds; ++k)
              bad += (k % 2 == 0 ? nw_launch(plan, &raw, nullptr) : nw_run(runtime(), &raw, nullptr)) != NW_OK;
          });
        for (std::thread& thread : threads) thread.join();
        nw_plan_release(plan);
        REQUIRE(nw_stream_sync(runtime(), device(), nullptr, nullptr) == NW_OK);
        INFO(e.what << " kernel " << (kernel == nullptr ? "-" : kernel));
        CHECK(bad == 0);
        int wrong = 0;
        for (const auto& own : calls) wrong += own->bytes() != expected || own->damaged();
        CHECK(wrong == 0);
      }
}

// With equal numbers, as above, a buffer that all calls share holds the right ones by chance.
TEST_CASE("calls: six threads make calls with different numbers at once", "[calls][threads]") {
  constexpr size_t kThreads = 6, kRounds = 20;
  std::vector<std::vector<Example>> examples;  // for each thread its own
  for (size_t i = 0; i < kThreads; ++i) examples.push_back(rotated(small_examples(), 17 * i));
  for (size_t which = 0; which < examples[0].size(); ++which) {
    std::vector<std::vector<unsigned char>> expected;
    for (const auto& own : examples) {
      expect_ok(own[which].run());
      expected.push_back(own[which].bytes());
    }
    std::atomic<size_t> bad{0}, wrong{0}, ready{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        OwnCall own(examples[i][which], nullptr);
        for (++ready; ready < kThreads;) std::this_thread::yield();
        for (size_t k = 0; k < kRounds; ++k) {
          bad +=
              nw_run(runtime(), &own.call.raw, nullptr) != NW_OK || nw_stream_sync(runtime(), device(), nullptr, nullptr) != NW_OK;
          wrong += own.bytes() != expected[i];
        }
      });
    for (std::thread& thread : threads) thread.join();
    INFO(examples[0][which].what);
    CHECK(expected[0] != expected[1]);
    CHECK(bad == 0);
    CHECK(wrong == 0);
  }
}

TEST_CASE("calls: fork while other threads are inside calls, then the same calls in the child", "[calls][threads][fork]") {
  SKIP_UNDER_SANITIZERS();
  if (device().device_type != kDLCPU) SKIP("a device that was open is unavailable in the child: tests/core");
  std::vector<Example> examples = large_examples(DType::f32);
  std::vector<std::vector<unsigned char>> expected;
  for (const Example& e : examples) {
    expect_ok(e.run());
    expected.push_back(e.bytes());
  }
  std::atomic<bool> done{false};
  std::atomic<int> bad{0}, ready{0};
  std::vector<std::thread> busy;
  for (size_t i = 0; i < 2; ++i)
    busy.emplace_back([&, i] {
      OwnCall own(examples[2 * i + 2], nullptr);
      for (++ready; !done;) bad += nw_run(runtime(), &own.call.raw, nullptr) != NW_OK;
    });
  while (ready < 2) std::this_thread::yield();
  std::vector<int> codes;
  for (int i = 0; i < 10; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(child(examples, expected));
    codes.push_back(pid < 0 ? -999 : exit_code_of(pid));
  }
  done = true;
  for (std::thread& thread : busy) thread.join();
  CHECK(codes == std::vector<int>(10, 0));
  CHECK(bad == 0);
  CHECK(child(examples, expected) == 0);
}
