// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_cluster.h -- lltm_sequence by clusters of blocks, which keep the weights over all steps. A cluster has some rows of
// the batch, each of its blocks 32 states of these rows. After a step a block writes its states to the shared memory of all others.
// Clusters never wait for each other, and the device starts the blocks of a cluster together, so none can wait forever.
#pragma once

#include "common/lltm_sequence.h"
#include "lltm.h"

namespace narrows::gpu {

// A (steps, batch, columns) tensor of a call; base nullptr: absent, and its strides are 0. Strides in elements.
struct Sequence {
  char* base = nullptr;
  int64_t step = 0, row = 0, column = 0;
};

// Row b has the steps before lengths[b]; base nullptr: all.
struct Lengths {
  const char* base = nullptr;
  int64_t stride = 0;
};

struct LltmSequenceForward {
  int64_t batch, features, state, steps;
  bool reverse;
  Sequence input, h, cells, gates;                         // cells and gates may be absent; gates are of the accumulator's dtype
  Matrix weights, bias, old_h, old_cell, new_h, new_cell;  // bias, new_h and new_cell may be absent
  Sequence sums;  // f32: the input's product with its weights, and the bias, of all steps; absent: there are no features
  Lengths lengths;
};

// The gradients of the state, of all steps: d_h and d_cell, contiguous or not, what lltm_backward of each step gets. 0 at the steps
// that a row has not. f32 gates, as the forward call gave them.
struct LltmSequenceBackward {
  int64_t batch, state, steps;
  bool reverse;
  Sequence grad_h, cells, gates, d_h, d_cell;                      // grad_h may be absent
  Matrix weights, grad_new_h, grad_new_cell, d_old_h, d_old_cell;  // all but weights may be absent
  Lengths lengths;
};

// What a plan needs of a kernel; kernel nullptr: there is none for the call.
struct LltmClusterChoice {
  const void* kernel = nullptr;
  Grid grid{};
  bool wants_sums = false;  // LltmSequenceForward::sums
};

// `preferred`: only where it is faster than a launch for each step.
LltmClusterChoice lltm_sequence_cluster(const Device& device, const LltmSequenceSizes& sizes, bool preferred);
LltmClusterChoice lltm_sequence_backward_cluster(const Device& device, const LltmSequenceSizes& sizes, bool preferred);

}  // namespace narrows::gpu
