# mutate: changes lines of the product at random and lists those changes that no test notices; -- --seed 7 --points 20
# SPDX-License-Identifier: Apache-2.0

readonly NEEDS_mutate='
python3-venv | python_module ensurepip | fetches the parser of C++ from PyPI
ccache | command ccache | has the objects of the lines as they were'
readonly MUTATE_TOOLS='tree-sitter==0.26.1 tree-sitter-cpp==0.23.4'

fetch_mutate_tools() {
  step tools
  venv
  if [ "$(cat "$DEPS/venv/mutate-tools" 2>/dev/null)" != "$MUTATE_TOOLS" ]; then
    # shellcheck disable=SC2086 # the words of a list
    logged mutate-tools.log retried "$DEPS/venv/bin/python" -m pip install --disable-pip-version-check --only-binary=:all: \
      $MUTATE_TOOLS
    printf '%s' "$MUTATE_TOOLS" >"$DEPS/venv/mutate-tools"
  fi
  done_with "$MUTATE_TOOLS"
}

# Arguments are those of scripts/check/mutate.py.
check() {
  begin mutate 4
  require build test mutate
  fetch_dlpack
  fetch_mutate_tools
  step points
  done_with "each is printed when it is judged; what the compiler says is in ${LOG#"$PWD/"}/mutate.log"
  "$DEPS/venv/bin/python" "$NARROWS_ROOT/scripts/check/mutate.py" "$NARROWS_ROOT" "$@"
}
