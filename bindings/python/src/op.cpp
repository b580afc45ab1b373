// SPDX-License-Identifier: Apache-2.0
// op.cpp -- narrows.Op as a Python type: what it shows of its declaration, and how values are bound to it.
#include "op.h"

#include <cstddef>
#include <cstring>
#include <map>
#include <set>

#include <structmember.h>

#include "core/near.h"

namespace narrows::python {

PyTypeObject* op_type = nullptr;

namespace {

// Vectorcall came into the limited API in 3.12; the flag and the member are the same in 3.11.
constexpr unsigned long kHaveVectorcall = 1UL << 11;

Op* as_op(PyObject* self) { return reinterpret_cast<Op*>(self); }

std::string without_mark(const char* name) {
  std::string out = name;
  if (!out.empty() && out.back() == '?') out.pop_back();
  return out;
}

// A declared name as Python writes it: behind one of Python's own words stands an underscore. Torch's schema has it so, too.
std::string python_name(const std::string& name) {
  static const std::set<std::string> words = {
      "False",  "None",     "True", "and",    "as",      "assert", "async",  "await",  "break", "class",  "continue", "def",
      "del",    "elif",     "else", "except", "finally", "for",    "from",   "global", "if",    "import", "in",       "is",
      "lambda", "nonlocal", "not",  "or",     "pass",    "raise",  "return", "try",    "while", "with",   "yield"};
  return words.contains(name) ? name + "_" : name;
}

// One Declaration per nw_op; kept as long as the process, as the runtime is.
Mutex declarations_mutex;
std::map<const nw_op*, std::unique_ptr<Declaration>>& declarations() {
  static auto& known = *new std::map<const nw_op*, std::unique_ptr<Declaration>>;
  return known;
}
const Declaration* declaration_of(const nw_op* op) {
  const Guard guard(declarations_mutex);
  std::unique_ptr<Declaration>& found = declarations()[op];
  if (found == nullptr) found = std::make_unique<Declaration>(op);
  return found.get();
}

std::vector<unsigned char> initial_blob(const Declaration& d) {
  std::vector<unsigned char> blob(d.op->params_size + 1);
  for (size_t i = 0; i < d.fields.size(); ++i) store_initial(*d.op->params[i], blob.data());
  return blob;
}

// Sets fields by name. False: exception set.
bool set_fields(const Declaration& d, PyObject* keywords, unsigned char* blob) {
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; keywords != nullptr && PyDict_Next(keywords, &at, &key, &value);) {
    const int field = find_field(d, key);
    if (field < 0) {
      const std::string instead = instead_of(key, names_of(d.fields));
      PyErr_Format(PyExc_TypeError, "%s has no parameter '%U'%s", d.op->name, key, instead.c_str());
      return false;
    }
    if (!set_field(d, field, value, blob)) return false;
  }
  return true;
}

// Op(name, **params)
PyObject* op_new(PyTypeObject*, PyObject* arguments, PyObject* keywords) {
  const char* name = nullptr;
  if (!PyArg_ParseTuple(arguments, "s:Op", &name)) return nullptr;
  nw_runtime* const rt = runtime();
  if (rt == nullptr) return nullptr;
  const nw_op* op = nullptr;
  nw_error error{};
  if (const int32_t status = nw_find_op(rt, name, &op, &error); status != NW_OK) return raise(status, error);
  const Declaration* const d = declaration_of(op);
  std::vector<unsigned char> blob = initial_blob(*d);
  if (!set_fields(*d, keywords, blob.data())) return nullptr;
  return new_op(d, blob.data());
}

// op.bind(**params): the same op with these values.
PyObject* op_bind(PyObject* self, PyObject* arguments, PyObject* keywords) {
  if (PyTuple_Size(arguments) != 0) return PyErr_Format(PyExc_TypeError, "bind() takes parameters by keyword only");
  const Op* const op = as_op(self);
  std::vector<unsigned char> blob(op->blob, op->blob + op->declaration->op->params_size);
  blob.push_back(0);
  if (!set_fields(*op->declaration, keywords, blob.data())) return nullptr;
  return new_op(op->declaration, blob.data());
}

// op._refuse_replaced(): for calls that do not come by op_vectorcall.
PyObject* op_refuse_replaced(PyObject* self, PyObject*) {
  const Op* const op = as_op(self);
  return op->declaration->replaced && refuse_replaced(*op) ? nullptr : Ref::borrow(Py_None).release();
}

// op.bind_operands(inputs, dtype): numbers among the inputs become params; the op, and the inputs with None for them.
PyObject* op_bind_operands(PyObject* self, PyObject* arguments) {
  PyObject *inputs = nullptr, *dtype_object = nullptr;
  DLDataType dtype{};
  const Op* const op = as_op(self);
  if (!PyArg_ParseTuple(arguments, "OO", &inputs, &dtype_object)) return nullptr;
  if (!operands_dtype(*op->declaration, dtype_object, &dtype)) return nullptr;
  const Declaration& d = *op->declaration;
  std::vector<unsigned char> blob(op->blob, op->blob + d.op->params_size);
  blob.push_back(0);
  const Py_ssize_t count = PySequence_Size(inputs);
  if (count < 0) return nullptr;
  Ref list(PyList_New(count));
  for (Py_ssize_t i = 0; list && i < count; ++i) {
    Ref input(PySequence_GetItem(inputs, i));
    if (!input) return nullptr;
    if (route_of(input.get()).route == Route::number && i < static_cast<Py_ssize_t>(d.inputs.size())) {
      if (!set_operand(d, static_cast<uint32_t>(i), input.get(), dtype, blob.data())) return nullptr;
      input = Ref::borrow(Py_None);
    }
    PyList_SetItem(list.get(), i, input.release());
  }
  const Ref bound(new_op(&d, blob.data()));
  return list && bound ? PyTuple_Pack(2, bound.get(), list.get()) : nullptr;
}

// What the package made has more than values, and is found there by its name.
PyObject* op_reduce(PyObject* self, PyObject*) {
  const Op* const op = as_op(self);
  if (op->operands != 0) return Ref::borrow(op->name).release();
  const bool is_program = std::strncmp(op->declaration->op->name, "program.", std::strlen("program.")) == 0;
  Ref carried(PyUnicode_FromString(op->declaration->op->name));
  if (is_program && carried) {  // its text in the place of its name
    const Ref save(import_attribute("narrows._programs", "saved"));
    carried = Ref(save ? PyObject_CallFunctionObjArgs(save.get(), carried.get(), nullptr) : nullptr);
  }
  if (!carried) return nullptr;
  const Ref rebuild(is_program ? import_attribute("narrows._programs", "from_blob")
                               : import_attribute("narrows._narrows", "_op_from_blob"));
  const auto size = static_cast<Py_ssize_t>(op->declaration->op->params_size);
  return rebuild ? Py_BuildValue("O(Oy#O)", rebuild.get(), carried.get(), reinterpret_cast<const char*>(op->blob), size, op->name)
                 : nullptr;
}

PyObject* op_source(PyObject* self, PyObject* args, PyObject* named) {
  const Ref source(import_attribute("narrows.program._source", "source"));
  const Ref first(PyTuple_Pack(1, self));
  const Ref every(source && first ? PySequence_Concat(first.get(), args) : nullptr);
  return every ? PyObject_Call(source.get(), every.get(), named) : nullptr;
}

void op_dealloc(PyObject* self) {
  Op* const op = as_op(self);
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_ClearWeakRefs(self);
  delete[] op->blob;
  delete op->cache;
  Py_XDECREF(op->name);
  Py_XDECREF(op->doc);
  Py_XDECREF(op->signature);
  Py_XDECREF(op->otherwise);
  Py_XDECREF(op->recorder);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

// ---- attributes ----

PyObject* names_of(const char* const* names, uint32_t count) {
  Ref tuple(PyTuple_New(count));
  for (uint32_t i = 0; tuple && i < count; ++i) PyTuple_SetItem(tuple.get(), i, PyUnicode_FromString(names[i]));
  return tuple.release();
}
PyObject* text_or_none(const char* text) { return text == nullptr ? Ref::borrow(Py_None).release() : PyUnicode_FromString(text); }

PyObject* get_params(PyObject* self, void*) {
  const Op* const op = as_op(self);
  Ref dict(PyDict_New());
  for (size_t i = 0; dict && i < op->declaration->fields.size(); ++i) {
    const Ref value(get_field(*op->declaration->op->params[i], op->blob));
    if (!value || PyDict_SetItem(dict.get(), op->declaration->fields[i], value.get()) != 0) return nullptr;
  }
  return dict.release();
}

// (name, kind, lanes, names of its values or None, initial) of each param; kind is "int", "float" or "bool".
PyObject* get_fields(PyObject* self, void*) {
  const Declaration& d = *as_op(self)->declaration;
  const std::vector<unsigned char> blob = initial_blob(d);
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(d.fields.size())));
  for (size_t i = 0; tuple && i < d.fields.size(); ++i) {
    const nw_param& f = *d.op->params[i];
    uint32_t count = 0;
    while (f.values != nullptr && f.values[count] != nullptr) ++count;
    const Ref values(f.values == nullptr ? Ref::borrow(Py_None).release() : names_of(f.values, count));
    const Ref initial(get_field(f, blob.data()));
    const char* const kind = f.dtype.code == kDLFloat ? "float" : f.dtype.code == kDLBool ? "bool" : "int";
    if (!values || !initial) return nullptr;
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i),
                    Py_BuildValue("OsiOO", d.fields[i], kind, f.dtype.lanes, values.get(), initial.get()));
  }
  return tuple.release();
}

PyObject* get_op(PyObject* self, void*) { return PyUnicode_FromString(as_op(self)->declaration->op->name); }
PyObject* get_inputs(PyObject* self, void*) {
  const Declaration& d = *as_op(self)->declaration;
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(d.inputs.size())));
  for (size_t i = 0; tuple && i < d.inputs.size(); ++i)
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), PyUnicode_FromFormat(d.optional[i] ? "%U?" : "%U", d.inputs[i]));
  return tuple.release();
}
PyObject* get_outputs(PyObject* self, void*) {
  const nw_op* const op = as_op(self)->declaration->op;
  return names_of(op->outputs, op->num_outputs);
}
PyObject* get_shape_rule(PyObject* self, void*) { return text_or_none(as_op(self)->declaration->op->shape_rule); }
PyObject* get_batch(PyObject* self, void*) { return text_or_none(as_op(self)->declaration->op->batch); }
PyObject* get_backward(PyObject* self, void*) { return text_or_none(as_op(self)->declaration->op->backward); }
PyObject* get_saved(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(as_op(self)->declaration->op->saved); }
PyObject* get_num_aux(PyObject* self, void*) { return PyLong_FromUnsignedLong(as_op(self)->declaration->op->num_aux); }
PyObject* get_min_inputs(PyObject* self, void*) { return PyLong_FromUnsignedLong(as_op(self)->declaration->op->min_inputs); }
PyObject* get_flags(PyObject* self, void*) { return PyLong_FromUnsignedLong(as_op(self)->declaration->op->flags); }
PyObject* get_lower_precision(PyObject* self, void*) { return PyBool_FromLong(as_op(self)->declaration->lower_precision); }
PyObject* get_blob(PyObject* self, void*) {
  const Op* const op = as_op(self);
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(op->blob),
                                   static_cast<Py_ssize_t>(op->declaration->op->params_size));
}

PyObject* op_repr(PyObject* self) {
  const Op* const op = as_op(self);
  const Declaration& d = *op->declaration;
  const std::vector<unsigned char> initial = initial_blob(d);
  Ref text(PyUnicode_FromFormat("narrows.op('%s'", d.op->name));
  for (size_t i = 0; text && i < d.fields.size(); ++i) {
    const nw_param& f = *d.op->params[i];
    if (std::memcmp(op->blob + f.offset, initial.data() + f.offset, f.dtype.bits / 8 * f.dtype.lanes) == 0) continue;
    const Ref value(get_field(f, op->blob));
    text = Ref(value ? PyUnicode_FromFormat("%U, %U=%R", text.get(), d.fields[i], value.get()) : nullptr);
  }
  return text ? PyUnicode_FromFormat("%U)", text.get()) : nullptr;
}

// Ops are values: the same declaration and params.
Py_hash_t op_hash(PyObject* self) {
  const Op* const op = as_op(self);
  auto hash = reinterpret_cast<uint64_t>(op->declaration);
  for (uint64_t i = 0; i < op->declaration->op->params_size; ++i) hash = (hash ^ op->blob[i]) * 0x100000001B3u;
  hash &= ~(uint64_t{1} << 63);  // never -1
  return static_cast<Py_hash_t>(hash);
}
PyObject* op_compare(PyObject* self, PyObject* other, int operation) {
  if (Py_TYPE(other) != op_type || (operation != Py_EQ && operation != Py_NE)) return Ref::borrow(Py_NotImplemented).release();
  const Op *const a = as_op(self), *const b = as_op(other);
  const bool equal = a->declaration == b->declaration && std::memcmp(a->blob, b->blob, a->declaration->op->params_size) == 0;
  return PyBool_FromLong(equal == (operation == Py_EQ));
}

Mutex descriptions;
// __doc__ and __signature__: what was set, else made from the declaration when somebody asks.
PyObject* described(PyObject* self, PyObject* Op::* kept, const char* function) {
  PyObject*& place = as_op(self)->*kept;
  {
    const Guard guard(descriptions);
    if (place != nullptr) return Ref::borrow(place).release();
  }
  const Ref make(import_attribute("narrows._ops", function));
  Ref made(make ? PyObject_CallFunctionObjArgs(make.get(), self, nullptr) : nullptr);
  if (!made) return nullptr;
  const Guard guard(descriptions);
  if (place == nullptr) place = made.release();  // else another thread was faster
  return Ref::borrow(place).release();
}
int describe(PyObject* self, PyObject* Op::* kept, PyObject* value) {
  PyObject* old = value == nullptr ? nullptr : Ref::borrow(value).release();
  {
    const Guard guard(descriptions);
    std::swap(as_op(self)->*kept, old);
  }
  Py_XDECREF(old);
  return 0;
}
PyObject* get_doc(PyObject* self, void*) { return described(self, &Op::doc, "doc_of"); }
PyObject* get_signature(PyObject* self, void*) { return described(self, &Op::signature, "signature_of"); }
int set_doc(PyObject* self, PyObject* value, void*) { return describe(self, &Op::doc, value); }
int set_signature(PyObject* self, PyObject* value, void*) { return describe(self, &Op::signature, value); }
// Errors of a call are named by it.
PyObject* get_name(PyObject* self, void*) {
  const Guard guard(descriptions);
  return Ref::borrow(as_op(self)->name).release();
}
int set_name(PyObject* self, PyObject* value, void*) {
  if (value != nullptr && PyUnicode_Check(value)) return describe(self, &Op::name, value);
  const Ref given(value == nullptr ? PyUnicode_FromString("deleted") : PyObject_Repr(value));
  if (given)
    PyErr_Format(PyExc_TypeError, "%s: __name__ is %U; expected a string", as_op(self)->declaration->op->name, given.get());
  return -1;
}

PyGetSetDef getset[] = {
    {"__name__", get_name, set_name, nullptr, nullptr},
    {"__doc__", get_doc, set_doc, nullptr, nullptr},
    {"__signature__", get_signature, set_signature, nullptr, nullptr},
    {"op", get_op, nullptr, "The op's name: 'conv1d', 'vendor.name/1'.", nullptr},
    {"params", get_params, nullptr, "The value of every parameter, by name.", nullptr},
    {"fields", get_fields, nullptr, "(name, kind, lanes, names of values, initial) of every parameter.", nullptr},
    {"inputs", get_inputs, nullptr, "Names of the inputs; a '?' at the end: may be absent.", nullptr},
    {"outputs", get_outputs, nullptr, "Names of the outputs; a '?' at the end: may be absent.", nullptr},
    {"min_inputs", get_min_inputs, nullptr, "The fewest inputs that a call gives.", nullptr},
    {"num_aux", get_num_aux, nullptr, "So many of the last outputs exist for backward only.", nullptr},
    {"shape_rule", get_shape_rule, nullptr, "The rule of docs/abi.md, or None.", nullptr},
    {"batch", get_batch, nullptr, "The sizes of the shape rule along which a call is a batch of calls (docs/abi.md), or None.",
     nullptr},
    {"backward", get_backward, nullptr, "The op that differentiates this one, or None.", nullptr},
    {"saved", get_saved, nullptr, "What backward reads: bit i of input i, bit 32 + j of output j.", nullptr},
    {"flags", get_flags, nullptr, "NW_OP_*: 1 in place, 2 batchable.", nullptr},
    {"_lower_precision", get_lower_precision, nullptr, nullptr, nullptr},
    {"blob", get_blob, nullptr, "The params as the C API takes them.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Op, vectorcall), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(Op, weak_references), READONLY, nullptr},
                         {"_operands", T_INT, offsetof(Op, operands), 0, nullptr},
                         {"_otherwise", T_OBJECT, offsetof(Op, otherwise), 0, nullptr},
                         {"_recorder", T_OBJECT, offsetof(Op, recorder), 0, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyMethodDef methods[] = {
    {"bind", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(op_bind)), METH_VARARGS | METH_KEYWORDS,
     "bind($self, /, **params)\n--\n\nThe same op with these values of its parameters."},
    {"_refuse_replaced", op_refuse_replaced, METH_NOARGS, nullptr},
    {"_bind_operands", op_bind_operands, METH_VARARGS, nullptr},
    {"_run", op_run, METH_VARARGS, nullptr},
    {"_forward", op_forward, METH_VARARGS, nullptr},
    {"_checked", op_checked, METH_VARARGS, nullptr},
    {"_number", op_number, METH_VARARGS, nullptr},
    {"_infer", op_infer, METH_VARARGS, nullptr},
    {"_capturable", op_capturable, METH_VARARGS, nullptr},
    {"source", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(op_source)), METH_VARARGS | METH_KEYWORDS,
     "source($self, /, backend='cpu')\n--\n\nThe source that a backend makes of a tensor program, for dense tensors that are all "
     "there. "
     "Its first line says which kernel runs.\nValueError: no program; NotImplementedError: the backend gives no source."},
    {"__reduce__", op_reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(op_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(op_dealloc)},
                       {Py_tp_call, reinterpret_cast<void*>(op_call)},
                       {Py_tp_repr, reinterpret_cast<void*>(op_repr)},
                       {Py_tp_hash, reinterpret_cast<void*>(op_hash)},
                       {Py_tp_richcompare, reinterpret_cast<void*>(op_compare)},
                       {Py_tp_getset, getset},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"narrows.Op", sizeof(Op), 0, Py_TPFLAGS_DEFAULT | kHaveVectorcall, slots};

}  // namespace

Declaration::Declaration(const nw_op* declared)
    : op(declared), has_vendor(std::strchr(op->name, '.') != nullptr), lower_precision((op->flags & NW_OP_AUTOCAST) != 0) {
  for (uint32_t i = 0; op->params != nullptr && op->params[i] != nullptr; ++i)
    fields.push_back(PyUnicode_InternFromString(python_name(op->params[i]->name).c_str()));
  const auto index_of = [this](const std::string& name) {
    for (size_t i = 0; i < fields.size(); ++i)
      if (name == op->params[i]->name) return static_cast<int>(i);
    return -1;
  };
  for (uint32_t i = 0; i < op->max_inputs; ++i) {
    const std::string name = without_mark(op->inputs[i]);
    inputs.push_back(PyUnicode_InternFromString(python_name(name).c_str()));
    optional.push_back(name.size() != std::strlen(op->inputs[i]));
    real_field.push_back(optional[i] ? index_of(name + "_real") : -1);
    int_field.push_back(optional[i] ? index_of(name + "_int") : -1);
  }
}

// The plugin of d's device type that has the op and comes first is another one than d's. Plugins are told apart by the address of
// the op's name, which lies in the plugin.
static bool is_replaced(nw_runtime* rt, const Declaration& d) {
  struct Place {
    const char* name;
    int32_t device_type;
    bool used;
  };
  std::vector<Place> places;
  int32_t home = 0;
  for (uint32_t i = 0; i < nw_backend_count(rt); ++i) {
    nw_backend_info b{};
    b.struct_size = sizeof b;
    if (nw_backend(rt, i, &b, nullptr) != NW_OK) continue;
    for (uint32_t k = 0; k < b.num_ops; ++k) {
      if (std::strcmp(b.ops[k]->name, d.op->name) != 0) continue;
      places.push_back({b.ops[k]->name, b.device_type, (b.flags & NW_BACKEND_SHADOWED) == 0});
      if (b.ops[k]->name == d.op->name) home = b.device_type;
    }
  }
  for (const Place& p : places)
    if (p.used && p.device_type == home) return p.name != d.op->name;
  return false;
}

void find_replaced() {
  nw_runtime* const rt = runtime();
  std::vector<Declaration*> known;
  {
    const Guard guard(declarations_mutex);
    for (const auto& [op, d] : declarations())
      if (d->has_vendor) known.push_back(d.get());
  }
  for (Declaration* d : known) {
    const nw_op* now = nullptr;
    if (nw_find_op(rt, d->op->name, &now, nullptr) != NW_OK) continue;
    d->replaced = now->name != d->op->name && is_replaced(rt, *d);  // which opens plugins, so it is asked where it must be
  }
}

bool refuse_replaced(const Op& op) {
  const char* const name = op.declaration->op->name;
  PyErr_Format(PyExc_RuntimeError, "%s: this op object is stale: another plugin replaced the op; use narrows.ops['%s']", name,
               name);
  return true;
}

std::string instead_of(PyObject* name, const std::vector<std::string>& known) {
  const char* const text = PyUnicode_AsUTF8AndSize(name, nullptr);
  PyErr_Clear();
  if (text == nullptr || known.empty()) return "";
  if (std::string near = did_you_mean(text, known); !near.empty()) return near;
  std::string all;
  for (const std::string& word : known) all += (all.empty() ? "; it has " : ", ") + word;
  return all;
}

std::vector<std::string> names_of(const std::vector<PyObject*>& interned) {
  std::vector<std::string> names;
  names.reserve(interned.size());
  for (PyObject* name : interned) names.emplace_back(PyUnicode_AsUTF8AndSize(name, nullptr));
  return names;
}

void destroy(Inferred* inferred) { delete inferred; }

// What errors call an op: a program, "program.sq_<digest>/1", by its own name.
static std::string shown_name(const std::string& op) {
  if (!op.starts_with("program.")) return op;
  const size_t begin = std::strlen("program.");
  return op.substr(begin, op.rfind('_') - begin);
}

PyObject* new_op(const Declaration* declaration, const unsigned char* blob) {
  const auto alloc = reinterpret_cast<allocfunc>(PyType_GetSlot(op_type, Py_tp_alloc));
  Op* const op = as_op(alloc(op_type, 0));
  if (op == nullptr) return nullptr;
  op->vectorcall = op_vectorcall;
  op->declaration = declaration;
  const uint64_t size = declaration->op->params_size;
  op->blob = new unsigned char[size + 1];
  std::memcpy(op->blob, blob, size);
  op->cache = new SpecCache;
  op->name = PyUnicode_FromString(shown_name(declaration->op->name).c_str());
  return reinterpret_cast<PyObject*>(op);
}

int add_op_type(PyObject* module) {
  if (op_type == nullptr) op_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));  // else it is imported again
  return op_type == nullptr ? -1 : PyModule_AddObjectRef(module, "Op", reinterpret_cast<PyObject*>(op_type));
}

}  // namespace narrows::python
