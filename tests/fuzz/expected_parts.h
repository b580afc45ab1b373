// SPDX-License-Identifier: Apache-2.0
// expected_parts.h -- what expected.cpp and expected_elementwise.cpp share.
#pragma once

#include "call.h"

namespace narrows::fuzz {

using Reals = std::vector<Exact>;
using Values = std::vector<Reals>;

DType sum_dtype(DType dtype);  // in which a kernel adds up
Expected zeros(const TensorSpec& t);

Expected expected_elementwise(const Case& c, const Values& v);
std::vector<Expected> expected_gradients(const Case& c, const Values& v);

}  // namespace narrows::fuzz
