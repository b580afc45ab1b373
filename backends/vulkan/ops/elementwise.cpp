// elementwise.cpp -- plans and records elementwise. Step 5 of a tensor's path.
#include "common/elementwise.h"

#include "backend.h"
#include "common/space.h"

namespace narrows::vulkan {
namespace {

constexpr const char* kKernels[] = {"vector", nullptr};

struct Push {
  Address a, b, c;
  uint32_t count, padding;
};

class ElementwisePlan final : public DevicePlan {
 public:
  ElementwisePlan(Device& device, const ElementwiseRequest& request) : DevicePlan(device) {
    const nw_sig& sig = request.sig;
    const nw_tensor_sig* operands[] = {&output(sig, 0), &input(sig, 0), &input(sig, 1)};
    if (request.params.function != NW_EW_ADD || request.dtype != NW_DTYPE_FLOAT32 || !has_input(sig, 1))
      refuse(NW_UNSUPPORTED, -1, "elementwise: this backend adds two f32 tensors so far");
    const int64_t sizes[] = {4, 4, 4};
    Space space;
    collapse(output(sig, 0), operands, sizes, 3, 0, &space);
    if (space.ndim > 1 || (space.ndim == 1 && (space.stride[0][0] != 4 || space.stride[1][0] != 4 || space.stride[2][0] != 4)))
      refuse(NW_UNSUPPORTED, -1, "elementwise: this backend takes contiguous tensors so far");
    count_ = is_empty(output(sig, 0)) ? 0 : space.ndim == 0 ? 1 : space.extent[0];
    forced_kernel(sig, kKernels);
    kernel = kKernels[0];
    kernel_ = device.kernels().get(shaders::elementwise_add_f32);
  }
  void record(Recorder& recorder, const nw_call& call) const override {
    const Push push{address(call.inputs[0]), address(call.inputs[1]), address(call.outputs[0]), static_cast<uint32_t>(count_), 0};
    recorder.dispatch(kernel_, push, ceil_div(count_, 256));
  }

 private:
  int64_t count_ = 0;
  Kernel kernel_;
};

}  // namespace

const Op elementwise = {"elementwise", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                          return std::make_unique<ElementwisePlan>(instance.device(sig), read_elementwise(sig));
                        }};

}  // namespace narrows::vulkan
