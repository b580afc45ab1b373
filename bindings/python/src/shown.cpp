// SPDX-License-Identifier: Apache-2.0
// shown.cpp -- see shown.h.
#include "shown.h"

#include "core/label.h"

namespace narrows::python {
namespace {

// The addresses of torch's tensors among the inputs; they are there for a profiler that wants shapes.
uint64_t find_tensors(const Call& c, void** tensors) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < c.num_inputs; ++i) {
    if (c.routes[i] != Route::torch || c.objects[i] == nullptr) continue;
    const Ref address(PyObject_GetAttrString(c.objects[i], "_cdata"));
    tensors[count] = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
    PyErr_Clear();
    if (tensors[count] != nullptr) ++count;
  }
  return count;
}

}  // namespace

void Shown::begin(const Call& c) {
  const nw_op& op = *c.declaration.op;
  std::string name = std::string("narrows::") + op.name;
  for (char& letter : name)
    if (letter == '.' || letter == '/') letter = '_';  // as torch spells it
  const std::string label = label_of(op, c.blob, op.params_size);
  void* tensors[NW_MAX_TENSORS];
  if (!c.dispatched) op_.begin(name.c_str(), tensors, find_tensors(c, tensors));
  if (const size_t length = std::strlen(op.name); label.size() != length) function_.begin((name + label.substr(length)).c_str());
}

}  // namespace narrows::python
