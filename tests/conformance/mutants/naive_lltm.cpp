// SPDX-License-Identifier: Apache-2.0
// naive_lltm.cpp -- lltm and lltm_backward, by the formulas of docs/ops.md. Forward keeps the gates of the whole batch in its
// workspace, backward their gradient: B x 3S doubles. See naive.h.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "naive.h"

namespace naive {
namespace {

constexpr int64_t kGrain = 8192;  // products: fewer are not worth a thread

double sigmoid(double z) {
  if (fault(Fault::sigmoid_overflow)) return std::exp(z) / (1 + std::exp(z));
  return 1 / (1 + std::exp(-z));
}
double sigmoid_derivative(double z) { return sigmoid(z) * sigmoid(-z); }

double elu(double z) {
  if (fault(Fault::candidate_exp_minus_1)) return z > 0 ? z : static_cast<float>(std::exp(z)) - 1.0F;
  if (fault(Fault::candidate_nan)) return std::fmax(z, 0) + std::fmin(std::expm1(z), 0);
  if (fault(Fault::f32_candidate)) return z > 0 ? static_cast<float>(z) : std::expm1(z);
  return z > 0 ? z : std::expm1(z);
}
double elu_derivative(double z) {
  if (fault(Fault::candidate_derivative) && z == 0) return 0;
  if (fault(Fault::derivative_nan)) return z <= 0 ? std::exp(z) : 1;
  return z > 0 ? 1 : std::exp(z);
}

// The sizes of a call, and [old_h, input] as one matrix (B, S + F).
struct Cell {
  View input, old_h, weights;
  int64_t batch, states, features;

  Cell(const View& input_given, const View& h_given, const View& weights_given)
      : input(input_given), old_h(h_given), weights(weights_given), batch(input.shape[0]), states(old_h.shape[1]),
        features(input.shape[1]) {}

  int64_t depth() const { return states + features; }
  double x(int64_t b, int64_t k) const {
    if (fault(Fault::input_before_h)) return k < features ? input.real(input.at(b, k)) : old_h.real(old_h.at(b, k - features));
    return k < states ? old_h.real(old_h.at(b, k)) : input.real(input.at(b, k - states));
  }
  double weight(int64_t row, int64_t k) const { return weights.real(weights.at(row, k)); }
};

// (B, 3S) doubles in the workspace; a static array would be one for all calls.
double* scratch(const Task& task, int64_t count) {
  static double shared[1 << 15];
  if (fault(Fault::shared_scratch) && count <= (1 << 15)) return shared;
  double* const own = reinterpret_cast<double*>(task.workspace);
  if (fault(Fault::reads_past_workspace) && count != 0) static_cast<void>(*static_cast<volatile double*>(own + count));
  if (fault(Fault::workspace_of_even_batches)) return own + (task.inputs[2].shape[0] % 2 == 0 ? 1 : 0);
  return own + (fault(Fault::workspace_overrun) ? 1 : 0);
}

// ---- forward ----

double gate(const Cell& s, const View& bias, int64_t b, int64_t row) {
  double sum = bias.real(bias.ndim == 1 ? bias.at(row) : bias.at(int64_t{0}, row));
  for (int64_t k = 0; k < s.depth(); ++k) {
    const bool in_f32 = s.input.dtype == DType::f32;
    sum += in_f32 ? in_parts(s.x(b, k)) * in_parts(s.weight(row, k)) : s.x(b, k) * s.weight(row, k);
    if (in_f32 && fault(Fault::sums_cut_off)) sum = cut_off(sum);
    if (fault(Fault::f16_gates)) sum = static_cast<double>(round_to(s.input.dtype, sum));
  }
  return sum;
}

void launch_lltm(const Task& task) {
  const Cell s(task.inputs[0], task.inputs[3], task.inputs[1]);
  const View &bias = task.inputs[2], &old_cell = task.inputs[4];
  const View &new_h = task.outputs[0], &new_cell = task.outputs[1], &gates = task.outputs[2];
  static std::atomic<int> launches{0};
  const bool odd = fault(Fault::order_of_calls) && ++launches % 2 == 1;  // as sums in another order would be
  double* const all = scratch(task, s.batch * 3 * s.states);
  parallel(task.host, s.batch * 3 * s.states, kGrain / (s.depth() + 1), [&](int64_t i) {
    double sum = gate(s, bias, i / (3 * s.states), i % (3 * s.states));
    if (odd) sum *= 1 + 0x1p-23;
    all[i] = fault(Fault::workspace_not_zeroed) ? all[i] + sum : sum;
  });
  // So long that another thread's call comes in between, where calls wait for a device too.
  if (fault(Fault::shared_scratch)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  parallel(task.host, s.batch * s.states, kGrain / 16, [&](int64_t at) {
    const int64_t b = at / s.states, j = at % s.states;
    if (fault(Fault::batch_of_65535) && b >= 65535) return;
    const double* const g = &all[b * 3 * s.states];
    const bool swapped = fault(Fault::gates_swapped);
    const double i = sigmoid(g[swapped ? s.states + j : j]), o = sigmoid(g[swapped ? j : s.states + j]),
                 c = elu(g[2 * s.states + j]);
    const bool shared = fault(Fault::one_state) && old_cell.data == s.old_h.data;  // taken for a state that is not there
    const double old = fault(Fault::old_cell_ignored) || shared ? 0 : old_cell.real(old_cell.at(b, j)), cell = old + c * i;
    store_real(new_cell.dtype, new_cell.at(b, j), cell);
    store_real(new_h.dtype, new_h.at(b, j), std::tanh(cell) * o);
    if (!gates || fault(Fault::gates_unwritten)) return;
    const double activated[] = {i, o, c};
    for (int64_t part = 0; part < 3; ++part)
      store_real(gates.dtype, gates.at(b, part * s.states + j),
                 fault(Fault::gates_activated) ? activated[part] : g[part * s.states + j]);
  });
}

void plan_lltm(const nw_sig& sig, Plan& plan) {
  read_params(sig, nullptr, 0);
  const Layout& gates_like = plan.inputs[plan.inputs.size() == 5 ? 3 : 9];  // old_h (B,S) of forward, gates (B,3S) of backward
  const int64_t columns = plan.inputs.size() == 5 ? 3 * gates_like.shape[1] : gates_like.shape[1];
  plan.workspace_size = columns == 0 ? 0 : static_cast<uint64_t>(gates_like.shape[0] * columns) * sizeof(double);
}

// ---- backward ----

struct Upstream {
  const View &grad_h, &grad_cell, &new_h, &new_cell, &gates;

  // The gradient of the cell's state; `grad_gates`, 3S doubles, gets those of the three gates of state j.
  double cell(int64_t b, int64_t j, int64_t states, double* grad_gates) const {
    const double h = grad_h ? grad_h.real(grad_h.at(b, j)) : 0, c_up = grad_cell ? grad_cell.real(grad_cell.at(b, j)) : 0;
    const double state = new_cell.real(new_cell.at(b, j));
    const double t = fault(Fault::reads_new_h) && new_h ? new_h.real(new_h.at(b, j)) : std::tanh(state);
    const double g0 = gate(b, j), g1 = gate(b, states + j), g2 = gate(b, 2 * states + j);
    const double slope = fault(Fault::state_derivative) ? 1 - state * state : 1 - t * t;
    const double dcell = slope * sigmoid(g1) * h + (fault(Fault::grad_cell_ignored) ? 0 : c_up);
    grad_gates[j] = elu(g2) * dcell * sigmoid_derivative(g0);
    grad_gates[states + j] = t * h * sigmoid_derivative(g1);
    grad_gates[2 * states + j] = sigmoid(g0) * dcell * elu_derivative(g2);
    return dcell;
  }
  double gate(int64_t b, int64_t column) const {
    const double value = gates.real(gates.at(b, column));
    return fault(Fault::gates_of_16_bits) ? static_cast<double>(round_to(new_cell.dtype, value)) : value;
  }
};

// The sum over the batch of dG[b, row] * factor(b).
template <class Factor>
double sum_over_batch(const Cell& s, const double* grad_gates, int64_t row, const Factor& factor) {
  double sum = 0;
  for (int64_t b = 0; b < s.batch; ++b) {
    sum += grad_gates[b * 3 * s.states + row] * factor(b);
    if (fault(Fault::f16_batch_sums)) sum = static_cast<double>(round_to(s.input.dtype, sum));
  }
  return sum;
}

void launch_sums(const Task& task, const Cell& s, const double* grad_gates) {
  const View &d_input = task.outputs[0], &d_weights = task.outputs[1], &d_bias = task.outputs[2], &d_h = task.outputs[3];
  if (d_weights)
    parallel(task.host, d_weights.size(), kGrain / (s.batch + 1), [&](int64_t i) {
      const int64_t row = i / s.depth(), k = i % s.depth();
      store_real(d_weights.dtype, d_weights.at(row, k), sum_over_batch(s, grad_gates, row, [&](int64_t b) { return s.x(b, k); }));
    });
  if (d_bias)
    parallel(task.host, d_bias.size(), kGrain / (s.batch + 1), [&](int64_t row) {
      const double sum = sum_over_batch(s, grad_gates, row, [](int64_t) { return 1.0; });
      store_real(d_bias.dtype, d_bias.ndim == 1 ? d_bias.at(row) : d_bias.at(int64_t{0}, row),
                 fault(Fault::bias_mean) ? sum / static_cast<double>(s.batch) : sum);
    });
  for (const bool of_h : {true, false}) {  // dG * weights, the first S columns of which belong to old_h
    const View& d = of_h ? d_h : d_input;
    if (!d) continue;
    const int64_t columns = d.shape[1], first = of_h ? 0 : s.states;
    parallel(task.host, d.size(), kGrain / (3 * s.states + 1), [&](int64_t i) {
      const int64_t b = i / columns, k = i % columns;
      double sum = 0;
      for (int64_t row = 0; row < 3 * s.states; ++row) sum += grad_gates[b * 3 * s.states + row] * s.weight(row, first + k);
      store_real(d.dtype, d.at(b, k), sum);
    });
  }
}

void launch_lltm_backward(const Task& task) {
  const View* const in = task.inputs;
  const Cell s(in[2], in[5], in[3]);
  const Upstream upstream{in[0], in[1], in[7], in[8], in[9]};
  if (fault(Fault::absent_gradient_h) && !in[0]) return;
  double* const grad_gates = scratch(task, s.batch * 3 * s.states);
  const View& d_cell = task.outputs[4];
  if (s.states != 0)
    parallel(task.host, s.batch * s.states, kGrain / 16, [&](int64_t at) {
      const int64_t b = at / s.states, j = at % s.states;
      const double dcell = upstream.cell(b, j, s.states, &grad_gates[b * 3 * s.states]);
      if (d_cell) store_real(d_cell.dtype, d_cell.at(b, j), dcell);
    });
  launch_sums(task, s, grad_gates);
}

}  // namespace

const Op lltm = {"lltm", 5, 3, plan_lltm, launch_lltm};
const Op lltm_backward = {"lltm_backward", 10, 5, plan_lltm, launch_lltm_backward};

}  // namespace naive
