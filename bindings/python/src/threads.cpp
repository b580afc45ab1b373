// SPDX-License-Identifier: Apache-2.0
// threads.cpp -- the number of threads: narrows.set_num_threads() and get_num_threads(), and torch's, which calls on its tensors
// follow.
#include <dlfcn.h>

#include <cstring>

#include "call.h"

namespace narrows::python {
namespace {

using TorchNumber = int32_t (*)(uint32_t* out);

// torch's stable C function, from 2.10 on; NULL before. torch is loaded.
TorchNumber find_torch_number() {
  void* const library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  return library == nullptr ? nullptr : reinterpret_cast<TorchNumber>(dlsym(library, "torch_get_num_threads"));
}

// torch.get_num_threads(); 0: exception set.
uint64_t ask_torch() {
  static std::atomic<PyObject*> known;
  PyObject* function = known.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = import_attribute("torch", "get_num_threads").release();
    if (function == nullptr) return 0;
    known.store(function, std::memory_order_release);
  }
  const Ref number(PyObject_CallNoArgs(function));
  const long threads = number ? PyLong_AsLong(number.get()) : 0;
  return threads < 0 ? 0 : static_cast<uint64_t>(threads);
}

}  // namespace

uint64_t torch_threads() {
  static const TorchNumber number = find_torch_number();
  uint32_t threads = 0;
  return number != nullptr && number(&threads) == 0 && threads != 0 ? threads : ask_torch();
}

// The library's words, with the number as it was given: it may be too large for the library.
static PyObject* refuse_number(PyObject* number, const nw_error& error) {
  const char* const expected = std::strchr(error.message, ';');
  return PyErr_Format(PyExc_ValueError, "set_num_threads: num_threads = %R%s", number, expected == nullptr ? "" : expected);
}

PyObject* set_num_threads(PyObject*, PyObject* number) {
  const Ref type(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(number)), "__name__"));
  if (!type) return nullptr;
  const bool is_bool = PyBool_Check(number) || PyUnicode_CompareWithASCIIString(type.get(), "bool_") == 0;  // NumPy 1's is an index
  const Ref index(is_bool ? nullptr : PyNumber_Index(number));
  if (!index) {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) return nullptr;
    PyErr_Clear();
    return PyErr_Format(PyExc_TypeError, "set_num_threads: num_threads = %R, a %U; expected an int", number, type.get());
  }
  int overflow = 0;
  const long long threads = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  nw_runtime* const rt = runtime();
  if (rt == nullptr) return nullptr;
  nw_error error{};
  const int32_t status = nw_set_num_threads(rt, overflow == 0 ? threads : overflow * INT64_MAX, &error);
  return status == NW_OK ? Ref::borrow(Py_None).release() : refuse_number(index.get(), error);
}

PyObject* get_num_threads(PyObject*, PyObject*) {
  nw_runtime* const rt = runtime();
  return rt == nullptr ? nullptr : PyLong_FromUnsignedLong(nw_get_num_threads(rt));
}

}  // namespace narrows::python
