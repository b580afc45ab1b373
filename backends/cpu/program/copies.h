// SPDX-License-Identifier: Apache-2.0
// copies.h -- a lowered program without its copies of inputs. A schedule packs what may be large, before the sizes of a call are
// known. Of what is small a copy takes longer than it saves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/program_bind.h"

namespace narrows::cpu {

struct WithoutCopies {
  common::Lowered lowered;
  std::vector<std::string> inputs;  // that were copied
};

// Whole copies whose rows are runs of an input's rows, of an input whose shape a call decides; what read a copy reads the input.
// Nothing: there are none.
std::optional<WithoutCopies> without_copies(const common::Lowered& lowered);

// Whether a call is better off without them; `bound`: of the program with them.
bool is_small_without_copies(const WithoutCopies& direct, const common::Bound& bound);

}  // namespace narrows::cpu
