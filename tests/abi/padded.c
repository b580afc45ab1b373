/* SPDX-License-Identifier: Apache-2.0 */
/* padded.c -- a struct with a hole, which the flags of the header tests must refuse. */
#include <narrows/abi.h>

typedef struct padded {
  nw_tensor_sig sig;
  uint32_t before_the_hole;
  uint64_t after_the_hole;
} padded;

extern char size_of_padded[sizeof(padded)]; /* clang lays a struct out, and warns, only where its size is asked for */
