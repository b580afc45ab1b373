// SPDX-License-Identifier: Apache-2.0
// conv1d.h -- the geometry of conv1d and its gradients, and what a call computes: one correlation, or one gradient after the other.
// Forward and grad_x are correlations; grad_x has one for each residue of the position modulo the stride, because the taps that
// reach a position depend on that residue alone. grad_w and grad_bias are sums over batch and positions.
#pragma once

#include <initializer_list>
#include <memory>
#include <numeric>

#include "float_dtype.h"
#include "tensors.h"

namespace narrows::common {

// The tensors of conv1d, whose output is y, and those of conv1d_backward.
namespace conv {
enum Input : uint32_t { kX, kW, kBias };
}
namespace conv_grad {
enum Input : uint32_t { kGradY, kX, kW };
enum Output : uint32_t { kGradX, kGradW, kGradBias, kNumOutputs };
}  // namespace conv_grad

// ---- geometry ----

// What conv1d and conv1d_backward read of a signature. `y` is the output, or its gradient.
struct ConvGeometry {
  Dtype dtype;
  int64_t batch, in_channels, length;
  int64_t out_channels, taps, out_length;
  int64_t groups, stride, dilation, pad_left;
  Strides3 x, w, y;
  constexpr int64_t ins() const { return in_channels / groups; }
  constexpr int64_t outs() const { return out_channels / groups; }
  // Whether `y` has elements. If not, the extents that are not 0 may be too large to count with.
  constexpr bool has_outputs() const { return batch != 0 && out_channels != 0; }
};
ConvGeometry conv_geometry(const nw_sig& sig, uint32_t x, uint32_t w, uint32_t y);

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
  // Whether a filter's elements lie side by side, in the order of its channels and taps.
  bool has_whole_filters() const { return (taps <= 1 || w_tap == 1) && (ins <= 1 || w_in == taps); }
};

// ---- choices ----

// Many outputs and a long sum: a product beats sliding windows.
constexpr bool prefers_product(const ConvGeometry& g) { return g.outs() >= 8 && g.ins() * g.taps >= 8; }

// Dot products on a GPU: the most outputs of a filter in all of the batch, and where they beat windows and tiles.
inline constexpr int64_t kMostOutputsOfDots = 16;
constexpr bool has_few_outputs(int64_t batch, int64_t length) {
  return batch <= kMostOutputsOfDots && length <= kMostOutputsOfDots / std::max<int64_t>(batch, 1);
}
bool prefers_dots(const ConvGeometry& geometry);

// Whether all of these rows start on a multiple of `unit` elements, if the first does. A stride over one row is never taken.
struct RowStride {
  int64_t count, stride;
};
inline bool rows_start_on(int64_t unit, std::initializer_list<RowStride> rows) {
  return std::all_of(rows.begin(), rows.end(), [=](RowStride r) { return r.count <= 1 || r.stride % unit == 0; });
}

// How a GPU cuts a sum over batch and positions, by shape alone: `length` positions to a slice, counted through the batch.
struct SumSlices {
  int64_t count, length;
};
// Of the sums in `to`, a group of threads has one of the `tap_blocks` of a row's taps. `least`: positions that are worth a slice.
SumSlices slices_of_sums(const ConvGeometry& geometry, const Tensor3& to, int64_t tap_blocks, int64_t least);

// ---- what a call computes ----

// A correlation of a call, and the bytes at which its tensors are sure to lie.
struct CorrelationRequest {
  Dtype dtype;
  Correlation c;
  int64_t in_align, w_align, bias_align, out_align;

  // Whether each element lies on a multiple of its size.
  bool aligned() const { return std::min({in_align, w_align, bias_align, out_align}) >= size_of(dtype); }
};
Correlation forward_correlation(const nw_sig& sig, const ConvGeometry& geometry);
CorrelationRequest forward_request(const nw_sig& sig, const ConvGeometry& geometry);

// The correlations that make grad_x from grad_y; where there are fewer than `stride`, the other positions are 0.
int64_t num_grad_x_phases(const ConvGeometry& geometry);
Correlation grad_x_phase(const ConvGeometry& geometry, Strides3 grad_x, int64_t phase);

// A gradient that is a sum over batch and positions: grad_w, by (output channel, channel of its group, tap); or grad_bias, by
// (output channel, 1, 1), which reads no x.
struct SumRequest {
  ConvGeometry g;
  Tensor3 to;
  bool of_bias;
  int64_t y_align, x_align, out_align;

  bool aligned() const { return std::min({y_align, x_align, out_align}) >= size_of(g.dtype); }
};

// What conv1d_backward makes: grad_x, grad_w, grad_bias, in this order, each if it is wanted.
struct ConvGradRequest {
  const nw_sig& sig;
  ConvGeometry g;

  bool wants(uint32_t output) const { return has_output(sig, output); }
  // Whether there is anything to sum. If not, all gradients are 0, and the extents that are not 0 may be too large to count with.
  bool has_terms() const { return has_input(sig, conv_grad::kGradY) && g.has_outputs(); }
  Tensor3 gradient(uint32_t output) const;    // without elements, if it is not wanted
  CorrelationRequest phase(int64_t i) const;  // of grad_x; of length 0 if it reaches no position
  SumRequest sum(uint32_t output) const;      // grad_w or grad_bias
};
ConvGradRequest read_conv1d_backward(const nw_sig& sig);

// ---- which variant computes it ----

// The variants of a backend, in the order in which they are asked; the last one is made for every part.
template <class Variant>
struct VariantSearch {
  const Variant* variants;
  int first;  // where the search begins
  int used;   // the first by which a part was planned; before there is one, the last

  // A part by the first variant that is made for it. `field`: of Variant, nullptr where a variant has no such parts.
  template <class Part, class Problem>
  std::unique_ptr<Part> plan(std::unique_ptr<Part> (*Variant::*field)(const Problem&), const Problem& problem) {
    for (int i = first;; ++i) {
      const auto of_variant = variants[i].*field;
      std::unique_ptr<Part> part = of_variant == nullptr ? nullptr : of_variant(problem);
      if (part == nullptr) continue;
      used = std::min(used, i);
      return part;
    }
  }
};

// Puts the plan of a GPU's conv1d_backward together, part by part, in the order in which they run. The plan has
//   fill(request, output)            adds zeros in all of a gradient
//   takes_all_phases(request)        whether it added grad_x as one part
//   add_phase(phase)                 adds a correlation of grad_x
//   add_grad_w(sum), add_grad_bias(sum)
template <class GradPlan>
void plan_gradients(const ConvGradRequest& r, GradPlan& plan) {
  using namespace conv_grad;
  const auto has = [&](uint32_t output) { return !r.gradient(output).is_empty(); };
  if (!r.has_terms()) {
    for (uint32_t i = 0; i < kNumOutputs; ++i)
      if (has(i)) plan.fill(r, i);
    return;
  }
  if (has(kGradX) && !plan.takes_all_phases(r)) {
    const int64_t phases = num_grad_x_phases(r.g);
    if (phases < r.g.stride) plan.fill(r, kGradX);
    for (int64_t i = 0; i < phases; ++i)
      if (const CorrelationRequest phase = r.phase(i); phase.c.length > 0) plan.add_phase(phase);
  }
  if (has(kGradW)) plan.add_grad_w(r.sum(kGradW));
  if (has(kGradBias)) plan.add_grad_bias(r.sum(kGradBias));
}

}  // namespace narrows::common
