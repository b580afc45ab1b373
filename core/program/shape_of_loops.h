// SPDX-License-Identifier: Apache-2.0
// shape_of_loops.h -- what each kind of loop has to look like, whatever it computes.
#pragma once

#include "core/program/ir.h"

namespace narrows::program {

// vectorize: a constant extent, and a cap on it. unroll: a constant extent, and a cap on the stores in all. Throws Failure.
void require_shape(const For& loop);

// No loop is bound to the thread that one around it is bound to, and within one nest the loops of one thread have one extent.
void require_threads(const Program& program);

}  // namespace narrows::program
