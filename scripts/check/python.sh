# python: builds the package, checks its types, makes its wheel, runs its tests with torch and JAX; --long: 100,000 calls a route
# SPDX-License-Identifier: Apache-2.0
parts python

check() {
  begin python 10
  require build python
  fetch_dlpack
  fetch_python_tools
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python")
  build cpu narrows_command narrows_cpu narrows_python narrows_conformance_tests
  fetch_lint_tools
  (cd -- "$NARROWS_ROOT" && clang_tidy cpu '^bindings/.*\.cpp$')
  test_types
  build_wheel "$PYENV" build/dist
  test_python "$@"
  [ $# -gt 0 ] || test_python_slow_torch
}

# Half an hour: every route through the package gets 100,000 calls, where else the slow ones get fewer.
check_long() {
  export NARROWS_TEST_SLOW=1
  check "$@"
}
