// gemm_rehearsal.cpp -- a product that is captured and never run. Step 5 of a tensor's path.
#include "ops/gemm_library.h"
#include "relaxed_capture.h"

namespace narrows::gpu {

std::string rehearse(const Gemm& gemm, const GemmShape& shape) {
  const RelaxedCapture relaxed;
  // Nobody reads or writes there.
  const auto somewhere = [](uintptr_t place) { return reinterpret_cast<void*>(place << 40); };
  const float on_host = 1;
  const float* const factor = shape.factors_on_device ? static_cast<const float*>(somewhere(1)) : &on_host;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  std::string refused;
  error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
  if (error == cudaSuccess) {
    try {
      gemm.launch(factor, somewhere(2), somewhere(3), factor, somewhere(4), somewhere(5), stream);
    } catch (const common::Refusal& refusal) {
      refused = refusal.message;
    }
    error = cudaStreamEndCapture(stream, &graph);
  }
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  (void)cudaStreamDestroy(stream);
  return !refused.empty() ? refused : error != cudaSuccess ? cudaGetErrorString(error) : "";
}

}  // namespace narrows::gpu
