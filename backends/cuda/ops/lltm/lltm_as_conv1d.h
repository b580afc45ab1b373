// SPDX-License-Identifier: Apache-2.0
// lltm_as_conv1d.h -- the products of lltm and lltm_backward in f32 on matrix units, as accurate as f32's own arithmetic. Each is a
// correlation of one tap, which conv1d_split_sm90a.cu computes: a channel for each term of the sum.
#pragma once

#include "lltm_backward.h"
#include "ops/conv1d/conv1d.h"

namespace narrows::gpu {

// The gates, into the workspace, then the cells.
LltmChoice lltm_as_conv1d(const LltmRequest& request);

// One product of lltm_backward; nullptr: not made for it, or, unless forced, it does not gain. `pitch`: of the gates' gradients.
// Aligned at least as stated, in bytes.
struct LltmAsConv1d {
  const Device* device;
  const LltmProduct& product;
  Strides2 operand, out;
  int64_t operand_align, out_align, pitch;
  bool forced;
};
std::unique_ptr<Part> plan_lltm_as_conv1d(const LltmAsConv1d& problem);

}  // namespace narrows::gpu
