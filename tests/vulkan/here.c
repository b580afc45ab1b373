/* SPDX-License-Identifier: Apache-2.0 */
/* here.c -- a plugin file whose backend is the program's own: test_vulkan. */
#include <narrows/plugin.h>

const nw_plugin* narrows_test_query(uint32_t host_major, nw_error* error);

const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) { return narrows_test_query(host_major, error); }
