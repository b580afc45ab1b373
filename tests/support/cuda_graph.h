// SPDX-License-Identifier: Apache-2.0
// cuda_graph.h -- launches that a GPU repeats by itself, for bench.h: a CUDA graph, by the driver that is there. Nothing of CUDA is
// needed to build this, and where the device is another one there is no graph.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

namespace narrows::test {

// A function of the first library of `names` that can be opened; nullptr: there is none.
void* find_function(std::initializer_list<const char*> names, const char* function);

// The device's context is current in this thread while it lives, which CUDA's own functions want and narrows' do not.
class CurrentContext {
 public:
  explicit CurrentContext(void* stream);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  bool entered() const { return entered_; }

 private:
  bool entered_ = false;
};

class CudaGraph {
 public:
  // What `launches` puts on the stream, which is neither the legacy nor the per-thread one; nullptr: no CUDA here, or it can't be
  // captured.
  static std::unique_ptr<CudaGraph> capture(void* stream, const std::function<bool()>& launches);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  bool launch(void* stream) const;

 private:
  CudaGraph() = default;
  void *graph_ = nullptr, *exec_ = nullptr;
};

}  // namespace narrows::test
