// SPDX-License-Identifier: Apache-2.0
// lltm_scalar.comp -- lltm, one thread for each cell, which reads its operands as they lie: any strides, any alignment.
#version 460
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "lltm_forward.glsl"

layout(local_size_x = 64) in;

void main() {
  Shape shape = p.shape;
  const int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x;
  if (i >= shape.batch * shape.state) return;
  const int64_t b = i / shape.state, s = i % shape.state;
  // Read once: in the loop each would be read again, since nothing says that no store changes them.
  const int64_t states = shape.state, terms = states + shape.features;
  const uint64_t inputs = at(p.inputs, shape.inputs, b, 0, kSize), weights_step = uint64_t(shape.weights.column * kSize),
                 inputs_step = uint64_t(shape.inputs.column * kSize);
  uint64_t x = at(p.old_h, shape.old_h, b, 0, kSize), x_step = uint64_t(shape.old_h.column * kSize), w[3];
  [[unroll]] for (int gate = 0; gate < 3; ++gate) w[gate] = at(p.weights, shape.weights, gate * states + s, 0, kSize);
  ACC sums[3] = {ACC(0), ACC(0), ACC(0)};
  for (int64_t k = 0; k < terms; ++k) {
    if (k == states) x = inputs, x_step = inputs_step;
    const ACC value = load(x);
    [[unroll]] for (int gate = 0; gate < 3; ++gate) {
      sums[gate] += value * load(w[gate]);
      w[gate] += weights_step;
    }
    x += x_step;
  }
  update_cell(b, s, sums);
}
