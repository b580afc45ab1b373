// SPDX-License-Identifier: Apache-2.0
// elementwise_integer.cpp -- integer and bool forms of the functions in 128-bit arithmetic, where nothing overflows but the
// products and powers, which wrap by themselves to the low bits. See elementwise.h.
#include "elementwise_parts.h"

namespace narrows::reference::integer_forms {
namespace {

__extension__ typedef unsigned __int128 Unsigned;

Wide product(Wide a, Wide b) { return static_cast<Wide>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b)); }

// The base's powers at a negative exponent: of 1 it is 1, of -1 it alternates, else it is below 1 and so 0.
Wide power_of_negative_exponent(Wide a, Wide b) {
  if (a == 1) return 1;
  if (a == -1) return b % 2 == 0 ? 1 : -1;
  return 0;
}

}  // namespace

Wide neg(X x) { return -x.a; }
Wide abs(X x) { return x.a < 0 ? -x.a : x.a; }
Wide sign(X x) { return (x.a > 0) - (x.a < 0); }
Wide square(X x) { return product(x.a, x.a); }
Wide relu(X x) { return x.a > 0 ? x.a : 0; }
Wide same(X x) { return x.a; }
Wide logical_not(X x) { return x.a == 0; }
Wide bitwise_not(X x) { return -x.a - 1; }
Wide no(X) { return 0; }
Wide yes(X) { return 1; }
Wide add(X x) { return x.a + x.b; }
Wide sub(X x) { return x.a - x.b; }
Wide mul(X x) { return product(x.a, x.b); }
Wide div(X x) { return x.b == 0 ? 0 : x.a / x.b; }
Wide pow(X x) {
  if (x.b < 0) return power_of_negative_exponent(x.a, x.b);
  Wide result = 1, base = x.a;
  for (Wide e = x.b; e != 0; e /= 2) {
    if (e % 2 == 1) result = product(result, base);
    base = product(base, base);
  }
  return result;
}
Wide maximum(X x) { return x.a > x.b ? x.a : x.b; }
Wide minimum(X x) { return x.a < x.b ? x.a : x.b; }
Wide fmod(X x) { return x.b == 0 ? 0 : x.a % x.b; }
Wide remainder(X x) {
  if (x.b == 0) return 0;
  const Wide r = x.a % x.b;
  return r != 0 && (r < 0) != (x.b < 0) ? r + x.b : r;
}
Wide eq(X x) { return x.a == x.b; }
Wide ne(X x) { return x.a != x.b; }
Wide lt(X x) { return x.a < x.b; }
Wide le(X x) { return x.a <= x.b; }
Wide gt(X x) { return x.a > x.b; }
Wide ge(X x) { return x.a >= x.b; }
Wide logical_and(X x) { return x.a != 0 && x.b != 0; }
Wide logical_or(X x) { return x.a != 0 || x.b != 0; }
Wide logical_xor(X x) { return (x.a != 0) != (x.b != 0); }
Wide bitwise_and(X x) { return x.a & x.b; }
Wide bitwise_or(X x) { return x.a | x.b; }
Wide bitwise_xor(X x) { return x.a ^ x.b; }
Wide left_shift(X x) {
  return x.b < 0 || x.b >= x.bits ? 0 : static_cast<Wide>(static_cast<Unsigned>(x.a) << static_cast<int>(x.b));
}
Wide right_shift(X x) {
  if (x.b < 0 || x.b >= x.bits) return x.a < 0 ? -1 : 0;
  return x.a >> static_cast<int>(x.b);
}
Wide fma(X x) { return static_cast<Wide>(static_cast<Unsigned>(product(x.a, x.b)) + static_cast<Unsigned>(x.c)); }
Wide where(X x) { return x.a != 0 ? x.b : x.c; }
Wide clamp(X x) {
  const Wide low = x.a > x.b ? x.a : x.b;
  return low < x.c ? low : x.c;
}

}  // namespace narrows::reference::integer_forms
