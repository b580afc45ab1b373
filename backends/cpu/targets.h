// targets.h -- the instruction sets that kernels are compiled for, and how one is picked. Include it before
// hwy/foreach_target.h; HWY_EXPORT(F) a function of the target's namespace, call it as NARROWS_DISPATCH(instance, F)(...).
#pragma once

// SSE4, AVX2, AVX-512 and NEON, and whatever the compiler's baseline is below them; the ones between bring these kernels nothing.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR)
#include <hwy/targets.h>

// Highway's own table with our own index: the choice belongs to the instance, so two instances may differ.
#define NARROWS_DISPATCH(instance, F) \
  (HWY_DISPATCH_TABLE(F)[sizeof(HWY_DISPATCH_TABLE(F)) == sizeof(HWY_DISPATCH_TABLE(F)[0]) ? 0 : (instance).target_index])
