// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.cpp -- see lltm_sequence.h.
#include "reference/lltm_sequence.h"

#include <algorithm>
#include <cstddef>

#include "reference/lltm.h"

namespace narrows::reference {
namespace {

using Values = std::vector<double>;

// Row `row` of a matrix with so many columns.
Values row_of(const Values& matrix, int64_t row, int64_t columns) {
  const auto begin = matrix.begin() + row * columns;
  return {begin, begin + columns};
}
void set_row(Values* matrix, int64_t row, const Values& values) {
  std::copy(values.begin(), values.end(), matrix->begin() + row * static_cast<int64_t>(values.size()));
}
Values row_or_zeros(const Values& matrix, int64_t row, int64_t columns) {
  return matrix.empty() ? Values(static_cast<size_t>(columns)) : row_of(matrix, row, columns);
}
void add(Values* to, const Values& more) {
  for (size_t i = 0; i < more.size(); ++i) (*to)[i] += more[i];
}
Values zeros(int64_t a, int64_t b, int64_t c) { return Values(static_cast<size_t>(a * b * c)); }

int64_t steps_of(const LltmSequence& z, const LltmSequenceInputs& in, int64_t b) {
  return in.lengths.empty() ? z.steps : std::clamp<int64_t>(in.lengths[static_cast<size_t>(b)], 0, z.steps);
}

}  // namespace

LltmSequenceOutputs lltm_sequence(const LltmSequence& z, const LltmSequenceInputs& in) {
  const int64_t s = z.states;
  LltmSequenceOutputs out{zeros(z.steps, z.batch, s), in.old_h, in.old_cell, zeros(z.steps, z.batch, s),
                          zeros(z.steps, z.batch, 3 * s)};
  for (int64_t b = 0; b < z.batch; ++b) {
    const int64_t steps = steps_of(z, in, b);
    Values h = row_of(in.old_h, b, s), cell = row_of(in.old_cell, b, s);
    for (int64_t k = 0; k < steps; ++k) {
      const int64_t row = (z.reverse ? steps - 1 - k : k) * z.batch + b;
      const LltmOutputs step = lltm({1, z.features, s}, {row_of(in.input, row, z.features), in.weights, in.bias, h, cell});
      h = step.new_h, cell = step.new_cell;
      set_row(&out.h, row, h), set_row(&out.cells, row, cell), set_row(&out.gates, row, step.gates);
    }
    set_row(&out.new_h, b, h), set_row(&out.new_cell, b, cell);
  }
  return out;
}

LltmSequenceGradients lltm_sequence_backward(const LltmSequence& z, const LltmSequenceInputs& in, const LltmSequenceSaved& saved) {
  const int64_t s = z.states;
  const Lltm one{1, z.features, s};
  LltmSequenceGradients grad{zeros(z.steps, z.batch, z.features), Values(in.weights.size()), zeros(1, 1, 3 * s),
                             zeros(1, z.batch, s), zeros(1, z.batch, s)};
  for (int64_t b = 0; b < z.batch; ++b) {
    const int64_t steps = steps_of(z, in, b);
    Values d_h = row_or_zeros(saved.grad_new_h, b, s), d_cell = row_or_zeros(saved.grad_new_cell, b, s);
    for (int64_t k = steps; k-- > 0;) {
      const int64_t t = z.reverse ? steps - 1 - k : k, row = t * z.batch + b, before = (z.reverse ? t + 1 : t - 1) * z.batch + b;
      add(&d_h, row_or_zeros(saved.grad_h, row, s));
      const LltmInputs inputs{
          row_of(in.input, row, z.features), in.weights, in.bias, k == 0 ? row_of(in.old_h, b, s) : row_of(saved.h, before, s), {}};
      const LltmGradients step =
          lltm_backward(one, d_h, d_cell, inputs, row_of(saved.cells, row, s), row_of(saved.gates, row, 3 * s));
      set_row(&grad.input, row, step.input);
      add(&grad.weights, step.weights), add(&grad.bias, step.bias);
      d_h = step.old_h, d_cell = step.old_cell;
    }
    set_row(&grad.old_h, b, d_h), set_row(&grad.old_cell, b, d_cell);
  }
  return grad;
}

}  // namespace narrows::reference
