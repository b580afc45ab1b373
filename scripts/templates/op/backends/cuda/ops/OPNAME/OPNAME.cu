// SPDX-License-Identifier: Apache-2.0
// OPNAME.cu -- OPNAME by one thread for each element: kernel, plan, launch. A faster kernel is a variant of its own, beside this
// one: ops/lltm/lltm.cu has several.
#include <narrows/plugin_space.hpp>

#include "ops/bytes.h"
#include "ops/dtype.h"

namespace narrows::gpu {
namespace {

constexpr const char* kKernels[] = {"scalar", nullptr};
constexpr int kThreads = 256;  // of a block

struct Elements {
  Space space;  // operand 0 is y, operand 1 is x
  int64_t count;

  // Bytes from the first element of an operand to its element i of the space.
  __device__ int64_t at(int operand, int64_t i) const {
    int64_t offset = space.offset[operand];
    for (int d = 0; d < space.ndim; i /= space.extent[d++]) offset += i % space.extent[d] * space.stride[operand][d];
    return offset;
  }
};

template <class A>
__device__ A compute(A x) {
  return x;
}

// Aligned: all elements lie on multiples of their size.
template <class T, bool Aligned>
__global__ void __launch_bounds__(kThreads) OPNAME_kernel(char* y, const char* x, Elements elements) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements.count; i += step) {
    char* const to = y + elements.at(0, i);
    const char* const from = x + elements.at(1, i);
    if constexpr (Aligned)
      *reinterpret_cast<T*>(to) = narrowed<T>(compute(widen(*reinterpret_cast<const T*>(from))));
    else
      store_bytes(to, narrowed<T>(compute(widen(load_bytes<T>(from)))));
  }
}

class OPCLASSPlan final : public Plan {
 public:
  explicit OPCLASSPlan(const nw_sig& sig) {
    const Dtype dtype = float_dtype(sig, 0);
    forced_kernel(sig, kKernels);  // an unknown one is refused
    kernel = kKernels[0];
    if (!has_elements(output(sig, 0))) return;
    const nw_tensor_sig* const operands[] = {&output(sig, 0), &input(sig, 0)};
    const int64_t sizes[] = {size_of(dtype), size_of(dtype)};
    collapse(output(sig, 0), operands, sizes, 2, 0, &elements_.space);
    elements_.count = 1;
    for (int d = 0; d < elements_.space.ndim; ++d) elements_.count *= elements_.space.extent[d];
    const bool aligned = is_aligned(input(sig, 0)) && is_aligned(output(sig, 0));
    kernel_ =
        with_dtype(dtype, [&]<class T>(T) { return load_kernel(aligned ? OPNAME_kernel<T, true> : OPNAME_kernel<T, false>); });
  }

  void launch(const nw_call& call) const override {
    if (elements_.count == 0) return;
    const int64_t blocks = std::min(ceil_div(elements_.count, kThreads), kMaxBlocks);
    launch_kernel(kernel_, blocks, kThreads, 0, stream_of(call), data<char>(call.outputs[0]), data<const char>(call.inputs[0]),
                  elements_);
  }

 private:
  Elements elements_{};
  LoadedKernel<char*, const char*, Elements> kernel_;
};

}  // namespace

const Op OPNAME = {"OPNAME", kKernels, [](const Instance&, const nw_sig& sig) -> std::unique_ptr<Plan> {
                     check_params_tail(sig, 0);            // without params
                     read_params<nw_FORWARD_params>(sig);  // with params
                     return std::make_unique<OPCLASSPlan>(sig);
                   }};

}  // namespace narrows::gpu
