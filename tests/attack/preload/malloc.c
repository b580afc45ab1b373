/* SPDX-License-Identifier: Apache-2.0 */
/* malloc.c -- to be preloaded: a replacement of malloc, as simple as one can be. Memory is handed out once and never reused. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define SHOW __attribute__((visibility("default")))
static const size_t kSize = (size_t)8 << 30; /* address space, not memory */
int narrows_test_preloaded = 1;              /* by which the test sees that this library is there */
static _Atomic(char*) arena;
static atomic_size_t used;

static char* base(void) {
  char* at = atomic_load(&arena);
  if (at != NULL) return at;
  char* fresh = mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fresh == MAP_FAILED) return NULL;
  if (!atomic_compare_exchange_strong(&arena, &at, fresh)) return munmap(fresh, kSize), at;
  return fresh;
}

/* The size stands before the block. */
SHOW void* aligned_alloc(size_t align, size_t size) {
  char* const start = base();
  if (align < 16) align = 16;
  const size_t room = size + align + 16;
  const size_t at = start == NULL || size > kSize ? kSize : atomic_fetch_add(&used, room);
  if (at + room > kSize) return errno = ENOMEM, NULL;
  char* const block = (char*)(((uintptr_t)start + at + 16 + align - 1) / align * align);
  ((size_t*)block)[-1] = size;
  return block;
}
SHOW void* malloc(size_t size) { return aligned_alloc(16, size); }
SHOW void* memalign(size_t align, size_t size) { return aligned_alloc(align, size); }
SHOW void* calloc(size_t count, size_t size) { /* fresh pages are zero */
  if (size != 0 && count > SIZE_MAX / size) return errno = ENOMEM, NULL;
  return aligned_alloc(16, count * size);
}
SHOW int posix_memalign(void** out, size_t align, size_t size) {
  void* const block = aligned_alloc(align, size);
  if (block == NULL) return ENOMEM;
  *out = block;
  return 0;
}
SHOW void free(void* block) { (void)block; }
SHOW size_t malloc_usable_size(void* block) { return block == NULL ? 0 : ((size_t*)block)[-1]; }
SHOW void* realloc(void* old, size_t size) {
  void* const block = malloc(size);
  if (old != NULL && block != NULL) memcpy(block, old, malloc_usable_size(old) < size ? malloc_usable_size(old) : size);
  return block;
}
