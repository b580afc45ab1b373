#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh CMAKE BUILD SOURCE LIBDIR WORK FILE... -- installs the build into a fresh prefix, moves that to WORK/moved, sees that
# the package is complete (with the FILEs besides what every package has), and looks for anything in it that still points into the
# build or source tree, or to where it was.
. "$(dirname "$0")/lib.sh"
cmake=$1 build=$2 source=$3 libdir=$4 work=$5
shift 5

fresh_folder "$work"
"$cmake" --install "$build" --prefix "$work/installed" > "$work/log" 2>&1 || { cat "$work/log"; die "the install failed"; }
mv "$work/installed" "$work/moved"
cd "$work/moved"

for file in include/dlpack/dlpack.h include/narrows/abi.h include/narrows/plugin.h include/narrows/ops.h include/narrows/narrows.h \
  include/narrows/narrows.hpp include/narrows/program.h include/narrows/xla.h "$libdir/libnarrows.so" "$libdir/libnarrows.so.1" "$libdir/libnarrows_xla.so" \
  "$libdir/pkgconfig/narrows.pc" \
  "$libdir/cmake/Narrows/NarrowsConfig.cmake" "$libdir/cmake/Narrows/NarrowsConfigVersion.cmake" \
  "$libdir/cmake/Narrows/NarrowsTargets.cmake" "$libdir/cmake/Narrows/NarrowsBackend.cmake" "$libdir/cmake/Narrows/plugin.map" "$@"; do
  [ -f "$file" ] || die "$file was not installed"
done

# -I: text only. Debug information may name sources.
for tree in "$source" "$build" "$work/installed"; do
  if grep -rIF "$tree" .; then die "the files above name $tree"; fi
done
find . -type f \( -name '*.so*' -o -path './bin/*' -o -path './libexec/*' \) > "$work/binaries"
[ -s "$work/binaries" ] || die "no binary was installed"
while read -r binary; do
  if readelf -d "$binary" | grep -E 'RPATH|RUNPATH' | grep -vF "[\$ORIGIN"; then die "$binary looks for libraries outside the package"; fi
done < "$work/binaries"
