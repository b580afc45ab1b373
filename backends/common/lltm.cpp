// SPDX-License-Identifier: Apache-2.0
// lltm.cpp -- reads the signature of lltm and sizes its products.
#include "lltm.h"

#include "integers.h"

namespace narrows::common {

using namespace lltm_grad;

LltmSizes lltm_sizes(const nw_sig& sig, uint32_t x, uint32_t old_h) {
  return {float_dtype(sig, x), input(sig, x).shape[0], input(sig, x).shape[1], input(sig, old_h).shape[1]};
}

bool lltm_grad_is_aligned(const nw_sig& sig) {
  for (uint32_t i = 0; i < sig.num_inputs + sig.num_outputs; ++i)
    if (i != kBias && i != kOldCell && i != kNewH && !is_aligned(sig.tensors[i])) return false;
  return true;
}

bool lltm_grad_has_terms(const nw_sig& sig, const LltmSizes& sizes) {
  return (has_input(sig, kGradH) || has_input(sig, kGradCell)) && sizes.batch != 0 && sizes.state != 0;
}

Extents2 lltm_grad_extents(const LltmSizes& z, uint32_t i) {
  if (i == kDInput) return {z.batch, z.features};
  if (i == kDWeights) return {3 * z.state, z.state + z.features};
  if (i == kDBias) return {1, 3 * z.state};
  return {z.batch, z.state};  // d_old_h, d_old_cell
}

GateGradsLayout gate_grads_layout(const LltmSizes& z, int64_t unit) {
  const int64_t pitch = round_up(3 * z.state, unit);
  int64_t bytes;
  if (__builtin_mul_overflow(pitch * size_of(accumulate_dtype(z.dtype)), z.batch, &bytes) || bytes > INT64_MAX / 4)
    refuse(NW_OUT_OF_MEMORY, -1, "lltm_backward: the gradient of %lld x %lld gates needs more bytes than the address space has",
           static_cast<long long>(z.batch), static_cast<long long>(3 * z.state));
  return {pitch, static_cast<uint64_t>(round_up(bytes, NW_WORKSPACE_ALIGN))};
}

std::vector<LltmGradProduct> lltm_grad_products(const nw_sig& sig, const LltmSizes& z) {
  const int64_t gates = 3 * z.state;
  const LltmGradProduct all[] = {{kWeights, kDOldH, false, 0, 0, z.batch, z.state, gates},
                                 {kWeights, kDInput, false, z.state, 0, z.batch, z.features, gates},
                                 {kOldH, kDWeights, true, 0, 0, gates, z.state, z.batch},
                                 {kInput, kDWeights, true, 0, z.state, gates, z.features, z.batch},
                                 {kNumInputs, kDBias, true, 0, 0, gates, 1, z.batch}};
  std::vector<LltmGradProduct> products;
  for (const LltmGradProduct& product : all)
    if (has_output(sig, product.to) && product.columns != 0) products.push_back(product);
  return products;
}

}  // namespace narrows::common
