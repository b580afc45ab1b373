// SPDX-License-Identifier: Apache-2.0
// source.h -- the kernels of a program as text for the vendor's run-time compiler: CUDA and HIP alike. What it has in common with
// other vendors' is in common/program_printer.h.
#pragma once

#include <string>

#include "common/program_printer.h"

namespace narrows::gpu {

namespace ir = ::narrows::program;
using common::KernelLayout;
using common::KernelSource;
using common::PrintedProgram;
using common::Slot;

PrintedProgram print_gpu(const common::KernelProgram& program, const common::Bound& bound, const KernelLayout& layout);

// What every text begins with: types, conversions, and, `with_functions`, the functions of elementwise.
std::string gpu_prelude(bool with_functions);

}  // namespace narrows::gpu
