# vulkan_gpuav.sh -- the conformance suite under a newer validation layer's checks in shaders than the machine's own. Sourced by run.

# Debian 13's lavapipe, whose results are right, and the layer of the release after it, which is quick enough ("Finding mistakes" in
# docs/vulkan.md).
readonly GPUAV_RELEASES='trixie forky'
readonly GPUAV_PACKAGES=base-files,libstdc++6,libvulkan1,mesa-vulkan-drivers,vulkan-validationlayers/forky

vulkan-gpuav() {
  local folder=$DEPS/vulkan-gpuav
  begin vulkan-gpuav 6
  require build demo test vulkan chroot
  fetch_dlpack
  fetch_glslang
  # shellcheck disable=SC2086 # the words of a list
  make_chroot "$folder" extract "$GPUAV_PACKAGES" $GPUAV_RELEASES
  as_root mkdir -p "$folder/root$NARROWS_ROOT"
  CONFIGURE_OPTIONS=("-DNARROWS_VULKAN_GPUAV=$folder/root")
  build vulkan-gpuav narrows_vulkan narrows_command narrows_conformance_tests test_vulkan
  run_tests vulkan-gpuav -R '^gpuav\.' "$@"
}
