// SPDX-License-Identifier: Apache-2.0
// compare.cpp -- comparisons in which NaN cannot pass, and the verdicts on calls. See harness.h.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "harness.h"

namespace narrows::test {
namespace {

// Whether one element agrees. Written as "good if", so that a NaN anywhere in the arithmetic is not good.
bool agrees(DType dtype, Exact got, Exact ref, const Tolerance& t, Exact bound) {
  if (std::isnan(ref)) return std::isnan(got) && (!t.nan_sign || std::signbit(got) == std::signbit(ref));
  if (std::isnan(got)) return false;
  if (t.zero_sign && ref == 0 && got == 0) return std::signbit(got) == std::signbit(ref);
  if (got == ref) return true;
  if (std::isinf(ref)) return false;
  if (!is_float(dtype)) return std::fabs(got - ref) <= bound;
  const Exact overflow = largest(dtype) + ulp(dtype, largest(dtype)) / 2;  // from here on it rounds to infinity
  if (std::isinf(got)) return std::fabs(ref) + bound >= overflow && std::signbit(got) == std::signbit(ref);
  if (std::fabs(ref) - bound >= overflow) return false;  // finite, where only infinity is near enough
  return std::fabs(got - ref) <= bound;
}

std::string index_text(const std::vector<int64_t>& shape, int64_t flat) {
  std::string text;
  for (size_t axis = shape.size(); axis-- > 0;) {
    text = std::to_string(flat % shape[axis]) + (text.empty() ? "" : ",") + text;
    flat /= shape[axis];
  }
  return "[" + text + "]";
}

std::string mismatch_text(const Tensor& got, int64_t i, Exact value, Exact ref, Exact bound) {
  std::ostringstream text;
  text.precision(21);
  text << "at " << index_text(got.shape(), i) << ": got " << value << ", expected " << ref << ", difference "
       << std::fabs(value - ref) << " > " << bound;
  if (is_float(got.dtype()) && std::isfinite(value) && std::isfinite(ref))
    text << " (" << static_cast<double>(std::fabs(value - ref) / ulp(got.dtype(), ref)) << " ulp)";
  if (got.is_stale(i)) text << "; the element was never written";
  return text.str();
}

// Relative L2 distance, over the elements that are finite in both. The floor is half a subnormal unit per element.
std::string norm_difference(const Tensor& got, const std::vector<Exact>& values, const std::vector<Exact>& reference, double l2) {
  Exact error = 0, norm = 0, finite = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || !std::isfinite(reference[i])) continue;
    if (is_float(got.dtype()) && std::fabs(reference[i]) > largest(got.dtype())) continue;
    error += (values[i] - reference[i]) * (values[i] - reference[i]);
    norm += reference[i] * reference[i];
    finite += 1;
  }
  const Exact floor = is_float(got.dtype()) ? smallest_subnormal(got.dtype()) * std::sqrt(finite) : 0;
  if (std::sqrt(error) <= l2 * std::sqrt(norm) + floor) return {};
  std::ostringstream text;
  text << "over the tensor: |difference| " << static_cast<double>(std::sqrt(error)) << " > " << l2 << " * |reference| "
       << static_cast<double>(std::sqrt(norm));
  return text.str();
}

}  // namespace

std::string difference(const Tensor& got, const std::vector<Exact>& reference, const Tolerance& t) {
  const std::vector<Exact> values = got.exact();
  if (values.size() != reference.size())
    return "the reference has " + std::to_string(reference.size()) + " elements, the tensor " + std::to_string(values.size());
  int64_t wrong = 0;
  std::string first;
  for (size_t i = 0; i < values.size(); ++i) {
    const Exact ref = reference[i];
    Exact bound = t.atol;
    if (std::isfinite(ref)) bound += t.rtol * std::fabs(ref) + t.ulps * (t.ulps > 0 ? ulp(got.dtype(), ref) : 0);
    if (agrees(got.dtype(), values[i], ref, t, bound)) continue;
    if (wrong++ == 0) first = mismatch_text(got, static_cast<int64_t>(i), values[i], ref, bound);
  }
  if (wrong != 0) return std::to_string(wrong) + " of " + std::to_string(values.size()) + " elements differ, first " + first;
  if (!is_float(got.dtype()) && t.l2 < 0) return {};
  const double l2 = t.l2 >= 0 ? t.l2 : t.rtol + t.ulps * static_cast<double>(epsilon(got.dtype()));
  return norm_difference(got, values, reference, l2);
}

std::string difference(const Tensor& got, const std::vector<double>& reference, const Tolerance& tolerance) {
  return difference(got, std::vector<Exact>(reference.begin(), reference.end()), tolerance);
}

void expect_offered(const char* op) {
  if (!offers(op)) SKIP(backend() << " does not offer " << op);
}

void expect_ok(const Result& result) {
  if (!result.declined.empty()) SKIP(result.declined);
  if (result.ok())
    SUCCEED();
  else
    FAIL_CHECK(result.what << "\n  " << nw_status_name(result.status) << ": " << result.error.message);
}

void expect_close(const Result& result, const Tensor& got, const std::vector<Exact>& reference, const Tolerance& tolerance) {
  expect_ok(result);
  if (!result.ok()) return;
  if (const std::string text = difference(got, reference, tolerance); !text.empty()) FAIL_CHECK(result.what << "\n  " << text);
}
void expect_close(const Result& result, const Tensor& got, const std::vector<double>& reference, const Tolerance& tolerance) {
  expect_close(result, got, std::vector<Exact>(reference.begin(), reference.end()), tolerance);
}

void expect_refused(const Result& result, int32_t status, int32_t argument, std::initializer_list<const char*> words) {
  if (!result.declined.empty() && (status != NW_UNSUPPORTED || !result.offered)) SKIP(result.declined);
  std::string wrong;
  if (result.status != status)
    wrong += std::string("\n  status ") + nw_status_name(result.status) + ", expected " + nw_status_name(status);
  if (result.ok()) {
    FAIL_CHECK(result.what << wrong);
    return;
  }
  if (result.error.argument != argument)
    wrong += "\n  argument " + std::to_string(result.error.argument) + ", expected " + std::to_string(argument);
  for (const char* word : words)
    if (std::strstr(result.error.message, word) == nullptr) wrong += std::string("\n  the message lacks '") + word + "'";
  if (wrong.empty())
    SUCCEED();
  else
    FAIL_CHECK(result.what << wrong << "\n  message: " << result.error.message);
}

}  // namespace narrows::test

std::string Catch::StringMaker<std::vector<unsigned char>>::convert(const std::vector<unsigned char>& bytes) {
  constexpr size_t kShown = 64;
  std::string text = std::to_string(bytes.size()) + " bytes:";
  for (size_t i = 0; i < std::min(kShown, bytes.size()); ++i) {
    char number[4];
    std::snprintf(number, sizeof number, " %02X", bytes[i]);
    text += number;
  }
  return text + (bytes.size() > kShown ? " ..." : "");
}
