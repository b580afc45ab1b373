// torch_empty.cpp -- a new tensor on the CPU by two functions of torch's own libraries, as
// torch._C._dynamo.guards._empty_strided_cpu makes one, without tuples to be read. Nothing is linked; where one is missing,
// torch.cpp goes through Python.
#include <dlfcn.h>

#include <exception>

#include "arrays.h"

namespace narrows::python {
namespace {

struct Extents {  // c10::IntArrayRef
  const int64_t* data;
  size_t size;
};

struct Held {  // at::TensorBase, which is returned through memory: one counted pointer, whose count wrapping takes over
  void* tensor;
  ~Held() {}  // NOLINT(modernize-use-equals-default): a type that is returned in registers otherwise
};

using Empty = Held (*)(Extents shape, Extents strides, int8_t dtype, bool pinned);
using Wrap = PyObject* (*)(Held&&);

template <class Function>
Function find(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
  return handle == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(handle, name));
}

// c10::ScalarType, whose numbers files of torch hold too; -1: none.
int8_t scalar_type(DLDataType dtype) {
  switch (dtype.code << 8 | dtype.bits) {
    case kDLUInt << 8 | 8: return 0;
    case kDLInt << 8 | 8: return 1;
    case kDLInt << 8 | 16: return 2;
    case kDLInt << 8 | 32: return 3;
    case kDLInt << 8 | 64: return 4;
    case kDLFloat << 8 | 16: return 5;
    case kDLFloat << 8 | 32: return 6;
    case kDLFloat << 8 | 64: return 7;
    case kDLBool << 8 | 8: return 11;
    case kDLBfloat << 8 | 16: return 15;
    default: return -1;  // the wider unsigned ones are newer than their numbers are certain
  }
}

}  // namespace

bool torch_empty_cpu(const nw_spec& spec, PyObject** result) {
  static const auto empty =
      find<Empty>("libtorch_cpu.so", "_ZN2at6detail17empty_strided_cpuEN3c108ArrayRefIlEES3_NS1_10ScalarTypeEb");
  static const auto wrap = find<Wrap>("libtorch_python.so", "_Z16THPVariable_WrapON2at10TensorBaseE");
  const int8_t dtype = scalar_type(spec.dtype);
  if (empty == nullptr || wrap == nullptr || dtype < 0) return false;
  int64_t strides[NW_MAX_NDIM];
  int64_t next = 1;
  for (int32_t i = spec.ndim - 1; i >= 0; --i) {
    strides[i] = next;
    next *= spec.shape[i] == 0 ? 1 : spec.shape[i];
  }
  const auto rank = static_cast<size_t>(spec.ndim);
  try {
    Held made = empty({spec.shape, rank}, {strides, rank}, dtype, false);
    *result = wrap(static_cast<Held&&>(made));
  } catch (const std::exception& error) {
    *result = PyErr_Format(PyExc_RuntimeError, "%s", error.what());
  }
  return true;
}

}  // namespace narrows::python
