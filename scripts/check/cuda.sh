# cuda: builds the cuda backend and runs its tests; those that need an NVIDIA GPU are skipped without one
# SPDX-License-Identifier: Apache-2.0
parts cuda

check() {
  begin cuda 6
  require build demo test
  fetch_dlpack
  fetch_cuda
  fetch_nvrtc
  CONFIGURE_OPTIONS=("-DNARROWS_CUDA_ARCHITECTURES=$(cuda_architectures)")
  build cuda
  # Of the mutants the preset has those of memory, of calls and of streams: as for vulkan.
  run_tests cuda "$@"
}
