# python.sh -- the Python package: an environment of its own in .deps/pyenv, the package in build/cpu/python, its tests, its types,
# and the wheel in an empty environment. Sourced by run.

# What the tests need; the package itself needs none of it. The newest JAX may want a newer Python.
readonly PYTHON_TOOLS='numpy ml_dtypes pytest expecttest abi3audit auditwheel scikit-learn mypy==2.4.1 pyright[nodejs]==1.1.414 scikit-build-core==1.1.2 torch==2.13.0 jax==0.10.2 jaxlib==0.10.2'
readonly PYENV=$DEPS/pyenv

fetch_python_tools() {
  step tools
  if [ "$(cat "$PYENV/narrows-tools" 2>/dev/null)" != "$PYTHON_TOOLS" ]; then
    "$PYENV/bin/python" -m pip --version >/dev/null 2>&1 || logged python-tools.log python3 -m venv "$PYENV"
    # shellcheck disable=SC2086 # the words of a list
    logged python-tools.log "$PYENV/bin/python" -m pip install --disable-pip-version-check $PYTHON_TOOLS
    printf '%s' "$PYTHON_TOOLS" >"$PYENV/narrows-tools"
  fi
  done_with "in .deps/pyenv"
}

# Arguments are pytest's. NARROWS_WHEEL is read by tests/python/test_package.py.
test_python() {
  local log=$LOG/test-python.log
  step tests
  if ! (cd -- "$NARROWS_ROOT/tests/python" &&
    PYTHONPATH="$NARROWS_ROOT/build/cpu/python" NARROWS_WHEEL="$(wheel)" \
      "$PYENV/bin/python" -m pytest -q -p no:cacheprovider "$@") </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a test failed; the whole log is $log"
  fi
  done_with "$(tail -n 1 "$log"); the whole log is ${log#"$PWD/"}"
}

wheel() { find "$NARROWS_ROOT/build/dist" -name 'narrows-*.whl' -print -quit 2>/dev/null; }

build_wheel() {
  step wheel
  local launcher=()
  ! has_command ccache || launcher=(-C cmake.define.CMAKE_C_COMPILER_LAUNCHER=ccache -C cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
  rm -f -- "$NARROWS_ROOT"/build/dist/narrows-*.whl
  logged wheel.log "$PYENV/bin/python" -m pip wheel "$NARROWS_ROOT" --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$NARROWS_ROOT/build/dist" ${launcher[@]+"${launcher[@]}"}
  done_with "$(basename "$(wheel)"), $(($(wc -c <"$(wheel)") / 1024)) KiB"
}

check_types() {
  step types
  (cd -- "$NARROWS_ROOT" && logged mypy.log "$PYENV/bin/mypy" && logged pyright.log "$PYENV/bin/pyright" --pythonpath "$PYENV/bin/python")
  done_with "by mypy and pyright"
}

python_package() {
  begin python 7
  require build python
  fetch_dlpack
  fetch_python_tools
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python")
  build cpu narrows_command narrows_cpu narrows_python
  check_types
  build_wheel
  test_python "$@"
}
