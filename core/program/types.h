// SPDX-License-Identifier: Apache-2.0
// types.h -- what a program must be before anything is proven about it: names, types, shapes, affine subscripts, the form of
// reductions, and limits. That its accesses are in bounds and its schedule is right is verify.h's.
#pragma once

#include <string>
#include <vector>

#include "core/program/ir.h"

namespace narrows::program {

constexpr int kMaxLoops = 64;         // in each other
constexpr int kMaxStatements = 8192;  // loops and blocks in all
constexpr int kMaxParts = 1 << 18;    // of all expressions
constexpr int kMaxDepth = 1024;       // of one expression
constexpr int kMaxRank = 16;          // as docs/ops.md has it for every op
constexpr int kMaxAxes = 64;          // of one block
constexpr int kMaxStores = 64;        // of one block; what is proven of it grows with their square
constexpr int kMaxTensors = 32;       // inputs and outputs, as of every op
constexpr int kMaxParams = 64;

// Throws Failure (NW_INVALID) that names the block, loop, buffer or axis.
void check(const Program& program);

// The sizes: the names that the dimensions of required inputs bind, in the order in which they first stand.
std::vector<std::string> sizes_of(const Program& program);

}  // namespace narrows::program
