// SPDX-License-Identifier: Apache-2.0
// cuda_interface.cpp -- arrays that have no __dlpack__ but Numba's __cuda_array_interface__, versions 0 to 3. It names no device,
// so there may be only one.
#include <cstdlib>
#include <cstring>

#include "arrays.h"

namespace narrows::python {
namespace {

// interface[key], borrowed; NULL: absent or None, with or without an exception.
PyObject* item(PyObject* interface, const char* key) {
  PyObject* const found = PyDict_GetItemString(interface, key);
  return found == Py_None ? nullptr : found;
}

// "<f4" and the like. False: exception set.
bool parse_type(PyObject* text, DLDataType* out) {
  const char* const type = text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, nullptr) : nullptr;
  const size_t length = type == nullptr ? 0 : std::strlen(type);
  const long size = length < 3 ? 0 : std::strtol(type + 2, nullptr, 10);
  const char* const known = length < 3 ? nullptr : std::strchr("iufb", type[1]);
  const bool order = length >= 3 && (type[0] == '<' || type[0] == '|' || type[0] == '=' || (type[0] == '>' && size == 1));
  if (known != nullptr && order && (size == 1 || size == 2 || size == 4 || size == 8)) {
    static constexpr uint8_t kCodes[] = {kDLInt, kDLUInt, kDLFloat, kDLBool};
    *out = {kCodes[known - "iufb"], static_cast<uint8_t>(8 * size), 1};
    if (*dtype_name(*out) != '\0') return true;
  }
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_TypeError,
                 "__cuda_array_interface__: typestr is %R; expected a little-endian integer, float or bool, as '<f4'",
                 text == nullptr ? Py_None : text);
  return false;
}

// A tuple of int; the number of them, -1: exception set.
int32_t parse_extents(PyObject* tuple, const char* key, int64_t* out) {
  const Py_ssize_t count = tuple != nullptr && PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
  if (count < 0 || count > NW_MAX_NDIM) {
    PyErr_Format(PyExc_TypeError, "__cuda_array_interface__: %s is %R; expected a tuple of up to %d int", key,
                 tuple == nullptr ? Py_None : tuple, NW_MAX_NDIM);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
  return PyErr_Occurred() ? -1 : static_cast<int32_t>(count);
}

bool parse_strides(PyObject* tuple, const DLTensor& t, int64_t* out) {
  const int32_t count = parse_extents(tuple, "strides", out);
  const int item_bytes = t.dtype.bits / 8;
  bool fit = count == t.ndim;
  for (int32_t i = 0; i < count; ++i) {
    fit = fit && out[i] % item_bytes == 0;
    out[i] /= item_bytes;
  }
  if (count >= 0 && !fit)
    PyErr_Format(PyExc_ValueError, "__cuda_array_interface__: strides are %R; expected %d multiples of %d bytes", tuple, t.ndim,
                 item_bytes);
  return count >= 0 && fit;
}

bool parse_data(PyObject* data, DLTensor* t, bool* read_only) {
  if (data == nullptr || !PyTuple_Check(data) || PyTuple_Size(data) != 2) {
    PyErr_Format(PyExc_TypeError, "__cuda_array_interface__: data is %R; expected (address, whether it is read-only)",
                 data == nullptr ? Py_None : data);
    return false;
  }
  t->data = pointer(PyLong_AsUnsignedLongLong(PyTuple_GetItem(data, 0)));
  *read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1)) != 0;
  return !PyErr_Occurred();
}

// The one device there is.
bool check_one_device() {
  uint32_t count = 0;
  for (uint32_t i = 0; i < nw_backend_count(runtime()); ++i) {
    nw_backend_info b{};
    b.struct_size = sizeof b;
    if (nw_backend(runtime(), i, &b, nullptr) != NW_OK || b.device_type != kDLCUDA) continue;
    if (b.device_count > static_cast<int32_t>(count)) count = static_cast<uint32_t>(b.device_count);
  }
  if (count < 2) return true;
  PyErr_Format(PyExc_ValueError, "__cuda_array_interface__ does not say which of %u devices; expected an array with __dlpack__",
               count);
  return false;
}

// Work on the call's stream waits for the producer's.
bool wait_for(PyObject* number, DLDevice device, void* stream) {
  if (number == nullptr) return true;  // the producer says that there is nothing to wait for
  const unsigned long long handle = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred()) return false;
  if (handle == 0) {
    PyErr_SetString(PyExc_ValueError, "__cuda_array_interface__: stream is 0; expected None, 1, 2 or a stream's handle");
    return false;
  }
  void* const producer = stream_from_number(kDLCUDA, static_cast<int64_t>(handle));
  if (producer == stream) return true;
  nw_error error{};
  const int32_t status = nw_stream_wait(runtime(), device, stream, producer, &error);
  return status == NW_OK || raise(status, error) != nullptr;
}

}  // namespace

bool Array::read_cuda_interface(PyObject* object, void* stream) {
  const Ref interface(PyObject_GetAttrString(object, "__cuda_array_interface__"));
  if (!interface || runtime() == nullptr) return false;
  if (!PyDict_Check(interface.get()))
    return PyErr_Format(PyExc_TypeError, "__cuda_array_interface__ is %R; expected a dict", interface.get()), false;
  if (item(interface.get(), "mask") != nullptr)
    return PyErr_Format(PyExc_TypeError, "__cuda_array_interface__: mask is given; expected an array without one"), false;
  int64_t shape[NW_MAX_NDIM], strides[NW_MAX_NDIM];
  DLTensor t{nullptr, {kDLCUDA, 0}, 0, {}, shape, nullptr, 0};
  t.ndim = parse_extents(item(interface.get(), "shape"), "shape", shape);
  if (t.ndim < 0 || !parse_type(item(interface.get(), "typestr"), &t.dtype)) return false;
  if (!parse_data(item(interface.get(), "data"), &t, &read_only) || !check_one_device()) return false;
  if (PyObject* const given = item(interface.get(), "strides")) {
    if (!parse_strides(given, t, strides)) return false;
    t.strides = strides;
  }
  return wait_for(item(interface.get(), "stream"), t.device, stream) && assign(t);
}

}  // namespace narrows::python
