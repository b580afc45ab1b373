# hip-nvidia: builds the hip backend for NVIDIA GPUs and runs its tests; those that need a GPU are skipped without one (x86-64)
# SPDX-License-Identifier: Apache-2.0
# What it is compiled with goes into .deps/hip-nvidia: the headers of HIP, from Debian's or Ubuntu's package, unpacked; of CUDA 12 the
# headers, the static runtime, ptxas and libdevice, from PyPI. Nothing is installed. backends/hip/nvidia.cmake reads it.
parts cuda

readonly HIP_NVIDIA=$DEPS/hip-nvidia
readonly HIP_NVIDIA_WHEELS='
nvidia-cuda-runtime-cu12==12.9.79 --hash=sha256:25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3
nvidia-cuda-nvcc-cu12==12.9.86 --hash=sha256:5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0
nvidia-cuda-cccl-cu12==12.9.27 --hash=sha256:37869e17ce2e1ecec6eddf1927cca0f8c34e64fd848d40453df559091e2d7117
nvidia-cuda-profiler-api-cu12==12.9.79 --hash=sha256:b3d5877b016450beb4d8935299bb86368f234d8789b64e844043b9a65ce31b39'

fetch_hip_nvidia() {
  step "hip"
  if [ -e "$HIP_NVIDIA/complete" ]; then
    done_with "what it needs is there"
    return
  fi
  rm -rf -- "$HIP_NVIDIA" && mkdir -p "$HIP_NVIDIA/download" "$HIP_NVIDIA/cuda"/{bin,lib64,nvvm}
  progress "CUDA 12, from PyPI"
  fetch_hip_cuda
  progress "HIP's headers"
  fetch_hip_headers
  rm -rf -- "$HIP_NVIDIA/download"
  : >"$HIP_NVIDIA/complete"
  done_with "HIP $(hip_version "$HIP_NVIDIA/include") and CUDA 12.9, into .deps/hip-nvidia"
}

fetch_hip_cuda() {
  local folder=$HIP_NVIDIA/download cuda=$HIP_NVIDIA/cuda part
  venv
  printf '%s\n' "$HIP_NVIDIA_WHEELS" >"$folder/requirements.txt"
  logged hip-nvidia.log "$DEPS/venv/bin/python" -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --platform manylinux2014_x86_64 --dest "$folder" --requirement "$folder/requirements.txt"
  logged hip-nvidia.log python3 -c 'import sys, zipfile
for wheel in sys.argv[2:]: zipfile.ZipFile(wheel).extractall(sys.argv[1])' "$folder/wheels" "$folder"/*.whl
  for part in "$folder/wheels/nvidia"/*/include; do cp -r -- "$part" "$cuda/"; done
  cp -- "$folder/wheels/nvidia/cuda_runtime/lib/libcudart_static.a" "$cuda/lib64/"
  cp -r -- "$folder/wheels/nvidia/cuda_nvcc/nvvm/libdevice" "$cuda/nvvm/"
  install -m 755 "$folder/wheels/nvidia/cuda_nvcc/bin/ptxas" "$cuda/bin/"
}

# Those of 5.7 or newer, which CUDA 12 can be used with: from the machine's own release, else from Debian 13.
fetch_hip_headers() {
  local folder=$HIP_NVIDIA/download codename options=() package version
  version=$(candidate libamdhip64-dev)
  if [ -z "$version" ] || dpkg --compare-versions "$version" lt 5.7; then
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    mkdir -p "$folder/apt"/{sources,state/lists/partial,cache/archives/partial}
    : >"$folder/apt/status"
    backports_sources "$codename" "$folder/apt/sources" && sed -i "s/$codename-backports/trixie/" "$folder/apt/sources"/* ||
      fail "the apt sources name no Debian mirror of '$codename', which would have Debian 13's libamdhip64-dev" 3
    options=(-o "Dir::State=$folder/apt/state" -o "Dir::State::status=$folder/apt/status" -o "Dir::Cache=$folder/apt/cache"
      -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$folder/apt/sources" -t trixie)
    logged hip-nvidia.log apt-get -q "${options[@]}" update
  fi
  (cd -- "$folder" && logged hip-nvidia.log apt-get -q ${options[@]+"${options[@]}"} download libamdhip64-dev)
  for package in "$folder"/libamdhip64-dev_*.deb; do dpkg-deb -x "$package" "$folder/headers"; done
  mkdir -p "$HIP_NVIDIA/include" && cp -r -- "$folder/headers/usr/include/hip" "$HIP_NVIDIA/include/"
}

# hip_version FOLDER: "5.7", of the headers in it.
hip_version() {
  awk '$2 == "HIP_VERSION_MAJOR" { major = $3 } $2 == "HIP_VERSION_MINOR" { minor = $3 } END { print major "." minor }' \
    "$1/hip/hip_version.h"
}

check() {
  begin hip-nvidia 6
  require build test hip_nvidia
  fetch_dlpack
  fetch_cuda
  fetch_hip_nvidia
  build hip-nvidia
  run_tests hip-nvidia "$@"
}
