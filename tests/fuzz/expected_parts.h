// SPDX-License-Identifier: Apache-2.0
// expected_parts.h -- the expectations of the single ops, for oracle.h, and what they share.
#pragma once

#include "call.h"

namespace narrows::fuzz {

using Reals = std::vector<Exact>;
using Values = std::vector<Reals>;

DType sum_dtype(DType dtype);  // in which a kernel adds up
Expected zeros(const TensorSpec& t);

std::vector<Expected> expected_conv1d(const Case& c, const Values& v);
std::vector<Expected> expected_lltm(const Case& c, const Values& v);

Expected expected_elementwise(const Case& c, const Values& v);
std::vector<Expected> expected_gradients(const Case& c, const Values& v);

}  // namespace narrows::fuzz
