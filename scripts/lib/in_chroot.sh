#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# in_chroot.sh -- runs a command in a chroot that chroot.sh has made, with /dev, /proc and a folder of this machine, under the
# same name, mounted there: in_chroot.sh ROOT FOLDER COMMAND [ARGUMENT...]. The environment stays. The mounts end with the command.
set -euo pipefail
options=(--mount --propagation private)
[ "$(id -u)" = 0 ] || options+=(--map-root-user)
# shellcheck disable=SC2016 # the inner shell's
exec unshare "${options[@]}" -- bash -euc '
  root=$1 folder=$2
  shift 2
  for path in /dev /proc "$folder"; do mount --rbind "$path" "$root$path"; done
  exec env HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" "$@"
' bash "$@"
