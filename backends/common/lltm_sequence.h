// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.h -- what lltm_sequence and its gradients read of a signature.
#pragma once

#include "lltm.h"

namespace narrows::common {

namespace lltm_sequence_forward {
enum Input : uint32_t { kInput, kWeights, kBias, kOldH, kOldCell, kLengths, kNumInputs };
enum Output : uint32_t { kH, kNewH, kNewCell, kCells, kGates, kNumOutputs };
}  // namespace lltm_sequence_forward
namespace lltm_sequence_grad {
enum Input : uint32_t {
  kGradH,
  kGradNewH,
  kGradNewCell,
  kInput,
  kWeights,
  kBias,
  kOldH,
  kOldCell,
  kLengths,
  kH,
  kNewH,
  kNewCell,
  kCells,
  kGates,
  kNumInputs
};
enum Output : uint32_t { kDInput, kDWeights, kDBias, kDOldH, kDOldCell, kDLengths, kNumOutputs };
}  // namespace lltm_sequence_grad

struct LltmSequenceSizes {
  LltmSizes step;  // of one step
  int64_t steps;
  bool batch_first, reverse, recompute;

  // The step that is computed as the k-th one.
  int64_t time(int64_t k) const { return reverse ? steps - 1 - k : k; }
};
// `input`, `old_h`: inputs of the op.
LltmSequenceSizes lltm_sequence_sizes(const nw_sig& sig, uint32_t input, uint32_t old_h);

// Of a (steps, batch, columns) tensor, whichever of the first two comes first. All are 0 where it has no elements or is absent.
struct SequenceStrides {
  int64_t step = 0, row = 0, column = 0;
};
SequenceStrides sequence_strides(const LltmSequenceSizes& sizes, const nw_tensor_sig& t);

// The steps that a row has, of its entry of `lengths`.
constexpr int64_t steps_of(int64_t length, int64_t steps) { return length < 0 ? 0 : length < steps ? length : steps; }

}  // namespace narrows::common
