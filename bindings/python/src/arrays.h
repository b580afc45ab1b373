// SPDX-License-Identifier: Apache-2.0
// arrays.h -- arrays of any framework as DLTensors for one call, and the framework's own arrays as outputs. Which way an array is
// read is decided by its exact type, once, and remembered.
#ifndef NARROWS_PYTHON_ARRAYS_H
#define NARROWS_PYTHON_ARRAYS_H

#include "python.h"

namespace narrows::python {

enum class Route : uint8_t {
  none,         // an absent input
  number,       // a scalar operand
  own,          // narrows.Tensor
  numpy,        // NumPy's C struct
  torch,        // exactly Tensor or Parameter: the gate decides, then the C exchange API
  torch_other,  // FakeTensor and other subclasses, proxies of torch.fx: always torch's dispatcher
  jax,          // a jitted call, never read
  jax_traced,   // a tracer, which decides for the whole call
  cupy,         // __dlpack__ on its current stream
  dlpack,       // any other producer
  interface,    // without __dlpack__: __cuda_array_interface__
  refused       // an object without any protocol, or one that would be misread; `reason` says why
};

struct TypeRoute {
  Route route;
  const char* reason;
};
// Of object's type. Never fails: what is not known is refused.
TypeRoute route_of(PyObject* object);
// NumPy's scalar, which is no bool and no integer of Python's.
bool is_numpy_bool(PyObject* object);

void release_managed(void* managed, bool versioned);  // what open_capsule() took out of a capsule
void release_capsule(PyObject* capsule);              // keeps the exception, which some clear when they go (jaxlib 0.4.38's)

// An inferred output, with its shape and contiguous strides as the tuples that frameworks want. The tuples are shared.
struct OutputSpec {
  OutputSpec() = default;
  // False: exception set, and the tuples are NULL.
  bool assign(const nw_spec& from);

  nw_spec spec;
  int64_t steps[NW_MAX_NDIM];  // the strides of a contiguous array, in elements
  Ref shape, strides;          // the same as tuples
  Ref torch_arguments;         // what torch_empty() calls torch with; set by the first call that needs it
};

// One tensor of a call, with its own copy of shape and strides, so that nothing moves when the GIL is released.
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { clear(); }

  // Reads object. `stream`: the native handle that the call uses, for producers that have to be told. False: exception set.
  bool read(PyObject* object, TypeRoute route, void* stream);
  // A contiguous array that was just made, of as many elements: only where it is is news.
  void assign(const nw_spec& spec, void* data, DLDevice device);
  // Takes shape and strides from elsewhere.
  bool assign(const DLTensor& source);

  DLTensor tensor;
  bool read_only = false;

 private:
  bool read_numpy(PyObject* object);
  bool read_capsule(PyObject* capsule);
  bool read_cuda_interface(PyObject* object, void* stream);
  void clear() {
    if (managed_ != nullptr) release_managed(managed_, versioned_);
    managed_ = nullptr;
    read_only = false;
  }

  int64_t shape_[NW_MAX_NDIM], strides_[NW_MAX_NDIM];
  void* managed_ = nullptr;  // a DLManagedTensorVersioned, or a DLManagedTensor
  bool versioned_ = false;
};

// ---- torch ----

// `autocast`: whether the op heeds it. Whether these tensors may bypass torch's dispatcher: 1 yes, 2 yes but one needs a gradient,
// 0 no, -1 exception set. Fills in arrays[i] for each torch tensor where it may.
int torch_gate(PyObject* const* objects, const Route* routes, Array* arrays, uint32_t count, bool autocast);
// Whether grad mode is on and one of these tensors, of any type, needs a gradient; -1: exception set.
int torch_needs_grad(PyObject* const* objects, const Route* routes, uint32_t count);
// Whether its values are the negatives of those in memory; -1: exception set.
int torch_is_negated(PyObject* object);
// Whether a transform of torch.func is on, or might be.
bool torch_transforms();
// Whether it is a torch.SymInt or SymFloat, which stands for a number while torch traces.
bool torch_is_symbol(PyObject* object);
// A tensor of torch as an output: whether torch lets it be written to; and that it was, so that autograd does not use it as it was
// saved. False: exception set.
bool torch_may_be_written(PyObject* object, const char* op);
bool torch_was_written(PyObject* object);
// One tensor below the gate.
bool read_torch(PyObject* object, Array* out);
// One that torch_empty() just made, of as many elements.
bool read_new_torch(PyObject* object, const nw_spec& spec, DLDevice device, Array* out);

// Route::torch for exactly Tensor and Parameter, torch_other for what inherits from Tensor, none for anything else.
Route torch_route(PyTypeObject* type);
bool torch_stream(DLDevice device, void** stream);
// output.torch_arguments; a new reference. NULL: exception set.
PyObject* torch_empty_arguments(const OutputSpec& output);
PyObject* torch_empty(const OutputSpec& output, DLDevice device);

// ---- NumPy ----

PyObject* numpy_empty(const OutputSpec& output);
void* numpy_data(PyObject* object);

// The framework's current stream on a device, as a native handle. False: exception set.
// `object`, where it is not NULL, becomes what would destroy that stream, if there is such an object.
bool current_stream(Route route, DLDevice device, void** stream, Ref* object = nullptr);
// A new array like those of `route`, contiguous; `like` is an array of that framework. NULL: exception set.
PyObject* allocate(Route route, PyObject* like, const OutputSpec& output, DLDevice device, void* stream, PyObject* stream_object);

// ---- DLPack's capsules (capsules.cpp) ----

// Of a capsule that nobody has taken, by whether it is of the versioned kind.
inline constexpr const char* kCapsuleNames[] = {"dltensor", "dltensor_versioned"};

// DLPack's number of a stream <-> a native handle.
void* stream_from_number(int32_t device_type, int64_t number);
int64_t number_from_stream(int32_t device_type, void* stream);
// A tuple of them. NULL: exception set.
PyObject* integers(const int64_t* values, int32_t count);
// object.__dlpack_device__(). False: exception set.
bool dlpack_device(PyObject* object, DLDevice* out);
// object.__dlpack__(...), with what it understands; a capsule. `said` becomes its device. NULL: exception set.
PyObject* dlpack_capsule(PyObject* object, void* stream, DLDevice* said);
// Whether a capsule's tensor is where the producer said that it is. False: exception set.
bool is_where_said(DLDevice said, const DLTensor& tensor);
// What a capsule holds, and whether it is of the versioned kind; refuses what cannot be read. False: exception set.
bool open_capsule(PyObject* capsule, void** managed, bool* versioned, const DLTensor** tensor, bool* read_only);

// A contiguous narrows.Tensor of our own memory. NULL: exception set. (tensor.cpp)
// stream_object, which may be NULL, lives as long as the tensor: the memory is freed on its stream.
PyObject* new_tensor(const nw_spec& spec, DLDevice device, void* stream, PyObject* stream_object);
// The DLTensor of a narrows.Tensor, alive as long as the object; NULL if it is not one. No exception.
const DLTensor* own_tensor(PyObject* object);
void* own_stream(PyObject* object);
PyObject* own_stream_object(PyObject* object);  // borrowed; NULL: none
bool own_read_only(PyObject* object);

}  // namespace narrows::python
#endif
