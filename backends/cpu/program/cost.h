// SPDX-License-Identifier: Apache-2.0
// cost.h -- what a program's loops cost: it decides how many threads run them. Only the order of magnitude matters.
#pragma once

#include <vector>

#include "common/program_bind.h"
#include "program/functions.h"

namespace narrows::cpu {

using LoopPath = std::vector<const Node*>;  // from the outermost to the innermost

// One iteration of a loop's body, in multiply-adds as run_tasks() takes them.
double cost_of(const std::vector<Node>& body, const Numbers& numbers);

// The stores of one block at one point of the loops around. `function`: how much longer functions take than the kernels of vectors.
double cost_of_stores(const Node& stores, const LoopPath& around, const Numbers& numbers, double function = 1);

constexpr double kUnknownTrips = 16;
double trips_of(const Node& loop, const Numbers& numbers);

}  // namespace narrows::cpu
