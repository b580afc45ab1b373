# bench.sh -- the cpu backend beside torch and a copy, by benchmarks/cpu.py in the environment of scripts/python.sh. Sourced by run.

# First what a call costs beside its kernel. Arguments are those of benchmarks/cpu.py. Only an optimised build says anything about speed.
bench() {
  begin bench 5
  require build test python
  fetch_dlpack
  fetch_python_tools
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python" -DCMAKE_BUILD_TYPE=Release)
  build cpu narrows_cpu narrows_python bench_dispatch
  step measure
  "$NARROWS_ROOT/build/cpu/bin/bench_dispatch"
  done_with "benchmarks/cpu.py $*"
  PYTHONPATH=$NARROWS_ROOT/build/cpu/python exec "$PYENV/bin/python" "$NARROWS_ROOT/benchmarks/cpu.py" "$@"
}
