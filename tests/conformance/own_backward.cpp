// SPDX-License-Identifier: Apache-2.0
// own_backward.cpp -- the derivatives of a plugin's own ops: the op that each names as its backward, against finite differences.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "gradient_check.h"
#include "support/harness.h"

using namespace narrows::test;

namespace {

std::vector<const nw_op*> differentiable_ops() {
  std::vector<const nw_op*> all;
  for (const nw_op* op : offered_ops())
    if (is_own(*op) && op->backward != nullptr) all.push_back(op);
  if (all.empty()) SKIP("the backend brings no op of its own that names a backward");
  return all;
}

std::vector<Sample> of_dtype(const nw_op& op, DType dtype) {
  std::vector<Sample> some;
  for (const Sample& s : samples_of(op).filled) {
    if (!can_difference(s)) continue;
    for (const TensorSpec& input : s.inputs)
      if (input.present && is_float(input.dtype)) {
        if (input.dtype == dtype) some.push_back(s);
        break;
      }
  }
  return some;
}

}  // namespace

TEST_CASE("own: the backward op is offered, and reads what the forward op saves", "[own][backward]") {
  for (const nw_op* op : differentiable_ops()) {
    INFO(op->name << " names " << op->backward << " as its backward");
    const nw_op* backward = nullptr;
    CHECK(offers(op->backward));
    if (nw_find_op(runtime(), op->backward, &backward, nullptr) != NW_OK) continue;
    CHECK(backward->max_inputs == op->num_outputs - op->num_aux + op->max_inputs + op->num_outputs);
    CHECK(backward->num_outputs == op->max_inputs);
    CHECK(op->saved >> 32 >> op->num_outputs == 0);
    CHECK((op->saved & 0xFFFFFFFFu) >> op->max_inputs == 0);
  }
}

TEST_CASE("own: the backward op is the derivative, by finite differences in f64 or else f32", "[own][backward]") {
  for (const nw_op* op : differentiable_ops()) {
    std::vector<Sample> samples = of_dtype(*op, DType::f64);
    if (samples.empty()) samples = of_dtype(*op, DType::f32);
    if (samples.empty()) {
      FAIL_CHECK(op->name << ": it names a backward, and no call in f64 or f32 was found to differentiate");
      continue;
    }
    int64_t compared = 0;
    for (const Sample& s : samples)
      for (const Values values : {Values::positive, Values::both_signs}) compared += check_gradient(s, values);
    INFO(op->name);
    CHECK(compared > 0);
  }
}
