// SPDX-License-Identifier: Apache-2.0
// program_barriers.h -- where the threads of a block have to wait for each other.
#pragma once

#include "program_kernels.h"

namespace narrows::common {

// Marks the nodes of a kernel before which all threads wait: where one of them could use what another one wrote, or write what
// another one has still to read. `blocks_are_independent`: no block uses what another one writes; else that is shown here. Refuses
// (NW_UNSUPPORTED) blocks that would have to wait for each other, and a barrier in a loop that not all threads run alike.
void add_barriers(Kernel* kernel, const std::map<std::string, Place>& places, bool blocks_are_independent);

}  // namespace narrows::common
