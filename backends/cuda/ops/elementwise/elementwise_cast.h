// SPDX-License-Identifier: Apache-2.0
// elementwise_cast.h -- casts to one dtype from each.
#pragma once

#include "elementwise_convert.h"
#include "elementwise_loops.h"

namespace narrows::gpu {

// By the dtype that comes.
template <class To>
const Kernels kCasts[] = {kernels<Cast<To>, To, float, float>(),
                          kernels<Cast<To>, To, double, double>(),
                          kernels<Cast<To>, To, f16, f16>(),
                          kernels<Cast<To>, To, bf16, bf16>(),
                          kernels<Cast<To>, To, int8_t, int8_t>(),
                          kernels<Cast<To>, To, int16_t, int16_t>(),
                          kernels<Cast<To>, To, int32_t, int32_t>(),
                          kernels<Cast<To>, To, int64_t, int64_t>(),
                          kernels<Cast<To>, To, uint8_t, uint8_t>(),
                          kernels<Cast<To>, To, uint16_t, uint16_t>(),
                          kernels<Cast<To>, To, uint32_t, uint32_t>(),
                          kernels<Cast<To>, To, uint64_t, uint64_t>(),
                          kernels<CastTruth<To>, To, uint8_t, uint8_t>()};

}  // namespace narrows::gpu
