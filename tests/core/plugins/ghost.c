/* SPDX-License-Identifier: Apache-2.0 */
/* ghost.c -- the library of a driver that is there when a plugin is linked and gone when it is loaded. */
int narrows_ghost_driver(void);
int narrows_ghost_driver(void) { return 0; }
