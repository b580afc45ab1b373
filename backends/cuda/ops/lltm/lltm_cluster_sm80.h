// SPDX-License-Identifier: Apache-2.0
// lltm_cluster_sm80.h -- blocks of a cluster in the kernels of lltm: one another's shared memory, from sm_90 on. A cluster of one
// block is a plain block on any device.
#pragma once

#include <cooperative_groups.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define NARROWS_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define NARROWS_CLUSTER(blocks)
#endif

namespace narrows::gpu {

template <int Cluster>
__device__ __forceinline__ void sync_blocks() {
#if __CUDA_ARCH__ >= 900
  if constexpr (Cluster > 1) return cooperative_groups::this_cluster().sync();
#endif
  __syncthreads();
}
// `at` of block `rank` of the cluster.
template <int Cluster, class A>
__device__ __forceinline__ A read_block(const A* at, int rank) {
#if __CUDA_ARCH__ >= 900
  if constexpr (Cluster > 1) return *cooperative_groups::this_cluster().map_shared_rank(at, static_cast<unsigned>(rank));
#endif
  return *at;
}

}  // namespace narrows::gpu
