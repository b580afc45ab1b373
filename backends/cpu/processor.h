// SPDX-License-Identifier: Apache-2.0
// processor.h -- what the processor says of itself.
#pragma once

#include <string>

#include "backend.h"

namespace narrows::cpu {

// Whether it has the instructions, and this process may use them.
bool multiplies(Bf16Products products);

std::string cpu_model();

}  // namespace narrows::cpu
