# coverage: counts the branches of core that the tests take; fails below 95 %, and at one that docs/coverage.md does not explain
# SPDX-License-Identifier: Apache-2.0
# Core alone is instrumented, by clang, whose branches are the outcomes of the conditions in the source: gcc's would count what it adds
# for exceptions, too. The plugins are those of build/cpu.

readonly COVERAGE=$NARROWS_ROOT/build/coverage
readonly NEEDS_coverage='
clang | command clang++ | compiles core with counters
libclang-rt-dev | profile_runtime | writes the counters to files
llvm | command llvm-cov | reads them'
# What tests/core leaves to the op suite: the refusals of each op, calls that no op may take differently, and operands as numbers.
readonly COVERAGE_OP_TESTS='[bad],[refusal],[memory],[calls],elementwise: a scalar*,elementwise_backward: gradients that are not*'

has_profile_runtime() {
  local out
  out=$(mktemp) && printf 'int main() {}' | clang++ -fprofile-instr-generate -x c++ - -o "$out" 2>/dev/null
  local status=$?
  rm -f -- "$out"
  return $status
}

# %c: the counters are the file, mapped into the process, so that a child counts that ends by _exit.
count_branches() {
  step tests
  rm -rf -- "$COVERAGE/counts" && mkdir -p "$COVERAGE/counts"
  mkdir -p "$COVERAGE/lib/narrows" && ln -sfn "$NARROWS_ROOT/build/cpu/lib/narrows/backends" "$COVERAGE/lib/narrows/backends"
  local program
  for program in test_core test_abi narrows-conform; do
    local arguments=()
    [ $program != narrows-conform ] || arguments=("$COVERAGE_OP_TESTS")
    LLVM_PROFILE_FILE=$COVERAGE/counts/%c%p.profraw logged "coverage-$program.log" "$COVERAGE/bin/$program" "${arguments[@]}"
  done
  done_with "$((SECONDS - step_start)) s"
}

show_branches() {
  step branches
  local library=$COVERAGE/lib/libnarrows.so counts=$COVERAGE/counts.profdata
  logged coverage.log llvm-profdata merge -o "$counts" "$COVERAGE/counts"
  llvm-cov export "$library" -instr-profile="$counts" >"$COVERAGE/counts.json" 2>>"$LOG/coverage.log" || fail "llvm-cov failed; see $LOG/coverage.log"
  logged coverage.log llvm-cov show "$library" -instr-profile="$counts" -format=html -show-branches=count \
    -show-instantiations=false -output-dir="$COVERAGE/html"
  done_with "a page for each file: build/coverage/html/index.html"
  python3 "$NARROWS_ROOT/scripts/check/coverage.py" "$NARROWS_ROOT" "$NARROWS_ROOT/docs/coverage.md" "$COVERAGE/counts.json"
}

check() {
  begin coverage 6
  require build test coverage
  fetch_dlpack
  build cpu narrows_cpu
  build coverage
  count_branches
  show_branches
}
