// SPDX-License-Identifier: Apache-2.0
// nvtx.h -- ranges for tools that listen to NVTX, such as Nsight Systems: each launch is one, by the op's name.
#pragma once

#include <atomic>
#include <string>

namespace narrows {

// Attaches the tool that NVTX_INJECTION64_PATH names, once in a process. What is wrong with it; NULL: nothing, or there is none.
const char* attach_nvtx();

struct NvtxFunctions {
  int (*push)(const char* message) = nullptr;
  int (*pop)() = nullptr;
};
// NULL where no tool listens, which is all that a launch then looks at.
extern std::atomic<const NvtxFunctions*> nvtx;

// One range of this thread.
class NvtxRange {
 public:
  // `label` is called where a tool listens.
  template <class Label>
  explicit NvtxRange(const Label& label) : functions_(nvtx.load(std::memory_order_relaxed)) {
    if (__builtin_expect(functions_ != nullptr, 0)) functions_->push(std::string(label()).c_str());
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
  ~NvtxRange() {
    if (__builtin_expect(functions_ != nullptr, 0)) functions_->pop();
  }

 private:
  const NvtxFunctions* functions_;
};

}  // namespace narrows
