// SPDX-License-Identifier: Apache-2.0
// copy_async_sm80.h -- copies from memory into shared memory that pass no register (cp.async), and rings of stages filled by them.
// They keep their order among themselves and with barriers, so that a stage is read before the barrier after which it is filled
// again; that it has arrived only the waits say. Both addresses are multiples of the size.
#pragma once

#include "gpu.h"

namespace narrows::gpu {

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// The first `count` of 16 bytes, and zeros; of none `from` is not read.
__device__ __forceinline__ void copy_part_of_16_bytes(uint32_t to, const void* from, int count) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(count));
}
// Zeros where `there` is false; `from` is then not read.
__device__ __forceinline__ void copy_16_bytes(uint32_t to, const void* from, bool there = true) {
  copy_part_of_16_bytes(to, from, there ? 16 : 0);
}
__device__ __forceinline__ void copy_4_bytes(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0));
}

// What a thread has started since the last end is a stage; the wait is for all but the last `Open` of its stages.
__device__ __forceinline__ void end_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Open>
__device__ __forceinline__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Open) : "memory");
}
// For all that a thread has started, ended or not.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace narrows::gpu
