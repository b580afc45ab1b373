// SPDX-License-Identifier: Apache-2.0
// digest.h -- a program's name among all others: 32 hex digits of the XXH3-128 hash of its text. Of an op's name it is taken before
// any step of a schedule, so that every schedule of a program computes the same op.
#pragma once

#include <string>
#include <string_view>

#include "core/program/ir.h"

namespace narrows::program {

std::string digest(const Program& program);
std::string digest_of(std::string_view text);

}  // namespace narrows::program
