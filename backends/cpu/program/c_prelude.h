// SPDX-License-Identifier: Apache-2.0
// c_prelude.h -- what stands in front of every program's C: types, arithmetic of subscripts, f16 and bf16.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "core/program/ir.h"

namespace narrows::cpu {

// `types`: vectors by element and lanes; `parts`: those of which a part is read or written. `helpers`: nw_from_f16 and the like, by
// lanes.
std::string c_prelude(const std::set<std::pair<program::DType, int>>& types, const std::set<std::pair<program::DType, int>>& parts,
                      const std::set<std::pair<std::string, int>>& helpers);

}  // namespace narrows::cpu
