// SPDX-License-Identifier: Apache-2.0
// cover.h -- rule V1: do a block's loops reach each point of its axes, and how often?
#pragma once

#include "core/program/unit.h"

namespace narrows::program {

enum class Coverage : uint8_t {
  once,      // each point, exactly once
  repeated,  // some points may run several times, or not at all; a reduction is whole wherever it runs. The block may be repeated
};

// Throws Failure: an axis leaves its domain, a point runs twice in a block that may not be repeated, a reduction is not whole, a
// tensor is not complete.
Coverage cover(const Program& program, const Unit& unit);

}  // namespace narrows::program
