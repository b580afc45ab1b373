// SPDX-License-Identifier: Apache-2.0
// handler.cpp -- one XLA handler for every op, for each platform. A call's attributes are
//
//     op        the op's name
//     params    its params struct, as bytes
//     layout    {format, mask of the inputs that are present, of the outputs, number of inputs, of outputs}
//     narrows   the version of the library that made the program
//     program   of a tensor program, what docs/programs.md, "In saved models", has: a process that has not built it loads it
//
// XLA asks each handler for its traits, so that a call that a graph may hold has a handler of its own.
#include <narrows/narrows.h>
#include <narrows/xla.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "bindings/saved_program.h"
#include "xla_ffi.h"

namespace {

using namespace narrows::xla;
using XlaError = XLA_FFI_Error;

constexpr int64_t kFormat = 1;  // of the attributes; a program of another one is refused

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

// What the attributes say.
struct Request {
  char op[128] = "";
  char made_by[32] = "";  // the version; "" where it is not said
  const Array* params = nullptr;
  const int64_t* layout = nullptr;
  const Text* program = nullptr;

  bool of_another_version() const { return made_by[0] != '\0' && std::strcmp(made_by, nw_version()) != 0; }
};

template <size_t size>
bool copy_text(const void* value, char (&out)[size]) {
  const Text& text = *static_cast<const Text*>(value);
  if (text.size >= size) return false;
  std::memcpy(out, text.data, text.size);
  return true;
}

bool read_attributes(const Attributes& attributes, Request* out) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    const Text& name = *attributes.names[i];
    const void* const value = attributes.values[i];
    const auto is = [&name](const char* text) {
      return name.size == std::strlen(text) && std::memcmp(name.data, text, name.size) == 0;
    };
    if (attributes.types[i] == kString) {
      if (is("op") && !copy_text(value, out->op)) return false;
      if (is("narrows") && !copy_text(value, out->made_by)) return false;
      if (is("program")) out->program = static_cast<const Text*>(value);
    } else if (attributes.types[i] == kArray) {
      const auto* const array = static_cast<const Array*>(value);
      if (is("params") && array->dtype == kUint8) out->params = array;
      if (is("layout") && array->dtype == kInt64 && array->size >= 1) out->layout = static_cast<const int64_t*>(array->data);
      if (is("layout") && out->layout != nullptr && *out->layout == kFormat && array->size != 5) return false;
    }
  }
  return out->op[0] != '\0' && out->params != nullptr && out->layout != nullptr;
}

// An error of the library's, with both versions where another one made the program.
XlaError* refuse_call(const CallFrame* frame, const Request& request, int32_t status, const nw_error& error) {
  char message[sizeof error.message + 128];
  if (request.of_another_version())
    std::snprintf(message, sizeof message, "narrows: %s; the program was made by Narrows %s, and this is %s", error.message,
                  request.made_by, nw_version());
  else
    std::snprintf(message, sizeof message, "narrows: %s", error.message);
  return refuse(frame, code_of(status), message);
}

XlaError* refuse_format(const CallFrame* frame, const Request& request) {
  char message[384];
  std::snprintf(
      message, sizeof message,
      "narrows: %s: the program's calls are of format %lld, made by Narrows %s; this is Narrows %s, which reads format %lld",
      request.op, static_cast<long long>(request.layout[0]), request.made_by[0] == '\0' ? "of an unknown version" : request.made_by,
      nw_version(), static_cast<long long>(kFormat));
  return refuse(frame, kUnimplemented, message);
}

// Loads the tensor program that the call is of, if this process does not have it.
int32_t load_program(nw_runtime* runtime, const Request& request, nw_error* error) {
  const nw_op* op = nullptr;
  if (request.program == nullptr || nw_find_op(runtime, request.op, &op, nullptr) == NW_OK) return NW_OK;
  const std::string saved(request.program->data, request.program->size);
  const int32_t status = narrows::load_saved_program(runtime, request.op, saved, &op, error);
  if (status != NW_OK || std::strcmp(op->name, request.op) == 0) return status;
  std::snprintf(error->message, sizeof error->message, "the saved program is %s; expected %s", op->name, request.op);
  return NW_INVALID;
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
XlaError* run_on_gpu(const CallFrame* frame, const Request& request, nw_runtime* runtime, nw_call& call, bool capturable) {
  StreamGet stream{sizeof stream, nullptr, frame->context, nullptr};
  if (XlaError* const error = frame->api->stream_get(&stream)) return error;
  call.stream = stream.stream;
  nw_plan* plan = nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  int32_t status = nw_plan_get(runtime, &call, &plan, &info, &error);
  if (status != NW_OK) return refuse_call(frame, request, status, error);
  if (capturable && info.workspace_size != 0) {  // which XLA would give to others before the graph is replayed
    nw_plan_release(plan);
    return refuse(frame, kInternal,
                  "narrows: the call was planned without a workspace and needs one; an array may be less aligned than it was");
  }
  constexpr size_t kXlaAlign = 16;  // the most that XLA promises, so the rest is asked for as size
  const size_t size = info.workspace_size + NW_WORKSPACE_ALIGN - kXlaAlign;
  MemoryAllocate memory{sizeof memory, nullptr, frame->context, size, kXlaAlign, nullptr};
  XlaError* failure = info.workspace_size == 0 ? nullptr : frame->api->memory_allocate(&memory);
  if (failure == nullptr) {
    call.workspace = aligned(memory.data);
    call.workspace_size = memory.data == nullptr ? 0 : info.workspace_size;
    status = nw_launch(plan, &call, &error);
    if (status != NW_OK) failure = refuse_call(frame, request, status, error);
  }
  if (memory.data != nullptr) {
    MemoryFree release{sizeof release, nullptr, frame->context, size, memory.data};
    frame->api->memory_free(&release);
  }
  nw_plan_release(plan);
  return failure;
}

XlaError* execute(const CallFrame* frame, DLDeviceType type, bool capturable) {
  Request request;
  if (!read_attributes(frame->attributes, &request))
    return refuse(frame, kInvalidArgument, "narrows: expected the attributes op, params, layout");
  if (request.layout[0] != kFormat) return refuse_format(frame, request);
  const int64_t inputs = request.layout[3], outputs = request.layout[4];
  if (inputs < 0 || outputs < 0 || inputs > NW_MAX_TENSORS || outputs > NW_MAX_TENSORS - inputs)
    return refuse(frame, kInvalidArgument, "narrows: expected at most 32 tensors");
  const DLDevice device{type, type == kDLCPU ? 0 : ordinal(frame)};
  DLTensor tensors[NW_MAX_TENSORS];
  const DLTensor* pointers[NW_MAX_TENSORS];
  const char* problem = place(frame->arguments, request.layout[1], inputs, device, tensors, pointers);
  if (problem == nullptr) problem = place(frame->results, request.layout[2], outputs, device, tensors + inputs, pointers + inputs);
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
  nw_error error{};
  nw_runtime* runtime = nullptr;
  int32_t status = nw_runtime_default(&runtime, &error);
  if (status == NW_OK) status = load_program(runtime, request, &error);
  if (status == NW_OK && type != kDLCPU) return run_on_gpu(frame, request, runtime, call, capturable);
  if (status == NW_OK) status = nw_run(runtime, &call, &error);
  return status == NW_OK ? nullptr : refuse_call(frame, request, status, error);
}

// Says the version and traits where XLA asks for them; answers no other stage than execution.
XlaError* handle(XLA_FFI_CallFrame* given, DLDeviceType type, uint32_t traits) {
  auto* const frame = reinterpret_cast<CallFrame*>(given);
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
  return execute(frame, type, traits != 0);
}

}  // namespace

XlaError* nw_xla_cpu(XLA_FFI_CallFrame* frame) { return handle(frame, kDLCPU, 0); }
XlaError* nw_xla_cuda(XLA_FFI_CallFrame* frame) { return handle(frame, kDLCUDA, 0); }
XlaError* nw_xla_cuda_capturable(XLA_FFI_CallFrame* frame) { return handle(frame, kDLCUDA, kCommandBufferCompatible); }
XlaError* nw_xla_rocm(XLA_FFI_CallFrame* frame) { return handle(frame, kDLROCM, 0); }
XlaError* nw_xla_rocm_capturable(XLA_FFI_CallFrame* frame) { return handle(frame, kDLROCM, kCommandBufferCompatible); }
