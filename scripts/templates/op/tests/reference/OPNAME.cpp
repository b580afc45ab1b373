// SPDX-License-Identifier: Apache-2.0
// OPNAME.cpp -- see OPNAME.h.
#include "reference/OPNAME.h"

namespace narrows::reference {

std::vector<double> OPNAME(const std::vector<double>& x) {
  std::vector<double> y;
  for (const double value : x) y.push_back(value);
  return y;
}

}  // namespace narrows::reference
