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
constexpr Range kWide{-1e30, 1e30}, kSmall{-10, 10}, kUnit{-1, 1}, kPositive{0, 1e30};

// The domain of each function, where it is smooth and finite for f32 (f64 uses the second range, 16 bits what fits them), and
// its bound in units of the last place for f32 and f64 against an unrounded reference. 16-bit results are computed in f32 and
// rounded once: half a unit, and a little for the f32 error near a tie.
struct Row {
  const char* name;
  Range a32, a64, b;
  double ulps;
  double absolute = 0;   // more, in units of epsilon: what cancels
  double subnormal = 0;  // more, in units of the smallest subnormal: an intermediate result has fewer digits there
};

// 0: the result is a copy, a choice or exactly representable.
// kIeee: IEEE 754 demands correct rounding; the 2^-9 is the reference's own rounding to 64 bits.
// kLibrary: what the vector libraries promise of a function they have (Highway documents up to 4, SLEEF 1).
// kComposed: a few such steps after each other, none of which cancels.
constexpr double kIeee = 0.5 + 0x1p-9, kTwoSteps = 1.5, kLibrary = 4, kComposed = 6;

constexpr Row kRows[] = {
    {"square", kWide, kWide, {}, kIeee},
    {"sqrt", kPositive, kPositive, {}, kIeee},
    {"rsqrt", kPositive, kPositive, {}, kTwoSteps},  // a division and a square root, each rounded
    {"cbrt", kWide, kWide, {}, kLibrary},
    {"exp", {-110, 95}, {-750, 715}, {}, kLibrary},
    {"exp2", {-160, 135}, {-1080, 1030}, {}, kLibrary},
    {"expm1", {-110, 95}, {-750, 715}, {}, kLibrary},
    {"log", kPositive, kPositive, {}, kLibrary},
    {"log2", kPositive, kPositive, {}, kLibrary},
    {"log10", kPositive, kPositive, {}, kLibrary},
    {"log1p", {-1, 1e30}, {-1, 1e30}, {}, kLibrary},
    {"sin", {-1e5, 1e5}, {-1e15, 1e15}, {}, kLibrary},
    {"cos", {-1e5, 1e5}, {-1e15, 1e15}, {}, kLibrary},
    {"tan", {-1e5, 1e5}, {-1e15, 1e15}, {}, kLibrary},
    {"asin", kUnit, kUnit, {}, kLibrary},
    {"acos", kUnit, kUnit, {}, kLibrary},
    {"atan", kWide, kWide, {}, kLibrary},
    {"sinh", {-92, 92}, {-712, 712}, {}, kLibrary},
    {"cosh", {-92, 92}, {-712, 712}, {}, kLibrary},
    {"tanh", {-12, 12}, {-22, 22}, {}, kLibrary},
    {"asinh", kWide, kWide, {}, kLibrary},
    {"acosh", {1, 1e30}, {1, 1e30}, {}, kLibrary},
    {"atanh", kUnit, kUnit, {}, kLibrary},
    {"sigmoid", {-110, 40}, {-750, 60}, {}, kComposed},
    {"elu", {-120, 1e10}, {-800, 1e10}, {}, kComposed},
    {"gelu", {-15, 30}, {-40, 60}, {}, kComposed, 0, 40},  // a/2 times a subnormal erfc
    {"gelu_tanh", {-12, 30}, {-25, 60}, {}, kComposed},
    {"silu", {-110, 60}, {-750, 60}, {}, kComposed},
    {"softplus", {-110, 60}, {-750, 60}, {}, kComposed},
    {"erf", {-6, 6}, {-8, 8}, {}, kLibrary},
    {"erfc", {-6, 11}, {-6, 28}, {}, kLibrary},
    {"reciprocal", kWide, kWide, {}, kIeee},
    {"add", kWide, kWide, kWide, kIeee},
    {"sub", kWide, kWide, kWide, kIeee},
    {"mul", kWide, kWide, kWide, kIeee},
    {"div", kWide, kWide, kWide, kIeee},
    {"pow", {0, 100}, {0, 1000}, {-22, 22}, kLibrary},
    {"atan2", kWide, kWide, kWide, kLibrary},
    {"hypot", kWide, kWide, kWide, kLibrary},
    {"remainder", {-1e6, 1e6}, {-1e6, 1e6}, {-1e3, 1e3}, kIeee},         // fmod is exact, and one addition follows
    {"logaddexp", {-100, 100}, {-500, 500}, {-100, 100}, kComposed, 4},  // max + log1p(exp(-d)) is 0 where both are below log 2
    {"fma", kWide, kWide, kWide, kIeee},
    {"sinc", {-1e5, 1e5}, {-1e15, 1e15}, {}, kLibrary},
};

const Row* row(const Function& f) {
  for (const Row& r : kRows)
    if (std::string(r.name) == f.name) return &r;
  return nullptr;
}

Range domain(const Function& f, int operand, DType dtype) {
  const Row* r = row(f);
  if (r == nullptr) return operand == 0 ? Range{-1000, 1000} : kSmall;
  if (operand != 0) return r->b.low == 0 && r->b.high == 0 ? r->a32 : r->b;
  return dtype == DType::f64 ? r->a64 : r->a32;
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
  const Row* r = row(f);
  if (r == nullptr) return {};
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  const DType computed = half ? DType::f32 : dtype;
  const Exact atol = r->absolute * epsilon(computed) + r->subnormal * smallest_subnormal(computed);
  const double ulps = !half ? r->ulps : r->ulps <= 1 ? kIeee + 0x1p-8 : 0.75;
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
