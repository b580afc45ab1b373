# arm64: cross compiles the cpu backend for arm64 and runs its conformance tests under qemu-user (Debian, x86-64)
# SPDX-License-Identifier: Apache-2.0
# Debian's mirrors carry every architecture. The libraries' arm64 packages are unpacked into .deps/arm64; no architecture is added to the machine.

readonly ARM64_ROOT=$DEPS/arm64/root

arm64_apt() {
  local dir=$DEPS/arm64
  local command=$1
  shift
  "$command" -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$dir/state" -o "Dir::State::status=$dir/state/status" \
    -o "Dir::Cache=$dir/cache" -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$dir/sources" "$@"
}

# The newest of each library that the machine's own Debian release and its backports have.
fetch_arm64_libraries() {
  step libraries
  if [ -e "$ARM64_ROOT/complete" ]; then
    done_with "for arm64 are there"
    return
  fi
  local codename dir=$DEPS/arm64 names
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  rm -rf -- "$dir" && mkdir -p "$dir/sources" "$dir/state/lists/partial" "$dir/cache/archives/partial" "$dir/packages" "$ARM64_ROOT"
  : >"$dir/state/status"
  backports_sources "$codename" "$dir/sources" || fail "the apt sources name no Debian mirror of '$codename', which would have arm64 packages" 3
  logged arm64.log arm64_apt apt-get update
  names=$(arm64_apt apt-cache search --names-only '^(libhwy-dev|libhwy1(t64)?|libsleef-dev|libsleef3|libxxhash-dev)$' | cut -d ' ' -f 1)
  # shellcheck disable=SC2086 # one word a package
  (cd -- "$dir/packages" && logged arm64.log arm64_apt apt-get -t "$codename-backports" download $names libcatch2-dev)
  local package
  for package in "$dir"/packages/*.deb; do dpkg-deb -x "$package" "$ARM64_ROOT"; done
  : >"$ARM64_ROOT/complete"
  done_with "for arm64, from Debian, into .deps/arm64"
}

check() {
  begin arm64 5
  require build test cross
  fetch_dlpack
  fetch_arm64_libraries
  build arm64
  run_tests arm64 "$@"
}
