// SPDX-License-Identifier: Apache-2.0
// naive_OPNAME.cpp -- OPNAME, by the formula of docs/ops.md, one element after the other. See naive.h.
#include "naive.h"

namespace naive {
namespace {

constexpr int64_t kGrain = 1 << 12;

// Address of element i, in C order.
unsigned char* element(const View& v, int64_t i) {
  unsigned char* address = v.data;
  for (int32_t d = v.ndim; d-- > 0; i /= v.shape[d]) address += i % v.shape[d] * v.strides[d];
  return address;
}

void plan_OPNAME(const nw_sig& sig, Plan& plan) { keep_params<nw_FORWARD_params>(sig, plan); }  // with params
void plan_OPNAME(const nw_sig& sig, Plan& /*plan*/) { read_params(sig, nullptr, 0); }           // without params

void launch_OPNAME(const Task& task) {
  // params_of<nw_FORWARD_params>(task.plan) has the params.  // with params
  const View &x = task.inputs[0], &y = task.outputs[0];
  parallel(task.host, y.size(), kGrain, [&](int64_t i) {
    if (fault(Fault::first_unwritten) && i == 0) return;
    store_real(y.dtype, element(y, i), load_real(x.dtype, element(x, i)));
  });
}

}  // namespace

const Op OPNAME = {"OPNAME", 1, 1, plan_OPNAME, launch_OPNAME};

}  // namespace naive
