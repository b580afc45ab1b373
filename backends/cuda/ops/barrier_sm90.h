// SPDX-License-Identifier: Apache-2.0
// barrier_sm90.h -- barriers in shared memory that count arrivals and bytes (mbarrier), and stores to other blocks of a cluster
// that tell their barriers.
#pragma once

#include "copy_async_sm80.h"

namespace narrows::gpu {

__device__ __forceinline__ void init_barrier(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_at(uint32_t barrier, int rank) {  // the same barrier of block `rank` of the cluster
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
}

// The place of this block's shared memory in that of block `rank` of the cluster.
__device__ __forceinline__ uint32_t address_in(uint32_t shared, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
  return there;
}
// 16 bytes to such a place, of which the same block's `barrier` is told. Who waits for the barrier sees the bytes.
__device__ __forceinline__ void send_16_bytes(uint32_t there, uint4 bytes, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there),
               "r"(bytes.x), "r"(bytes.y), "r"(bytes.z), "r"(bytes.w), "r"(barrier)
               : "memory");
}

}  // namespace narrows::gpu
