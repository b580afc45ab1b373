// SPDX-License-Identifier: Apache-2.0
// lltm_native.h -- the variants of lltm in NVIDIA's own instructions. Where their files are not built, the table is empty:
// platform/lltm_native.cpp.
#pragma once

#include "lltm_backward.h"
#include "lltm_sequence_cluster.h"

namespace narrows::gpu {

struct NativeLltm {
  LltmChoice (*wgmma)(const LltmRequest& request);      // f16, bf16 on sm_90
  LltmChoice (*mma)(const LltmRequest& request);        // f16, bf16; f32 and f64 on sm_90
  LltmChoice (*pipelined)(const LltmRequest& request);  // f32
  // Backward in f32 and f64, on sm_90. `copyable`: the rows of every operand can be copied 16 bytes at a time.
  LltmProductsChoice (*products)(const Device& device, Dtype dtype, bool copyable, LltmProducts* products);
  // Backward in f16 and bf16, which split the gates' gradients (lltm_halves_sm80.h): rows of these are whole chunks of kLltmChunk,
  // d_bias is not among the products, and others are. Columns come in whole eights, which can be copied 16 bytes at a time; by
  // wgmma the rows also have positive strides.
  LltmProductsChoice (*halves_wgmma)(const Device& device, Dtype dtype, LltmProducts* products);
  LltmProductsChoice (*halves_mma)(const Device& device, Dtype dtype, LltmProducts* products);
  // lltm_sequence but in f64, and the state's gradients of all steps, on sm_90 and newer.
  LltmClusterChoice (*sequence_cluster)(const Device& device, const LltmSequenceSizes& sizes, bool preferred);
  LltmClusterChoice (*sequence_backward_cluster)(const Device& device, const LltmSequenceSizes& sizes, bool preferred);
};
const NativeLltm& lltm_native();

LltmChoice lltm_pipelined(const LltmRequest& request);
LltmChoice lltm_wgmma(const LltmRequest& request);
LltmChoice lltm_mma(const LltmRequest& request);
LltmProductsChoice lltm_products_sm90(const Device& device, Dtype dtype, bool copyable, LltmProducts* products);
LltmProductsChoice lltm_halves_sm90a(const Device& device, Dtype dtype, LltmProducts* products);
LltmProductsChoice lltm_halves_sm80(const Device& device, Dtype dtype, LltmProducts* products);

}  // namespace narrows::gpu
