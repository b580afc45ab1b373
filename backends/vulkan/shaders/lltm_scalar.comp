// lltm_scalar.comp -- lltm, one thread for each cell, which reads its operands as they lie: any strides, any alignment.
#version 460
#include "common.glsl"
#include "gemm_elements.glsl"
#include "lltm_forward.glsl"

layout(local_size_x = 64) in;

void main() {
  Shape shape = p.shape;
  const int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x;
  if (i >= shape.batch * shape.state) return;
  const int64_t b = i / shape.state, s = i % shape.state;
  ACC sums[3] = {ACC(0), ACC(0), ACC(0)};
  for (int64_t k = 0; k < shape.state + shape.features; ++k) {
    const ACC x = k < shape.state ? load(at(p.old_h, shape.old_h, b, k, kSize))
                                  : load(at(p.inputs, shape.inputs, b, k - shape.state, kSize));
    [[unroll]] for (int gate = 0; gate < 3; ++gate)
      sums[gate] += x * load(at(p.weights, shape.weights, gate * shape.state + s, k, kSize));
  }
  update_cell(b, s, sums);
}
