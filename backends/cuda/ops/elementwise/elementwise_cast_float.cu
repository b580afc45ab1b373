// SPDX-License-Identifier: Apache-2.0
// elementwise_cast_float.cu -- casts to floating point.
#include "elementwise_cast.h"

namespace narrows::gpu {
const Kernels *const kCastsF32 = kCasts<float>, *const kCastsF64 = kCasts<double>, *const kCastsF16 = kCasts<f16>,
                     *const kCastsBf16 = kCasts<bf16>;
}
