#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# freeze_abi.sh VERSION -- at a release: writes tests/abi/releases/VERSION, what that release promised for good. docs/abi.md,
# "Bumping the ABI", says when. tests/abi/CMakeLists.txt takes in every folder of releases/ by itself. Nothing is ever overwritten.
set -euo pipefail

fail() {
  printf 'freeze_abi.sh: %s\n' "$1" >&2
  exit 1
}

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd)
abi=$root/tests/abi
version=${1-}
[ $# = 1 ] && [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "usage: scripts/freeze_abi.sh VERSION, like 0.2.0"
folder=$abi/releases/$version
[ ! -e "$folder" ] || fail "$folder is there, and a release is frozen once"
grep -q "^project(Narrows VERSION $version " "$root/CMakeLists.txt" || fail "CMakeLists.txt does not say that this is $version"
dlpack=$root/.deps/include
[ -f "$dlpack/dlpack/dlpack.h" ] || dlpack=/usr/include
command -v pahole >/dev/null || fail "pahole is missing"

# The release before: the one that golden.c stands on.
previous=$(sed -n 's:^#include "releases/\(.*\)/golden.c"$:\1:p' "$abi/golden.c")
layout() { python3 "$abi/layout.py" "$1" --compiler gcc --headers "$root/abi/include" --dlpack "$dlpack" "${@:2}"; }
[ -z "$previous" ] || layout compare --old "$abi/releases/$previous/layout.txt" >/dev/null ||
  fail "the headers break what $previous promised"

new=$(mktemp -d "$abi/releases/.$version.XXXXXX")
trap 'rm -rf -- "$new" "$new.golden"' EXIT
chmod 755 "$new"
mkdir -p "$new/include/narrows"
for header in abi ops plugin narrows program vulkan; do cp -- "$root/abi/include/narrows/$header.h" "$new/include/narrows/"; done
cp -- "$abi/exports.txt" "$abi/exports_program.txt" "$new/"
layout list >"$new/layout.txt"

# golden.c of the release: the lines since the release before, and those of "Now" as lower bounds.
section() { awk -v from="$1" -v to="$2" 'index($0, to) == 1 { on = 0 } on; index($0, from) == 1 { on = 1 }' "$abi/golden.c"; }
{
  printf '/* What %s promised for good, in terms of golden.h. Written by scripts/freeze_abi.sh; never edited. */\n' "$version"
  if [ -n "$previous" ]; then printf '#include "../%s/golden.c"\n' "$previous"; else printf '#include "../../golden.h"\n'; fi
  printf '\n#ifdef __cplusplus\nextern "C" {\n#endif\n\n/* clang-format off */\n'
  section '/* Appended since' '/* Now:'
  printf '/* Sizes and counters, which may have grown since. */\n'
  section '/* Now:' '#ifdef __cplusplus' | sed 's/^SIZE(/GROWING(/; s/^VALUE(NW_ABI_MINOR,/AT_LEAST(NW_ABI_MINOR,/'
  printf '#ifdef __cplusplus\n}\n#endif\n'
} >"$new/golden.c"
grep -q '^GROWING(nw_call, ' "$new/golden.c" || fail "golden.c no longer has the sections that this script reads"
(cd -- "$new" && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)

# golden.c of now stands on this release, and has appended nothing yet.
awk -v version="$version" '
  /^#include "(golden.h|releases\/.*)"$/ { print "#include \"releases/" version "/golden.c\""; next }
  index($0, "/* Now:") == 1 { skip = 0 }
  !skip
  index($0, "/* Appended since") == 1 { print ""; skip = 1 }' "$abi/golden.c" >"$new.golden"
mv -- "$new" "$folder"
mv -- "$new.golden" "$abi/golden.c"
printf 'tests/abi/releases/%s is written. Commit it together with tests/abi/golden.c.\n' "$version"
