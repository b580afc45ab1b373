/* SPDX-License-Identifier: Apache-2.0 */
/* dep.c -- a library that two plugins need, each in its own version: the same symbol, another result.
 *   DEP 1 or 2 */
__attribute__((visibility("default"))) int narrows_test_dep(void) { return DEP; }
