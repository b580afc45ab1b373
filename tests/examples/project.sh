#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# project.sh CMAKE GENERATOR PREFIX WORK FILE... -- copies the FILEs, a CMake project, to a fresh folder, builds it with nothing of
# Narrows but the package in PREFIX, installs it elsewhere, and runs what it made.
. "$(dirname "$0")/lib.sh"
cmake=$1 generator=$2 prefix=$3 work=$4
shift 4

fresh_folder "$work"
mkdir "$work/source"
cp "$@" "$work/source"
cd "$work"
"$cmake" -S source -B build -G "$generator" -DCMAKE_PREFIX_PATH="$prefix"
"$cmake" --build build
"$cmake" --install build --prefix "$work/installed"

for caller in caller_c caller_cpp; do
  [ -f "build/$caller" ] || continue
  ldd "build/$caller" | grep -F "$prefix/" || die "$caller does not load libnarrows from $prefix"
  "build/$caller" > output || die "$caller failed"
  match_caller output
done

for plugin in "$work"/build/lib/narrows/backends/narrows_example.so "$work"/installed/*/narrows/backends/narrows_example.so; do
  check_plugin "$plugin"
  NARROWS_PLUGIN_PATH=${plugin%/*} build/use > output || { cat output; die "use failed"; }
  match_use output "$plugin"
done
