/* SPDX-License-Identifier: Apache-2.0 */
/* golden.c -- the layout, the constants and the functions of the ABI, fixed as numbers: whoever moves a field, changes a type or
 * renumbers a constant breaks this file's compilation. Compiled as C99 and as C++17, on the build machine and for arm64; it has no
 * code to run. inventory.cmake sees to it that no struct, field, constant or function of the headers is missing.
 * Old lines are never edited. What is appended gets a line below, and its struct a new SIZE; scripts/freeze_abi.sh moves the lines
 * into the release that they appear in. */
#include "releases/0.1.0/golden.c"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */

/* Appended since the newest release. */

/* abi.h */

VALUE(NW_FITS, 2)
FIELD(nw_call, max_threads, 104, uint64_t)
FIELD(nw_op, input_dtypes, 96, const DLDataType*)
FIELD(nw_op, output_dtypes, 104, const DLDataType*)
FIELD(nw_op, batch, 112, const char*)
VALUE(NW_OP_AUTOCAST, 4)
VALUE(NW_EW_SINC, 77)

/* plugin.h */

SLOT(nw_host, usable_threads, 32, uint32_t, (void* ctx))
SLOT(nw_host, extension, 40, const void*, (void* ctx, const char* backend, const char* name))
SLOT(nw_plugin, plan_program, 176, int32_t, (void* self, const nw_program_text* program, const nw_sig* sig, void** plan, nw_plan_info* info, nw_error* error))
FIELD(nw_plugin, program_kernels, 184, const char* const*)
FIELD(nw_program_text, struct_size, 0, uint32_t)
FIELD(nw_program_text, flags, 4, uint32_t)
FIELD(nw_program_text, text, 8, const char*)
FIELD(nw_program_text, scheduled, 16, const char*)

/* narrows.h */

int32_t nw_set_num_threads(nw_runtime* rt, int64_t num_threads, nw_error* error);
uint32_t nw_get_num_threads(nw_runtime* rt);
int32_t nw_load_behind(nw_runtime* rt, const char* absolute_path, nw_error* error);

/* narrows.h */

int32_t nw_runtime_default(nw_runtime** out, nw_error* error);
const nw_op* nw_op_at(nw_runtime* rt, uint32_t index);
int32_t nw_load_program(nw_runtime* rt, const char* text, const char* backward, const nw_op** out, nw_error* error);
int32_t nw_schedule_program(nw_runtime* rt, const char* op, const char* backend, const char* scheduled, nw_error* error);

/* program.h */

int32_t nw_program_parse(const char* text, nw_program** out, nw_error* error);
int32_t nw_program_clone(const nw_program* program, nw_program** out, nw_error* error);
void nw_program_free(nw_program* program);
int32_t nw_program_step(nw_program* program, const char* step, const char* const** names, nw_error* error);
int32_t nw_program_print(nw_program* program, const char** text, nw_error* error);
int32_t nw_program_trace(nw_program* program, const char** trace, nw_error* error);
int32_t nw_program_name(nw_program* program, const char** name, nw_error* error);
int32_t nw_program_digest(nw_program* program, const char** digest, nw_error* error);
int32_t nw_program_blocks(nw_program* program, const char* const** names, nw_error* error);
int32_t nw_program_auto(nw_program* program, const char* backend, nw_error* error);
int32_t nw_program_loops(nw_program* program, const char* block, const char* const** names, nw_error* error);
int32_t nw_program_vjp(const nw_program* program, nw_program** out, nw_error* error);
int32_t nw_program_export(nw_runtime* rt, const nw_program* const* programs, uint32_t num_programs, const char* backend, const char* op, const char* path, nw_error* error);
int32_t nw_program_load(nw_runtime* rt, const nw_program* program, const char* backward, const char* backend, const nw_op** out, nw_error* error);
int32_t nw_program_load_saved(nw_runtime* rt, const char* saved, const nw_op** out, nw_error* error);
FIELD(nw_program_source, struct_size, 0, uint32_t)
FIELD(nw_program_source, flags, 4, uint32_t)
FIELD(nw_program_source, self, 8, void*)
SLOT(nw_program_source, source, 16, int32_t, (void* self, const char* text, char* out, uint64_t size, uint64_t* needed, nw_error* error))
SLOT(nw_program_source, compiler, 24, int32_t, (void* self, char* out, uint64_t size, uint64_t* needed, nw_error* error))

FIELD(nw_program_exporter, struct_size, 0, uint32_t)
FIELD(nw_program_exporter, flags, 4, uint32_t)
FIELD(nw_program_exporter, self, 8, void*)
SLOT(nw_program_exporter, write, 16, int32_t, (void* self, const char* const* texts, uint32_t num_texts, const char* op, const char* path, nw_error* error))

/* vulkan.h */

FIELD(nw_vulkan_device, struct_size, 0, uint32_t)
FIELD(nw_vulkan_device, queue_family, 4, uint32_t)
FIELD(nw_vulkan_device, instance, 8, void*)
FIELD(nw_vulkan_device, physical_device, 16, void*)
FIELD(nw_vulkan_device, device, 24, void*)
FIELD(nw_vulkan_device, queue, 32, void*)
FIELD(nw_vulkan_device, features, 40, const void*)
FIELD(nw_vulkan_device, lock_ctx, 48, void*)
SLOT(nw_vulkan_device, lock, 56, void, (void* lock_ctx))
SLOT(nw_vulkan_device, unlock, 64, void, (void* lock_ctx))

FIELD(nw_vulkan, struct_size, 0, uint32_t)
FIELD(nw_vulkan, flags, 4, uint32_t)
FIELD(nw_vulkan, self, 8, void*)
SLOT(nw_vulkan, device, 16, int32_t, (void* self, int32_t device_id, nw_vulkan_device* out, nw_error* error))
SLOT(nw_vulkan, adopt_device, 24, int32_t, (void* self, const nw_vulkan_device* device, int32_t* device_id, nw_error* error))
SLOT(nw_vulkan, release_device, 32, int32_t, (void* self, int32_t device_id, nw_error* error))
SLOT(nw_vulkan, add_memory, 40, int32_t, (void* self, int32_t device_id, uint64_t buffer, uint64_t address, uint64_t size, nw_error* error))
SLOT(nw_vulkan, remove_memory, 48, int32_t, (void* self, int32_t device_id, uint64_t address, nw_error* error))
SLOT(nw_vulkan, import_host, 56, int32_t, (void* self, int32_t device_id, void* pointer, uint64_t size, void** data, nw_error* error))
SLOT(nw_vulkan, alloc_exportable, 64, int32_t, (void* self, int32_t device_id, uint64_t size, void** data, int32_t* fd, uint64_t* allocation_size, nw_error* error))
SLOT(nw_vulkan, stream_point, 72, int32_t, (void* self, int32_t device_id, void* stream, uint64_t* semaphore, uint64_t* value, nw_error* error))
SLOT(nw_vulkan, stream_signal, 80, int32_t, (void* self, int32_t device_id, void* stream, uint64_t semaphore, uint64_t value, nw_error* error))
SLOT(nw_vulkan, stream_wait, 88, int32_t, (void* self, int32_t device_id, void* stream, uint64_t semaphore, uint64_t value, nw_error* error))
SLOT(nw_vulkan, semaphore_create, 96, int32_t, (void* self, int32_t device_id, uint64_t* semaphore, int32_t* fd, nw_error* error))
SLOT(nw_vulkan, semaphore_destroy, 104, int32_t, (void* self, int32_t device_id, uint64_t semaphore, nw_error* error))

VALUE(NW_VULKAN_UNORDERED, 1)
FIELD(nw_vulkan_dispatch, struct_size, 0, uint32_t)
FIELD(nw_vulkan_dispatch, flags, 4, uint32_t)
FIELD(nw_vulkan_dispatch, module, 8, const void*)
FIELD(nw_vulkan_dispatch, constants, 16, const uint32_t*)
FIELD(nw_vulkan_dispatch, push, 24, const void*)
FIELD(nw_vulkan_dispatch, num_constants, 32, uint32_t)
FIELD(nw_vulkan_dispatch, push_size, 36, uint32_t)
ARRAY(nw_vulkan_dispatch, groups, 40, uint32_t, 3)
FIELD(nw_vulkan_dispatch, reserved, 52, uint32_t)

FIELD(nw_vulkan_kernels, struct_size, 0, uint32_t)
FIELD(nw_vulkan_kernels, flags, 4, uint32_t)
FIELD(nw_vulkan_kernels, self, 8, void*)
FIELD(nw_vulkan_kernels, plugin, 16, const struct nw_plugin*)
SLOT(nw_vulkan_kernels, module, 24, int32_t, (void* self, const uint32_t* words, uint64_t size, const void** out, nw_error* error))
SLOT(nw_vulkan_kernels, launch, 32, int32_t, (void* self, const nw_call* call, const nw_vulkan_dispatch* const* dispatches, uint32_t count, nw_error* error))

/* ops.h */

FIELD(nw_lltm_sequence_params, batch_first, 0, int64_t)
FIELD(nw_lltm_sequence_params, reverse, 8, int64_t)
FIELD(nw_lltm_sequence_params, recompute, 16, int64_t)

/* Now: exact sizes of what may grow. */

SIZE(nw_sig, 64)
SIZE(nw_call, 112)
SIZE(nw_op, 120)
SIZE(nw_plan_info, 32)
SIZE(nw_device_info, 288)
SIZE(nw_conv1d_params, 48)
SIZE(nw_elementwise_params, 48)
SIZE(nw_lltm_sequence_params, 24)
SIZE(nw_host, 48)
SIZE(nw_plugin, 192)
SIZE(nw_program_text, 24)
SIZE(nw_program_source, 32)
SIZE(nw_program_exporter, 24)
SIZE(nw_options, 40)
SIZE(nw_backend_info, 64)
SIZE(nw_vulkan_device, 72)
SIZE(nw_vulkan, 112)
SIZE(nw_vulkan_dispatch, 56)
SIZE(nw_vulkan_kernels, 40)
VALUE(NW_ABI_MINOR, 2)

#ifdef __cplusplus
}
#endif
