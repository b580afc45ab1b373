# SPDX-License-Identifier: Apache-2.0
# chroot.sh -- packages of newer releases of Debian than the machine's own, in a chroot under .deps. scripts/hip_new.sh sources it too;
# in_chroot.sh runs what is built here in one.

readonly NEEDS_chroot='
mmdebstrap | command mmdebstrap | fetches packages of other releases of Debian'

# Everything is mounted in a namespace of this command's own, so that nothing stays mounted, however it ends.
isolated() { as_root unshare --mount --propagation private -- "$@"; }

# Removes a tree, and never what may be mounted in it.
remove_tree() {
  ! grep -qF " $1/" /proc/self/mountinfo || fail "something is mounted in $1; unmount it first" 3
  as_root rm -rf --one-file-system -- "$1"
}

# debian_sources FOLDER RELEASE...: the machine's own mirror, with its keys and options, as a source of these releases.
debian_sources() {
  local folder=$1 codename sources release
  shift
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  # shellcheck disable=SC2015 # either of them
  (. /etc/os-release && [ "${ID:-}" = debian ]) && backports_sources "$codename" "$folder" ||
    fail "the apt sources name no Debian mirror of '$codename', which would have $*" 3
  sources=$(echo "$folder"/narrows.*)
  for release in "$@"; do
    sed -E "/^deb .* $codename main/d; s/^(Suites:) $codename /\1 /; s/$codename-backports/$release/" "$sources"
    printf '\n'
  done >"$folder/new"
  mv -- "$folder/new" "$sources"
}

# make_chroot FOLDER VARIANT PACKAGES RELEASE...: FOLDER/root has the packages of the first release, and PACKAGE/RELEASE of another one.
# It stays for the next time.
make_chroot() {
  local folder=$1 variant=$2 packages=$3 root=$1/root settings=() line
  shift 3
  step chroot
  if [ "$(cat "$root/complete" 2>/dev/null)" = "$variant $packages $*" ]; then
    done_with "Debian $1 is there"
    return
  fi
  has_command mmdebstrap || fail "mmdebstrap is missing: apt-get install mmdebstrap" 3
  become_root
  remove_tree "$folder" && mkdir -p "$root" "$folder/sources"
  debian_sources "$folder/sources" "$@"
  while read -r line; do settings+=("--aptopt=$line"); done < <(apt-config dump | grep -E '^Acquire::(Check-|https?::|Retries|ForceIPv)' || true)
  progress "mmdebstrap"
  (logged "${folder##*/}-chroot.log" isolated mmdebstrap --mode=root --variant="$variant" --include="$packages" \
    --aptopt="APT::Default-Release \"$1\"" --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr ${settings[@]+"${settings[@]}"} \
    "$1" "$root" "$folder/sources"/narrows.*) || exit 3  # as where there is no mirror
  printf '%s' "$variant $packages $*" | as_root tee "$root/complete" >/dev/null
  done_with "Debian $1, $(du -shx "$root" 2>/dev/null | cut -f 1), in $((SECONDS - step_start)) s"
}
