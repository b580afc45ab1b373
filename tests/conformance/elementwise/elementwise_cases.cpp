// SPDX-License-Identifier: Apache-2.0
// elementwise_cases.cpp -- see elementwise_cases.h.
#include "elementwise_cases.h"

#include <cmath>

#include "support/bool_bytes.h"

namespace narrows::test {
namespace {

struct Range {
  double low, high;
};

// How far a result may be off, in units of the last place for f32 and f64 against an unrounded reference.
enum class Error { none, ieee, two_steps, library, composed };
constexpr double kIeee =
    0.5 + 0x1p-9;               // correctly rounded, as IEEE 754 demands; the 2^-9 is the reference's own rounding to 64 bits
constexpr double kUlps[] = {0,  // none: a copy, a choice, or exactly representable
                            kIeee,
                            1.5,  // two_steps: two operations, each correctly rounded
                            4,    // library: what the vector libraries promise (Highway documents up to 4, SLEEF 1)
                            6};   // composed: a few such steps after each other, none of which cancels

// What core/ops/elementwise_functions.toml says of each function: where it is smooth and finite for f32 (f64 uses the second range,
// 16 bits what fits them), and its error. 16-bit results are computed in f32 and rounded once: half a unit, and a little for the
// f32 error near a tie.
struct Row {
  Range a32, a64, b;
  Error error;
  double cancels;    // more, in units of epsilon: what cancels
  double subnormal;  // more, in units of the smallest subnormal: an intermediate result has fewer digits there
};
constexpr Row kRows[] = {
#define NARROWS_CASE(name, low, high, low_f64, high_f64, low_b, high_b, error, cancels, subnormal) \
  {{low, high}, {low_f64, high_f64}, {low_b, high_b}, Error::error, cancels, subnormal},
#include "support/elementwise_cases.inc"
#undef NARROWS_CASE
};

const Row& row(const Function& f) { return kRows[f.number - 1]; }

Range domain(const Function& f, int operand, DType dtype) {
  if (operand != 0) return row(f).b;
  return dtype == DType::f64 ? row(f).a64 : row(f).a32;
}

// Half of them uniform, half with a uniform logarithm, so that small magnitudes are tried as well.
Exact draw(Range range, Rng& rng) {
  if (rng.bits() & 1) return rng.uniform(range.low, range.high);
  const double magnitude = std::pow(10, rng.uniform(-12, std::log10(std::max(-range.low, range.high))));
  const double value = rng.bits() & 1 ? magnitude : -magnitude;
  return value < range.low || value > range.high ? Exact(magnitude) : Exact(value);
}

Exact draw_integer(const Function& f, int operand, DType dtype, Rng& rng) {
  const bool shift = f.domain == reference::Domain::integers && operand == 1;
  if (shift) return static_cast<Exact>(rng.integer(is_signed_int(dtype) ? -2 : 0, item_size(dtype) * 8 + 1));
  if (rng.bits() & 1) return static_cast<Exact>(rng.integer(is_signed_int(dtype) ? -3 : 0, 5));
  unsigned char bytes[8];
  const uint64_t bits = rng.bits();
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(bits >> (8 * i));
  return load(dtype, bytes);
}

}  // namespace

nw_elementwise_params params_for(const Function& f) {
  nw_elementwise_params p{};
  p.function = f.number;
  if (f.number == NW_EW_ELU) p.alpha = kAlpha;
  return p;
}

DType operand_dtype(const Function& f, int operand, DType dtype) {
  return f.number == NW_EW_WHERE && operand == 0 ? DType::boolean : dtype;
}

Result run_params(const nw_elementwise_params& params, const std::vector<const Tensor*>& operands, Tensor& out,
                  const char* kernel) {
  const int32_t n = params.function;
  const char* note = n >= 1 && n <= static_cast<int32_t>(functions().size()) ? reference::function(n).name : "?";
  return run("elementwise", operands, {&out}, params, kernel, 0, note);
}

Result run_function(const Function& f, const std::vector<const Tensor*>& operands, Tensor& out, const char* kernel) {
  return run_params(params_for(f), operands, out, kernel);
}

const std::vector<Exact>& special_values(DType dtype) {
  static const auto make = [](DType d) {
    const Exact tiny = smallest_subnormal(d), normal = std::ldexp(Exact(1), float_format(d).min_exponent), big = largest(d);
    return std::vector<Exact>{kNaN,   kInf,    -kInf,         0,   Exact(-0.0), 1,   -1,   tiny, -tiny,
                              normal, -normal, normal - tiny, big, -big,        0.5, -0.5, 2,    -2};
  };
  static const std::vector<Exact> lists[] = {make(DType::f32), make(DType::f64), make(DType::f16), make(DType::bf16)};
  return lists[static_cast<int>(dtype) - 1];
}

std::vector<Exact> sample(const Function& f, int operand, DType dtype, int64_t n, Rng& rng, bool plain) {
  const DType own = operand_dtype(f, operand, dtype);
  const bool specials = !plain && is_float(own);
  std::vector<Exact> values(n);
  for (int64_t i = 0; i < n; ++i) {
    if (own == DType::boolean)
      values[i] = any_bool(rng);
    else if (!is_float(own))
      values[i] = draw_integer(f, operand, own, rng);
    else if (specials && rng.bits() % 17 == 0)
      values[i] = special_values(own)[rng.bits() % special_values(own).size()];
    else
      values[i] = draw(domain(f, operand, own), rng);
  }
  return values;
}

Tolerance tolerance(const Function& f, DType dtype) {
  if (f.gives_bool || !is_float(dtype)) return {};
  const Row& r = row(f);
  if (r.error == Error::none) return {};
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  const DType computed = half ? DType::f32 : dtype;
  const Exact atol = r.cancels * epsilon(computed) + r.subnormal * smallest_subnormal(computed);
  const double of_float = kUlps[static_cast<int>(r.error)], ulps = !half ? of_float : of_float <= 1 ? kIeee + 0x1p-8 : 0.75;
  return {.atol = static_cast<double>(atol), .ulps = ulps};
}

std::vector<Exact> expected(const Function& f, const std::vector<const Tensor*>& operands, const Shape& out) {
  std::vector<Exact> values[3];
  for (size_t i = 0; i < operands.size(); ++i) values[i] = reference::broadcast_to(operands[i]->exact(), operands[i]->shape(), out);
  const DType dtype = operands[f.number == NW_EW_WHERE ? 1 : 0]->dtype();
  return reference::elementwise(f, dtype, values[0], values[1], values[2], kAlpha);
}

void for_each_function(const std::function<void(const Function&, DType)>& body) {
  for (const Function& f : functions())
    for (const DType dtype : kAllDTypes)
      if (f.number != NW_EW_CAST && reference::allows(f.domain, dtype)) body(f, dtype);
}

void check(const Case& c, const std::string& tag) {
  expect_offered("elementwise");
  Rng rng(tag, static_cast<uint64_t>(c.f.number) * 16 + static_cast<uint64_t>(c.dtype));
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<const Tensor*> operands;
  for (int i = 0; i < c.f.operands; ++i) {
    const Layout layout = static_cast<size_t>(i) < c.layouts.size() ? c.layouts[i] : Layout::contiguous();
    tensors.push_back(std::make_unique<Tensor>(operand_dtype(c.f, i, c.dtype), c.shapes.at(i), layout));
    tensors.back()->set(sample(c.f, i, c.dtype, tensors.back()->size(), rng));
    operands.push_back(tensors.back().get());
  }
  Tensor out(reference::out_dtype(c.f, c.dtype), c.out, c.out_layout);
  const std::vector<Exact> reference = expected(c.f, operands, c.out);
  for (const char* kernel : kernels("elementwise")) {
    const Result result = run_function(c.f, operands, out, kernel);
    if (!result.was_declined()) expect_close(result, out, reference, tolerance(c.f, c.dtype));
  }
}

}  // namespace narrows::test
