// SPDX-License-Identifier: Apache-2.0
// derivative.cpp -- see derivative.h.
#include "core/program/derivative.h"

#include <cmath>
#include <map>
#include <numbers>
#include <string>

#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"

namespace narrows::program {
namespace {

// A call, the gradient of its value, and arithmetic that reads like the formulas.
struct Call {
  ExprPtr a, b, c;  // the operands
  ExprPtr out, g;

  ExprPtr number(double value) const { return make_real(g->dtype, value); }
  ExprPtr zero() const { return number(0); }
};
using Gradients = std::vector<ExprPtr>;

ExprPtr f(const char* name, const ExprPtr& a) { return make_call(name, {a}); }
ExprPtr f(const char* name, const ExprPtr& a, const ExprPtr& b) { return make_call(name, {a, b}); }
ExprPtr where(const ExprPtr& condition, const ExprPtr& a, const ExprPtr& b) { return make_call("where", {condition, a, b}); }
ExprPtr operator/(const ExprPtr& a, const ExprPtr& b) { return f("div", a, b); }
ExprPtr operator-(const ExprPtr& a) { return f("neg", a); }
ExprPtr both(const ExprPtr& a, const ExprPtr& b) { return f("logical_and", a, b); }
ExprPtr either(const ExprPtr& a, const ExprPtr& b) { return f("logical_or", a, b); }

// √(1 − a²), without the loss near 1.
ExprPtr root(const Call& x) { return f("sqrt", (x.number(1) - x.a) * (x.number(1) + x.a)); }

// `times`·e^(−a²/`scale`).
ExprPtr bell(const Call& x, double times, double scale) { return x.number(times) * f("exp", -(x.a * x.a) / x.number(scale)); }

ExprPtr gelu(const Call& x) {
  const ExprPtr below = x.number(0.5) * f("erfc", x.a * x.number(-std::numbers::sqrt2 / 2));
  return x.g * (below + x.a * bell(x, std::numbers::inv_sqrtpi / std::numbers::sqrt2, 2));
}

ExprPtr gelu_tanh(const Call& x) {
  const double root_2_pi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, cubic = 0.044715;
  const ExprPtr square = x.a * x.a;
  const ExprPtr t = f("tanh", x.number(root_2_pi) * x.a * (x.number(1) + x.number(cubic) * square));
  const ExprPtr slope = x.number(root_2_pi) * (x.number(1) + x.number(3 * cubic) * square);
  return x.g * x.number(0.5) * (x.number(1) + t + x.a * (x.number(1) - t * t) * slope);
}

Gradients pow_of(const Call& x) {
  const ExprPtr lower = f("pow", x.a, x.b - x.number(1)), zero = x.zero();
  const ExprPtr flat = either(f("eq", x.b, zero), f("eq", lower, zero));
  const ExprPtr base_0 = both(f("eq", x.a, zero), f("ge", x.b, zero));
  const ExprPtr vanished = both(f("gt", x.a, zero), f("eq", x.out, zero));
  return {where(flat, zero, x.g * x.b * lower), where(either(base_0, vanished), zero, x.g * x.out * f("log", x.a))};
}

Gradients atan2_of(const Call& x) {
  const ExprPtr length = f("hypot", x.a, x.b);
  const auto at_0 = [&](const ExprPtr& value) { return where(f("eq", length, x.zero()), x.zero(), value); };
  return {at_0(x.g * (x.b / length) / length), at_0(-(x.g * (x.a / length) / length))};
}

// Of the larger, or the smaller, of a and b: `loses` says which comparison gives an operand nothing.
Gradients extreme_of(const Call& x, const char* loses) {
  const auto of = [&](const ExprPtr& one, const ExprPtr& other) {
    return where(f("eq", one, other), x.g * x.number(0.5), where(f(loses, one, other), x.zero(), x.g));
  };
  return {of(x.a, x.b), of(x.b, x.a)};
}

Gradients logaddexp_of(const Call& x) {
  const auto of = [&](const ExprPtr& one, const ExprPtr& other) {
    return where(f("eq", one, other), x.g * x.number(0.5), x.g * f("sigmoid", one - other));
  };
  return {of(x.a, x.b), of(x.b, x.a)};
}

Gradients clamp_of(const Call& x) {
  const ExprPtr inside = both(f("ge", x.a, x.b), f("le", x.a, x.c));
  const ExprPtr below = both(f("lt", x.a, x.b), f("lt", x.b, x.c));
  const ExprPtr above = either(either(f("gt", x.a, x.c), f("gt", x.b, x.c)), both(f("lt", x.a, x.b), f("eq", x.b, x.c)));
  return {where(inside, x.g, x.zero()), where(below, x.g, x.zero()), where(above, x.g, x.zero())};
}

Gradients elu_of(const Call& x) {
  const ExprPtr negative = f("le", x.a, x.zero());
  return {where(negative, x.g * x.b * f("exp", x.a), x.g), where(negative, x.g * f("expm1", x.a), x.zero())};
}

// Near 0 by the first terms of its series.
Gradients sinc_of(const Call& x) {
  const double pi = std::numbers::pi, square = pi * pi;
  const ExprPtr z = x.a * x.a, near = f("lt", f("abs", x.a), x.number(0.5)), far = where(near, x.number(1), x.a);
  const ExprPtr cosine = f("cos", f("remainder", far, x.number(2)) * x.number(pi));
  ExprPtr series = x.number(0);
  double term = 1;  // (-1)^k pi^(2k) 2k/(2k + 1)!
  std::vector<double> terms;
  for (int k = 1; k < 12; ++k) {
    term *= -square / (2 * k) / (2 * k + 1);
    terms.push_back(2 * k * term);
  }
  for (size_t i = terms.size(); i-- > 0;) series = series * z + x.number(terms[i]);
  return {x.g * where(near, x.a * series, (cosine - x.out) / far)};
}

using Rule = Gradients (*)(const Call&);

const std::map<std::string_view, Rule>& rules() {
  static const std::map<std::string_view, Rule> made = {
      {"neg", [](const Call& x) { return Gradients{-x.g}; }},
      {"abs", [](const Call& x) { return Gradients{x.g * f("sign", x.a)}; }},
      {"sign", [](const Call&) { return Gradients{nullptr}; }},
      {"floor", [](const Call&) { return Gradients{nullptr}; }},
      {"ceil", [](const Call&) { return Gradients{nullptr}; }},
      {"round", [](const Call&) { return Gradients{nullptr}; }},
      {"trunc", [](const Call&) { return Gradients{nullptr}; }},
      {"square", [](const Call& x) { return Gradients{x.g * x.number(2) * x.a}; }},
      {"sqrt", [](const Call& x) { return Gradients{x.g / (x.number(2) * x.out)}; }},
      {"rsqrt", [](const Call& x) { return Gradients{-(x.g * x.out) / (x.number(2) * x.a)}; }},
      {"cbrt", [](const Call& x) { return Gradients{x.g / (x.number(3) * x.out * x.out)}; }},
      {"exp", [](const Call& x) { return Gradients{x.g * x.out}; }},
      {"exp2", [](const Call& x) { return Gradients{x.g * x.out * x.number(std::numbers::ln2)}; }},
      {"expm1", [](const Call& x) { return Gradients{x.g * f("exp", x.a)}; }},
      {"log", [](const Call& x) { return Gradients{x.g / x.a}; }},
      {"log2", [](const Call& x) { return Gradients{x.g / (x.a * x.number(std::numbers::ln2))}; }},
      {"log10", [](const Call& x) { return Gradients{x.g / (x.a * x.number(std::numbers::ln10))}; }},
      {"log1p", [](const Call& x) { return Gradients{x.g / (x.number(1) + x.a)}; }},
      {"sin", [](const Call& x) { return Gradients{x.g * f("cos", x.a)}; }},
      {"cos", [](const Call& x) { return Gradients{-(x.g * f("sin", x.a))}; }},
      {"tan", [](const Call& x) { return Gradients{x.g * (x.number(1) + x.out * x.out)}; }},
      {"asin", [](const Call& x) { return Gradients{x.g / root(x)}; }},
      {"acos", [](const Call& x) { return Gradients{-(x.g / root(x))}; }},
      {"atan", [](const Call& x) { return Gradients{x.g / (x.number(1) + x.a * x.a)}; }},
      {"sinh", [](const Call& x) { return Gradients{x.g * f("cosh", x.a)}; }},
      {"cosh", [](const Call& x) { return Gradients{x.g * f("sinh", x.a)}; }},
      {"tanh", [](const Call& x) { return Gradients{x.g * (x.number(1) - x.out * x.out)}; }},
      {"asinh", [](const Call& x) { return Gradients{x.g / f("hypot", x.a, x.number(1))}; }},
      {"acosh", [](const Call& x) { return Gradients{x.g / (f("sqrt", x.a - x.number(1)) * f("sqrt", x.a + x.number(1)))}; }},
      {"atanh", [](const Call& x) { return Gradients{x.g / ((x.number(1) - x.a) * (x.number(1) + x.a))}; }},
      {"sigmoid", [](const Call& x) { return Gradients{x.g * x.out * f("sigmoid", -x.a)}; }},
      {"relu", [](const Call& x) { return Gradients{where(f("le", x.a, x.zero()), x.zero(), x.g)}; }},
      {"elu", elu_of},
      {"gelu", [](const Call& x) { return Gradients{gelu(x)}; }},
      {"gelu_tanh", [](const Call& x) { return Gradients{gelu_tanh(x)}; }},
      {"silu", [](const Call& x) { return Gradients{x.g * f("sigmoid", x.a) * (x.number(1) + x.a * f("sigmoid", -x.a))}; }},
      {"softplus", [](const Call& x) { return Gradients{x.g * f("sigmoid", x.a)}; }},
      {"erf", [](const Call& x) { return Gradients{x.g * bell(x, 2 * std::numbers::inv_sqrtpi, 1)}; }},
      {"erfc", [](const Call& x) { return Gradients{-(x.g * bell(x, 2 * std::numbers::inv_sqrtpi, 1))}; }},
      {"reciprocal", [](const Call& x) { return Gradients{-(x.g * x.out * x.out)}; }},
      {"sinc", sinc_of},
      {"add", [](const Call& x) { return Gradients{x.g, x.g}; }},
      {"sub", [](const Call& x) { return Gradients{x.g, -x.g}; }},
      {"mul", [](const Call& x) { return Gradients{x.g * x.b, x.g * x.a}; }},
      {"div", [](const Call& x) { return Gradients{x.g / x.b, -(x.g * x.out) / x.b}; }},
      {"pow", pow_of},
      {"atan2", atan2_of},
      {"hypot", [](const Call& x) { return Gradients{x.g * (x.a / x.out), x.g * (x.b / x.out)}; }},
      {"maximum", [](const Call& x) { return extreme_of(x, "lt"); }},
      {"minimum", [](const Call& x) { return extreme_of(x, "gt"); }},
      {"fmod", [](const Call& x) { return Gradients{x.g, -(x.g * f("trunc", x.a / x.b))}; }},
      {"remainder", [](const Call& x) { return Gradients{x.g, -(x.g * f("floor", x.a / x.b))}; }},
      {"copysign", [](const Call& x) { return Gradients{x.g * f("sign", x.a) * f("copysign", x.number(1), x.b), nullptr}; }},
      {"logaddexp", logaddexp_of},
      {"fma", [](const Call& x) { return Gradients{x.g * x.b, x.g * x.a, x.g}; }},
      {"clamp", clamp_of},
  };
  return made;
}

}  // namespace

bool has_derivative(std::string_view function) { return rules().count(function) != 0; }

std::vector<ExprPtr> derivatives(const ExprPtr& call, const ExprPtr& gradient) {
  const auto found = rules().find(call->name);
  if (found == rules().end()) fail(NW_UNSUPPORTED, -1, "'%s' has no gradient", call->name.c_str());
  const auto operand = [&](size_t i) { return i < call->operands.size() ? call->operands[i] : nullptr; };
  return found->second({operand(0), operand(1), operand(2), call, gradient});
}

}  // namespace narrows::program
