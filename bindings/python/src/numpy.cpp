// SPDX-License-Identifier: Apache-2.0
// numpy.cpp -- NumPy's arrays without linking NumPy: its C structs, as every extension that was compiled against NumPy reads them,
// and its C API's table. tests/python/test_numpy.py compares offsets and numbers with NumPy's own headers.
#include "numpy_api.h"

#include <atomic>
#include <bit>

#include "arrays.h"

namespace narrows::python {
namespace {

using namespace narrows::numpy;

// The dtype of NumPy's number; bits 0: none that we have.
DLDataType dtype_of(int number) {
  static constexpr DLDataType kDtypes[] = {
      {kDLBool, 8, 1}, {kDLInt, 8, 1},   {kDLUInt, 8, 1}, {kDLInt, 16, 1},  {kDLUInt, 16, 1},  {kDLInt, 32, 1},  {kDLUInt, 32, 1},
      {kDLInt, 64, 1}, {kDLUInt, 64, 1}, {kDLInt, 64, 1}, {kDLUInt, 64, 1}, {kDLFloat, 32, 1}, {kDLFloat, 64, 1}};
  if (number == kHalf) return {kDLFloat, 16, 1};
  return number >= 0 && number <= kDouble ? kDtypes[number] : DLDataType{};
}

// NumPy's number of a dtype; -1: it has none of its own.
int number_of(DLDataType dtype) {
  static constexpr int kSigned[] = {1, 3, 5, 7}, kUnsigned[] = {2, 4, 6, 8};
  const int size = dtype.bits == 64 ? 3 : dtype.bits / 16;
  switch (dtype.code) {
    case kDLBool: return 0;
    case kDLInt: return kSigned[size];
    case kDLUInt: return kUnsigned[size];
    case kDLFloat: return dtype.bits == 16 ? kHalf : dtype.bits == 32 ? kFloat : kDouble;
    default: return -1;
  }
}

// NumPy's table of functions. NULL: exception set.
void* const* table() {
  static std::atomic<void* const*> known;
  void* const* found = known.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  Ref capsule = import_attribute("numpy._core._multiarray_umath", "_ARRAY_API");
  if (!capsule) {  // before NumPy 2
    PyErr_Clear();
    capsule = import_attribute("numpy.core._multiarray_umath", "_ARRAY_API");
  }
  if (capsule) found = static_cast<void* const*>(PyCapsule_GetPointer(capsule.get(), nullptr));
  known.store(found, std::memory_order_release);
  return found;
}

// "float32" of an array's dtype, for messages and for dtypes that NumPy got from elsewhere.
std::string dtype_text(PyObject* object) {
  const Ref dtype(PyObject_GetAttrString(object, "dtype"));
  const Ref text(dtype ? PyObject_Str(dtype.get()) : nullptr);
  const char* const utf8 = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  PyErr_Clear();
  return utf8 == nullptr ? "unknown" : utf8;
}

// A dtype that is not NumPy's own: bfloat16 of ml_dtypes, or none that can be used. bits 0: exception set.
DLDataType other_dtype(PyObject* object, const Descriptor& d) {
  const std::string name = dtype_text(object);
  if (name == "bfloat16") return {kDLBfloat, 16, 1};
  const bool big_endian = d.byte_order == '>';
  PyErr_Format(PyExc_TypeError, "a NumPy array of dtype %s%s; expected %s", name.c_str(), big_endian ? ", big-endian" : "",
               big_endian ? "little-endian numbers or bool" : "numbers or bool");
  return {};
}

PyObject* empty_of_other_dtype(const OutputSpec& output) {
  const Ref bfloat16 = import_attribute("ml_dtypes", "bfloat16");
  if (!bfloat16) {
    if (PyErr_ExceptionMatches(PyExc_ImportError))
      PyErr_SetString(PyExc_NotImplementedError, "NumPy has no bfloat16; install ml_dtypes for it");
    return nullptr;
  }
  const Ref empty = import_attribute("numpy", "empty");
  return empty ? PyObject_CallFunctionObjArgs(empty.get(), output.shape.get(), bfloat16.get(), nullptr) : nullptr;
}

}  // namespace

bool Array::read_numpy(PyObject* object) {
  const auto* const a = reinterpret_cast<const NumpyArray*>(object);
  const Descriptor& d = *a->descriptor;
  DLDataType dtype = d.byte_order == '>' ? DLDataType{} : dtype_of(d.type_number);
  if (dtype.bits == 0) dtype = other_dtype(object, d);
  if (dtype.bits == 0) return false;
  if (a->ndim > NW_MAX_NDIM) {
    PyErr_Format(PyExc_ValueError, "a NumPy array of %d dimensions; expected %d at most", a->ndim, NW_MAX_NDIM);
    return false;
  }
  const int64_t size = dtype.bits / 8;
  const int log2 = std::countr_zero(static_cast<unsigned>(size));
  for (int i = 0; i < a->ndim; ++i) {
    shape_[i] = a->shape[i];
    strides_[i] = a->strides[i] >> log2;  // a division here takes as long as all the rest
    if ((a->strides[i] & (size - 1)) == 0 || shape_[i] <= 1) continue;
    PyErr_Format(PyExc_ValueError, "a NumPy array with a stride of %zd bytes; expected a multiple of the item size, %d",
                 static_cast<Py_ssize_t>(a->strides[i]), static_cast<int>(size));
    return false;
  }
  read_only = (a->flags & kWriteable) == 0;
  tensor = {a->data, {kDLCPU, 0}, a->ndim, dtype, shape_, strides_, 0};
  return true;
}

void* numpy_data(PyObject* object) { return reinterpret_cast<const NumpyArray*>(object)->data; }

PyObject* numpy_empty(const OutputSpec& output) {
  const int number = number_of(output.spec.dtype);
  if (number < 0) return empty_of_other_dtype(output);
  void* const* const functions = table();
  if (functions == nullptr) return nullptr;
  const auto make = reinterpret_cast<NewArray>(functions[kNew]);
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
  return make(static_cast<PyTypeObject*>(functions[kArrayType]), output.spec.ndim,
              reinterpret_cast<const Py_ssize_t*>(output.spec.shape), number, nullptr, nullptr, 0, 0, nullptr);
}

}  // namespace narrows::python
