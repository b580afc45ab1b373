// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- plans and launches conv1d. The kernels are in conv1d_direct.cpp, conv1d_dots.cpp, gemm.cpp and conv1d_scalar.cpp.
#include "conv1d.h"

#include "processor.h"

namespace narrows::cpu {

GemmProblem correlation_product(const Correlation& c, const CorrelationData& data, Dtype dtype, int64_t group) {
  GemmProblem p;
  p.rows = c.outs, p.columns = c.batch * c.length;
  GemmSegment& s = p.segments[0];
  s.end = c.ins * c.taps;
  s.a.base = advance(data.w, c.w_offset + group * c.w_group, dtype), s.a.dtype = dtype;
  s.a.depth_inner = c.taps, s.a.depth_outer = c.w_in, s.a.depth_step = c.w_tap, s.a.width_step = c.w_out;
  s.a = merged(s.a);
  s.b.base = advance(data.in, group * c.in_group, dtype), s.b.dtype = dtype;
  s.b.depth_inner = c.taps, s.b.depth_outer = c.in_channel, s.b.depth_step = c.tap_step;
  s.b.width_inner = c.length, s.b.width_outer = c.in_batch, s.b.width_step = c.step;
  s.b.origin = c.origin, s.b.extent = c.extent, s.b.stride = c.in_position;
  p.output.base = advance(data.out, c.out_offset + group * c.out_group, dtype), p.output.dtype = dtype;
  p.output.row_stride = c.out_channel;
  p.output.column_inner = c.length, p.output.column_outer_stride = c.out_batch, p.output.column_stride = c.out_position;
  p.output.bias_stride = c.bias_stride;
  if (data.bias != nullptr) p.output.bias = advance(data.bias, group * c.outs * c.bias_stride, dtype);
  return p;
}

namespace {

// One output of each example, by one tap: x's rows by the filters, which are the columns then, so that y is stored row by row.
bool is_product_of_rows(const Correlation& c) {
  return c.batch > 1 && c.length == 1 && c.taps == 1 && c.origin >= 0 && c.origin < c.extent;
}
GemmProblem product_of_rows(const Correlation& c, const CorrelationData& data, Dtype dtype, int64_t group) {
  GemmProblem p = correlation_product(c, data, dtype, group);
  p.rows = c.batch, p.columns = c.outs;
  const void* x = advance(data.in, group * c.in_group + c.origin * c.in_position, dtype);
  p.segments[0].b = matrix_view(p.segments[0].a.base, dtype, c.w_in, c.w_out);
  p.segments[0].a = matrix_view(x, dtype, c.in_channel, c.in_batch);
  p.output.row_stride = c.out_batch, p.output.column_inner = INT64_MAX, p.output.column_stride = c.out_channel;
  p.output.bias_by_column = true;
  return p;
}

constexpr const char* kKernels[] = {"direct", "dots", "gemm", "scalar", nullptr};
enum Kernel { kDirect, kDots, kGemm, kScalar };
using namespace conv;

// Up to so many outputs of each filter dot products take less time than gemm, by 256 channels and 512 filters of one tap.
int64_t few_outputs(const Instance& instance, Dtype dtype, bool of_rows) {
  if (size_of(dtype) > 2) return of_rows ? 96 : 16;
  if (dtype == Dtype::f16 || instance.bf16_products == Bf16Products::f32) return 15;
  static const bool slow_pairs = is_intel();  // whose vdpbf16ps starts too rarely; AMD's multiplies twice as much as f32's
  return instance.bf16_products == Bf16Products::dots && slow_pairs ? 16 : 6;
}
// By what was measured (docs/internals/cpu_speed.md): a filter's outputs of one example decide, since gemm packs each example's
// rows; but where the examples are the rows, their number does.
bool prefers_dots(const Instance& instance, const ConvGeometry& g, const Correlation& c) {
  if (c.ins * c.taps < 8 || !c.has_whole_filters()) return false;
  if (c.outs < 8) return c.length <= 4;
  const bool of_rows = is_product_of_rows(c);
  return (c.length <= 2 && !of_rows) || c.batch * c.length <= few_outputs(instance, g.dtype, of_rows);
}
// Fewer filters than a tile has rows: where the direct kernel's windows are short, or hold many terms.
bool prefers_gemm(const ConvGeometry& g, const Correlation& c) {
  const int64_t terms = c.ins * c.taps;
  return prefers_product(g) || (c.outs >= 4 && terms >= 16) || (terms >= 32 && c.length <= 64 / std::max<int64_t>(c.taps, 1));
}
Kernel choose(const Instance& instance, const ConvGeometry& g, const Correlation& c) {
  if (prefers_dots(instance, g, c)) return kDots;
  return prefers_gemm(g, c) ? kGemm : kDirect;
}

class ConvPlan final : public Plan {
 public:
  ConvPlan(const Instance& instance, const nw_sig& sig) : instance_(instance) {
    const ConvGeometry g = conv_geometry(sig, kX, kW, sig.num_inputs);
    dtype_ = g.dtype;
    correlation_ = forward_correlation(sig, g);
    const int forced = forced_kernel(sig, kKernels);
    choice_ = forced >= 0 ? static_cast<Kernel>(forced) : choose(instance, g, correlation_);
    kernel = kKernels[choice_];
    empty_ = !g.has_outputs();
    if (empty_) return;
    const Correlation& c = correlation_;
    if (choice_ == kDirect) {
      direct_ = direct_layout(instance, dtype_, 1, c);
      workspace_size = direct_.workspace_size;
    } else if (choice_ == kDots) {
      if (!c.has_whole_filters()) refuse(NW_UNSUPPORTED, kW, "conv1d: kernel 'dots' needs contiguous taps in w");
      dots_ = dots_layout(instance, dtype_, c);
      workspace_size = dots_.workspace_size;
    } else if (choice_ == kGemm) {
      of_rows_ = is_product_of_rows(c);
      const int64_t positions = c.batch * c.length, rows = of_rows_ ? positions : c.outs, columns = of_rows_ ? c.outs : positions;
      gemm_ = gemm_layout(instance, dtype_, c.groups, rows, columns, false, c.ins * c.taps);
      workspace_size = gemm_.workspace_size;
    }
  }

  void launch(const nw_call& call) const override {
    if (empty_) return;
    const CorrelationData data{cpu::data<void>(call.inputs[kX]), cpu::data<void>(call.inputs[kW]),
                               call.num_inputs > kBias ? cpu::data<void>(call.inputs[kBias]) : nullptr,
                               cpu::data<void>(call.outputs[0])};
    const auto describe = [](const void* arg, int64_t) { return *static_cast<const Correlation*>(arg); };
    if (choice_ == kDirect) return correlate_direct(instance_, direct_, call.workspace, data, describe, &correlation_);
    if (choice_ == kScalar) return correlate_scalar(instance_, dtype_, correlation_, data);
    if (choice_ == kDots) return correlate_dots(instance_, dots_, call.workspace, data, correlation_);
    const auto product = of_rows_ ? product_of_rows : correlation_product;
    gemm(instance_, gemm_, call.workspace, [&](int64_t group) { return product(correlation_, data, dtype_, group); });
  }

 private:
  const Instance& instance_;
  Dtype dtype_;
  Kernel choice_;
  bool empty_;  // y has no element
  bool of_rows_ = false;
  Correlation correlation_;
  DirectLayout direct_{};
  DotsLayout dots_{};
  GemmLayout gemm_{};
};

}  // namespace

const Op conv1d = {"conv1d", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                     return std::make_unique<ConvPlan>(instance, sig);
                   }};

}  // namespace narrows::cpu
