/* SPDX-License-Identifier: Apache-2.0 */
/* hipblaslt_shim.c -- a libhipblaslt.so.1 of NVIDIA's GPUs: hipBLASLt's interface, as far as it is used here, before the machine's
 * cuBLASLt, for HIP on NVIDIA's platform. It turns the one's numbers into the other's, and asks for what hipBLASLt does by itself:
 * algorithms that take any address. Numbers and layouts are taken from the vendors' headers, not from ours. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0, kInvalid = 3, kInternal = 6, kUnsupported = 7 }; /* hipblasStatus_t */

typedef struct { /* cublasLtMatmulHeuristicResult_t */
  uint64_t algo[8];
  size_t workspace_size;
  int state;
  float waves;
  int reserved[4];
} cuda_result;
typedef struct { /* hipblasLtMatmulAlgo_t; data begins with the address of a cuda_result, which is never freed: plans may share it
                  */
  uint8_t data[16];
  size_t max_workspace_bytes;
} hip_algorithm;
typedef struct { /* hipblasLtMatmulHeuristicResult_t */
  hip_algorithm algo;
  size_t workspace_size;
  int state;
  float waves;
  int reserved[4];
} hip_result;

static void* function(const char* name) {
  void* file = dlopen("libcublasLt.so.13", RTLD_NOW);
  if (file == NULL) file = dlopen("libcublasLt.so.12", RTLD_NOW);
  return file == NULL ? NULL : dlsym(file, name);
}
/* Of cublasStatus_t: success, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED, and all others. */
static int status_of(int status) {
  return status == 0 ? kSuccess : status == 7 ? kInvalid : status == 15 ? kUnsupported : kInternal;
}
/* Calls NVIDIA's function of that name. */
#define FORWARD(name, types, ...)                                     \
  do {                                                                \
    int(*const call) types = (int(*) types)function("cublasLt" name); \
    return call == NULL ? kInternal : status_of(call(__VA_ARGS__));   \
  } while (0)

int hipblasLtCreate(void** handle) { FORWARD("Create", (void**), handle); }
int hipblasLtDestroy(void* handle) { FORWARD("Destroy", (void*), handle); }
int hipblasLtGetVersion(void* handle, int* version) {
  (void)handle;
  *version = 100000; /* 1.0.0 */
  return kSuccess;
}

int hipblasLtMatmulDescCreate(void** desc, int compute, int scale) {
  if (compute != 2) return kInvalid; /* HIPBLAS_COMPUTE_32F; CUBLAS_COMPUTE_32F is 68, hipDataType is cudaDataType_t */
  FORWARD("MatmulDescCreate", (void**, int, int), desc, 68, scale);
}
static int set_desc(void* desc, int attribute, int32_t value) {
  FORWARD("MatmulDescSetAttribute", (void*, int, const void*, size_t), desc, attribute, &value, sizeof value);
}
int hipblasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, size_t size) {
  int32_t operation;
  if (size != sizeof operation || attribute < 0 || attribute > 1) return kInvalid;
  memcpy(&operation, value, size);
  if (operation != 111 && operation != 112) return kInvalid; /* HIPBLAS_OP_N, HIPBLAS_OP_T */
  return set_desc(desc, attribute == 0 ? 3 : 4, operation - 111);
}
int hipblasLtMatmulDescDestroy(void* desc) { FORWARD("MatmulDescDestroy", (void*), desc); }

int hipblasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t pitch) {
  FORWARD("MatrixLayoutCreate", (void**, int, uint64_t, uint64_t, int64_t), layout, type, rows, columns, pitch);
}
int hipblasLtMatrixLayoutDestroy(void* layout) { FORWARD("MatrixLayoutDestroy", (void*), layout); }

static int create_preference(void** preference) { FORWARD("MatmulPreferenceCreate", (void**), preference); }
static int set_preference(void* preference, int attribute, const void* value, size_t size) {
  FORWARD("MatmulPreferenceSetAttribute", (void*, int, const void*, size_t), preference, attribute, value, size);
}
int hipblasLtMatmulPreferenceCreate(void** preference) {
  const uint32_t alignment = 16;
  int status = create_preference(preference);
  for (int attribute = 5; attribute <= 8 && status == kSuccess; ++attribute) /* CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES to D */
    status = set_preference(*preference, attribute, &alignment, sizeof alignment);
  return status;
}
int hipblasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t size) {
  return attribute == 1 && size == 8 ? set_preference(preference, 1, value, size) : kInvalid; /* the most workspace, in both */
}
int hipblasLtMatmulPreferenceDestroy(void* preference) { FORWARD("MatmulPreferenceDestroy", (void*), preference); }

static int choose(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, cuda_result* found, int* count) {
  FORWARD("MatmulAlgoGetHeuristic", (void*, void*, void*, void*, void*, void*, void*, int, cuda_result*, int*), handle, desc, a, b,
          c, d, preference, 1, found, count);
}
int hipblasLtMatmulAlgoGetHeuristic(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,
                                    hip_result* found, int* count) {
  cuda_result* const kept = wanted < 1 ? NULL : calloc(1, sizeof *kept);
  *count = 0;
  if (kept == NULL) return kInvalid;
  const int status = choose(handle, desc, a, b, c, d, preference, kept, count);
  memset(found, 0, sizeof *found);
  memcpy(found->algo.data, &kept, sizeof kept);
  found->algo.max_workspace_bytes = found->workspace_size = kept->workspace_size;
  found->state = status_of(kept->state);
  return status;
}

int hipblasLtMatmul(void* handle, void* desc, const void* alpha, const void* a, void* layout_a, const void* b, void* layout_b,
                    const void* beta, const void* c, void* layout_c, void* d, void* layout_d, const hip_algorithm* algo,
                    void* workspace, size_t workspace_size, void* stream) {
  const cuda_result* kept;
  memcpy(&kept, algo->data, sizeof kept);
  FORWARD("Matmul",
          (void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*,
           const uint64_t*, void*, size_t, void*),
          handle, desc, alpha, a, layout_a, b, layout_b, beta, c, layout_c, d, layout_d, kept->algo, workspace, workspace_size,
          stream);
}
