// SPDX-License-Identifier: Apache-2.0
// compiled.h -- stands before each text that the emulation's hiprtc compiles. See ../compiler.cpp.
#pragma once

#include "hip_runtime.h"

namespace hip_emulation {
// The threads' positions and the barrier are those of the process that loads the object.
struct Bindings {
  Position *thread, *block, *block_size, *grid_size;
  void (*barrier)();
};
static Bindings bindings;
inline void barrier() { bindings.barrier(); }
}  // namespace hip_emulation
extern "C" __attribute__((visibility("default"))) void hip_emulation_bind(const hip_emulation::Bindings* bindings) {
  hip_emulation::bindings = *bindings;
}

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#define threadIdx (*::hip_emulation::bindings.thread)
#define blockIdx (*::hip_emulation::bindings.block)
#define blockDim (*::hip_emulation::bindings.block_size)
#define gridDim (*::hip_emulation::bindings.grid_size)

// A kernel finds its arguments by the list of their addresses.
#define NW_KERNEL(name, Args, threads)                                             \
  static void name##_of(const Args& A);                                            \
  extern "C" __attribute__((visibility("default"))) void name(void** parameters) { \
    name##_of(*static_cast<const Args*>(parameters[0]));                           \
  }                                                                                \
  static void name##_of(const Args& A)
