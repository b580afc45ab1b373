// SPDX-License-Identifier: Apache-2.0
// A plugin's ops that take batches: test.centre/1 is x without the mean of each row, the last axis, with NW_OP_BATCHABLE, and so is
// its backward. test.centre_all/1 computes the same, and its declaration does not say that of batches.
#include <narrows/plugin.hpp>

using narrows::plugin::dtype;
using narrows::plugin::Launch;

void centre(const Launch& call) {
  const DLTensor& out = call.out(0);
  const int64_t length = out.shape[out.ndim - 1], rows = length == 0 ? 0 : call.size(0) / length;
  const float* const x = call.input<float>(0);
  float* const y = call.output<float>(0);
  call.parallel_for(rows, [=](int64_t row) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += x[row * length + i];
    for (int64_t i = 0; i < length; ++i) y[row * length + i] = static_cast<float>(x[row * length + i] - sum / length);
  });
}

const std::vector<DLDataType> kFloat = {dtype<float>()};

NARROWS_PLUGIN("rows",
               {.name = "test.centre/1",
                .inputs = {"x"},
                .outputs = {"y"},
                .shape_rule = "L -> L | A,L -> A,L | A,B,L -> A,B,L | A,B,C,L -> A,B,C,L",
                .kernel = centre,
                .dtypes = kFloat,
                .backward = "test.centre_backward/1",
                .flags = NW_OP_BATCHABLE},
               {.name = "test.centre_backward/1",
                .inputs = {"grad_y?", "x?", "y?"},
                .outputs = {"grad_x?"},
                .shape_rule = "L ; L? ; L? -> L | A,L ; A,L? ; A,L? -> A,L | A,B,L ; A,B,L? ; A,B,L? -> A,B,L",
                .kernel = centre,
                .dtypes = kFloat,
                .flags = NW_OP_BATCHABLE},
               {.name = "test.centre_all/1",
                .inputs = {"x"},
                .outputs = {"y"},
                .shape_rule = "L -> L | A,L -> A,L | A,B,L -> A,B,L | A,B,C,L -> A,B,C,L",
                .kernel = centre,
                .dtypes = kFloat})
