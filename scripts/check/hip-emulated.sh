# hip-emulated: the hip backend for a GPU that the CPU plays, under the sanitizers; --short: a sample of the conformance suite
# SPDX-License-Identifier: Apache-2.0

# emulated TEST_PRESET [CTEST ARGUMENT...]
emulated() {
  begin hip-emulated 4
  require build test hip_emulated
  fetch_dlpack
  build hip-emulated
  run_tests "$@"
}
check() { emulated hip-emulated "$@"; }
check_short() { emulated hip-emulated-short "$@"; }
