/* SPDX-License-Identifier: Apache-2.0 */
/* wrong_size.c -- golden.c with one number wrong, so that a test sees that a wrong number is noticed. */
#include "golden.c"

SIZE(nw_spec, 137)
