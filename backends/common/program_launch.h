// SPDX-License-Identifier: Apache-2.0
// program_launch.h -- a call of a program on a GPU: what its text depends on, and the numbers that its kernels are handed. It knows
// no vendor.
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "program_printer.h"

namespace narrows::common {

// In-out tensors whose output is another one begin as copies: each by a kernel of its own, before the others. `inputs` holds what
// they are copied from.
KernelProgram with_copies(const KernelProgram& program, Bound* bound, std::list<ir::Buffer>* inputs);

// `most_blocks`: of one launch; of more, blocks take several iterations. Refuses an address that is no multiple of its element's
// size.
KernelLayout layout_of(const KernelProgram& program, const Bound& bound, const nw_sig& sig, int64_t most_blocks);
// All that a source depends on beside the program.
std::string key_of(const Bound& bound, const KernelLayout& layout);

struct KernelLaunch {
  size_t kernel = 0;  // of KernelProgram
  int64_t blocks = 0, threads = 0;
  int64_t shared_bytes = 0;       // as in KernelSource
  std::vector<uint64_t> numbers;  // one for each slot, at least one; of an address, 0
  struct Pointer {
    size_t slot;
    int input, output;
    uint64_t offset;  // into the workspace, where it is neither
  };
  std::vector<Pointer> pointers;

  void set_addresses(const nw_call& call, uint64_t* numbers) const;
};

struct ProgramLaunches {
  std::vector<KernelLaunch> launches;  // without those that have nothing to do
  uint64_t workspace_size = 0;
};

struct LaunchLimits {
  int64_t blocks;    // of a launch
  int64_t resident;  // that run at once: no more have parts of the workspace
  size_t slots;      // of a kernel
};

ProgramLaunches plan_launches(const KernelProgram& program, const Bound& bound, const PrintedProgram& source,
                              const LaunchLimits& limits);

}  // namespace narrows::common
