// SPDX-License-Identifier: Apache-2.0
// overlap.h -- a kernel that is there before the one ahead of it in the stream has ended. backends/hip/platform/overlap.h is the
// other one; whichever stands on the include path is used.
#pragma once

#include "backend.h"

namespace narrows::gpu {

// First of all in such a kernel: waits until the one ahead has ended, and then lets the next one come. Afterwards everything is as
// after an ordinary launch.
__device__ __forceinline__ void take_over() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// launch_kernel() of a kernel that calls take_over(), as it was compiled for devices of this generation: blocks start where the
// last ones of the kernel ahead leave room, and wait there.
template <class... Parameters, class... Arguments>
void launch_overlapping(int generation, const LoadedKernel<Parameters...>& kernel, int64_t blocks, int threads, size_t shared,
                        gpuStream_t stream, const Arguments&... arguments) {
  launch_kernel(kernel, Grid{static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared, generation >= 90}, stream,
                arguments...);
}
template <class... Parameters, class... Arguments>
void launch_overlapping(int generation, void (*kernel)(Parameters...), int64_t blocks, int threads, size_t shared,
                        gpuStream_t stream, const Arguments&... arguments) {
  launch_overlapping(generation, LoadedKernel<Parameters...>{kernel}, blocks, threads, shared, stream, arguments...);
}

}  // namespace narrows::gpu
