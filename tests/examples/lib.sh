# SPDX-License-Identifier: Apache-2.0
# lib.sh -- what these scripts share. They are POSIX shell: the machine that tests a package may have little else.
set -eu

die() { echo "${0##*/}: $*" >&2; exit 1; }

# fresh_folder PATH: empty, and nothing in the environment that could find Narrows but the package.
fresh_folder() {
  rm -rf "$1"
  mkdir -p "$1"
  unset NARROWS_PLUGIN_PATH NARROWS_BACKEND NARROWS_NUM_THREADS LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH
  unset CFLAGS CXXFLAGS LDFLAGS CPATH LIBRARY_PATH CGO_CFLAGS CGO_LDFLAGS GOFLAGS
}

# match FILE PATTERN...: each line is its pattern, a basic regular expression. A first pattern of "..." stands for any lines.
match() {
  file=$1
  shift
  cat "$file"
  lines=$(wc -l < "$file")
  if [ "$1" = ... ]; then
    shift
  elif [ "$lines" -ne $# ]; then
    die "$lines lines; expected $#"
  fi
  number=$((lines - $# + 1))
  for pattern in "$@"; do
    sed -n "${number}p" "$file" | grep -qx -e "$pattern" || die "line $number is not: $pattern"
    number=$((number + 1))
  done
}

# What every caller prints: the puzzle's answer, then what ran where.
match_caller() { match "$1" "14 20 26 32 38 44 50 56 62 68 74 80 41 14 0" "conv1d ran on [^ ,]*, kernel [^ ]*: ..*, ..*"; }

# What use.c prints: the backends with their files, the plugin's own among them; the op; its result; a refusal.
match_use() {
  grep -q "^example 1.0, $2: ok\$" "$1" || { cat "$1"; die "the plugin $2 is not listed"; }
  match "$1" ... 'example.mod_add/1(b, c; modulus = 128) -> a' '0 101 202 303 4 105 206 307 8 109' \
    'invalid: .*modulus is 5; expected 1 to 4, the length of b'
}

# A plugin exports one symbol and needs no Narrows library.
check_plugin() {
  exports=$(nm -D --defined-only "$1" | sed 's/.* //' | grep -v '^_\(init\|fini\|edata\|end\|_bss_start\)$')
  [ "$exports" = narrows_plugin_query ] || die "$1 exports: $exports"
  if readelf -dW "$1" | grep NEEDED | grep -vE '\[(libc|ld-linux[^]]*)\.so[^]]*\]'; then die "$1 needs more than libc"; fi
}
