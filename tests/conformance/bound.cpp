// SPDX-License-Identifier: Apache-2.0
// bound.cpp -- see bound.h.
#include "bound.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <sstream>

namespace narrows::test {
namespace {

bool lies_within(DType dtype, Exact got, Exact reference, Exact bound) {
  if (std::isnan(reference)) return std::isnan(got);
  if (std::isinf(reference)) return got == reference;
  return got >= rounded(dtype, reference - bound) && got <= rounded(dtype, reference + bound);
}

std::string norm_excess(const Tensor& got, const std::vector<Exact>& values, const std::vector<double>& reference,
                        const std::vector<double>& bound) {
  Exact error = 0, norm = 0, bounds = 0, count = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || !std::isfinite(reference[i])) continue;
    error += (values[i] - reference[i]) * (values[i] - reference[i]);
    norm += Exact(reference[i]) * reference[i];
    bounds += Exact(bound[i]) * bound[i];
    count += 1;
  }
  const DType dtype = got.dtype();
  const Exact limit = std::sqrt(bounds) / 2 + epsilon(dtype) / 2 * std::sqrt(norm) + smallest_subnormal(dtype) * std::sqrt(count);
  if (std::sqrt(error) <= limit) return {};
  std::ostringstream text;
  text << "over the tensor: |difference| " << std::sqrt(error) << " > " << limit << ", |reference| " << std::sqrt(norm);
  return text.str();
}

}  // namespace

DType accumulator(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

std::vector<double> absolute(std::vector<double> values) {
  for (double& v : values) v = std::fabs(v);
  return values;
}

std::vector<double> sum_bound(DType accumulator, const std::vector<double>& magnitude, int64_t terms, Terms kind) {
  const auto count = static_cast<double>(terms);
  const double factor = static_cast<double>(epsilon(accumulator)) * (2 + (kind == Terms::equal ? count : std::sqrt(count)));
  std::vector<double> bound;
  for (const double m : magnitude) bound.push_back(factor * m);
  return bound;
}

std::string outside(const Tensor& got, const std::vector<double>& reference, const std::vector<double>& bound) {
  const std::vector<Exact> values = got.exact();
  if (values.size() != reference.size() || bound.size() != reference.size())
    return "the reference has " + std::to_string(reference.size()) + " elements, the tensor " + std::to_string(values.size());
  size_t wrong = 0;
  std::ostringstream first;
  first.precision(18);
  for (size_t i = 0; i < values.size(); ++i) {
    if (lies_within(got.dtype(), values[i], reference[i], bound[i]) || wrong++ != 0) continue;
    first << i << " (in C order): got " << values[i] << ", expected " << reference[i] << " within " << bound[i]
          << " before rounding";
    if (got.is_stale(static_cast<int64_t>(i))) first << "; the element was never written";
  }
  if (wrong != 0)
    return std::to_string(wrong) + " of " + std::to_string(values.size()) + " elements differ, first number " + first.str();
  return norm_excess(got, values, reference, bound);
}

void expect_within(const Result& result, const Tensor& got, const std::vector<double>& reference,
                   const std::vector<double>& bound) {
  expect_ok(result);
  if (!result.ok()) return;
  if (const std::string text = outside(got, reference, bound); !text.empty()) FAIL_CHECK(result.what << "\n  " << text);
}

bool has_stride_0(const Layout& layout) { return std::find(layout.steps.begin(), layout.steps.end(), 0) != layout.steps.end(); }
Layout without_broadcast(const Layout& layout) { return has_stride_0(layout) ? Layout::contiguous() : layout; }

}  // namespace narrows::test
