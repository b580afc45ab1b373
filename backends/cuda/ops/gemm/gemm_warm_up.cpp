// SPDX-License-Identifier: Apache-2.0
// gemm_warm_up.cpp -- a product that is captured and never run.
#include <optional>

#include "backend.h"
#include "gemm_library.h"
#include "ops/relaxed_capture.h"

namespace narrows::gpu {

std::string warm_up(const Gemm& gemm, const GemmShape& shape) {
  const RelaxedCapture relaxed;
  // Nobody reads or writes there.
  const auto somewhere = [](uintptr_t place) { return reinterpret_cast<void*>(place << 40); };
  const float on_host = 1;
  const float* const factor = shape.factors_on_device ? static_cast<const float*>(somewhere(1)) : &on_host;
  gpuStream_t stream = nullptr;
  gpuGraph_t graph = nullptr;
  gpuError_t error = gpuStreamCreateWithFlags(&stream, gpuStreamNonBlocking);
  if (status_of(error) == NW_DEVICE_LOST) check(error, "creating a stream");
  if (error != gpuSuccess) return gpuGetErrorString(error);
  std::optional<Refusal> refused;
  error = gpuStreamBeginCapture(stream, gpuStreamCaptureModeRelaxed);
  if (error == gpuSuccess) {
    try {
      gemm.launch(factor, somewhere(2), somewhere(3), factor, somewhere(4), somewhere(5), stream);
    } catch (const Refusal& refusal) {
      refused = refusal;
    }
    error = gpuStreamEndCapture(stream, &graph);
  }
  if (graph != nullptr) (void)gpuGraphDestroy(graph);
  (void)gpuStreamDestroy(stream);
  if (status_of(error) == NW_DEVICE_LOST) check(error, "warming a product up");
  if (refused && refused->status == NW_DEVICE_LOST) throw *refused;
  return refused ? refused->message : error != gpuSuccess ? gpuGetErrorString(error) : "";
}

}  // namespace narrows::gpu
