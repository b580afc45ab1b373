# fuzz: runs the libFuzzer targets of tests/fuzz, two minutes each at most; -- SECONDS [TARGET...]: longer, or only those
# SPDX-License-Identifier: Apache-2.0
# Corpora grow in build/fuzz/corpus and are kept; what a run finds is in build/fuzz/artifacts.

readonly FUZZ=$NARROWS_ROOT/build/fuzz
# What a minute on two cores tries, somewhat less: a faster machine tries no more.
declare -grA FUZZ_RUNS=([params]=200000 [tensors]=60000 [elf]=20000 [wav]=1000000 [program_text]=200000
  [program_steps]=5000 [program_lower]=50000 [program_verify]=5000)
readonly FUZZ_TARGETS=${!FUZZ_RUNS[*]}

# Can clang link a fuzz target, with the sanitizers?
has_fuzzer_runtime() {
  has_command clang++ && printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n' |
    clang++ -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null 2>/dev/null
}

# check [SECONDS [TARGET...]]
# Without SECONDS the seed is 1 and the number of inputs given: a clean checkout then tries the same ones again, so that a finding
# comes from the change at hand; two minutes end it anyway. With SECONDS each run has a seed of its own (it stands in the log).
check() {
  local seconds=120 seed=1 target
  if [ $# -gt 0 ]; then
    seconds=$1 seed=0
    shift
  fi
  [[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "'$seconds' seconds; expected a whole number: ./run check fuzz -- SECONDS [TARGET...]" 2
  for target in "$@"; do
    [[ " $FUZZ_TARGETS " == *" $target "* ]] || fail "no fuzz target '$target'; there are: $FUZZ_TARGETS" 2
  done
  [ $# -gt 0 ] || set -- $FUZZ_TARGETS
  begin fuzz 4
  require build fuzz
  fetch_dlpack
  build fuzz
  step fuzz
  done_with "$seconds s at most for each of $#, $(nproc) side by side; logs are ${LOG#"$PWD/"}/fuzz-*.log"
  fuzz_all "$seconds" "$seed" "$@"
}

# As many side by side as there are cores; each prints its line when it ends.
fuzz_all() {
  local seconds=$1 seed=$2 target running=0 failed=0
  shift 2
  for target in "$@"; do
    if [ "$running" -ge "$(nproc)" ]; then
      wait -n || failed=1
      running=$((running - 1))
    fi
    fuzz_one "$seconds" "$seed" "$target" &
    running=$((running + 1))
  done
  for (( ; running > 0; --running)); do wait -n || failed=1; done
  [ "$failed" = 0 ] || fail "a finding; mended, its input belongs into tests/fuzz/findings/<target>"
}

fuzz_one() {
  local seconds=$1 target=$3 status=0 seeds=$NARROWS_ROOT/tests/fuzz log=$LOG/fuzz-$3.log
  local program=$FUZZ/bin/narrows_fuzz_$target folders=() options=(-seed="$2") length=600 dictionary=$seeds/${target%%_*}.dict
  case $target in program_text | program_lower | program_verify) length=4000 ;; esac # no seed is cut
  mkdir -p "$FUZZ/corpus/$target" "$FUZZ/artifacts"
  folders=("$FUZZ/corpus/$target" "$seeds/seeds/$target")
  [ ! -d "$seeds/findings/$target" ] || folders+=("$seeds/findings/$target")
  [ "$2" = 0 ] || options+=(-runs="${FUZZ_RUNS[$target]}")
  [ ! -f "$dictionary" ] || options+=(-dict="$dictionary")
  # -entropic=0: its bookkeeping would take half of the time.
  "$program" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len="$length" -entropic=0 -print_final_stats=1 \
    -artifact_prefix="$FUZZ/artifacts/$target-" "${options[@]}" "${folders[@]}" </dev/null >"$log" 2>&1 || status=$?
  awk -v target="$target" '
    /^stat::number_of_executed_units:/ { units = $2 }
    /^stat::average_exec_per_sec:/ { rate = $2 }
    / cov: / { for (i = 1; i < NF; ++i) { if ($i == "cov:") coverage = $(i + 1); if ($i == "corp:") corpus = $(i + 1) } }
    END { sub("/.*", "", corpus); printf "  %-8s %9d executions, %6d a second, coverage %6d, corpus %5d\n", target, units, rate, coverage, corpus }
  ' "$log"
  [ "$status" != 0 ] || return 0
  # What was found, with all lines of a finding's call, and the input itself, which may not outlive the machine.
  awk '/^FINDING/ { finding = 1 } /^==/ { finding = 0 } finding || /^==[0-9]*==ERROR|runtime error|^SUMMARY|^Base64/' "$log" |
    head -n 40 | cut -c 1-1000 | sed 's/^/    /' >&2
  local artifact
  artifact=$(sed -n 's/^artifact_prefix=.*Test unit written to //p' "$log" | tail -n 1)
  printf '    again: %s %s\n    log:   %s\n' "$program" "${artifact:-: it wrote no input}" "$log" >&2
  return 1
}
