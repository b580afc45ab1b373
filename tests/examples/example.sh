#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# example.sh PREFIX LIBDIR WORK EXPECTED FILE... -- copies the FILEs to a fresh folder and runs there the command that stands at
# the head of each, with nothing of Narrows but the package in PREFIX. EXPECTED says what the last one prints: "caller",
# "program" or "use".
# Exit code 77: a command's tool is not installed.
. "$(dirname "$0")/lib.sh"
libdir=$1/$2 work=$3 expected=$4
shift 4

# command_of FILE: the first line at its head that is a command about it.
command_of() {
  sed -nE "1,8s%^[/* \t]*((cc|c\+\+|rustc|go|python3) .*${1##*/}.*)\$%\1%p" "$1" | sed 's% *\*/$%%' | head -n 1
}

fresh_folder "$work"
cp "$@" "$work"
cd "$work"
export PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir" GOCACHE="$work/cache" PYTHONDONTWRITEBYTECODE=1
for file in "$@"; do
  file=${file##*/}
  command=$(command_of "$file")
  [ -n "$command" ] || die "no command at the head of $file"
  tool=${command%% *}
  command -v "$tool" > tool || { echo "skipped: $tool is not installed, so $file was not built and run"; exit 77; }
  echo "$command"
  sh -euc "$command" > output || { cat output; die "that failed"; }
done

case $expected in
  caller) match_caller output ;;
  program)
    grep -q '^refused: .*k' output && grep -q '^program\.mm_relu_[0-9a-f]*/1$' output && grep -q 'below 1e-4: yes$' output ||
      { cat output; die "that is not what the example prints"; }
    ;;
  use)
    check_plugin narrows_example.so
    match_use output "$PWD/narrows_example.so"
    ;;
  *) die "nothing is known of '$expected'" ;;
esac
