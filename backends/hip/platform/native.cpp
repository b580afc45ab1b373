// SPDX-License-Identifier: Apache-2.0
// native.cpp -- the kernels in a vendor's own instructions: HIP has none.
#include "ops/conv1d/conv1d.h"
#include "ops/lltm/lltm_native.h"

namespace narrows::gpu {

const NativeConv1d& conv1d_native() {
  static constexpr NativeConv1d kTable = {};
  return kTable;
}

const NativeLltm& lltm_native() {
  static constexpr NativeLltm kTable = {};
  return kTable;
}

}  // namespace narrows::gpu
