// SPDX-License-Identifier: Apache-2.0
// floating_point.cpp -- see floating_point.h.
#include "floating_point.h"

#include <cfenv>
#include <cstdio>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace narrows::test {
namespace {

// The register without the flags of exceptions that were raised: those anybody may raise.
#if defined(__x86_64__)
constexpr uint32_t kRaised = 0x3F;
uint64_t control() {
  uint16_t x87;  // what long double is computed by
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return (_mm_getcsr() & ~kRaised) | uint64_t{x87} << 32;
}
void set_control(uint64_t to) {
  const auto x87 = static_cast<uint16_t>(to >> 32);
  __asm__ volatile("fldcw %0" : : "m"(x87));
  _mm_setcsr(static_cast<uint32_t>(to));
}
#elif defined(__aarch64__)
uint64_t control() {
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
}
void set_control(uint64_t to) { __asm__ volatile("msr fpcr, %0" : : "r"(to)); }
#else
uint64_t control() { return 0; }
void set_control(uint64_t) {}
#endif

// Before any plugin was loaded: what one has changed long ago is seen as well.
const int rounding_at_start = std::fegetround();
const uint64_t control_at_start = control();

}  // namespace

FloatingPointMode::FloatingPointMode() : rounding_(rounding_at_start), control_(control_at_start) {}

std::string FloatingPointMode::change() const {
  const int rounding = std::fegetround();
  const uint64_t now = control();
  if (rounding == rounding_ && now == control_) return {};
  std::fesetround(rounding_);
  set_control(control_);
  char text[160];
  std::snprintf(text, sizeof text, "the floating-point mode was changed: rounding from 0x%x to 0x%x, control from 0x%llx to 0x%llx",
                static_cast<unsigned>(rounding_), static_cast<unsigned>(rounding), static_cast<unsigned long long>(control_),
                static_cast<unsigned long long>(now));
  return text;
}

}  // namespace narrows::test
