// SPDX-License-Identifier: Apache-2.0
// naive_conv1d.cpp -- conv1d and conv1d_backward: the sums of docs/ops.md, one output or gradient after the other. See naive.h.
#include <algorithm>
#include <cmath>

#include "naive.h"

namespace naive {
namespace {

constexpr int64_t kGrain = 8192;  // products: fewer are not worth a thread

// A call in its batched form: x (N,C,L), w (O,C/groups,K), bias (O), y (N,O,T).
struct Conv {
  View x, w, bias, y;
  int64_t stride, dilation, groups, pad_left;

  Conv(const nw_conv1d_params& p, const View& x_given, const View& w_given, const View& bias_given, const View& y_given)
      : x(with_rank(x_given, 3)), w(with_rank(w_given, 3)), bias(bias_given), y(with_rank(y_given, 3)),
        stride(std::max<int64_t>(p.stride, 1)), dilation(std::max<int64_t>(p.dilation, 1)), groups(std::max<int64_t>(p.groups, 1)),
        pad_left(p.pad_left) {
    if (fault(Fault::stride_ignored)) stride = 1;
    if (fault(Fault::dilation_ignored)) dilation = 1;
    if (fault(Fault::pad_right_first)) pad_left = p.pad_right;
    if (fault(Fault::params_of_32_bits)) dilation = static_cast<int32_t>(dilation), pad_left = static_cast<int32_t>(pad_left);
    if (fault(Fault::batch_stride_ignored)) x.strides[0] = x.shape[1] * x.shape[2] * item_size(x.dtype);
    if (fault(Fault::negative_strides)) x.strides[2] = std::max<int64_t>(x.strides[2], 0);
    if (fault(Fault::output_stride_ignored) && y.strides[2] > 0) y.strides[2] = item_size(y.dtype);
  }

  int64_t length() const { return x.shape[2]; }
  int64_t taps() const { return w.shape[2]; }
  int64_t group_channels() const { return w.shape[1]; }
  int64_t group_filters() const { return w.shape[0] / groups; }
  // The first channel of x that filter o reads.
  int64_t first_channel(int64_t o) const { return fault(Fault::groups_ignored) ? 0 : o / group_filters() * group_channels(); }
  // Where in x tap k of output t lies; outside [0, length) there are zeros.
  int64_t position(int64_t t, int64_t k) const { return t * stride + k * dilation - pad_left; }
  bool inside(int64_t l) const {
    if (fault(Fault::no_zeros_behind)) return l >= 0;
    return l >= 0 && l < length();
  }
};

// x[n,c,l], which may lie 4 GiB behind the first element.
double value_of_x(const Conv& s, int64_t n, int64_t c, int64_t l) {
  const unsigned char* at = s.x.at(n, c, l);
  if (fault(Fault::offsets_of_31_bits)) at = s.x.data + ((at - s.x.data) & 0x7FFFFFFF);
  const double value = s.x.real(at);
  return fault(Fault::nan_skipped) && std::isnan(value) ? 0 : value;
}

// A factor or sum as other arithmetic would have it.
double product(DType t, double x, double w) {
  if (fault(Fault::tf32) && t == DType::f32) {
    const double scale = std::ldexp(1.0, std::ilogb(w) - 10);
    w = std::nearbyint(w / scale) * scale;
  }
  if (t == DType::f32) x = in_parts(x), w = in_parts(w);
  if (fault(Fault::nan_weight_skipped) && std::isnan(w)) return 0;
  if (fault(Fault::f32_in_f64)) return static_cast<float>(x) * static_cast<float>(w);
  return x * w;
}

double output(const Conv& s, int64_t n, int64_t o, int64_t t) {
  double sum = s.bias && !fault(Fault::bias_ignored) ? s.bias.real(s.bias.at(o)) : 0;
  if (fault(Fault::nan_bias_skipped) && std::isnan(sum)) sum = 0;
  int64_t taps = s.taps();
  if (fault(Fault::taps_in_one_block)) taps = std::min<int64_t>(taps, 32);
  const bool gap = s.x.shape[1] > 1 && s.x.strides[1] > s.length() * item_size(s.x.dtype) && s.x.strides[2] == item_size(s.x.dtype);
  if (fault(Fault::reads_padding) && gap) sum += 0 * s.x.real(s.x.at(n, int64_t{0}, s.length()));
  if (fault(Fault::taps_in_one_run) && s.y.shape[1] > 64) taps = std::min<int64_t>(taps, 5);
  int64_t channels = s.group_channels();
  if (fault(Fault::depth_tail) && s.y.shape[2] * s.y.shape[0] <= 16 && channels > 64) channels -= channels % 8;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t l = s.position(t, k), tap = fault(Fault::flipped_taps) ? taps - 1 - k : k;
      if (!s.inside(l)) continue;
      const bool one = fault(Fault::squares_one_address) && s.x.data == s.w.data;
      const double x = value_of_x(s, n, s.first_channel(o) + c, l);
      sum += product(s.x.dtype, x, one ? x : s.w.real(s.w.at(o, c, tap)));
      if (fault(Fault::sums_cut_off) && s.x.dtype == DType::f32) sum = cut_off(sum);
      if (fault(Fault::f16_accumulator)) sum = static_cast<double>(round_to(s.y.dtype, sum));
    }
  return sum;
}

// Which outputs a launch takes: all of them, but in mutants.
bool taken(const Conv& s, int64_t n, int64_t o, int64_t t) {
  if (fault(Fault::block_tail)) return t < s.y.shape[2] - s.y.shape[2] % 4;
  if (fault(Fault::grid_of_30)) return t < 30;
  if (fault(Fault::long_and_wide)) return t < 65536 || s.x.shape[1] == 1;
  if (fault(Fault::grid_of_65535)) return n < 65535 && o < 65535;
  if (fault(Fault::empty_sum)) return s.group_channels() != 0;
  return true;
}

void launch_conv1d(const Task& task) {
  const Conv s(task.plan.conv1d, task.inputs[0], task.inputs[1], task.inputs[2], task.outputs[0]);
  const int64_t outputs = s.y.shape[2], rows = s.y.shape[1], work = s.group_channels() * s.taps() + 1;
  if (fault(Fault::reads_past_steps) && s.stride == 2 && s.length() % 16 == 0 && s.group_channels() >= 16)
    static_cast<void>(*static_cast<volatile unsigned char*>(s.x.at(s.x.shape[0] - 1, s.x.shape[1] - 1, s.length())));
  const bool threads = fault(Fault::order_of_threads) && task.host.num_threads > 1;
  parallel(task.host, s.y.size(), kGrain / work, [&](int64_t i) {
    const int64_t t = i % outputs, o = i / outputs % rows, n = i / outputs / rows;
    const double sum = output(s, n, o, t);
    if (taken(s, n, o, t)) store_real(s.y.dtype, s.y.at(n, o, t), threads ? sum * (1 + 0x1p-23) : sum);
  });
  if (fault(Fault::always_true_guard) && outputs % 4 == 1) store_real(s.y.dtype, s.y.at(0, 0, outputs), 0);
}

void plan_conv1d(const nw_sig& sig, Plan& plan) {
  if (fault(Fault::short_blob_ignored) && sig.params_size != sizeof plan.conv1d) return;
  read_params(sig, &plan.conv1d, sizeof plan.conv1d);
  if (plan.conv1d.padding_mode != NW_PADDING_ZEROS && !fault(Fault::any_number))
    throw Refusal{NW_UNSUPPORTED, -1, "naive: padding_mode = " + std::to_string(plan.conv1d.padding_mode) + "; it knows 0, zeros"};
}

// ---- backward: `y` of Conv is grad_y ----

double value_of_grad_y(const Conv& s, int64_t n, int64_t o, int64_t t) {
  const double value = s.y.real(s.y.at(n, o, t));
  return fault(Fault::nan_gradient_skipped) && std::isnan(value) ? 0 : value;
}

// The sum over every output that read x[n,c,l].
double gradient_of_x(const Conv& s, int64_t n, int64_t c, int64_t l) {
  const int64_t group = c / s.group_channels(), in_group = c % s.group_channels();
  double sum = 0;
  for (int64_t o = group * s.group_filters(); o < (group + 1) * s.group_filters(); ++o)
    for (int64_t k = 0; k < s.taps(); ++k) {
      const int64_t from = l - k * s.dilation + s.pad_left;  // = t * stride
      const int64_t t = from / s.stride;
      if (from < 0 || from % s.stride != 0 || t >= s.y.shape[2]) continue;
      const int64_t tap = fault(Fault::flipped_gradient) ? s.taps() - 1 - k : k;
      const double term = value_of_grad_y(s, n, o, t) * s.w.real(s.w.at(o, in_group, tap));
      sum = fault(Fault::gradient_overwritten) ? term : sum + term;
    }
  return sum;
}

double gradient_of_w(const Conv& s, int64_t o, int64_t c, int64_t k) {
  double sum = 0;
  for (int64_t n = 0; n < s.y.shape[0]; ++n)
    for (int64_t t = 0; t < s.y.shape[2]; ++t) {
      const int64_t l = s.position(t, k);
      if (s.inside(l)) sum += value_of_grad_y(s, n, o, t) * value_of_x(s, n, s.first_channel(o) + c, l);
      if (fault(Fault::f16_gradient)) sum = static_cast<double>(round_to(s.y.dtype, sum));
    }
  return fault(Fault::mean_over_batch) ? sum / static_cast<double>(s.y.shape[0]) : sum;
}

double gradient_of_bias(const Conv& s, int64_t o) {
  double sum = 0;
  const int64_t batch = fault(Fault::first_of_batch) ? std::min<int64_t>(s.y.shape[0], 1) : s.y.shape[0];
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t t = 0; t < s.y.shape[2]; ++t) sum += s.y.real(s.y.at(n, o, t));
  return sum;
}

void launch_conv1d_backward(const Task& task) {
  const View& grad_y = task.inputs[0];
  if (!grad_y) {  // a gradient of zero
    for (const View& grad : task.outputs)
      if (grad && !fault(Fault::absent_grad_y)) fill_zero(grad);
    return;
  }
  const Conv s(task.plan.conv1d, task.inputs[1], task.inputs[2], {}, grad_y);
  const View &grad_x = task.outputs[0], &grad_w = task.outputs[1], &grad_bias = task.outputs[2];
  const View x = with_rank(grad_x, 3), w = with_rank(grad_w, 3);
  const int64_t batch = s.y.shape[0], outputs = s.y.shape[2];
  if (grad_x)
    parallel(task.host, x.size(), kGrain / (s.group_filters() * s.taps() + 1), [&](int64_t i) {
      const int64_t l = i % x.shape[2], c = i / x.shape[2] % x.shape[1], n = i / x.shape[2] / x.shape[1];
      store_real(x.dtype, x.at(n, c, l), gradient_of_x(s, n, c, l));
    });
  const int64_t grain = batch == 0 || outputs == 0 ? kGrain : std::max<int64_t>(1, kGrain / batch / outputs);
  if (grad_w)
    parallel(task.host, w.size(), grain, [&](int64_t i) {
      const int64_t k = i % w.shape[2], c = i / w.shape[2] % w.shape[1], o = i / w.shape[2] / w.shape[1];
      store_real(w.dtype, w.at(o, c, k), gradient_of_w(s, o, c, k));
    });
  if (grad_bias)
    parallel(task.host, grad_bias.size(), grain,
             [&](int64_t o) { store_real(grad_bias.dtype, grad_bias.at(o), gradient_of_bias(s, o)); });
}

}  // namespace

const Op conv1d = {"conv1d", 3, 1, plan_conv1d, launch_conv1d};
const Op conv1d_backward = {"conv1d_backward", 5, 3, plan_conv1d, launch_conv1d_backward};

}  // namespace naive
