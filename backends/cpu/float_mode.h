// SPDX-License-Identifier: Apache-2.0
// float_mode.h -- the floating-point mode that kernels are written for.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace narrows::cpu {

// While it lives the thread rounds to nearest, keeps subnormal numbers and traps nothing, as the pool's threads always do;
// afterwards as before. A caller may have set otherwise for itself (torch.set_flush_denormal), and its share of a loop would have
// other results.
class FloatMode {
 public:
  FloatMode() : before_(get()) {
    if ((before_ & kMode) != (kDefault & kMode)) set((before_ & ~kMode) | kDefault);
  }
  ~FloatMode() {
    if ((before_ & kMode) != (kDefault & kMode)) set(before_);
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)  // MXCSR; its lowest six bits tell what has happened
  using Bits = uint32_t;
  static constexpr Bits kMode = 0xffc0, kDefault = 0x1f80;
  static Bits get() { return _mm_getcsr(); }
  static void set(Bits bits) { _mm_setcsr(bits); }
#elif defined(__aarch64__) && defined(__GNUC__)  // FPCR: AHP, DN, FZ, RMode, FZ16, the traps
  using Bits = uint64_t;
  static constexpr Bits kMode = 0x07c89f00, kDefault = 0;
  static Bits get() {
    Bits bits;
    __asm__ volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
  }
  static void set(Bits bits) { __asm__ volatile("msr fpcr, %0" : : "r"(bits)); }
#else
  using Bits = uint32_t;
  static constexpr Bits kMode = 0, kDefault = 0;
  static Bits get() { return 0; }
  static void set(Bits) {}
#endif
  const Bits before_;
};

}  // namespace narrows::cpu
