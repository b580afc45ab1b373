// SPDX-License-Identifier: Apache-2.0
// program_kernels.h -- a program as kernels of a GPU: one launch for each nest that stands outermost. Loops that are bound to
// blocks and threads come first in their kernel; where none is, the loops that may run in any order do. It knows no vendor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "program_lower.h"

namespace narrows::common {

// What a GPU's block of threads may have.
struct GpuLimits {
  int64_t threads = 1024;
  int64_t shared_bytes = 48 << 10;
  int64_t local_bytes = 16 << 10;  // of a thread; what is larger lies in the workspace
  int64_t unit_lanes = 0;          // threads of a warp, which compute a matrix unit's product together; 0: there is no unit
  bool has_pairs = false;          // the unit's product is 16 x 16 x 16: two of a program's side by side
  bool has_panels = false;         // a unit's factors may lie in shared memory in panels: find_panels() of the printer
  bool copies_ahead = false;       // from global to shared memory, while the threads compute
  bool has_groups = false;         // four warps compute a unit's product from shared memory
  std::map<std::string, std::string> no_unit;  // of intrinsics that the unit lacks: why
  bool operator==(const GpuLimits&) const = default;
};

// A loop that a kernel's blocks or threads are the iterations of.
struct KernelLoop {
  std::string name;
  ir::ExprPtr extent;  // of sizes
};

struct Kernel {
  // Blocks and threads, x first. In a kernel that has neither, each thread takes one iteration of all of `flat`, the last one's
  // being next to each other; without any, there is one thread.
  std::vector<KernelLoop> blocks, threads, flat;
  int64_t num_threads = 1;  // of a block, where the loops are bound
  bool is_bound = false;
  std::vector<Node> body;
  std::vector<std::string> remarks;  // of its text: what became of marked loops
};

// Where an allocation lies.
enum class Place {
  local,      // variables of a thread
  shared,     // a block's
  of_thread,  // in the workspace, for each thread that runs at once
  of_block,   // in the workspace, for each block that runs at once
  global,     // in the workspace
};

struct KernelProgram {
  GpuLimits limits;
  Lowered lowered;              // with all loops, those of blocks and threads outermost: for bind() and check_ranges()
  std::vector<Kernel> kernels;  // in the order of the launches
  std::map<std::string, Place> places;
};

// Refuses (Refusal, NW_UNSUPPORTED) what a GPU cannot run so: blocks that would have to wait for each other, more threads than a
// block has, a barrier that not all threads reach.
KernelProgram make_kernels(const ir::Program& program, const GpuLimits& limits);

// Whether two accesses to the same element are by the same iteration of all of `loops`. `fixed`: loops and sizes that have the same
// value for both.
bool are_apart(const std::vector<ir::ExprPtr>& a, const std::vector<ir::ExprPtr>& b, const std::vector<std::string>& loops,
               const Names& fixed, const Extents& extents);

}  // namespace narrows::common
