// SPDX-License-Identifier: Apache-2.0
// header_plugin.cpp -- a plugin made by plugin.hpp, for `narrows conform` to judge: an op with a param and its backward, and one of
// several dtypes whose second input is optional.
#include <cmath>
#include <narrows/plugin.hpp>

using narrows::plugin::dtype;
using narrows::plugin::field;
using narrows::plugin::Launch;

namespace {

struct Swish {
  float beta;
};

void swish(const Launch& call) {
  const float *x = call.input<float>(0), beta = call.params<Swish>().beta;
  float* const y = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = x[i] / (1 + std::exp(-beta * x[i])); });
}

void swish_backward(const Launch& call) {  // grad_y?, x, y? -> grad_x?
  if (!call.has_output(0)) return;
  const float *g = call.has_input(0) ? call.input<float>(0) : nullptr, *x = call.input<float>(1), beta = call.params<Swish>().beta;
  float* const grad = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) {
    const float s = 1 / (1 + std::exp(-beta * x[i]));
    grad[i] = g == nullptr ? 0 : g[i] * (s + beta * x[i] * s * (1 - s));
  });
}

template <class T>
void sum_of(const Launch& call) {
  const T *a = call.input<T>(0), *b = call.has_input(1) ? call.input<T>(1) : nullptr;
  T* const c = call.output<T>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { c[i] = b == nullptr ? a[i] : a[i] + b[i]; });
}
void sum(const Launch& call) { call.in(0).dtype.bits == 32 ? sum_of<float>(call) : sum_of<double>(call); }

const std::vector<nw_param> kSwish = {field("beta", &Swish::beta, 1.0)};

}  // namespace

NARROWS_PLUGIN("header",
               {.name = "header.swish/1",
                .inputs = {"x"},
                .outputs = {"y"},
                .kernel = swish,
                .params = kSwish,
                .params_size = sizeof(Swish),
                .backward = "header.swish_backward/1",
                .saved = 1},
               {.name = "header.swish_backward/1", .kernel = swish_backward},
               {.name = "header.sum/1",
                .inputs = {"a", "b?"},
                .outputs = {"c"},
                .shape_rule = "... ; ...? -> ...",
                .kernel = sum,
                .dtypes = {dtype<float>(), dtype<double>()}})
