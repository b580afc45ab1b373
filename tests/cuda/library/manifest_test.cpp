// SPDX-License-Identifier: Apache-2.0
// manifest_test.cpp -- what the manifests of the GPU backends exclude on each GPU, read without one.
#include "support/manifest.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <set>
#include <string>

using namespace narrows::test;

namespace {

using Variants = std::set<std::string>;

Variants excluded(const std::string& arch, const char* manifest = NARROWS_CUDA_MANIFEST) {
  Variants variants;
  for (const Exclusion& e : read_manifest(manifest).exclusions)
    if (e.without.empty() && e.holds(arch)) variants.insert(e.variant());
  return variants;
}

const Variants kHopper{"conv1d/wgmma",       "conv1d_backward/wgmma",       "lltm/wgmma",       "lltm_backward/wgmma",
                       "conv1d/wgmma_split", "conv1d_backward/wgmma_split", "lltm/wgmma_split", "lltm_backward/wgmma_split"};

}  // namespace

TEST_CASE("manifest: wgmma runs on Hopper alone, clusters from Hopper on, mma from sm_80 on", "[manifest]") {
  REQUIRE(unsetenv("NARROWS_CUBLASLT") == 0);
  CHECK(excluded("sm_90").empty());
  for (const char* arch : {"sm_100", "sm_103", "sm_110", "sm_120", "sm_121"}) {
    INFO(arch);
    CHECK(excluded(arch) == kHopper);
  }
  Variants ampere = kHopper;
  ampere.insert({"lltm_sequence/cluster", "lltm_sequence_backward/cluster"});
  for (const char* arch : {"sm_80", "sm_86", "sm_87", "sm_89"}) {
    INFO(arch);
    CHECK(excluded(arch) == ampere);
  }
  Variants turing = ampere;
  turing.insert({"conv1d/mma", "conv1d_backward/mma", "lltm/mma", "lltm_backward/mma", "lltm/pipelined"});
  CHECK(excluded("sm_75") == turing);
}

TEST_CASE("manifest: NARROWS_CUBLASLT=0 excludes cuBLASLt", "[manifest]") {
  REQUIRE(setenv("NARROWS_CUBLASLT", "0", 1) == 0);
  CHECK(excluded("sm_90") == Variants{"lltm/cublaslt", "lltm_backward/cublaslt"});
  REQUIRE(setenv("NARROWS_CUBLASLT", "1", 1) == 0);
  CHECK(excluded("sm_90").empty());
}

TEST_CASE("manifest: hipBLASLt is excluded where NARROWS_HIPBLASLT=0, and on GPUs without matrix cores", "[manifest]") {
  const auto is_excluded = [](const char* arch) {
    const Variants variants = excluded(arch, NARROWS_HIP_MANIFEST);
    CHECK(variants.count("lltm/hipblaslt") == variants.count("lltm_backward/hipblaslt"));
    return variants.count("lltm/hipblaslt") == 1;
  };
  REQUIRE(unsetenv("NARROWS_HIPBLASLT") == 0);
  for (const char* arch : {"gfx900", "gfx906", "gfx1030"}) CHECK(is_excluded(arch));
  for (const char* arch : {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90"}) CHECK(!is_excluded(arch));
  REQUIRE(setenv("NARROWS_HIPBLASLT", "0", 1) == 0);
  for (const char* arch : {"gfx90a", "sm_90"}) CHECK(is_excluded(arch));
}
