# SPDX-License-Identifier: Apache-2.0
# cuda.sh -- the CUDA compiler: the machine's own, or NVIDIA's wheels.

# The compiler, its headers, libcudart_static.a: 100 MB, where the machine has no CUDA Toolkit.
readonly CUDA_WHEELS='
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649'
readonly NVRTC_WHEEL='nvidia-cuda-nvrtc==13.0.88 --hash=sha256:ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575'
readonly CUDA_FETCHED=$DEPS/cuda/nvidia/cu13

# The nvcc to use, or nothing: CUDACXX, PATH, the usual place, the one that was fetched; 12.5 or newer.
find_nvcc() {
  local candidate version
  for candidate in "${CUDACXX:-}" nvcc /usr/local/cuda/bin/nvcc "$CUDA_FETCHED/bin/nvcc"; do
    [ -n "$candidate" ] && has_command "$candidate" || continue
    version=$("$candidate" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
    if [ -n "$version" ] && [ "$(printf '%s\n' 12.5 "$version" | sort -V | head -n 1)" = 12.5 ]; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# Afterwards CUDACXX is set, which CMake reads.
fetch_cuda() {
  step nvcc
  local nvcc
  if ! nvcc=$(find_nvcc); then
    [ "$(uname -m)" = x86_64 ] || fail "there is no nvcc 12.5 or newer; install NVIDIA's CUDA Toolkit" 3
    fetch_cuda_wheels
    nvcc=$(find_nvcc) || fail "the compiler of NVIDIA's wheels does not run; the whole log is $LOG/cuda.log" 3
  fi
  export CUDACXX=$nvcc
  done_with "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p'), $nvcc"
}

fetch_cuda_wheels() {
  local folder=$DEPS/download
  venv
  rm -rf -- "$folder" "$DEPS/cuda" && mkdir -p "$folder" "$DEPS/cuda"
  printf '%s\n' "$CUDA_WHEELS" >"$folder/requirements.txt"
  logged cuda.log "$DEPS/venv/bin/python" -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --dest "$folder" --requirement "$folder/requirements.txt"
  local wheel
  for wheel in "$folder"/*.whl; do logged cuda.log python3 -m zipfile -e "$wheel" "$DEPS/cuda"; done
  chmod -R u+x "$CUDA_FETCHED/bin" "$CUDA_FETCHED/nvvm/bin"  # zipfile forgets modes
  ln -s lib "$CUDA_FETCHED/lib64"
  ln -s libcudart.so.13 "$CUDA_FETCHED/lib/libcudart.so"
  rm -rf -- "$folder"
}

# NVRTC, CUDA's run-time compiler, 90 MB, where the machine has none: a test has it compile what cuda prints of tensor programs. The test
# says so where it cannot be had.
fetch_nvrtc() {
  local folder=$DEPS/nvrtc library
  step nvrtc
  library=$(compgen -G '/usr/local/cuda/lib64/libnvrtc.so.1[23]' | head -n 1) || true
  if [ -z "$library" ] && ! library=$(compgen -G "$folder/nvidia/cu13/lib/libnvrtc.so.13"); then
    venv
    mkdir -p "$folder"
    printf '%s\n' "$NVRTC_WHEEL" >"$folder/requirements.txt"
    "$DEPS/venv/bin/python" -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --dest "$folder" \
      --requirement "$folder/requirements.txt" >"$LOG/nvrtc.log" 2>&1 || true
    for library in "$folder"/*.whl; do [ ! -f "$library" ] || python3 -m zipfile -e "$library" "$folder"; done
    rm -f -- "$folder"/*.whl
    library=$(compgen -G "$folder/nvidia/cu13/lib/libnvrtc.so.13") || true
  fi
  [ -z "$library" ] || export NARROWS_NVRTC=$library
  done_with "${library:-cannot be had; the whole log is $LOG/nvrtc.log}"
}

# What to compile for: the GPUs of this machine, or one that CI can compile for, with PTX.
cuda_architectures() {
  local found
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | sed 's/$/-real/' | paste -sd ';') || true
  [[ $found =~ ^([0-9]+-real;?)+$ ]] && printf '%s' "$found" || printf 90
}
