// SPDX-License-Identifier: Apache-2.0
// tensor.cpp -- narrows.Tensor: memory of our own on any backend, or borrowed through DLPack; and its export. Exports carry the
// version and wait on the consumer's stream.
#include <cstddef>
#include <cstring>

#include "arrays.h"

namespace narrows::python {
namespace {

PyTypeObject* tensor_type = nullptr;

struct Tensor {
  PyObject ob_base;
  DLTensor dl;
  int64_t shape[NW_MAX_NDIM], strides[NW_MAX_NDIM];
  void* stream;     // that the memory was made on, and is freed on
  PyObject* keeps;  // the object that would destroy the stream; NULL: nobody does
  void* managed;    // borrowed through DLPack; NULL: see owner
  PyObject* owner;  // the tensor that this is a view of; NULL and managed NULL: memory of our own
  bool versioned, read_only, owns;
};
Tensor* as_tensor(PyObject* self) { return reinterpret_cast<Tensor*>(self); }

Tensor* new_object() {
  const auto alloc = reinterpret_cast<allocfunc>(PyType_GetSlot(tensor_type, Py_tp_alloc));
  return as_tensor(alloc(tensor_type, 0));
}

int64_t elements(const DLTensor& t) {
  int64_t count = 1;
  for (int32_t i = 0; i < t.ndim; ++i) count *= t.shape[i];
  return count;
}
bool contiguous(const DLTensor& t) {
  int64_t dense = 1;
  for (int32_t i = t.ndim - 1; i >= 0; --i) {
    if (t.shape[i] != 1 && t.strides[i] != dense && elements(t) != 0) return false;
    dense *= t.shape[i];
  }
  return true;
}
uint64_t bytes_of(const DLTensor& t) { return static_cast<uint64_t>(elements(t)) * (t.dtype.bits / 8); }
char* address(const DLTensor& t) { return static_cast<char*>(t.data) + t.byte_offset; }

// Points shape and strides into the object; strides that are NULL become those of a contiguous tensor.
void own_layout(Tensor* t, const DLTensor& source) {
  t->dl = source;
  t->dl.shape = t->shape;
  t->dl.strides = t->strides;
  int64_t dense = 1;
  for (int32_t i = source.ndim - 1; i >= 0; --i) {
    t->shape[i] = source.shape[i];
    t->strides[i] = source.strides == nullptr ? dense : source.strides[i];
    dense *= source.shape[i] == 0 ? 1 : source.shape[i];
  }
}

void tensor_dealloc(PyObject* self) {
  Tensor* const t = as_tensor(self);
  PyTypeObject* const type = Py_TYPE(self);
  if (t->managed != nullptr) release_managed(t->managed, t->versioned);
  if (t->owns) nw_free(runtime(), t->dl.device, t->dl.data, t->stream, nullptr);
  Py_XDECREF(t->keeps);
  Py_XDECREF(t->owner);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

// ---- capsules ----

void destroy_capsule(PyObject* capsule) {  // nobody has taken it
  for (const bool versioned : {false, true})
    if (PyCapsule_IsValid(capsule, kCapsuleNames[versioned]))
      release_managed(PyCapsule_GetPointer(capsule, kCapsuleNames[versioned]), versioned);
}

// An export: the tensor stays alive until the consumer lets go, from any thread, maybe after the interpreter's end.
template <class Managed>
void release_export(Managed* managed) {
  if (Py_IsInitialized()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(static_cast<PyObject*>(managed->manager_ctx));
    PyGILState_Release(state);
  }
  delete managed;
}

PyObject* export_tensor(PyObject* self, bool versioned, bool copied) {
  Tensor* const t = as_tensor(self);
  Py_INCREF(self);
  void* managed = nullptr;
  if (versioned) {
    const uint64_t flags = (t->read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0) | (copied ? DLPACK_FLAG_BITMASK_IS_COPIED : 0);
    managed = new DLManagedTensorVersioned{{1, 3}, self, release_export<DLManagedTensorVersioned>, flags, t->dl};
  } else {
    managed = new DLManagedTensor{t->dl, self, release_export<DLManagedTensor>};
  }
  PyObject* const capsule = PyCapsule_New(managed, kCapsuleNames[versioned], destroy_capsule);
  if (capsule == nullptr) release_managed(managed, versioned);
  return capsule;
}

bool is_none(PyObject* object) { return object == nullptr || object == Py_None; }

// What DLPack lets a consumer say: 0 might be CUDA's legacy stream or its per-thread one, and ROCm has neither 1 nor 2.
bool is_stream(int32_t device_type, long long number) {
  if (device_type == kDLROCM) return number >= 0 && number != 1 && number != 2;
  return number > 0 || (number == 0 && device_type != kDLCUDA && device_type != kDLCUDAManaged);
}

// Work on the consumer's stream waits for what is on ours; -1: the consumer sees to it. The CPU has no streams.
bool order_export(const Tensor* t, PyObject* stream) {
  const bool cpu = t->dl.device.device_type == kDLCPU, rocm = t->dl.device.device_type == kDLROCM;
  int overflow = 0;
  const long long number = !is_none(stream) ? PyLong_AsLongLongAndOverflow(stream, &overflow) : cpu ? -1 : rocm ? 0 : 1;
  if (PyErr_Occurred()) return false;
  if (number == -1 && overflow == 0) return true;
  if (cpu) return PyErr_Format(PyExc_RuntimeError, "stream = %R for a tensor on the CPU; expected None", stream), false;
  if (overflow != 0 || !is_stream(t->dl.device.device_type, number))
    return PyErr_Format(PyExc_ValueError, "__dlpack__: stream = %R; expected None, -1, %s or a stream's handle", stream,
                        rocm ? "0" : "1, 2") != nullptr;
  void* const consumer = stream_from_number(t->dl.device.device_type, number);
  if (consumer == t->stream) return true;
  nw_error error{};
  const int32_t status = nw_stream_wait(runtime(), t->dl.device, consumer, t->stream, &error);
  return status == NW_OK || raise(status, error) != nullptr;
}

// None leaves both as they are. False: exception set.
bool is_pair(PyObject* object, const char* name, int* first, int* second) {
  if (is_none(object)) return true;
  if (PyTuple_Check(object) && PyTuple_Size(object) == 2) return PyArg_ParseTuple(object, "ii", first, second) != 0;
  return PyErr_Format(PyExc_TypeError, "__dlpack__: %s is %R; expected None or two integers", name, object) != nullptr;
}

// What __dlpack__ exports: the tensor itself, or a copy where one is asked for, here or on the CPU. NULL: exception set.
PyObject* export_source(PyObject* self, PyObject* device, PyObject* copy) {
  const DLDevice own = as_tensor(self)->dl.device;
  int type = own.device_type, id = own.device_id;
  if (!is_pair(device, "dl_device", &type, &id)) return nullptr;
  const int wanted = is_none(copy) ? -1 : PyObject_IsTrue(copy);
  if (wanted < 0 && PyErr_Occurred()) return nullptr;
  const bool moves = type != own.device_type || id != own.device_id;
  if (moves && (type != kDLCPU || wanted == 0))
    return PyErr_Format(PyExc_BufferError, "the tensor is on another device; expected that one, or the CPU and copy=None or True");
  if (!moves && wanted != 1) return Ref::borrow(self).release();
  const Ref to(import_attribute("narrows._device", "to")), target(import_attribute("narrows._device", "Device"));
  const Ref where(to && target ? PyObject_CallFunction(target.get(), "ii", type, id) : nullptr);
  return where ? PyObject_CallFunctionObjArgs(to.get(), self, where.get(), nullptr) : nullptr;
}

PyObject* tensor_dlpack(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  PyObject *stream = nullptr, *max_version = nullptr, *device = nullptr, *copy = nullptr;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", const_cast<char**>(names), &stream, &max_version,
                                   &device, &copy))
    return nullptr;
  int major = 0, minor = 0;
  if (!is_pair(max_version, "max_version", &major, &minor)) return nullptr;
  const Ref source(export_source(self, device, copy));
  if (!source) return nullptr;
  const Tensor* const t = as_tensor(source.get());
  if (major < 1 && t->read_only) return PyErr_Format(PyExc_BufferError, "a read-only tensor needs DLPack 1.0 or later");
  return order_export(t, stream) ? export_tensor(source.get(), major >= 1, source.get() != self) : nullptr;
}

PyObject* tensor_dlpack_device(PyObject* self, PyObject*) {
  const DLDevice device = as_tensor(self)->dl.device;
  return Py_BuildValue("ii", static_cast<int>(device.device_type), static_cast<int>(device.device_id));
}

// ---- NumPy's interface, on the CPU ----

char kind_of(DLDataType t) {
  if (t.code == kDLInt) return 'i';
  if (t.code == kDLUInt) return 'u';
  return t.code == kDLBool ? 'b' : 'f';
}

// No buffer protocol: who takes the bytes alone, as torch.asarray and float() do, would lose shape and dtype without a word.
PyObject* get_array_interface(PyObject* self, void*) {
  const Tensor* const t = as_tensor(self);
  if (t->dl.device.device_type != kDLCPU || t->dl.dtype.code == kDLBfloat)
    return PyErr_Format(PyExc_AttributeError, "only tensors on the CPU have __array_interface__, and none of bfloat16");
  const int size = t->dl.dtype.bits / 8;
  int64_t steps[NW_MAX_NDIM];
  for (int32_t i = 0; i < t->dl.ndim; ++i) steps[i] = t->strides[i] * size;
  const Ref typestr(PyUnicode_FromFormat("%c%c%d", size == 1 ? '|' : '<', kind_of(t->dl.dtype), size));
  const Ref data(Py_BuildValue("NO", PyLong_FromVoidPtr(address(t->dl)), t->read_only ? Py_True : Py_False));
  const Ref shape(integers(t->shape, t->dl.ndim)), strides(integers(steps, t->dl.ndim));
  if (!typestr || !data || !shape || !strides) return nullptr;
  return Py_BuildValue("{sisOsOsOsO}", "version", 3, "typestr", typestr.get(), "data", data.get(), "shape", shape.get(), "strides",
                       strides.get());
}

int tensor_bool(PyObject*) {
  PyErr_SetString(PyExc_TypeError, "a narrows.Tensor is neither true nor false; expected t is None, or what t.numpy() holds");
  return -1;
}

// ---- methods ----

PyObject* get_shape(PyObject* self, void*) { return integers(as_tensor(self)->shape, as_tensor(self)->dl.ndim); }
PyObject* get_strides(PyObject* self, void*) { return integers(as_tensor(self)->strides, as_tensor(self)->dl.ndim); }
PyObject* get_dtype(PyObject* self, void*) { return PyUnicode_FromString(dtype_name(as_tensor(self)->dl.dtype)); }
PyObject* get_nbytes(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(bytes_of(as_tensor(self)->dl)); }
PyObject* get_data_ptr(PyObject* self, void*) { return PyLong_FromVoidPtr(address(as_tensor(self)->dl)); }
PyObject* get_stream(PyObject* self, void*) { return PyLong_FromVoidPtr(as_tensor(self)->stream); }
PyObject* get_read_only(PyObject* self, void*) { return PyBool_FromLong(as_tensor(self)->read_only); }
PyObject* get_contiguous(PyObject* self, void*) { return PyBool_FromLong(contiguous(as_tensor(self)->dl)); }
PyObject* get_device(PyObject* self, void*) {
  const Ref type(import_attribute("narrows._device", "Device"));
  const DLDevice device = as_tensor(self)->dl.device;
  return type ? PyObject_CallFunction(type.get(), "ii", static_cast<int>(device.device_type), static_cast<int>(device.device_id))
              : nullptr;
}

// The stream that a copy runs on: where there are two, each waits for the other, since the source's memory is freed on its own.
struct CopyStreams {
  DLDevice device;
  void *copy, *source;
};

CopyStreams copy_streams(const Tensor* to, PyObject* source, const DLTensor& from) {
  const bool own = own_tensor(source) != nullptr && from.device.device_type != kDLCPU;
  if (!own) return {to->dl.device, to->stream, to->stream};
  if (to->dl.device.device_type == kDLCPU) return {from.device, own_stream(source), own_stream(source)};
  return {to->dl.device, to->stream, own_stream(source)};
}

// Streams wait for each other on one device; between two the host waits.
int32_t copy_between_devices(nw_runtime* rt, const DLTensor& to, const DLTensor& from, const CopyStreams& streams,
                             nw_error* error) {
  int32_t status = streams.copy == streams.source ? NW_OK : nw_stream_sync(rt, from.device, streams.source, error);
  if (status == NW_OK) status = nw_copy(rt, to.device, address(to), from.device, address(from), bytes_of(to), streams.copy, error);
  return status == NW_OK ? nw_stream_sync(rt, to.device, streams.copy, error) : status;
}

int32_t copy_in_order(nw_runtime* rt, const DLTensor& to, const DLTensor& from, const CopyStreams& streams, nw_error* error) {
  if (to.device.device_type == from.device.device_type && to.device.device_id != from.device.device_id)
    return copy_between_devices(rt, to, from, streams, error);
  const bool two = streams.copy != streams.source;
  int32_t status = two ? nw_stream_wait(rt, streams.device, streams.copy, streams.source, error) : NW_OK;
  if (status == NW_OK) status = nw_copy(rt, to.device, address(to), from.device, address(from), bytes_of(to), streams.copy, error);
  if (status == NW_OK && two) status = nw_stream_wait(rt, from.device, streams.source, streams.copy, error);
  return status;
}

// Bytes of `source`, contiguous, into this contiguous tensor; both may be on any device.
PyObject* tensor_copy_from(PyObject* self, PyObject* source) {
  Tensor* const to = as_tensor(self);
  Array from;
  if (!from.read(source, route_of(source), to->stream)) return nullptr;
  if (to->read_only || !contiguous(to->dl)) return PyErr_Format(PyExc_ValueError, "expected a writable, contiguous tensor");
  Tensor* const layout = new_object();
  const Ref keep(reinterpret_cast<PyObject*>(layout));
  if (layout == nullptr) return nullptr;
  own_layout(layout, from.tensor);
  if (!contiguous(layout->dl) || bytes_of(layout->dl) != bytes_of(to->dl))
    return PyErr_Format(PyExc_ValueError, "expected a contiguous source of %lld bytes", static_cast<long long>(bytes_of(to->dl)));
  nw_runtime* const rt = runtime();
  if (rt == nullptr || bytes_of(to->dl) == 0) return Ref::borrow(PyErr_Occurred() ? nullptr : Py_None).release();
  const CopyStreams streams = copy_streams(to, source, layout->dl);
  nw_error error{};
  int32_t status = NW_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = copy_in_order(rt, to->dl, layout->dl, streams, &error);
  Py_END_ALLOW_THREADS;
  return status == NW_OK ? Ref::borrow(Py_None).release() : raise(status, error);
}

// The same tensor over the same memory.
PyObject* same_memory(PyObject* self) {
  const Tensor* const t = as_tensor(self);
  Tensor* const view = new_object();
  if (view == nullptr) return nullptr;
  own_layout(view, t->dl);
  view->stream = t->stream;
  view->keeps = t->keeps == nullptr ? nullptr : Ref::borrow(t->keeps).release();
  view->read_only = t->read_only;
  view->owner = Ref::borrow(self).release();
  return reinterpret_cast<PyObject*>(view);
}

// The same memory in a dtype of the same size.
PyObject* tensor_view(PyObject* self, PyObject* dtype_object) {
  const Tensor* const t = as_tensor(self);
  DLDataType dtype{};
  if (!parse_dtype(dtype_object, &dtype)) return nullptr;
  if (dtype.bits != t->dl.dtype.bits)
    return PyErr_Format(PyExc_ValueError, "view: %s has %d bits; expected %d, as %s", dtype_name(dtype), dtype.bits,
                        t->dl.dtype.bits, dtype_name(t->dl.dtype));
  PyObject* const view = same_memory(self);
  if (view != nullptr) as_tensor(view)->dl.dtype = dtype;
  return view;
}

// Part of the memory by a dtype, a shape, strides in elements and the first element's byte: for the tests of narrows.testing.
PyObject* tensor_strided(PyObject* self, PyObject* arguments) {
  const Tensor* const t = as_tensor(self);
  DLDataType dtype{};
  PyObject *dtype_object = nullptr, *shape = nullptr, *strides = nullptr;
  long long begin = 0;
  if (!PyArg_ParseTuple(arguments, "OO!O!L:_strided", &dtype_object, &PyTuple_Type, &shape, &PyTuple_Type, &strides, &begin) ||
      !parse_dtype(dtype_object, &dtype))
    return nullptr;
  const Py_ssize_t ndim = PyTuple_Size(shape);
  if (ndim > NW_MAX_NDIM || PyTuple_Size(strides) != ndim || !contiguous(t->dl))
    return PyErr_Format(PyExc_ValueError, "_strided: expected a contiguous tensor, and as many strides as extents");
  Tensor* const view = as_tensor(same_memory(self));
  Ref made(reinterpret_cast<PyObject*>(view));
  if (view == nullptr) return nullptr;
  view->dl.dtype = dtype;
  view->dl.ndim = static_cast<int32_t>(ndim);
  int64_t low = begin, high = begin + dtype.bits / 8;
  for (Py_ssize_t d = 0; d < ndim; ++d) {
    view->shape[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
    view->strides[d] = PyLong_AsLongLong(PyTuple_GetItem(strides, d));
    if (PyErr_Occurred()) return nullptr;
    const int64_t reach = (view->shape[d] - 1) * view->strides[d] * (dtype.bits / 8);
    (reach < 0 ? low : high) += reach;
  }
  if (elements(view->dl) < 0 || (elements(view->dl) != 0 && (low < 0 || high > static_cast<int64_t>(bytes_of(t->dl)))))
    return PyErr_Format(PyExc_ValueError, "_strided: bytes %lld to %lld of a tensor of %lld", static_cast<long long>(low),
                        static_cast<long long>(high), static_cast<long long>(bytes_of(t->dl)));
  view->dl.byte_offset += static_cast<uint64_t>(begin);
  return made.release();
}

// to(device, stream=None) and numpy() are Python.
PyObject* tensor_to(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* const names[] = {"device", "stream", nullptr};
  const Ref function(import_attribute("narrows._device", "to"));
  PyObject *device = nullptr, *stream = Py_None;
  if (!function || !PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O:to", const_cast<char**>(names), &device, &stream))
    return nullptr;
  return PyObject_CallFunctionObjArgs(function.get(), self, device, stream, nullptr);
}
PyObject* tensor_numpy(PyObject* self, PyObject*) {
  const Ref function(import_attribute("narrows._device", "numpy"));
  return function ? PyObject_CallFunctionObjArgs(function.get(), self, nullptr) : nullptr;
}

// What NumPy asks for where there is no __array_interface__, and JAX in jax.numpy.asarray: Python too.
PyObject* tensor_array(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* const names[] = {"dtype", "copy", nullptr};
  const Ref function(import_attribute("narrows._device", "array"));
  PyObject *dtype = Py_None, *copy = Py_None;
  if (!function || !PyArg_ParseTupleAndKeywords(arguments, keywords, "|OO:__array__", const_cast<char**>(names), &dtype, &copy))
    return nullptr;
  return PyObject_CallFunctionObjArgs(function.get(), self, dtype, copy, nullptr);
}

PyObject* tensor_jax_array(PyObject* self, PyObject*) {
  const Ref function(import_attribute("narrows._device", "jax_array"));
  return function ? PyObject_CallFunctionObjArgs(function.get(), self, nullptr) : nullptr;
}

PyObject* tensor_repr(PyObject* self) {
  const Ref shape(get_shape(self, nullptr)), device(get_device(self, nullptr));
  const Ref text(device ? PyObject_Str(device.get()) : nullptr);
  return shape && text ? PyUnicode_FromFormat("narrows.Tensor(shape=%R, dtype='%s', device='%U')", shape.get(),
                                              dtype_name(as_tensor(self)->dl.dtype), text.get())
                       : nullptr;
}

PyGetSetDef getset[] = {{"shape", get_shape, nullptr, "Extents, a tuple of int.", nullptr},
                        {"strides", get_strides, nullptr, "Strides in elements, a tuple of int.", nullptr},
                        {"dtype", get_dtype, nullptr, "The dtype's name: 'float32'.", nullptr},
                        {"device", get_device, nullptr, "The narrows.Device.", nullptr},
                        {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
                        {"data_ptr", get_data_ptr, nullptr, "The address of the first element, as the backend means it.", nullptr},
                        {"stream", get_stream, nullptr, "The native handle of the stream that the memory was made on.", nullptr},
                        {"read_only", get_read_only, nullptr, "Whether it may not be an output.", nullptr},
                        {"contiguous", get_contiguous, nullptr, "Whether it is C-contiguous.", nullptr},
                        {"__array_interface__", get_array_interface, nullptr, nullptr, nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
constexpr const char* kTensorDoc =
    R"(A tensor of any device: what narrows.empty and narrows.from_dlpack give, and ops of it.

It exports itself by DLPack, to NumPy's asarray, torch's and JAX's too; its memory lives as long as what was exported.
TypeError: it is called; narrows.empty makes one.

    >>> import numpy, narrows
    >>> t = narrows.from_dlpack(numpy.ones((2, 3), "float32"))
    >>> t.shape, t.strides, t.dtype, t.device, t.nbytes
    ((2, 3), (3, 1), 'float32', narrows.Device('cpu'), 24)
    >>> numpy.from_dlpack(narrows.add(t, 1)).sum()
    np.float32(12.0)
)";
constexpr const char* kToDoc =
    R"(to($self, /, device, stream=None)
--

A contiguous copy on a device, made on that stream of it (narrows.Stream or a native handle); else on its default one.

ValueError: no such device; RuntimeError: it is not there; MemoryError.

    >>> import narrows
    >>> narrows.empty((3,)).to("cpu")
    narrows.Tensor(shape=(3,), dtype='float32', device='cpu')
)";
constexpr const char* kNumpyDoc =
    R"(numpy($self, /)
--

A NumPy array over a CPU tensor's memory, else of a copy. bfloat16 needs the package ml_dtypes.

    >>> import narrows
    >>> narrows.empty((0, 3), "int8").numpy()
    array([], shape=(0, 3), dtype=int8)
)";
constexpr const char* kViewDoc =
    R"(view($self, dtype, /)
--

The same memory in a dtype of the same size. ValueError: of another size, or no dtype.

    >>> import numpy, narrows
    >>> narrows.from_dlpack(numpy.ones(1, "float32")).view("uint32").numpy()
    array([1065353216], dtype=uint32)
)";

PyMethodDef methods[] = {
    {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(tensor_dlpack)), METH_VARARGS | METH_KEYWORDS,
     nullptr},
    {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS, nullptr},
    {"__array__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(tensor_array)), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"__jax_array__", tensor_jax_array, METH_NOARGS, nullptr},
    {"_copy_from", tensor_copy_from, METH_O, nullptr},
    {"to", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(tensor_to)), METH_VARARGS | METH_KEYWORDS, kToDoc},
    {"numpy", tensor_numpy, METH_NOARGS, kNumpyDoc},
    {"view", tensor_view, METH_O, kViewDoc},
    {"_strided", tensor_strided, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(tensor_dealloc)},
                       {Py_tp_repr, reinterpret_cast<void*>(tensor_repr)},
                       {Py_nb_bool, reinterpret_cast<void*>(tensor_bool)},
                       {Py_tp_getset, getset},
                       {Py_tp_methods, methods},
                       {Py_tp_doc, const_cast<char*>(kTensorDoc)},
                       {0, nullptr}};
PyType_Spec spec = {"narrows._narrows.Tensor", sizeof(Tensor), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

int add_tensor_type(PyObject* module) {
  if (tensor_type == nullptr) tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));  // else it is imported again
  return tensor_type == nullptr ? -1 : PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type));
}

const DLTensor* own_tensor(PyObject* object) { return Py_TYPE(object) == tensor_type ? &as_tensor(object)->dl : nullptr; }
bool own_read_only(PyObject* object) { return as_tensor(object)->read_only; }
void* own_stream(PyObject* object) { return as_tensor(object)->stream; }
PyObject* own_stream_object(PyObject* object) { return as_tensor(object)->keeps; }

PyObject* new_tensor(const nw_spec& spec, DLDevice device, void* stream, PyObject* stream_object) {
  nw_runtime* const rt = runtime();
  Tensor* const t = rt == nullptr ? nullptr : new_object();
  if (t == nullptr) return nullptr;
  Ref object(reinterpret_cast<PyObject*>(t));
  uint64_t size = spec.dtype.bits / 8;
  for (int32_t i = 0; i < spec.ndim; ++i)
    if (__builtin_mul_overflow(size, static_cast<uint64_t>(spec.shape[i]), &size))
      return PyErr_Format(PyExc_ValueError, "a tensor of more than 2^64 bytes");
  own_layout(t, {nullptr, device, spec.ndim, spec.dtype, const_cast<int64_t*>(spec.shape), nullptr, 0});
  t->stream = stream;
  if (stream_object != nullptr) t->keeps = Ref::borrow(stream_object).release();
  nw_error error{};
  const int32_t status = nw_alloc(rt, device, size, stream, &t->dl.data, &error);
  if (status != NW_OK) return raise(status, error);
  t->owns = true;
  return object.release();
}

namespace {

// What a call leaves to core. False: exception set.
bool is_there(const DLTensor& t) {
  int64_t bytes = (int64_t{t.dtype.bits} + 7) / 8;
  for (int32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] >= 0 && !__builtin_mul_overflow(bytes, t.shape[i], &bytes)) continue;
    PyErr_Format(PyExc_ValueError,
                 "__dlpack__ gave extent %lld in dimension %d; expected 0 or more, and less than 2^63 bytes in all",
                 static_cast<long long>(t.shape[i]), static_cast<int>(i));
    return false;
  }
  if (bytes == 0 || t.data != nullptr) return true;
  PyErr_Format(PyExc_ValueError, "__dlpack__ gave data NULL; expected memory of %lld bytes", static_cast<long long>(bytes));
  return false;
}

PyObject* tensor_of_capsule(PyObject* capsule, Route route, DLDevice said, void* stream) {
  Tensor* const t = new_object();
  if (t == nullptr) return nullptr;
  Ref result(reinterpret_cast<PyObject*>(t));
  const DLTensor* source = nullptr;
  Array checked;
  if (!open_capsule(capsule, &t->managed, &t->versioned, &source, &t->read_only) || !checked.assign(*source)) return nullptr;
  if (route == Route::dlpack && !is_where_said(said, checked.tensor)) return nullptr;
  if (*dtype_name(source->dtype) == '\0')
    return PyErr_Format(PyExc_NotImplementedError, "the array has dtype %s; expected %s", show_dtype(source->dtype).c_str(),
                        kDtypesExpected);
  if (!is_there(checked.tensor)) return nullptr;
  own_layout(t, checked.tensor);
  t->read_only |= route == Route::jax;  // JAX's arrays never change, and its capsules do not say so
  t->stream = stream;
  return result.release();
}

}  // namespace

PyObject* borrow_dlpack(PyObject* object, void* stream) {
  const Route route = route_of(object).route;
  const int negated = route == Route::torch || route == Route::torch_other ? torch_is_negated(object) : 0;
  if (negated < 0) return nullptr;
  if (negated > 0)
    return PyErr_Format(PyExc_BufferError, "the tensor's values are the negatives of those in memory; expected x.resolve_neg()");
  DLDevice said{};
  PyObject* const capsule = dlpack_capsule(object, stream, &said);
  PyObject* const result = capsule != nullptr ? tensor_of_capsule(capsule, route, said, stream) : nullptr;
  release_capsule(capsule);
  return result;
}

PyObject* integers(const int64_t* values, int32_t count) {
  Ref tuple(PyTuple_New(count));
  for (int32_t i = 0; tuple && i < count; ++i) PyTuple_SetItem(tuple.get(), i, PyLong_FromLongLong(values[i]));
  return tuple.release();
}

}  // namespace narrows::python
