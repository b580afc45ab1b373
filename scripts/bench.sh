# bench.sh -- the cpu backend beside torch and a copy, by benchmarks/cpu.py in the environment of scripts/python.sh. Sourced by run.

readonly BENCH_TOOLS='matplotlib==3.11.2' # the picture

fetch_bench_tools() {
  fetch_python_tools
  step picture
  # shellcheck disable=SC2086 # the words of a list
  "$PYENV/bin/python" -c 'import matplotlib' 2>/dev/null ||
    logged bench-tools.log "$PYENV/bin/python" -m pip install --disable-pip-version-check $BENCH_TOOLS
  done_with "$BENCH_TOOLS"
}

# Arguments are those of benchmarks/cpu.py. Only a Release build says anything about speed.
bench() {
  begin bench 6
  require build python
  fetch_dlpack
  fetch_bench_tools
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python" -DCMAKE_BUILD_TYPE=Release)
  build cpu narrows_cpu narrows_python
  step measure
  done_with "benchmarks/cpu.py $*"
  PYTHONPATH=$NARROWS_ROOT/build/cpu/python exec "$PYENV/bin/python" "$NARROWS_ROOT/benchmarks/cpu.py" "$@"
}
