// copy_async_sm80.h -- copies from memory into shared memory that pass no register (cp.async), and rings of stages filled by them.
// Step 5 of a tensor's path.
#pragma once

#include "gpu.h"

namespace narrows::gpu {

__device__ __forceinline__ uint32_t address_of(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Both addresses are multiples of 16. Zeros where `there` is false; `from` is then not read.
__device__ __forceinline__ void copy_16_bytes(uint32_t to, const void* from, bool there = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_4_bytes(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}

// What a thread has started since the last end is a stage; the wait is for all but the last `Open` of its stages.
__device__ __forceinline__ void end_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Open>
__device__ __forceinline__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Open) : "memory");
}

}  // namespace narrows::gpu
