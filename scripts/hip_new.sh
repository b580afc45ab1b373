#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hip_new.sh -- compiles the hip backend with the HIP of Debian testing, whose compiler knows newer GPUs than a stable release's, in a
# chroot of its own. By hand, as root: scripts/hip_new.sh [GFX...]; scripts/hip_new.sh --clean removes the chroot, which stays for the
# next time (1.5 GB). The plugin is build/hip-new/lib/narrows/backends/narrows_hip.so; it needs that HIP to run.
set -euo pipefail
NARROWS_ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd)
source "$NARROWS_ROOT/scripts/lib/setup.sh"
source "$NARROWS_ROOT/scripts/lib/chroot.sh"

readonly CHROOT=$DEPS/hip-new/root
readonly PACKAGES=hipcc,libamdhip64-dev,cmake,ninja-build,g++,libxxhash-dev
readonly TARGETS=(gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1201)

# In the chroot, which has /proc, the sources read-only at /narrows, and build/hip-new at /build.
compile() {
  local targets
  step build
  targets=$(IFS=';' && printf '%s' "$*")
  mkdir -p "$NARROWS_ROOT/build/hip-new" "$CHROOT/narrows" "$CHROOT/build"
  # shellcheck disable=SC2016 # $1, $2 and $3 are the inner shell's
  logged hip-new-build.log isolated bash -euc '
    mount -t proc proc "$1/proc"
    mount --bind "$2" "$1/narrows" && mount -o remount,ro,bind "$1/narrows"
    mount --bind "$2/build/hip-new" "$1/build"
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 chroot "$1" sh -euc "
      hipcc --version
      cmake -S /narrows -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DNARROWS_BACKENDS=hip -DNARROWS_BUILD_TOOLS=OFF \
        -DNARROWS_BUILD_TESTS=OFF \"-DNARROWS_HIP_ARCHITECTURES=\$1\"
      cmake --build /build --parallel \"\$2\" --target narrows_hip" sh "$3" "$4"
  ' bash "$CHROOT" "$NARROWS_ROOT" "$targets" "$(nproc)"
  done_with "$(sed -n 's/^HIP version: \([0-9]*\.[0-9]*\.[0-9]*\).*/HIP \1/p' "$LOG/hip-new-build.log"), $targets: $(stat -c %s \
    "$NARROWS_ROOT/build/hip-new/lib/narrows/backends/narrows_hip.so") bytes in $((SECONDS - step_start)) s"
}

[ "$(id -u)" = 0 ] || fail "a chroot needs root" 3
if [ "${1:-}" = --clean ]; then
  remove_tree "$DEPS/hip-new"
  exit
fi
begin "hip backend, by the HIP of Debian testing" 3
fetch_dlpack
make_chroot "$DEPS/hip-new" apt "$PACKAGES" testing
[ $# -gt 0 ] || set -- "${TARGETS[@]}"
compile "$@"
