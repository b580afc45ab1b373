// SPDX-License-Identifier: Apache-2.0
// streams.cpp -- a call is ordered with what stands on its stream, whichever of CUDA's streams that is, and the host does not wait.
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "cuda.h"

using namespace narrows::test;

namespace {

constexpr int64_t kN = 100000;

// What a stream waits for, as long as it is closed, but two seconds at most.
struct Gate {
  std::atomic<bool> open = false, passed = false;
};
void CUDART_CB wait_at(void* data) {
  auto* gate = static_cast<Gate*>(data);
  for (int i = 0; i < 2000 && !gate->open; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  gate->passed = true;
}

void CUDART_CB pause(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

// Copies, a pause, the call, and a copy back, all on one stream: the call must see what came before it and be seen by what follows.
void run_in_order(cudaStream_t stream) {
  float *host_in = nullptr, *host_out = nullptr;
  CUDA_OK(cudaMallocHost(&host_in, kN * sizeof(float)));
  CUDA_OK(cudaMallocHost(&host_out, kN * sizeof(float)));
  const Buffer a(kN * 4), b(kN * 4), out(kN * 4);
  CUDA_OK(cudaMemset(a.data(), 0, kN * 4));
  CUDA_OK(cudaMemset(b.data(), 0, kN * 4));
  CUDA_OK(cudaMemset(out.data(), 0xFF, kN * 4));
  Addition warm(device(), a.data(), b.data(), out.data(), kN);
  REQUIRE(warm.run() == NW_OK);
  CUDA_OK(cudaDeviceSynchronize());
  for (int64_t i = 0; i < kN; ++i) host_in[i] = static_cast<float>(i), host_out[i] = -1;
  Addition call(device(), a.data(), b.data(), out.data(), kN);
  call.call.stream = stream;
  const auto start = std::chrono::steady_clock::now();
  CUDA_OK(cudaLaunchHostFunc(stream, pause, nullptr));
  CUDA_OK(cudaMemcpyAsync(a.data(), host_in, kN * 4, cudaMemcpyHostToDevice, stream));
  CUDA_OK(cudaMemcpyAsync(b.data(), host_in, kN * 4, cudaMemcpyHostToDevice, stream));
  nw_error error{};
  const int32_t status = call.run(&error);
  const auto returned = std::chrono::steady_clock::now() - start;
  CUDA_OK(cudaMemcpyAsync(host_out, out.data(), kN * 4, cudaMemcpyDeviceToHost, stream));
  CUDA_OK(cudaStreamSynchronize(stream));
  INFO(error.message);
  CHECK(status == NW_OK);
  CHECK(returned < std::chrono::milliseconds(90));  // the host did not wait for the pause
  int64_t wrong = 0;
  for (int64_t i = 0; i < kN; ++i) wrong += host_out[i] != 2 * static_cast<float>(i);
  CHECK(wrong == 0);
  CUDA_OK(cudaFreeHost(host_in));
  CUDA_OK(cudaFreeHost(host_out));
}

size_t bytes_of(const Tensor& t) { return static_cast<size_t>(t.size() * item_size(t.dtype())); }

// A copy of a tensor's memory in the device's; tensors of examples are contiguous.
std::unique_ptr<Buffer> copy_of(const Tensor& t) {
  auto copy = std::make_unique<Buffer>(std::max<size_t>(bytes_of(t), 1));
  CUDA_OK(cudaMemcpy(copy->data(), t.dl()->data, bytes_of(t), cudaMemcpyDeviceToDevice));
  return copy;
}

// Likewise of any op: its inputs are zeros until a pause on the stream has ended, and its outputs are copied away behind it.
void run_in_order(const Example& e, cudaStream_t stream) {
  Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
  expect_ok(call.run());
  std::vector<std::unique_ptr<Buffer>> inputs, expected, outputs;
  for (const auto& t : e.inputs)
    if (t != nullptr) inputs.push_back(copy_of(*t));
  for (const auto& t : e.outputs)
    if (t != nullptr) expected.push_back(copy_of(*t));
  for (const auto& t : e.inputs)
    if (t != nullptr) CUDA_OK(cudaMemset(t->dl()->data, 0, bytes_of(*t)));
  for (const auto& t : e.outputs)
    if (t != nullptr) {
      CUDA_OK(cudaMemset(t->dl()->data, 0xC3, bytes_of(*t)));
      outputs.push_back(copy_of(*t));
    }
  CUDA_OK(cudaDeviceSynchronize());
  const auto start = std::chrono::steady_clock::now();
  CUDA_OK(cudaLaunchHostFunc(stream, pause, nullptr));
  size_t i = 0;
  const auto copy = [&](void* to, const void* from, const Tensor& t) {
    CUDA_OK(cudaMemcpyAsync(to, from, bytes_of(t), cudaMemcpyDeviceToDevice, stream));
  };
  for (const auto& t : e.inputs)
    if (t != nullptr) copy(t->dl()->data, inputs[i++]->data(), *t);
  call.raw.stream = stream;
  nw_error error{};
  const int32_t status = nw_run(runtime(), &call.raw, &error);
  const auto returned = std::chrono::steady_clock::now() - start;
  i = 0;
  for (const auto& t : e.outputs)
    if (t != nullptr) copy(outputs[i++]->data(), t->dl()->data, *t);
  CUDA_OK(cudaStreamSynchronize(stream));
  INFO(e.what << ": " << error.message);
  REQUIRE(status == NW_OK);
  CHECK(returned < std::chrono::milliseconds(90));  // the host did not wait for the pause
  i = 0;
  for (const auto& t : e.outputs) {
    if (t == nullptr) continue;
    std::vector<unsigned char> wanted(bytes_of(*t)), got(bytes_of(*t));
    CUDA_OK(cudaMemcpy(wanted.data(), expected[i]->data(), wanted.size(), cudaMemcpyDeviceToHost));
    CUDA_OK(cudaMemcpy(got.data(), outputs[i++]->data(), got.size(), cudaMemcpyDeviceToHost));
    CHECK(got == wanted);
  }
}

}  // namespace

TEST_CASE("streams: each op on every kind of stream", "[streams]") {
  std::vector<Example> calls = matrix_examples();
  std::set<std::string> taken;
  for (Example& e : examples(DType::f32))
    if (taken.insert(e.op).second) calls.push_back(std::move(e));
  CHECK(taken.size() == tested().num_ops);
  for (Example& e : program_examples()) calls.push_back(std::move(e));
  const Stream other;
  for (const Example& e : calls)
    for (const cudaStream_t stream : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread, static_cast<cudaStream_t>(other)}) {
      INFO("stream " << stream);
      run_in_order(e, stream);
    }
}

TEST_CASE("streams: the default stream", "[streams]") { run_in_order(nullptr); }
TEST_CASE("streams: the legacy stream by its handle", "[streams]") { run_in_order(cudaStreamLegacy); }
TEST_CASE("streams: the per-thread stream by its handle", "[streams]") { run_in_order(cudaStreamPerThread); }
// One that mistook either for the other would still be in order: these two wait for each other.
TEST_CASE("streams: a stream that blocks the legacy one does not block the per-thread one", "[streams]") {
  const std::vector<float> ones(kN, 1);
  std::vector<float> sums(kN);
  const Buffer in(kN * 4), out(kN * 4);
  CUDA_OK(cudaMemcpy(in.data(), ones.data(), kN * 4, cudaMemcpyHostToDevice));
  Addition call(device(), in.data(), in.data(), out.data(), kN);
  REQUIRE(call.run() == NW_OK);  // planned, and loaded: what loads a kernel might wait for every stream
  cudaStream_t blocking = nullptr;
  CUDA_OK(cudaStreamCreate(&blocking));
  const Stream aside;
  const auto sums_now = [&](cudaStream_t stream) {
    CUDA_OK(cudaMemcpyAsync(sums.data(), out.data(), kN * 4, cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    return sums.back();
  };
  static Gate gates[2];  // which a stream may still wait at when the test has failed
  for (const cudaStream_t stream : {cudaStreamPerThread, cudaStreamLegacy}) {
    INFO("stream " << stream);
    CUDA_OK(cudaMemset(out.data(), 0, kN * 4));
    CUDA_OK(cudaDeviceSynchronize());
    Gate& gate = gates[stream == cudaStreamLegacy];
    CUDA_OK(cudaLaunchHostFunc(blocking, wait_at, &gate));
    call.call.stream = stream;
    const int32_t status = call.run();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const float meanwhile = sums_now(aside);
    const bool was_closed = !gate.passed;
    gate.open = true;
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(status == NW_OK);
    CHECK(was_closed);
    CHECK(meanwhile == (stream == cudaStreamPerThread ? 2 : 0));
    CHECK(sums_now(aside) == 2);
  }
  CUDA_OK(cudaStreamDestroy(blocking));
}

TEST_CASE("streams: one that does not block the legacy stream", "[streams]") { run_in_order(Stream()); }

TEST_CASE("streams: one of ours is CUDA's, and one of CUDA's is ours", "[streams]") {
  void* ours = nullptr;
  REQUIRE(nw_stream_create(runtime(), device(), &ours, nullptr) == NW_OK);
  run_in_order(static_cast<cudaStream_t>(ours));
  const Stream theirs;
  CHECK(nw_stream_wait(runtime(), device(), theirs, ours, nullptr) == NW_OK);
  CHECK(nw_stream_sync(runtime(), device(), theirs, nullptr) == NW_OK);
  CHECK(nw_stream_destroy(runtime(), device(), ours, nullptr) == NW_OK);
}

TEST_CASE("streams: one waits for another without the host", "[streams]") {
  const Stream first, second;
  float *seen = nullptr, *source = nullptr;
  CUDA_OK(cudaMallocHost(&seen, 4));
  CUDA_OK(cudaMallocHost(&source, 4));
  *source = 7;
  const Buffer cell(4);
  CUDA_OK(cudaMemset(cell.data(), 0, 4));
  CUDA_OK(cudaDeviceSynchronize());
  CUDA_OK(cudaLaunchHostFunc(first, pause, nullptr));
  CUDA_OK(cudaMemcpyAsync(cell.data(), source, 4, cudaMemcpyHostToDevice, first));
  const auto start = std::chrono::steady_clock::now();
  CHECK(nw_stream_wait(runtime(), device(), second, first, nullptr) == NW_OK);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(90));
  CUDA_OK(cudaMemcpyAsync(seen, cell.data(), 4, cudaMemcpyDeviceToHost, second));
  CUDA_OK(cudaStreamSynchronize(second));
  CHECK(*seen == 7);
  CUDA_OK(cudaFreeHost(seen));
  CUDA_OK(cudaFreeHost(source));
}

TEST_CASE("streams: a default stream is not destroyed", "[streams]") {
  for (const cudaStream_t stream : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
    nw_error error{};
    expect_status(nw_stream_destroy(runtime(), device(), stream, &error), error, NW_INVALID, {"default stream"});
  }
}

// What others allocate while a call waits for its turn is not the workspace that it has yet to write.
TEST_CASE("streams: an op's stream-ordered workspace is given back in order", "[streams]") {
  constexpr unsigned char kMark = 0x5A;
  static Gate gate;  // which a stream may still wait at when the test has failed
  std::vector<Example> calls = matrix_examples();
  for (Example& e : examples(DType::f32)) calls.push_back(std::move(e));
  std::set<std::string> tried;
  for (const Example& e : calls) {
    Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
    nw_plan_info info{};
    info.struct_size = sizeof info;
    REQUIRE(nw_plan_get(runtime(), &call.raw, nullptr, &info, nullptr) == NW_OK);
    if (info.workspace_size == 0) continue;
    INFO(e.what << ", kernel " << info.kernel);
    const Stream stream, other;
    call.raw.stream = stream;
    REQUIRE(nw_run(runtime(), &call.raw, nullptr) == NW_OK);  // all is loaded now, and the pool has memory
    CUDA_OK(cudaDeviceSynchronize());
    const auto expected = e.bytes();
    gate.open = gate.passed = false;
    CUDA_OK(cudaLaunchHostFunc(stream, wait_at, &gate));
    const int32_t status = nw_run(runtime(), &call.raw, nullptr);
    std::pair<cudaStream_t, void*> blocks[32];  // a pool gives to a stream first what was freed on that one
    for (size_t i = 0; i < std::size(blocks); ++i) {
      auto& [on, block] = blocks[i];
      on = i % 2 == 0 ? nullptr : static_cast<cudaStream_t>(other);
      REQUIRE(nw_alloc(runtime(), device(), info.workspace_size, on, &block, nullptr) == NW_OK);
      CUDA_OK(cudaMemsetAsync(block, kMark, info.workspace_size, on));
    }
    // It may also let a stream wait for the call: then a block is marked later.
    const auto is_busy = [](cudaStream_t on) { return cudaStreamQuery(on) == cudaErrorNotReady; };
    for (int i = 0; i < 100 && (is_busy(nullptr) || is_busy(other)); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (void)cudaGetLastError();  // that one was not ready
    const bool was_closed = !gate.passed;
    gate.open = true;
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(status == NW_OK);
    CHECK(was_closed);
    CHECK(e.bytes() == expected);
    for (const auto& [on, block] : blocks) {
      std::vector<unsigned char> seen(info.workspace_size);
      CUDA_OK(cudaMemcpy(seen.data(), block, seen.size(), cudaMemcpyDeviceToHost));
      const bool marked = seen == std::vector<unsigned char>(seen.size(), kMark);
      CHECK(marked);
      REQUIRE(nw_free(runtime(), device(), block, on, nullptr) == NW_OK);
    }
    tried.insert(e.op);
  }
  CHECK(tried.size() >= 3);
}
