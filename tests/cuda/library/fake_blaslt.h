/* SPDX-License-Identifier: Apache-2.0 */
/* fake_blaslt.h -- device memory as fake_blaslt.c has it: so far above the host memory that plays it that neither is taken for the
 * other. Only factors lie there; operands and results are the host's. */
#pragma once

#include <stdint.h>

#define FAKE_DEVICE_MEMORY UINT64_C(0x1000000000000)

#ifdef __cplusplus
inline const float* on_fake_device(const float& factor) {
  return reinterpret_cast<const float*>(reinterpret_cast<uintptr_t>(&factor) + FAKE_DEVICE_MEMORY);
}
#endif
