// SPDX-License-Identifier: Apache-2.0
// fields.cpp -- the params blob, filled in by name from an op's field table.
#include <cmath>
#include <cstring>

#include "core/near.h"
#include "op.h"

namespace narrows::python {
namespace {

const nw_param& field_of(const Declaration& d, int field) { return *d.op->params[field]; }

// One element of a field. The blob is little-endian, as every host of Narrows is.
void store(unsigned char* to, const nw_param& f, const void* value) { std::memcpy(to, value, f.dtype.bits / 8); }

bool store_integer(const Declaration& d, const nw_param& f, PyObject* value, unsigned char* to) {
  const Ref index(PyNumber_Index(value));
  if (!index) {
    PyErr_Format(PyExc_TypeError, "%s: %s is %R; expected an integer", d.op->name, f.name, value);
    return false;
  }
  const bool is_signed = f.dtype.code == kDLInt;
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  bool fits = overflow == 0;
  if (!is_signed && overflow > 0) {
    number = static_cast<long long>(PyLong_AsUnsignedLongLong(index.get()));
    fits = !PyErr_Occurred() && f.dtype.bits == 64;
  } else if (fits && is_signed && f.dtype.bits < 64) {
    fits = number >= -(1LL << (f.dtype.bits - 1)) && number < 1LL << (f.dtype.bits - 1);
  } else if (fits && !is_signed) {
    fits = number >= 0 && (f.dtype.bits == 64 || number < 1LL << f.dtype.bits);
  }
  PyErr_Clear();
  if (!fits) {
    PyErr_Format(PyExc_ValueError, "%s: %s = %R; expected an integer of %d bits%s", d.op->name, f.name, value, f.dtype.bits,
                 is_signed ? "" : ", 0 or more");
    return false;
  }
  store(to, f, &number);
  return true;
}

bool store_real(const Declaration& d, const nw_param& f, PyObject* value, unsigned char* to) {
  const double number = PyFloat_AsDouble(value);
  if (number == -1 && PyErr_Occurred()) {
    const bool large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    PyErr_Format(large ? PyExc_ValueError : PyExc_TypeError, "%s: %s is %R; expected a real number", d.op->name, f.name, value);
    return false;
  }
  const auto single = static_cast<float>(number);
  store(to, f, f.dtype.bits == 32 ? static_cast<const void*>(&single) : &number);
  return true;
}

bool store_element(const Declaration& d, const nw_param& f, PyObject* value, unsigned char* to) {
  if (f.dtype.code == kDLFloat) return store_real(d, f, value, to);
  if (f.dtype.code != kDLBool) return store_integer(d, f, value, to);
  const int truth = PyObject_IsTrue(value);
  if (truth >= 0) *to = static_cast<unsigned char>(truth);
  return truth >= 0;
}

bool refuse_name(const Declaration& d, const nw_param& f, PyObject* value) {
  std::string list;
  std::vector<std::string> known;
  for (const char* const* v = f.values; *v != nullptr; ++v) {
    if (**v == '\0') continue;
    known.emplace_back(*v);
    list += (list.empty() ? "'" : ", '") + known.back() + "'";
  }
  const char* const text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, nullptr) : nullptr;
  PyErr_Clear();
  const std::string near = text == nullptr ? "" : did_you_mean(text, known);
  PyErr_Format(PyExc_ValueError, "%s: %s = %R; expected one of %s%s", d.op->name, f.name, value, list.c_str(), near.c_str());
  return false;
}

// A field with named values: by name, by number, or by a dtype's own object where the names are dtypes.
bool store_named(const Declaration& d, const nw_param& f, PyObject* value, unsigned char* to) {
  if (PyLong_Check(value)) return store_integer(d, f, value, to);
  DLDataType dtype{};
  const char* name = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, nullptr) : nullptr;
  if (name == nullptr && parse_dtype(value, &dtype)) name = dtype_name(dtype);
  PyErr_Clear();
  int64_t number = 0;
  for (const char* const* v = f.values; name != nullptr && *v != nullptr; ++v, ++number)
    if (**v != '\0' && std::strcmp(*v, name) == 0) return store(to, f, &number), true;
  return refuse_name(d, f, value);
}

PyObject* load_element(const nw_param& f, const unsigned char* from) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, f.dtype.bits / 8);
  if (f.dtype.code == kDLFloat && f.dtype.bits == 64) {
    double number = 0;
    std::memcpy(&number, from, sizeof number);
    return PyFloat_FromDouble(number);
  }
  if (f.dtype.code == kDLFloat) {
    float number = 0;
    std::memcpy(&number, from, sizeof number);
    return PyFloat_FromDouble(number);
  }
  if (f.dtype.code == kDLBool) return PyBool_FromLong(bits != 0);
  if (f.dtype.code == kDLUInt) return PyLong_FromUnsignedLongLong(bits);
  const int unused = 64 - f.dtype.bits;
  return PyLong_FromLongLong(static_cast<int64_t>(bits << unused) >> unused);
}

}  // namespace

int find_field(const Declaration& d, PyObject* name, bool exactly) {
  for (size_t i = 0; i < d.fields.size(); ++i)
    if (d.fields[i] == name) return static_cast<int>(i);
  for (size_t i = 0; !exactly && i < d.fields.size(); ++i)
    if (PyUnicode_Compare(d.fields[i], name) == 0) return static_cast<int>(i);
  return -1;
}

void store_initial(const nw_param& f, unsigned char* blob) {
  const auto integer = static_cast<int64_t>(f.initial);
  const auto single = static_cast<float>(f.initial);
  const void* const value = f.dtype.code != kDLFloat ? static_cast<const void*>(&integer)
                            : f.dtype.bits == 32     ? static_cast<const void*>(&single)
                                                     : &f.initial;
  for (int lane = 0; lane < f.dtype.lanes; ++lane) store(blob + f.offset + lane * (f.dtype.bits / 8), f, value);
}

bool set_field(const Declaration& d, int field, PyObject* value, unsigned char* blob) {
  const nw_param& f = field_of(d, field);
  unsigned char* to = blob + f.offset;
  if (f.dtype.lanes <= 1) return f.values != nullptr ? store_named(d, f, value, to) : store_element(d, f, value, to);
  const Py_ssize_t size = PySequence_Size(value);
  if (size != f.dtype.lanes) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s: %s is %R; expected %d numbers", d.op->name, f.name, value, f.dtype.lanes);
    return false;
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Ref element(PySequence_GetItem(value, i));
    if (!element || !store_element(d, f, element.get(), to + i * (f.dtype.bits / 8))) return false;
  }
  return true;
}

PyObject* get_field(const nw_param& f, const unsigned char* blob) {
  const unsigned char* from = blob + f.offset;
  if (f.dtype.lanes > 1) {
    Ref tuple(PyTuple_New(f.dtype.lanes));
    for (int i = 0; tuple && i < f.dtype.lanes; ++i)
      PyTuple_SetItem(tuple.get(), i, load_element(f, from + i * (f.dtype.bits / 8)));
    return tuple.release();
  }
  Ref number(load_element(f, from));
  if (f.values == nullptr || !number) return number.release();
  const long long wanted = PyLong_AsLongLong(number.get());
  for (long long i = 0; f.values[i] != nullptr; ++i)
    if (i == wanted && f.values[i][0] != '\0') return PyUnicode_FromString(f.values[i]);
  return number.release();
}

}  // namespace narrows::python
