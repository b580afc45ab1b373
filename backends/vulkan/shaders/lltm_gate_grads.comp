// lltm_gate_grads.comp -- the gradient of lltm's gates before activation, into the workspace, and of old_cell; one thread for each
// cell. Any strides, any alignment.
#version 460
#include "common.glsl"
#include "gemm_elements.glsl"
#include "lltm_cell.glsl"

struct Strides {
  int64_t row, column;  // in elements
};
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Shape {
  int64_t batch, state, pitch;  // pitch: of gate_grads, whose columns lie side by side
  Strides grad_h, grad_cell, new_cell, gates, d_old_cell;
};
layout(push_constant) uniform Push {
  uint64_t grad_h, grad_cell, new_cell, gates, d_old_cell, gate_grads;  // the gradients: 0 if absent or not wanted
  Shape shape;
} p;

layout(local_size_x = 64) in;

uint64_t at(uint64_t base, Strides strides, int64_t row, int64_t column, int size) {
  return base + uint64_t((row * strides.row + column * strides.column) * size);
}

void main() {
  Shape shape = p.shape;
  const int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x, b = i / shape.state, s = i % shape.state;
  if (b >= shape.batch) return;
  ACC z[3], opening[2], slope[2];
  [[dont_unroll]] for (int gate = 0; gate < 3; ++gate) {
    z[gate] = load_acc(at(p.gates, shape.gates, b, gate * shape.state + s, kAccSize));
    if (gate == 2) break;
    opening[gate] = sigmoid_gate(z[gate]);
    slope[gate] = sigmoid_slope(z[gate]);
  }
  const ACC new_cell = load(at(p.new_cell, shape.new_cell, b, s, kSize));
  const ACC grad_h = p.grad_h == 0 ? ACC(0) : load(at(p.grad_h, shape.grad_h, b, s, kSize));
  const ACC grad_cell = p.grad_cell == 0 ? ACC(0) : load(at(p.grad_cell, shape.grad_cell, b, s, kSize));
  const ACC d_cell = tanh_slope(new_cell) * opening[1] * grad_h + grad_cell;
  const uint64_t to = p.gate_grads + uint64_t((b * shape.pitch + s) * kAccSize), step = uint64_t(shape.state * kAccSize);
  store_sum(to, elu(z[2]) * d_cell * slope[0]);
  store_sum(to + step, tanh_gate(new_cell) * grad_h * slope[1]);
  store_sum(to + 2 * step, opening[0] * d_cell * elu_slope(z[2]));
  if (p.d_old_cell != 0) store(at(p.d_old_cell, shape.d_old_cell, b, s, kSize), d_cell);
}
