// gemm_rehearsal.cpp -- a product that is captured and never run. Step 5 of a tensor's path.
#include "gemm_library.h"
#include "relaxed_capture.h"

namespace narrows::gpu {

std::string rehearse(const Gemm& gemm, const GemmShape& shape) {
  const RelaxedCapture relaxed;
  // Nobody reads or writes there.
  const auto somewhere = [](uintptr_t place) { return reinterpret_cast<void*>(place << 40); };
  const float on_host = 1;
  const float* const factor = shape.factors_on_device ? static_cast<const float*>(somewhere(1)) : &on_host;
  gpuStream_t stream = nullptr;
  gpuGraph_t graph = nullptr;
  gpuError_t error = gpuStreamCreateWithFlags(&stream, gpuStreamNonBlocking);
  if (error != gpuSuccess) return gpuGetErrorString(error);
  std::string refused;
  error = gpuStreamBeginCapture(stream, gpuStreamCaptureModeRelaxed);
  if (error == gpuSuccess) {
    try {
      gemm.launch(factor, somewhere(2), somewhere(3), factor, somewhere(4), somewhere(5), stream);
    } catch (const common::Refusal& refusal) {
      refused = refusal.message;
    }
    error = gpuStreamEndCapture(stream, &graph);
  }
  if (graph != nullptr) (void)gpuGraphDestroy(graph);
  (void)gpuStreamDestroy(stream);
  return !refused.empty() ? refused : error != gpuSuccess ? gpuGetErrorString(error) : "";
}

}  // namespace narrows::gpu
