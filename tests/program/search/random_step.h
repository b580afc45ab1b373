// SPDX-License-Identifier: Apache-2.0
// random_step.h -- a random step for a schedule, with arguments that exist: most are possible, some are not.
#pragma once

#include <string>

#include "core/program/schedule.h"
#include "random_program.h"

namespace narrows::search {

// `for_gpu`: a third of the steps are those that give loops to blocks and threads, and buffers to their memory.
std::string random_step(Random& random, const program::Schedule& schedule, bool for_gpu);

}  // namespace narrows::search
