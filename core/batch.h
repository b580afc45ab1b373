// SPDX-License-Identifier: Apache-2.0
// batch.h -- nw_op.batch and NW_OP_BATCHABLE: along which sizes of its shape rule a call of an op is a batch of calls. docs/abi.md,
// "Batches".
#pragma once

#include <narrows/abi.h>

#include "core/shape_rule.h"

namespace narrows {

// Checks what the op declares. `rule`: its shape rule, or NULL. Throws Failure (NW_INVALID) that shows the declaration.
void check_batch(const nw_op& op, const ShapeRule* rule);

}  // namespace narrows
