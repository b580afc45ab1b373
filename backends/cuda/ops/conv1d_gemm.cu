#include "conv1d.h"
namespace narrows::gpu {
std::unique_ptr<Part> plan_gemm(const CorrelationProblem&) { return nullptr; }
std::unique_ptr<Part> plan_grad_w_gemm(const SumProblem&) { return nullptr; }
}
