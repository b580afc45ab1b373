// SPDX-License-Identifier: Apache-2.0
// conv1d.h -- the geometry of conv1d and its gradients. Step 5 of a tensor's path.
// Forward and grad_x are correlations; grad_x has one for each residue of the position modulo the stride, because the taps that
// reach a position depend on that residue alone.
#pragma once

#include <numeric>

#include "float_dtype.h"

namespace narrows::common {

// Strides in elements of a tensor of rank 3; the leading ones of a tensor of a lower rank are 0, and all of them for a tensor
// without elements, whose address may be NULL: nothing is ever added to it.
struct Strides3 {
  int64_t outer = 0, channel = 0, position = 0;
};

// What conv1d and conv1d_backward read of a signature. `y` is the output, or its gradient.
struct ConvGeometry {
  Dtype dtype;
  int64_t batch, in_channels, length;
  int64_t out_channels, taps, out_length;
  int64_t groups, stride, dilation, pad_left;
  Strides3 x, w, y;
  constexpr int64_t ins() const { return in_channels / groups; }
  constexpr int64_t outs() const { return out_channels / groups; }
};
ConvGeometry conv_geometry(const nw_sig& sig, uint32_t x, uint32_t w, uint32_t y);
Strides3 strides3(const nw_tensor_sig& tensor);

// out[n, g, m, q] = bias[g, m] + sum over c and j of in[n, g, c, q * step + j * tap_step + origin] * w[g, m, c, j]
// with in = 0 outside [0, extent). Strides and offsets count elements.
struct Correlation {
  int64_t batch, groups, outs, ins, length, taps;
  int64_t step, tap_step, origin, extent;
  int64_t in_batch, in_group, in_channel, in_position;
  int64_t w_offset, w_group, w_out, w_in, w_tap;
  int64_t out_offset, out_batch, out_group, out_channel, out_position;
  int64_t bias_stride;

  // Taps `tap_cycle` apart read positions `cycle_step` steps apart, so they slide over one decimated line of the input.
  int64_t tap_cycle() const { return std::clamp<int64_t>(step / std::gcd(step, tap_step), 1, std::max<int64_t>(taps, 1)); }
  int64_t cycle_step() const { return tap_step / std::gcd(step, tap_step); }
};

// Dot products on a GPU: the most outputs of a filter in all of the batch, and where they beat windows and tiles.
inline constexpr int64_t kMostOutputsOfDots = 16;
constexpr bool has_few_outputs(int64_t batch, int64_t length) {
  return batch <= kMostOutputsOfDots && length <= kMostOutputsOfDots / std::max<int64_t>(batch, 1);
}
bool prefers_dots(const ConvGeometry& geometry);

Correlation forward_correlation(const ConvGeometry& geometry, int64_t bias_stride);
// The correlations that make grad_x from grad_y; where there are fewer than `stride`, the other positions are 0.
int64_t num_grad_x_phases(const ConvGeometry& geometry);
Correlation grad_x_phase(const ConvGeometry& geometry, Strides3 grad_x, int64_t phase);
}  // namespace narrows::common
