// SPDX-License-Identifier: Apache-2.0
// lltm_library.cu -- lltm in f16 and bf16 with the vendor's library: two products into the workspace, of old_h and of input, then a
// kernel of cells.
#include "lltm_library.h"

#include "lltm_cell.h"
#include "lltm_native.h"

namespace narrows::gpu {

struct LltmGemms {
  std::unique_ptr<const Gemm> states, features;  // features nullptr: there are none
  uint64_t gates_size;
};

namespace {

void launch(const LltmChoice& choice, const LltmForward& p, gpuStream_t stream) {
  constexpr float kZero = 0, kOne = 1;
  const LltmGemms& gemms = *choice.gemms;
  char* const gemm_workspace = p.workspace + gemms.gates_size;
  gemms.states->launch(&kOne, p.old_h.base, p.weights.base, &kZero, p.workspace, gemm_workspace, stream);
  if (gemms.features != nullptr)
    gemms.features->launch(&kOne, p.input.base, p.weights.base + p.state * 2, &kOne, p.workspace, gemm_workspace, stream);
  launch_kernel(reinterpret_cast<void (*)(LltmForward)>(const_cast<void*>(choice.kernel)), choice.blocks, choice.threads, 0, stream,
                p);
}

// Hopper's own variant is faster where a reduction is so short that what surrounds the library's products takes much of the time,
// and where its tiles of 128 rows and 64 states, in pairs, just fill the GPU.
bool is_faster_by_wgmma(const LltmRequest& request) {
  constexpr int64_t kShort = 1024;
  const LltmSizes& z = request.sizes;
  const int64_t blocks = ceil_div(z.batch, 128) * ceil_div(z.state, 128) * 2, all = request.device.multiprocessors;
  const bool gains = z.state + z.features <= kShort || (blocks <= all && blocks >= all * 9 / 10);
  return gains && request.device.compute_capability == 90 && lltm_native().wgmma != nullptr &&
         lltm_native().wgmma(request).kernel != nullptr;
}

}  // namespace

bool is_for_library(const LltmSizes& sizes, bool forced) {
  constexpr int64_t kMost = int64_t{1} << 28;
  const int64_t unit = kGemmAlignment / 2;  // of elements of 16 bits
  if (size_of(sizes.dtype) != 2 || sizes.batch == 0 || sizes.state == 0 || sizes.state % unit != 0 || sizes.features % unit != 0 ||
      sizes.batch >= kMost || sizes.state >= kMost || sizes.features >= kMost)
    return false;
  if (forced || !blaslt::kGivesSameBits) return forced;
  const double multiply_adds =
      3.0 * static_cast<double>(sizes.batch) * static_cast<double>(sizes.state) * static_cast<double>(sizes.state + sizes.features);
  const double gates_size = 12.0 * static_cast<double>(sizes.batch) * static_cast<double>(sizes.state);
  return multiply_adds >= static_cast<double>(kLeastForLibrary) && gates_size <= static_cast<double>(kMostForLibrary);
}

bool has_library_rows(const nw_tensor_sig& tensor) {
  const Strides2 strides = strides2(tensor);
  return strides.column == 1 && strides.row >= tensor.shape[1] && strides.row * 2 % kGemmAlignment == 0 &&
         int64_t{1} << tensor.align_log2 >= kGemmAlignment;
}

LltmChoice lltm_library(const LltmRequest& request) {
  const LltmSizes& z = request.sizes;
  const int64_t blocks = z.batch * cell_blocks_of_row(z.state);
  const auto has_rows = [&](uint32_t i) { return has_library_rows(input(request.sig, i)); };
  if (!is_for_library(z, request.forced) || (!request.forced && is_faster_by_wgmma(request)) || !request.aligned ||
      !has_rows(lltm_forward::kOldH) || !has_rows(lltm_forward::kWeights) || (z.features != 0 && !has_rows(lltm_forward::kInput)) ||
      blocks > kMaxBlocks)
    return {};
  LltmChoice choice;
  auto gemms = std::make_shared<LltmGemms>();
  const auto plan = [&](uint32_t operand, int64_t depth) {
    const GemmShape shape = {z.dtype,
                             Dtype::f32,
                             z.batch,
                             3 * z.state,
                             depth,
                             {strides2(input(request.sig, operand)).row, false},
                             {strides2(input(request.sig, lltm_forward::kWeights)).row, true},
                             {3 * z.state, false},
                             false};
    auto gemm = plan_gemm(request.device.id, shape, &choice.reason);
    if (gemm != nullptr) choice.reason = warm_up(*gemm, shape);
    return gemm;
  };
  gemms->states = plan(lltm_forward::kOldH, z.state);
  if (!choice.reason.empty()) return choice;
  if (z.features != 0) gemms->features = plan(lltm_forward::kInput, z.features);
  if (!choice.reason.empty()) return choice;
  gemms->gates_size = static_cast<uint64_t>(ceil_div(z.batch * 3 * z.state * 4, 256) * 256);
  choice.workspace_size =
      gemms->gates_size + std::max(gemms->states->workspace_size, gemms->features ? gemms->features->workspace_size : 0);
  choice.kernel = kernel_address(z.dtype == Dtype::f16 ? lltm_cells_kernel<f16> : lltm_cells_kernel<bf16>);
  choice.blocks = blocks, choice.threads = kCellThreads, choice.launch = launch, choice.traits = kLibraryTraits;
  choice.gemms = std::move(gemms);
  return choice;
}

}  // namespace narrows::gpu
