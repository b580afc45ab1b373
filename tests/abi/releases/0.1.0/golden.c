/* What 0.1.0 promised for good, in terms of golden.h. Written by scripts/freeze_abi.sh; never edited. */
#include "../../golden.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */

/* What the headers stand on. */
SIZE(void*, 8)
SIZE(DLTensor, 48)
FIELD(DLTensor, data, 0, void*)
FIELD(DLTensor, device, 8, DLDevice)
FIELD(DLTensor, ndim, 16, int32_t)
FIELD(DLTensor, dtype, 20, DLDataType)
FIELD(DLTensor, shape, 24, int64_t*)
FIELD(DLTensor, strides, 32, int64_t*)
FIELD(DLTensor, byte_offset, 40, uint64_t)
SIZE(DLDevice, 8)
GOLDEN(offsetof(DLDevice, device_id) == 4)
SIZE(DLDataType, 4)
FIELD(DLDataType, code, 0, uint8_t)
FIELD(DLDataType, bits, 1, uint8_t)
FIELD(DLDataType, lanes, 2, uint16_t)
GOLDEN(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

/* abi.h */

SIZE(nw_error, 512)
FIELD(nw_error, status, 0, int32_t)
FIELD(nw_error, argument, 4, int32_t)
FIELD(nw_error, native_code, 8, int64_t)
ARRAY(nw_error, message, 16, char, 496)

SIZE(nw_spec, 136)
FIELD(nw_spec, dtype, 0, DLDataType)
FIELD(nw_spec, ndim, 4, int32_t)
ARRAY(nw_spec, shape, 8, int64_t, 16)

SIZE(nw_tensor_sig, 32)
FIELD(nw_tensor_sig, dtype, 0, DLDataType)
FIELD(nw_tensor_sig, ndim, 4, int32_t)
FIELD(nw_tensor_sig, align_log2, 8, uint16_t)
FIELD(nw_tensor_sig, flags, 10, uint16_t)
FIELD(nw_tensor_sig, alias_of, 12, int32_t)
FIELD(nw_tensor_sig, shape, 16, const int64_t*)
FIELD(nw_tensor_sig, strides, 24, const int64_t*)

FIELD(nw_sig, struct_size, 0, uint32_t)
FIELD(nw_sig, flags, 4, uint32_t)
FIELD(nw_sig, num_inputs, 8, uint32_t)
FIELD(nw_sig, num_outputs, 12, uint32_t)
FIELD(nw_sig, op, 16, const char*)
FIELD(nw_sig, kernel, 24, const char*)
FIELD(nw_sig, tensors, 32, const nw_tensor_sig*)
FIELD(nw_sig, params, 40, const void*)
FIELD(nw_sig, params_size, 48, uint64_t)
FIELD(nw_sig, device, 56, DLDevice)

FIELD(nw_call, struct_size, 0, uint32_t)
FIELD(nw_call, flags, 4, uint32_t)
FIELD(nw_call, num_inputs, 8, uint32_t)
FIELD(nw_call, num_outputs, 12, uint32_t)
FIELD(nw_call, op, 16, const char*)
FIELD(nw_call, inputs, 24, const DLTensor* const*)
FIELD(nw_call, outputs, 32, const DLTensor* const*)
FIELD(nw_call, params, 40, const void*)
FIELD(nw_call, params_size, 48, uint64_t)
FIELD(nw_call, stream, 56, void*)
FIELD(nw_call, workspace, 64, void*)
FIELD(nw_call, workspace_size, 72, uint64_t)
FIELD(nw_call, device, 80, DLDevice)
FIELD(nw_call, backend, 88, const char*)
FIELD(nw_call, kernel, 96, const char*)

SIZE(nw_param, 32)
FIELD(nw_param, name, 0, const char*)
FIELD(nw_param, dtype, 8, DLDataType)
FIELD(nw_param, offset, 12, uint32_t)
FIELD(nw_param, values, 16, const char* const*)
FIELD(nw_param, initial, 24, double)

FIELD(nw_op, struct_size, 0, uint32_t)
FIELD(nw_op, flags, 4, uint32_t)
FIELD(nw_op, name, 8, const char*)
FIELD(nw_op, min_inputs, 16, uint32_t)
FIELD(nw_op, max_inputs, 20, uint32_t)
FIELD(nw_op, num_outputs, 24, uint32_t)
FIELD(nw_op, num_aux, 28, uint32_t)
FIELD(nw_op, inputs, 32, const char* const*)
FIELD(nw_op, outputs, 40, const char* const*)
FIELD(nw_op, params_size, 48, uint64_t)
FIELD(nw_op, shape_rule, 56, const char*)
FIELD(nw_op, backward, 64, const char*)
FIELD(nw_op, saved, 72, uint64_t)
FIELD(nw_op, kernels, 80, const char* const*)
FIELD(nw_op, params, 88, const nw_param* const*)

FIELD(nw_plan_info, struct_size, 0, uint32_t)
FIELD(nw_plan_info, traits, 4, uint32_t)
FIELD(nw_plan_info, workspace_size, 8, uint64_t)
FIELD(nw_plan_info, kernel, 16, const char*)
FIELD(nw_plan_info, backend, 24, const char*)

FIELD(nw_device_info, struct_size, 0, uint32_t)
FIELD(nw_device_info, flags, 4, uint32_t)
ARRAY(nw_device_info, name, 8, char, 128)
ARRAY(nw_device_info, arch, 136, char, 128)
ARRAY(nw_device_info, uuid, 264, uint8_t, 16)
FIELD(nw_device_info, total_memory, 280, uint64_t)

/* ops.h */

FIELD(nw_conv1d_params, stride, 0, int64_t)
FIELD(nw_conv1d_params, dilation, 8, int64_t)
FIELD(nw_conv1d_params, groups, 16, int64_t)
FIELD(nw_conv1d_params, pad_left, 24, int64_t)
FIELD(nw_conv1d_params, pad_right, 32, int64_t)
FIELD(nw_conv1d_params, padding_mode, 40, int64_t)

FIELD(nw_elementwise_params, function, 0, int32_t)
FIELD(nw_elementwise_params, out_dtype, 4, int32_t)
FIELD(nw_elementwise_params, alpha, 8, double)
FIELD(nw_elementwise_params, b_real, 16, double)
FIELD(nw_elementwise_params, b_int, 24, int64_t)
FIELD(nw_elementwise_params, c_real, 32, double)
FIELD(nw_elementwise_params, c_int, 40, int64_t)

/* plugin.h */

FIELD(nw_host, struct_size, 0, uint32_t)
FIELD(nw_host, num_threads, 4, uint32_t)
FIELD(nw_host, ctx, 8, void*)
SLOT(nw_host, log, 16, void, (void* ctx, int32_t level, const char* message))
SLOT(nw_host, parallel_for, 24, void,
     (void* ctx, int64_t n, int64_t grain, void (*body)(void* arg, int64_t begin, int64_t end), void* arg))

FIELD(nw_plugin, struct_size, 0, uint32_t)
FIELD(nw_plugin, abi_major, 4, uint32_t)
FIELD(nw_plugin, name, 8, const char*)
FIELD(nw_plugin, version, 16, const char*)
FIELD(nw_plugin, device_type, 24, int32_t)
FIELD(nw_plugin, pinned_type, 28, int32_t)
FIELD(nw_plugin, managed_type, 32, int32_t)
FIELD(nw_plugin, num_ops, 36, uint32_t)
FIELD(nw_plugin, ops, 40, const nw_op* const*)
SLOT(nw_plugin, create, 48, int32_t, (const nw_host* host, void** self, nw_error* error))
SLOT(nw_plugin, destroy, 56, void, (void* self))
SLOT(nw_plugin, device_count, 64, int32_t, (void* self, int32_t* count, nw_error* error))
SLOT(nw_plugin, device_info, 72, int32_t, (void* self, int32_t device_id, nw_device_info* out, nw_error* error))
SLOT(nw_plugin, alloc, 80, int32_t, (void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error))
SLOT(nw_plugin, free, 88, int32_t, (void* self, int32_t device_id, void* data, void* stream, nw_error* error))
SLOT(nw_plugin, copy, 96, int32_t,
     (void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error* error))
SLOT(nw_plugin, stream_create, 104, int32_t, (void* self, int32_t device_id, void** stream, nw_error* error))
SLOT(nw_plugin, stream_destroy, 112, int32_t, (void* self, int32_t device_id, void* stream, nw_error* error))
SLOT(nw_plugin, stream_sync, 120, int32_t, (void* self, int32_t device_id, void* stream, nw_error* error))
SLOT(nw_plugin, stream_wait, 128, int32_t, (void* self, int32_t device_id, void* waiter, void* signaler, nw_error* error))
SLOT(nw_plugin, infer, 136, int32_t,
     (void* self, const nw_sig* inputs_only, nw_spec* outputs, uint32_t num_outputs, nw_error* error))
SLOT(nw_plugin, plan, 144, int32_t, (void* self, const nw_sig* sig, void** plan, nw_plan_info* info, nw_error* error))
SLOT(nw_plugin, plan_free, 152, void, (void* self, void* plan))
SLOT(nw_plugin, launch, 160, int32_t, (void* self, const void* plan, const nw_call* call, nw_error* error))
SLOT(nw_plugin, extension, 168, const void*, (void* self, const char* name))

/* narrows.h */

FIELD(nw_options, struct_size, 0, uint32_t)
FIELD(nw_options, num_threads, 4, uint32_t)
FIELD(nw_options, plugin_path, 8, const char*)
SLOT(nw_options, log, 16, void, (void* ctx, int32_t level, const char* message))
FIELD(nw_options, log_ctx, 24, void*)
FIELD(nw_options, plan_cache_capacity, 32, uint32_t)
FIELD(nw_options, flags, 36, uint32_t)

FIELD(nw_backend_info, struct_size, 0, uint32_t)
FIELD(nw_backend_info, status, 4, int32_t)
FIELD(nw_backend_info, name, 8, const char*)
FIELD(nw_backend_info, version, 16, const char*)
FIELD(nw_backend_info, path, 24, const char*)
FIELD(nw_backend_info, reason, 32, const char*)
FIELD(nw_backend_info, device_type, 40, int32_t)
FIELD(nw_backend_info, device_count, 44, int32_t)
FIELD(nw_backend_info, num_ops, 48, uint32_t)
FIELD(nw_backend_info, flags, 52, uint32_t)
FIELD(nw_backend_info, ops, 56, const nw_op* const*)

/* constants of abi.h */
VALUE(NW_ABI_MAJOR, 1)
VALUE(NW_MAX_NDIM, 16)
VALUE(NW_MAX_TENSORS, 32)
VALUE(NW_WORKSPACE_ALIGN, 256)
VALUE(NW_OK, 0)
VALUE(NW_INVALID, 1)
VALUE(NW_UNSUPPORTED, 2)
VALUE(NW_UNAVAILABLE, 3)
VALUE(NW_OUT_OF_MEMORY, 4)
VALUE(NW_NOT_CAPTURABLE, 5)
VALUE(NW_FAILED, 6)
VALUE(NW_DEVICE_LOST, 7)
VALUE(NW_DETERMINISTIC, 1)
VALUE(NW_OP_INPLACE, 1)
VALUE(NW_OP_BATCHABLE, 2)
VALUE(NW_PLAN_CAPTURABLE, 1)
VALUE(NW_PLAN_NONDETERMINISTIC, 2)

/* constants of ops.h */
VALUE(NW_PADDING_ZEROS, 0)
VALUE(NW_DTYPE_FLOAT32, 1)
VALUE(NW_DTYPE_FLOAT64, 2)
VALUE(NW_DTYPE_FLOAT16, 3)
VALUE(NW_DTYPE_BFLOAT16, 4)
VALUE(NW_DTYPE_INT8, 5)
VALUE(NW_DTYPE_INT16, 6)
VALUE(NW_DTYPE_INT32, 7)
VALUE(NW_DTYPE_INT64, 8)
VALUE(NW_DTYPE_UINT8, 9)
VALUE(NW_DTYPE_UINT16, 10)
VALUE(NW_DTYPE_UINT32, 11)
VALUE(NW_DTYPE_UINT64, 12)
VALUE(NW_DTYPE_BOOL, 13)
VALUE(NW_EW_NEG, 1)
VALUE(NW_EW_ABS, 2)
VALUE(NW_EW_SIGN, 3)
VALUE(NW_EW_SQUARE, 4)
VALUE(NW_EW_SQRT, 5)
VALUE(NW_EW_RSQRT, 6)
VALUE(NW_EW_CBRT, 7)
VALUE(NW_EW_EXP, 8)
VALUE(NW_EW_EXP2, 9)
VALUE(NW_EW_EXPM1, 10)
VALUE(NW_EW_LOG, 11)
VALUE(NW_EW_LOG2, 12)
VALUE(NW_EW_LOG10, 13)
VALUE(NW_EW_LOG1P, 14)
VALUE(NW_EW_SIN, 15)
VALUE(NW_EW_COS, 16)
VALUE(NW_EW_TAN, 17)
VALUE(NW_EW_ASIN, 18)
VALUE(NW_EW_ACOS, 19)
VALUE(NW_EW_ATAN, 20)
VALUE(NW_EW_SINH, 21)
VALUE(NW_EW_COSH, 22)
VALUE(NW_EW_TANH, 23)
VALUE(NW_EW_ASINH, 24)
VALUE(NW_EW_ACOSH, 25)
VALUE(NW_EW_ATANH, 26)
VALUE(NW_EW_SIGMOID, 27)
VALUE(NW_EW_RELU, 28)
VALUE(NW_EW_ELU, 29)
VALUE(NW_EW_GELU, 30)
VALUE(NW_EW_GELU_TANH, 31)
VALUE(NW_EW_SILU, 32)
VALUE(NW_EW_SOFTPLUS, 33)
VALUE(NW_EW_ERF, 34)
VALUE(NW_EW_ERFC, 35)
VALUE(NW_EW_FLOOR, 36)
VALUE(NW_EW_CEIL, 37)
VALUE(NW_EW_ROUND, 38)
VALUE(NW_EW_TRUNC, 39)
VALUE(NW_EW_RECIPROCAL, 40)
VALUE(NW_EW_LOGICAL_NOT, 41)
VALUE(NW_EW_BITWISE_NOT, 42)
VALUE(NW_EW_ISNAN, 43)
VALUE(NW_EW_ISINF, 44)
VALUE(NW_EW_ISFINITE, 45)
VALUE(NW_EW_CAST, 46)
VALUE(NW_EW_ADD, 47)
VALUE(NW_EW_SUB, 48)
VALUE(NW_EW_MUL, 49)
VALUE(NW_EW_DIV, 50)
VALUE(NW_EW_POW, 51)
VALUE(NW_EW_ATAN2, 52)
VALUE(NW_EW_HYPOT, 53)
VALUE(NW_EW_MAXIMUM, 54)
VALUE(NW_EW_MINIMUM, 55)
VALUE(NW_EW_FMOD, 56)
VALUE(NW_EW_REMAINDER, 57)
VALUE(NW_EW_COPYSIGN, 58)
VALUE(NW_EW_LOGADDEXP, 59)
VALUE(NW_EW_EQ, 60)
VALUE(NW_EW_NE, 61)
VALUE(NW_EW_LT, 62)
VALUE(NW_EW_LE, 63)
VALUE(NW_EW_GT, 64)
VALUE(NW_EW_GE, 65)
VALUE(NW_EW_LOGICAL_AND, 66)
VALUE(NW_EW_LOGICAL_OR, 67)
VALUE(NW_EW_LOGICAL_XOR, 68)
VALUE(NW_EW_BITWISE_AND, 69)
VALUE(NW_EW_BITWISE_OR, 70)
VALUE(NW_EW_BITWISE_XOR, 71)
VALUE(NW_EW_BITWISE_LEFT_SHIFT, 72)
VALUE(NW_EW_BITWISE_RIGHT_SHIFT, 73)
VALUE(NW_EW_FMA, 74)
VALUE(NW_EW_WHERE, 75)
VALUE(NW_EW_CLAMP, 76)

/* constants of plugin.h */
VALUE(NW_LOG_DEBUG, 0)
VALUE(NW_LOG_INFO, 1)
VALUE(NW_LOG_WARNING, 2)
VALUE(NW_LOG_ERROR, 3)
TEXT(NW_PLUGIN_QUERY, "narrows_plugin_query")

/* constants of narrows.h */
VALUE(NW_BACKEND_SHADOWED, 1)

/* functions of narrows.h, and the one that a plugin exports */
uint32_t nw_abi_major(void);
const char* nw_version(void);
const char* nw_status_name(int32_t status);
int32_t nw_runtime_create(const nw_options* options, nw_runtime** out, nw_error* error);
void nw_runtime_destroy(nw_runtime* rt);
int32_t nw_load(nw_runtime* rt, const char* absolute_path, nw_error* error);
uint32_t nw_backend_count(nw_runtime* rt);
int32_t nw_backend(nw_runtime* rt, uint32_t index, nw_backend_info* out, nw_error* error);
int32_t nw_device(nw_runtime* rt, DLDevice device, nw_device_info* out, nw_error* error);
int32_t nw_find_op(nw_runtime* rt, const char* name, const nw_op** out, nw_error* error);
const void* nw_extension(nw_runtime* rt, const char* backend, const char* name);
int32_t nw_run(nw_runtime* rt, const nw_call* call, nw_error* error);
int32_t nw_infer(nw_runtime* rt, const nw_call* call, nw_spec* outputs, uint32_t num_outputs, nw_error* error);
int32_t nw_plan_get(nw_runtime* rt, const nw_call* call, nw_plan** out, nw_plan_info* info, nw_error* error);
int32_t nw_launch(const nw_plan* plan, const nw_call* call, nw_error* error);
void nw_plan_release(nw_plan* plan);
void nw_plan_cache_clear(nw_runtime* rt);
int32_t nw_alloc(nw_runtime* rt, DLDevice device, uint64_t size, void* stream, void** data, nw_error* error);
int32_t nw_free(nw_runtime* rt, DLDevice device, void* data, void* stream, nw_error* error);
int32_t nw_copy(nw_runtime* rt, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream,
                nw_error* error);
int32_t nw_stream_create(nw_runtime* rt, DLDevice device, void** stream, nw_error* error);
int32_t nw_stream_destroy(nw_runtime* rt, DLDevice device, void* stream, nw_error* error);
int32_t nw_stream_sync(nw_runtime* rt, DLDevice device, void* stream, nw_error* error);
int32_t nw_stream_wait(nw_runtime* rt, DLDevice device, void* waiter, void* signaler, nw_error* error);
const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error);
extern nw_plugin_query_fn golden_query;
extern const nw_plugin* (*golden_query)(uint32_t host_major, nw_error* error);

/* Sizes and counters, which may have grown since. */

GROWING(nw_sig, 64)
GROWING(nw_call, 104)
GROWING(nw_op, 96)
GROWING(nw_plan_info, 32)
GROWING(nw_device_info, 288)
GROWING(nw_conv1d_params, 48)
GROWING(nw_elementwise_params, 48)
GROWING(nw_host, 32)
GROWING(nw_plugin, 176)
GROWING(nw_options, 40)
GROWING(nw_backend_info, 64)
AT_LEAST(NW_ABI_MINOR, 0)

#ifdef __cplusplus
}
#endif
