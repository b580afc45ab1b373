# bench-python: what a call from Python costs beside each framework's own call, with the goals; -- --device cuda: on a GPU
# SPDX-License-Identifier: Apache-2.0
parts python cuda

# What the rows of benchmarks/python_calls.py need beside PYTHON_TOOLS: the tutorial's extension is compiled, tvm-ffi is compared with.
readonly PYTHON_BENCH_TOOLS='ninja apache-tvm-ffi'

# Every row in one run on an idle machine, each with its goal; they are kept in build/bench/python.json. Arguments are its options;
# with "--device cuda" the cuda backend is built.
check() {
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
