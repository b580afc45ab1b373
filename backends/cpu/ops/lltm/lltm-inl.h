// SPDX-License-Identifier: Apache-2.0
// lltm-inl.h -- the activations of lltm and their derivatives, on vectors of f32 or f64. Compiled once per instruction set. All
// come from exp and expm1 of numbers that are not positive, so nothing overflows; NaN goes through. elementwise_math-inl.h's exp
// takes every number, those far from 0 by a second path that each vector is asked for; here one path takes all that can come, and
// what it makes of r is expm1, which elu and tanh need.
#if defined(NARROWS_CPU_LLTM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_CPU_LLTM_INL_H
#undef NARROWS_CPU_LLTM_INL_H
#else
#define NARROWS_CPU_LLTM_INL_H
#endif

#include "lltm.h"
#include "ops/convert-inl.h"
#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

template <class D>
struct LltmMath {
  using V = hn::Vec<D>;
  using A = hn::TFromD<D>;
  static constexpr bool kF64 = sizeof(A) == 8;

  static HWY_INLINE V Constant(double x) { return hn::Set(D(), static_cast<A>(x)); }

#if HWY_TARGET == HWY_AVX3
  // 2^n by the instruction that scales by it, whatever n is.
  class Power {
   public:
    HWY_INLINE Power(V n, V, V) : n_(n) {}
    HWY_INLINE V Times(V x) const {
      if constexpr (kF64) {
        return V{_mm512_scalef_pd(x.raw, n_.raw)};
      } else {
        return V{_mm512_scalef_ps(x.raw, n_.raw)};
      }
    }
    HWY_INLINE V Value() const { return Times(Constant(1)); }

   private:
    V n_;
  };
#else
  // 2^n as two factors, so that results below the normal range round once.
  class Power {
   public:
    HWY_INLINE Power(V n, V shifted, V magic) {
      const hn::RebindToSigned<D> di;
      const V half = hn::MulAdd(n, Constant(0.5), magic);
      const auto bits = hn::BitCast(di, magic);
      const auto n0 = hn::Sub(hn::BitCast(di, half), bits);
      factor0_ = PowerOfTwo(n0), factor1_ = PowerOfTwo(hn::Sub(hn::Sub(hn::BitCast(di, shifted), bits), n0));
    }
    HWY_INLINE V Times(V x) const { return hn::Mul(hn::Mul(x, factor0_), factor1_); }
    HWY_INLINE V Value() const { return hn::Mul(factor0_, factor1_); }

   private:
    template <class VI>
    static HWY_INLINE V PowerOfTwo(VI n) {
      const hn::RebindToSigned<D> di;
      constexpr int kMantissa = kF64 ? 52 : 23;
      return hn::BitCast(D(), hn::ShiftLeft<kMantissa>(hn::Add(n, hn::Set(di, kF64 ? 1023 : 127))));
    }
    V factor0_, factor1_;
  };
#endif

  // x = n * ln 2 + r with |r| <= ln 2 / 2: expm1(r), and 2^n.
  struct Reduced {
    V expm1;
    Power power;
  };
  static HWY_INLINE Reduced Reduce(V x) {
    const V magic = Constant(kF64 ? 0x1.8p52 : 0x1.8p23);  // adding it rounds to an integer, which stands in the low bits
    const V lowest = Constant(kF64 ? -746.0 : -104.0);     // exp is 0 there
    x = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
    const V shifted = hn::MulAdd(x, Constant(0x1.71547652b82fep+0), magic), n = hn::Sub(shifted, magic);
    V r = hn::NegMulAdd(n, Constant(kF64 ? 0x1.62e42feep-1 : 0x1.63p-1), x);
    r = hn::NegMulAdd(n, Constant(kF64 ? 0x1.a39ef35793c76p-33 : -0x1.bd0106p-13), r);
    return {Polynomial(r), Power(n, shifted, magic)};
  }

  // expm1(r) = r + r^2 / 2! + r^3 / 3! + ..., cut off below half a unit of the last place.
  static HWY_INLINE V Polynomial(V r) {
    constexpr double kInverseFactorials[] = {
        0.5,          1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,          1.0 / 5040,         1.0 / 40320,
        1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0, 1.0 / 87178291200.0};
    constexpr int kTerms = kF64 ? 13 : 7;
    V q = Constant(kInverseFactorials[kTerms - 1]);
    for (int i = kTerms - 2; i >= 0; --i) q = hn::MulAdd(q, r, Constant(kInverseFactorials[i]));
    return hn::MulAdd(hn::Mul(r, r), q, r);
  }

  static HWY_INLINE V NegativeAbs(V x) { return hn::Or(x, hn::SignBit(D())); }

  static HWY_INLINE V Exp(const Reduced& e) { return e.power.Times(hn::Add(e.expm1, Constant(1))); }
  static HWY_INLINE V Expm1(const Reduced& e) {
    const V scale = e.power.Value();
    return hn::MulAdd(e.expm1, scale, hn::Sub(scale, Constant(1)));
  }
  // Of x <= 0.
  static HWY_INLINE V Exp(V x) { return Exp(Reduce(x)); }
  // Far below 0 it is -1, from a power of two that is no subnormal number: these are slow.
  static HWY_INLINE V Expm1(V x) {
    const V far = Constant(-64);
    return Expm1(Reduce(hn::IfThenElse(hn::Lt(x, far), far, x)));
  }

  static HWY_INLINE V Sigmoid(V z) {
    const V e = Exp(NegativeAbs(z));
    return hn::Div(hn::IfThenElse(hn::Lt(z, Constant(0)), e, Constant(1)), hn::Add(e, Constant(1)));
  }
  static HWY_INLINE V Elu(V z) {
    const auto positive = hn::Gt(z, Constant(0));
    return hn::IfThenElse(positive, z, Expm1(hn::IfThenElse(positive, Constant(0), z)));
  }

  // An activation and its derivative, of one exponential and one division.
  struct WithSlope {
    V value, slope;
  };
  static HWY_INLINE WithSlope SigmoidWithSlope(V z) {
    const V e = Exp(NegativeAbs(z)), inverse = hn::Div(Constant(1), hn::Add(e, Constant(1))), rest = hn::Mul(e, inverse);
    return {hn::IfThenElse(hn::Lt(z, Constant(0)), rest, inverse), hn::Mul(rest, inverse)};
  }
  static HWY_INLINE WithSlope EluWithSlope(V z) {
    const auto positive = hn::Gt(z, Constant(0));
    const Reduced e = Reduce(hn::IfThenElse(positive, Constant(0), z));
    return {hn::IfThenElse(positive, z, Expm1(e)), Exp(e)};
  }
  // The slope is 1 - tanh^2, without the cancellation.
  static HWY_INLINE WithSlope TanhWithSlope(V x) {
    const Reduced e = Reduce(hn::Mul(Constant(2), NegativeAbs(x)));
    const V expm1 = Expm1(e), inverse = hn::Div(Constant(1), hn::Add(expm1, Constant(2)));
    const V twice = hn::Mul(Constant(2), inverse);
    return {hn::CopySign(hn::Mul(expm1, inverse), x), hn::Mul(hn::Mul(twice, twice), Exp(e))};
  }

  // The cell: the state after a step whose gates are z.
  struct State {
    V cell, h;
  };
  static HWY_INLINE State Step(const V (&z)[3], V old_cell) {
    const V cell = hn::MulAdd(Elu(z[2]), Sigmoid(z[0]), old_cell);
    // tanh * sigmoid, by one division.
    const V t = Expm1(hn::Mul(Constant(2), NegativeAbs(cell))), e = Exp(NegativeAbs(z[1]));
    const V above = hn::IfThenElse(hn::Lt(z[1], Constant(0)), hn::Mul(t, e), t);
    const V below = hn::Mul(hn::Add(t, Constant(2)), hn::Add(e, Constant(1)));
    return {cell, hn::CopySign(hn::Div(above, below), cell)};
  }
  // Its gradients, of the gates and of the old cell.
  struct StateGrads {
    V gates[3], cell;
  };
  static HWY_INLINE StateGrads StepGrads(const V (&z)[3], V new_cell, V grad_h, V grad_cell) {
    const WithSlope in = SigmoidWithSlope(z[0]), out = SigmoidWithSlope(z[1]), candidate = EluWithSlope(z[2]);
    const WithSlope cell = TanhWithSlope(new_cell);
    const V d_cell = hn::Add(hn::Mul(hn::Mul(cell.slope, out.value), grad_h), grad_cell);
    return {{hn::Mul(hn::Mul(candidate.value, d_cell), in.slope), hn::Mul(hn::Mul(cell.value, grad_h), out.slope),
             hn::Mul(hn::Mul(in.value, d_cell), candidate.slope)},
            d_cell};
  }
};

// out[j * stride] = the sum over the rows of matrix[row * ld + j], for a vector of columns, `count` of them. Sums of sums of 256
// rows keep the rounding error of many rows small.
template <class T, class A = Accumulate<T>>
void SumColumns(const A* matrix, int64_t rows, int64_t ld, int64_t count, T* out, int64_t stride) {
  const hn::ScalableTag<A> d;
  auto total = hn::Zero(d);
  for (int64_t begin = 0; begin < rows; begin += 256) {
    auto sum = hn::Zero(d);
    for (int64_t row = begin; row < std::min(begin + 256, rows); ++row)
      sum = hn::Add(sum, LoadStrided(d, matrix + row * ld, 1, count));
    total = hn::Add(total, sum);
  }
  StoreStrided(d, total, out, stride, count);
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
