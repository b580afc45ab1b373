// SPDX-License-Identifier: Apache-2.0
// xla_ffi.h -- the few structs of XLA's foreign function interface that a handler reads, declared here so that nothing of JAX is
// needed to build. They are those of version 0.1, which every jaxlib since 0.4.38 accepts. tests/python compares each offset with
// the header of the jaxlib that is installed.
#ifndef NARROWS_XLA_XLA_FFI_H
#define NARROWS_XLA_XLA_FFI_H

#include <cstddef>
#include <cstdint>

struct XLA_FFI_Error;

namespace narrows::xla {

struct Context;

enum : int32_t { kMetadata = 1, kExecute = 3, kBuffer = 1, kArray = 1, kString = 4, kUint8 = 6, kInt64 = 5 };
enum : int32_t { kInvalidArgument = 3, kResourceExhausted = 8, kUnimplemented = 12, kInternal = 13, kUnavailable = 14 };
enum : uint32_t { kCommandBufferCompatible = 1 };

struct Extension {
  size_t struct_size;
  int32_t type;
  int32_t padding;
  Extension* next;
};
struct Version {
  size_t struct_size;
  Extension* extensions;
  int32_t major, minor;
};
struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct ErrorCreate {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  int32_t code;
};
struct StreamGet {
  size_t struct_size;
  Extension* extensions;
  Context* context;
  void* stream;
};
struct MemoryAllocate {
  size_t struct_size;
  Extension* extensions;
  Context* context;
  size_t size, alignment;
  void* data;
};
struct MemoryFree {
  size_t struct_size;
  Extension* extensions;
  Context* context;
  size_t size;
  void* data;
};
struct OrdinalGet {
  size_t struct_size;
  Extension* extensions;
  Context* context;
  int32_t ordinal;
};

struct Api {
  size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  XLA_FFI_Error* (*error_create)(ErrorCreate*);
  void* error_get_message;
  void* error_destroy;
  void* handler_register;
  XLA_FFI_Error* (*stream_get)(StreamGet*);
  void* type_register;
  void* context_get;
  void* state_set;
  void* state_get;
  XLA_FFI_Error* (*memory_allocate)(MemoryAllocate*);
  XLA_FFI_Error* (*memory_free)(MemoryFree*);
  void* thread_pool_schedule;
  void* thread_pool_num_threads;
  void* future_create;
  void* future_set_available;
  void* future_set_error;
  void* run_id_get;
  XLA_FFI_Error* (*ordinal_get)(OrdinalGet*);  // absent where struct_size ends before it
};

struct Buffer {
  size_t struct_size;
  Extension* extensions;
  int32_t dtype;
  int32_t padding;
  void* data;
  int64_t rank;
  int64_t* dims;
};
struct Text {
  const char* data;
  size_t size;
};
struct Array {
  int32_t dtype;
  int32_t padding;
  size_t size;
  const void* data;
};
struct Tensors {  // arguments and results alike
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  const int32_t* types;
  Buffer* const* buffers;
};
struct Attributes {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  const int32_t* types;
  const Text* const* names;
  const void* const* values;
};
struct CallFrame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  Context* context;
  int32_t stage;
  int32_t padding;
  Tensors arguments, results;
  Attributes attributes;
};

}  // namespace narrows::xla
#endif
