// SPDX-License-Identifier: Apache-2.0
// processor.h -- what the processor says of itself.
#pragma once

#include <string>

#include "backend.h"

namespace narrows::cpu {

// Whether it has the instructions, and this process may use them.
bool multiplies(Bf16Products products);

// Whether Intel made it. For choices that were measured on one maker's processors.
bool is_intel();

std::string cpu_model();

}  // namespace narrows::cpu
