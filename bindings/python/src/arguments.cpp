// SPDX-License-Identifier: Apache-2.0
// arguments.cpp -- the arguments of a call: inputs by place or name, params by keyword, how the call is made, and its outputs.
#include "call.h"

namespace narrows::python {
namespace {

const char* text_of(const Call& c, PyObject* value, const char* what) {
  if (value == Py_None) return nullptr;
  const char* const text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, nullptr) : nullptr;
  if (text == nullptr && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%S: %s is %R; expected a str", c.op->name, what, value);
  return text;
}

// How the call is made, whatever the op.
enum Option { kOut, kStream, kDevice, kBackend, kKernel, kDeterministic, kNoOption };
constexpr const char* kOptions[] = {"out", "stream", "device", "backend", "kernel", "deterministic"};
Option find_option(PyObject* name, bool exactly) {
  static PyObject* const names[] = {
      PyUnicode_InternFromString(kOptions[kOut]),    PyUnicode_InternFromString(kOptions[kStream]),
      PyUnicode_InternFromString(kOptions[kDevice]), PyUnicode_InternFromString(kOptions[kBackend]),
      PyUnicode_InternFromString(kOptions[kKernel]), PyUnicode_InternFromString(kOptions[kDeterministic])};
  for (int i = 0; i < kNoOption; ++i)
    if (names[i] == name || (!exactly && PyUnicode_Compare(names[i], name) == 0)) return static_cast<Option>(i);
  return kNoOption;
}

bool set_option(Call& c, Option option, PyObject* value) {
  PyObject* const given = value == Py_None ? nullptr : value;
  switch (option) {
    case kOut: c.out = given; return true;
    case kStream: c.stream_object = given; return true;
    case kDevice: c.device = given; return true;
    case kBackend: c.backend = text_of(c, value, "backend"); break;
    case kKernel: c.kernel = text_of(c, value, "kernel"); break;
    default: c.flags = PyObject_IsTrue(value) == 1 ? NW_DETERMINISTIC : 0;
  }
  return !PyErr_Occurred();
}

bool add_symbol(Call& c, PyObject* name, PyObject* value) {
  if (!c.symbols) c.symbols = Ref(PyDict_New());
  return c.symbols && PyDict_SetItem(c.symbols.get(), name, value) == 0;
}

// The parameters of a function that has a name of its own, narrows.add: it takes fewer than its op has.
Ref parameters_of(const Call& c) {
  const Ref signature(PyObject_GetAttrString(&c.op->ob_base, "__signature__"));
  return Ref(signature ? PyObject_GetAttrString(signature.get(), "parameters") : nullptr);
}
bool takes_field(const Call& c, PyObject* name) {
  if (c.op->operands == 0) return true;
  const Ref parameters = parameters_of(c);
  return parameters && PySequence_Contains(parameters.get(), name) == 1;
}

std::vector<std::string> known_arguments(const Call& c) {
  if (c.op->operands > 0) {
    const Ref parameters = parameters_of(c);
    const Ref names(parameters ? PySequence_List(parameters.get()) : nullptr);
    const Py_ssize_t count = names ? PyList_Size(names.get()) : 0;
    std::vector<std::string> known(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i)
      known[static_cast<size_t>(i)] = PyUnicode_AsUTF8AndSize(PyList_GetItem(names.get(), i), nullptr);
    return known;
  }
  std::vector<std::string> known = names_of(c.declaration.inputs);
  for (const std::string& field : names_of(c.declaration.fields)) known.push_back(field);
  for (const char* option : kOptions) known.emplace_back(option);
  return known;
}

// Names are interned, and so are those of a call in source code: the second round is for the others.
bool set_keyword(Call& c, PyObject* name, PyObject* value) {
  for (const bool exactly : {true, false}) {
    for (uint32_t i = 0; i < c.declaration.inputs.size(); ++i) {
      PyObject* const input = c.declaration.inputs[i];
      if (input != name && (exactly || PyUnicode_Compare(input, name) != 0)) continue;
      // An input named out, as backward ops have of forward ops' outputs, which was given by its place: the word is the call's.
      const Option option = c.objects[i] != nullptr ? find_option(name, exactly) : kNoOption;
      return option != kNoOption ? set_option(c, option, value) : add_input(c, i, value);
    }
    if (const int field = find_field(c.declaration, name, exactly); field >= 0 && takes_field(c, name))
      return torch_is_symbol(value) ? add_symbol(c, name, value) : set_field(c.declaration, field, value, c.own_blob());
    if (const Option option = find_option(name, exactly); option != kNoOption) return set_option(c, option, value);
  }
  if (c.op->otherwise != nullptr) return c.elsewhere = true;
  if (PyErr_Occurred()) return false;
  PyErr_Format(PyExc_TypeError, "%S has no argument '%U'%s", c.op->name, name, instead_of(name, known_arguments(c)).c_str());
  return false;
}

bool check_count(const Call& c, Py_ssize_t count) {
  const bool operands = c.op->operands > 0;
  const Py_ssize_t most = operands ? c.op->operands : static_cast<Py_ssize_t>(c.declaration.inputs.size());
  if (count <= std::min<Py_ssize_t>(most, NW_MAX_TENSORS)) return true;
  PyErr_Format(PyExc_TypeError, "%S takes %zd %s%s; %zd were given", c.op->name, most, operands ? "operand" : "tensor",
               most == 1 ? "" : "s", count);
  return false;
}

}  // namespace

bool add_input(Call& c, uint32_t index, PyObject* object) {
  if (index >= c.declaration.inputs.size() || index >= NW_MAX_TENSORS) return check_count(c, Py_ssize_t{index} + 1);
  if (c.objects[index] != nullptr) {
    PyErr_Format(PyExc_TypeError, "%s: %U is given twice", c.declaration.op->name, c.declaration.inputs[index]);
    return false;
  }
  c.objects[index] = object;
  if (index >= c.num_inputs) c.num_inputs = index + 1;
  return true;
}

bool set_outputs(Call& c) {
  const uint32_t count = c.declaration.op->num_outputs, main = count - c.declaration.op->num_aux;
  PyObject** const outputs = c.objects + c.num_inputs;
  if (c.num_inputs + count > NW_MAX_TENSORS) {
    PyErr_Format(PyExc_TypeError, "%s: more than %d tensors", c.declaration.op->name, NW_MAX_TENSORS);
    return false;
  }
  c.num_outputs = count;
  if (c.out == nullptr) return true;
  if (!PyTuple_Check(c.out) && !PyList_Check(c.out)) {
    outputs[0] = c.out;
    if (main == 1) return true;
    PyErr_Format(PyExc_TypeError, "%s: out is one object; expected a tuple of %d", c.declaration.op->name, static_cast<int>(main));
    return false;
  }
  c.out_items = Ref(PySequence_Tuple(c.out));
  if (!c.out_items) return false;
  const Py_ssize_t given = PyTuple_Size(c.out_items.get());
  if (given > count || given < main) {
    PyErr_Format(PyExc_TypeError, "%s: out has %zd arrays; expected %d", c.declaration.op->name, given, static_cast<int>(main));
    return false;
  }
  for (Py_ssize_t i = 0; i < given; ++i) {
    PyObject* const item = PyTuple_GetItem(c.out_items.get(), i);
    outputs[i] = item == Py_None ? nullptr : item;
  }
  return true;
}

bool parse(Call& c, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  Py_ssize_t given = count;  // generated code gives every input of the op, None for those that a function does not have
  while (c.op->operands > 0 && given > c.op->operands && arguments[given - 1] == Py_None) --given;
  if (!check_count(c, given)) return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!add_input(c, static_cast<uint32_t>(i), arguments[i])) return false;
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_Size(keywords);
  for (Py_ssize_t i = 0; i < named; ++i)
    if (!set_keyword(c, PyTuple_GetItem(keywords, i), arguments[count + i])) return false;
  for (int32_t i = 0; i < c.op->operands; ++i) {
    if (c.objects[i] != nullptr && c.objects[i] != Py_None) continue;
    if (c.op->otherwise != nullptr) return c.elsewhere = true;
    PyErr_Format(PyExc_TypeError, "%S takes %d operand%s; %U is missing", c.op->name, c.op->operands,
                 c.op->operands == 1 ? "" : "s", c.declaration.inputs[static_cast<uint32_t>(i)]);
    return false;
  }
  return set_outputs(c);
}

}  // namespace narrows::python
