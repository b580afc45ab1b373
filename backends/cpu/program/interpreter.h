// SPDX-License-Identifier: Apache-2.0
// interpreter.h -- kernel `interpreter` of a program: always there, and right for everything. The program becomes a list of steps
// at plan time, with all sizes and strides as numbers.
#pragma once

#include <memory>

#include "common/program_bind.h"
#include "program/functions.h"

namespace narrows::cpu {

// `bound` belongs to `lowered`; neither is needed afterwards.
std::unique_ptr<Plan> plan_interpreter(const Instance& instance, const Bound& bound);

}  // namespace narrows::cpu
