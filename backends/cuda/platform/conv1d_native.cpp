// SPDX-License-Identifier: Apache-2.0
// conv1d_native.cpp -- the kernels of conv1d in NVIDIA's own instructions.
#include "ops/conv1d/conv1d_native.h"

namespace narrows::gpu {

const NativeConv1d& conv1d_native() {
  static constexpr NativeConv1d kTable = {.fir = plan_fir_async,
                                          .gemm = plan_gemm_pipelined,
                                          .grad_w_gemm = plan_grad_w_gemm_pipelined,
                                          .mma = plan_mma,
                                          .grad_w_mma = plan_grad_w_mma,
#ifdef NARROWS_CUDA_SM90A
                                          .split = plan_split,
                                          .grad_w_split = plan_grad_w_split,
                                          .wgmma = plan_wgmma,
                                          .grad_w_wgmma = plan_grad_w_wgmma
#endif
  };
  return kTable;
}

}  // namespace narrows::gpu
