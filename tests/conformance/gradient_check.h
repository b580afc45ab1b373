// SPDX-License-Identifier: Apache-2.0
// gradient_check.h -- the backward op of any op against central finite differences of its forward op, by the convention of
// nw_op.backward and nothing else that is known of the two. It governs own_backward.cpp and gradients.cpp.
#pragma once

#include "op_sampler.h"

namespace narrows::test {

enum class Values { positive, both_signs };

// All floating-point inputs are f64 (or all are f32), and there is one that a gradient can be asked of.
bool can_difference(const Sample& forward);

// Compares, and reports by FAIL_CHECK; the number of derivatives that were compared (those that are finite). On top: every gradient
// alone, with the others not wanted; and the gradient of each output absent, which is zero.
int64_t check_gradient(const Sample& forward, Values values);

}  // namespace narrows::test
