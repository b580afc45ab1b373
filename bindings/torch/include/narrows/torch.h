/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file torch.h
 * @brief Every op of the default runtime for torch's dispatcher, exported by libnarrows_torch.so.
 *
 * The library needs torch 2.10 or later in the process, and is built without it. Loading or linking
 * it registers the ops as `torch.ops.narrows`: the built-in ones and those of the plugins that
 * nw_runtime_default() finds. These functions are for programs that load more plugins, or torch
 * later. They serve programs with and without Python.
 */
#ifndef NARROWS_TORCH_H
#define NARROWS_TORCH_H

#include <narrows/narrows.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup torch torch
 * @{
 */

/**
 * Registers with torch the ops of the default runtime that are not registered yet. To be called
 * again after nw_load(). In a process that has imported the Python package it does nothing: the
 * package registers the ops.
 *
 * #NW_UNAVAILABLE: there is no torch in this process. #NW_UNSUPPORTED: it lacks a symbol, which is
 * named. #NW_FAILED: torch refuses an op, which is named; all others are registered.
 */
NW_API int32_t nw_torch_register(nw_error* error);

/** The version of this library, such as "0.1.0". */
NW_API const char* nw_torch_version(void);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
