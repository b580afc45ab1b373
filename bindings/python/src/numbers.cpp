// SPDX-License-Identifier: Apache-2.0
// numbers.cpp -- a number in the place of an operand, as the operands' dtype holds it: a real one is rounded once, past the largest
// to an infinity, as NumPy, JAX and torch's own functions do; an integer has to fit. One rule for every place, framework and
// transform.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "op.h"

namespace narrows::python {
namespace {

bool is_real(DLDataType dtype) { return dtype.code == kDLFloat || dtype.code == kDLBfloat; }

// Rounded to that many bits of precision; `least` is the exponent of the smallest subnormal.
double round_to(double value, int precision, int least, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - precision, least);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(rounded) > largest ? std::copysign(HUGE_VAL, value) : rounded;
}

double round_to(double value, DLDataType dtype) {
  if (dtype.bits == 64) return value;
  if (dtype.bits == 32) return round_to(value, 24, -149, FLT_MAX);
  return dtype.code == kDLBfloat ? round_to(value, 8, -133, std::ldexp(255, 120)) : round_to(value, 11, -24, 65504);
}

// What an operand is called in a message, and what stands there.
struct Place {
  const Declaration& declaration;
  uint32_t input;
  PyObject* value;
  DLDataType dtype;

  const char* op() const { return declaration.op->name; }
  PyObject* name() const { return declaration.inputs[input]; }
};

bool read_real(const Place& p, double* number) {
  *number = PyFloat_AsDouble(p.value);
  if (*number != -1 || !PyErr_Occurred()) return true;
  const bool large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
  PyErr_Clear();
  PyErr_Format(large ? PyExc_ValueError : PyExc_TypeError, "%s: %U is %R; expected a real number%s", p.op(), p.name(), p.value,
               large ? " that float64 holds" : "");
  return false;
}

// An int, or what counts as one: NumPy's bool has no __index__.
Ref as_integer(const Place& p) {
  Ref index(PyNumber_Index(p.value));
  PyErr_Clear();
  if (!index && is_numpy_bool(p.value)) index = Ref(PyLong_FromLong(PyObject_IsTrue(p.value)));
  if (!index)
    PyErr_Format(PyExc_TypeError, "%s: %U is %R beside %s operands; expected an integer", p.op(), p.name(), p.value,
                 dtype_name(p.dtype));
  return index;
}

// Within what the dtype and `most` allow. A number of uint64 beyond an int64 is stored by its bits.
bool read_integer(const Place& p, uint64_t most, int64_t* number) {
  const Ref index = as_integer(p);
  if (!index) return false;
  const bool is_signed = p.dtype.code == kDLInt;
  const unsigned bits = p.dtype.code == kDLBool ? 1 : p.dtype.bits;
  const uint64_t largest = std::min(most, ~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0)));
  const int64_t least = is_signed ? -static_cast<int64_t>(largest) - 1 : 0;
  int overflow = 0;
  *number = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  bool fits = overflow == 0 && *number >= least && (*number < 0 || static_cast<uint64_t>(*number) <= largest);
  if (overflow > 0 && largest > INT64_MAX) {
    *number = static_cast<int64_t>(PyLong_AsUnsignedLongLong(index.get()));
    fits = !PyErr_Occurred();
    PyErr_Clear();
  }
  if (fits) return true;
  PyErr_Format(PyExc_ValueError, "%s: %U = %R does not fit %s; expected %lld to %llu", p.op(), p.name(), p.value,
               dtype_name(p.dtype), static_cast<long long>(least), static_cast<unsigned long long>(largest));
  return false;
}

}  // namespace

bool operands_dtype(const Declaration& d, PyObject* object, DLDataType* dtype) {
  if (parse_dtype(object, dtype)) return true;
  PyErr_Clear();
  PyErr_Format(PyExc_ValueError, "%s: the array beside a number has dtype %S; expected %s", d.op->name, object, kDtypesExpected);
  return false;
}

bool set_operand(const Declaration& d, uint32_t input, PyObject* value, DLDataType dtype, unsigned char* blob) {
  const Place place{d, input, value, dtype};
  const int field = is_real(dtype) ? d.real_field[input] : d.int_field[input];
  if (field < 0) {
    PyErr_Format(PyExc_TypeError, "%s: %U is %R; expected an array: this op takes no number there", d.op->name, d.inputs[input],
                 value);
    return false;
  }
  double real = 0;
  int64_t integer = 0;
  if (is_real(dtype)) return read_real(place, &real) && set_field(d, field, value, blob);
  if (!read_integer(place, INT64_MAX, &integer)) return false;
  const Ref number(PyLong_FromLongLong(integer));  // of NumPy's bool, too
  return number && set_field(d, field, number.get(), blob);
}

// op._number(input, value, dtype): the number that an array of that dtype would hold there.
PyObject* op_number(PyObject* self, PyObject* arguments) {
  unsigned input = 0;
  PyObject *value = nullptr, *dtype_object = nullptr;
  DLDataType dtype{};
  if (!PyArg_ParseTuple(arguments, "IOO", &input, &value, &dtype_object)) return nullptr;
  if (!operands_dtype(*reinterpret_cast<Op*>(self)->declaration, dtype_object, &dtype)) return nullptr;
  const Place place{*reinterpret_cast<Op*>(self)->declaration, input, value, dtype};
  double real = 0;
  int64_t integer = 0;
  if (is_real(dtype)) return read_real(place, &real) ? PyFloat_FromDouble(round_to(real, dtype)) : nullptr;
  if (!read_integer(place, UINT64_MAX, &integer)) return nullptr;
  return dtype.code == kDLUInt ? PyLong_FromUnsignedLongLong(static_cast<uint64_t>(integer)) : PyLong_FromLongLong(integer);
}

}  // namespace narrows::python
