#!/usr/bin/env bash
# hip_new.sh -- compiles the hip backend with the HIP of Debian testing, whose compiler knows newer GPUs than a stable release's, in a
# chroot of its own. By hand, as root: scripts/hip_new.sh [GFX...]; scripts/hip_new.sh --clean removes the chroot, which stays for the
# next time (1.5 GB). The plugin is build/hip-new/lib/narrows/backends/narrows_hip.so; it needs that HIP to run.
set -euo pipefail
NARROWS_ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd)
source "$NARROWS_ROOT/scripts/setup.sh"

readonly CHROOT=$DEPS/hip-new/root
readonly PACKAGES=hipcc,libamdhip64-dev,cmake,ninja-build,g++,libxxhash-dev
readonly TARGETS=(gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1201)

# Everything is mounted in a namespace of this command's own, so that nothing stays mounted, however it ends.
isolated() { unshare --mount --propagation private -- "$@"; }

# Removes a tree, and never what may be mounted in it.
remove_tree() {
  ! grep -qF " $1/" /proc/self/mountinfo || fail "something is mounted in $1; unmount it first" 3
  rm -rf --one-file-system -- "$1"
}

# The machine's own mirror and apt settings.
make_chroot() {
  step chroot
  if [ -e "$CHROOT/complete" ]; then
    done_with "Debian testing is there"
    return
  fi
  local codename sources settings=() line
  has_command mmdebstrap || fail "mmdebstrap is missing: apt-get install mmdebstrap" 3
  remove_tree "$CHROOT" && mkdir -p "$CHROOT" "$DEPS/hip-new/sources"
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  backports_sources "$codename" "$DEPS/hip-new/sources" || fail "the apt sources name no Debian mirror of '$codename', which would have testing" 3
  sources=$(echo "$DEPS/hip-new/sources"/narrows.*)
  sed -i -E "s/$codename-backports/testing/; s/^(Suites:) $codename /\1 /; /^deb .* $codename main/d" "$sources"
  while read -r line; do settings+=("--aptopt=$line"); done < <(apt-config dump | grep -E '^Acquire::(Check-|https?::|Retries|ForceIPv)' || true)
  progress "mmdebstrap"
  logged hip-new-chroot.log isolated mmdebstrap --mode=root --variant=apt --include="$PACKAGES" \
    ${settings[@]+"${settings[@]}"} testing "$CHROOT" "$sources"
  : >"$CHROOT/complete"
  done_with "Debian testing, $(du -shx "$CHROOT" | cut -f 1), in $((SECONDS - step_start)) s"
}

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
make_chroot
[ $# -gt 0 ] || set -- "${TARGETS[@]}"
compile "$@"
