// SPDX-License-Identifier: Apache-2.0
// library.cpp -- libnarrows_onnxruntime.so: RegisterCustomOps, which ONNX Runtime calls, adds every op of the default runtime as an
// operator of the domain "narrows". Op "vendor.name/1" is the operator vendor_name_1.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bindings/onnxruntime/kernel.h"

namespace narrows::onnxruntime {
namespace {

constexpr uint32_t kApiVersion = 16;  // of ONNX Runtime 1.16, the first with CreateKernelV2

// An op as ONNX Runtime sees it. Its types are open unless the declaration fixes them: an output then has the type of the last
// input.
struct CustomOp : OrtCustomOp {
  CustomOp(const nw_op& declared, nw_runtime* runtime, const OrtApi& ort);

  const nw_op& op;
  nw_runtime* const rt;
  const OrtApi& api;
  std::string name;
};

const CustomOp& of(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

ONNXTensorElementDataType fixed_dtype(const DLDataType* dtypes, size_t i) {
  return dtypes == nullptr || dtypes[i].bits == 0 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED : onnx_dtype(dtypes[i]);
}

bool may_be_absent(const char* name) { return name[std::strlen(name) - 1] == '?'; }

OrtStatus* create_kernel(const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo* info, void** kernel) {
  const CustomOp& self = of(op);
  try {
    *kernel = new Kernel(self.op, self.rt, self.api, info);
    return nullptr;
  } catch (const std::exception& error) {
    return self.api.CreateStatus(ORT_INVALID_ARGUMENT, error.what());
  }
}

CustomOp::CustomOp(const nw_op& declared, nw_runtime* runtime, const OrtApi& ort)
    : OrtCustomOp{}, op(declared), rt(runtime), api(ort), name(declared.name) {
  std::replace(name.begin(), name.end(), '.', '_');
  std::replace(name.begin(), name.end(), '/', '_');
  version = kApiVersion;
  GetName = [](const OrtCustomOp* self) { return of(self).name.c_str(); };
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return "CPUExecutionProvider"; };
  GetInputTypeCount = [](const OrtCustomOp* self) { return size_t{of(self).op.max_inputs}; };
  GetOutputTypeCount = [](const OrtCustomOp* self) { return size_t{of(self).op.num_outputs}; };
  GetInputType = [](const OrtCustomOp* self, size_t i) { return fixed_dtype(of(self).op.input_dtypes, i); };
  GetOutputType = [](const OrtCustomOp* self, size_t j) { return fixed_dtype(of(self).op.output_dtypes, j); };
  GetInputCharacteristic = [](const OrtCustomOp* self, size_t i) {
    return may_be_absent(of(self).op.inputs[i]) ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
  };
  // A required one of an open type may have one input alone. That an output is missing libnarrows says.
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_OPTIONAL; };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  GetVariadicInputMinArity = GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 0; };
  GetVariadicOutputMinArity = GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 0; };
  CreateKernelV2 = create_kernel;
  KernelComputeV2 = [](void* kernel, OrtKernelContext* context) { return static_cast<const Kernel*>(kernel)->run(context); };
  KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
}

// The ops that are there now, tensor programs left out.
std::vector<const nw_op*> present_ops(nw_runtime* rt) {
  std::vector<const nw_op*> out;
  for (uint32_t i = 0; const nw_op* op = nw_op_at(rt, i); ++i)
    if (std::strncmp(op->name, "program.", 8) != 0) out.push_back(op);
  return out;
}

OrtStatus* make_domain(const std::vector<const nw_op*>& ops, nw_runtime* rt, const OrtApi& api, OrtCustomOpDomain** domain) {
  static auto& known = *new std::map<const nw_op*, CustomOp>;
  if (OrtStatus* const status = api.CreateCustomOpDomain("narrows", domain)) return status;
  for (const nw_op* const op : ops) {
    const CustomOp& made = known.try_emplace(op, *op, rt, api).first->second;
    if (OrtStatus* const status = api.CustomOpDomain_Add(*domain, &made)) return status;
  }
  return nullptr;
}

// A domain is made anew when plugins have been loaded. It stays: a session may use it as long as the process lives.
OrtStatus* add_domain(OrtSessionOptions* options, const OrtApi& api) {
  static std::mutex mutex;
  static OrtCustomOpDomain* domain = nullptr;
  static auto& ops_of_domain = *new std::vector<const nw_op*>;
  const std::lock_guard lock(mutex);
  nw_runtime* rt = nullptr;
  nw_error error{};
  if (nw_runtime_default(&rt, &error) != NW_OK) return api.CreateStatus(ORT_RUNTIME_EXCEPTION, error.message);
  std::vector<const nw_op*> ops = present_ops(rt);
  if (ops != ops_of_domain) {
    OrtCustomOpDomain* made = nullptr;
    if (OrtStatus* const status = make_domain(ops, rt, api, &made)) return status;
    domain = made;
    ops_of_domain = std::move(ops);
  }
  return api.AddCustomOpDomain(options, domain);
}

}  // namespace
}  // namespace narrows::onnxruntime

// NOLINTNEXTLINE(readability-identifier-naming): the name by which ONNX Runtime finds it
extern "C" [[gnu::visibility("default")]] OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  const OrtApi* const api = base->GetApi(narrows::onnxruntime::kApiVersion);
  if (api == nullptr) {  // without it there is no status to return
    std::fprintf(stderr, "narrows: error: libnarrows_onnxruntime: this is ONNX Runtime %s; expected 1.16 or newer\n",
                 base->GetVersionString());
    return nullptr;
  }
  try {
    return narrows::onnxruntime::add_domain(options, *api);
  } catch (const std::exception& error) {
    return api->CreateStatus(ORT_FAIL, error.what());
  }
}
