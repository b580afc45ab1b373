// SPDX-License-Identifier: Apache-2.0
// processor.h -- what the processor says of itself.
#pragma once

#include <string>

#include "backend.h"

namespace narrows::cpu {

// Whether it has the instructions, and this process may use them.
bool multiplies(Bf16Products products);

// Whether AVX512_BF16 multiplies more than f32's multiply-adds do in the same time, as on AMD's processors. Intel's start it too
// rarely.
bool pairs_are_fast();

std::string cpu_model();

}  // namespace narrows::cpu
