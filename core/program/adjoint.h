// SPDX-License-Identifier: Apache-2.0
// adjoint.h -- the adjoint of a program: the program that computes the gradients of its inputs from those of its outputs. It is the
// backward of nw_op, as a text like any other: it can be scheduled, and has an adjoint itself.
#pragma once

#include "core/program/ir.h"

namespace narrows::program {

// Of a program's blocks; how its loops run does not count. Its tensors, in order:
// - inputs: the gradient of each output (optional: 0 where it is absent), each input, each output (optional unless it is read);
// - outputs: the gradient of each input, optional where the input is; 0 of an input that is no floating point.
// Throws Failure: NW_UNSUPPORTED, and which block or buffer prevents it; NW_INVALID, the program itself is not right.
Program adjoint(const Program& program);

// Is it the adjoint of the program, as adjoint() gives it? Throws what that throws.
bool is_adjoint(const Program& found, const Program& program);

}  // namespace narrows::program
