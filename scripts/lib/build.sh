# SPDX-License-Identifier: Apache-2.0
# build.sh -- configures, compiles and tests a preset of CMakePresets.json in build/<preset>. The presets say what a build has and which
# tests belong to it.

# Compilers need memory, about 1.5 GB each: never more of them than fit.
jobs() {
  local memory
  memory=$(awk '$1 == "MemAvailable:" { print int($2 / 1500000) }' /proc/meminfo 2>/dev/null || true)
  awk -v cores="$(nproc)" -v memory="${memory:-1}" 'BEGIN { n = memory < cores ? memory : cores; print (n > 1 ? n : 1) }'
}

# configure PRESET [TARGET...]: with tests and benchmarks if no TARGET is given or one is a test. A folder that already has them keeps them.
CONFIGURE_OPTIONS=() # more of them, for a command of its own
configure() {
  local folder=$NARROWS_ROOT/build/$1 options=(${CONFIGURE_OPTIONS[@]+"${CONFIGURE_OPTIONS[@]}"})
  if [ $# = 1 ] || [[ " ${*:2} " =~ _tests" "|" test_"|" bench_" ]]; then
    options+=(-DNARROWS_BUILD_TESTS=ON)
  elif ! grep -qs '^NARROWS_BUILD_TESTS:BOOL=ON' "$folder/CMakeCache.txt"; then
    options+=(-DNARROWS_BUILD_TESTS=OFF)
  fi
  ! has_command ccache || options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  logged "configure-$1.log" cmake -S "$NARROWS_ROOT" --preset "$1" ${options[@]+"${options[@]}"}
}

# build PRESET [TARGET...]: without a TARGET those of the preset
build() {
  local preset=$1 log=$LOG/build-$1.log targets=("${@:2}")
  step build
  configure "$@"
  if ! (cd -- "$NARROWS_ROOT" && NINJA_STATUS='[%f/%t] ' cmake --build --preset "$preset" --parallel "$(jobs)" \
    ${targets[@]+--target "${targets[@]}"}) </dev/null 2>&1 | tee "$log" | show_progress; then
    [ ! -t 1 ] || printf '\n'
    awk '/^FAILED:/ { found = 1 } found' "$log" | sed -n 1,40p | sed 's/^/    /' >&2
    fail "the build failed; the whole log is $log"
  fi
  done_with "build/$preset, $(grep -c '^\[[0-9]*/[0-9]*\]' "$log" || true) steps in $((SECONDS - step_start)) s"
}

# Shows the "[12/345]" at the head of the lines that pass.
show_progress() {
  local line
  while read -r line; do
    case $line in
      \[*/*\]*) line=${line%%]*} && progress "${line#[}" ;;
      *"tests passed"*) ;;
      [0-9]*/[0-9]*Test*) progress "${line%% Test*}" ;;
    esac
  done
}

# run_tests PRESET [CTEST ARGUMENT...]: ends with a summary; fails if a test fails, if none ran, or if a skip has no reason.
run_tests() {
  local preset=$1 log=$LOG/test-$1.log results=$LOG/test-$1.xml runner=()
  shift
  step tests
  # ThreadSanitizer of older compilers does not start where the kernel places mappings too randomly.
  if [[ $preset == tsan* ]] && setarch "$(uname -m)" -R true 2>/dev/null; then runner=(setarch "$(uname -m)" -R); fi
  rm -f -- "$results"
  (cd -- "$NARROWS_ROOT" && ${runner[@]+"${runner[@]}"} ctest --preset "$preset" --parallel "$(jobs)" --output-junit "$results" \
    --test-output-size-passed 1000000 --test-output-size-failed 1000000 "$@") </dev/null 2>&1 | tee "$log" | show_progress || true
  done_with "$((SECONDS - step_start)) s; the whole log is ${log#"$PWD/"}"
  python3 "$NARROWS_ROOT/scripts/lib/test_summary.py" "$results"
}

# build_and_test PRESET [CTEST ARGUMENT...]
build_and_test() {
  begin "$name" 4
  require build demo test
  fetch_dlpack
  build "$1"
  run_tests "$@"
}
