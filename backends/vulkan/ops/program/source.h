// SPDX-License-Identifier: Apache-2.0
// source.h -- the kernels of a program as GLSL: a shader for each. What it has in common with other vendors' text is in
// common/program_printer.h; what the shaders include, in shaders/program.
#pragma once

#include <string>

#include "common/program_printer.h"
#include "ops/program/matrices.h"

namespace narrows::vulkan {

// KernelSource::text has a kernel's shader; PrintedProgram::text all of them.
common::PrintedProgram print_glsl(const common::KernelProgram& program, const common::Bound& bound,
                                  const common::KernelLayout& layout, const ProductUnits& units);

// So many numbers and addresses are a kernel's push constants. Of one that has more, they lie at an address.
inline constexpr size_t kPushSlots = 16;

}  // namespace narrows::vulkan
