// SPDX-License-Identifier: Apache-2.0
// relaxed_capture.h -- planning while a stream is being captured.
#pragma once

#include "gpu.h"

namespace narrows::gpu {

// While it lives, this thread may do what a capture under way would forbid it, such as allocate. What is captured does not change.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)gpuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)gpuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  gpuStreamCaptureMode mode_ = gpuStreamCaptureModeRelaxed;  // then what it was before
};

}  // namespace narrows::gpu
