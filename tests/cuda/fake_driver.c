/* SPDX-License-Identifier: Apache-2.0 */
/* fake_driver.c -- a libcuda.so.1 that is too old, or that finds no GPU, for machines that have another or none. FAKE_CUDA_VERSION
 * is what cuDriverGetVersion says (11000), FAKE_CUDA_INIT what cuInit returns (100: no device). */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != NULL ? atoi(text) : otherwise;
}

int cuInit(unsigned flags) {
  (void)flags;
  return number("FAKE_CUDA_INIT", 0);
}

int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return 0;
}

/* All the rest: CUDA_ERROR_NOT_INITIALIZED. */
static int other(void) { return 3; }

int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* status) {
  (void)version, (void)flags;
  typedef void (*any)(void);
  any found = (any)other;
  if (strcmp(name, "cuInit") == 0) found = (any)cuInit;
  if (strcmp(name, "cuDriverGetVersion") == 0) found = (any)cuDriverGetVersion;
  if (strcmp(name, "cuGetProcAddress") == 0) found = (any)cuGetProcAddress_v2;
  memcpy(function, &found, sizeof found);
  if (status != NULL) *status = 0;
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
