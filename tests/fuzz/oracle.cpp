// SPDX-License-Identifier: Apache-2.0
// oracle.cpp -- the oracle of each op. See oracle.h.
#include "oracle.h"

#include <algorithm>

#include "contract_ops.h"
#include "reference/elementwise.h"

namespace narrows::fuzz {
namespace {

#define NARROWS_OP(name) &name##_oracle,
const Oracle* const kOracles[] = {
#include "core/ops/ops.inc"
};
#undef NARROWS_OP

Wide times(Wide product, Wide n) { return std::min(product * std::max<Wide>(n, 1), Wide{1} << 100); }

Wide conv1d_work(const Case& c) {
  const size_t first = c.op == Op::conv1d ? 0 : 1;
  const nw_conv1d_params p = c.conv1d();
  const Wide product =
      times(times(1, Wide{c.input(first)->shape.back()} + p.pad_left + p.pad_right), reach(*c.input(first + 1))->elements);
  return c.input(first)->ndim == 3 ? times(product, c.input(first)->shape[0]) : product;
}

Wide elementwise_work(const Case& c) {
  reference::Shape out;
  for (const TensorSpec& t : c.inputs)
    if (t.present) out = reference::broadcast_shape(out, t.shape);
  Wide product = 1;
  for (const int64_t extent : out) product = times(product, extent);
  return product;
}

Wide lltm_work(const Case& c) {
  const size_t first = c.op == Op::lltm ? 0 : 2;
  return times(times(1, reach(*c.input(first + 1))->elements), c.input(first)->shape[0]);
}

std::vector<Expected> one_expected(const Case& c, const Values& v) { return {expected_elementwise(c, v)}; }

}  // namespace

const Oracle& oracle(Op op) { return *kOracles[static_cast<size_t>(op)]; }
const OpFacts& facts(Op op) { return oracle(op).facts; }
size_t num_ops() { return std::size(kOracles); }

// By the names of the op's tensors in docs/ops.md; bit i: tensor i is required.
const Oracle conv1d_oracle{
    {"conv1d", 2, 3, 1, 0b11, 0b1, sizeof(nw_conv1d_params)}, judge_conv1d, expected_conv1d, conv1d_work, nullptr};
const Oracle conv1d_backward_oracle{
    {"conv1d_backward", 3, 5, 3, 0b110, 0, sizeof(nw_conv1d_params)}, judge_conv1d, expected_conv1d, conv1d_work, nullptr};
const Oracle elementwise_oracle{
    {"elementwise", 1, 3, 1, 0b1, 0b1, sizeof(nw_elementwise_params)}, judge_elementwise, one_expected, elementwise_work, nullptr};
const Oracle elementwise_backward_oracle{{"elementwise_backward", 2, 5, 3, 0b10, 0, sizeof(nw_elementwise_params)},
                                         judge_elementwise,
                                         expected_gradients,
                                         elementwise_work,
                                         nullptr};
const Oracle lltm_oracle{{"lltm", 5, 5, 3, 0b11111, 0b11, 0}, judge_lltm, expected_lltm, lltm_work, nullptr};
const Oracle lltm_backward_oracle{{"lltm_backward", 10, 10, 5, 0b1100101100, 0, 0}, judge_lltm, expected_lltm, lltm_work, nullptr};

}  // namespace narrows::fuzz
