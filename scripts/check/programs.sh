# programs: random tensor programs and schedules, judged by a reference, ten minutes; -- SECONDS: longer; --mutants: faults in the rules
# SPDX-License-Identifier: Apache-2.0
# It goes on where tests/program/search/record.csv ends, and adds a line there. What is wrong is printed, and kept in build/programs.

check() {
  local seconds=${1:-600} log=$LOG/programs.log out=$NARROWS_ROOT/build/programs code
  code=$(git -C "$NARROWS_ROOT" describe --always --dirty 2>/dev/null || echo unknown)
  begin programs 3
  require build test
  fetch_dlpack
  build cpu narrows_search_program
  step search
  mkdir -p "$out"
  if ! NARROWS_CACHE_DIR=$out/cache "$NARROWS_ROOT/build/cpu/bin/narrows_search_program" --count 1000000000 --seconds "$seconds" \
    --compile 10 --out "$out" --record "$NARROWS_ROOT/tests/program/search/record.csv" --code "$code" >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a schedule computes something else; each is a file of build/programs, and the whole log is $log"
  fi
  rm -rf "$out/cache"
  done_with "$(tail -n 1 "$log")"
}

# Those of the GPU's backends on a GPU that the CPU plays.
check_mutants() {
  local preset log
  begin programs 6
  require build test hip_emulated
  fetch_dlpack
  for preset in cpu hip-emulated; do
    log=mutants-$preset.log
    build "$preset" narrows_program_mutants
    step mutants
    logged "$log" python3 "$NARROWS_ROOT/tests/program/mutants/judge.py" "$NARROWS_ROOT/build/$preset" "$@"
    done_with "$(tail -n 1 "$LOG/$log")"
  done
}
