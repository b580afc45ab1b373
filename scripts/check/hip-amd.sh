# hip-amd: builds the hip backend for AMD GPUs, and tests what can be without one; --short: kernels that are not optimised
# SPDX-License-Identifier: Apache-2.0

for_amd() {
  local preset=$1
  shift
  begin hip-amd 4
  require build test hip_amd
  fetch_dlpack
  build "$preset"
  run_tests "$preset" "$@"
}
check() { for_amd hip-amd "$@"; }
check_short() { for_amd hip-amd-short "$@"; }
