// conv1d_fir.h -- long filters over one input channel. Step 5 of a tensor's path.
#pragma once

#include "conv1d.h"

namespace narrows::gpu {

std::unique_ptr<Part> plan_fir(const CorrelationProblem& problem);

}  // namespace narrows::gpu
