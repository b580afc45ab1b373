// SPDX-License-Identifier: Apache-2.0
// calls.h -- calls of the ops through the public API, on tensors with numbers of their own: what they give can be compared, bit for
// bit, with what they give where the device says something else of itself, or is in other trouble.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "runtime.h"

namespace narrows::vulkan::test {

using Bytes = std::vector<unsigned char>;
using Shape = std::vector<int64_t>;

constexpr DLDataType kF32 = {kDLFloat, 32, 1}, kF64 = {kDLFloat, 64, 1}, kF16 = {kDLFloat, 16, 1}, kBf16 = {kDLBfloat, 16, 1},
                     kI32 = {kDLInt, 32, 1}, kU8 = {kDLUInt, 8, 1}, kBool = {kDLBool, 8, 1};

// Of a call; without a dtype it is absent.
struct Tensor {
  DLDataType dtype{};
  Shape shape, strides;  // no strides: C-contiguous
  int64_t first = 0;     // the element of its memory at which it begins
  bool is_there() const { return dtype.bits != 0; }
  int64_t elements() const;  // of its memory
};

struct Call {
  std::string name;
  const char* op;
  std::vector<Tensor> inputs, outputs;
  Bytes params;
};

// Call{..., params(p)}.
template <class Params>
Bytes params(const Params& of_op) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(&of_op);
  return Bytes(begin, begin + sizeof of_op);
}

// A call whose tensors are on device 0, freed with it: inputs of multiples of 1/8 from -1 to 1, so that most sums of products are
// exact, or of small integers; outputs of what nobody writes.
class Prepared {
 public:
  Prepared(const Runtime& rt, const Call& call, const char* kernel = nullptr);
  ~Prepared();
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  int32_t run(nw_error* error = nullptr) { return nw_run(rt_.handle, &handed, error); }
  nw_plan_info plan() const;               // of the call, which is one that is taken
  void give_workspace();                   // of the size that the plan asks for, from now on
  void fill_workspace(int byte);           // all of it
  void reset();                            // inputs and outputs are as they were before the call
  void swap(size_t input, size_t output);  // the memory of the two, which is of one size
  std::vector<Bytes> outputs() const;      // all of their memory, when the default stream is done
  nw_call handed{};

 private:
  void write(void* to, const Bytes& bytes) const;
  const Tensor& tensor(size_t i) const {
    return i < call_.inputs.size() ? call_.inputs[i] : call_.outputs[i - call_.inputs.size()];
  }
  const Runtime& rt_;
  const Call call_;  // whose shapes the tensors point to
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
};

// The variants that the backend lists for an op, after nullptr.
std::vector<const char*> kernels(const Runtime& rt, const char* op);

// ---- the six ops ----

// number: what stands for b and c of floats where they are absent.
Call elementwise(int32_t function, const std::vector<Tensor>& inputs, const Tensor& out, double number = 0);
// The gradients of all operands; `out` is the shape of grad_out. absent: grad_out is.
Call elementwise_backward(int32_t function, const std::vector<Tensor>& inputs, const Tensor& out, bool absent = false,
                          double number = 0);
struct Conv {
  int64_t batch, channels, length, outs, taps;
  nw_conv1d_params params{};
  int64_t outputs() const;
};
Call conv1d(DLDataType dtype, const Conv& conv);
Call conv1d_backward(DLDataType dtype, const Conv& conv, bool absent = false);  // grad_y is
Call lltm(DLDataType dtype, int64_t batch, int64_t features, int64_t state);
Call lltm_backward(DLDataType dtype, int64_t batch, int64_t features, int64_t state, bool absent = false);  // both gradients are

}  // namespace narrows::vulkan::test
