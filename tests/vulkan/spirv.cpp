// SPDX-License-Identifier: Apache-2.0
// The words that a device is given of a module: what is left out, and what has to stay.
#include <algorithm>

#include "opened.h"
#include "shaders.h"
#include "spirv.h"

namespace narrows::vulkan::test {
namespace {

// Whether execution mode `mode` for f32 stands among the words.
bool asks_for(const std::vector<uint32_t>& words, uint32_t mode) {
  constexpr uint32_t kExecutionMode = 4u << 16 | 16;  // four words
  for (size_t i = 5; i + 3 < words.size(); i += words[i] >> 16)
    if (words[i] == kExecutionMode && words[i + 2] == mode && words[i + 3] == 32) return true;
  return false;
}

TEST_CASE("spirv: sums leave SignedZeroInfNanPreserve out where the driver fuses only then, and functions never do", "[kernels]") {
  constexpr uint32_t kSignedZeroInfNanPreserve = 4461, kRoundingModeRTE = 4462;
  Opened opened;
  opened.physical.properties12.shaderSignedZeroInfNanPreserveFloat32 = VK_TRUE;
  opened.physical.properties12.shaderRoundingModeRTEFloat32 = VK_TRUE;
  for (const bool fuses : {false, true}) {
    opened.physical.fuses_unasked = fuses;
    for (const Shader* sums : {&shaders::conv1d_fir_f32, &shaders::conv1d_gemm_f32, &shaders::lltm_fused_f32}) {
      const auto words = words_for(opened.physical, *sums, {});
      CHECK(asks_for(words, kSignedZeroInfNanPreserve) == !fuses);
      CHECK(asks_for(words, kRoundingModeRTE));
    }
    CHECK(asks_for(words_for(opened.physical, shaders::elementwise_f32, {}), kSignedZeroInfNanPreserve));
  }
}

}  // namespace
}  // namespace narrows::vulkan::test
