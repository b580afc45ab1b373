// SPDX-License-Identifier: Apache-2.0
// kernel.cpp -- see kernel.h. ONNX Runtime's tensors are contiguous.
#include "bindings/onnxruntime/kernel.h"

#include <memory>
#include <string>
#include <utility>

#include "bindings/onnxruntime/params.h"

namespace narrows::onnxruntime {
namespace {

constexpr std::pair<ONNXTensorElementDataType, DLDataType> kDtypes[] = {
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, {kDLFloat, 32, 1}},   {ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, {kDLFloat, 64, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, {kDLFloat, 16, 1}}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, {kDLBfloat, 16, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, {kDLInt, 8, 1}},       {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, {kDLInt, 16, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, {kDLInt, 32, 1}},     {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, {kDLInt, 64, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, {kDLUInt, 8, 1}},     {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, {kDLUInt, 16, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, {kDLUInt, 32, 1}},   {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, {kDLUInt, 64, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, {kDLBool, 8, 1}},
};

}  // namespace

ONNXTensorElementDataType onnx_dtype(DLDataType dtype) {
  for (const auto& [onnx, own] : kDtypes)
    if (own.code == dtype.code && own.bits == dtype.bits && dtype.lanes == 1) return onnx;
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

Kernel::Kernel(const nw_op& op, nw_runtime* rt, const OrtApi& api, const OrtKernelInfo* info)
    : op_(op), rt_(rt), api_(api), params_(read_params(op, api, info)) {}

OrtStatus* Kernel::refused(int32_t status, const char* message) const {
  const OrtErrorCode code = status == NW_INVALID       ? ORT_INVALID_ARGUMENT
                            : status == NW_UNSUPPORTED ? ORT_NOT_IMPLEMENTED
                                                       : ORT_RUNTIME_EXCEPTION;
  return api_.CreateStatus(code, message);
}

OrtStatus* Kernel::read(const OrtValue* value, const char* name, Tensor& to) const {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  if (OrtStatus* const status = api_.GetTensorTypeAndShape(value, &info)) return status;
  const auto release = [this](OrtTensorTypeAndShapeInfo* held) { api_.ReleaseTensorTypeAndShapeInfo(held); };
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(release)> owner(info, release);
  ONNXTensorElementDataType dtype = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t ndim = 0;
  if (OrtStatus* const status = api_.GetTensorElementType(info, &dtype)) return status;
  if (OrtStatus* const status = api_.GetDimensionsCount(info, &ndim)) return status;
  if (ndim > NW_MAX_NDIM) {
    const std::string what = std::string(op_.name) + ": " + name + " has " + std::to_string(ndim) +
                             " dimensions; expected at most " + std::to_string(NW_MAX_NDIM);
    return refused(NW_INVALID, what.c_str());
  }
  if (OrtStatus* const status = api_.GetDimensions(info, to.shape, ndim)) return status;
  if (OrtStatus* const status = api_.GetTensorMutableData(const_cast<OrtValue*>(value), &to.tensor.data)) return status;
  to.tensor.device = {kDLCPU, 0}, to.tensor.ndim = static_cast<int32_t>(ndim), to.tensor.shape = to.shape;
  for (const auto& [onnx, own] : kDtypes)
    if (onnx == dtype) to.tensor.dtype = own;
  if (to.tensor.dtype.bits != 0) return nullptr;
  const std::string what = std::string(op_.name) + ": " + name + " has ONNX dtype " + std::to_string(dtype) +
                           ", which Narrows does not have; expected float16, bfloat16, float32, float64, an integer or bool";
  return refused(NW_INVALID, what.c_str());
}

OrtStatus* Kernel::make_output(OrtKernelContext* context, uint32_t j, const nw_spec& spec, Tensor& to) const {
  OrtValue* value = nullptr;
  if (OrtStatus* const status = api_.KernelContext_GetOutput(context, j, spec.shape, static_cast<size_t>(spec.ndim), &value))
    return status;
  if (value == nullptr) return nullptr;  // the node has no name for it
  if (OrtStatus* const status = read(value, op_.outputs[j], to)) return status;
  const DLDataType made = to.tensor.dtype, own = spec.dtype;
  if (made.code == own.code && made.bits == own.bits) return nullptr;
  const std::string what =
      std::string(op_.name) + ": " + op_.outputs[j] +
      " has another dtype than the inputs, which ONNX Runtime cannot know; expected an operator of ONNX in its place";
  return refused(NW_UNSUPPORTED, what.c_str());
}

OrtStatus* Kernel::run(OrtKernelContext* context) const {
  Tensor tensors[NW_MAX_TENSORS];
  const DLTensor* pointers[NW_MAX_TENSORS] = {};
  size_t num_inputs = 0, num_outputs = 0;
  if (OrtStatus* const status = api_.KernelContext_GetInputCount(context, &num_inputs)) return status;
  if (OrtStatus* const status = api_.KernelContext_GetOutputCount(context, &num_outputs)) return status;
  for (uint32_t i = 0; i < num_inputs && i < op_.max_inputs; ++i) {
    const OrtValue* value = nullptr;
    if (OrtStatus* const status = api_.KernelContext_GetInput(context, i, &value)) return status;
    if (value == nullptr) continue;
    if (OrtStatus* const status = read(value, op_.inputs[i], tensors[i])) return status;
    pointers[i] = &tensors[i].tensor;
  }
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = op_.name;
  call.num_inputs = op_.max_inputs, call.inputs = pointers;
  call.num_outputs = op_.num_outputs, call.outputs = pointers + op_.max_inputs;
  call.params = params_.empty() ? nullptr : params_.data(), call.params_size = params_.size();
  nw_error error{};
  nw_spec specs[NW_MAX_TENSORS];
  if (const int32_t status = nw_infer(rt_, &call, specs, op_.num_outputs, &error); status != NW_OK)
    return refused(status, error.message);
  for (uint32_t j = 0; j < num_outputs && j < op_.num_outputs; ++j) {
    Tensor& to = tensors[op_.max_inputs + j];
    if (specs[j].ndim < 0) continue;
    if (OrtStatus* const status = make_output(context, j, specs[j], to)) return status;
    if (to.tensor.shape != nullptr) pointers[op_.max_inputs + j] = &to.tensor;
  }
  const int32_t status = nw_run(rt_, &call, &error);
  return status == NW_OK ? nullptr : refused(status, error.message);
}

}  // namespace narrows::onnxruntime
