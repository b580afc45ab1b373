#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sanitize_gpu.sh -- compute-sanitizer's four tools over the GPU tests of a build, on a machine with an NVIDIA GPU. An overrun that is
# planted comes first: a tool that does not report it would be silent about others too.
#
#   scripts/sanitize_gpu.sh [--tool TOOL] [--jobs N] [--seconds S] [FOLDER [PATTERN]]
#
# TOOL: memcheck, racecheck, initcheck or synccheck; else all. FOLDER: a build that has bin/test_cuda and bin/narrows-conform
# (build/cuda); nothing is compiled. PATTERN: Catch2's; else the whole suite for memcheck and a sample for the others, which are slow.
# N processes (8) share a tool's tests, each for S seconds at most (1800). Reports are in FOLDER/sanitize. cuBLASLt is left out: its own
# kernels store in ways that racecheck and initcheck take for mistakes. What racecheck says of lltm_sequence's clusters is told, and no
# failure: see CLUSTERS.
#
# Exit code: 0 silent; 1 something was reported, a test failed or did not end; 2 wrong usage; 3 there is no compute-sanitizer or no GPU.
set -euo pipefail

readonly SAMPLE='[trap]~[large],calls: a workspace of exactly the size*'
readonly PLANTED='Invalid __global__'
# Their barriers count the bytes that other blocks send. racecheck does not follow such barriers, and reports what they order.
readonly CLUSTERS='lltm_sequence[a-z_]*_cluster_kernel'
tools=(memcheck racecheck initcheck synccheck)
jobs=8
seconds=1800

fail() {
  printf 'sanitize_gpu.sh: %s\n' "$1" >&2
  exit "$2"
}

while [[ ${1:-} == --* ]]; do
  [ $# -ge 2 ] || fail "$1 needs a value" 2
  case $1 in
    --tool) tools=("$2") ;;
    --jobs) jobs=$2 ;;
    --seconds) seconds=$2 ;;
    *) fail "unknown option '$1'" 2 ;;
  esac
  shift 2
done
[ $# -le 2 ] || fail "expected a folder and a pattern, found $# arguments" 2
[[ " memcheck racecheck initcheck synccheck " == *" ${tools[0]} "* ]] || fail "unknown tool '${tools[0]}'" 2
[[ $jobs =~ ^[1-9][0-9]*$ && $seconds =~ ^[1-9][0-9]*$ ]] || fail "--jobs is '$jobs', --seconds '$seconds'; expected numbers from 1" 2
readonly folder=${1:-build/cuda} pattern=${2:-}
readonly reports=$folder/sanitize
for program in test_cuda narrows-conform; do
  [ -x "$folder/bin/$program" ] || fail "there is no $folder/bin/$program; ./run check cuda builds it" 2
done

sanitizer=
for candidate in "${COMPUTE_SANITIZER:-}" compute-sanitizer /usr/local/cuda/bin/compute-sanitizer; do
  if [ -n "$candidate" ] && command -v "$candidate" >/dev/null; then
    sanitizer=$(command -v "$candidate")
    break
  fi
done
[ -n "$sanitizer" ] || fail "there is no compute-sanitizer; it is a part of NVIDIA's CUDA Toolkit (COMPUTE_SANITIZER may name it)" 3
nvidia-smi -L >/dev/null 2>&1 || fail "nvidia-smi finds no NVIDIA GPU" 3

export NARROWS_CUBLASLT=0
rm -rf -- "$reports"
mkdir -p "$reports"

# Its wild stores must be reported, and by memcheck: the run-time check of tensors is off, which would refuse them first.
planted() {
  local report=$reports/planted.txt
  NARROWS_CHECK=0 timeout "$seconds" "$sanitizer" --tool memcheck "$folder/bin/test_cuda" --backend cuda '[.][overrun]' >"$report" 2>&1 || true
  if ! grep -q "$PLANTED" "$report"; then
    tail -n 20 "$report" >&2
    fail "memcheck did not report the planted overrun ('$PLANTED'); $report has all of it" 1
  fi
  printf 'planted overrun: %s\n' "$(grep -m 1 "$PLANTED" "$report" | sed 's/^[= ]*//')"
}

# check TOOL: true if every process ended, passed, and was told of no error.
check() {
  local tool=$1 tests=$pattern i status bad=0 start=$SECONDS pids=()
  if [ -z "$tests" ] && [ "$tool" != memcheck ]; then tests=$SAMPLE; fi
  for ((i = 0; i < jobs; i++)); do
    timeout "$seconds" "$sanitizer" --tool "$tool" --print-limit 100000 --error-exitcode 99 "$folder/bin/narrows-conform" --backend cuda \
      --shard-count "$jobs" --shard-index "$i" --allow-running-no-tests ${tests:+"$tests"} >"$reports/$tool.$i.txt" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < jobs; i++)); do
    status=0
    wait "${pids[i]}" || status=$?
    if [ "$status" = 0 ] || [ "$status" = 4 ]; then  # 4: all of its tests were skipped
      grep -q 'ERROR SUMMARY: 0 errors' "$reports/$tool.$i.txt" && continue
      grep -q 'RACECHECK SUMMARY: 0 hazards' "$reports/$tool.$i.txt" && continue
    fi
    if [ "$status" = 99 ] && only_clusters "$reports/$tool.$i.txt"; then
      printf '%s, part %d: nothing but hazards within clusters of lltm_sequence\n' "$tool" "$i"
      continue
    fi
    bad=1
    case $status in
      124) printf '%s, part %d: not done after %d s\n' "$tool" "$i" "$seconds" ;;
      99) printf '%s, part %d: %s\n' "$tool" "$i" "$(grep -E 'SUMMARY' "$reports/$tool.$i.txt" | tail -n 1)" ;;
      *) printf '%s, part %d: exit code %d; %s\n' "$tool" "$i" "$status" "$(tail -n 1 "$reports/$tool.$i.txt")" ;;
    esac
  done
  if [ "$(count "$tool")" = 0 ]; then
    bad=1
    printf '%s: no test was run\n' "$tool"
  fi
  [ "$bad" = 0 ] || printf 'the reports are %s\n' "$reports/$tool.*.txt"
  [ "$bad" = 0 ] && printf '%s: silent over %d tests, %d s\n' "$tool" "$(count "$tool")" "$((SECONDS - start))"
}

# Whether the tests of a report passed, and racecheck reported clusters alone.
only_clusters() {
  grep -q '^All tests passed' "$1" && grep -q 'Race reported' "$1" && ! grep 'Race reported' "$1" | grep -qvE "$CLUSTERS"
}

# Of Catch2's last lines: "All tests passed (… in 12 test cases)", "test cases: 12 | …".
count() {
  sed -nE 's/^All tests passed .* in ([0-9]+) test cases?\)?$/\1/p; s/^test cases: *([0-9]+) .*/\1/p' "$reports/$1".*.txt |
    awk '{ sum += $1 } END { print sum + 0 }'
}

planted
rc=0
for tool in "${tools[@]}"; do check "$tool" || rc=1; done
exit "$rc"
