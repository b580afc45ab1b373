# SPDX-License-Identifier: Apache-2.0
# bench.sh -- the cpu backend beside torch and a copy, by benchmarks/cpu.py in the environment of python.sh.

# First what a call costs beside its kernel and, of a whole run, the conformance suite's own cases on every kernel variant. Arguments are those of
# benchmarks/cpu.py. Only an optimised build says anything about speed.
bench() {
  begin bench 5
  require build test python
  fetch_dlpack
  fetch_python_tools
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python" -DCMAKE_BUILD_TYPE=Release)
  build cpu narrows_cpu narrows_python narrows_command narrows_conformance_tests bench_dispatch
  step measure
  "$NARROWS_ROOT/build/cpu/bin/bench_dispatch"
  [ $# -gt 0 ] || "$NARROWS_ROOT/build/cpu/bin/narrows" bench --backend cpu
  done_with "benchmarks/cpu.py $*"
  PYTHONPATH=$NARROWS_ROOT/build/cpu/python exec "$PYENV/bin/python" "$NARROWS_ROOT/benchmarks/cpu.py" "$@"
}
