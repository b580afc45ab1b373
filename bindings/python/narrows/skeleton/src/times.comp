// SPDX-License-Identifier: Apache-2.0
// y = factor * x, an element a thread.
#version 460
#include <narrows/kernel.glsl>

layout(local_size_x = 256) in;
NARROWS_POINTER(Floats, float, 4)
layout(push_constant) uniform Push {
  Floats x, y;
  uint64_t n;
  float factor;
};

void main() {
  const uint64_t i = narrows_index();
  if (i < n) at(y, i).value = factor * at(x, i).value;
}
