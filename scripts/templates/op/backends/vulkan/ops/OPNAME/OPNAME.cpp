// SPDX-License-Identifier: Apache-2.0
// OPNAME.cpp -- plans and records OPNAME. A faster kernel is a variant of its own, beside this one: ops/lltm/lltm.cpp has several.
#include <narrows/plugin_space.hpp>

#include "ops/gemm/gemm.h"

namespace narrows::vulkan {
namespace {

constexpr const char* kKernels[] = {"scalar", nullptr};
constexpr ByDtype kModules = NARROWS_BY_DTYPE(OPNAME);
constexpr int64_t kThreads = 64;  // of a work group

// As in shaders/OPNAME/OPNAME.comp.
struct Elements {
  int64_t count, dimensions, offset[2];  // of y, of x
  int64_t extent[NW_MAX_NDIM], stride[2][NW_MAX_NDIM];
};
static_assert(NW_MAX_NDIM == 16);
struct Push {
  Address y, x, elements;
};

class OPCLASSPlan final : public DevicePlan {
 public:
  OPCLASSPlan(Device& device, const nw_sig& sig) : DevicePlan(device) {
    const Dtype dtype = float_dtype(sig, 0);
    forced_kernel(sig, kKernels);  // an unknown one is refused
    kernel = kKernels[0];
    if (!has_elements(output(sig, 0))) return;
    read(sig, size_of(dtype));
    const bool aligned = is_aligned(input(sig, 0)) && is_aligned(output(sig, 0));
    kernel_ = device.kernels().get(kModules.of(dtype), {!aligned});
  }

  void record(Recorder& recorder, const nw_call& call) const override {
    if (elements_.count == 0) return;
    const Push push{address(call.outputs[0]), address(call.inputs[0]), recorder.params(elements_)};
    recorder.dispatch(kernel_, push, ceil_div(elements_.count, kThreads));
  }

 private:
  void read(const nw_sig& sig, int64_t size) {
    const nw_tensor_sig* const operands[] = {&output(sig, 0), &input(sig, 0)};
    const int64_t sizes[] = {size, size};
    Space space{};
    collapse(output(sig, 0), operands, sizes, 2, 0, &space);
    elements_.count = 1;
    elements_.dimensions = space.ndim;
    for (int d = 0; d < space.ndim; ++d) elements_.count *= elements_.extent[d] = space.extent[d];
    for (int operand = 0; operand < 2; ++operand) {
      elements_.offset[operand] = space.offset[operand];
      std::copy_n(space.stride[operand], space.ndim, elements_.stride[operand]);
    }
  }

  Elements elements_{};
  Kernel kernel_;
};

}  // namespace

const Op OPNAME = {"OPNAME", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                     check_params_tail(sig, 0);            // without params
                     read_params<nw_FORWARD_params>(sig);  // with params
                     return std::make_unique<OPCLASSPlan>(instance.device(sig), sig);
                   }};

}  // namespace narrows::vulkan
