// SPDX-License-Identifier: Apache-2.0
// program_range.h -- whether the indices of a program stay within 64 bits for the sizes of a call. Verification proves them in
// bounds among all integers; a backend computes them in 64 bits.
#pragma once

#include "program_bind.h"

namespace narrows::common {

// Refuses (Refusal) a call in which a part of an index may leave +-2^62.
void check_ranges(const Bound& bound, const nw_sig& sig);

// Whether no part of an index, and no place of an element in its buffer, leaves 32 bits in a call: in elements, each part of a sum
// taken at its largest.
bool fits_32_bits(const Bound& bound, const nw_sig& sig);

}  // namespace narrows::common
