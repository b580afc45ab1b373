// SPDX-License-Identifier: Apache-2.0
// sums.cpp -- a plugin by narrows/plugin.hpp whose op takes tensors of one dtype and gives another.
#include <narrows/plugin.hpp>

namespace {

void product(const narrows::plugin::Launch& call) {
  const int8_t *a = call.input<int8_t>(0), *b = call.input<int8_t>(1);
  int32_t* out = call.output<int32_t>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { out[i] = int32_t{a[i]} * b[i]; });
}

}  // namespace

NARROWS_PLUGIN("sums", {.name = "sums.product/1",
                        .inputs = {"a: i8", "b: i8"},
                        .outputs = {"out: i32"},
                        .shape_rule = "... ; ... -> ...",
                        .kernel = product})
