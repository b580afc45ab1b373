// SPDX-License-Identifier: Apache-2.0
// lltm_model.cpp -- forward, backward, update. See lltm_model.h.
#include "lltm_model.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace narrows::tools {
namespace {

std::vector<float> uniform(std::mt19937& random, size_t count, double bound) {
  std::vector<float> values(count);
  // std::uniform_real_distribution differs between libraries; the same seed shall give the same weights everywhere.
  for (float& v : values) v = static_cast<float>(bound * (2.0 * random() / 4294967296.0 - 1));
  return values;
}

// A linear layer is a conv1d of one tap: (T, B, C) as a signal of C channels and T*B samples, without a copy.
Tensor as_signal(const Tensor& t) {
  const int64_t channels = t.size(2), rows = t.size(0) * t.size(1);
  return t.reshape({rows, channels}).transposed();
}

}  // namespace

LltmModel::LltmModel(const Engine& engine, Shape shape, uint32_t seed) : engine_(engine), shape_(shape) {
  const int64_t states = shape.states, features = shape.features, columns = states + features;
  std::mt19937 random(seed);
  const double bound = 1 / std::sqrt(static_cast<double>(states));
  weights_ = parameter({3 * states, columns}, uniform(random, static_cast<size_t>(3 * states * columns), bound));
  bias_ = parameter({3 * states}, uniform(random, static_cast<size_t>(3 * states), bound));
  out_weights_ = parameter({features, states, 1}, std::vector<float>(static_cast<size_t>(features * states)));
  out_bias_ = parameter({features}, std::vector<float>(static_cast<size_t>(features)));
}

LltmModel::Parameter LltmModel::parameter(std::initializer_list<int64_t> shape, std::span<const float> values) const {
  return {engine_.upload(values, shape), engine_.zeros(shape), engine_.zeros(shape)};
}

void LltmModel::prepare(Buffers& b, const Sequences& s) const {
  if (b.steps == s.steps && b.rows == s.rows) return;
  const int64_t steps = s.steps, rows = s.rows, features = shape_.features, states = shape_.states;
  b = {steps,
       rows,
       engine_.zeros({steps + 1, rows, states}),
       engine_.zeros({steps + 1, rows, states}),
       engine_.empty({steps, rows, 3 * states}),
       engine_.empty({steps, rows, features}),
       engine_.empty({steps, rows, features}),
       engine_.empty({steps, rows, states}),
       {engine_.empty({rows, states}), engine_.empty({rows, states})},
       {engine_.empty({rows, states}), engine_.empty({rows, states})},
       engine_.empty({3 * states, states + features}),
       engine_.empty({3 * states}),
       engine_.empty({steps, rows, features})};
}

Operation LltmModel::cell_operation(const Tensor& input, const Tensor& h, const Tensor& cell, const Tensor& new_h,
                                    const Tensor& new_cell, const Tensor* gates) const {
  return {"lltm", {&input, &weights_.value, &bias_.value, &h, &cell}, {&new_h, &new_cell, gates}};
}

// Step t reads the state at t and writes the one at t + 1, which the read-out reads.
void LltmModel::forward(const Buffers& b, const Sequences& s, int64_t begin, int64_t count) const {
  for (int64_t t = begin; t < begin + count; ++t) {
    const Tensor gates = b.gates[t];
    engine_.run(cell_operation(s.input[t], b.h[t], b.cell[t], b.h[t + 1], b.cell[t + 1], &gates));
  }
  const Tensor h = as_signal(b.h.slice(0, begin + 1, count)), y = as_signal(b.prediction.slice(0, begin, count));
  engine_.run({"conv1d", {&h, &out_weights_.value, &out_bias_.value}, {&y}, nw_conv1d_params{}});
}

void LltmModel::backward(const Buffers& b, const Sequences& s, int64_t begin, int64_t count) const {
  const Tensor error = b.d_prediction.slice(0, begin, count), prediction = b.prediction.slice(0, begin, count);
  engine_.run(elementwise(NW_EW_SUB, {prediction, s.target.slice(0, begin, count)}, error));
  engine_.run(elementwise(NW_EW_MUL, {error, s.weight.slice(0, begin, count)}, error));
  engine_.run(elementwise(NW_EW_SQUARE, {error}, b.squared.slice(0, begin, count)));
  // The derivative of the squared error, per prediction of an average step.
  const double scale = 2.0 / static_cast<double>(count * s.rows * shape_.features);
  engine_.run(elementwise(NW_EW_MUL, {error, scale}, error));

  const Tensor d_y = as_signal(error), h = as_signal(b.h.slice(0, begin + 1, count)), d_h = as_signal(b.d_h.slice(0, begin, count));
  engine_.run({"conv1d_backward",
               {&d_y, &h, &out_weights_.value, nullptr, nullptr},
               {&d_h, &out_weights_.gradient, &out_bias_.gradient},
               nw_conv1d_params{}});

  for (int64_t t = begin + count - 1, first = 1; t >= begin; --t, first = 0) {
    const Tensor d_new_h = b.d_h[t], input = s.input[t], old_h = b.h[t], old_cell = b.cell[t], new_h = b.h[t + 1],
                 new_cell = b.cell[t + 1], gates = b.gates[t];
    const Tensor &after_h = b.d_state[(t + 1) % 2], &after_cell = b.d_cell[(t + 1) % 2], &d_old_h = b.d_state[t % 2],
                 &d_old_cell = b.d_cell[t % 2];
    if (!first) engine_.run(elementwise(NW_EW_ADD, {d_new_h, after_h}, d_new_h));
    const Tensor &d_weights = first ? weights_.gradient : b.d_weights, &d_bias = first ? bias_.gradient : b.d_bias;
    engine_.run({"lltm_backward",
                 {&d_new_h, first ? nullptr : &after_cell, &input, &weights_.value, &bias_.value, &old_h, &old_cell, &new_h,
                  &new_cell, &gates},
                 {nullptr, &d_weights, &d_bias, &d_old_h, &d_old_cell}});
    if (first) continue;
    engine_.run(elementwise(NW_EW_ADD, {weights_.gradient, d_weights}, weights_.gradient));
    engine_.run(elementwise(NW_EW_ADD, {bias_.gradient, d_bias}, bias_.gradient));
  }
}

// Momentum with weight decay, in place: v = momentum*v + g; w = (1 - rate*decay)*w - rate*v.
void LltmModel::update(const Parameter& p, const Rates& rates) const {
  engine_.run(elementwise(NW_EW_FMA, {p.velocity, rates.momentum, p.gradient}, p.velocity));
  engine_.run(elementwise(NW_EW_MUL, {p.value, 1 - rates.learning_rate * rates.decay}, p.value));
  engine_.run(elementwise(NW_EW_FMA, {p.velocity, -rates.learning_rate, p.value}, p.value));
}

double LltmModel::train(const Sequences& s, int64_t truncation, const Rates& rates) {
  prepare(training_, s);
  for (int64_t begin = 0; begin < s.steps; begin += truncation) {
    const int64_t count = std::min(truncation, s.steps - begin);
    forward(training_, s, begin, count);
    backward(training_, s, begin, count);
    for (const Parameter* p : {&weights_, &bias_, &out_weights_, &out_bias_}) update(*p, rates);
  }
  double sum = 0;
  for (const float value : engine_.download(training_.squared)) sum += value;
  return sum / static_cast<double>(s.predictions * shape_.features);
}

std::vector<float> LltmModel::predict(const Sequences& s) {
  prepare(predicting_, s);
  forward(predicting_, s, 0, s.steps);
  return engine_.download(predicting_.prediction);
}

LltmModel::CellCheck LltmModel::check_cell(const Sequences& s) {
  prepare(training_, s);
  const Buffers& b = training_;
  const int64_t warm = std::min<int64_t>(s.steps - 1, 8);
  forward(b, s, 0, warm + 1);
  const Tensor input = s.input[warm], h = b.h[warm], cell = b.cell[warm], new_h = b.h[warm + 1], new_cell = b.cell[warm + 1],
               gates = b.gates[warm];
  CellCheck c;
  c.step = {s.rows,
            shape_.features,
            shape_.states,
            engine_.download(input),
            engine_.download(weights_.value),
            engine_.download(bias_.value),
            engine_.download(h),
            engine_.download(cell)};
  c.new_h = engine_.download(new_h), c.new_cell = engine_.download(new_cell), c.gates = engine_.download(gates);

  std::mt19937 random(1);
  c.grad_h = uniform(random, c.new_h.size(), 1), c.grad_cell = uniform(random, c.new_h.size(), 1);
  const Tensor grad_h = engine_.upload(c.grad_h, {s.rows, shape_.states}),
               grad_cell = engine_.upload(c.grad_cell, {s.rows, shape_.states});
  const Tensor d_input = engine_.empty({s.rows, shape_.features});
  const Operation forward_step = cell_operation(input, h, cell, new_h, new_cell, &gates);
  const Operation backward_step{"lltm_backward",
                                {&grad_h, &grad_cell, &input, &weights_.value, &bias_.value, &h, &cell, &new_h, &new_cell, &gates},
                                {&d_input, &b.d_weights, &b.d_bias, &b.d_state[0], &b.d_cell[0]}};
  engine_.run(backward_step);
  c.d_input = engine_.download(d_input), c.d_weights = engine_.download(b.d_weights), c.d_bias = engine_.download(b.d_bias);
  c.d_old_h = engine_.download(b.d_state[0]), c.d_old_cell = engine_.download(b.d_cell[0]);
  const double multiplications = 3.0 * static_cast<double>(s.rows * shape_.states * (shape_.states + shape_.features));
  const std::string shapes =
      "B " + std::to_string(s.rows) + ", F " + std::to_string(shape_.features) + ", S " + std::to_string(shape_.states);
  c.timed = {timed(forward_step, shapes, 2 * multiplications), timed(backward_step, shapes, 4 * multiplications)};
  return c;
}

LltmModel::ReadOutCheck LltmModel::check_read_out(const Sequences& s, int64_t count) {
  prepare(training_, s);
  count = std::min(count, s.steps);
  forward(training_, s, 0, count);
  const int64_t rows = count * s.rows, states = shape_.states, features = shape_.features;
  ReadOutCheck c{rows, {}, {}, {}, {}, {}, {}, {}};
  std::mt19937 random(2);
  c.grad_y = uniform(random, static_cast<size_t>(rows * features), 1);
  const Tensor rows_of_x = training_.h.slice(0, 1, count), rows_of_d_x = engine_.empty({count, s.rows, states});
  const Tensor x = as_signal(rows_of_x), y = as_signal(training_.prediction.slice(0, 0, count)), d_x = as_signal(rows_of_d_x);
  const Tensor grad_y = as_signal(engine_.upload(c.grad_y, {count, s.rows, features}));
  const Operation forward_step{"conv1d", {&x, &out_weights_.value, &out_bias_.value}, {&y}, nw_conv1d_params{}};
  const Operation backward_step{"conv1d_backward",
                                {&grad_y, &x, &out_weights_.value, nullptr, nullptr},
                                {&d_x, &out_weights_.gradient, &out_bias_.gradient},
                                nw_conv1d_params{}};
  engine_.run(backward_step);
  c.x = engine_.download(rows_of_x), c.w = engine_.download(out_weights_.value), c.d_x = engine_.download(rows_of_d_x);
  c.d_w = engine_.download(out_weights_.gradient), c.d_bias = engine_.download(out_bias_.gradient);
  const std::string shapes = "x " + x.shape_text() + ", w " + out_weights_.value.shape_text();
  const double multiplications = static_cast<double>(rows * states * features);
  c.timed = {timed(forward_step, shapes, 2 * multiplications), timed(backward_step, shapes, 4 * multiplications)};
  return c;
}

LltmModel::Timed LltmModel::timed(const Operation& operation, const std::string& shapes, double flops) const {
  return {operation.op, shapes, engine_.chosen(operation), engine_.seconds_per_run(operation), flops};
}

}  // namespace narrows::tools
