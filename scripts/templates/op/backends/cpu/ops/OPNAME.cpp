// SPDX-License-Identifier: Apache-2.0
// OPNAME.cpp -- OPNAME as plain loops: kernel, plan, launch. A kernel in vectors is a variant of its own, beside this one:
// ops/lltm/lltm.cpp has both.
#include <narrows/plugin_space.hpp>

#include "float_types.h"
#include "tasks.h"

namespace narrows::cpu {
namespace {

constexpr const char* kKernels[] = {"scalar", nullptr};
constexpr int64_t kBlock = 4096;  // elements of a task

template <class A>
A compute(A x) {
  return x;
}

class OPCLASSPlan final : public Plan {
 public:
  OPCLASSPlan(const Instance& instance, const nw_sig& sig) : instance_(instance), dtype_(float_dtype(sig, 0)) {
    forced_kernel(sig, kKernels);  // an unknown one is refused
    kernel = kKernels[0];
    const nw_tensor_sig* const operands[] = {&output(sig, 0), &input(sig, 0)};
    const int64_t sizes[] = {size_of(dtype_), size_of(dtype_)};
    if (!has_elements(output(sig, 0))) return;
    collapse(output(sig, 0), operands, sizes, 2, 0, &space_);
    elements_ = 1;
    for (int d = 0; d < space_.ndim; ++d) elements_ *= space_.extent[d];
  }

  void launch(const nw_call& call) const override {
    run_tasks(instance_, ceil_div(elements_, kBlock), kBlock, [&](int64_t, int64_t begin, int64_t end) {
      with_dtype(dtype_, [&]<class T>(T) {
        auto* const y = data<char>(call.outputs[0]);
        const auto* const x = data<const char>(call.inputs[0]);
        for (int64_t i = begin * kBlock; i < std::min(end * kBlock, elements_); ++i)
          write(reinterpret_cast<T*>(y + at(0, i)), compute(read(reinterpret_cast<const T*>(x + at(1, i)))));
      });
    });
  }

 private:
  // Bytes from the first element of an operand, y or x, to its element i of the space.
  int64_t at(int operand, int64_t i) const {
    int64_t offset = space_.offset[operand];
    for (int d = 0; d < space_.ndim; i /= space_.extent[d++]) offset += i % space_.extent[d] * space_.stride[operand][d];
    return offset;
  }

  const Instance& instance_;
  Dtype dtype_;
  Space space_{};
  int64_t elements_ = 0;
};

std::unique_ptr<Plan> plan(const Instance& instance, const nw_sig& sig) {
  check_params_tail(sig, 0);            // without params
  read_params<nw_FORWARD_params>(sig);  // with params
  return std::make_unique<OPCLASSPlan>(instance, sig);
}

}  // namespace

extern const Op OPNAME;  // plugin.cpp lists it, by core/ops/ops.inc
const Op OPNAME = {"OPNAME", kKernels, plan};

}  // namespace narrows::cpu
