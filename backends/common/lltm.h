// SPDX-License-Identifier: Apache-2.0
// lltm.h -- what lltm and its gradients read of a signature, and the products that the gradients are. G = [old_h, input] *
// weights^T + bias is the gates before activation: input gate, output gate and candidate, each `state` wide.
#pragma once

#include <vector>

#include "float_dtype.h"
#include "tensors.h"

namespace narrows::common {

// The tensors of lltm, and those of lltm_backward.
namespace lltm_forward {
enum Input : uint32_t { kInput, kWeights, kBias, kOldH, kOldCell, kNumInputs };
enum Output : uint32_t { kNewH, kNewCell, kGates, kNumOutputs };
}  // namespace lltm_forward
namespace lltm_grad {
enum Input : uint32_t { kGradH, kGradCell, kInput, kWeights, kBias, kOldH, kOldCell, kNewH, kNewCell, kGates, kNumInputs };
enum Output : uint32_t { kDInput, kDWeights, kDBias, kDOldH, kDOldCell, kNumOutputs };
}  // namespace lltm_grad

struct LltmSizes {
  Dtype dtype;
  int64_t batch, features, state;
};
// `input`, `old_h`: inputs of the op.
LltmSizes lltm_sizes(const nw_sig& sig, uint32_t input, uint32_t old_h);

// ---- lltm_backward ----

// Whether every tensor that lltm_backward reads or writes lies on its elements' size. It reads neither bias nor old_cell nor new_h.
bool lltm_grad_is_aligned(const nw_sig& sig);
// Whether there is anything to sum. If not, all gradients are 0, and the extents that are not 0 may be too large to count with.
bool lltm_grad_has_terms(const nw_sig& sig, const LltmSizes& sizes);

// The (rows, columns) of a gradient.
struct Extents2 {
  int64_t rows, columns;
};
Extents2 lltm_grad_extents(const LltmSizes& sizes, uint32_t output);

// The gradient of G as it lies in the workspace: (batch, 3 * state) of the accumulator's dtype.
struct GateGradsLayout {
  int64_t pitch;   // elements from one row to the next
  uint64_t bytes;  // whole NW_WORKSPACE_ALIGN
};
// Rows are of whole `unit`s. Refuses one that is larger than any memory.
GateGradsLayout gate_grads_layout(const LltmSizes& sizes, int64_t unit);

// A product that spreads the gradient of G: to[i, to_column + j] = the sum over k of G[i, k] * operand[k, operand_column + j], or,
// toward the weights, of G[k, i] * operand[k, operand_column + j].
struct LltmGradProduct {
  uint32_t operand, to;  // an input; an output. kNumInputs: ones, which make the sums that d_bias is
  bool to_weights;
  int64_t operand_column, to_column;
  int64_t rows, columns, depth;
};
// Those of the wanted gradients, long reductions first, so that they do not end last; d_bias is the last.
std::vector<LltmGradProduct> lltm_grad_products(const nw_sig& sig, const LltmSizes& sizes);

}  // namespace narrows::common
