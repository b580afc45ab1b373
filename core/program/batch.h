// SPDX-License-Identifier: Apache-2.0
// batch.h -- along which sizes a program is a batch of calls, by its S and R axes: nw_op.batch of its op. docs/abi.md, "Batches".
#pragma once

#include <string>

#include "core/program/ir.h"

namespace narrows::program {

// The ways, such as "M | N once y"; "": there is none. A part of the program that none of the rules below knows makes it no way.
std::string batch_of(const Program& program);

}  // namespace narrows::program
