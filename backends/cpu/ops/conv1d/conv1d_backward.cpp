// SPDX-License-Identifier: Apache-2.0
// conv1d_backward.cpp -- plans and launches conv1d_backward: grad_x, grad_w and grad_bias, each if wanted. Step 5 of a tensor's
// path. All of its sums are ordered by shape alone.
#include "conv1d.h"

namespace narrows::cpu {

namespace {

// mixed: grad_x direct, grad_w as a product.
constexpr const char* kKernels[] = {"direct", "gemm", "mixed", "scalar", nullptr};
enum Kernel { kDirect, kGemm, kMixed, kScalar };

// grad_x as a product has an input channel per row; grad_w as a product has an output channel per row.
Kernel choose(const ConvGeometry& g) { return !prefers_gemm(g) ? kDirect : g.ins() < 8 ? kMixed : kGemm; }
enum Input : uint32_t { kGradY, kX, kW };
enum Output : uint32_t { kGradX, kGradW, kGradBias };

// Zeros in all of an (outer, channels, positions) tensor.
void fill_zero(const Instance& instance, Dtype dtype, void* tensor, Strides3 s, int64_t outer, int64_t channels,
               int64_t positions) {
  if (outer == 0 || channels == 0 || positions == 0) return;  // the others may be huge
  with_dtype(dtype, [&]<class T>(T) {
    run_tasks(instance, outer * channels, static_cast<double>(positions), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* p = static_cast<T*>(tensor) + row / channels * s.outer + row % channels * s.channel;
        for (int64_t i = 0; i < positions; ++i) write(p + i * s.position, Accumulate<T>{0});
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
  ConvBackwardPlan(const Instance& instance, const nw_sig& sig)
      : instance_(instance), geometry_(conv_geometry(sig, kX, kW, kGradY)) {
    const ConvGeometry& g = geometry_;
    const int forced = forced_kernel(sig, kKernels);
    choice_ = forced >= 0 ? static_cast<Kernel>(forced) : choose(g);
    kernel = kKernels[choice_];
    if (has_output(sig, kGradX)) grad_x_ = strides3(output(sig, kGradX));
    if (has_output(sig, kGradW)) grad_w_ = strides3(output(sig, kGradW));
    if (has_output(sig, kGradBias)) grad_bias_stride_ = output(sig, kGradBias).strides[0];
    phases_ = g.length > 0 ? num_grad_x_phases(g) : 0;
    all_zero_ = !has_input(sig, kGradY) || g.batch == 0 || g.out_channels == 0;
    if (!all_zero_ && choice_ != kScalar) PlanLayouts(sig);
  }

  void launch(const nw_call& call) const override {
    const auto output = [&](uint32_t i) { return i < call.num_outputs ? data<void>(call.outputs[i]) : nullptr; };
    void *grad_x = output(kGradX), *grad_w = output(kGradW), *grad_bias = output(kGradBias);
    if (all_zero_) return FillZero(grad_x, grad_w, grad_bias);
    const void* grad_y = data<void>(call.inputs[kGradY]);
    if (grad_x != nullptr) GradX(call, {grad_y, data<void>(call.inputs[kW]), nullptr, grad_x});
    if (grad_w != nullptr) GradW(call, grad_y, data<void>(call.inputs[kX]), grad_w);
    if (grad_bias != nullptr) GradBias(call, grad_y, grad_bias);
  }

 private:
  void PlanLayouts(const nw_sig& sig) {
    const ConvGeometry& g = geometry_;
    if (has_output(sig, kGradX) && phases_ > 0) {
      const Correlation c = largest_phase(g);
      if (choice_ == kGemm) {
        gemm_ = gemm_layout(instance_, g.dtype, phases_ * g.groups, c.outs, c.batch * c.length, false, c.ins * c.taps);
      } else {
        direct_ = direct_layout(instance_, g.dtype, phases_, c);
      }
    }
    if (has_output(sig, kGradW)) {
      if (choice_ == kDirect) {
        sums_w_ = grad_w_layout(instance_, g);
      } else {
        product_ = GradWProduct(instance_, g);
      }
    }
    if (has_output(sig, kGradBias)) sums_bias_ = grad_bias_layout(instance_, g);
    // One gradient after the other in the same memory.
    workspace_size = std::max(
        {direct_.workspace_size, gemm_.workspace_size, sums_w_.workspace_size, product_.workspace_size, sums_bias_.workspace_size});
  }

  void FillZero(void* grad_x, void* grad_w, void* grad_bias) const {
    const ConvGeometry& g = geometry_;
    if (grad_x != nullptr) fill_zero(instance_, g.dtype, grad_x, grad_x_, g.batch, g.in_channels, g.length);
    if (grad_w != nullptr) fill_zero(instance_, g.dtype, grad_w, grad_w_, g.out_channels, g.ins(), g.taps);
    if (grad_bias != nullptr) fill_zero(instance_, g.dtype, grad_bias, {0, 0, grad_bias_stride_}, 1, 1, g.out_channels);
  }

  void GradX(const nw_call& call, const CorrelationData& data) const {
    const ConvGeometry& g = geometry_;
    if (phases_ < g.stride) fill_zero(instance_, g.dtype, data.out, grad_x_, g.batch, g.in_channels, g.length);
    if (choice_ == kScalar) {
      for (int64_t i = 0; i < phases_; ++i) correlate_scalar(instance_, g.dtype, grad_x_phase(g, grad_x_, i), data);
    } else if (choice_ == kGemm) {
      gemm(instance_, gemm_, call.workspace,
           [&](int64_t i) { return correlation_product(grad_x_phase(g, grad_x_, i / g.groups), data, g.dtype, i % g.groups); });
    } else {
      const auto describe = [](const void* arg, int64_t phase) {
        const auto* plan = static_cast<const ConvBackwardPlan*>(arg);
        return grad_x_phase(plan->geometry_, plan->grad_x_, phase);
      };
      correlate_direct(instance_, direct_, call.workspace, data, describe, this);
    }
  }

  void GradW(const nw_call& call, const void* grad_y, const void* x, void* grad_w) const {
    const ConvGeometry& g = geometry_;
    if (choice_ == kScalar) return grad_w_scalar(instance_, g, grad_y, x, grad_w, grad_w_);
    if (choice_ == kDirect) return grad_w_direct(instance_, sums_w_, g, call.workspace, grad_y, x, grad_w, grad_w_);
    product_.run(instance_, g, call.workspace, grad_y, x, grad_w, grad_w_);
  }

  void GradBias(const nw_call& call, const void* grad_y, void* grad_bias) const {
    if (choice_ == kScalar) return grad_bias_scalar(instance_, geometry_, grad_y, grad_bias, grad_bias_stride_);
    grad_bias_sum(instance_, sums_bias_, geometry_, call.workspace, grad_y, grad_bias, grad_bias_stride_);
  }

  const Instance& instance_;
  const ConvGeometry geometry_;
  Kernel choice_;
  Strides3 grad_x_{}, grad_w_{};
  int64_t grad_bias_stride_ = 0, phases_;
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
