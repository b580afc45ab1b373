// SPDX-License-Identifier: Apache-2.0
// What plugin.hpp offers to kernels, an op each: leading dimensions and a backward op that leaves out what follows, dtypes of
// single tensors, 16-bit floats, strided and copied tensors, several kernels, a workspace, a check of params.
#include <cmath>
#include <narrows/plugin.hpp>

using narrows::bf16;
using narrows::f16;
using narrows::plugin::dtype;
using narrows::plugin::field;
using narrows::plugin::Launch;
using narrows::plugin::Layout;
using narrows::plugin::Piece;
using narrows::plugin::Signature;
using narrows::plugin::View;

namespace {

struct Norm {
  float eps;
};

// y = x / sqrt(mean(x²) + eps) · w, along the last axis.
struct Rows {
  int64_t count, length;
  explicit Rows(const DLTensor& x) : count(1), length(x.shape[x.ndim - 1]) {
    for (int32_t d = 0; d + 1 < x.ndim; ++d) count *= x.shape[d];
  }
};

double scale_of(const float* x, const Rows& rows, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < rows.length; ++i) sum += double{x[i]} * x[i];
  return 1 / std::sqrt(sum / static_cast<double>(rows.length) + eps);
}

void check_norm(const Signature& call) {
  const float eps = call.params<Norm>().eps;
  if (!(eps > 0)) throw std::invalid_argument("eps is " + std::to_string(eps) + "; expected more than 0");
}

void norm(const Launch& call) {
  const Rows rows(call.in(0));
  const float *const x = call.input<float>(0), *const w = call.input<float>(1), eps = call.params<Norm>().eps;
  float* const y = call.output<float>(0);
  call.parallel_for(rows.count, [=](int64_t row) {
    const double scale = scale_of(x + row * rows.length, rows, eps);
    for (int64_t i = 0; i < rows.length; ++i)
      y[row * rows.length + i] = static_cast<float>(x[row * rows.length + i] * scale * w[i]);
  });
}

void norm_backward(const Launch& call) {  // grad_y?, x, w, y? -> grad_x?, grad_w?
  const Rows rows(call.in(1));
  const float *const g = call.has_input(0) ? call.input<float>(0) : nullptr, *const x = call.input<float>(1),
                     *const w = call.input<float>(2), eps = call.params<Norm>().eps;
  float *const grad_x = call.has_output(0) ? call.output<float>(0) : nullptr, *const grad_w = call.has_output(1)
                                                                                                  ? call.output<float>(1)
                                                                                                  : nullptr;
  std::vector<double> sums(static_cast<size_t>(rows.length));
  for (int64_t row = 0; row < rows.count; ++row) {
    const int64_t first = row * rows.length;
    const double scale = scale_of(x + first, rows, eps);
    double dot = 0;
    for (int64_t i = 0; i < rows.length; ++i) {
      const double gi = g == nullptr ? 0 : g[first + i];
      dot += gi * w[i] * x[first + i];
      sums[static_cast<size_t>(i)] += gi * x[first + i] * scale;
    }
    for (int64_t i = 0; i < rows.length && grad_x != nullptr; ++i) {
      const double gi = g == nullptr ? 0 : g[first + i];
      grad_x[first + i] =
          static_cast<float>(scale * (gi * w[i] - x[first + i] * scale * scale * dot / static_cast<double>(rows.length)));
    }
  }
  for (int64_t i = 0; i < rows.length && grad_w != nullptr; ++i) grad_w[i] = static_cast<float>(sums[static_cast<size_t>(i)]);
}

template <class T>
void twice_of(const Launch& call) {
  const T* const x = call.input<T>(0);
  T* const y = call.output<T>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = 2 * x[i]; });
}
void twice(const Launch& call) {
  const DLDataType t = call.in(0).dtype;
  t.code == kDLBfloat ? twice_of<bf16>(call) : t.bits == 16 ? twice_of<f16>(call) : twice_of<double>(call);
}

template <class T>
void pick_of(const Launch& call) {
  const T* const x = call.input<T>(0);
  const int64_t *const at = call.input<int64_t>(1), n = call.in(0).shape[0];
  T* const y = call.output<T>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = at[i] >= 0 && at[i] < n ? x[at[i]] : T{}; });
}
void pick(const Launch& call) { call.in(0).dtype.bits == 32 ? pick_of<float>(call) : pick_of<double>(call); }

void sum(const Launch& call) {
  const float *const a = call.input<float>(0), *const b = call.input<float>(1);
  float* const y = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = a[i] + b[i]; });
}
void sum_backward(const Launch& call) {  // it asks for the size of grad_a?, which may be absent
  const int64_t n = call.size(0);
  for (uint32_t k = 0; k < 2; ++k) std::copy_n(call.input<float>(0), n, call.output<float>(k));
}

void transpose(const Launch& call) {
  const auto x = call.input_view<float, 2>(0);
  const auto y = call.output_view<float, 2>(0);
  for (int64_t i = 0; i < y.extent(0); ++i)
    for (int64_t j = 0; j < y.extent(1); ++j) y(i, j) = x(j, i);
}
void transpose_as_if_contiguous(const Launch& call) { call.output<float>(0)[0] = call.input<float>(0)[0]; }
void transpose_of_three(const Launch& call) { call.input_view<float, 3>(0); }

// y = x * w, of any rank and strides; w is repeated along the leading dimensions.
template <class T>
void scaled_of(const Launch& call) {
  call.walk({call.out(0), call.in(0), call.in(1)}, [](const Piece& piece) {
    const auto y = piece.of<T>(0);
    const auto x = piece.of<const T>(1), w = piece.of<const T>(2);
    for (int64_t i = 0; i < piece.size(); ++i) y(i) = x(i) * w(i);
  });
}
void scaled(const Launch& call) { call.in(0).dtype.bits == 32 ? scaled_of<float>(call) : scaled_of<double>(call); }

void running(const Launch& call) {
  const float* const x = call.input<float>(0);
  float* const y = call.output<float>(0);
  double* const sums = call.workspace<double>();
  const int64_t n = call.size(0);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sums[i] = sum += x[i];
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(sums[i]);
}
uint64_t running_bytes(const Signature& call) { return static_cast<uint64_t>(call.size(0)) * sizeof(double); }

template <int by>
void plus(const Launch& call) {
  const float* const x = call.input<float>(0);
  float* const y = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = x[i] + by; });
}
void roots(const Launch& call) {
  const float* const x = call.input<float>(0);
  float* const y = call.output<float>(0);
  const auto root = [=](int64_t i) {
    if (x[i] < 0) throw std::domain_error("element " + std::to_string(i) + " is negative");
    y[i] = std::sqrt(x[i]);
  };
  call.parallel_for(call.size(0), root, 1);
}
bool is_even(const Signature& call) { return call.in(0).ndim > 0 && call.in(0).shape[0] % 2 == 0; }

}  // namespace

NARROWS_PLUGIN(
    "kit",
    {.name = "kit.norm/1",
     .inputs = {"x", "w"},
     .outputs = {"y"},
     .shape_rule = "...,D ; D -> ...,D",
     .kernel = norm,
     .params = {field("eps", &Norm::eps, 1e-6)},
     .params_size = sizeof(Norm),
     .backward = "kit.norm_backward/1",
     .saved = 3,
     .check = check_norm,
     .batch = "...",
     .layout = Layout::copied},
    {.name = "kit.norm_backward/1", .kernel = norm_backward, .layout = Layout::copied},
    {.name = "kit.twice/1", .inputs = {"x: f16|bf16|f64"}, .outputs = {"y"}, .kernel = twice},
    {.name = "kit.pick/1",
     .inputs = {"x", "at: i64"},
     .outputs = {"y"},
     .shape_rule = "N ; M -> M",
     .kernel = pick,
     .dtypes = {dtype<float>(), dtype<double>()},
     .layout = Layout::copied},
    {.name = "kit.sum/1",
     .inputs = {"a", "b"},
     .outputs = {"y"},
     .shape_rule = "... ; ... -> ...",
     .kernel = sum,
     .backward = "kit.sum_backward/1"},
    {.name = "kit.sum_backward/1", .kernel = sum_backward},
    {.name = "kit.transpose/1",
     .inputs = {"x"},
     .outputs = {"y"},
     .shape_rule = "N,M -> M,N",
     .kernel = transpose,
     .layout = Layout::strided},
    {.name = "kit.scaled/1",
     .inputs = {"x", "w"},
     .outputs = {"y"},
     .shape_rule = "...,D ; D -> ...,D",
     .kernel = scaled,
     .dtypes = {dtype<float>(), dtype<double>()},
     .flags = NW_OP_INPLACE,
     .layout = Layout::strided},
    {.name = "kit.wrong_layout/1",
     .inputs = {"x"},
     .outputs = {"y"},
     .kernel = transpose_as_if_contiguous,
     .layout = Layout::strided},
    {.name = "kit.wrong_rank/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = transpose_of_three, .layout = Layout::strided},
    {.name = "kit.running/1",
     .inputs = {"x"},
     .outputs = {"y"},
     .kernel = running,
     .layout = Layout::copied,
     .workspace = running_bytes},
    {.name = "kit.roots/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = roots},
    {.name = "kit.plus/1",
     .inputs = {"x"},
     .outputs = {"y"},
     .layout = Layout::copied,
     .variants = {{"one", plus<1>, is_even}, {"two", plus<2>}}})
