// SPDX-License-Identifier: Apache-2.0
// backend.h -- the instance of a GPU backend, its devices and its ops. plugin.cpp holds the table; ops/<op>/ plans and launches one
// op. These sources make two plugins, cuda and hip: see platform/gpu.h.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "common/integers.h"
#include "common/plugin.h"
#include "gpu.h"

namespace narrows::gpu {

using namespace common;

// Read once, while the instance is made.
struct Device {
  int id;
  int compute_capability;  // 90 for sm_90; 0 on another vendor's device
  int generation;          // the newest of those that the kernels were compiled for which runs here, by its code or its PTX
  int multiprocessors;
  int threads_per_multiprocessor;
  int warp_size;
  size_t shared_memory;  // the most that a block may have, in bytes
  size_t l2_cache;       // bytes
  size_t total_memory;   // bytes
};

// Stream-ordered memory of a device, made at its first use.
struct Pool {
  std::once_flag made;
  gpuMemPool_t handle = nullptr;  // nullptr after `made`: the device has no pools
};

// What create() makes, once per runtime. Immutable afterwards, but for the pools and peers.
struct Instance {
  const nw_host* host;
  bool checked;  // NARROWS_CHECK=1: every tensor's memory is looked up before a launch
  std::vector<Device> devices;
  std::unique_ptr<Pool[]> pools;            // one for each device
  std::unique_ptr<std::once_flag[]> peers;  // of [device][other]: whether it was let to reach the other one's memory

  const Device& device(const nw_sig& sig) const { return devices[static_cast<size_t>(sig.device.device_id)]; }
};

// Made when the plugin is loaded: what clang could make while it compiles, it would put on the device as well, `plan` included.
struct Op : common::Op<Instance> {
  Op(const char* op, const char* const* variants, decltype(plan) planner) : common::Op<Instance>{op, variants, planner} {}
};
#define NARROWS_OP(name) extern const Op name;
#include "ops.inc"
#undef NARROWS_OP

// Throws Refusal for anything but success. `doing`: "launching kernel 'vector'".
void check(gpuError_t error, const char* doing);

// Said after each thing that a call puts on a stream. What fails from then on is NW_FAILED: the statuses that promise that nothing
// was enqueued are gone.
void mark_enqueued();

// Throws Refusal if the device that the stream belongs to is lost; nullptr: the current device. For calls of others that fail,
// whose own words say nothing of it; the stream may be one that is being captured.
void refuse_lost_device(gpuStream_t stream);

// Around calls that may fail as foreseen. AMD's runtime is the caller's too: an error that they leave is taken out of its last
// error again, but for one that was there before.
class ForeseenErrors {
 public:
  ForeseenErrors() = default;
  ~ForeseenErrors() {
    if (none_before_) (void)gpuGetLastError();
  }
  ForeseenErrors(const ForeseenErrors&) = delete;
  ForeseenErrors& operator=(const ForeseenErrors&) = delete;

 private:
  bool none_before_ = gpuPeekAtLastError() == gpuSuccess;
};

// What a launch is made of.
struct Grid {
  unsigned blocks, threads;
  size_t shared;         // dynamic shared memory of a block, in bytes
  bool overlaps;         // see overlap.h
  unsigned cluster = 1;  // blocks that the device starts together, which reach each other's shared memory; 1: none do
};
// Of the platform: a kernel as the current device's driver knows it, nullptr: by its symbol alone; and its launch by either.
gpuFunction_t find_function(const void* symbol);
gpuError_t launch_symbol(const void* symbol, gpuFunction_t function, const Grid& grid, void** arguments, gpuStream_t stream);

// A kernel as a plan keeps it. `function` is of the device that it was loaded on; nullptr: each launch looks for the symbol.
template <class... Parameters>
struct LoadedKernel {
  void (*symbol)(Parameters...) = nullptr;
  gpuFunction_t function = nullptr;
};

// What the runtime knows a kernel by.
template <class... Parameters>
const void* kernel_address(void (*kernel)(Parameters...)) {
  return gpuSymbol(kernel);
}

// Planning: loads the kernel on the current device, allows it at least `shared` bytes of dynamic shared memory.
gpuFunction_t load_kernel(const void* kernel, size_t shared = 0);
template <class... Parameters>
LoadedKernel<Parameters...> load_kernel(void (*kernel)(Parameters...), size_t shared = 0) {
  return {kernel, load_kernel(kernel_address(kernel), shared)};
}

// Puts a kernel on a stream. Its own return code is read, so an error that was there before is not mistaken for this call's.
template <class... Parameters, class... Arguments>
void launch_kernel(const LoadedKernel<Parameters...>& kernel, const Grid& grid, gpuStream_t stream, const Arguments&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  [&](std::conditional_t<true, Parameters, Arguments>... values) {
    void* list[] = {const_cast<void*>(static_cast<const void*>(&values))...};
    check(launch_symbol(kernel_address(kernel.symbol), kernel.function, grid, list, stream), "launching a kernel");
    mark_enqueued();
  }(arguments...);
}
template <class... Parameters, class... Arguments>
void launch_kernel(const LoadedKernel<Parameters...>& kernel, int64_t blocks, int threads, size_t shared, gpuStream_t stream,
                   const Arguments&... arguments) {
  launch_kernel(kernel, Grid{static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared, false}, stream, arguments...);
}
template <class... Parameters, class... Arguments>
void launch_kernel(void (*kernel)(Parameters...), int64_t blocks, int threads, size_t shared, gpuStream_t stream,
                   const Arguments&... arguments) {
  launch_kernel(LoadedKernel<Parameters...>{kernel}, blocks, threads, shared, stream, arguments...);
}

inline constexpr int64_t kMaxBlocks = 0x7fffffff;  // of a grid's x, the one dimension that is used

inline gpuStream_t stream_of(const nw_call& call) { return static_cast<gpuStream_t>(call.stream); }

}  // namespace narrows::gpu
