// SPDX-License-Identifier: Apache-2.0
// OPNAME.h -- float64 reference of OPNAME: the formula of docs/ops.md on dense row-major arrays.
// It shares no code with core or a backend.
#pragma once

#include <vector>

namespace narrows::reference {

std::vector<double> OPNAME(const std::vector<double>& x);

}  // namespace narrows::reference
