// SPDX-License-Identifier: Apache-2.0
// lltm_forward.glsl -- the tensors of lltm, and the update of a cell from its gates before activation. Included after gemm_elements.glsl.
#include "lltm_cell.glsl"

struct Strides {
  int64_t row, column;  // in elements
};
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Shape {
  int64_t batch, features, state;
  Strides inputs, weights, bias, old_h, old_cell, new_h, new_cell, gates;
};
layout(push_constant) uniform Push {
  uint64_t inputs, weights, bias, old_h, old_cell, new_h, new_cell, gates;  // gates: 0 if not wanted
  Shape shape;
  int state_tiles;
} p;

uint64_t at(uint64_t base, Strides strides, int64_t row, int64_t column, int size) {
  return base + uint64_t((row * strides.row + column * strides.column) * size);
}

struct Cell {
  ACC h, cell;
};
// z: the gates before activation.
Cell updated(ACC z[3], ACC old_cell) {
  const ACC cell = old_cell + elu(z[2]) * sigmoid_gate(z[0]);
  return Cell(tanh_gate(cell) * sigmoid_gate(z[1]), cell);
}

// z: the sums without bias.
void update_cell(int64_t b, int64_t s, ACC z[3]) {
  Shape shape = p.shape;
  [[unroll]] for (int gate = 0; gate < 3; ++gate) {
    z[gate] += load(at(p.bias, shape.bias, 0, gate * shape.state + s, kSize));
    if (p.gates != 0) store_acc(at(p.gates, shape.gates, b, gate * shape.state + s, kAccSize), z[gate]);
  }
  const Cell now = updated(z, load(at(p.old_cell, shape.old_cell, b, s, kSize)));
  store(at(p.new_cell, shape.new_cell, b, s, kSize), now.cell);
  store(at(p.new_h, shape.new_h, b, s, kSize), now.h);
}
