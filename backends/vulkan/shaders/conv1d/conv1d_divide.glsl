// SPDX-License-Identifier: Apache-2.0
// conv1d_divide.glsl -- division by a number that the host knows: a multiplication and a shift. See Divider of ops/conv1d/conv1d.h.

int divide(int n, uint multiplier, uint shift) {
  uint high, low;
  umulExtended(uint(n), multiplier, high, low);
  return int((uint(n) + high) >> shift);
}
