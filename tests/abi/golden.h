/* SPDX-License-Identifier: Apache-2.0 */
/* golden.h -- the words that golden.c, and what each release froze of it, are written in. */
#ifndef NARROWS_TESTS_ABI_GOLDEN_H
#define NARROWS_TESTS_ABI_GOLDEN_H

#include <narrows/narrows.h>
#include <narrows/plugin.h>
#include <narrows/program.h>
#include <narrows/vulkan.h>
#include <stddef.h>

/* clang-format off */

/* C99 has no static assertion: an array of negative length is its equal. Two declarations of one variable must agree in type. */
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define GOLDEN(condition) extern char CAT(golden_line_, __LINE__)[(condition) ? 1 : -1];
#define SIZE(s, size) GOLDEN(sizeof(s) == (size))
#define GROWING(s, size) GOLDEN(sizeof(s) >= (size)) /* in a release: the struct may have grown since */
#define SAME_TYPE(s, f) extern __typeof__(((s*)0)->f) golden_##s##_##f;
#define FIELD(s, f, offset, type) GOLDEN(offsetof(s, f) == (offset)) extern type golden_##s##_##f; SAME_TYPE(s, f)
#define ARRAY(s, f, offset, type, n) GOLDEN(offsetof(s, f) == (offset)) extern type golden_##s##_##f[n]; SAME_TYPE(s, f)
#define SLOT(s, f, offset, result, args) GOLDEN(offsetof(s, f) == (offset)) extern result(*golden_##s##_##f) args; SAME_TYPE(s, f)
#define VALUE(name, value) GOLDEN((name) == (value) && sizeof(name) == sizeof(int))
#define AT_LEAST(name, value) GOLDEN((name) >= (value)) /* in a release: a number that counts */
#define TEXT(name, value) GOLDEN(sizeof(name) == sizeof(value)) /* C can't compare its characters: struct_size.cpp does */

#endif
