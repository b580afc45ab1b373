// SPDX-License-Identifier: Apache-2.0
// OPNAME.cpp -- what the fuzz targets know of OPNAME, by docs/ops.md. See oracle.h.
#include "fuzz/oracle.h"

namespace narrows::fuzz {
namespace {

void judge_OPNAME(const Case& c, Verdict* v) {
  v->illegal = one_float_dtype(c);
  if (v->illegal.empty()) v->outputs = {{true, *c.input(0)->known_dtype(), c.input(0)->shape}};
}

// c.params_as<nw_FORWARD_params>() has the params.  // with params
// Not told apart from the reference: half a unit in the last place of the dtype that it is computed in.
std::vector<Expected> expected_OPNAME(const Case& c, const Values& values) {
  Expected y;
  const DType dtype = sum_dtype(*c.input(0)->known_dtype());
  for (const Exact x : values[0]) {
    y.values.push_back(x);
    y.bounds.push_back(test::epsilon(dtype) * std::abs(x) + test::smallest_subnormal(dtype));
  }
  return {y};
}

Wide work_OPNAME(const Case& c) { return reach(*c.input(0))->elements; }

void make_inputs(Bytes& in, DType dtype, Case* c) {
  std::vector<int64_t> shape(in.below(4));
  for (int64_t& extent : shape) extent = static_cast<int64_t>(in.below(20));
  c->inputs = {tensor(dtype, shape)};
  c->params.resize(sizeof(nw_FORWARD_params));       // with params
  for (uint8_t& byte : c->params) byte = in.byte();  // with params
}

}  // namespace

const Oracle OPNAME_oracle{{"OPNAME", 1, 1, 1, 0b1, 0b1, PARAMSSIZE}, judge_OPNAME, expected_OPNAME, work_OPNAME, make_inputs};

}  // namespace narrows::fuzz
