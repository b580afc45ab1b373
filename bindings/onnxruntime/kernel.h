// SPDX-License-Identifier: Apache-2.0
// kernel.h -- one node of a model, and its calls.
#pragma once

#include <narrows/narrows.h>
#include <onnxruntime_c_api.h>

#include <vector>

namespace narrows::onnxruntime {

// How ONNX names a dtype; ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED: it has no such one.
ONNXTensorElementDataType onnx_dtype(DLDataType dtype);

class Kernel {
 public:
  Kernel(const nw_op& op, nw_runtime* rt, const OrtApi& api, const OrtKernelInfo* info);  // std::invalid_argument

  // Runs the op on the inputs of a call, into outputs that it makes. NULL: it is done.
  OrtStatus* run(OrtKernelContext* context) const;

 private:
  struct Tensor {
    DLTensor tensor{};
    int64_t shape[NW_MAX_NDIM];
  };

  OrtStatus* read(const OrtValue* value, const char* name, Tensor& to) const;
  OrtStatus* make_output(OrtKernelContext* context, uint32_t j, const nw_spec& spec, Tensor& to) const;
  OrtStatus* refused(int32_t status, const char* message) const;

  const nw_op& op_;
  nw_runtime* const rt_;
  const OrtApi& api_;
  const std::vector<unsigned char> params_;
};

}  // namespace narrows::onnxruntime
