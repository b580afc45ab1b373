// manifest_test.cpp -- what the cuda backend's manifest excludes on each GPU, read without one.
#include "support/manifest.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <set>
#include <string>

using namespace narrows::test;

namespace {

using Variants = std::set<std::string>;

Variants excluded(const std::string& arch) {
  Variants variants;
  for (const Exclusion& e : read_manifest(NARROWS_CUDA_MANIFEST).exclusions)
    if (e.without.empty() && e.holds(arch)) variants.insert(e.variant());
  return variants;
}

const Variants kHopper{"conv1d/wgmma", "conv1d_backward/wgmma", "lltm/wgmma"};

}  // namespace

TEST_CASE("manifest: wgmma runs on Hopper alone, and mma from sm_80 on", "[manifest]") {
  REQUIRE(unsetenv("NARROWS_CUBLASLT") == 0);
  CHECK(excluded("sm_90").empty());
  for (const char* arch : {"sm_80", "sm_86", "sm_87", "sm_89", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"}) {
    INFO(arch);
    CHECK(excluded(arch) == kHopper);
  }
  Variants turing = kHopper;
  turing.insert({"conv1d/mma", "conv1d_backward/mma", "lltm/mma", "lltm_backward/mma", "lltm/pipelined"});
  CHECK(excluded("sm_75") == turing);
}

TEST_CASE("manifest: NARROWS_CUBLASLT=0 excludes cuBLASLt", "[manifest]") {
  REQUIRE(setenv("NARROWS_CUBLASLT", "0", 1) == 0);
  CHECK(excluded("sm_90") == Variants{"lltm/cublaslt", "lltm_backward/cublaslt"});
  REQUIRE(setenv("NARROWS_CUBLASLT", "1", 1) == 0);
  CHECK(excluded("sm_90").empty());
}
