# python-versions: the wheel with the oldest, a middle, a recent and the newest torch and JAX; -- oldest newest: only those
# SPDX-License-Identifier: Apache-2.0
parts python

# What the wheel is run with. Each takes gigabytes, so it is removed when its tests have passed.
declare -grA PYTHON_VERSIONS=(
  [oldest]='torch==2.8.0 jax==0.4.38 jaxlib==0.4.38 numpy==1.26.4'
  [middle]='torch==2.10.0 jax==0.8.3 jaxlib==0.8.3'
  [recent]='torch==2.13.0 jax==0.10.2 jaxlib==0.10.2'
  [newest]='torch jax jaxlib numpy'
)

# Arguments name some of PYTHON_VERSIONS; else all. While one is tested the next is installed, which takes as long.
check() {
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
    ${PYTHON_VERSIONS[$1]} 'pytest<10' pytest-xdist expecttest ml_dtypes flatbuffers onnx onnxscript
}

# Every route and every interface of the frameworks; what computes values only, and 100,000 calls of each route, `./run python` has.
test_versions() {
  local env=$DEPS/pyenv-$1 log=$LOG/python-$1.log
  logged "python-$1-wheel.log" "$env/bin/python" -m pip install --disable-pip-version-check --no-deps "$(wheel build/dist)"
  if ! (cd -- "$NARROWS_ROOT/tests/python" &&
    env -u PYTHONPATH NARROWS_TEST_CALLS=10000 "$env/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist loadfile \
      test_bad_input.py test_batching.py test_conversions.py test_dlpack.py test_dtypes.py with_jax/test_jax.py with_jax/test_jax_derivatives.py with_jax/test_jax_saved.py test_numbers.py test_numpy.py test_nvtx.py test_optional_gradients.py plugins/test_plugins.py plugins/test_plugins_built.py plugins/test_plugins_gpu.py test_process.py test_threads.py with_torch/test_torch.py with_torch/test_torch_gate.py with_torch/test_torch_graphs.py with_torch/test_torch_onnx.py with_torch/test_torch_outputs.py with_torch/test_torch_tools.py with_torch/test_torch_library.py with_torch/test_saved_torch.py with_torch/test_dtensor.py with_torch/test_parallel.py with_jax/test_jax_processes.py with_jax/test_xla_handler.py) </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a test failed with ${PYTHON_VERSIONS[$1]}; the whole log is $log"
  fi
  done_with "$("$env/bin/python" -m pip list 2>/dev/null | awk '/^(torch|jaxlib|numpy) / { printf "%s %s, ", $1, $2 }')$(tail -n 1 "$log")"
  rm -rf -- "$env"
}
