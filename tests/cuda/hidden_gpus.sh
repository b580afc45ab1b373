#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hidden_gpus.sh NARROWS BACKEND -- on a machine with an NVIDIA GPU, CUDA_VISIBLE_DEVICES="" takes it away from the backend, which says
# so. 77: there is no GPU that could be hidden.
set -eu
unset CUDA_VISIBLE_DEVICES
if ! "$1" info | grep -Eq "^  accepted +$2 "; then
  printf 'skipped: %s\n' "$("$1" info | sed -nE "s/^ +$2: //p" | head -n 1)"
  exit 77
fi
hidden=$(CUDA_VISIBLE_DEVICES='' "$1" info)
if printf '%s\n' "$hidden" | tr '\n' ' ' | grep -Eq "unavailable +$2 .* $2: the NVIDIA driver sees no GPU"; then
  exit 0
fi
printf 'with CUDA_VISIBLE_DEVICES="" narrows info says:\n%s\nexpected: unavailable, the NVIDIA driver sees no GPU\n' "$hidden"
exit 1
