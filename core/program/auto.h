// SPDX-License-Identifier: Apache-2.0
// auto.h -- the schedule of a program that has none: contractions are tiled, packed and vectorised; element-wise chains become one
// block; row reductions share a loop over rows; what is outermost is parallel. Each step is one of schedule.h's, so all of it is
// verified, and the trace shows it.
#pragma once

#include <string_view>

#include "core/program/schedule.h"

namespace narrows::program {

// What the schedule is for.
struct Machine {
  int vector_bytes = 64;
  int vector_registers = 32;
};

Machine this_machine();

// Takes steps on a schedule, mostly on one without any. A step that is refused is left out.
void schedule_for_cpu(Schedule* schedule, const Machine& machine);

// For blocks and threads of a GPU: a product's tile for each block, a row that is reduced for each block, and runs of elements of
// element-wise blocks. `has_unit`: products of f16 and bf16 with sums in f32 are a matrix unit's. What gets no step is left to the
// backend, which gives each iteration of free loops a thread.
void schedule_for_gpu(Schedule* schedule, bool has_unit = false);

// The names of plugins for which there is one: "cpu" has that of this machine, the others that of GPUs.
inline constexpr std::string_view kScheduledBackends[] = {"cpu", "cuda", "hip", "vulkan"};

// By such a name. False: it is none, and no step was taken.
bool schedule_by_default(Schedule* schedule, std::string_view backend);

}  // namespace narrows::program
