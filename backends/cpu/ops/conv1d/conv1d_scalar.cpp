// SPDX-License-Identifier: Apache-2.0
// conv1d_scalar.cpp -- conv1d and its gradients as plain loops: the baseline that the other kernels are measured and checked
// against.
#include "conv1d.h"

namespace narrows::cpu {
namespace {

constexpr int64_t kBlock = 4096;

template <class T>
Accumulate<T> correlate_at(const Correlation& c, const T* in, const T* w, int64_t q) {
  Accumulate<T> sum = 0;
  for (int64_t channel = 0; channel < c.ins; ++channel)
    for (int64_t j = 0; j < c.taps; ++j) {
      const int64_t position = q * c.step + c.origin + j * c.tap_step;  // no part of it is beyond 64 bits
      if (position < 0 || position >= c.extent) continue;
      sum += read(in + channel * c.in_channel + position * c.in_position) * read(w + channel * c.w_in + j * c.w_tap);
    }
  return sum;
}

template <class T>
void correlate(const Instance& instance, const Correlation& c, const CorrelationData& data) {
  const int64_t blocks = ceil_div(c.length, kBlock);
  const double cost = static_cast<double>(std::min(kBlock, c.length)) * static_cast<double>(c.ins) * static_cast<double>(c.taps);
  run_tasks(instance, c.batch * c.groups * c.outs * blocks, cost, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task % blocks, row = task / blocks;
      const int64_t m = row % c.outs, group = row / c.outs % c.groups, n = row / c.outs / c.groups;
      const T* in = static_cast<const T*>(data.in) + n * c.in_batch + group * c.in_group;
      const T* w = static_cast<const T*>(data.w) + c.w_offset + group * c.w_group + m * c.w_out;
      const T* bias = static_cast<const T*>(data.bias);
      const auto add = bias != nullptr ? read(bias + (group * c.outs + m) * c.bias_stride) : Accumulate<T>{0};
      T* out = static_cast<T*>(data.out) + c.out_offset + n * c.out_batch + group * c.out_group + m * c.out_channel;
      for (int64_t q = block * kBlock; q < std::min(c.length, (block + 1) * kBlock); ++q)
        write(out + q * c.out_position, correlate_at(c, in, w, q) + add);
    }
  });
}

template <class T>
double grad_w_at(const ConvGeometry& g, const T* grad_y, const T* x, int64_t tap) {
  double sum = 0;
  for (int64_t n = 0; n < g.batch; ++n)
    for (int64_t t = 0; t < g.out_length; ++t) {
      const int64_t position = t * g.stride - g.pad_left + tap * g.dilation;
      if (position < 0 || position >= g.length) continue;
      sum +=
          static_cast<double>(read(grad_y + n * g.y.outer + t * g.y.position)) * read(x + n * g.x.outer + position * g.x.position);
    }
  return sum;
}

}  // namespace

void correlate_scalar(const Instance& instance, Dtype dtype, const Correlation& correlation, const CorrelationData& data) {
  with_dtype(dtype, [&](auto zero) { correlate<decltype(zero)>(instance, correlation, data); });
}

void grad_w_scalar(const Instance& instance, const ConvGeometry& g, const void* grad_y, const void* x, void* grad_w, Strides3 s) {
  with_dtype(g.dtype, [&]<class T>(T) {
    const auto cost = static_cast<double>(g.batch * g.out_length);
    run_tasks(instance, g.out_channels * g.ins() * g.taps, cost, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t tap = i % g.taps, channel = i / g.taps % g.ins(), out = i / g.taps / g.ins();
        const T* source = static_cast<const T*>(x) + (out / g.outs() * g.ins() + channel) * g.x.channel;
        const double sum = grad_w_at(g, static_cast<const T*>(grad_y) + out * g.y.channel, source, tap);
        write(static_cast<T*>(grad_w) + out * s.outer + channel * s.channel + tap * s.position, static_cast<Accumulate<T>>(sum));
      }
    });
  });
}

void grad_bias_scalar(const Instance& instance, const ConvGeometry& g, const void* grad_y, void* grad_bias, int64_t stride) {
  with_dtype(g.dtype, [&]<class T>(T) {
    run_tasks(instance, g.out_channels, static_cast<double>(g.batch * g.out_length), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t out = begin; out < end; ++out) {
        double sum = 0;
        for (int64_t n = 0; n < g.batch; ++n)
          for (int64_t t = 0; t < g.out_length; ++t)
            sum += read(static_cast<const T*>(grad_y) + n * g.y.outer + out * g.y.channel + t * g.y.position);
        write(static_cast<T*>(grad_bias) + out * stride, static_cast<Accumulate<T>>(sum));
      }
    });
  });
}

}  // namespace narrows::cpu
