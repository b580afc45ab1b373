/* fake_cublaslt.c -- a libcublasLt.so.13, and a .12, that works on host memory, for machines without a GPU, and that fails where it
 * is told to: FAKE_CUBLASLT_FAILS names the function, FAKE_CUBLASLT_FILE the one library that fails (12 or 13; else both do). Its
 * numbers are taken from NVIDIA's headers, not from ours. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0, kInvalid = 7, kInternal = 14, kUnsupported = 15 };
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14, CUBLAS_COMPUTE_32F = 68 };

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
  uint64_t data[8];
} algorithm;
typedef struct {
  algorithm algo;
  size_t workspace_size;
  int state;
  float waves;
  int reserved[4];
} result;

static int fails(const char* function) {
  const char *named = getenv("FAKE_CUBLASLT_FAILS"), *file = getenv("FAKE_CUBLASLT_FILE");
  if (file != NULL && atoi(file) != FAKE_CUBLASLT_VERSION) return 0;
  return named != NULL && strcmp(named, function) == 0;
}

static int handle;
int cublasLtCreate(void** out) {
  *out = &handle;
  return fails("cublasLtCreate") ? kInternal : kSuccess;
}

int cublasLtMatmulDescCreate(desc** out, int compute, int scale) {
  if (fails("cublasLtMatmulDescCreate")) return kInternal;
  *out = calloc(1, sizeof **out);
  (*out)->compute = compute, (*out)->scale = scale;
  return kSuccess;
}
int cublasLtMatmulDescSetAttribute(desc* d, int attribute, const void* value, size_t size) {
  if (fails("cublasLtMatmulDescSetAttribute")) return kInternal;
  if (size != 4 || attribute < 2 || attribute > 4) return kInvalid;
  memcpy(attribute == 2 ? &d->pointer_mode : attribute == 3 ? &d->trans_a : &d->trans_b, value, size);
  return kSuccess;
}
int cublasLtMatmulDescDestroy(desc* d) {
  free(d);
  return kSuccess;
}

int cublasLtMatrixLayoutCreate(layout** out, int type, uint64_t rows, uint64_t columns, int64_t pitch) {
  if (fails("cublasLtMatrixLayoutCreate")) return kInternal;
  if (pitch < (int64_t)rows) return kInvalid;
  *out = calloc(1, sizeof **out);
  **out = (layout){type, rows, columns, pitch};
  return kSuccess;
}
int cublasLtMatrixLayoutDestroy(layout* l) {
  free(l);
  return kSuccess;
}

int cublasLtMatmulPreferenceCreate(preference** out) {
  if (fails("cublasLtMatmulPreferenceCreate")) return kInternal;
  *out = calloc(1, sizeof **out);
  return kSuccess;
}
int cublasLtMatmulPreferenceSetAttribute(preference* p, int attribute, const void* value, size_t size) {
  if (fails("cublasLtMatmulPreferenceSetAttribute")) return kInternal;
  if (attribute == 1 && size == 8)
    memcpy(&p->workspace, value, 8);
  else if (attribute == 3 && size == 4)
    memcpy(&p->schemes, value, 4);
  else if (attribute >= 5 && attribute <= 8 && size == 4)
    memcpy(&p->alignments[attribute - 5], value, 4);
  else
    return kInvalid;
  return kSuccess;
}
int cublasLtMatmulPreferenceDestroy(preference* p) {
  free(p);
  return kSuccess;
}

typedef struct {
  uint64_t m, n, k;
} sizes;

static int sizes_of(const desc* e, const layout* a, const layout* b, const layout* d, sizes* out) {
  *out = (sizes){d->rows, d->columns, e->trans_a ? a->rows : a->columns};
  return (e->trans_a ? a->columns : a->rows) == out->m && (e->trans_b ? b->rows : b->columns) == out->n &&
         (e->trans_b ? b->columns : b->rows) == out->k;
}

int cublasLtMatmulAlgoGetHeuristic(void* h, const desc* e, const layout* a, const layout* b, const layout* c, const layout* d,
                                   const preference* p, int wanted, result* found, int* count) {
  if (fails("cublasLtMatmulAlgoGetHeuristic")) return kInternal;
  *count = 0;
  if (fails("no algorithm")) return kSuccess;
  sizes z;
  if (h != &handle || wanted < 1 || e->compute != CUBLAS_COMPUTE_32F || e->scale != CUDA_R_32F || !sizes_of(e, a, b, d, &z))
    return kInvalid;
  if ((a->type != CUDA_R_16F && a->type != CUDA_R_16BF) || b->type != a->type || c->type != d->type ||
      (d->type != CUDA_R_32F && d->type != a->type))
    return kUnsupported;
  /* What is not fixed may differ from run to run; and no address of ours is aligned to 256 bytes for certain, the default. */
  if (p->schemes != 2 || p->workspace == 0) return kUnsupported;
  for (int i = 0; i < 4; ++i)
    if (p->alignments[i] != 16) return kUnsupported;
  memset(found, 0, sizeof *found);
  found->algo.data[0] = 42;
  found->workspace_size = 512;
  *count = 1;
  return kSuccess;
}

static float read_element(const void* base, int type, uint64_t i) {
  float value;
  if (type == CUDA_R_32F) return ((const float*)base)[i];
  if (type == CUDA_R_16F) return (float)((const _Float16*)base)[i];
  const uint32_t bits = (uint32_t)((const uint16_t*)base)[i] << 16;
  memcpy(&value, &bits, 4);
  return value;
}
static void write_element(void* base, int type, uint64_t i, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (type == CUDA_R_32F)
    ((float*)base)[i] = value;
  else if (type == CUDA_R_16F)
    ((_Float16*)base)[i] = (_Float16)value;
  else
    ((uint16_t*)base)[i] = (uint16_t)(value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff);
}

int cublasLtMatmul(void* h, const desc* e, const float* alpha, const void* a, const layout* la, const void* b, const layout* lb,
                   const float* beta, const void* c, const layout* lc, void* d, const layout* ld, const algorithm* algo,
                   void* workspace, size_t workspace_size, void* stream) {
  (void)stream;
  if (fails("cublasLtMatmul")) return kInternal;
  sizes z;
  if (h != &handle || algo->data[0] != 42 || workspace_size < 512 || c != d || lc != ld || !sizes_of(e, la, lb, ld, &z))
    return kInvalid;
  memset(workspace, 0xff, workspace_size); /* it is the library's */
  for (uint64_t column = 0; column < z.n; ++column)
    for (uint64_t row = 0; row < z.m; ++row) {
      float sum = 0;
      for (uint64_t k = 0; k < z.k; ++k) {
        const uint64_t at_a = e->trans_a ? row * (uint64_t)la->pitch + k : k * (uint64_t)la->pitch + row;
        const uint64_t at_b = e->trans_b ? k * (uint64_t)lb->pitch + column : column * (uint64_t)lb->pitch + k;
        sum += read_element(a, la->type, at_a) * read_element(b, lb->type, at_b);
      }
      const uint64_t at_d = column * (uint64_t)ld->pitch + row;
      const float before = *beta != 0 ? *beta * read_element(c, lc->type, at_d) : 0;
      write_element(d, ld->type, at_d, *alpha * sum + before);
    }
  return kSuccess;
}
