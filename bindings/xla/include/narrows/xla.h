/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file xla.h
 * @brief The handlers by which XLA calls every op, exported by libnarrows_xla.so.
 *
 * A program that runs saved JAX programs through XLA or PJRT registers them and needs no Python.
 * docs/models.md has an example.
 */
#ifndef NARROWS_XLA_H
#define NARROWS_XLA_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
/** Marks a function that libnarrows_xla exports. */
#define NW_XLA_API __attribute__((visibility("default")))
#else
#define NW_XLA_API
#endif

struct XLA_FFI_Error;
struct XLA_FFI_CallFrame;

/**
 * @defgroup xla XLA
 *
 * Each handler is an `XLA_FFI_Handler` of version 0.1 of XLA's interface (xla/ffi/api/c_api.h).
 * Register it for the execute stage:
 *
 * | target | platform | handler |
 * |---|---|---|
 * | "narrows" | Host | nw_xla_cpu() |
 * | "narrows_capturable" | Host | nw_xla_cpu() |
 * | "narrows" | CUDA, ROCM | nw_xla_cuda(), nw_xla_rocm() |
 * | "narrows_capturable" | CUDA, ROCM | nw_xla_cuda_capturable(), nw_xla_rocm_capturable() |
 *
 * A handler returns NULL when the call is done, or enqueued on XLA's stream. Else it returns an
 * error, which XLA destroys. The first call makes nw_runtime_default(), which loads the plugins of
 * `NARROWS_PLUGIN_PATH`. Any thread may call.
 * @{
 */

/** Runs a call on the CPU. */
NW_XLA_API struct XLA_FFI_Error* nw_xla_cpu(struct XLA_FFI_CallFrame* frame);
/** Enqueues a call on an NVIDIA GPU. */
NW_XLA_API struct XLA_FFI_Error* nw_xla_cuda(struct XLA_FFI_CallFrame* frame);
/** The same with XLA's trait `COMMAND_BUFFER_COMPATIBLE`: XLA may put the call into a graph. */
NW_XLA_API struct XLA_FFI_Error* nw_xla_cuda_capturable(struct XLA_FFI_CallFrame* frame);
/** Enqueues a call on an AMD GPU. */
NW_XLA_API struct XLA_FFI_Error* nw_xla_rocm(struct XLA_FFI_CallFrame* frame);
/** The same with XLA's trait `COMMAND_BUFFER_COMPATIBLE`: XLA may put the call into a graph. */
NW_XLA_API struct XLA_FFI_Error* nw_xla_rocm_capturable(struct XLA_FFI_CallFrame* frame);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
