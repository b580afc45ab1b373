// main.cpp -- runs the conformance suite, and ends with 77 where the instruction set asked for is not this machine's.
// After a whole suite (no filter) every kernel variant that the backend lists must have run at least once.
#include <catch2/catch_session.hpp>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "support/harness.h"

namespace {

constexpr int kSkipped = 77;

bool cpu_has(const std::string& tier) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (tier == "sse4") return __builtin_cpu_supports("sse4.2") != 0;
  if (tier == "avx2") return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (tier == "avx512")
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return tier == "baseline";
#else
  return tier == "baseline" || tier == "neon";
#endif
}

// The device must say that it runs on what was asked for: a cap that nobody reads would test one instruction set four times.
bool arch_is(const std::string& arch, const std::string& tier) {
  std::string letters;  // "AVX-512, 2 threads" -> "avx512,2threads"
  for (const char c : arch)
    if (c != '-' && c != ' ') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters.compare(0, tier.size(), tier) == 0;
}

// Every variant must have run: a variant that always refuses would otherwise look tested.
int check_variants() {
  const auto missing = narrows::test::variants_never_run();
  for (const std::string& variant : missing) std::fprintf(stderr, "kernel variant %s was listed and never ran\n", variant.c_str());
  return missing.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Catch::Session session;
  if (const int rc = session.applyCommandLine(argc, argv); rc != 0) return rc;
  const Catch::ConfigData& config = session.configData();
  if (config.showHelp || config.listTests || config.listTags || config.listReporters || config.listListeners) return session.run();
  const char* const tier = narrows::test::device().device_type == kDLCPU ? std::getenv("NARROWS_CPU_TARGET") : nullptr;
  if (tier != nullptr && !cpu_has(tier)) {
    std::printf("skipped: this CPU has no %s\n", tier);
    return kSkipped;
  }
  std::printf("backend %s on %s, NARROWS_TEST_SEED=%llu\n", narrows::test::backend(), narrows::test::arch().c_str(),
              static_cast<unsigned long long>(narrows::test::base_seed()));
  if (tier != nullptr && !arch_is(narrows::test::arch(), tier)) {
    std::fprintf(stderr, "NARROWS_CPU_TARGET is %s, and the backend runs on %s\n", tier, narrows::test::arch().c_str());
    return 1;
  }
  const int rc = session.run();
  const bool whole = config.testsOrTags.empty() && config.shardCount == 1;
  return rc != 0 ? rc : whole ? check_variants() : 0;
}
