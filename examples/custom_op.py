# SPDX-License-Identifier: Apache-2.0
"""An op of one's own: twenty lines of C++, compiled when this runs, then an op of torch, JAX and NumPy like any other.

python3 examples/custom_op.py
"""

import numpy as np

import narrows

SOURCE = """
#include <narrows/plugin.hpp>
#include <cmath>
using narrows::plugin::Launch;
struct Params { float beta; };

void swish(const Launch& call) {
  const float *x = call.input<float>(0), beta = call.params<Params>().beta;
  float* y = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = x[i] / (1 + std::exp(-beta * x[i])); });
}
void swish_backward(const Launch& call) {  // grad_y?, x, y? -> grad_x?
  const float *g = call.has_input(0) ? call.input<float>(0) : nullptr, *x = call.input<float>(1), beta = call.params<Params>().beta;
  float* grad = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) {
    const float s = 1 / (1 + std::exp(-beta * x[i]));
    grad[i] = g == nullptr ? 0 : g[i] * (s + beta * x[i] * s * (1 - s));
  });
}
NARROWS_PLUGIN("mine",
  {.name = "mine.swish/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = swish,
   .params = {narrows::plugin::field("beta", &Params::beta, 1.0)}, .params_size = sizeof(Params),
   .backward = "mine.swish_backward/1", .saved = 1},
  {.name = "mine.swish_backward/1", .kernel = swish_backward})
"""

swish = narrows.load_inline("mine", SOURCE).swish
x = np.linspace(-2, 2, 5, dtype=np.float32)
expected = x / (1 + np.exp(-2 * x))
np.testing.assert_allclose(swish(x, beta=2), expected, rtol=1e-6)
print("numpy", swish(x, beta=2))

try:
    import torch
except ImportError:
    print("torch is not installed")
else:
    t = torch.from_numpy(x).requires_grad_()
    y = torch.compile(lambda t: swish(t, beta=2.0).sum() * 2, fullgraph=True, backend="aot_eager")(t)
    y.backward()
    print("torch", y.item(), t.grad.numpy())

try:
    import jax
except ImportError:
    print("JAX is not installed")
else:
    value, gradient = jax.jit(jax.value_and_grad(lambda x: swish(x, beta=2.0).sum() * 2))(x)
    print("jax  ", value.item(), np.asarray(gradient))
