// SPDX-License-Identifier: Apache-2.0
// overlap.h -- a kernel that is there before the one ahead of it in the stream has ended, which HIP has no word for: an ordinary
// one. backends/cuda/platform/overlap.h is the other one; whichever stands on the include path is used.
#pragma once

#include "backend.h"

namespace narrows::gpu {

__device__ __forceinline__ void take_over() {}

template <class... Parameters, class... Arguments>
void launch_overlapping(int, const LoadedKernel<Parameters...>& kernel, int64_t blocks, int threads, size_t shared,
                        gpuStream_t stream, const Arguments&... arguments) {
  launch_kernel(kernel, blocks, threads, shared, stream, arguments...);
}

}  // namespace narrows::gpu
