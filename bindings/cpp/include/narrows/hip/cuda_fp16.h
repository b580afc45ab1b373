/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of CUDA's cuda_fp16.h: see cuda_names.h. */
#include "cuda_names.h"
