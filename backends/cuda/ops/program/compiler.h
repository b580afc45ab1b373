// SPDX-License-Identifier: Apache-2.0
// compiler.h -- the vendor's run-time compiler, opened when the first program is planned, and modules of what it makes. Of the
// platform: NVRTC or hiprtc.
#pragma once

#include <string>

#include "backend.h"
#include "common/program_kernels.h"

namespace narrows::gpu {

// Refuses (NW_UNAVAILABLE) where there is none, with the command that installs it. Says which it is, for keys of what it made.
std::string compiler_identity();

// Its name, version and file, for people. Refuses as that does.
std::string compiler_description();

// What a program's blocks may have and use on a device, if the compiler makes code for `target`.
common::GpuLimits limits_for_programs(const Device& device, const std::string& target);

// "sm_90a", "gfx90a": what the compiler is to make code for, on this device.
std::string compiler_target(const Device& device);

// Machine code, or an intermediate one that the driver compiles. Refuses (NW_FAILED) a text that it does not take.
std::string compile_text(const std::string& text, const std::string& target);

// Loads code on the current device; it stays there as long as the process, since a captured graph may hold it.
void* load_module(const std::string& code);
// `shared_bytes`: of a block, that its launches ask for.
gpuFunction_t find_in_module(void* module, const std::string& name, int64_t shared_bytes);

}  // namespace narrows::gpu
