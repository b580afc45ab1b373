# tsan: the tests under ThreadSanitizer; --short: a part of them, in some minutes
# SPDX-License-Identifier: Apache-2.0

check() { build_and_test tsan "$@"; }
check_short() { build_and_test tsan-short "$@"; }
