// lltm_native.cpp -- the variants of lltm in NVIDIA's own instructions. Step 5 of a tensor's path.
#include "ops/lltm_native.h"

namespace narrows::gpu {

const NativeLltm& lltm_native() {
  static constexpr NativeLltm table = {lltm_pipelined, lltm_mma};
  return table;
}

}  // namespace narrows::gpu
