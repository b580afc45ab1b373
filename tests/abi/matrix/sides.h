/* SPDX-License-Identifier: Apache-2.0 */
/* sides.h -- what caller.c and plugin.c agree on. Each is compiled against several trees of headers: those of now, those of every
 * release, and those that next.py makes, which NW_EW_NEXT gives away. Both may use only what the oldest release has, and, between
 * #ifdef NW_EW_NEXT, what next.py puts in. This file itself is the same for all of them. */
#ifndef NARROWS_TESTS_ABI_SIDES_H
#define NARROWS_TESTS_ABI_SIDES_H

#include <stdint.h>

#define SIDE_DEVICE 12 /* kDLExtDev: no other plugin of the tests serves it */
#define SIDE_NAME "side"
#define SIDE_SCALE "side.scale/1" /* out = a * factor + offset, f64, contiguous */
#define SIDE_NEXT_ADDS 100        /* NW_EW_NEXT: a + 100 */

/* What next.py's libnarrows puts into the appended fields, and what the plugin does. */
#define SIG_NUMBER 42
#define HOST_NUMBER 43
#define BACKEND_INFO_NUMBER 44
#define PLAN_INFO_NUMBER 45
#define DEVICE_INFO_NUMBER 46

typedef struct side_scale_params {
  double factor; /* 0 is read as 1 */
#ifdef NW_EW_NEXT
  double offset;
#endif
} side_scale_params;

/* Extension "side/1": what the plugin was given last, so that the caller sees that growth passes through. 0: absent, or not known
 * to the plugin. */
typedef struct side_seen {
  uint64_t launches;
  uint64_t host_size, sig_size, call_size; /* struct_size of what came */
  uint64_t host_number, sig_number, call_number;
} side_seen;

#endif
