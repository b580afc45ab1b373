// SPDX-License-Identifier: Apache-2.0
// lltm.cu -- plans and launches lltm, and its plainest kernel. Every variant of our own is one kernel of one signature, so a plan
// is a kernel and a grid; but for some, which launch themselves.
#include "lltm_as_conv1d.h"
#include "lltm_cell.h"
#include "lltm_library.h"
#include "lltm_native.h"

namespace narrows::gpu {
namespace {

constexpr int kScalarThreads = 256;

// One thread for each cell, which reads its operands as they lie.
template <class T, bool Aligned>
__global__ void __launch_bounds__(kScalarThreads) lltm_scalar_kernel(LltmForward p) {
  using A = Accumulate<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kScalarThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kScalarThreads + threadIdx.x; i < p.batch * p.state; i += step) {
    const int64_t b = i / p.state, s = i % p.state;
    A sums[3] = {};
    for (int64_t k = 0; k < p.state; ++k) {
      const A x = read<T, Aligned>(p.old_h, b, k);
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) sums[gate] += x * read<T, Aligned>(p.weights, gate * p.state + s, k);
    }
    for (int64_t k = 0; k < p.features; ++k) {
      const A x = read<T, Aligned>(p.input, b, k);
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) sums[gate] += x * read<T, Aligned>(p.weights, gate * p.state + s, p.state + k);
    }
    update_cell<T, Aligned>(p, b, s, sums);
  }
}

using namespace lltm_forward;

using Variant = LltmChoice (*)(const LltmRequest&);

LltmChoice native(Variant variant, const LltmRequest& request) {
  if (variant != nullptr) return variant(request);
  LltmChoice none;
  none.reason = "this build has none";
  return none;
}
LltmChoice pipelined(const LltmRequest& request) { return native(lltm_native().pipelined, request); }
LltmChoice mma(const LltmRequest& request) { return native(lltm_native().mma, request); }
LltmChoice wgmma(const LltmRequest& request) { return native(lltm_native().wgmma, request); }

constexpr const char* kKernels[] = {blaslt::kVariant, "wgmma", "wgmma_split", "mma", "pipelined", "fused", "scalar", nullptr};
// In the order in which they are tried; the last takes all.
constexpr Variant kVariants[] = {lltm_library, wgmma, lltm_as_conv1d, mma, pipelined, lltm_fused, lltm_scalar};
// For the words of a refusal.
constexpr const char* kNeeds[] = {
    "it needs f16 or bf16, states and features in eights, and contiguous rows at multiples of 16 bytes",
    "it needs f16 or bf16, sm_90, states in eights, contiguous rows at multiples of 16 bytes, and pairs of contiguous cells",
    "it needs f32, sm_90, and tensors that are aligned to their elements",
    "it needs f16 or bf16 on sm_80 or newer, else sm_90; states, features and contiguous rows at multiples of 16 bytes",
    "it needs f32, sm_80 or newer, and states, features and contiguous rows at multiples of 16 bytes",
    "it needs tensors that are aligned to their elements",
    "it is never asked"};

class LltmPlan final : public Plan {
 public:
  LltmPlan(const Instance& instance, const nw_sig& sig) {
    sizes_ = lltm_sizes(sig, kInput, kOldH);
    read_strides(sig, inputs_, outputs_);
    const int forced = forced_kernel(sig, kKernels);
    const bool aligned = std::all_of(sig.tensors, sig.tensors + sig.num_inputs + sig.num_outputs, is_aligned);
    choose({sig, instance.device(sig), sizes_, aligned, forced >= 0}, forced);
  }

  void launch(const nw_call& call) const override {
    if (choice_.blocks == 0) return;
    const auto matrix = [](const DLTensor* tensor, Strides2 strides) {
      return Matrix{data<char>(tensor), strides.row, strides.column};
    };
    const auto in = [&](uint32_t i) { return matrix(call.inputs[i], inputs_[i]); };
    const auto out = [&](uint32_t i) { return matrix(i < call.num_outputs ? call.outputs[i] : nullptr, outputs_[i]); };
    const LltmForward tensors{sizes_.batch, sizes_.features, sizes_.state, in(kInput),
                              in(kWeights), in(kBias),       in(kOldH),    in(kOldCell),
                              out(kNewH),   out(kNewCell),   out(kGates),  static_cast<char*>(call.workspace)};
    if (choice_.launch != nullptr) return choice_.launch(choice_, tensors, stream_of(call));
    launch_kernel(kernel_, choice_.blocks, choice_.threads, choice_.shared, stream_of(call), tensors);
  }

 private:
  void choose(const LltmRequest& request, int forced) {
    int variant = std::max(forced, 0);
    choice_ = kVariants[variant](request);
    while (choice_.kernel == nullptr && forced < 0) choice_ = kVariants[++variant](request);
    if (choice_.kernel == nullptr)
      refuse(NW_UNSUPPORTED, -1, "lltm: kernel '%s' does not take this call of %s: %s", kKernels[variant], name_of(sizes_.dtype),
             choice_.reason.empty() ? kNeeds[variant] : choice_.reason.c_str());
    kernel = kKernels[variant];
    traits |= choice_.traits;
    workspace_size = choice_.workspace_size;
    if (sizes_.batch == 0 || sizes_.state == 0) choice_.blocks = 0;
    kernel_ = {reinterpret_cast<void (*)(LltmForward)>(const_cast<void*>(choice_.kernel)),
               load_kernel(choice_.kernel, choice_.shared)};
  }

  LltmSizes sizes_;
  Strides2 inputs_[kNumInputs], outputs_[kNumOutputs];
  LltmChoice choice_;
  LoadedKernel<LltmForward> kernel_;
};

}  // namespace

LltmChoice lltm_scalar(const LltmRequest& request) {
  const int64_t cells = request.sizes.state == 0 ? 0 : request.sizes.batch * request.sizes.state;
  const int64_t blocks = std::min(ceil_div(cells, kScalarThreads), kMaxBlocks);
  return with_dtype(request.sizes.dtype, [&]<class T>(T) -> LltmChoice {
    return {kernel_address(request.aligned ? lltm_scalar_kernel<T, true> : lltm_scalar_kernel<T, false>), blocks, kScalarThreads};
  });
}

const Op lltm = {"lltm", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                   check_params_tail(sig, 0);
                   return std::make_unique<LltmPlan>(instance, sig);
                 }};

}  // namespace narrows::gpu
