// SPDX-License-Identifier: Apache-2.0
// capsules.cpp -- DLPack's capsules of others: asking a producer for one and opening it; what it says is believed only where it can
// be read. tensor.cpp makes capsules of our own.
#include "arrays.h"

namespace narrows::python {
namespace {

const char* const kUsed[] = {"used_dltensor", "used_dltensor_versioned"};

}  // namespace

void* stream_from_number(int32_t device_type, int64_t number) {
  if (device_type == kDLROCM) return pointer(static_cast<uint64_t>(number));
  return number <= 1 ? nullptr
                     : pointer(static_cast<uint64_t>(number));  // CUDA: 1 is the legacy default stream, 2 the per-thread one
}
int64_t number_from_stream(int32_t device_type, void* stream) {
  return stream == nullptr && device_type != kDLROCM ? 1 : reinterpret_cast<int64_t>(stream);
}

bool open_capsule(PyObject* capsule, void** managed, bool* versioned, const DLTensor** tensor, bool* read_only) {
  *versioned = PyCapsule_IsValid(capsule, kCapsuleNames[1]) != 0;
  if (!*versioned && !PyCapsule_IsValid(capsule, kCapsuleNames[0])) {
    PyErr_Format(PyExc_TypeError, "__dlpack__ gave %R; expected a new capsule 'dltensor' or 'dltensor_versioned'", capsule);
    return false;
  }
  void* const held = PyCapsule_GetPointer(capsule, kCapsuleNames[*versioned]);
  PyCapsule_SetName(capsule, kUsed[*versioned]);
  *managed = held;
  if (!*versioned) {
    *tensor = &static_cast<DLManagedTensor*>(held)->dl_tensor;
    *read_only = false;
    return true;
  }
  const auto* const v = static_cast<DLManagedTensorVersioned*>(held);
  if (v->version.major != 1) {
    PyErr_Format(PyExc_NotImplementedError, "__dlpack__ gave DLPack %u.%u; expected 1.x", v->version.major, v->version.minor);
    return false;  // the caller releases it, which is all that may be done with it
  }
  *tensor = &v->dl_tensor;
  *read_only = (v->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  return true;
}

void release_capsule(PyObject* capsule) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  Py_XDECREF(capsule);
  PyErr_Restore(type, value, trace);
}

void release_managed(void* managed, bool versioned) {
  if (versioned) {
    auto* const v = static_cast<DLManagedTensorVersioned*>(managed);
    if (v->deleter != nullptr) v->deleter(v);
  } else {
    auto* const m = static_cast<DLManagedTensor*>(managed);
    if (m->deleter != nullptr) m->deleter(m);
  }
}

bool dlpack_device(PyObject* object, DLDevice* out) {
  *out = {kDLCPU, 0};
  const Ref type(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
  if (!PyObject_HasAttrString(object, "__dlpack_device__")) {
    if (type) PyErr_Format(PyExc_TypeError, "%U is no array: it has __dlpack__, but no __dlpack_device__", type.get());
    return false;
  }
  const Ref device(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  if (!device || !type) return false;
  const bool pair = PyTuple_Check(device.get()) && PyTuple_Size(device.get()) == 2;
  const Ref first(pair ? PyNumber_Index(PyTuple_GetItem(device.get(), 0)) : nullptr);  // of an enumeration, too
  const Ref second(pair ? PyNumber_Index(PyTuple_GetItem(device.get(), 1)) : nullptr);
  const long kind = first ? PyLong_AsLong(first.get()) : -1, id = second ? PyLong_AsLong(second.get()) : -1;
  PyErr_Clear();
  if (kind < 0 || kind > INT32_MAX || id < 0 || id > INT32_MAX) {
    PyErr_Format(PyExc_TypeError, "%U is no array: its __dlpack_device__ is %R; expected two integers, type and number", type.get(),
                 device.get());
    return false;
  }
  *out = {static_cast<DLDeviceType>(kind), static_cast<int32_t>(id)};
  return true;
}

// Memory of the host that a GPU sees too is the CPU's to some, and managed memory the GPU's.
bool is_where_said(DLDevice said, const DLTensor& tensor) {
  const auto general = [](DLDevice d) {
    if (d.device_type == kDLCUDAHost || d.device_type == kDLROCMHost) return DLDevice{kDLCPU, 0};
    return d.device_type == kDLCUDAManaged ? DLDevice{kDLCUDA, d.device_id} : d;
  };
  const DLDevice a = general(said), b = general(tensor.device);
  if (a.device_type == b.device_type && a.device_id == b.device_id) return true;
  PyErr_Format(PyExc_ValueError, "__dlpack_device__ gave (%d, %d), but __dlpack__ a tensor on (%d, %d); expected one device",
               static_cast<int>(said.device_type), static_cast<int>(said.device_id), static_cast<int>(tensor.device.device_type),
               static_cast<int>(tensor.device.device_id));
  return false;
}

PyObject* dlpack_capsule(PyObject* object, void* stream, DLDevice* said) {
  if (!dlpack_device(object, said)) return nullptr;
  const DLDevice device = *said;
  const int type = device.device_type;
  const bool ordered = type == kDLCUDA || type == kDLROCM || type == kDLCUDAManaged;
  const Ref number(ordered ? PyLong_FromLongLong(number_from_stream(type, stream)) : Ref::borrow(Py_None).release());
  const Ref method(PyObject_GetAttrString(object, "__dlpack__"));
  const Ref none(PyTuple_New(0));
  const Ref keywords(Py_BuildValue("{s(ii)sO}", "max_version", 1, 3, "stream", number.get()));
  if (!method || !none || !keywords) return nullptr;
  Ref capsule(PyObject_Call(method.get(), none.get(), keywords.get()));
  if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError)) return capsule.release();
  PyErr_Clear();  // a producer from before DLPack 1.0
  const Ref stream_only(ordered ? Py_BuildValue("{sO}", "stream", number.get()) : PyDict_New());
  return stream_only ? PyObject_Call(method.get(), none.get(), stream_only.get()) : nullptr;
}

}  // namespace narrows::python
