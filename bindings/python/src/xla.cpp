// xla.cpp -- one XLA handler for every op: its name, params, and which tensors are present come as attributes. There are two
// targets, since XLA asks each handler for its traits: "narrows", and on a GPU "narrows_capturable" where the plan can be captured.
#include "xla_ffi.h"

#include <cstdio>
#include <cstring>

#include "python.h"

namespace narrows::python {
namespace {

using namespace narrows::xla;
using XlaError = narrows::xla::Error;

XlaError* refuse(const CallFrame* frame, int32_t code, const char* message) {
  ErrorCreate create{sizeof create, nullptr, message, code};
  return frame->api->error_create(&create);
}
int32_t code_of(int32_t status) {
  switch (status) {
    case NW_INVALID: return kInvalidArgument;
    case NW_UNSUPPORTED: return kUnimplemented;
    case NW_OUT_OF_MEMORY: return kResourceExhausted;
    case NW_UNAVAILABLE: return kUnavailable;
    default: return kInternal;
  }
}

// XLA's numbers of the dtypes that we have.
bool dtype_of(int32_t number, DLDataType* out) {
  static constexpr DLDataType kDtypes[] = {{},
                                           {kDLBool, 8, 1},
                                           {kDLInt, 8, 1},
                                           {kDLInt, 16, 1},
                                           {kDLInt, 32, 1},
                                           {kDLInt, 64, 1},
                                           {kDLUInt, 8, 1},
                                           {kDLUInt, 16, 1},
                                           {kDLUInt, 32, 1},
                                           {kDLUInt, 64, 1},
                                           {kDLFloat, 16, 1},
                                           {kDLFloat, 32, 1},
                                           {kDLFloat, 64, 1}};
  if (number == 16) return *out = {kDLBfloat, 16, 1}, true;
  if (number < 1 || number > 12) return false;
  return *out = kDtypes[number], true;
}

// What the attributes say. op: the name; params: bytes; layout: masks of the present inputs and outputs, device type, inputs,
// outputs.
struct Request {
  char op[128] = "";
  const xla::Array* params = nullptr;
  const int64_t* layout = nullptr;
};
bool read_attributes(const Attributes& attributes, Request* out) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    const Text& name = *attributes.names[i];
    const auto is = [&name](const char* text) {
      return name.size == std::strlen(text) && std::memcmp(name.data, text, name.size) == 0;
    };
    const auto* const array = static_cast<const xla::Array*>(attributes.values[i]);
    if (is("op") && attributes.types[i] == kString) {
      const Text& op = *static_cast<const Text*>(attributes.values[i]);
      if (op.size >= sizeof out->op) return false;
      std::memcpy(out->op, op.data, op.size);
    } else if (is("params") && attributes.types[i] == kArray && array->dtype == kUint8) {
      out->params = array;
    } else if (is("layout") && attributes.types[i] == kArray && array->dtype == kInt64 && array->size == 5) {
      out->layout = static_cast<const int64_t*>(array->data);
    }
  }
  return out->op[0] != '\0' && out->params != nullptr && out->layout != nullptr;
}

// The tensors of one side, in their places; the absent ones are NULL.
const char* place(const Tensors& given, int64_t mask, int64_t count, DLDevice device, DLTensor* tensors,
                  const DLTensor** pointers) {
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    pointers[i] = nullptr;
    if ((mask >> i & 1) == 0) continue;
    if (next >= given.size || given.types[next] != kBuffer) return "fewer buffers than the layout says";
    const Buffer& b = *given.buffers[next++];
    tensors[i] = {b.data, device, static_cast<int32_t>(b.rank), {}, b.dims, nullptr, 0};
    if (!dtype_of(b.dtype, &tensors[i].dtype)) return "a dtype that Narrows does not have";
    pointers[i] = &tensors[i];
  }
  return next == given.size ? nullptr : "more buffers than the layout says";
}

int32_t ordinal(const CallFrame* frame) {
  OrdinalGet get{sizeof get, nullptr, frame->context, 0};
  if (frame->api->struct_size >= offsetof(Api, ordinal_get) + sizeof(void*) && frame->api->ordinal_get != nullptr)
    frame->api->ordinal_get(&get);
  return get.ordinal;
}

void* aligned(void* data) {
  const auto past = reinterpret_cast<uintptr_t>(data) % NW_WORKSPACE_ALIGN;
  return static_cast<char*>(data) + (past == 0 ? 0 : NW_WORKSPACE_ALIGN - past);
}

// Runs on XLA's stream with XLA's memory as workspace.
XlaError* run_on_gpu(const CallFrame* frame, nw_call& call, bool capturable) {
  StreamGet stream{sizeof stream, nullptr, frame->context, nullptr};
  if (XlaError* const error = frame->api->stream_get(&stream)) return error;
  call.stream = stream.stream;
  nw_plan* plan = nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  int32_t status = nw_plan_get(runtime(), &call, &plan, &info, &error);
  if (status != NW_OK) return refuse(frame, code_of(status), error.message);
  if (capturable && info.workspace_size != 0) {  // which XLA would give to others before the graph is replayed
    nw_plan_release(plan);
    return refuse(frame, kInternal, "narrows: a call that was planned without a workspace needs one; is an array less aligned?");
  }
  constexpr size_t kXlaAlign = 16;  // the most that XLA promises, so the rest is asked for as size
  const size_t size = info.workspace_size + NW_WORKSPACE_ALIGN - kXlaAlign;
  MemoryAllocate memory{sizeof memory, nullptr, frame->context, size, kXlaAlign, nullptr};
  XlaError* failure = info.workspace_size == 0 ? nullptr : frame->api->memory_allocate(&memory);
  if (failure == nullptr) {
    call.workspace = aligned(memory.data);
    call.workspace_size = memory.data == nullptr ? 0 : info.workspace_size;
    status = nw_launch(plan, &call, &error);
    if (status != NW_OK) failure = refuse(frame, code_of(status), error.message);
  }
  if (memory.data != nullptr) {
    MemoryFree release{sizeof release, nullptr, frame->context, size, memory.data};
    frame->api->memory_free(&release);
  }
  nw_plan_release(plan);
  return failure;
}

XlaError* execute(const CallFrame* frame, bool capturable) {
  Request request;
  if (!read_attributes(frame->attributes, &request))
    return refuse(frame, kInvalidArgument, "narrows: expected the attributes op, params, layout");
  const int64_t* const layout = request.layout;
  const int64_t inputs = layout[3], outputs = layout[4];
  if (inputs < 0 || outputs < 0 || inputs + outputs > NW_MAX_TENSORS)
    return refuse(frame, kInvalidArgument, "narrows: expected at most 32 tensors");
  const bool cpu = layout[2] == kDLCPU;
  const DLDevice device{static_cast<DLDeviceType>(layout[2]), cpu ? 0 : ordinal(frame)};
  DLTensor tensors[NW_MAX_TENSORS];
  const DLTensor* pointers[NW_MAX_TENSORS];
  const char* problem = place(frame->arguments, layout[0], inputs, device, tensors, pointers);
  if (problem == nullptr) problem = place(frame->results, layout[1], outputs, device, tensors + inputs, pointers + inputs);
  if (problem != nullptr) return refuse(frame, kInvalidArgument, problem);
  nw_call call{};
  call.struct_size = sizeof call;
  call.num_inputs = static_cast<uint32_t>(inputs);
  call.num_outputs = static_cast<uint32_t>(outputs);
  call.op = request.op;
  call.inputs = pointers;
  call.outputs = pointers + inputs;
  call.params = request.params->size == 0 ? nullptr : request.params->data;
  call.params_size = request.params->size;
  call.device = device;
  if (!cpu) return run_on_gpu(frame, call, capturable);
  nw_error error{};
  const int32_t status = nw_run(runtime(), &call, &error);
  return status == NW_OK ? nullptr : refuse(frame, code_of(status), error.message);
}

// Says the version and traits where XLA asks for them; answers no other stage than execution.
template <uint32_t traits>
XlaError* handler(CallFrame* frame) {
  for (Extension* e = frame->extensions; e != nullptr; e = e->next) {
    if (e->type != kMetadata) continue;
    Metadata* const metadata = reinterpret_cast<MetadataExtension*>(e)->metadata;
    if (metadata == nullptr) return nullptr;
    metadata->version.major = 0;
    metadata->version.minor = 1;  // the oldest whose fields are used
    metadata->traits = traits;
    return nullptr;
  }
  if (frame->stage != kExecute) return refuse(frame, kUnimplemented, "narrows: only the execute stage is registered");
  return execute(frame, traits != 0);
}

PyObject* capsule(XlaError* (*function)(CallFrame*)) {
  return PyCapsule_New(reinterpret_cast<void*>(function), "xla._CUSTOM_CALL_TARGET", nullptr);
}

}  // namespace

// (plain, capturable), as jax.ffi.register_ffi_target takes them. The runtime is made now: a handler holds no GIL to raise with.
PyObject* xla_handlers(PyObject*, PyObject*) {
  if (runtime() == nullptr) return nullptr;
  const Ref plain(capsule(handler<0>)), capturable(capsule(handler<kCommandBufferCompatible>));
  return plain && capturable ? PyTuple_Pack(2, plain.get(), capturable.get()) : nullptr;
}

}  // namespace narrows::python
