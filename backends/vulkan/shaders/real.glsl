// SPDX-License-Identifier: Apache-2.0
// real.glsl -- REAL by its bits: classes, order, rounding to integers, and the operations that Vulkan leaves looser than the ops
// need: division and square root correctly rounded, fmod exact; sums and products in two parts. Included by math_f32.glsl and
// math_f64.glsl. Whatever tells NaN, infinity and subnormal numbers apart looks at bits: no compiler folds that away, and a device
// that flushes subnormal numbers in its arithmetic still orders and selects them rightly. GLSL's own comparisons are for normal
// constants only: NVIDIA's take subnormal numbers for 0 even where sums and products keep them. `precise` on a function keeps what
// its result depends on as it is written: no contraction, no rearrangement.
// The includer's constant kFuses says that fma() rounds once, if not of subnormal numbers.

// ---- classes ----

BITS size_of(REAL x) { return to_bits(x) & kMagnitude; }
bool is_nan(REAL x) { return size_of(x) > kInfBits; }
bool is_inf(REAL x) { return size_of(x) == kInfBits; }
bool is_finite(REAL x) { return size_of(x) < kInfBits; }
bool is_zero(REAL x) { return size_of(x) == BITS(0); }
bool is_negative(REAL x) { return (to_bits(x) & kSignBit) != BITS(0); }

REAL negated(REAL x) { return from_bits(to_bits(x) ^ kSignBit); }
REAL size(REAL x) { return from_bits(size_of(x)); }
REAL with_sign(REAL x, REAL sign) { return from_bits(size_of(x) | (to_bits(sign) & kSignBit)); }
REAL not_a_number() { return from_bits(kNanBits); }
REAL infinity(REAL sign) { return from_bits(kInfBits | (to_bits(sign) & kSignBit)); }
REAL zero(REAL sign) { return from_bits(to_bits(sign) & kSignBit); }

// ---- order: -0 and +0 are equal, and nothing is true of NaN ----

SBITS order_of(REAL x) {
  const SBITS size = SBITS(size_of(x));
  return is_negative(x) ? -size : size;
}
bool equal(REAL a, REAL b) { return !is_nan(a) && !is_nan(b) && order_of(a) == order_of(b); }
bool less(REAL a, REAL b) { return !is_nan(a) && !is_nan(b) && order_of(a) < order_of(b); }
bool less_equal(REAL a, REAL b) { return !is_nan(a) && !is_nan(b) && order_of(a) <= order_of(b); }
REAL larger(REAL a, REAL b) { return is_nan(a) || (!is_nan(b) && order_of(a) > order_of(b)) ? a : b; }
REAL smaller(REAL a, REAL b) { return is_nan(a) || (!is_nan(b) && order_of(a) < order_of(b)) ? a : b; }
REAL at_most(REAL x, REAL limit) { return x > limit ? limit : x; }
REAL sign_of(REAL x) { return is_nan(x) ? x : is_zero(x) ? REAL(0) : with_sign(REAL(1), x); }

// ---- to integers ----

int exponent_of(REAL x) { return int(size_of(x) >> kDigits) - kBias; }

REAL trunc_real(REAL x) {
  const int e = exponent_of(x);
  if (e >= kDigits) return x;  // whole, infinite or NaN
  return e < 0 ? zero(x) : from_bits(to_bits(x) & ~(kFraction >> e));
}
precise REAL floor_real(REAL x) {
  const REAL t = trunc_real(x);
  return is_negative(x) && to_bits(t) != to_bits(x) ? t - REAL(1) : t;
}
precise REAL ceil_real(REAL x) {
  const REAL t = trunc_real(x);
  return !is_negative(x) && to_bits(t) != to_bits(x) ? t + REAL(1) : t;
}
// Half to even: a carry out of the fraction goes on into the exponent, as it should.
REAL round_real(REAL x) {
  const int e = exponent_of(x);
  if (e >= kDigits) return x;
  if (e < -1) return zero(x);
  if (e == -1) return (to_bits(x) & kFraction) == BITS(0) ? zero(x) : with_sign(REAL(1), x);
  const BITS below = kFraction >> e, odd = (to_bits(x) >> (kDigits - e)) & BITS(1);
  return from_bits((to_bits(x) + (below >> 1) + odd) & ~below);
}

// ---- digits and exponent ----

// |x| = digits * 2^(exponent - kBias - kDigits), digits in [2^kDigits, 2^(kDigits + 1)); x is finite and not 0.
void split(REAL x, out int exponent, out BITS digits) {
  exponent = int(size_of(x) >> kDigits);
  digits = to_bits(x) & kFraction;
  if (exponent != 0) {
    digits |= kImplicit;
  } else {
    const int places = kDigits - msb_of(digits);
    digits <<= places;
    exponent = 1 - places;
  }
}
// The opposite, to nearest even or, `to_odd`, cut off and ending with a 1 if anything was lost, to be rounded once more.
// Of `digits` the last two are below the last place; the very last one tells whether more follows.
REAL join(REAL sign, int exponent, BITS digits, bool to_odd) {
  if (exponent >= kExpMax) return infinity(sign);
  BITS base = BITS(0);
  if (exponent > 0) {
    base = BITS(exponent - 1) << kDigits;
  } else {
    const int places = 1 - exponent;
    if (places > kDigits + 3) return zero(sign);
    const BITS lost = digits & ((BITS(1) << places) - BITS(1));
    digits = (digits >> places) | (lost != BITS(0) ? BITS(1) : BITS(0));
  }
  const BITS rest = digits & BITS(3), size = base + (digits >> 2);
  const BITS up = rest + (size & BITS(1)) > BITS(2) ? BITS(1) : BITS(0), odd = rest != BITS(0) ? BITS(1) : BITS(0);
  return from_bits((to_bits(sign) & kSignBit) | (to_odd ? size | odd : size + up));
}
REAL join(REAL sign, int exponent, BITS digits) { return join(sign, exponent, digits, false); }
// 2^n, n being the exponent of a normal number.
REAL power_of_two(int n) { return from_bits(BITS(kBias + n) << kDigits); }
// x * 2^n, rounded once.
REAL scale(REAL x, int n) {
  if (is_zero(x) || !is_finite(x)) return x;
  int exponent = int(size_of(x) >> kDigits);
  if (exponent > 0 && exponent + n > 0 && exponent + n < kExpMax) return from_bits(to_bits(x) + (BITS(SBITS(n)) << kDigits));
  BITS digits;
  split(x, exponent, digits);
  return join(x, exponent + n, digits << 2);
}

// ---- division and square root: an estimate of the quotient's digits, and what is left, modulo 2^32 or 2^64, mends it ----

REAL quotient_by_digits(REAL a, REAL b) {
  const REAL sign = from_bits((to_bits(a) ^ to_bits(b)) & kSignBit);
  if (is_nan(a) || is_nan(b) || (is_inf(a) && is_inf(b)) || (is_zero(a) && is_zero(b))) return not_a_number();
  if (is_inf(a) || is_zero(b)) return infinity(sign);
  if (is_zero(a) || is_inf(b)) return sign;
  if (IS_HALF) return a / b;
  int ea, eb;
  BITS da, db;
  split(a, ea, da);
  split(b, eb, db);
  int exponent = ea - eb + kBias;
  if (da < db) {
    da <<= 1;
    --exponent;
  }
  BITS q = quotient_estimate(da, db);
  SBITS rest = SBITS((da << (kDigits + 2)) - q * db);
  const SBITS more = quotient_rest(rest, db);
  q += BITS(more);
  rest -= more * SBITS(db);
  if (rest < SBITS(0)) {
    --q;
    rest += SBITS(db);
  } else if (rest >= SBITS(db)) {
    ++q;
    rest -= SBITS(db);
  }
  return join(sign, exponent, q | (rest != SBITS(0) ? BITS(1) : BITS(0)));
}

REAL sqrt_by_digits(REAL x) {
  if (is_nan(x) || is_zero(x)) return x;
  if (is_negative(x)) return not_a_number();
  if (is_inf(x)) return x;
  if (IS_HALF) return sqrt(x);
  int exponent;
  BITS digits;
  split(x, exponent, digits);
  exponent -= kBias;
  if ((exponent & 1) != 0) digits <<= 1;
  BITS root = sqrt_estimate(digits);
  SBITS rest = SBITS((digits << (kDigits + 2)) - root * root);
  root += BITS(sqrt_rest(rest, root));
  rest = SBITS((digits << (kDigits + 2)) - root * root);
  if (rest < SBITS(0)) {
    --root;
    rest += SBITS(root << 1) + SBITS(1);
  } else if (rest > SBITS(root << 1)) {
    rest -= SBITS(root << 1) + SBITS(1);
    ++root;
  }
  return join(REAL(0), (exponent >> 1) + kBias, (root << 1) | (rest != SBITS(0) ? BITS(1) : BITS(0)));
}

// ---- division with remainder, exact: long division by as many digits at a time as there is room for ----

REAL fmod_by_digits(REAL a, REAL b) {
  if (is_nan(a) || is_nan(b) || is_inf(a) || is_zero(b)) return not_a_number();
  if (is_zero(a) || is_inf(b)) return a;
  int ea, eb;
  BITS rest, divisor;
  split(a, ea, rest);
  split(b, eb, divisor);
  if (ea < eb) return a;
  const int room = (kDigits == 23 ? 32 : 64) - kDigits - 1;
  rest %= divisor;
  for (int left = ea - eb; left > 0 && rest != BITS(0); left -= room) rest = (rest << min(left, room)) % divisor;
  if (rest == BITS(0)) return zero(a);
  const int places = kDigits - msb_of(rest);
  return join(a, eb - places, rest << (places + 2));
}

precise REAL fmod_real(REAL a, REAL b);
// Python's: the sign of b.
precise REAL remainder_real(REAL a, REAL b) {
  const REAL r = fmod_real(a, b);
  if (is_nan(r)) return r;
  if (is_zero(r)) return zero(b);
  return is_negative(r) != is_negative(b) ? r + b : r;
}

// ---- numbers in two parts: x is the sum rounded, y what it lacks (Dekker, "A floating-point technique for extending the available
// precision", Numer. Math. 18, 1971; Knuth, TAOCP 2, 4.2.2) ----

precise PAIR sum_of(REAL a, REAL b) {
  REAL s = a + b;
  REAL t = s - a;
  return PAIR(s, (a - (s - t)) + (b - t));
}
// |a| >= |b|
precise PAIR ordered_sum(REAL a, REAL b) {
  REAL s = a + b;
  return PAIR(s, b - (s - a));
}
precise PAIR product(REAL a, REAL b) {
  if (kFuses) return PAIR(a * b, fma(a, b, -(a * b)));
  const REAL ah = from_bits(to_bits(a) & kHighHalf), bh = from_bits(to_bits(b) & kHighHalf);
  REAL al = a - ah, bl = b - bh;
  REAL p = a * b;
  return PAIR(p, (((ah * bh - p) + ah * bl) + al * bh) + al * bl);
}
precise PAIR product(PAIR a, PAIR b) {
  PAIR p = product(a.x, b.x);
  p.y += a.x * b.y + a.y * b.x;
  return ordered_sum(p.x, p.y);
}
// a/b to a little more than half a unit, for numbers that are far from overflow and underflow.
precise REAL ratio(PAIR a, PAIR b) {
  const REAL y = reciprocal_estimate(b.x);
  REAL q = a.x * y;
  PAIR p = product(q, b.x);
  return q + (((a.x - p.x) - p.y) + (a.y - q * b.y)) * y;
}
REAL ratio(REAL a, REAL b) { return IS_SHORT ? a * reciprocal_estimate(b) : ratio(PAIR(a, REAL(0)), PAIR(b, REAL(0))); }

// ---- a*b + c, rounded once ----

const int kWord = kDigits == 23 ? 32 : 64;

struct Wide {
  BITS high, low;
};
Wide shifted_left(Wide x, int n) {  // 0 <= n < 2*kWord
  if (n >= kWord) return Wide(x.low << (n - kWord), BITS(0));
  return n == 0 ? x : Wide((x.high << n) | (x.low >> (kWord - n)), x.low << n);
}
// Of the bits that go the last one that stays tells.
Wide shifted_right(Wide x, int n) {
  if (n == 0) return x;
  if (n >= 2 * kWord) return Wide(BITS(0), (x.high | x.low) != BITS(0) ? BITS(1) : BITS(0));
  const Wide lost = shifted_left(x, 2 * kWord - n);
  const BITS more = (lost.high | lost.low) != BITS(0) ? BITS(1) : BITS(0);
  if (n >= kWord) return Wide(BITS(0), (x.high >> (n - kWord)) | more);
  return Wide(x.high >> n, (x.low >> n) | (x.high << (kWord - n)) | more);
}
bool is_less(Wide a, Wide b) { return a.high < b.high || (a.high == b.high && a.low < b.low); }
Wide sum_of(Wide a, Wide b) {
  const BITS low = a.low + b.low;
  return Wide(a.high + b.high + (low < a.low ? BITS(1) : BITS(0)), low);
}
Wide difference_of(Wide a, Wide b) { return Wide(a.high - b.high - (a.low < b.low ? BITS(1) : BITS(0)), a.low - b.low); }

// By integers, of finite numbers that are not 0, rounded as join() says. Numbers are placed so that the highest bit but one is that
// of the exponent.
REAL fma_by_digits(REAL a, REAL b, REAL c, bool to_odd) {
  int ea, eb, exponent;
  BITS da, db, dc;
  split(a, ea, da);
  split(b, eb, db);
  split(c, exponent, dc);
  Wide p, s = shifted_left(Wide(BITS(0), dc), 2 * kWord - 2 - kDigits);
  p.low = product_of(da, db, p.high);
  p = shifted_left(p, 2 * kWord - 3 - 2 * kDigits);
  const int ahead = ea + eb - kBias + 1 - exponent;
  if (ahead > 0) {
    s = shifted_right(s, ahead);
    exponent += ahead;
  } else {
    p = shifted_right(p, -ahead);
  }
  REAL sign = from_bits((to_bits(a) ^ to_bits(b)) & kSignBit);
  if (is_negative(sign) == is_negative(c)) {
    p = sum_of(p, s);
  } else if (is_less(p, s)) {
    sign = c;
    p = difference_of(s, p);
  } else {
    p = difference_of(p, s);
  }
  if ((p.high | p.low) == BITS(0)) return REAL(0);
  const int top = p.high != BITS(0) ? kWord + msb_of(p.high) : msb_of(p.low), down = top - (kDigits + 2);
  p = down >= 0 ? shifted_right(p, down) : shifted_left(p, -down);
  return join(sign, exponent + top - (2 * kWord - 2), p.low, to_odd);
}
// Vulkan's fma may round twice. Whether this device's does is seen by the rounding of a*b: where that comes out right, or there is
// none, so does the sum. It may take a subnormal one of the three for 0.
precise REAL fma_real(REAL a, REAL b, REAL c) {
  if (!is_finite(a) || !is_finite(b)) return a * b + c;
  if (!is_finite(c)) return c;
  if (is_zero(a) || is_zero(b)) return a * b + c;
  PAIR p = product(a, b);
  const int e = exponent_of(a) + exponent_of(b);
  const REAL rounding = fma(a, b, -p.x);
  const bool are_normal = min(min(size_of(a), size_of(b)), size_of(c)) > kFraction;
  if (are_normal && e < kBias - 2 && e > 2 * kDigits + 4 - kBias && rounding == p.y) return fma(a, b, c);
  return is_zero(c) ? a * b : fma_by_digits(a, b, c, false);
}

// ---- powers: what is none of a positive number ----

// 0: b is no integer, 1: odd, 2: even
int parity(REAL b) {
  const int e = exponent_of(b);
  if (e > kDigits) return 2;
  if (e < 0) return is_zero(b) ? 2 : 0;
  const BITS digits = (to_bits(b) & kFraction) | kImplicit;
  if ((digits & (kFraction >> e)) != BITS(0)) return 0;
  return ((digits >> (kDigits - e)) & BITS(1)) != BITS(0) ? 1 : 2;
}
// Whether a^b is none of a positive number's: then it is y. Else y has its sign.
bool is_pow_special(REAL a, REAL b, out REAL y) {
  y = REAL(0);
  const bool is_usual = to_bits(a) - BITS(1) < kInfBits - BITS(1) && is_finite(b);  // a is positive and finite
  if (is_usual) return false;
  y = REAL(1);
  if (is_zero(b) || to_bits(a) == to_bits(REAL(1))) return true;
  y = not_a_number();
  if (is_nan(a) || is_nan(b)) return true;
  const bool above = size_of(a) > to_bits(REAL(1));
  if (is_inf(b)) {
    y = size_of(a) == to_bits(REAL(1)) ? REAL(1) : above != is_negative(b) ? infinity(REAL(0)) : REAL(0);
    return true;
  }
  const int kind = parity(b);
  const REAL sign = kind == 1 ? zero(a) : REAL(0);
  if (is_zero(a) || is_inf(a)) {
    y = is_zero(a) != is_negative(b) ? sign : infinity(sign);
    return true;
  }
  if (kind == 0) return true;  // a is negative
  y = sign;
  return false;
}
precise REAL pow_positive(REAL a, REAL b, REAL sign);  // 0 < a < infinity, b finite; its size
REAL pow_real(REAL a, REAL b) {
  REAL y;
  return is_pow_special(a, b, y) ? y : pow_positive(size(a), b, y);
}

// ---- sinc, by sin(pi a) = +-sin(pi f) for the distance f from a whole number ----

// sin(pi f)/(pi f) for |f| <= 1/2
precise REAL sinc_near(REAL f) {
  REAL z = f * f;
  return REAL(1) + z * sinc_tail(z);
}
// size - n for the nearest whole number n, negated for an odd one: exact, of whole numbers and infinity +0.
precise REAL alternating_rest(REAL size, out bool is_odd) {
  const REAL n = round_real(size);
  is_odd = parity(n) == 1;
  return is_inf(size) ? REAL(0) : is_odd ? n - size : size - n;
}
precise REAL sinc_real(REAL a) {
  bool is_odd;
  const REAL x = size(a), f = alternating_rest(x, is_odd), near = sinc_near(f);
  if (x <= REAL(0.5)) return near;
  return is_zero(f) ? f : is_nan(a) ? a : ratio(f * near, x);
}
