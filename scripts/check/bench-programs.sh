# bench-programs: tensor programs beside numpy, Inductor, C and the ops of narrows, with the goals; -- --only WORD: some rows
# SPDX-License-Identifier: Apache-2.0
parts python

# Every row in one run; they are kept in build/bench/programs.json. Arguments are its options.
check() {
  begin bench-programs 5
  require build python
  fetch_dlpack
  fetch_python_tools
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python")
  build cpu narrows_command narrows_cpu narrows_program narrows_python
  step bench
  mkdir -p "$NARROWS_ROOT/build/bench"
  done_with "each number of threads in a process of its own"
  PYTHONPATH=$NARROWS_ROOT/build/cpu/python "$PYENV/bin/python" "$NARROWS_ROOT/benchmarks/programs.py" \
    --json "$NARROWS_ROOT/build/bench/programs.json" "$@"
}
