// SPDX-License-Identifier: Apache-2.0
// elementwise_parts.h -- the integer forms and the derivatives that the table in elementwise.cpp names.
#pragma once

#include "elementwise.h"

namespace narrows::reference {

Exact gelu_tanh_argument(Exact a);  // sqrt(2/pi) * (a + 0.044715 a^3)
Exact sinc(Exact a);

// Results before they wrap to the dtype's width.
namespace integer_forms {
using X = const Integers&;
Wide neg(X), abs(X), sign(X), square(X), relu(X), same(X), logical_not(X), bitwise_not(X), no(X), yes(X), add(X), sub(X), mul(X),
    div(X), pow(X), maximum(X), minimum(X), fmod(X), remainder(X), eq(X), ne(X), lt(X), le(X), gt(X), ge(X), logical_and(X),
    logical_or(X), logical_xor(X), bitwise_and(X), bitwise_or(X), bitwise_xor(X), left_shift(X), right_shift(X), fma(X), where(X),
    clamp(X);
}  // namespace integer_forms

namespace gradients {
using X = const Reals&;
Partials zero(X), neg(X), abs(X), square(X), sqrt(X), rsqrt(X), cbrt(X), exp(X), exp2(X), expm1(X), log(X), log2(X), log10(X),
    log1p(X), sin(X), cos(X), tan(X), asin(X), acos(X), atan(X), sinh(X), cosh(X), tanh(X), asinh(X), acosh(X), atanh(X),
    sigmoid(X), relu(X), elu(X), gelu(X), gelu_tanh(X), silu(X), softplus(X), erf(X), erfc(X), reciprocal(X), cast(X), add(X),
    sub(X), mul(X), div(X), pow(X), atan2(X), hypot(X), maximum(X), minimum(X), fmod(X), remainder(X), copysign(X), logaddexp(X),
    fma(X), where(X), clamp(X), sinc(X);
}  // namespace gradients

}  // namespace narrows::reference
