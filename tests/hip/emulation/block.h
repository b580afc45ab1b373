// SPDX-License-Identifier: Apache-2.0
// block.h -- the threads of a block, taking turns on the thread that launches them. See hip/hip_runtime.h.
#pragma once

namespace hip_emulation {

// Runs `kernel(argument)` once for each thread of the grid. One grid at a time.
void run_grid(unsigned blocks, unsigned threads, void (*kernel)(void* argument), void* argument);

}  // namespace hip_emulation
