/* SPDX-License-Identifier: Apache-2.0 */
/* fake_blaslt.c -- a libcublasLt.so.13 and a .12, a libhipblaslt.so.1 and a .0, that work on host memory, for machines without a
 * GPU, and that fail where they are told to: FAKE_BLASLT_FAILS names the function, FAKE_BLASLT_FILE the one library that fails (its
 * number; else both do), FAKE_BLASLT_STATUS what its Create returns then, FAKE_BLASLT_VERSION the version of that library,
 * if it is hipBLASLt. FAKE_FILE is the number of this one, FAKE_RUNTIME makes it bring another HIP runtime. The numbers are taken
 * from the vendors' headers, not from ours. */
#include "fake_blaslt.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef FAKE_HIPBLASLT
#define LT(function) hipblasLt##function
enum { kSuccess = 0, kInvalid = 3, kInternal = 6, kUnsupported = 7 };                            /* hipblasStatus_t */
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };                                                      /* hipDataType */
enum { COMPUTE_32F = 2, OP_N = 111, OP_T = 112 };                                                /* hipblas-common.h */
enum { DESC_TRANSA = 0, DESC_TRANSB = 1, DESC_POINTER_MODE = 13, PREF_MAX_WORKSPACE_BYTES = 1 }; /* hipblaslt.h */
typedef struct {
  uint8_t data[16];
  size_t max_workspace_bytes;
} algorithm;
#else
#define LT(function) cublasLt##function
enum { kSuccess = 0, kInvalid = 7, kInternal = 14, kUnsupported = 15 };                         /* cublasStatus_t */
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };                                                     /* cudaDataType_t */
enum { COMPUTE_32F = 68, OP_N = 0, OP_T = 1 };                                                  /* cublas_api.h */
enum { DESC_POINTER_MODE = 2, DESC_TRANSA = 3, DESC_TRANSB = 4, PREF_MAX_WORKSPACE_BYTES = 1 }; /* cublasLt.h */
enum { POINTER_MODE_DEVICE = 1, PREF_REDUCTION_SCHEME_MASK = 3, PREF_MIN_ALIGNMENT_A_BYTES = 5 };
typedef struct {
  uint64_t data[8];
} algorithm;
#endif
#define STRING_OF(name) #name
#define STRING(name) STRING_OF(name)
#define FAILS(function) fails(STRING(LT(function)))

typedef struct {
  int32_t compute, scale, pointer_mode, trans_a, trans_b;
} desc;
typedef struct {
  int32_t type;
  uint64_t rows, columns;
  int64_t pitch;
} layout;
typedef struct {
  uint64_t workspace;
  uint32_t schemes, alignments[4];
} preference;
typedef struct {
  algorithm algo;
  size_t workspace_size;
  int state;
  float waves;
  int reserved[4];
} result;

static int fails(const char* function) {
  const char *named = getenv("FAKE_BLASLT_FAILS"), *file = getenv("FAKE_BLASLT_FILE");
  if (file != NULL && atoi(file) != FAKE_FILE) return 0;
  return named != NULL && strcmp(named, function) == 0;
}

static int handle;
int LT(Create)(void** out) {
  *out = &handle;
  const char* const status = getenv("FAKE_BLASLT_STATUS");
  return !FAILS(Create) ? kSuccess : status != NULL ? atoi(status) : kInternal;
}
int LT(Destroy)(void* h) { return h == &handle ? kSuccess : kInvalid; }

#ifdef FAKE_RUNTIME
int hipStreamBeginCapture(void* stream, int mode) { return stream == NULL && mode != 0; }
#endif

#ifdef FAKE_HIPBLASLT
int hipblasLtGetVersion(void* h, int* version) {
  const char *said = getenv("FAKE_BLASLT_VERSION"), *file = getenv("FAKE_BLASLT_FILE");
  if (h != &handle || FAILS(GetVersion)) return kInternal;
  *version = FAKE_FILE == 1 ? 100200 : 1201; /* 1.2.0 and 0.12.1 */
  if (said != NULL && (file == NULL || atoi(file) == FAKE_FILE)) *version = atoi(said);
  return kSuccess;
}
#endif

int LT(MatmulDescCreate)(desc** out, int compute, int scale) {
  if (FAILS(MatmulDescCreate)) return kInternal;
  *out = calloc(1, sizeof **out);
  **out = (desc){compute, scale, 0, OP_N, OP_N};
  return kSuccess;
}
int LT(MatmulDescSetAttribute)(desc* d, int attribute, const void* value, size_t size) {
  if (FAILS(MatmulDescSetAttribute)) return kInternal;
  int32_t* const place = attribute == DESC_TRANSA         ? &d->trans_a
                         : attribute == DESC_TRANSB       ? &d->trans_b
                         : attribute == DESC_POINTER_MODE ? &d->pointer_mode
                                                          : NULL;
  if (size != 4 || place == NULL) return kInvalid;
  memcpy(place, value, size);
  return kSuccess;
}
int LT(MatmulDescDestroy)(desc* d) {
  free(d);
  return kSuccess;
}

int LT(MatrixLayoutCreate)(layout** out, int type, uint64_t rows, uint64_t columns, int64_t pitch) {
  if (FAILS(MatrixLayoutCreate)) return kInternal;
  if (pitch < (int64_t)rows) return kInvalid;
  *out = calloc(1, sizeof **out);
  **out = (layout){type, rows, columns, pitch};
  return kSuccess;
}
int LT(MatrixLayoutDestroy)(layout* l) {
  free(l);
  return kSuccess;
}

int LT(MatmulPreferenceCreate)(preference** out) {
  if (FAILS(MatmulPreferenceCreate)) return kInternal;
  *out = calloc(1, sizeof **out);
  return kSuccess;
}
int LT(MatmulPreferenceSetAttribute)(preference* p, int attribute, const void* value, size_t size) {
  if (FAILS(MatmulPreferenceSetAttribute)) return kInternal;
  if (attribute == PREF_MAX_WORKSPACE_BYTES && size == 8) return memcpy(&p->workspace, value, 8), kSuccess;
#ifndef FAKE_HIPBLASLT
  if (attribute == PREF_REDUCTION_SCHEME_MASK && size == 4) return memcpy(&p->schemes, value, 4), kSuccess;
  const int operand = attribute - PREF_MIN_ALIGNMENT_A_BYTES;
  if (operand >= 0 && operand < 4 && size == 4) return memcpy(&p->alignments[operand], value, 4), kSuccess;
#endif
  return kInvalid;
}
int LT(MatmulPreferenceDestroy)(preference* p) {
  free(p);
  return kSuccess;
}

typedef struct {
  uint64_t m, n, k;
} sizes;

/* 0: they do not fit. */
static int sizes_of(const desc* e, const layout* a, const layout* b, const layout* d, sizes* out) {
  *out = (sizes){d->rows, d->columns, e->trans_a == OP_T ? a->rows : a->columns};
  return (e->trans_a == OP_T ? a->columns : a->rows) == out->m && (e->trans_b == OP_T ? b->rows : b->columns) == out->n &&
         (e->trans_b == OP_T ? b->columns : b->rows) == out->k;
}

int LT(MatmulAlgoGetHeuristic)(void* h, const desc* e, const layout* a, const layout* b, const layout* c, const layout* d,
                               const preference* p, int wanted, result* found, int* count) {
  if (FAILS(MatmulAlgoGetHeuristic)) return kInternal;
  *count = 0;
  if (fails("no algorithm")) return kSuccess;
  sizes z;
  if (h != &handle || wanted < 1 || e->compute != COMPUTE_32F || e->scale != R_32F || !sizes_of(e, a, b, d, &z)) return kInvalid;
  if ((e->trans_a != OP_N && e->trans_a != OP_T) || (e->trans_b != OP_N && e->trans_b != OP_T)) return kInvalid;
  if ((a->type != R_16F && a->type != R_16BF) || b->type != a->type || c->type != d->type ||
      (d->type != R_32F && d->type != a->type))
    return kUnsupported;
  if (p->workspace < 512) return kUnsupported;
#ifdef FAKE_HIPBLASLT
  if (e->pointer_mode != 0) return kUnsupported; /* any other is one of vectors */
#else
  if (e->pointer_mode != 0 && e->pointer_mode != POINTER_MODE_DEVICE) return kUnsupported;
  /* What is not fixed may differ from run to run; and no address of ours is aligned to 256 bytes for certain, the default. */
  if (p->schemes != 2) return kUnsupported;
  for (int i = 0; i < 4; ++i)
    if (p->alignments[i] != 16) return kUnsupported;
#endif
  memset(found, 0, sizeof *found);
  found->algo.data[0] = 42;
  found->workspace_size = 512;
  *count = 1;
  return kSuccess;
}

/* A factor where the pointer mode says that it is; NULL: it is elsewhere. */
static const float* factor(const desc* e, const float* at) {
  const int on_device = (uintptr_t)at >= FAKE_DEVICE_MEMORY;
  if (on_device != (e->pointer_mode != 0)) return NULL;
  return on_device ? (const float*)((uintptr_t)at - FAKE_DEVICE_MEMORY) : at;
}

static float read_element(const void* base, int type, uint64_t i) {
  float value;
  if (type == R_32F) return ((const float*)base)[i];
  if (type == R_16F) return (float)((const _Float16*)base)[i];
  const uint32_t bits = (uint32_t)((const uint16_t*)base)[i] << 16;
  memcpy(&value, &bits, 4);
  return value;
}
static void write_element(void* base, int type, uint64_t i, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (type == R_32F)
    ((float*)base)[i] = value;
  else if (type == R_16F)
    ((_Float16*)base)[i] = (_Float16)value;
  else
    ((uint16_t*)base)[i] = (uint16_t)(value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff);
}

int LT(Matmul)(void* h, const desc* e, const float* alpha, const void* a, const layout* la, const void* b, const layout* lb,
               const float* beta, const void* c, const layout* lc, void* d, const layout* ld, const algorithm* algo,
               void* workspace, size_t workspace_size, void* stream) {
  (void)stream;
  if (FAILS(Matmul)) return kInternal;
  sizes z;
  if (h != &handle || algo->data[0] != 42 || workspace_size < 512 || c != d || lc != ld || !sizes_of(e, la, lb, ld, &z))
    return kInvalid;
  alpha = factor(e, alpha), beta = factor(e, beta);
  if (alpha == NULL || beta == NULL) return kInvalid;
  memset(workspace, 0xff, workspace_size); /* it is the library's */
  for (uint64_t column = 0; column < z.n; ++column)
    for (uint64_t row = 0; row < z.m; ++row) {
      float sum = 0;
      for (uint64_t k = 0; k < z.k; ++k) {
        const uint64_t at_a = e->trans_a == OP_T ? row * (uint64_t)la->pitch + k : k * (uint64_t)la->pitch + row;
        const uint64_t at_b = e->trans_b == OP_T ? k * (uint64_t)lb->pitch + column : column * (uint64_t)lb->pitch + k;
        sum += read_element(a, la->type, at_a) * read_element(b, lb->type, at_b);
      }
      const uint64_t at_d = column * (uint64_t)ld->pitch + row;
      const float before = *beta != 0 ? *beta * read_element(c, lc->type, at_d) : 0;
      write_element(d, ld->type, at_d, *alpha * sum + before);
    }
  return kSuccess;
}
