// SPDX-License-Identifier: Apache-2.0
// capture.cpp -- CUDA graphs: every op, forward and backward, is captured with a workspace, and replayed after its plan has left
// the cache; in each of CUDA's modes, and where the capture is what loads the kernels; without a workspace it is refused.
#include <cstring>
#include <set>

#include "cuda.h"

using namespace narrows::test;

namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::u8, DType::i16, DType::i32, DType::i64};
constexpr uint64_t kMostWorkspace = uint64_t{1} << 28;  // more than any plan of the examples asks for
// The strictest first: it finds nothing loaded.
constexpr cudaStreamCaptureMode kModes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                            cudaStreamCaptureModeRelaxed};

// A captured call, ready to be replayed.
class Graph {
 public:
  template <class Body>
  Graph(cudaStream_t stream, Body&& body, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    CUDA_OK(cudaStreamBeginCapture(stream, mode));
    body();
    CUDA_OK(cudaStreamEndCapture(stream, &graph_));
    CUDA_OK(cudaGraphInstantiate(&exec_, graph_, 0));
  }
  ~Graph() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay(cudaStream_t stream) const {
    CUDA_OK(cudaGraphLaunch(exec_, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
  }
  size_t nodes() const {
    size_t count = 0;
    CUDA_OK(cudaGraphGetNodes(graph_, nullptr, &count));
    return count;
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

// What a capture is of. Its words are said where the capture's end fails, which is the next to be checked.
int32_t run_captured(const nw_call& call, nw_error* error) {
  const int32_t status = nw_run(runtime(), &call, error);
  UNSCOPED_INFO(error->message);
  return status;
}

// What a call asks of its workspace.
nw_plan_info plan_info(const nw_call& call) {
  nw_plan_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  const int32_t status = nw_plan_get(runtime(), &call, nullptr, &info, &error);
  INFO(error.message);
  REQUIRE(status == NW_OK);
  return info;
}

void poison(const Example& e) {
  for (const auto& t : e.outputs)
    if (t != nullptr) t->poison();
}

// Other numbers in every input.
void change(const Example& e, const char* tag) {
  Rng rng(tag);
  for (const auto& t : e.inputs)
    if (t != nullptr) t->fill_uniform(rng, is_float(t->dtype()) ? -1 : 0, is_float(t->dtype()) ? 1 : 60);
}

// What an eager call of the same plan gives.
void check_against_eager(const Example& e, Call& call, cudaStream_t stream) {
  const std::vector<unsigned char> replayed = e.bytes();
  poison(e);
  call.raw.workspace = nullptr;
  call.raw.workspace_size = 0;
  nw_error error{};
  const int32_t status = nw_run(runtime(), &call.raw, &error);
  INFO(error.message);
  REQUIRE(status == NW_OK);
  REQUIRE(nw_stream_sync(runtime(), device(), stream, &error) == NW_OK);
  CHECK(replayed == e.bytes());
}

// A call whose plan is made by the capture; false where the variant declines it.
bool capture_first(const Example& e, const char* kernel, cudaStreamCaptureMode mode, const Buffer& workspace) {
  Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
  const Stream stream;
  call.raw.kernel = kernel;
  call.raw.workspace = workspace.data();
  call.raw.workspace_size = kMostWorkspace;
  call.raw.stream = stream;
  poison(e);
  nw_plan_cache_clear(runtime());
  nw_error error{};
  int32_t status = NW_OK;
  INFO(e.what << ", kernel " << (kernel == nullptr ? "-" : kernel) << ", mode " << mode);
  const Graph graph(stream, [&] { status = run_captured(call.raw, &error); }, mode);
  INFO(error.message);
  if (kernel != nullptr && status == NW_UNSUPPORTED) return false;
  REQUIRE(status == NW_OK);
  CHECK(graph.nodes() > 0);
  graph.replay(stream);
  check_against_eager(e, call, stream);
  return true;
}

// Captures a call and replays it with other data, after its plan has left the cache. False: the variant declines it.
bool replay_later(const Example& e, const char* kernel) {
  Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
  call.raw.kernel = kernel;
  change(e, "before capture");
  if (call.run().was_declined()) return false;
  const nw_plan_info info = plan_info(call.raw);
  INFO(e.what << ", kernel " << info.kernel);
  REQUIRE((info.traits & NW_PLAN_CAPTURABLE) != 0);
  const Stream stream;
  const Buffer workspace(info.workspace_size + 1);
  call.raw.workspace = workspace.data();
  call.raw.workspace_size = info.workspace_size;
  call.raw.stream = stream;
  poison(e);
  nw_error error{};
  int32_t status = NW_OK;
  const Graph graph(stream, [&] { status = run_captured(call.raw, &error); });
  INFO(error.message);
  REQUIRE(status == NW_OK);
  CHECK(graph.nodes() > 0);
  for (const auto& t : e.outputs)
    if (t != nullptr && t->size() > 0) CHECK(t->is_stale(0));  // a captured call has not run
  nw_plan_cache_clear(runtime());
  change(e, "before replay");
  graph.replay(stream);
  check_against_eager(e, call, stream);
  return true;
}

}  // namespace

TEST_CASE("capture: every op, replayed with other data after its plan has left the cache", "[capture]") {
  std::set<std::string> captured;
  for (const DType dtype : kDTypes)
    for (const Example& e : examples(dtype))
      for (const char* kernel : kernels(e.op))
        if (replay_later(e, kernel) && kernel != nullptr) captured.insert(std::string(e.op) + "/" + kernel);
  expect_all_variants(captured);
}

TEST_CASE("capture: tensor programs, replayed with other data after their plans have left the cache", "[capture]") {
  for (const Example& e : program_examples()) CHECK(replay_later(e, nullptr));
}

// Alone in its process: no kernel is loaded and no library opened when the first capture begins, and the plan cache is empty at
// each. CUDA forbids much of what planning does while anybody captures in the global mode, and breaks the capture off.
TEST_CASE("capture: plans that are first made while a stream is captured, in every mode", "[.][first]") {
  const Buffer workspace(kMostWorkspace);
  std::set<std::string> captured[std::size(kModes)];
  for (const DType dtype : kDTypes)
    for (const Example& e : examples(dtype)) {
      change(e, "first made");
      for (const char* kernel : kernels(e.op))
        for (size_t i = 0; i < std::size(kModes); ++i)
          if (capture_first(e, kernel, kModes[i], workspace) && kernel != nullptr)
            captured[i].insert(std::string(e.op) + "/" + kernel);
    }
  for (const auto& variants : captured) expect_all_variants(variants);
}

TEST_CASE("capture: a call that needs a workspace and has none is refused, and the capture goes on", "[capture]") {
  int refused = 0;
  for (const DType dtype : kDTypes)
    for (const Example& e : examples(dtype))
      for (const char* kernel : kernels(e.op)) {
        Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
        call.raw.kernel = kernel;
        if (call.run().was_declined() || plan_info(call.raw).workspace_size == 0) continue;
        const Stream stream;
        call.raw.stream = stream;
        poison(e);
        nw_error error{};
        int32_t status = NW_OK;
        const Graph graph(stream, [&] { status = run_captured(call.raw, &error); });
        INFO(e.what);
        expect_status(status, error, NW_NOT_CAPTURABLE, {"captured"});
        CHECK(graph.nodes() == 0);
        graph.replay(stream);
        for (const auto& t : e.outputs)
          if (t != nullptr && t->size() > 0) CHECK(t->is_stale(0));
        ++refused;
      }
  CHECK(refused > 0);
}

TEST_CASE("capture: memory and copies that would wait are refused", "[capture]") {
  const Stream stream;
  void* data = nullptr;
  char byte = 0;
  const Buffer there(1);
  nw_error alloc_error{}, copy_error{};
  int32_t alloc_status = NW_OK, copy_status = NW_OK;
  const Graph graph(stream, [&] {
    alloc_status = nw_alloc(runtime(), device(), 64, stream, &data, &alloc_error);
    copy_status = nw_copy(runtime(), {kDLCPU, 0}, &byte, device(), there.data(), 1, stream, &copy_error);
  });
  expect_status(alloc_status, alloc_error, NW_NOT_CAPTURABLE, {"captured"});
  expect_status(copy_status, copy_error, NW_NOT_CAPTURABLE, {"captured"});
  CHECK(data == nullptr);
}
