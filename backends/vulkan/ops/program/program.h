// SPDX-License-Identifier: Apache-2.0
// program.h -- tensor programs on Vulkan: their kernels are printed as GLSL, compiled at run time and kept.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend.h"

namespace narrows::vulkan {

extern const char* const kProgramKernels[];

// Plans a call of the program that the text is. `asks`: the plan will not be launched; nothing is compiled.
std::unique_ptr<Plan> plan_program(const Instance& instance, std::string_view text, const nw_sig& sig, bool asks);

// The shaders of a program's kernels for dense tensors that are all there, on the first device. Its first line says which kernel
// runs and which compiler makes it, or why none does.
std::string source_of_program(std::string_view text);

}  // namespace narrows::vulkan
