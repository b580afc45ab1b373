/* SPDX-License-Identifier: Apache-2.0 */
/* no_loader.c -- a libvulkan that cannot be opened: what it needs is nowhere. */
void narrows_there_is_no_such_function(void);
void narrows_needs_it(void);
void narrows_needs_it(void) { narrows_there_is_no_such_function(); }
