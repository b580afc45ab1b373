// SPDX-License-Identifier: Apache-2.0
// elementwise_cast_unsigned.cu -- casts to unsigned integers and bool.
#include "elementwise_cast.h"

namespace narrows::gpu {
const Kernels *const kCastsU8 = kCasts<uint8_t>, *const kCastsU16 = kCasts<uint16_t>, *const kCastsU32 = kCasts<uint32_t>,
                     *const kCastsU64 = kCasts<uint64_t>, *const kCastsBool = kCasts<bool>;
}
