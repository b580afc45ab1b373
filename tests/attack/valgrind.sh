#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# valgrind.sh PROGRAM: no error and no definite leak under valgrind, which lacks AVX-512. Ends with 77 where there is no valgrind.
set -euo pipefail
command -v valgrind >/dev/null || { echo "skipped: there is no valgrind"; exit 77; }
export NARROWS_NUM_THREADS=2
for tier in sse4 avx2; do
  NARROWS_CPU_TARGET=$tier valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
    --track-fds=yes "$1" | tee /dev/stderr | grep '^14 20 26 32 38 44 50 56 62 68 74 80 41 14 0$' >/dev/null
done
