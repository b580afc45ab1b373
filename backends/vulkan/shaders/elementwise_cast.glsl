// elementwise_cast.glsl -- cast between any two dtypes by integers of 64 bits alone, which hold the digits of every number there is:
// to nearest even into floating point, truncating and saturating into integers. No f64 or f16 is asked of the device. The includer
// defines the specialization constants `const int FROM, TO` (NW_DTYPE_*).
//   cast_bits(bits)  the element's bits, zero-extended, to the result's, of which the low ones count
// Among f32, f16 and bf16 loading by bits.glsl to f32 and storing from it is the same, and faster.
#ifndef NARROWS_ELEMENTWISE_CAST
#define NARROWS_ELEMENTWISE_CAST

#define NW_DTYPE_FLOAT32 1
#define NW_DTYPE_FLOAT64 2
#define NW_DTYPE_FLOAT16 3
#define NW_DTYPE_BFLOAT16 4
#define NW_DTYPE_INT8 5
#define NW_DTYPE_INT64 8
#define NW_DTYPE_UINT8 9
#define NW_DTYPE_UINT64 12
#define NW_DTYPE_BOOL 13

// ---- dtypes by number ----

bool is_float_dtype(int dtype) { return dtype <= NW_DTYPE_BFLOAT16; }
bool is_signed_dtype(int dtype) { return dtype >= NW_DTYPE_INT8 && dtype <= NW_DTYPE_INT64; }
int bits_of(int dtype) {
  switch (dtype) {
    case NW_DTYPE_FLOAT32: return 32;
    case NW_DTYPE_FLOAT64: return 64;
    case NW_DTYPE_FLOAT16:
    case NW_DTYPE_BFLOAT16: return 16;
    default: return 8 << ((dtype - NW_DTYPE_INT8) & 3);  // of integers
  }
}
// Of the fraction, and the exponent of 1.
int digits_of(int dtype) {
  return dtype == NW_DTYPE_FLOAT32 ? 23 : dtype == NW_DTYPE_FLOAT64 ? 52 : dtype == NW_DTYPE_FLOAT16 ? 10 : 7;
}
int bias_of(int dtype) { return dtype == NW_DTYPE_FLOAT64 ? 1023 : dtype == NW_DTYPE_FLOAT16 ? 15 : 127; }

uint64_t low_bits(int n) { return n >= 64 ? 0xfffffffffffffffful : (1ul << n) - 1ul; }
int highest_bit(uint64_t x) {
  const uint high = uint(x >> 32);
  return high != 0u ? 32 + findMSB(high) : findMSB(uint(x));
}

// ---- a number: digits * 2^exponent, or infinite, or NaN ----

struct Number {
  bool negative, infinite, nan;
  uint64_t digits;
  int exponent;
};

Number number_of_float(uint64_t bits) {
  const int digits = digits_of(FROM), largest = 2 * bias_of(FROM) + 1;
  const int exponent = int(bits >> digits) & largest;
  const uint64_t fraction = bits & low_bits(digits);
  Number x;
  x.negative = (bits >> (bits_of(FROM) - 1)) != 0ul;
  x.infinite = exponent == largest && fraction == 0ul;
  x.nan = exponent == largest && fraction != 0ul;
  x.digits = exponent == 0 ? fraction : fraction | (1ul << digits);
  x.exponent = max(exponent, 1) - bias_of(FROM) - digits;
  return x;
}
Number number_of_integer(uint64_t bits) {
  Number x;
  x.negative = is_signed_dtype(FROM) && (bits >> (bits_of(FROM) - 1)) != 0ul;
  x.infinite = false;
  x.nan = false;
  x.digits = FROM == NW_DTYPE_BOOL ? (bits != 0ul ? 1ul : 0ul) : (x.negative ? 0ul - bits : bits) & low_bits(bits_of(FROM));
  x.exponent = 0;
  return x;
}

uint64_t float_of(Number x) {
  const int digits = digits_of(TO), largest = 2 * bias_of(TO) + 1;
  const uint64_t sign = x.negative ? 1ul << (bits_of(TO) - 1) : 0ul, infinite = uint64_t(largest) << digits;
  if (x.nan) return infinite | (1ul << (digits - 1));
  if (x.infinite) return sign | infinite;
  if (x.digits == 0ul) return sign;
  const int top = highest_bit(x.digits), exponent = x.exponent + top + bias_of(TO);
  if (exponent >= largest) return sign | infinite;
  const uint64_t base = uint64_t(max(exponent, 1) - 1) << digits;
  const int drop = top - digits + (exponent < 1 ? 1 - exponent : 0);
  if (drop <= 0) return sign | (base + (x.digits << -drop));
  if (drop > 64) return sign;
  const uint64_t lost = x.digits & low_bits(drop), half_unit = 1ul << (drop - 1);
  const uint64_t kept = drop == 64 ? 0ul : x.digits >> drop;
  const bool up = lost > half_unit || (lost == half_unit && (kept & 1ul) != 0ul);
  return sign | (base + kept + (up ? 1ul : 0ul));  // carries into the exponent, up to infinity
}

uint64_t integer_of(Number x) {
  if (x.nan || (!x.infinite && x.digits == 0ul)) return 0ul;
  uint64_t limit = low_bits(bits_of(TO));
  if (is_signed_dtype(TO))
    limit = (limit >> 1) + (x.negative ? 1ul : 0ul);
  else if (x.negative)
    return 0ul;
  uint64_t size = limit;
  if (!x.infinite && x.exponent < 0)
    size = x.exponent <= -64 ? 0ul : x.digits >> -x.exponent;
  else if (!x.infinite && x.exponent + highest_bit(x.digits) < 64)
    size = x.digits << x.exponent;
  size = min(size, limit);
  return x.negative ? 0ul - size : size;
}

uint64_t cast_bits(uint64_t bits) {
  Number x;
  if (is_float_dtype(FROM))
    x = number_of_float(bits);
  else
    x = number_of_integer(bits);
  if (TO == NW_DTYPE_BOOL) return x.digits != 0ul || x.infinite || x.nan ? 1ul : 0ul;
  return is_float_dtype(TO) ? float_of(x) : integer_of(x);
}

#endif
