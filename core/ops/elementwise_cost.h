// SPDX-License-Identifier: Apache-2.0
// elementwise_cost.h -- what the costs in the table of element-wise functions mean.
#pragma once

namespace narrows {

// The cost from which on a function takes tens of cycles an element.
constexpr int kCostly = 30;

}  // namespace narrows
