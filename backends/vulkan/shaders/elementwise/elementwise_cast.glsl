// SPDX-License-Identifier: Apache-2.0
// elementwise_cast.glsl -- an element's bits in another dtype: any of the 13 to any. It works on bits alone, but for f16 where the
// device's own conversion is known: rounding is to nearest even and happens once, f64 needs no shaderFloat64. Dtypes are constants
// wherever it is called. Included after elementwise_words.glsl and bits.glsl.

// Digits of a float's fraction; 0: not a float. The exponent's bias follows from the size.
uint fraction_of(uint dtype) { return dtype == F32 ? 23 : dtype == F64 ? 52 : dtype == F16 ? 10 : dtype == BF16 ? 7 : 0; }
int bias_of(uint dtype) { return dtype == F64 ? 1023 : dtype == F16 ? 15 : 127; }
bool is_signed(uint dtype) { return dtype >= I8 && dtype <= I64; }
bool is_single(uint dtype) { return dtype == F32 || dtype == F16 || dtype == BF16; }
uint64_t bit(uint n) { return 1ul << n; }
uint64_t ones(uint n) { return n == 64 ? ~0ul : bit(n) - 1ul; }
int top_bit(uint64_t x) {
  const uvec2 words = unpack32(x);
  return words.y != 0 ? 32 + findMSB(words.y) : findMSB(words.x);
}

// digits * 2^exponent, or what is no finite number.
struct Value {
  bool is_negative, is_infinite, is_nan;
  uint64_t digits;
  int exponent;
};

Value read_float(uint64_t bits, uint from) {
  const uint fraction = fraction_of(from);
  const int bias = bias_of(from), field = int(bits >> fraction) & (2 * bias + 1);
  Value v;
  v.is_negative = (bits >> (8 * size_of_dtype(from) - 1)) != 0ul;
  v.digits = bits & ones(fraction);
  const bool is_special = field == 2 * bias + 1;
  v.is_nan = is_special && v.digits != 0ul;
  v.is_infinite = is_special && v.digits == 0ul;
  if (field != 0) v.digits |= bit(fraction);
  v.exponent = max(field, 1) - bias - int(fraction);
  return v;
}
Value read_integer(uint64_t bits, uint from) {
  const uint width = 8 * size_of_dtype(from);
  const bool is_negative = is_signed(from) && (bits >> (width - 1)) != 0ul;
  return Value(is_negative, false, false, is_negative ? (0ul - bits) & ones(width) : bits, 0);
}

uint64_t as_float(Value v, uint to) {
  const uint fraction = fraction_of(to);
  const int bias = bias_of(to);
  const uint64_t infinity = uint64_t(2 * bias + 1) << fraction;
  const uint64_t sign = v.is_negative ? bit(8 * size_of_dtype(to) - 1) : 0ul;
  if (v.is_nan) return sign | infinity | bit(fraction - 1);
  if (v.digits == 0ul) return sign;
  const int top = top_bit(v.digits), exponent = top + v.exponent;
  if (v.is_infinite || exponent > bias) return sign | infinity;
  const int least = 1 - bias;  // of a normal number
  const int places = top - int(fraction) + max(least - exponent, 0);
  if (places > top + 1) return sign;
  // A carry of the rounding goes on into the exponent, as it should.
  const uint64_t base = exponent < least ? 0ul : uint64_t(exponent - least) << fraction;
  if (places <= 0) return sign | (base + (v.digits << -places));
  const uint64_t rest = v.digits & ones(uint(places)), half_ = bit(uint(places - 1)), kept = v.digits >> places;
  const bool is_up = rest > half_ || (rest == half_ && (kept & 1ul) != 0ul);
  return sign | (base + kept + (is_up ? 1ul : 0ul));
}

// Towards 0, and to the nearest that there is.
uint64_t as_integer(Value v, uint to) {
  if (v.is_nan) return 0ul;
  const uint width = 8 * size_of_dtype(to);
  const uint64_t positive = ones(is_signed(to) ? width - 1 : width), negative = is_signed(to) ? bit(width - 1) : 0ul;
  uint64_t size = ~0ul;
  if (v.exponent <= 0)
    size = v.exponent <= -64 ? 0ul : v.digits >> -v.exponent;
  else if (!v.is_infinite && top_bit(v.digits) + v.exponent < 64)
    size = v.digits << v.exponent;
  if (v.is_infinite) size = ~0ul;
  size = min(size, v.is_negative ? negative : positive);
  return v.is_negative ? 0ul - size : size;
}

float as_single(uint64_t bits, uint from) {
  if (from == F16) return f32_from_f16(uint(bits));
  if (from == BF16) return f32_from_bf16(uint(bits));
  if (from == F32) return uintBitsToFloat(uint(bits));
  const int width = 8 * int(size_of_dtype(from));
  return is_signed(from) ? float(bitfieldExtract(int(uint(bits)), 0, width)) : float(uint(bits));
}

uint64_t cast_bits(uint64_t element, uint from, uint to) {
  const uint64_t truth = element != 0ul ? 1ul : 0ul, bits = from == BOOL ? truth : element;
  const bool is_float = fraction_of(from) != 0;
  if (from == to) return bits;
  if (to == BOOL) return (is_float ? bits & ones(8 * size_of_dtype(from) - 1) : bits) != 0ul ? 1ul : 0ul;
  if (is_single(to) && (is_single(from) || (!is_float && size_of_dtype(from) <= 2))) {  // exact in f32
    const float x = as_single(bits, from);
    return uint64_t(to == F16 ? f16_from_f32(x) : to == BF16 ? bf16_from_f32(x) : floatBitsToUint(x));
  }
  Value v;
  if (is_float)
    v = read_float(bits, from);
  else
    v = read_integer(bits, from);
  return fraction_of(to) != 0 ? as_float(v, to) : as_integer(v, to);
}
