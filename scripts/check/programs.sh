# programs: random tensor programs and schedules, judged by a reference, ten minutes; -- SECONDS [SEED]: longer, or on from another seed
# SPDX-License-Identifier: Apache-2.0

# What is found wrong is printed, and kept in build/programs; the last lines say with which seed to go on.
check() {
  local seconds=${1:-600} seed=${2:-1} log=$LOG/programs.log out=$NARROWS_ROOT/build/programs
  begin programs 3
  require build test
  fetch_dlpack
  build cpu narrows_search_program test_program_found
  step search
  mkdir -p "$out"
  if ! "$NARROWS_ROOT/build/cpu/bin/narrows_search_program" --seed "$seed" --count 1000000000 --seconds "$seconds" --out "$out" >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a schedule computes something else; each is a file of build/programs, and the whole log is $log"
  fi
  done_with "$(tail -n 2 "$log" | head -n 1)"
}
