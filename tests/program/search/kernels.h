// SPDX-License-Identifier: Apache-2.0
// kernels.h -- a scheduled program by a backend's own kernels, compared with the reference that rounds as they do.
#pragma once

#include <cstdint>
#include <string>

#include "reference/program.h"

class Plugin;

namespace narrows::search {

// Not where a loop is bound to blocks or threads, which a CPU has not.
bool runs_on_cpu(const program::Program& program);

// Of a plugin that says that it cannot run a program: a GPU's, of loops that its blocks and threads cannot be.
inline constexpr const char* kDeclined = "declined";

// What is wrong with what `kernel` ("compiled" or "interpreter") computes; empty: nothing. Each value must be the reference's, bit
// for bit: both keep the order of the loops. `seed` draws the tensors' strides.
std::string wrong_by_kernel(const Plugin& plugin, const program::Program& program, const reference::Arguments& arguments,
                            const char* kernel, uint64_t seed);

}  // namespace narrows::search
