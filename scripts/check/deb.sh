# deb: makes the Debian packages, and installs and uses them in a clean Debian; --vulkan: narrows-backend-vulkan too
# SPDX-License-Identifier: Apache-2.0
parts chroot

readonly DEB_CHROOT=$DEPS/deb
readonly DEB_OWN='libnarrows1 libnarrows-xla libnarrows-torch libnarrows-dev narrows narrows-backend-cpu'

# shellcheck disable=SC2086 # the words of a list
check() { check_packages cpu $DEB_OWN; }
# shellcheck disable=SC2086
check_vulkan() { check_packages 'cpu;vulkan' $DEB_OWN narrows-backend-vulkan; }

# check_packages BACKENDS PACKAGE...
check_packages() {
  local backends=$1
  shift
  begin deb 6
  # shellcheck disable=SC2046 # a word, or none
  require build chroot $([ "$backends" = cpu ] || echo vulkan)
  fetch_dlpack
  CONFIGURE_OPTIONS=("-DNARROWS_BACKENDS=$backends")
  build deb all
  make_packages "$@"
  make_chroot "$DEB_CHROOT" minbase "gcc,libc6-dev,pkg-config,$(foreign_packages)" "$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")"
  as_root mkdir -p "$DEB_CHROOT/root$NARROWS_ROOT"
  use_packages "$@"
}

# The packages are these, and no other file is one.
make_packages() {
  local folder=$NARROWS_ROOT/build/deb made file
  step packages
  rm -rf -- "$folder"/*.deb "$folder/_CPack_Packages"
  (cd -- "$folder" && logged cpack.log cpack -G DEB)
  made=$(for file in "$folder"/*.deb; do dpkg-deb -f "$file" Package; done | sort | xargs)
  [ "$made" = "$(printf '%s\n' "$@" | sort | xargs)" ] || fail "cpack made $made; expected $*"
  for file in "$folder"/*.deb; do check_fields "$file"; done
  [ "$(for file in "$folder"/*.deb; do dpkg-deb -f "$file" Description | head -n 1; done | sort -u | wc -l)" = $# ] ||
    fail "two packages have one summary"
  done_with "$made"
}

# check_fields FILE: what every package says of itself, and that it has a copyright. grep reads to the end (no -q): the writer before it
# would be killed by SIGPIPE, which pipefail counts as a failure.
check_fields() {
  local name field
  name=$(dpkg-deb -f "$1" Package)
  for field in Version Architecture Maintainer Section Description Installed-Size; do
    [ -n "$(dpkg-deb -f "$1" "$field")" ] || fail "$name has no field $field"
  done
  [ "$(dpkg-deb -f "$1" Architecture)" = "$(dpkg --print-architecture)" ] || fail "$name has another architecture than this machine's"
  dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/share/doc/$name/copyright" | grep '^xxHash Library$' >/dev/null ||
    fail "$name has no copyright with the licenses of what is compiled in"
  dpkg-deb -f "$1" Depends | grep libc6 >/dev/null || [ "$name" = libnarrows-dev ] || fail "$name depends on no libc6: dpkg-shlibdeps was not asked"
}

# The packages of Debian's that ours depend on, as mmdebstrap takes them.
foreign_packages() {
  local file
  for file in "$NARROWS_ROOT"/build/deb/*.deb; do dpkg-deb -f "$file" Depends; done | tr ',|' '\n\n' | sed 's/ *(.*//; s/ //g' |
    grep -v narrows | sort -u | paste -sd ,
}

# In the chroot: dpkg refuses a package whose dependences are not there. A program in C then runs an op, and nothing is left afterwards.
use_packages() {
  step install
  (logged deb-install.log as_root bash "$NARROWS_ROOT/scripts/lib/in_chroot.sh" "$DEB_CHROOT/root" "$NARROWS_ROOT" bash -eux -c '
    root=$1
    shift
    dpkg --purge "$@" 2>/dev/null
    dpkg --install "$root"/build/deb/*.deb
    cc "$root/examples/caller_c/main.c" $(pkg-config --cflags --libs narrows) -o /tmp/caller
    /tmp/caller >/tmp/said
    grep -F "14 20 26 32 38 44 50 56 62 68 74 80 41 14 0" /tmp/said
    cc -O2 -fPIC -shared "$root/examples/plugin_minimal/plugin.c" $(pkg-config --cflags narrows) -o /tmp/narrows_example.so
    NARROWS_PLUGIN_PATH=/tmp narrows info | tee /tmp/said
    grep -E "accepted +example" /tmp/said
    grep -E "accepted +cpu" /tmp/said
    grep -E "(accepted|unavailable) +vulkan" /tmp/said || [[ " $* " != *vulkan* ]]
    dpkg --verify "$@"
    dpkg --purge "$@"
    left=$(find /usr -name "*narrows*" -not -path "$root/*")
    [ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
  ' bash "$NARROWS_ROOT" "$@")
  done_with "a program in C ran an op, and nothing is left after the removal"
}
