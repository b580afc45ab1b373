// SPDX-License-Identifier: Apache-2.0
// arrays.cpp -- how arrays are read: the route of each type, DLPack capsules; and allocation. numpy.cpp and torch.cpp have theirs.
#include "arrays.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace narrows::python {
namespace {

// ---- the route of a type ----

constexpr size_t kTypes = 256;  // remembered; types beyond that are looked at in each call
struct KnownType {
  PyTypeObject* type;
  TypeRoute route;
};
std::atomic<const KnownType*> known_types[kTypes];

size_t slot_of(PyTypeObject* type) { return (reinterpret_cast<uintptr_t>(type) >> 4) * 0x9E3779B97F4A7C15u >> 56; }

void remember(PyTypeObject* type, TypeRoute route) {
  static Mutex mutex;
  const Guard guard(mutex);
  for (size_t i = 0, at = slot_of(type); i < kTypes; ++i, at = (at + 1) % kTypes) {
    if (known_types[at].load(std::memory_order_relaxed) != nullptr) continue;
    Py_INCREF(reinterpret_cast<PyObject*>(type));  // so that no other type can ever have this address
    known_types[at].store(new KnownType{type, route}, std::memory_order_release);
    return;
  }
}

bool is_instance(PyObject* object, const char* module, const char* name) {
  PyObject* const found = imported(module);
  const Ref type(found == nullptr ? nullptr : PyObject_GetAttrString(found, name));
  const int is = type ? PyObject_IsInstance(object, type.get()) : 0;
  PyErr_Clear();  // a module that is still being imported lacks things
  return is == 1;
}
bool is_exactly(PyObject* object, const char* module, const char* name) {
  PyObject* const found = imported(module);
  const Ref type(found == nullptr ? nullptr : PyObject_GetAttrString(found, name));
  PyErr_Clear();
  return type && reinterpret_cast<PyObject*>(Py_TYPE(object)) == type.get();
}

}  // namespace

bool is_numpy_bool(PyObject* object) { return is_instance(object, "numpy", "bool_"); }

namespace {

TypeRoute numpy_route(PyObject* object) {
  if (is_exactly(object, "numpy", "ndarray") || is_exactly(object, "numpy", "memmap")) return {Route::numpy, nullptr};
  if (is_instance(object, "numpy", "complexfloating")) return {Route::refused, "a complex number; expected an array or a real one"};
  if (is_instance(object, "numpy", "generic")) return {Route::number, nullptr};
  if (is_instance(object, "numpy", "ndarray"))
    return {Route::refused, "a subclass of numpy.ndarray, whose meaning would be lost; pass numpy.asarray(x)"};
  return {Route::none, nullptr};
}

bool has_attribute(PyObject* type, const char* name) {
  const Ref found(PyObject_GetAttrString(type, name));
  PyErr_Clear();
  return static_cast<bool>(found);
}

TypeRoute classify(PyObject* object) {
  if (own_tensor(object) != nullptr) return {Route::own, nullptr};
  if (PyLong_Check(object) || PyFloat_Check(object)) return {Route::number, nullptr};
  if (const Route torch = torch_route(Py_TYPE(object)); torch != Route::none) return {torch, nullptr};
  if (is_instance(object, "torch.fx", "Proxy")) return {Route::torch_other, nullptr};  // stands for a tensor under symbolic_trace
  if (const TypeRoute numpy = numpy_route(object); numpy.route != Route::none) return numpy;
  if (is_instance(object, "jax.core", "Tracer")) return {Route::jax_traced, nullptr};
  if (is_instance(object, "jax", "Array")) return {Route::jax, nullptr};
  if (is_exactly(object, "cupy", "ndarray")) return {Route::cupy, nullptr};
  const Ref type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  if (has_attribute(type.get(), "__dlpack__")) return {Route::dlpack, nullptr};
  if (has_attribute(type.get(), "__cuda_array_interface__")) return {Route::interface, nullptr};
  const bool may_become_one =
      (PySequence_Check(object) != 0 && PyUnicode_Check(object) == 0) || has_attribute(type.get(), "__array__");
  return {Route::refused, may_become_one ? "no array: it has no __dlpack__; expected an array, as numpy.asarray(x) gives"
                                         : "no array: it has no __dlpack__"};
}

// A framework's own functions in Python: narrows._cupy.
PyObject* cupy_function(const char* name) { return import_attribute("narrows._cupy", name).release(); }

}  // namespace

TypeRoute route_of(PyObject* object) {
  if (object == Py_None) return {Route::none, nullptr};
  PyTypeObject* const type = Py_TYPE(object);
  for (size_t i = 0, at = slot_of(type); i < kTypes; ++i, at = (at + 1) % kTypes) {
    const KnownType* const known = known_types[at].load(std::memory_order_acquire);
    if (known == nullptr) break;
    if (known->type == type) return known->route;
  }
  const TypeRoute found = classify(object);
  if (found.route != Route::refused) remember(type, found);
  return found;
}

// ---- reading ----

bool Array::assign(const DLTensor& source) {
  if (source.ndim < 0 || source.ndim > NW_MAX_NDIM) {
    PyErr_Format(PyExc_ValueError, "a tensor of %d dimensions; expected 0 to %d", source.ndim, NW_MAX_NDIM);
    return false;
  }
  if (source.ndim > 0 && source.shape == nullptr) {
    PyErr_Format(PyExc_ValueError, "a tensor of %d dimensions whose shape is NULL", source.ndim);
    return false;
  }
  tensor = source;
  for (int32_t d = 0; d < source.ndim; ++d) shape_[d] = source.shape[d];
  for (int32_t d = 0; source.strides != nullptr && d < source.ndim; ++d) strides_[d] = source.strides[d];
  tensor.shape = shape_;
  tensor.strides = source.strides == nullptr ? nullptr : strides_;
  return true;
}

void Array::assign(const nw_spec& spec, void* data, DLDevice device) {
  std::copy(spec.shape, spec.shape + spec.ndim, shape_);
  tensor = {data, device, spec.ndim, spec.dtype, shape_, nullptr, 0};
}

bool Array::read_capsule(PyObject* capsule) {
  const DLTensor* source = nullptr;
  if (!open_capsule(capsule, &managed_, &versioned_, &source, &read_only)) return false;
  return assign(*source);
}

// JAX raises an error of its own where it cannot export a dtype.
static bool has_known_dtype(PyObject* object) {
  const Ref dtype(PyObject_GetAttrString(object, "dtype"));
  DLDataType parsed{};
  if (!dtype || parse_dtype(dtype.get(), &parsed)) return static_cast<bool>(dtype);
  PyErr_Format(PyExc_ValueError, "it has dtype %S; expected %s", dtype.get(), kDtypesExpected);
  return false;
}

bool Array::read(PyObject* object, TypeRoute route, void* stream) {
  clear();
  switch (route.route) {
    case Route::own: read_only = own_read_only(object); return assign(*own_tensor(object));
    case Route::numpy: return read_numpy(object);
    case Route::torch:
    case Route::torch_other: return read_torch(object, this);
    case Route::interface: return read_cuda_interface(object, stream);
    case Route::jax:
      if (!has_known_dtype(object)) return false;
      [[fallthrough]];
    case Route::cupy:
    case Route::dlpack: {
      DLDevice said{};
      PyObject* const capsule = dlpack_capsule(object, stream, &said);
      const bool read = capsule != nullptr && read_capsule(capsule) &&
                        (route.route != Route::dlpack || is_where_said(said, tensor));  // JAX numbers the CPU's in capsules alone
      release_capsule(capsule);
      read_only |= route.route == Route::jax;  // JAX's arrays never change, and its capsules do not say so
      return read;
    }
    default: break;
  }
  const Ref type(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
  if (type)
    PyErr_Format(PyExc_TypeError, "%U is %s", type.get(),
                 route.reason == nullptr ? "no array; expected an array, as numpy.asarray(x) gives" : route.reason);
  return false;
}

// ---- allocation and streams ----

bool current_stream(Route route, DLDevice device, void** stream, Ref* object) {
  *stream = nullptr;
  if (device.device_type == kDLCPU) return true;
  if (route == Route::torch || route == Route::torch_other) return torch_stream(device, stream);
  if (route != Route::cupy) return true;
  const Ref function(cupy_function("current_stream"));
  Ref current(function ? PyObject_CallFunction(function.get(), "i", device.device_id) : nullptr);
  const Ref handle(current ? PyObject_GetAttrString(current.get(), "ptr") : nullptr);
  if (handle) *stream = PyLong_AsVoidPtr(handle.get());
  if (object != nullptr) *object = Ref(current.release());
  return !PyErr_Occurred();
}

bool OutputSpec::assign(const nw_spec& from) {
  spec = from;
  if (spec.ndim < 0) return true;
  shape = Ref(PyTuple_New(spec.ndim));
  strides = Ref(PyTuple_New(spec.ndim));
  int64_t next = 1;
  for (int32_t i = spec.ndim - 1; shape && strides && i >= 0; --i) {
    PyTuple_SetItem(shape.get(), i, PyLong_FromLongLong(spec.shape[i]));
    PyTuple_SetItem(strides.get(), i, PyLong_FromLongLong(next));
    steps[i] = next;
    next *= spec.shape[i] == 0 ? 1 : spec.shape[i];
  }
  return shape && strides && !PyErr_Occurred();
}

PyObject* allocate(Route route, PyObject* like, const OutputSpec& output, DLDevice device, void* stream, PyObject* stream_object) {
  if (route == Route::numpy) return numpy_empty(output);
  if (route == Route::torch || route == Route::torch_other) return torch_empty(output, device);
  Ref out(new_tensor(output.spec, device, stream, stream_object));
  if (route == Route::own || !out) return out.release();
  const Ref function(import_attribute("narrows._operands", "like"));
  return function ? PyObject_CallFunctionObjArgs(function.get(), like, out.get(), nullptr) : nullptr;
}

}  // namespace narrows::python
