// SPDX-License-Identifier: Apache-2.0
// A plugin's own ops with a backward, for f32 and f64: test.scale/1 is y = factor*x, and test.affine/1 is y = a*x + b with an
// optional b, of which backward reads x and a. The backward of test.scale/1 has a backward too.
#include <narrows/plugin.hpp>

using narrows::plugin::dtype;
using narrows::plugin::field;
using narrows::plugin::Launch;

struct Scale {
  double factor;
  int64_t mode;
};

template <class T>
void run_scale(const Launch& call, const T* x) {
  const T factor = static_cast<T>(call.params<Scale>().factor);
  T* const y = call.output<T>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = x == nullptr ? 0 : factor * x[i]; });
}
void scale(const Launch& call) {
  if (call.params<Scale>().mode == 2) throw std::runtime_error("mode 2 always fails");
  call.out(0).dtype.bits == 32 ? run_scale(call, call.input<float>(0)) : run_scale(call, call.input<double>(0));
}
void scale_backward(const Launch& call) {  // grad_y?, x, y? -> grad_x
  const bool zero = !call.has_input(0);
  call.out(0).dtype.bits == 32 ? run_scale(call, zero ? nullptr : call.input<float>(0))
                               : run_scale(call, zero ? nullptr : call.input<double>(0));
}

template <class T>
void run_scale_twice(const Launch& call) {
  for (uint32_t j = 1; j < 3; ++j) {  // the gradient of grad_y alone depends on the incoming one
    if (!call.has_output(j)) continue;
    T* const out = call.output<T>(j);
    call.parallel_for(call.size(j), [=](int64_t i) { out[i] = 0; });
  }
  if (call.has_output(0)) run_scale(call, call.has_input(0) ? call.input<T>(0) : nullptr);
}
void scale_backward_backward(const Launch& call) {  // grad_grad_x?, grad_y?, x, y?, grad_x? -> grad_grad_y?, grad_x?, grad_y?
  call.in(2).dtype.bits == 32 ? run_scale_twice<float>(call) : run_scale_twice<double>(call);
}

template <class T>
void run_affine(const Launch& call) {
  const T *x = call.input<T>(0), *a = call.input<T>(1), *b = call.has_input(2) ? call.input<T>(2) : nullptr;
  T* const y = call.output<T>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = a[i] * x[i] + (b == nullptr ? 0 : b[i]); });
}
void affine(const Launch& call) { call.out(0).dtype.bits == 32 ? run_affine<float>(call) : run_affine<double>(call); }

template <class T>
void run_affine_backward(const Launch& call) {  // grad_y?, x, a, b?, y? -> grad_x?, grad_a?, grad_b?
  const T *g = call.has_input(0) ? call.input<T>(0) : nullptr, *x = call.input<T>(1), *a = call.input<T>(2);
  const T* const factors[] = {a, x, nullptr};
  for (uint32_t j = 0; j < 3; ++j) {
    if (!call.has_output(j)) continue;
    T* const out = call.output<T>(j);
    const T* const factor = factors[j];
    call.parallel_for(call.size(j), [=](int64_t i) { out[i] = g == nullptr ? 0 : factor == nullptr ? g[i] : g[i] * factor[i]; });
  }
}
void affine_backward(const Launch& call) {
  call.in(1).dtype.bits == 32 ? run_affine_backward<float>(call) : run_affine_backward<double>(call);
}

const std::vector<DLDataType> kFloats = {dtype<float>(), dtype<double>()};
const std::vector<nw_param> kScale = {field("factor", &Scale::factor, 2.0), field("mode", &Scale::mode)};

NARROWS_PLUGIN("test",
               {.name = "test.scale/1",
                .inputs = {"x"},
                .outputs = {"y"},
                .kernel = scale,
                .params = kScale,
                .params_size = sizeof(Scale),
                .dtypes = kFloats,
                .backward = "test.scale_backward/1"},
               {.name = "test.scale_backward/1", .kernel = scale_backward, .backward = "test.scale_backward_backward/1"},
               {.name = "test.scale_backward_backward/1",
                .inputs = {"grad_grad_x?", "grad_y?", "x", "y?", "grad_x?"},
                .outputs = {"grad_grad_y?", "grad_of_x?", "grad_of_y?"},
                .shape_rule = "...? ; ...? ; ... ; ...? ; ...? -> ... ; ... ; ...",
                .kernel = scale_backward_backward,
                .params = kScale,
                .params_size = sizeof(Scale),
                .dtypes = kFloats},
               {.name = "test.affine/1",
                .inputs = {"x", "a", "b?"},
                .outputs = {"y"},
                .shape_rule = "... ; ... ; ...? -> ...",
                .kernel = affine,
                .dtypes = kFloats,
                .backward = "test.affine_backward/1",
                .saved = 0b011},
               {.name = "test.affine_backward/1",
                .inputs = {"grad_y?", "x", "a", "b?", "y?"},
                .outputs = {"grad_x?", "grad_a?", "grad_b?"},
                .shape_rule = "...? ; ... ; ... ; ...? ; ...? -> ... ; ... ; ...",
                .kernel = affine_backward,
                .dtypes = kFloats})
