// SPDX-License-Identifier: Apache-2.0
// python.h -- what every file of the extension shares: Python's stable ABI, references that clean up after themselves, the
// process's one runtime, and how a status becomes an exception.
#ifndef NARROWS_PYTHON_PYTHON_H
#define NARROWS_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>  // the limited API of 3.11, by Py_LIMITED_API in CMakeLists.txt; all of it where there is no GIL

#include <narrows/narrows.h>

#include <atomic>
#include <bit>
#include <mutex>
#include <string>
#include <utility>

namespace narrows::python {

// A reference that is owned here.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* stolen) : object_(stolen) {}
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(object_); }
  Ref& operator=(const Ref& other) {
    Ref copy(other);
    std::swap(object_, copy.object_);
    return *this;
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }  // NOLINT(clang-analyzer-core.CallAndMessage): Stack has constructed it

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): Stack has constructed it
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Guards what threads share. Python's own mutex, where there is no GIL: who waits for it does not keep others from stopping the
// world.
#ifdef Py_GIL_DISABLED
class Mutex {
 public:
  void lock() { PyMutex_Lock(&mutex_); }
  void unlock() { PyMutex_Unlock(&mutex_); }

 private:
  PyMutex mutex_{};
};
#else  // the GIL is held, and not let go, wherever these are used
struct Mutex {
  void lock() {}
  void unlock() {}
};
#endif
using Guard = std::lock_guard<Mutex>;

// A reference count of our own, changed with the GIL held where there is one.
#ifdef Py_GIL_DISABLED
using Count = std::atomic<size_t>;
#else
using Count = size_t;
#endif

// A native handle or address that Python has as a number.
inline void* pointer(uint64_t bits) { return std::bit_cast<void*>(bits); }

// nw_runtime_default: the one that every binding of the process shares. NULL with an exception set.
nw_runtime* runtime();
// How often one was loaded into it since, or refused: it may serve what others did, by plans of its own.
extern std::atomic<uint32_t> plugins_loaded;

// Raises what a status says, in the C library's words; returns NULL.
PyObject* raise(int32_t status, const nw_error& error);

// sys.modules[name], borrowed for as long as the module is loaded; NULL without an exception if it is not imported.
PyObject* imported(const char* name);
// module.name, imported; a new reference.
Ref import_attribute(const char* module, const char* name);

// "float32" and the like; "" for a dtype that has no name here.
const char* dtype_name(DLDataType dtype);
// For messages about dtypes: what is expected; and what another one is called, by its DLPack code where it has no name.
inline constexpr const char kDtypesExpected[] = "float16, bfloat16, float32, float64, an integer of 8 to 64 bits, bool";
std::string show_dtype(DLDataType dtype);
// From a name, or anything whose str() ends in one (torch.float32, numpy.dtype, jax.numpy.float32's name). False: exception set.
bool parse_dtype(PyObject* object, DLDataType* out);

// The types that each file adds to the module, and its functions. -1: exception set.
int add_op_type(PyObject* module);
int add_tensor_type(PyObject* module);
extern PyMethodDef module_functions[];

}  // namespace narrows::python
#endif
