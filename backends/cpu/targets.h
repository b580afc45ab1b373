// SPDX-License-Identifier: Apache-2.0
// targets.h -- the instruction sets that kernels are compiled for, and how one is picked. Include it before
// hwy/foreach_target.h; HWY_EXPORT(F) a function of the target's namespace, call it as NARROWS_DISPATCH(instance, F)(...).
#pragma once

// SSE4, AVX2, AVX-512 and NEON, and whatever the compiler's baseline is below them; the ones between bring these kernels
// nothing. By bit, because the list of names depends on Highway's version: what lies beyond AVX-512 (bits 0 to 7), SSSE3
// (bit 12), and SVE and NEON with bfloat16 (bits 15 to 27).
#ifdef NARROWS_FEW_TARGETS
#define HWY_DISABLED_TARGETS 0x0FFF99FFLL  // for a short build: without SSE4 (bit 11) and AVX-512 (bit 8) too
#else
#define HWY_DISABLED_TARGETS 0x0FFF90FFLL
#endif
#include <hwy/targets.h>

// Highway's own table with our own index: the choice belongs to the instance, so two instances may differ.
#define NARROWS_DISPATCH(instance, F) \
  (HWY_DISPATCH_TABLE(F)[sizeof(HWY_DISPATCH_TABLE(F)) == sizeof(HWY_DISPATCH_TABLE(F)[0]) ? 0 : (instance).target_index])
