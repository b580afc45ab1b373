// SPDX-License-Identifier: Apache-2.0
// threads.h -- the same bits whatever the number of threads, and when run again: what every op promises, forward and backward. It
// governs their determinism tests.
#pragma once

#include <vector>

#include "support/harness.h"

namespace narrows::test {

// Runs the call twice in each of several runtimes, of 1, 2 and 5 threads (on another device than the CPU: in one), with
// NW_DETERMINISTIC, and compares all bytes of the outputs; for every kernel variant that takes it.
void expect_same_bits(const char* op, const std::vector<const Tensor*>& inputs, const std::vector<Tensor*>& outputs,
                      const Blob& params);

}  // namespace narrows::test
