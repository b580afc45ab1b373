// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp -- the table of functions. See elementwise.h; the integer forms are in elementwise_integer.cpp, the
// derivatives in elementwise_gradient.cpp.
#include "elementwise.h"

#include <cmath>
#include <limits>

#include "elementwise_parts.h"

namespace narrows::reference {
namespace {

using R = const Reals&;
constexpr Exact kNaN = std::numeric_limits<Exact>::quiet_NaN();

Exact sign(Exact a) { return std::isnan(a) ? a : a > 0 ? 1 : a < 0 ? -1 : 0; }
Exact maximum(Exact a, Exact b) { return std::isnan(a) || std::isnan(b) ? kNaN : a > b ? a : b; }
Exact minimum(Exact a, Exact b) { return std::isnan(a) || std::isnan(b) ? kNaN : a < b ? a : b; }

// Python's: the sign of b. The remainder of a finite a by an infinity of the other sign is that infinity.
Exact remainder(Exact a, Exact b) {
  Exact r = std::fmod(a, b);
  if (r == 0) return std::copysign(Exact(0), b);
  if ((r < 0) != (b < 0)) r += b;
  return r;
}

Exact softplus(Exact a) { return std::isnan(a) ? a : (a > 0 ? a : 0) + std::log1p(std::exp(-std::fabs(a))); }

Exact logaddexp(Exact a, Exact b) {
  if (std::isnan(a) || std::isnan(b)) return kNaN;
  if (a == b) return a + std::log(Exact(2));  // two infinities of one sign too
  return std::fmax(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

// What a times a number that goes to 0 becomes where that product is 0 times an infinity.
Exact unless_far_below(Exact a, Exact value) { return a == -std::numeric_limits<Exact>::infinity() ? Exact(-0.0) : value; }

// Rounded to 64 bits so that it can be rounded once more: not to nearest but, where anything is lost, to a number that ends with
// a 1. A product of f64 has more bits than that, and is as std::fma rounds it.
Exact fma(Exact a, Exact b, Exact c) {
  const Exact sum = std::fma(a, b, c), product = a * b;
  if (!std::isfinite(sum) || std::fma(a, b, -product) != 0) return sum;
  const Exact back = sum - product, lost = (product - (sum - back)) + (c - back);
  int exponent = 0;
  const bool is_odd = std::fmod(std::ldexp(std::frexp(sum, &exponent), std::numeric_limits<Exact>::digits), 2) != 0;
  return lost == 0 || is_odd ? sum : std::nextafter(sum, lost > 0 ? HUGE_VALL : -HUGE_VALL);
}

std::vector<Function> make_functions() {
  constexpr auto F = Domain::floating, N = Domain::numbers, E = Domain::everything, B = Domain::bits, I = Domain::integers;
  namespace i = integer_forms;
  namespace g = gradients;
  return {
      {1, "neg", 1, N, false, [](R x) { return -x.a; }, i::neg, g::neg},
      {2, "abs", 1, N, false, [](R x) { return std::fabs(x.a); }, i::abs, g::abs},
      {3, "sign", 1, N, false, [](R x) { return sign(x.a); }, i::sign, g::zero},
      {4, "square", 1, N, false, [](R x) { return x.a * x.a; }, i::square, g::square},
      {5, "sqrt", 1, F, false, [](R x) { return std::sqrt(x.a); }, nullptr, g::sqrt},
      {6, "rsqrt", 1, F, false, [](R x) { return 1 / std::sqrt(x.a); }, nullptr, g::rsqrt},
      {7, "cbrt", 1, F, false, [](R x) { return std::cbrt(x.a); }, nullptr, g::cbrt},
      {8, "exp", 1, F, false, [](R x) { return std::exp(x.a); }, nullptr, g::exp},
      {9, "exp2", 1, F, false, [](R x) { return std::exp2(x.a); }, nullptr, g::exp2},
      {10, "expm1", 1, F, false, [](R x) { return std::expm1(x.a); }, nullptr, g::expm1},
      {11, "log", 1, F, false, [](R x) { return std::log(x.a); }, nullptr, g::log},
      {12, "log2", 1, F, false, [](R x) { return std::log2(x.a); }, nullptr, g::log2},
      {13, "log10", 1, F, false, [](R x) { return std::log10(x.a); }, nullptr, g::log10},
      {14, "log1p", 1, F, false, [](R x) { return std::log1p(x.a); }, nullptr, g::log1p},
      {15, "sin", 1, F, false, [](R x) { return std::sin(x.a); }, nullptr, g::sin},
      {16, "cos", 1, F, false, [](R x) { return std::cos(x.a); }, nullptr, g::cos},
      {17, "tan", 1, F, false, [](R x) { return std::tan(x.a); }, nullptr, g::tan},
      {18, "asin", 1, F, false, [](R x) { return std::asin(x.a); }, nullptr, g::asin},
      {19, "acos", 1, F, false, [](R x) { return std::acos(x.a); }, nullptr, g::acos},
      {20, "atan", 1, F, false, [](R x) { return std::atan(x.a); }, nullptr, g::atan},
      {21, "sinh", 1, F, false, [](R x) { return std::sinh(x.a); }, nullptr, g::sinh},
      {22, "cosh", 1, F, false, [](R x) { return std::cosh(x.a); }, nullptr, g::cosh},
      {23, "tanh", 1, F, false, [](R x) { return std::tanh(x.a); }, nullptr, g::tanh},
      {24, "asinh", 1, F, false, [](R x) { return std::asinh(x.a); }, nullptr, g::asinh},
      {25, "acosh", 1, F, false, [](R x) { return std::acosh(x.a); }, nullptr, g::acosh},
      {26, "atanh", 1, F, false, [](R x) { return std::atanh(x.a); }, nullptr, g::atanh},
      {27, "sigmoid", 1, F, false, [](R x) { return 1 / (1 + std::exp(-x.a)); }, nullptr, g::sigmoid},
      {28, "relu", 1, N, false, [](R x) { return std::isnan(x.a) ? x.a
                                                 : x.a > 0       ? x.a
                                                                 : 0; }, i::relu, g::relu},
      {29, "elu", 1, F, false, [](R x) { return x.a > 0 ? x.a : x.alpha * std::expm1(x.a); }, nullptr, g::elu},
      {30, "gelu", 1, F, false, [](R x) { return unless_far_below(x.a, x.a * std::erfc(-x.a / std::sqrt(Exact(2))) / 2); }, nullptr,
       g::gelu},
      {31, "gelu_tanh", 1, F, false, [](R x) { return unless_far_below(x.a, x.a / (1 + std::exp(-2 * gelu_tanh_argument(x.a)))); },
       nullptr, g::gelu_tanh},
      {32, "silu", 1, F, false, [](R x) { return unless_far_below(x.a, x.a / (1 + std::exp(-x.a))); }, nullptr, g::silu},
      {33, "softplus", 1, F, false, [](R x) { return softplus(x.a); }, nullptr, g::softplus},
      {34, "erf", 1, F, false, [](R x) { return std::erf(x.a); }, nullptr, g::erf},
      {35, "erfc", 1, F, false, [](R x) { return std::erfc(x.a); }, nullptr, g::erfc},
      {36, "floor", 1, N, false, [](R x) { return std::floor(x.a); }, i::same, g::zero},
      {37, "ceil", 1, N, false, [](R x) { return std::ceil(x.a); }, i::same, g::zero},
      {38, "round", 1, N, false, [](R x) { return std::nearbyint(x.a); }, i::same, g::zero},
      {39, "trunc", 1, N, false, [](R x) { return std::trunc(x.a); }, i::same, g::zero},
      {40, "reciprocal", 1, F, false, [](R x) { return 1 / x.a; }, nullptr, g::reciprocal},
      {41, "logical_not", 1, E, true, [](R x) -> Exact { return x.a == 0; }, i::logical_not, nullptr},
      {42, "bitwise_not", 1, B, false, nullptr, i::bitwise_not, nullptr},
      {43, "isnan", 1, N, true, [](R x) -> Exact { return std::isnan(x.a); }, i::no, nullptr},
      {44, "isinf", 1, N, true, [](R x) -> Exact { return std::isinf(x.a); }, i::no, nullptr},
      {45, "isfinite", 1, N, true, [](R x) -> Exact { return std::isfinite(x.a); }, i::yes, nullptr},
      {46, "cast", 1, E, false, nullptr, nullptr, g::cast},
      {47, "add", 2, N, false, [](R x) { return x.a + x.b; }, i::add, g::add},
      {48, "sub", 2, N, false, [](R x) { return x.a - x.b; }, i::sub, g::sub},
      {49, "mul", 2, N, false, [](R x) { return x.a * x.b; }, i::mul, g::mul},
      {50, "div", 2, N, false, [](R x) { return x.a / x.b; }, i::div, g::div},
      {51, "pow", 2, N, false, [](R x) { return std::pow(x.a, x.b); }, i::pow, g::pow},
      {52, "atan2", 2, F, false, [](R x) { return std::atan2(x.a, x.b); }, nullptr, g::atan2},
      {53, "hypot", 2, F, false, [](R x) { return std::hypot(x.a, x.b); }, nullptr, g::hypot},
      {54, "maximum", 2, N, false, [](R x) { return maximum(x.a, x.b); }, i::maximum, g::maximum},
      {55, "minimum", 2, N, false, [](R x) { return minimum(x.a, x.b); }, i::minimum, g::minimum},
      {56, "fmod", 2, N, false, [](R x) { return std::fmod(x.a, x.b); }, i::fmod, g::fmod},
      {57, "remainder", 2, N, false, [](R x) { return remainder(x.a, x.b); }, i::remainder, g::remainder},
      {58, "copysign", 2, F, false, [](R x) { return std::copysign(x.a, x.b); }, nullptr, g::copysign},
      {59, "logaddexp", 2, F, false, [](R x) { return logaddexp(x.a, x.b); }, nullptr, g::logaddexp},
      {60, "eq", 2, E, true, [](R x) -> Exact { return x.a == x.b; }, i::eq, nullptr},
      {61, "ne", 2, E, true, [](R x) -> Exact { return x.a != x.b; }, i::ne, nullptr},
      {62, "lt", 2, N, true, [](R x) -> Exact { return x.a < x.b; }, i::lt, nullptr},
      {63, "le", 2, N, true, [](R x) -> Exact { return x.a <= x.b; }, i::le, nullptr},
      {64, "gt", 2, N, true, [](R x) -> Exact { return x.a > x.b; }, i::gt, nullptr},
      {65, "ge", 2, N, true, [](R x) -> Exact { return x.a >= x.b; }, i::ge, nullptr},
      {66, "logical_and", 2, E, true, [](R x) -> Exact { return x.a != 0 && x.b != 0; }, i::logical_and, nullptr},
      {67, "logical_or", 2, E, true, [](R x) -> Exact { return x.a != 0 || x.b != 0; }, i::logical_or, nullptr},
      {68, "logical_xor", 2, E, true, [](R x) -> Exact { return (x.a != 0) != (x.b != 0); }, i::logical_xor, nullptr},
      {69, "bitwise_and", 2, B, false, nullptr, i::bitwise_and, nullptr},
      {70, "bitwise_or", 2, B, false, nullptr, i::bitwise_or, nullptr},
      {71, "bitwise_xor", 2, B, false, nullptr, i::bitwise_xor, nullptr},
      {72, "bitwise_left_shift", 2, I, false, nullptr, i::left_shift, nullptr},
      {73, "bitwise_right_shift", 2, I, false, nullptr, i::right_shift, nullptr},
      {74, "fma", 3, N, false, [](R x) { return fma(x.a, x.b, x.c); }, i::fma, g::fma},
      {75, "where", 3, E, false, [](R x) { return x.a != 0 ? x.b : x.c; }, i::where, g::where},
      {76, "clamp", 3, N, false, [](R x) { return minimum(maximum(x.a, x.b), x.c); }, i::clamp, g::clamp},
      {77, "sinc", 1, F, false, [](R x) { return sinc(x.a); }, nullptr, g::sinc},
  };
}

int bits_of(DType dtype) { return dtype == DType::boolean ? 1 : static_cast<int>(test::item_size(dtype) * 8); }

// The low `bits` bits, read as the dtype reads them.
Wide wrap(Wide value, int bits, bool is_signed) {
  const Wide modulus = Wide(1) << bits;
  Wide low = value % modulus;
  if (low < 0) low += modulus;
  return is_signed && low >= modulus / 2 ? low - modulus : low;
}

}  // namespace

const std::vector<Function>& functions() {
  static const std::vector<Function> table = make_functions();
  return table;
}

bool allows(Domain domain, DType dtype) {
  const bool boolean = dtype == DType::boolean;
  switch (domain) {
    case Domain::floating: return test::is_float(dtype);
    case Domain::numbers: return !boolean;
    case Domain::everything: return true;
    case Domain::bits: return boolean || test::is_int(dtype);
    case Domain::integers: return test::is_int(dtype);
  }
  return false;
}

DType out_dtype(const Function& f, DType in) { return f.gives_bool ? DType::boolean : in; }

Exact apply(const Function& f, DType dtype, const Reals& x) {
  if (test::is_float(dtype)) return f.real(x);
  const int bits = bits_of(dtype);
  const bool is_signed = test::is_signed_int(dtype);
  const auto wide = [&](Exact value) { return static_cast<Wide>(dtype == DType::boolean ? value != 0 : value); };
  const Wide result = f.integer({wide(x.a), wide(x.b), wide(x.c), bits, is_signed});
  return f.gives_bool ? static_cast<Exact>(result) : static_cast<Exact>(wrap(result, bits, is_signed));
}

Exact cast(DType from, DType to, Exact value) {
  if (from == DType::boolean) value = value != 0;
  if (to == DType::boolean) return value != 0;  // NaN != 0
  if (test::is_float(to)) return test::rounded(to, value);
  if (std::isnan(value)) return 0;
  return std::trunc(std::fmin(std::fmax(value, test::lowest(to)), test::largest(to)));
}

std::vector<Exact> elementwise(const Function& f, DType dtype, const std::vector<Exact>& a, const std::vector<Exact>& b,
                               const std::vector<Exact>& c, Exact alpha) {
  std::vector<Exact> out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = apply(f, dtype, {a[i], b.empty() ? 0 : b[i], c.empty() ? 0 : c[i], alpha});
  return out;
}

}  // namespace narrows::reference
