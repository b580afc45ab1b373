/* SPDX-License-Identifier: Apache-2.0 */
/* empty.c -- to be preloaded under the name of a library that the cpu backend needs (its soname), without any of its symbols. */
int narrows_test_preloaded = 1; /* by which the test sees that this library is there */
