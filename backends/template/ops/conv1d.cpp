// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- conv1d in f32 and f64: kernel, plan, launch. common/conv1d.h has the geometry of it, which is all that a kernel has
// to know: strides of any sign, groups, padding, and sizes of 0.
#include "common/conv1d.h"

#include "../backend.h"

namespace narrows::template_backend {
namespace {

constexpr const char* kKernels[] = {"plain", nullptr};
using namespace conv;

// ---- the kernel ----

// The arguments of a launch. The bytes are the device's: an element may be at any address.
struct Arguments {
  Correlation c;
  const unsigned char *x, *w, *bias;  // bias: NULL if it is absent
  unsigned char* y;
};

template <class T>
T load(const unsigned char* base, int64_t element) {
  T value;
  std::memcpy(&value, base + element * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

template <class T>
T output_at(const Arguments& a, int64_t n, int64_t group, int64_t m, int64_t q) {
  const Correlation& c = a.c;
  const int64_t x = n * c.in_batch + group * c.in_group, w = c.w_offset + group * c.w_group + m * c.w_out;
  T sum = a.bias == nullptr ? T{0} : load<T>(a.bias, (group * c.outs + m) * c.bias_stride);
  for (int64_t channel = 0; channel < c.ins; ++channel)
    for (int64_t j = 0; j < c.taps; ++j) {
      const int64_t position = q * c.step + c.origin + j * c.tap_step;
      if (position < 0 || position >= c.extent) continue;  // a zero of the padding
      sum += load<T>(a.x, x + channel * c.in_channel + position * c.in_position) * load<T>(a.w, w + channel * c.w_in + j * c.w_tap);
    }
  return sum;
}

template <class T>
void kernel_of(const Arguments& a) {
  const Correlation& c = a.c;
  for (int64_t n = 0; n < c.batch; ++n)
    for (int64_t group = 0; group < c.groups; ++group)
      for (int64_t m = 0; m < c.outs; ++m)
        for (int64_t q = 0; q < c.length; ++q) {
          const T value = output_at<T>(a, n, group, m, q);
          const int64_t y = c.out_offset + n * c.out_batch + group * c.out_group + m * c.out_channel + q * c.out_position;
          std::memcpy(a.y + y * static_cast<int64_t>(sizeof value), &value, sizeof value);
        }
}

// ---- plan and launch ----

class Conv1dPlan final : public Plan {
 public:
  Conv1dPlan(const Instance& instance, const nw_sig& sig) : device_(*instance.device) {
    traits = 0;                    // a launch cannot be captured
    forced_kernel(sig, kKernels);  // an unknown one is refused
    kernel = kKernels[0];
    const ConvGeometry geometry = conv_geometry(sig, kX, kW, sig.num_inputs);
    if (geometry.dtype != Dtype::f32 && geometry.dtype != Dtype::f64)  // manifest.json says so as well
      refuse(NW_UNSUPPORTED, kX, "%s: x is %s; this backend has f32 and f64", sig.op, name_of(geometry.dtype));
    is_double_ = geometry.dtype == Dtype::f64;
    correlation_ = forward_correlation(sig, geometry);
  }

  void launch(const nw_call& call) const override {
    const auto x = [&](uint32_t i) {
      return i < call.num_inputs ? device_.host_address(call.inputs[i], static_cast<int32_t>(i)) : nullptr;
    };
    const Arguments a{correlation_, x(kX), x(kW), x(kBias),
                      device_.host_address(call.outputs[0], static_cast<int32_t>(call.num_inputs))};
    device_.launch(call.stream, [a, run = is_double_ ? kernel_of<double> : kernel_of<float>] { run(a); });
  }

 private:
  Device& device_;
  Correlation correlation_;
  bool is_double_;
};

}  // namespace

const Op conv1d = {"conv1d", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                     return std::make_unique<Conv1dPlan>(instance, sig);
                   }};

}  // namespace narrows::template_backend
