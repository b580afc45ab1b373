// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.cpp -- what the fuzz targets know of lltm_sequence and lltm_sequence_backward, by docs/ops.md. See oracle.h.
#include "reference/lltm_sequence.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fuzz/oracle.h"

namespace narrows::fuzz {
namespace {

using Shape = std::vector<int64_t>;
using Doubles = std::vector<double>;

bool is_backward(const Case& c) { return c.op == Op::lltm_sequence_backward; }

void judge(const Case& c, Verdict* v) {
  const bool backward = is_backward(c);
  const size_t first = backward ? 3 : 0, lengths = first + 5;
  const auto p = c.params_as<nw_lltm_sequence_params>();
  for (const int64_t value : {p.batch_first, p.reverse, p.recompute})
    if (value != 0 && value != 1) v->illegal = "a param that is neither 0 nor 1";
  if (v->illegal.empty()) v->illegal = one_float_dtype(c, 1u << lengths | (backward ? 1u << 13 : 0));
  if (!v->illegal.empty()) return;
  const TensorSpec &input = *c.input(first), &old_h = *c.input(first + 3);
  const DType dtype = *input.known_dtype(), gates_dtype = dtype == DType::f64 ? DType::f64 : DType::f32;
  if (c.input(lengths) != nullptr && *c.input(lengths)->known_dtype() != DType::i32) v->illegal = "lengths of another dtype";
  if (input.ndim != 3 || old_h.ndim != 2) v->illegal = "an input or old_h of another rank";
  if (!v->illegal.empty()) return;
  const int64_t features = input.shape[2], states = old_h.shape[1], batch = input.shape[p.batch_first != 0 ? 0 : 1];
  if (Wide{states} * 3 > INT64_MAX || Wide{states} + features > INT64_MAX) {
    v->illegal = "weights beyond 63 bits";
    return;
  }
  Shape sequence = input.shape, saved = input.shape;
  if (p.recompute != 0) saved[0] = 0;
  sequence[2] = saved[2] = states;
  Shape gates = saved;
  gates[2] = 3 * states;
  const Shape state{batch, states}, row{3 * states};
  const auto is = [&](size_t i, const Shape& shape) { return c.input(i) == nullptr || c.input(i)->shape == shape; };
  bool right = is(first + 1, {3 * states, states + features}) && (is(first + 2, row) || is(first + 2, {1, 3 * states}));
  right = right && is(first + 3, state) && is(first + 4, state) && is(lengths, {batch});
  if (backward)
    right = right && is(0, sequence) && is(1, state) && is(2, state) && is(9, sequence) && is(10, state) && is(11, state) &&
            is(12, saved) && is(13, gates);
  if (!right) v->illegal = "shapes that do not go together";
  if (backward && c.input(13) != nullptr && *c.input(13)->known_dtype() != gates_dtype) v->illegal = "gates of another dtype";
  if (backward && p.recompute == 0 && (c.input(12) == nullptr || c.input(13) == nullptr)) v->illegal = "nothing saved";
  if (backward && p.recompute != 0 && c.input(7) == nullptr) v->illegal = "no old_cell to begin with";
  if (backward && c.output(5) != nullptr) v->illegal = "a gradient of lengths";
  const TensorSpec* bias = c.input(first + 2);
  if (!backward)
    v->outputs = {
        {true, dtype, sequence}, {true, dtype, state}, {true, dtype, state}, {true, dtype, saved}, {true, gates_dtype, gates}};
  else
    v->outputs = {{true, dtype, input.shape},
                  {true, dtype, c.input(4)->shape},
                  {true, dtype, bias != nullptr ? bias->shape : row},
                  {true, dtype, state},
                  {true, dtype, state},
                  {c.input(lengths) != nullptr, DType::i32, {batch}}};
}

// A sequence as (steps, batch, columns), and back.
Doubles turned(const Doubles& v, int64_t outer, int64_t inner, int64_t columns) {
  Doubles out;
  for (int64_t i = 0; i < inner; ++i)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t j = 0; j < columns; ++j) out.push_back(v[static_cast<size_t>((o * inner + i) * columns + j)]);
  return out;
}

// Errors grow from step to step by the weights. What this is for is a wrong index, not a rounding.
Expected within(const Doubles& values, DType dtype, double growth) {
  Expected out{{values.begin(), values.end()}, {}};
  double most = 1;
  for (const double value : values) most = std::fmax(most, std::fabs(value));
  out.bounds.assign(values.size(), static_cast<Exact>(most * growth) * test::epsilon(dtype));
  return out;
}

std::vector<Expected> expected_sequence(const Case& c, const Values& v) {
  const bool backward = is_backward(c);
  const size_t first = backward ? 3 : 0;
  const auto p = c.params_as<nw_lltm_sequence_params>();
  const Shape& input = c.input(first)->shape;
  const bool turns = p.batch_first != 0;
  reference::LltmSequence z{input[turns ? 1 : 0], input[turns ? 0 : 1], input[2], c.input(first + 3)->shape[1], p.reverse != 0};
  const DType dtype = *c.input(first)->known_dtype();
  if (z.steps > 4 || z.states + z.features > 24) return std::vector<Expected>(backward ? 6 : 5);  // errors grow too much
  const auto doubles = [&](size_t i) {
    return i < v.size() && c.input(i) != nullptr ? Doubles(v[i].begin(), v[i].end()) : Doubles{};
  };
  const auto by_step = [&](size_t i, int64_t columns) {
    return turns && c.input(i) != nullptr ? turned(doubles(i), z.batch, z.steps, columns) : doubles(i);
  };
  const auto back = [&](const Doubles& values, int64_t columns) {
    return turns ? turned(values, z.steps, z.batch, columns) : values;
  };
  reference::LltmSequenceInputs in{by_step(first, z.features), doubles(first + 1), doubles(first + 2),
                                   doubles(first + 3),         doubles(first + 4), {}};
  if (c.input(first + 5) != nullptr)
    for (const Exact length : v[first + 5]) in.lengths.push_back(static_cast<int64_t>(length));
  const double growth = std::pow(64.0, static_cast<double>(z.steps)) * 1024;
  if (!backward) {
    const auto r = reference::lltm_sequence(z, in);
    std::vector<Expected> out{within(back(r.h, z.states), dtype, growth), within(r.new_h, dtype, growth),
                              within(r.new_cell, dtype, growth)};
    out.push_back(p.recompute != 0 ? Expected{} : within(back(r.cells, z.states), dtype, growth));
    out.push_back(p.recompute != 0 ? Expected{} : within(back(r.gates, 3 * z.states), dtype, growth));
    return out;
  }
  if (p.recompute != 0) return std::vector<Expected>(6);  // h need not be what forward gave
  const reference::LltmSequenceSaved saved{
      by_step(0, z.states), doubles(1), doubles(2), by_step(9, z.states), by_step(12, z.states), by_step(13, 3 * z.states)};
  const auto r = reference::lltm_sequence_backward(z, in, saved);
  return {within(back(r.input, z.features), dtype, growth),
          within(r.weights, dtype, growth),
          within(r.bias, dtype, growth),
          within(r.old_h, dtype, growth),
          within(r.old_cell, dtype, growth),
          Expected{}};
}

Wide work_sequence(const Case& c) {
  const size_t first = is_backward(c) ? 3 : 0;
  const Shape& input = c.input(first)->shape;
  Wide product = std::max<Wide>(reach(*c.input(first + 1))->elements, 1);
  for (const int64_t extent : {input[0], input[1]}) product = std::min(product * std::max<Wide>(extent, 1), Wide{1} << 100);
  return product;
}

void make_inputs(Bytes& in, DType dtype, Case* c) {
  const auto size = [&](uint32_t most) { return static_cast<int64_t>(in.below(most)); };
  const int64_t steps = size(5), batch = size(6), features = size(7), states = size(7);
  const uint8_t bits = in.byte();
  const nw_lltm_sequence_params p{bits & 1, bits >> 1 & 1, bits >> 2 & 1};
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto sequence = [&](DType type, int64_t columns, bool saved) {
    Shape shape{steps, batch, columns};
    if (p.batch_first != 0) std::swap(shape[0], shape[1]);
    if (saved && p.recompute != 0) shape[0] = 0;
    return tensor(type, shape);
  };
  const TensorSpec state = tensor(dtype, {batch, states});
  c->params.resize(sizeof p);
  std::memcpy(c->params.data(), &p, sizeof p);
  c->inputs = {
      sequence(dtype, features, false), tensor(dtype, {3 * states, states + features}), tensor(dtype, {3 * states}), state, state,
      tensor(DType::i32, {batch})};
  if ((bits & 8) != 0) c->inputs[5].present = false;
  if (!is_backward(*c)) return;
  c->inputs.insert(c->inputs.begin(), {sequence(dtype, states, false), state, state});
  c->inputs.insert(c->inputs.end(),
                   {sequence(dtype, states, false), state, state, sequence(dtype, states, true), sequence(wide, 3 * states, true)});
}

}  // namespace

const Oracle lltm_sequence_oracle{{"lltm_sequence", 5, 6, 5, 0b011011, 0b111, sizeof(nw_lltm_sequence_params)},
                                  judge,
                                  expected_sequence,
                                  work_sequence,
                                  make_inputs};
const Oracle lltm_sequence_backward_oracle{{"lltm_sequence_backward", 10, 14, 6, 0b1001011000, 0, sizeof(nw_lltm_sequence_params)},
                                           judge,
                                           expected_sequence,
                                           work_sequence,
                                           make_inputs};

}  // namespace narrows::fuzz
