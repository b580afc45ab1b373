// SPDX-License-Identifier: Apache-2.0
// elementwise_sum.comp -- a gradient by one operand of FUNCTION, summed over the axes along which that operand was broadcast. The
// order is a matter of shapes alone, and every sum carries what rounding took from it. A work group has `lanes` sums side by side and
// `rows` threads for each; where there are few sums, slices of them are summed apart, and FUNCTION 0 adds up the slices.
#version 460
#if REALS == 64
#define NARROWS_FLOAT64
#endif
#include "float_controls.glsl"
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
#include "elementwise_words.glsl"

const uint THREADS = 128;
layout(local_size_x = 128) in;
layout(constant_id = 1) const int FUNCTION = 0;
layout(constant_id = 2) const uint A = F32;  // dtype of the operand a
layout(constant_id = 3) const uint T = F32;  // that of all else
layout(constant_id = 5) const uint USED = 0;
layout(constant_id = 7) const uint UNROLL = 1;  // terms that a thread takes at a time
layout(constant_id = 9) const int OPERAND = 0;

#include "elementwise_reals.glsl"
#include "elementwise_gradients.glsl"

// Dimensions: first those of the gradient, then those that are summed.
const int OUTPUT = 4;  // behind the slots
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Layout {
  int64_t stride[5][16];  // bytes
  uint64_t extent[16];
  uint kept_dims, dims;
  uint lanes, rows;
  uint lanes_first;  // neighbouring threads have neighbouring sums
  uint is_wide;      // an index may pass 2^32
};
layout(push_constant) uniform Push {
  uint64_t operand[4];  // grad_out, a, b, c: addresses; of a number its bits. FUNCTION 0: the slices' sums
  uint64_t out_;
  uint64_t alpha;
  uint64_t layout_;
  uint64_t partial;  // where the slices' sums go; 0: this is all
  uint64_t kept, summed;
  uint slices;
  uint numbers;  // bit k: slot k is a number
  uint is_misaligned;
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Partial { PAIR sum; };

bool is_used(uint k) { return (USED >> k & 1) != 0; }

// ---- a sum in two parts: x, and what rounding took from it ----

precise PAIR plus(PAIR sum, REAL term) {
  const REAL after = sum.x + term, back = after - sum.x;
  return PAIR(after, sum.y + ((sum.x - (after - back)) + (term - back)));
}
precise PAIR plus(PAIR a, PAIR b) {
  const PAIR sum = plus(a, b.x);
  return PAIR(sum.x, sum.y + b.y);
}
precise REAL total(PAIR sum) { return is_finite(sum.y) ? sum.x + sum.y : sum.x; }  // infinite sums have no error

shared PAIR shared_sums[THREADS];

PAIR sum_of_threads(PAIR sum, uint lane, uint row, Layout l) {
  const uint own = row * l.lanes + lane;
  shared_sums[own] = sum;
  [[dont_unroll]] for (uint half_ = l.rows / 2; half_ > 0; half_ /= 2) {
    barrier();
    if (row < half_) {
      sum = plus(sum, shared_sums[own + half_ * l.lanes]);
      shared_sums[own] = sum;
    }
  }
  return sum;
}

// ---- places ----

// The digit of dimension d of an index over the dimensions d to last.
uint64_t next_digit(inout uint64_t left, Layout l, uint d, uint last) {
  if (d == last) return left;
  const uint64_t extent = l.extent[d];
  const uint64_t next = l.is_wide != 0 ? left / extent : uint64_t(uint(left) / uint(extent));
  const uint64_t digit = left - next * extent;
  left = next;
  return digit;
}

uint64_t load_term(uint k, uint64_t at) {
  const uint size = size_of_dtype(k == 1 ? A : T);
  return is_misaligned != 0 ? load_bytes(at, size) : load_element(at, size);
}

REAL term(uint64_t elements[4]) {
  const REAL g = opened(elements[0], T);
  if (FUNCTION == NW_EW_WHERE) return gradient_of_where(g, elements[1] != 0ul);
  const REAL b = FUNCTION == NW_EW_ELU ? opened(alpha, REAL_DTYPE) : opened(elements[2], T);
  return gradient(g, opened(elements[1], T), b, opened(elements[3], T));
}

// ---- what a thread sums ----

PAIR sum_of_terms(Layout l, uint64_t base[4], uint64_t from, uint64_t to) {
  PAIR sum = PAIR(REAL(0));
  for (uint64_t first = from; first < to; first += UNROLL * l.rows) {
    uint64_t elements[UNROLL][4];
    [[unroll]] for (uint e = 0; e < UNROLL; ++e) {
      uint64_t at[4] = base, index = first + e * l.rows;
      if (index >= to) index = first;
      [[dont_unroll]] for (uint d = l.kept_dims; d < l.dims; ++d) {
        const uint64_t digit = next_digit(index, l, d, l.dims - 1);
        [[unroll]] for (uint k = 0; k < 4; ++k)
          if (is_used(k)) at[k] += digit * uint64_t(l.stride[k][d]);
      }
      [[unroll]] for (uint k = 0; k < 4; ++k) {
        elements[e][k] = 0ul;
        if (is_used(k)) elements[e][k] = (numbers >> k & 1) != 0 ? operand[k] : load_term(k, at[k]);
      }
    }
    [[unroll]] for (uint e = 0; e < UNROLL; ++e)
      if (first + e * l.rows < to) sum = plus(sum, term(elements[e]));
  }
  return sum;
}

PAIR sum_of_slices(Layout l, uint64_t index, uint row) {
  PAIR sum = PAIR(REAL(0));
  for (uint64_t slice = row; slice < summed; slice += l.rows)
    sum = plus(sum, Partial(operand[0] + (slice * kept + index) * (REALS / 4)).sum);
  return sum;
}

void main() {
  Layout l = Layout(layout_);
  const uint t = gl_LocalInvocationID.x;
  const uint lane = l.lanes_first != 0 ? t % l.lanes : t / l.rows, row = l.lanes_first != 0 ? t / l.lanes : t % l.rows;
  const uint64_t groups = (kept + l.lanes - 1) / l.lanes, slice = flat_group() / groups;
  const uint64_t index = (flat_group() - slice * groups) * l.lanes + lane;
  const bool is_there = index < kept && slice < slices;
  uint64_t base[4] = operand, target = out_, left = is_there ? index : 0ul;
  [[dont_unroll]] for (uint d = 0; d < l.kept_dims; ++d) {
    const uint64_t digit = next_digit(left, l, d, l.kept_dims - 1);
    [[unroll]] for (uint k = 0; k < 4; ++k)
      if (is_used(k)) base[k] += digit * uint64_t(l.stride[k][d]);
    target += digit * uint64_t(l.stride[OUTPUT][d]);
  }
  PAIR sum = PAIR(REAL(0));
  if (is_there) {
    if (FUNCTION == 0) {
      sum = sum_of_slices(l, index, row);
    } else {
      const uint64_t of_slice = (summed + slices - 1) / slices, begin = slice * of_slice;
      sum = sum_of_terms(l, base, begin + row, min(begin + of_slice, summed));
    }
  }
  sum = sum_of_threads(sum, lane, row, l);
  if (row != 0 || !is_there) return;
  if (partial != 0ul) {
    Partial(partial + (slice * kept + index) * (REALS / 4)).sum = sum;
    return;
  }
  const uint64_t bits = closed(total(sum), T);
  if (is_misaligned != 0)
    store_bytes(target, bits, size_of_dtype(T));
  else
    store_element(target, bits, size_of_dtype(T));
}
