// SPDX-License-Identifier: Apache-2.0
// ceilings.h -- what a device reaches at best, measured by means that are not ours: the rates beside which `narrows bench`
// sets its own. Of the CPU there are none here: ./run bench has a copy for it.
#pragma once

#include "harness.h"

namespace narrows::test {

// Bytes per second, read and written, of a copy of 256 MiB within the device; 0: it can't be told.
double copy_ceiling();

// Floating-point operations per second of cuBLAS' product of two matrices of 8192 x 8192 elements, without TF32; 0: no cuBLAS, or
// not a CUDA device, or no such dtype.
double matrix_ceiling(DType dtype);

}  // namespace narrows::test
