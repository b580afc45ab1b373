// SPDX-License-Identifier: Apache-2.0
// program_ahead.h -- loops that a `pipeline` step marked: their first nodes copy from global to shared memory for later iterations,
// while the threads compute with what has arrived. Each buffer is there once for each of some stages. Sums of a matrix unit that
// lie in registers all the while lend their own shared memory to the stages. program_printer_ahead.cpp prints it.
#pragma once

#include <cstdint>

#include "program_kernels.h"

namespace narrows::common {

// Decides for each marked loop of a kernel, of which the barriers are set and no buffer is padded yet. `used`: bytes of shared
// memory; grows by the stages. As many stages as fit, at most those that the step names.
void plan_ahead(Kernel* kernel, const KernelProgram& program, int64_t* used);

}  // namespace narrows::common
