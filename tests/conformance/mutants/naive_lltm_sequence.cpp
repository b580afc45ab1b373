// SPDX-License-Identifier: Apache-2.0
// naive_lltm_sequence.cpp -- lltm_sequence and lltm_sequence_backward, by the formulas of docs/ops.md: row after row of the batch,
// step after step. See naive.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "naive.h"

namespace naive {
namespace {

double sigmoid(double z) { return z < 0 ? std::exp(z) / (1 + std::exp(z)) : 1 / (1 + std::exp(-z)); }
double elu(double z) { return z > 0 ? z : std::expm1(z); }

// A sequence by step and row, whichever axis is which.
double at(const View& v, bool batch_first, int64_t t, int64_t b, int64_t column) {
  return batch_first ? v.real(v.at(b, t, column)) : v.real(v.at(t, b, column));
}
void store(const View& v, bool batch_first, int64_t t, int64_t b, int64_t column, double value) {
  if (v) store_real(v.dtype, batch_first ? v.at(b, t, column) : v.at(t, b, column), value);
}

struct Shape {
  int64_t steps, batch, features, states;
  bool batch_first, reverse;

  Shape(const Plan& plan, const Layout& input, const Layout& old_h)
      : batch(old_h.shape[0]), features(input.shape[2]), states(old_h.shape[1]), batch_first(plan.sequence.batch_first != 0),
        reverse(plan.sequence.reverse != 0 && !fault(Fault::reverse_ignored)) {
    steps = input.shape[batch_first ? 1 : 0];
  }
  int64_t length(const View& lengths, int64_t b) const {
    if (!lengths || fault(Fault::lengths_ignored)) return steps;
    const int64_t given = load_integer(lengths.dtype, lengths.at(b));
    return fault(Fault::length_unclamped) && given < 0 ? steps : std::clamp<int64_t>(given, 0, steps);
  }
  // The step that is the k-th one of a row.
  int64_t time(int64_t k, int64_t length) const {
    return !reverse ? k : (fault(Fault::reverse_from_the_end) ? steps : length) - 1 - k;
  }
};

double bias_of(const View& bias, int64_t row) {
  return !bias ? 0 : bias.real(bias.ndim == 1 ? bias.at(row) : bias.at(int64_t{0}, row));
}

// One row of the batch.
struct Row {
  const Shape& z;
  const View &input, &weights, &bias;
  int64_t b;
  std::vector<double> h, cell, gates;

  Row(const Shape& shape, const View& input_given, const View& weights_given, const View& bias_given, const View& old_h,
      const View& old_cell, int64_t row)
      : z(shape), input(input_given), weights(weights_given), bias(bias_given), b(row) {
    for (int64_t s = 0; s < z.states; ++s)
      h.push_back(old_h.real(old_h.at(b, s))), cell.push_back(old_cell.real(old_cell.at(b, s)));
    gates.resize(static_cast<size_t>(3 * z.states));
  }

  void step(int64_t t, DType dtype) {
    for (int64_t g = 0; g < 3 * z.states; ++g) {
      double sum = fault(Fault::bias_skipped) && t > 0 ? 0 : bias_of(bias, g);
      for (int64_t k = 0; k < z.states; ++k) sum += h[static_cast<size_t>(k)] * weights.real(weights.at(g, k));
      for (int64_t k = 0; k < z.features; ++k) sum += at(input, z.batch_first, t, b, k) * weights.real(weights.at(g, z.states + k));
      gates[static_cast<size_t>(g)] = sum;
    }
    const auto states = static_cast<size_t>(z.states);
    for (size_t s = 0; s < states; ++s) {
      const double next = cell[s] + elu(gates[2 * states + s]) * sigmoid(gates[s]);
      h[s] = std::tanh(next) * sigmoid(gates[states + s]);
      cell[s] = next;
      if (!fault(Fault::state_unrounded))
        h[s] = static_cast<double>(round_to(dtype, h[s])), cell[s] = static_cast<double>(round_to(dtype, cell[s]));
    }
  }
};

void launch_lltm_sequence(const Task& task) {
  const View *const in = task.inputs, *const out = task.outputs;
  const Shape z(task.plan, in[0], in[3]);
  const bool first = z.batch_first;
  parallel(task.host, z.batch, 1, [&](int64_t b) {
    Row row(z, in[0], in[1], in[2], in[3], in[4], b);
    const int64_t length = z.length(in[5], b);
    for (int64_t t = 0; t < z.steps && !fault(Fault::padding_unwritten); ++t)
      for (int64_t s = 0; s < z.states; ++s) {
        store(out[0], first, t, b, s, 0);
        if (task.plan.sequence.recompute != 0) continue;
        store(out[3], first, t, b, s, 0);
        for (int64_t g = 0; g < 3; ++g) store(out[4], first, t, b, g * z.states + s, 0);
      }
    for (int64_t k = 0; k < length; ++k) {
      const int64_t t = z.time(k, length);
      row.step(t, out[0].dtype);
      for (int64_t s = 0; s < z.states; ++s) {
        store(out[0], first, t, b, s, row.h[static_cast<size_t>(s)]);
        if (task.plan.sequence.recompute != 0) continue;
        store(out[3], first, t, b, s, row.cell[static_cast<size_t>(s)]);
        for (int64_t g = 0; g < 3; ++g)
          store(out[4], first, t, b, g * z.states + s, row.gates[static_cast<size_t>(g * z.states + s)]);
      }
    }
    for (int64_t s = 0; s < z.states; ++s) {
      const bool lost = fault(Fault::state_of_padding) && length < z.steps;
      store_real(out[1].dtype, out[1].at(b, s), lost ? 0 : row.h[static_cast<size_t>(s)]);
      store_real(out[2].dtype, out[2].at(b, s), row.cell[static_cast<size_t>(s)]);
    }
  });
}

// ---- backward ----

// The gradients of the gates of all steps, (steps, batch, 3 states), and those of the state.
struct Backward {
  const Task& task;
  const View* in;
  Shape z;
  std::vector<double> grad, h_before, d_h, d_cell;

  std::vector<double> start(const View& v) const {
    std::vector<double> values(static_cast<size_t>(z.batch * z.states));
    for (int64_t i = 0; v && i < z.batch * z.states; ++i) values[static_cast<size_t>(i)] = v.real(v.at(i / z.states, i % z.states));
    return values;
  }
  size_t index(int64_t t, int64_t b, int64_t s, int64_t columns) const {
    return static_cast<size_t>((t * z.batch + b) * columns + s);
  }

  void row(int64_t b) {
    const int64_t length = z.length(in[8], b);
    std::vector<Row> again;  // each step's, where nothing was saved
    const bool recompute = task.plan.sequence.recompute != 0;
    if (recompute) again.emplace_back(z, in[3], in[4], in[5], in[6], in[7], b);
    for (int64_t k = 0; recompute && k < length; ++k)
      again.push_back(again.back()), again.back().step(z.time(k, length), in[3].dtype);
    for (int64_t k = length; k-- > 0;) {
      const int64_t t = z.time(k, length), before = z.time(k - 1, length);
      for (int64_t s = 0; s < z.states; ++s) {
        h_before[index(t, b, s, z.states)] = k == 0 ? in[6].real(in[6].at(b, s)) : at(in[9], z.batch_first, before, b, s);
        gates(t, b, s, recompute ? &again[static_cast<size_t>(k + 1)] : nullptr);
      }
      spread(t, b);
    }
  }
  void gates(int64_t t, int64_t b, int64_t s, const Row* again) {
    const auto gate = [&](int64_t g) {
      return again != nullptr ? again->gates[static_cast<size_t>(g * z.states + s)]
                              : at(in[13], z.batch_first, t, b, g * z.states + s);
    };
    const double cell = std::tanh(again != nullptr ? again->cell[static_cast<size_t>(s)] : at(in[12], z.batch_first, t, b, s));
    const double i = sigmoid(gate(0)), o = sigmoid(gate(1)), c = elu(gate(2));
    const size_t state = index(0, b, s, z.states);
    const double h = d_h[state] + (in[0] ? at(in[0], z.batch_first, t, b, s) : 0);
    if (fault(Fault::cell_not_carried)) d_cell[state] = 0;
    const double d = (1 - cell * cell) * o * h + d_cell[state];
    grad[index(t, b, s, 3 * z.states)] = c * d * i * (1 - i);
    grad[index(t, b, z.states + s, 3 * z.states)] = cell * h * o * (1 - o);
    grad[index(t, b, 2 * z.states + s, 3 * z.states)] = i * d * (gate(2) > 0 ? 1 : std::exp(gate(2)));
    d_cell[state] = d;
  }
  void spread(int64_t t, int64_t b) {
    for (int64_t s = 0; s < z.states; ++s) d_h[index(0, b, s, z.states)] = product(t, b, s);
  }
  double product(int64_t t, int64_t b, int64_t column) const {
    double sum = 0;
    for (int64_t g = 0; g < 3 * z.states; ++g) sum += grad[index(t, b, g, 3 * z.states)] * in[4].real(in[4].at(g, column));
    return sum;
  }
  // The sum over all steps and rows of the gradient of gate g times what `factor` says.
  template <class Factor>
  double sum(int64_t g, const Factor& factor) const {
    double total = 0;
    for (int64_t t = 0; t < z.steps; ++t)
      for (int64_t b = 0; b < z.batch; ++b)
        if (t < z.length(in[8], b)) total += grad[index(t, b, g, 3 * z.states)] * factor(t, b);
    return total;
  }
  double operand(int64_t t, int64_t b, int64_t k) const {
    return k < z.states ? h_before[index(t, b, k, z.states)] : at(in[3], z.batch_first, t, b, k - z.states);
  }
  void outputs() const {
    const View *const out = task.outputs, &d_weights = out[1], &d_bias = out[2];
    for (int64_t t = 0; t < z.steps; ++t)
      for (int64_t b = 0; b < z.batch; ++b)
        for (int64_t f = 0; out[0] && f < z.features; ++f) store(out[0], z.batch_first, t, b, f, product(t, b, z.states + f));
    for (int64_t g = 0; g < 3 * z.states; ++g) {
      for (int64_t k = 0; d_weights && k < z.states + z.features; ++k)
        store_real(d_weights.dtype, d_weights.at(g, k), sum(g, [&](int64_t t, int64_t b) { return operand(t, b, k); }));
      if (d_bias)
        store_real(d_bias.dtype, d_bias.ndim == 1 ? d_bias.at(g) : d_bias.at(int64_t{0}, g),
                   sum(g, [](int64_t, int64_t) { return 1.0; }));
    }
    for (int64_t i = 0; i < z.batch * z.states; ++i) {
      if (out[3]) store_real(out[3].dtype, out[3].at(i / z.states, i % z.states), d_h[static_cast<size_t>(i)]);
      if (out[4]) store_real(out[4].dtype, out[4].at(i / z.states, i % z.states), d_cell[static_cast<size_t>(i)]);
    }
  }
};

void launch_lltm_sequence_backward(const Task& task) {
  Backward all{task, task.inputs, {task.plan, task.inputs[3], task.inputs[6]}, {}, {}, {}, {}};
  all.d_h = all.start(task.inputs[1]), all.d_cell = all.start(task.inputs[2]);
  if (fault(Fault::new_state_ignored)) std::fill(all.d_h.begin(), all.d_h.end(), 0.0);
  if (all.z.states != 0) {
    all.grad.resize(static_cast<size_t>(all.z.steps * all.z.batch * 3 * all.z.states));
    all.h_before.resize(static_cast<size_t>(all.z.steps * all.z.batch * all.z.states));
    for (int64_t b = 0; b < all.z.batch; ++b) all.row(b);
  }
  all.outputs();
}

void plan_lltm_sequence(const nw_sig& sig, Plan& plan) { read_params(sig, &plan.sequence, sizeof plan.sequence); }

}  // namespace

const Op lltm_sequence = {"lltm_sequence", 6, 5, plan_lltm_sequence, launch_lltm_sequence};
const Op lltm_sequence_backward = {"lltm_sequence_backward", 14, 6, plan_lltm_sequence, launch_lltm_sequence_backward};

}  // namespace naive
