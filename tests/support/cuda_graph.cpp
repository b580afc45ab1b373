// SPDX-License-Identifier: Apache-2.0
// cuda_graph.cpp -- see cuda_graph.h. CUresult is an int of which 0 is success; handles are pointers (cuda.h of CUDA 12 and newer).
#include "cuda_graph.h"

#include <dlfcn.h>

#include "harness.h"

namespace narrows::test {
namespace {

constexpr int kCaptureThreadLocal = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

// Calls a function of the driver; true: it is there and succeeded.
template <class... Args>
bool driver(const char* function, Args... args) {
  void* const found = find_function({"libcuda.so.1"}, function);
  return found != nullptr && reinterpret_cast<int (*)(Args...)>(found)(args...) == 0;
}

}  // namespace

void* find_function(std::initializer_list<const char*> names, const char* function) {
  for (const char* name : names)  // opened again and again, never closed: its count of users is all that grows
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return dlsym(library, function);
  return nullptr;
}

CurrentContext::CurrentContext(void* stream) {
  void* context = nullptr;
  entered_ = driver("cuStreamGetCtx", stream, &context) && driver("cuCtxPushCurrent_v2", context);
}

CurrentContext::~CurrentContext() {
  void* context = nullptr;
  if (entered_) driver("cuCtxPopCurrent_v2", &context);
}

std::unique_ptr<CudaGraph> CudaGraph::capture(void* stream, const std::function<bool()>& launches) {
  if (device().device_type != kDLCUDA || stream == nullptr) return nullptr;
  const CurrentContext context(stream);
  std::unique_ptr<CudaGraph> made(new CudaGraph);
  if (!context.entered() || !driver("cuStreamBeginCapture_v2", stream, kCaptureThreadLocal)) return nullptr;
  const bool launched = launches();
  const bool ended = driver("cuStreamEndCapture", stream, &made->graph_);
  if (!launched || !ended || !driver("cuGraphInstantiateWithFlags", &made->exec_, made->graph_, 0ULL)) return nullptr;
  return made;
}

CudaGraph::~CudaGraph() {
  if (exec_ != nullptr) driver("cuGraphExecDestroy", exec_);
  if (graph_ != nullptr) driver("cuGraphDestroy", graph_);
}

bool CudaGraph::launch(void* stream) const {
  const CurrentContext context(stream);
  return driver("cuGraphLaunch", exec_, stream);
}

}  // namespace narrows::test
