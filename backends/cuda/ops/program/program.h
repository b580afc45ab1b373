// SPDX-License-Identifier: Apache-2.0
// program.h -- tensor programs on a GPU: their kernels are printed, compiled at run time and kept.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend.h"

namespace narrows::gpu {

extern const char* const kProgramKernels[];

// Plans a call of the program that the text is. `asks`: the plan will not be launched; nothing is compiled.
std::unique_ptr<Plan> plan_program(const Instance& instance, std::string_view text, const nw_sig& sig, bool asks);

// The text of a program's kernels for dense tensors that are all there. Its first line says which compiler takes it.
std::string source_of_program(std::string_view text);

}  // namespace narrows::gpu
