// SPDX-License-Identifier: Apache-2.0
// memory_check.h -- whose memory is this? Asked of the driver for every tensor of a call and its workspace, with NARROWS_CHECK=1.
#pragma once

#include "backend.h"

namespace narrows::gpu {

// Refuses a tensor or a workspace whose bytes are not those of one allocation that `device` can reach, and a stream of another
// device. `workspace_size`: what the plan needs of it.
void check_memory(const nw_call& call, uint64_t workspace_size, int32_t device);

}  // namespace narrows::gpu
