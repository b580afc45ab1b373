# vulkan-gpuav: the conformance suite with GPU-assisted validation, by a newer layer than the machine's, in a chroot (Debian)
# SPDX-License-Identifier: Apache-2.0
parts glslang chroot

# Debian 13's lavapipe, whose results are right, and the layer of the release after it, which is quick enough
# (docs/internals/vulkan_tests.md).
readonly GPUAV_RELEASES='trixie forky'
readonly GPUAV_PACKAGES=base-files,libstdc++6,libvulkan1,mesa-vulkan-drivers,vulkan-validationlayers/forky

check() {
  local folder=$DEPS/vulkan-gpuav
  begin vulkan-gpuav 6
  require build demo test vulkan chroot
  fetch_dlpack
  fetch_glslang
  # shellcheck disable=SC2086 # the words of a list
  make_chroot "$folder" extract "$GPUAV_PACKAGES" $GPUAV_RELEASES
  as_root mkdir -p "$folder/root$NARROWS_ROOT"
  CONFIGURE_OPTIONS=("-DNARROWS_VULKAN_GPUAV=$folder/root")
  build vulkan-gpuav
  run_tests vulkan-gpuav "$@"
}
