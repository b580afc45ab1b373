// SPDX-License-Identifier: Apache-2.0
// lltm_native.cpp -- the variants of lltm in NVIDIA's own instructions.
#include "ops/lltm/lltm_native.h"

namespace narrows::gpu {

const NativeLltm& lltm_native() {
#ifdef NARROWS_CUDA_SM90A
  static constexpr NativeLltm kTable = {lltm_wgmma,        lltm_mma,         lltm_pipelined,        lltm_products_sm90,
                                        lltm_halves_sm90a, lltm_halves_sm80, lltm_sequence_cluster, lltm_sequence_backward_cluster};
#else
  static constexpr NativeLltm kTable = {nullptr, lltm_mma,         lltm_pipelined,        lltm_products_sm90,
                                        nullptr, lltm_halves_sm80, lltm_sequence_cluster, lltm_sequence_backward_cluster};
#endif
  return kTable;
}

}  // namespace narrows::gpu
