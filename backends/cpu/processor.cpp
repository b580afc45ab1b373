// SPDX-License-Identifier: Apache-2.0
// processor.cpp -- see processor.h.
#include "processor.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "targets.h"
#if HWY_ARCH_X86_64
#include <cpuid.h>
#endif

namespace narrows::cpu {

// Asked of the CPU by ourselves: Highway's older versions do not know them.
bool multiplies(Bf16Products products) {
#if HWY_ARCH_X86_64
  unsigned eax, ebx, ecx, edx;
  if (products == Bf16Products::dots) return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1) != 0;
  constexpr unsigned kAmx = 1u << 22 | 1u << 24;  // bf16, tiles
  if (products == Bf16Products::tiles && (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (edx & kAmx) != kAmx)) return false;
  // Linux lets a process use tiles once it has asked; it may refuse.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return products != Bf16Products::tiles || syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return products == Bf16Products::f32;
#endif
}

bool is_intel() {
#if HWY_ARCH_X86_64
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(0, &eax, &ebx, &ecx, &edx) && ebx == signature_INTEL_ebx;
#else
  return false;
#endif
}

// Read by the system's own calls: a stream that finds no memory looks like a file that ended.
std::string cpu_model() {
  char text[4096];
  const int file = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
  const ssize_t size = file < 0 ? 0 : read(file, text, sizeof text);  // its beginning: the first processor
  if (file >= 0) close(file);
  const std::string_view all(text, size > 0 ? static_cast<size_t>(size) : 0);
  const size_t line = all.find("model name"), colon = all.find(": ", line), end = all.find('\n', line);
  if (line != all.npos && colon < end && end != all.npos) return std::string(all.substr(colon + 2, end - colon - 2));
  return HWY_ARCH_X86 ? "x86-64 CPU" : HWY_ARCH_ARM_A64 ? "arm64 CPU" : "CPU";
}

}  // namespace narrows::cpu
