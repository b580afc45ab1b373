# asan: the tests under AddressSanitizer and UndefinedBehaviorSanitizer; --short: a part of them, in some minutes
# SPDX-License-Identifier: Apache-2.0

check() { build_and_test asan "$@"; }
check_short() { build_and_test asan-short "$@"; }
