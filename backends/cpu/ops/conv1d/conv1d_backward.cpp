// SPDX-License-Identifier: Apache-2.0
// conv1d_backward.cpp -- plans and launches conv1d_backward: grad_x, grad_w and grad_bias, each if wanted. All of its sums are
// ordered by shape alone.
#include "conv1d.h"

namespace narrows::cpu {

namespace {

// mixed: grad_x direct, grad_w as a product.
constexpr const char* kKernels[] = {"direct", "gemm", "mixed", "scalar", nullptr};
enum Kernel { kDirect, kGemm, kMixed, kScalar };

// grad_x as a product has an input channel per row; grad_w as a product has an output channel per row.
Kernel choose(const ConvGeometry& g) { return !prefers_product(g) ? kDirect : g.ins() < 8 ? kMixed : kGemm; }
using namespace conv_grad;

// Zeros in all of a tensor.
void fill_zero(const Instance& instance, Dtype dtype, void* data, const Tensor3& to) {
  if (to.is_empty()) return;
  const Strides3 s = to.strides;
  with_dtype(dtype, [&]<class T>(T) {
    run_tasks(instance, to.outer * to.channels, static_cast<double>(to.positions), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* p = static_cast<T*>(data) + row / to.channels * s.outer + row % to.channels * s.channel;
        for (int64_t i = 0; i < to.positions; ++i) write(p + i * s.position, Accumulate<T>{0});
      }
    });
  });
}

// The largest of the phases in every respect.
Correlation largest_phase(const ConvGeometry& g) {
  Correlation c = grad_x_phase(g, {}, 0);
  c.length = (g.length - 1) / g.stride + 1;
  return c;
}

// grad_w as a product: o by (c, tap), summed over (n, t). A small result of a long sum is cut into splits, by shape alone.
struct GradWProduct {
  static constexpr int64_t kFewElements = 64 * 1024, kShortSum = 1024;
  int64_t splits = 1;
  GemmLayout layout{};
  uint64_t partial_bytes = 0, workspace_size = 0;

  GradWProduct() = default;
  GradWProduct(const Instance& instance, const ConvGeometry& g) {
    const int64_t elements = g.out_channels * g.ins() * g.taps, sum = g.batch * g.out_length;
    if (elements > 0) splits = std::clamp<int64_t>(kFewElements / elements, 1, std::max<int64_t>(1, sum / kShortSum));
    const Dtype accumulate = accumulate_dtype(g.dtype);
    layout = gemm_layout(instance, g.dtype, g.groups * splits, g.outs(), g.ins() * g.taps, false, ceil_div(sum, splits));
    if (splits > 1) partial_bytes = aligned_bytes(static_cast<uint64_t>(splits * elements * size_of(accumulate)));
    workspace_size = partial_bytes + layout.workspace_size;
  }

  GemmProblem problem(const ConvGeometry& g, const void* grad_y, const void* x, int64_t group, int64_t split) const {
    const int64_t sum = g.batch * g.out_length;
    GemmProblem p;
    p.rows = g.outs(), p.columns = g.ins() * g.taps;
    GemmSegment& s = p.segments[0];
    s.begin = split_at(sum, split), s.end = split_at(sum, split + 1);
    s.a.base = advance(grad_y, group * g.outs() * g.y.channel, g.dtype), s.a.dtype = g.dtype;
    s.a.depth_inner = g.out_length, s.a.depth_outer = g.y.outer, s.a.depth_step = g.y.position, s.a.width_step = g.y.channel;
    s.b.base = advance(x, group * g.ins() * g.x.channel, g.dtype), s.b.dtype = g.dtype;
    s.b.depth_inner = g.out_length, s.b.depth_outer = g.x.outer, s.b.depth_step = g.stride;
    s.b.width_inner = g.taps, s.b.width_outer = g.x.channel, s.b.width_step = g.dilation;
    s.b.origin = -g.pad_left, s.b.extent = g.length, s.b.stride = g.x.position;
    return p;
  }

  void run(const Instance& instance, const ConvGeometry& g, void* workspace, const void* grad_y, const void* x, void* grad_w,
           Strides3 s) const {
    const int64_t columns = g.ins() * g.taps;
    gemm(instance, layout, static_cast<char*>(workspace) + partial_bytes, [&](int64_t i) {
      const int64_t group = i / splits, split = i % splits;
      GemmProblem p = problem(g, grad_y, x, group, split);
      p.output.base = advance(grad_w, group * g.outs() * s.outer, g.dtype), p.output.dtype = g.dtype;
      p.output.row_stride = s.outer, p.output.column_inner = g.taps;
      p.output.column_outer_stride = s.channel, p.output.column_stride = s.position;
      p.output = merged(p.output);
      if (splits == 1) return p;
      p.output = {};  // [split][o][c][tap]
      p.output.dtype = accumulate_dtype(g.dtype);
      p.output.base = advance(workspace, (split * g.out_channels + group * g.outs()) * columns, p.output.dtype);
      p.output.row_stride = columns, p.output.column_stride = 1;
      return p;
    });
    if (splits > 1) with_dtype(g.dtype, [&]<class T>(T) { add_splits<T>(instance, g, workspace, grad_w, s); });
  }

 private:
  int64_t split_at(int64_t sum, int64_t split) const { return std::min(sum, split * ceil_div(sum, splits)); }

  template <class T>
  void add_splits(const Instance& instance, const ConvGeometry& g, const void* workspace, void* grad_w, Strides3 s) const {
    const int64_t columns = g.ins() * g.taps;
    const auto* partial = static_cast<const Accumulate<T>*>(workspace);
    run_tasks(instance, g.out_channels, static_cast<double>(splits * columns), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t out = begin; out < end; ++out)
        for (int64_t column = 0; column < columns; ++column) {
          Accumulate<T> total = 0;
          for (int64_t split = 0; split < splits; ++split) total += partial[(split * g.out_channels + out) * columns + column];
          write(static_cast<T*>(grad_w) + out * s.outer + column / g.taps * s.channel + column % g.taps * s.position, total);
        }
    });
  }
};

class ConvBackwardPlan final : public Plan {
 public:
  ConvBackwardPlan(const Instance& instance, const nw_sig& sig) : ConvBackwardPlan(instance, read_conv1d_backward(sig)) {}

  void launch(const nw_call& call) const override {
    const auto output = [&](uint32_t i) { return i < call.num_outputs ? data<void>(call.outputs[i]) : nullptr; };
    if (all_zero_) {
      for (uint32_t i = 0; i < kNumOutputs; ++i) fill_zero(instance_, geometry_.dtype, output(i), gradients_[i]);
      return;
    }
    void *grad_x = output(kGradX), *grad_w = output(kGradW), *grad_bias = output(kGradBias);
    const void* grad_y = data<void>(call.inputs[kGradY]);
    if (grad_x != nullptr) GradX(call, {grad_y, data<void>(call.inputs[kW]), nullptr, grad_x});
    if (grad_w != nullptr) GradW(call, grad_y, data<void>(call.inputs[kX]), grad_w);
    if (grad_bias != nullptr) GradBias(call, grad_y, grad_bias);
  }

 private:
  ConvBackwardPlan(const Instance& instance, const ConvGradRequest& r) : instance_(instance), geometry_(r.g) {
    const int forced = forced_kernel(r.sig, kKernels);
    choice_ = forced >= 0 ? static_cast<Kernel>(forced) : choose(r.g);
    kernel = kKernels[choice_];
    for (uint32_t i = 0; i < kNumOutputs; ++i) gradients_[i] = r.gradient(i);
    phases_ = r.g.length > 0 ? num_grad_x_phases(r.g) : 0;
    all_zero_ = !r.has_terms();
    if (!all_zero_ && choice_ != kScalar) PlanLayouts(r);
  }

  void PlanLayouts(const ConvGradRequest& r) {
    const ConvGeometry& g = geometry_;
    if (r.wants(kGradX) && phases_ > 0) {
      const Correlation c = largest_phase(g);
      if (choice_ == kGemm) {
        gemm_ = gemm_layout(instance_, g.dtype, phases_ * g.groups, c.outs, c.batch * c.length, false, c.ins * c.taps);
      } else {
        direct_ = direct_layout(instance_, g.dtype, phases_, c);
      }
    }
    if (r.wants(kGradW)) {
      if (choice_ == kDirect) {
        sums_w_ = grad_w_layout(instance_, g);
      } else {
        product_ = GradWProduct(instance_, g);
      }
    }
    if (r.wants(kGradBias)) sums_bias_ = grad_bias_layout(instance_, g);
    // One gradient after the other in the same memory.
    workspace_size = std::max(
        {direct_.workspace_size, gemm_.workspace_size, sums_w_.workspace_size, product_.workspace_size, sums_bias_.workspace_size});
  }

  void GradX(const nw_call& call, const CorrelationData& data) const {
    const ConvGeometry& g = geometry_;
    const Strides3 grad_x = gradients_[kGradX].strides;
    if (phases_ < g.stride) fill_zero(instance_, g.dtype, data.out, gradients_[kGradX]);
    if (choice_ == kScalar) {
      for (int64_t i = 0; i < phases_; ++i) correlate_scalar(instance_, g.dtype, grad_x_phase(g, grad_x, i), data);
    } else if (choice_ == kGemm) {
      gemm(instance_, gemm_, call.workspace,
           [&](int64_t i) { return correlation_product(grad_x_phase(g, grad_x, i / g.groups), data, g.dtype, i % g.groups); });
    } else {
      const auto describe = [](const void* arg, int64_t phase) {
        const auto* plan = static_cast<const ConvBackwardPlan*>(arg);
        return grad_x_phase(plan->geometry_, plan->gradients_[kGradX].strides, phase);
      };
      correlate_direct(instance_, direct_, call.workspace, data, describe, this);
    }
  }

  void GradW(const nw_call& call, const void* grad_y, const void* x, void* grad_w) const {
    const ConvGeometry& g = geometry_;
    const Strides3 to = gradients_[kGradW].strides;
    if (choice_ == kScalar) return grad_w_scalar(instance_, g, grad_y, x, grad_w, to);
    if (choice_ == kDirect) return grad_w_direct(instance_, sums_w_, g, call.workspace, grad_y, x, grad_w, to);
    product_.run(instance_, g, call.workspace, grad_y, x, grad_w, to);
  }

  void GradBias(const nw_call& call, const void* grad_y, void* grad_bias) const {
    const int64_t stride = gradients_[kGradBias].strides.outer;
    if (choice_ == kScalar) return grad_bias_scalar(instance_, geometry_, grad_y, grad_bias, stride);
    grad_bias_sum(instance_, sums_bias_, geometry_, call.workspace, grad_y, grad_bias, stride);
  }

  const Instance& instance_;
  const ConvGeometry geometry_;
  Kernel choice_;
  Tensor3 gradients_[kNumOutputs];
  int64_t phases_;
  bool all_zero_;  // grad_y is absent or has no element
  DirectLayout direct_{};
  GemmLayout gemm_{};
  GradWProduct product_;
  SumLayout sums_w_{}, sums_bias_{};
};

}  // namespace

const Op conv1d_backward = {"conv1d_backward", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                              return std::make_unique<ConvBackwardPlan>(instance, sig);
                            }};

}  // namespace narrows::cpu
