// SPDX-License-Identifier: Apache-2.0
// call.h -- one call of an op while it is made: shared by arguments.cpp, inference.cpp, launch.cpp and call.cpp.
#ifndef NARROWS_PYTHON_CALL_H
#define NARROWS_PYTHON_CALL_H

#include "op.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace narrows::python {

constexpr uint64_t kAll = ~uint64_t{0};

// As many elements as the op has tensors, without the heap; none beyond those is touched.
template <class T>
class Stack {
 public:
  explicit Stack(uint32_t count) : count_(count < NW_MAX_TENSORS ? count : NW_MAX_TENSORS) {
    for (uint32_t i = 0; i < count_; ++i) new (get() + i) T;
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() {
    for (uint32_t i = 0; i < count_; ++i) get()[i].~T();
  }
  T* get() { return reinterpret_cast<T*>(storage_); }
  T& operator[](uint32_t i) { return get()[i]; }
  const T& operator[](uint32_t i) const { return reinterpret_cast<const T*>(storage_)[i]; }

 private:
  alignas(T) unsigned char storage_[NW_MAX_TENSORS * sizeof(T)];
  uint32_t count_;
};

// The arguments of one call. Objects are borrowed from the caller.
struct Call {
  explicit Call(Op* op) : op(op), declaration(*op->declaration), blob(op->blob) {
    const uint32_t tensors = std::min<uint32_t>(declaration.op->max_inputs + declaration.op->num_outputs, NW_MAX_TENSORS);
    for (uint32_t i = 0; i < tensors; ++i) objects[i] = nullptr, routes[i] = Route::none;
  }

  // The params, to be changed: from the first time on they are the call's own.
  unsigned char* own_blob() {
    const uint64_t size = declaration.op->params_size;
    if (blob != op->blob) return blob;
    if (size > kBlob) large.reset(new unsigned char[size]);
    blob = size > kBlob ? large.get() : small;
    std::memcpy(blob, op->blob, size);
    return blob;
  }

  Op* op;
  const Declaration& declaration;
  unsigned char* blob;  // the op's, until own_blob()
  unsigned char small[kBlob];
  std::unique_ptr<unsigned char[]> large;

  // As many are set as the op has tensors.
  PyObject* objects[NW_MAX_TENSORS];  // inputs, then outputs
  Route routes[NW_MAX_TENSORS];
  const char* reasons[NW_MAX_TENSORS];
  uint32_t num_inputs = 0, num_outputs = 0;
  uint32_t routes_seen = 0;  // bit r: one of the objects has Route r
  int lead = -1;             // the first input that is an array: outputs are of its framework

  Ref symbols;    // a dict of params that stand for numbers while torch traces, by name; null: none
  Ref out_items;  // the outputs, where `out` is a tuple or a list
  PyObject *out = nullptr, *stream_object = nullptr, *device = nullptr;
  const char *backend = nullptr, *kernel = nullptr;
  uint32_t flags = 0;
  uint64_t wanted = kAll;      // bit j: output j
  PyObject* shapes = nullptr;  // a tuple: of each output the shape in which it is allocated, or None; NULL: as they are inferred
  bool elsewhere = false;      // op->otherwise takes the call
  bool dispatched = false;     // by torch's dispatcher, which shows the op to a profiler itself

  InferredRef inferred;  // where outputs are allocated here, or a plan may be remembered
  Stack<Array> arrays{declaration.op->max_inputs + declaration.op->num_outputs};
  void* stream = nullptr;
  Ref stream_keeper;  // what would destroy that stream; NULL: nobody does
  DLDevice where{kDLCPU, 0};

  // Whether the params are the op's own, which the call has not changed.
  bool has_params_of_op() const { return blob == op->blob || std::memcmp(blob, op->blob, declaration.op->params_size) == 0; }
  bool is_array(uint32_t i) const { return objects[i] != nullptr && routes[i] > Route::number; }
};

// ---- arguments.cpp: False: exception set ----

// The input of that index is object.
bool add_input(Call& call, uint32_t index, PyObject* object);
// Positional arguments and keywords, as vectorcall has them.
bool parse(Call& call, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords);
// Takes `out` apart, an array or a sequence of arrays and None; the outputs follow the inputs.
bool set_outputs(Call& call);

// ---- inference.cpp ----

// The C API's view of the call; `pointers` has room for all tensors.
void fill(Call& call, nw_call& to, const DLTensor** pointers);
// Sets call.inferred, remembered for calls alike. False: exception set.
bool infer(Call& call, const nw_call& filled);
// The same of a call whose outputs are given: nothing is inferred, but what is found out later is remembered.
void find_alike(Call& call);

// ---- launch.cpp ----

// Calls alike are planned once: on the CPU the second of them, since the first is often the only one; on a GPU the first, whose
// workspace is the framework's memory.
// The status, and what is wrong; `raised`: exception set.
int32_t launch(Call& call, nw_call& filled, nw_error* error, bool* raised);

// ---- threads.cpp ----

// How many threads torch would use for what the calling thread computes; 0: exception set. There is a tensor of torch.
uint64_t torch_threads();

}  // namespace narrows::python
#endif
