// SPDX-License-Identifier: Apache-2.0
// elementwise_gradient.cpp -- the derivatives, from calculus; at kinks and ties as torch has them, at infinities their limits. Long
// double has the exponents for every factor whose product with a number of a dtype may be one: what underflows in it is 0 in the
// product too, and what overflows is bounded, so that 0 times it is 0. Only a pole is infinite. See elementwise.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "elementwise_parts.h"

namespace narrows::reference {
namespace {

const Exact kPi = std::acos(Exact(-1));

// The magnitude of a factor at finite operands that may overflow.
Exact bounded(Exact factor) {
  constexpr Exact kMost = std::numeric_limits<Exact>::max();
  return std::clamp(factor, -kMost, kMost);  // NaN stays
}
Exact bounded_if_finite(Exact operand, Exact factor) { return std::isfinite(operand) ? bounded(factor) : factor; }

// exp(-a^2 / divisor), whose argument exp would multiply the rounding error of.
Exact exp_of_square(Exact a, Exact divisor) {
  const Exact square = a * a, low = std::isfinite(square) ? std::fma(a, a, -square) : 0;
  return std::exp(-square / divisor) * (1 - low / divisor);
}
Exact logistic(Exact a) { return 1 / (1 + std::exp(-a)); }
Exact normal_cdf(Exact a) { return std::erfc(-a / std::sqrt(Exact(2))) / 2; }
Exact normal_pdf(Exact a) { return exp_of_square(a, 2) / std::sqrt(2 * kPi); }
Exact step(Exact a) { return a > 0 ? 1 : 0; }

// At a tie the larger and the smaller are both; each operand gets half. Beside a NaN neither is less: each gets all.
Partials larger(Exact a, Exact b) {
  if (a == b) return {0.5L, 0.5L};
  return {a < b ? Exact(0) : Exact(1), b < a ? Exact(0) : Exact(1)};
}

// a/b rounded towards 0 and down. By the rests: a quotient may round up to a whole number, and of an infinite b it is 0.
Exact trunc_quotient(Exact a, Exact b) { return std::nearbyint((a - std::fmod(a, b)) / b); }
Exact floor_quotient(Exact a, Exact b) {
  const Exact rest = std::fmod(a, b);
  return trunc_quotient(a, b) - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
}

Exact sign(Exact a) { return a > 0 ? 1 : a < 0 ? -1 : std::isnan(a) ? a : 0; }

}  // namespace

Exact gelu_tanh_argument(Exact a) { return std::sqrt(2 / kPi) * (a + 0.044715L * a * a * a); }

// By the distance from the nearest even number, which is exact.
Exact sinc(Exact a) {
  if (a == 0) return 1;
  if (std::isinf(a)) return 0;
  const Exact size = std::fabs(a), x = std::remainder(size, Exact(2));
  if (std::fabs(x) == 1) return 0;
  return std::sin(kPi * (std::fabs(x) > 0.5L ? std::copysign(1 - std::fabs(x), x) : x)) / (kPi * size);
}

namespace gradients {

Partials zero(X) { return {}; }
Partials neg(X) { return {-1}; }
Partials abs(X x) { return {sign(x.a)}; }
Partials square(X x) { return {2 * x.a}; }
Partials sqrt(X x) { return {1 / (2 * std::sqrt(x.a))}; }
Partials rsqrt(X x) { return {-1 / (2 * x.a * std::sqrt(x.a))}; }
Partials cbrt(X x) { return {1 / (3 * std::cbrt(x.a) * std::cbrt(x.a))}; }
Partials exp(X x) { return {bounded_if_finite(x.a, std::exp(x.a))}; }
Partials exp2(X x) { return {bounded_if_finite(x.a, std::exp2(x.a)) * std::log(Exact(2))}; }
Partials expm1(X x) { return exp(x); }
Partials log(X x) { return {1 / x.a}; }
Partials log2(X x) { return {1 / (x.a * std::log(Exact(2)))}; }
Partials log10(X x) { return {1 / (x.a * std::log(Exact(10)))}; }
Partials log1p(X x) { return {1 / (1 + x.a)}; }
Partials sin(X x) { return {std::cos(x.a)}; }
Partials cos(X x) { return {-std::sin(x.a)}; }
Partials tan(X x) { return {1 + std::tan(x.a) * std::tan(x.a)}; }
Partials asin(X x) { return {1 / std::sqrt((1 - x.a) * (1 + x.a))}; }
Partials acos(X x) { return {-1 / std::sqrt((1 - x.a) * (1 + x.a))}; }
Partials atan(X x) { return {1 / (1 + x.a * x.a)}; }
Partials sinh(X x) { return {bounded_if_finite(x.a, std::cosh(x.a))}; }
Partials cosh(X x) { return {bounded_if_finite(x.a, std::sinh(x.a))}; }
Partials tanh(X x) { return {1 / (std::cosh(x.a) * std::cosh(x.a))}; }
Partials asinh(X x) { return {1 / std::sqrt(x.a * x.a + 1)}; }
Partials acosh(X x) { return {1 / std::sqrt((x.a - 1) * (x.a + 1))}; }
Partials atanh(X x) { return {1 / ((1 - x.a) * (1 + x.a))}; }
Partials sigmoid(X x) { return {logistic(x.a) * logistic(-x.a)}; }
Partials relu(X x) { return {x.a <= 0 ? Exact(0) : Exact(1)}; }
Partials elu(X x) { return {x.a <= 0 ? x.alpha * std::exp(x.a) : Exact(1)}; }
Partials gelu(X x) {
  if (std::isinf(x.a)) return {step(x.a)};
  return {normal_cdf(x.a) + x.a * normal_pdf(x.a)};
}
Partials gelu_tanh(X x) {
  if (std::isinf(x.a)) return {step(x.a)};
  const Exact s = logistic(2 * gelu_tanh_argument(x.a));
  const Exact slope = std::sqrt(2 / kPi) * (1 + 3 * 0.044715L * x.a * x.a);
  return {s + 2 * x.a * s * logistic(-2 * gelu_tanh_argument(x.a)) * slope};
}
Partials silu(X x) {
  if (std::isinf(x.a)) return {step(x.a)};
  return {logistic(x.a) * (1 + x.a * logistic(-x.a))};
}
Partials softplus(X x) { return {logistic(x.a)}; }
Partials erf(X x) { return {2 / std::sqrt(kPi) * exp_of_square(x.a, 1)}; }
Partials erfc(X x) { return {-2 / std::sqrt(kPi) * exp_of_square(x.a, 1)}; }
Partials reciprocal(X x) { return {-1 / (x.a * x.a)}; }
Partials cast(X) { return {1}; }
Partials add(X) { return {1, 1}; }
Partials sub(X) { return {1, -1}; }
Partials mul(X x) { return {x.b, x.a}; }
Partials div(X x) { return {1 / x.b, -x.a / x.b / x.b}; }
Partials pow(X x) {
  const Exact lower = std::pow(x.a, x.b - 1), power = std::pow(x.a, x.b);
  const Exact a = x.b == 0 || lower == 0 ? 0 : x.b * lower;
  const Exact b = (x.a == 0 && x.b >= 0) || (x.a > 0 && power == 0) ? 0 : power * std::log(x.a);
  const bool may_overflow = std::isfinite(x.a) && x.a != 0 && std::isfinite(x.b);  // else an infinity is a pole
  return may_overflow ? Partials{bounded(a), bounded(b)} : Partials{a, b};
}
Partials atan2(X x) {
  const Exact square = x.a * x.a + x.b * x.b;
  if ((x.a == 0 && x.b == 0) || std::isinf(square)) return {0, 0};
  return {x.b / square, -x.a / square};
}
Partials hypot(X x) {
  if (std::isinf(x.a) && std::isfinite(x.b)) return {sign(x.a), 0};
  if (std::isinf(x.b) && std::isfinite(x.a)) return {0, sign(x.b)};
  const Exact h = std::hypot(x.a, x.b);
  return {x.a / h, x.b / h};
}
Partials maximum(X x) { return larger(x.a, x.b); }
Partials minimum(X x) { return larger(-x.a, -x.b); }
Partials fmod(X x) { return {1, -trunc_quotient(x.a, x.b)}; }
Partials remainder(X x) { return {1, -floor_quotient(x.a, x.b)}; }
Partials copysign(X x) { return {sign(x.a) * std::copysign(Exact(1), x.b), 0}; }
Partials logaddexp(X x) {
  if (x.a == x.b) return {0.5L, 0.5L};  // infinities too
  return {logistic(x.a - x.b), logistic(x.b - x.a)};
}
Partials fma(X x) { return {x.b, x.a, 1}; }
Partials where(X x) { return x.a != 0 ? Partials{0, 1, 0} : Partials{0, 0, 1}; }

// minimum(maximum(a, b), c): a inside the bounds and on them; a bound where it, and nothing after it, decides. A comparison with
// NaN is false.
Partials clamp(X x) {
  if (x.a >= x.b && x.a <= x.c) return {1, 0, 0};
  if (x.a < x.b && x.b < x.c) return {0, 1, 0};
  const bool is_upper = x.a > x.c || x.b > x.c || (x.a < x.b && x.b == x.c);
  return {0, 0, is_upper ? Exact(1) : Exact(0)};
}

// Near 0 by the series, of which the terms from the second on are (-1)^k (pi a)^(2k)/(2k + 1)! times 2k/a.
Partials sinc(X x) {
  if (std::isinf(x.a)) return {0};
  if (std::fabs(x.a) < 0.5L) {
    const Exact square = kPi * x.a * kPi * x.a;
    Exact sum = 0, term = kPi * kPi * x.a;
    for (int k = 1; k < 20; ++k) {
      term /= -(2 * k) * (2 * k + 1);
      sum += 2 * k * term;
      term *= square;
    }
    return {sum};
  }
  const Exact y = std::fabs(std::remainder(x.a, Exact(2)));  // cos(pi a) = sin(pi (1/2 - y))
  return {(y < 0.25L || y > 0.75L ? std::cos(kPi * y) : std::sin(kPi * (0.5L - y))) / x.a - narrows::reference::sinc(x.a) / x.a};
}

}  // namespace gradients
}  // namespace narrows::reference
