// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- the geometry of conv1d: sizes, padding, residues of the stride.
#include "conv1d.h"

#include "integers.h"

namespace narrows::common {

ConvGeometry conv_geometry(const nw_sig& sig, uint32_t x, uint32_t w, uint32_t y) {
  const auto params = read_params<nw_conv1d_params>(sig);
  if (params.padding_mode != NW_PADDING_ZEROS)
    refuse(NW_UNSUPPORTED, -1, "%s: padding_mode %lld; this backend has 0 (zeros)", sig.op,
           static_cast<long long>(params.padding_mode));
  const auto extent = [&](uint32_t tensor, int32_t from_end) {
    const nw_tensor_sig& t = sig.tensors[tensor];
    return from_end <= t.ndim ? t.shape[t.ndim - from_end] : 1;
  };
  const auto one_if_zero = [](int64_t v) { return v == 0 ? 1 : v; };
  ConvGeometry g;
  g.dtype = float_dtype(sig, x);
  g.batch = extent(x, 3), g.in_channels = extent(x, 2), g.length = extent(x, 1);
  g.out_channels = extent(w, 3), g.taps = extent(w, 1), g.out_length = extent(y, 1);
  g.groups = one_if_zero(params.groups), g.stride = one_if_zero(params.stride), g.dilation = one_if_zero(params.dilation);
  g.pad_left = params.pad_left;
  g.x = strides3(sig.tensors[x]), g.w = strides3(sig.tensors[w]), g.y = strides3(sig.tensors[y]);
  return g;
}

// Dot products read each weight once, from all of the device at once. A sum of fewer terms leaves most threads of a warp idle.
bool prefers_dots(const ConvGeometry& g) {
  constexpr int64_t kFewestTerms = 32;
  return has_few_outputs(g.batch, g.out_length) && g.ins() >= (kFewestTerms + g.taps - 1) / std::max<int64_t>(g.taps, 1);
}

// Enough groups of threads for a device, and no more than some megabytes of sums.
SumSlices slices_of_sums(const ConvGeometry& g, const Tensor3& to, int64_t tap_blocks, int64_t least) {
  constexpr int64_t kGroups = 2048, kMostSums = int64_t{1} << 21;
  const int64_t total = g.batch * g.out_length, rows = to.outer * to.channels;
  const int64_t wanted = std::min(ceil_div(kGroups, rows * tap_blocks), kMostSums / to.size());
  const int64_t length = ceil_div(total, std::clamp<int64_t>(wanted, 1, std::max<int64_t>(total / least, 1)));
  return {ceil_div(total, length), length};
}

Correlation forward_correlation(const nw_sig& sig, const ConvGeometry& g) {
  Correlation c{};
  c.batch = g.batch, c.groups = g.groups, c.outs = g.outs(), c.ins = g.ins(), c.length = g.out_length, c.taps = g.taps;
  c.step = g.stride, c.tap_step = g.dilation, c.origin = -g.pad_left, c.extent = g.length;
  c.in_batch = g.x.outer, c.in_group = g.ins() * g.x.channel, c.in_channel = g.x.channel, c.in_position = g.x.position;
  c.w_group = g.outs() * g.w.outer, c.w_out = g.w.outer, c.w_in = g.w.channel, c.w_tap = g.w.position;
  c.out_batch = g.y.outer, c.out_group = g.outs() * g.y.channel, c.out_channel = g.y.channel, c.out_position = g.y.position;
  c.bias_stride = has_input(sig, conv::kBias) ? input(sig, conv::kBias).strides[0] : 0;
  return c;
}

CorrelationRequest forward_request(const nw_sig& sig, const ConvGeometry& g) {
  const int64_t bias_align = has_input(sig, conv::kBias) ? alignment(input(sig, conv::kBias)) : size_of(g.dtype);
  return {g.dtype,    forward_correlation(sig, g), alignment(input(sig, conv::kX)), alignment(input(sig, conv::kW)),
          bias_align, alignment(output(sig, 0))};
}

int64_t num_grad_x_phases(const ConvGeometry& g) { return std::min(g.taps, g.stride / std::gcd(g.stride, g.dilation)); }

// Phase i has the taps i, i + cycle, ...; they reach the positions p = q * stride + r with r = (i * dilation - pad) mod stride,
// from t = (p + pad - tap * dilation) / stride. Taps run backwards, so that t grows with them. A stride that is never taken is
// left 0: its product could overflow.
Correlation grad_x_phase(const ConvGeometry& g, Strides3 grad_x, int64_t phase) {
  const int64_t divisor = std::gcd(g.stride, g.dilation), cycle = g.stride / divisor, step = g.dilation / divisor;
  const int64_t reach = phase * g.dilation - g.pad_left;
  const int64_t residue = reach % g.stride + (reach % g.stride < 0 ? g.stride : 0);
  Correlation c{};
  c.taps = (g.taps - phase - 1) / cycle + 1;
  c.batch = g.batch, c.groups = g.groups, c.outs = g.ins(), c.ins = g.outs();
  c.step = 1, c.tap_step = step, c.extent = g.out_length;
  if (residue >= g.length) return c;  // no position; what follows could overflow
  c.length = (g.length - residue - 1) / g.stride + 1;
  c.origin = (residue - reach) / g.stride - (c.taps - 1) * step;
  c.in_batch = g.y.outer, c.in_group = g.outs() * g.y.channel, c.in_channel = g.y.channel, c.in_position = g.y.position;
  c.w_offset = (phase + (c.taps - 1) * cycle) * g.w.position, c.w_tap = c.taps > 1 ? -cycle * g.w.position : 0;
  c.w_group = g.outs() * g.w.outer, c.w_out = g.w.channel, c.w_in = g.w.outer;
  c.out_offset = residue * grad_x.position, c.out_batch = grad_x.outer, c.out_group = g.ins() * grad_x.channel;
  c.out_channel = grad_x.channel, c.out_position = c.length > 1 ? g.stride * grad_x.position : 0;
  return c;
}

ConvGradRequest read_conv1d_backward(const nw_sig& sig) {
  return {sig, conv_geometry(sig, conv_grad::kX, conv_grad::kW, conv_grad::kGradY)};
}

Tensor3 ConvGradRequest::gradient(uint32_t i) const {
  if (!wants(i)) return {};
  const Strides3 strides = strides3(output(sig, i));
  if (i == conv_grad::kGradX) return {g.batch, g.in_channels, g.length, strides};
  if (i == conv_grad::kGradW) return {g.out_channels, g.ins(), g.taps, strides};
  return {g.out_channels, 1, 1, {strides.position, 0, 0}};
}

CorrelationRequest ConvGradRequest::phase(int64_t i) const {
  const nw_tensor_sig& grad_x = output(sig, conv_grad::kGradX);
  return {g.dtype,
          grad_x_phase(g, strides3(grad_x), i),
          alignment(input(sig, conv_grad::kGradY)),
          alignment(input(sig, conv_grad::kW)),
          size_of(g.dtype),
          alignment(grad_x)};
}

SumRequest ConvGradRequest::sum(uint32_t i) const {
  return {g,
          gradient(i),
          i == conv_grad::kGradBias,
          alignment(input(sig, conv_grad::kGradY)),
          alignment(input(sig, conv_grad::kX)),
          alignment(output(sig, i))};
}

}  // namespace narrows::common
