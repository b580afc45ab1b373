// lltm_native.h -- the variants of lltm in NVIDIA's own instructions. Step 5 of a tensor's path. Where their files are not built,
// the table is empty: platform/lltm_native.cpp.
#pragma once

#include "lltm_backward.h"

namespace narrows::gpu {

struct NativeLltm {
  LltmChoice (*wgmma)(const LltmRequest& request);      // f16, bf16 on sm_90
  LltmChoice (*mma)(const LltmRequest& request);        // f16, bf16; f32 and f64 on sm_90
  LltmChoice (*pipelined)(const LltmRequest& request);  // f32
  // Backward, on sm_90. `copyable`: the rows of every operand can be copied 16 bytes at a time.
  LltmProductsChoice (*products)(const Device& device, Dtype dtype, bool copyable, LltmProducts* products);
};
const NativeLltm& lltm_native();

LltmChoice lltm_pipelined(const LltmRequest& request);
LltmChoice lltm_wgmma(const LltmRequest& request);
LltmChoice lltm_mma(const LltmRequest& request);
LltmProductsChoice lltm_products_sm90(const Device& device, Dtype dtype, bool copyable, LltmProducts* products);

}  // namespace narrows::gpu
