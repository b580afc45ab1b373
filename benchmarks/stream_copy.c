/* SPDX-License-Identifier: Apache-2.0 */
/* stream_copy.c -- the floor of what memory allows: a copy whose stores go past the caches, as STREAM's does where a compiler makes
   them. Not glibc's memcpy: from which size on that streams depends on what a hypervisor says of the caches. benchmarks/cpu.py
   compiles it, and runs one call on each thread. */
#include <stddef.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Both addresses and the size are multiples of 64. */
void stream_copy(void* to, const void* from, size_t bytes) {
#ifdef __SSE2__
  __m128i* y = to;
  for (const __m128i *x = from, *end = x + bytes / sizeof *x; x != end; x += 4, y += 4) {
    const __m128i a = x[0], b = x[1], c = x[2], d = x[3];
    _mm_stream_si128(y, a);
    _mm_stream_si128(y + 1, b);
    _mm_stream_si128(y + 2, c);
    _mm_stream_si128(y + 3, d);
  }
  _mm_sfence();
#else
  memcpy(to, from, bytes);
#endif
}
