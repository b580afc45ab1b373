// SPDX-License-Identifier: Apache-2.0
// lltm_gate_grads.comp -- the gradient of lltm's gates before activation, into the workspace, and of old_cell; one thread for each
// cell. Any strides, any alignment. In f16 also the largest of these gradients, by which lltm_split.comp scales them.
#version 460
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
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
  uint64_t largest;  // 64 words, zeros before: the bits of the largest finite magnitude that is found for each; 0: not wanted
} p;

layout(local_size_x = 64) in;

uint64_t at(uint64_t base, Strides strides, int64_t row, int64_t column, int size) {
  return base + uint64_t((row * strides.row + column * strides.column) * size);
}

#ifdef DTYPE_F16
shared uint largest_of_group;
void find_largest(ACC x) {
  const uint bits = floatBitsToUint(x) & 0x7fffffffu;
  if (p.largest != 0 && bits < 0x7f800000u) atomicMax(largest_of_group, bits);
}
#else
void find_largest(ACC x) {}
#endif

void compute(int64_t b, int64_t s) {
  Shape shape = p.shape;
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
  const ACC grads[3] = {elu(z[2]) * d_cell * slope[0], tanh_gate(new_cell) * grad_h * slope[1],
                        opening[0] * d_cell * elu_slope(z[2])};
  [[unroll]] for (int gate = 0; gate < 3; ++gate) {
    store_sum(to + uint64_t(gate) * step, grads[gate]);
    find_largest(grads[gate]);
  }
  if (p.d_old_cell != 0) store(at(p.d_old_cell, shape.d_old_cell, b, s, kSize), d_cell);
}

void main() {
  const uint group = flat_group();
  const int64_t i = int64_t(group) * 64 + gl_LocalInvocationID.x, b = i / p.shape.state;
#ifdef DTYPE_F16
  if (gl_LocalInvocationID.x == 0) largest_of_group = 0;
  barrier();
#endif
  if (b < p.shape.batch) compute(b, i - b * p.shape.state);
#ifdef DTYPE_F16
  barrier();
  if (p.largest != 0 && gl_LocalInvocationID.x == 0) atomicMax(Word(p.largest + uint64_t(group % 64) * 4).v, largest_of_group);
#endif
}
