// SPDX-License-Identifier: Apache-2.0
// elementwise_cast_signed.cu -- casts to signed integers.
#include "elementwise_cast.h"

namespace narrows::gpu {
const Kernels *const kCastsI8 = kCasts<int8_t>, *const kCastsI16 = kCasts<int16_t>, *const kCastsI32 = kCasts<int32_t>,
                     *const kCastsI64 = kCasts<int64_t>;
}
