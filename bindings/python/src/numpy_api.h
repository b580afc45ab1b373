// SPDX-License-Identifier: Apache-2.0
// numpy_api.h -- the part of NumPy's binary interface that is used: the same in NumPy 1 and 2, as are the numbers. Nothing of NumPy
// is included, so that the wheel is built without it; tests/python/test_numpy.py compares this with NumPy's headers.
#ifndef NARROWS_PYTHON_NUMPY_API_H
#define NARROWS_PYTHON_NUMPY_API_H

#include <Python.h>

namespace narrows::numpy {

struct Descriptor {  // PyArray_Descr
  PyObject ob_base;
  PyTypeObject* type;
  char kind, type_char, byte_order, former_flags;
  int type_number;
};

struct NumpyArray {  // PyArrayObject_fields
  PyObject ob_base;
  char* data;
  int ndim;
  Py_ssize_t *shape, *strides;  // strides in bytes
  PyObject* base;
  Descriptor* descriptor;
  int flags;
};

constexpr int kFloat = 11, kDouble = 12, kHalf = 23;  // NPY_FLOAT, NPY_DOUBLE, NPY_HALF; NPY_BOOL to NPY_DOUBLE are 0 to 12
constexpr int kWriteable = 0x400;                     // NPY_ARRAY_WRITEABLE
constexpr int kArrayType = 2, kNew = 93;              // PyArray_Type and PyArray_New in the table

using NewArray = PyObject* (*)(PyTypeObject* type, int ndim, const Py_ssize_t* shape, int number, const Py_ssize_t* strides,
                               void* data, int item_size, int flags, PyObject* object);

}  // namespace narrows::numpy
#endif
