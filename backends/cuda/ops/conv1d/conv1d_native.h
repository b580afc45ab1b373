// SPDX-License-Identifier: Apache-2.0
// conv1d_native.h -- what platform/conv1d_native.cpp lists for NVIDIA's GPUs: conv1d in their own instructions, files that no other
// build has. Each declines a device that lacks them.
#pragma once

#include "conv1d.h"

namespace narrows::gpu {

std::unique_ptr<Part> plan_fir_async(const CorrelationProblem& problem);       // conv1d_fir_sm80.cu
std::unique_ptr<Part> plan_gemm_pipelined(const CorrelationProblem& problem);  // conv1d_gemm_sm80.cu
std::unique_ptr<Part> plan_grad_w_gemm_pipelined(const SumProblem& problem);   // conv1d_gemm_grad_w_sm80.cu
std::unique_ptr<Part> plan_mma(const CorrelationProblem& problem);             // conv1d_mma_sm80.cu
std::unique_ptr<Part> plan_wgmma(const CorrelationProblem& problem);           // conv1d_wgmma_sm90a.cu
std::unique_ptr<Part> plan_split(const CorrelationProblem& problem);           // conv1d_split_sm90a.cu
std::unique_ptr<Part> plan_grad_w_split(const SumProblem& problem);            // conv1d_split_grad_w_sm90a.cu
std::unique_ptr<Part> plan_grad_w_wgmma(const SumProblem& problem);            // conv1d_wgmma_grad_w_sm90a.cu
std::unique_ptr<Part> plan_grad_w_mma(const SumProblem& problem);              // conv1d_mma_grad_w_sm80.cu

}  // namespace narrows::gpu
