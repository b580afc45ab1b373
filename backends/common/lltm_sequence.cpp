// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.cpp -- reads the signature of lltm_sequence.
#include "lltm_sequence.h"

namespace narrows::common {

LltmSequenceSizes lltm_sequence_sizes(const nw_sig& sig, uint32_t x, uint32_t old_h) {
  const auto p = read_params<nw_lltm_sequence_params>(sig);
  const nw_tensor_sig &sequence = input(sig, x), &state = input(sig, old_h);
  const bool batch_first = p.batch_first != 0;
  return {{float_dtype(sig, x), state.shape[0], sequence.shape[2], state.shape[1]},
          sequence.shape[batch_first ? 1 : 0],
          batch_first,
          p.reverse != 0,
          p.recompute != 0};
}

SequenceStrides sequence_strides(const LltmSequenceSizes& sizes, const nw_tensor_sig& t) {
  if (t.ndim != 3 || !has_elements(t)) return {};
  return {t.strides[sizes.batch_first ? 1 : 0], t.strides[sizes.batch_first ? 0 : 1], t.strides[2]};
}

}  // namespace narrows::common
