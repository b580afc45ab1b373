// SPDX-License-Identifier: Apache-2.0
// elementwise_cast.comp -- out = a in another dtype, by the specialization constants A and OUT.
#version 460
#define SLOTS 1
#include "elementwise_loop.glsl"
#include "bits.glsl"
#include "elementwise_cast.glsl"

uint dtype_of_slot(uint k) { return A; }

uint64_t result(uint64_t elements[SLOTS]) { return cast_bits(elements[0], A, OUT); }
