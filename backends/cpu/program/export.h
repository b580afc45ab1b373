// SPDX-License-Identifier: Apache-2.0
// export.h -- writes an ordinary plugin with compiled programs inside, which needs neither libnarrows_program nor a compiler where
// it is loaded.
#pragma once

#include <string>
#include <vector>

#include "backend.h"

namespace narrows::cpu {

// `texts`: the program as it is to run, then its adjoint, then the adjoint's, each the backward of the one before. `op`: the name
// of the op, "vendor.name/1"; empty: it is made of the plugin's and the program's. `path`: narrows_<plugin>.so, a file that is not
// there. `label`: what the cpu backend's device shows of the instance's target. Refuses what cannot be compiled or written; nothing
// is left behind then.
void export_programs(const Instance& instance, const char* label, const std::vector<std::string>& texts, const std::string& op,
                     const std::string& path);

}  // namespace narrows::cpu
