// SPDX-License-Identifier: Apache-2.0
// call.cpp -- one call of an op: the route of each array, and outputs; launch.cpp runs it. What cannot be done here
// (torch's dispatcher, JAX, arrays for another device, a number in the place of a required array) goes to Python, with the params
// bound. Steps 1 and 2 of a tensor's path meet in launch().
#include "call.h"

#include <cstring>

#include "shown.h"

namespace narrows::python {
namespace {

void find_routes(Call& c) {
  PyTypeObject* type = nullptr;  // of the tensor before, as a rule
  TypeRoute found{};
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i) {
    if (c.objects[i] == nullptr) continue;
    if (Py_TYPE(c.objects[i]) != type) found = route_of(c.objects[i]);
    type = Py_TYPE(c.objects[i]);
    c.routes[i] = found.route;
    c.reasons[i] = found.reason;
    c.routes_seen |= 1u << static_cast<unsigned>(found.route);
    if (i < c.num_inputs && c.lead < 0 && found.route > Route::number) c.lead = static_cast<int>(i);
  }
}

// ---- what goes to Python ----

// How the call is to be made; NULL: it does not say.
const char* says_how(const Call& c) {
  return c.kernel != nullptr          ? "kernel"
         : c.backend != nullptr       ? "backend"
         : c.stream_object != nullptr ? "stream"
         : c.flags != 0               ? "deterministic"
                                      : nullptr;
}
// Why it is none that is made here.
const char* way_of(const std::string& module) {
  return module == "narrows.jax"         ? "goes through JAX"
         : module == "narrows._device"   ? "copies to another device, as device= says"
         : module == "narrows._operands" ? "has a number for a required array"
                                         : "goes through torch's dispatcher, as gradients, subclasses and torch.compile do";
}

// module.function(op with the params bound, [inputs], out, device), and params that are symbols, if there are any
PyObject* delegate(Call& c, const char* module, const char* function) {
  const Ref callable(import_attribute(module, function));
  const bool bound = c.has_params_of_op();
  const Ref op(bound ? Ref::borrow(&c.op->ob_base).release() : new_op(&c.declaration, c.blob));
  if (op && !bound && PyObject_SetAttrString(op.get(), "__name__", c.op->name) != 0) return nullptr;  // which errors show
  Ref inputs(op && callable ? PyList_New(c.num_inputs) : nullptr);
  for (uint32_t i = 0; inputs && i < c.num_inputs; ++i)
    PyList_SetItem(inputs.get(), i, Ref::borrow(c.objects[i] == nullptr ? Py_None : c.objects[i]).release());
  if (!inputs) return nullptr;
  if (const char* const how = says_how(c))
    return PyErr_Format(PyExc_NotImplementedError, "%S: %s needs a direct call, and this one %s", c.op->name, how, way_of(module));
  return PyObject_CallFunctionObjArgs(callable.get(), op.get(), inputs.get(), c.out == nullptr ? Py_None : c.out,
                                      c.device == nullptr ? Py_None : c.device, c.symbols.get(), nullptr);
}

bool has_route(const Call& c, Route route) { return (c.routes_seen >> static_cast<unsigned>(route) & 1) != 0; }
// Arrays that are neither torch's nor NumPy's?
bool has_others(const Call& c) {
  return has_route(c, Route::own) || has_route(c, Route::jax) || has_route(c, Route::cupy) || has_route(c, Route::dlpack) ||
         has_route(c, Route::interface);
}
bool number_is_required(const Call& c) {
  if (!has_route(c, Route::number)) return false;
  for (uint32_t i = 0; i < c.num_inputs; ++i)
    if (c.routes[i] == Route::number && !c.declaration.optional[i]) return true;
  return false;
}

// Plain tensors of torch, of which one needs a gradient: the numbers among the operands become params here, where dtypes are known.
// 1 done, 0 something else is among the inputs, -1 exception set.
int bind_numbers(Call& c) {
  DLDataType dtype{};
  if (c.out != nullptr) return 0;
  for (uint32_t i = 0; i < c.num_inputs; ++i) {
    if (c.routes[i] > Route::number && c.routes[i] != Route::torch) return 0;
    if (c.routes[i] == Route::number && !c.declaration.optional[i]) return 0;
    if (c.routes[i] == Route::torch) dtype = c.arrays[i].tensor.dtype;
  }
  for (uint32_t i = 0; i < c.num_inputs; ++i) {
    if (c.routes[i] != Route::number) continue;
    if (!set_operand(c.declaration, i, c.objects[i], dtype, c.own_blob())) return -1;
    c.objects[i] = nullptr;
  }
  return 1;
}

// The Python function that this call is for; NULL: it is done here. `failed`: exception set.
const char* python_module(Call& c, const char** function, bool* failed) {
  *function = "_call";
  if (c.symbols) return "narrows.torch";
  if (c.device != nullptr) return "narrows._device";
  if (has_route(c, Route::jax_traced)) return "narrows.jax";
  if (c.lead >= 0 && c.routes[c.lead] == Route::jax) {
    const bool beside_torch = has_route(c, Route::torch) || has_route(c, Route::torch_other);
    const int grad = beside_torch ? torch_needs_grad(c.objects, c.routes, c.num_inputs) : 0;
    *failed = grad < 0;
    return grad > 0 ? "narrows.torch" : "narrows.jax";
  }
  if (has_route(c, Route::torch_other)) return "narrows.torch";
  if (has_route(c, Route::torch)) {
    const int gate = torch_gate(c.objects, c.routes, c.arrays.get(), c.num_inputs + c.num_outputs, c.declaration.lower_precision);
    const int bound = gate == 2 ? bind_numbers(c) : 0;
    *failed = gate < 0 || bound < 0;
    if (bound == 1) *function = "_eager";
    if (gate != 1) return "narrows.torch";
  }
  return c.lead >= 0 && number_is_required(c) ? "narrows._operands" : nullptr;
}

// ---- reading and allocating ----

// Reads it, whoever's it is; an exception says which argument it is, but one of a class that may not be made from words alone. What
// a producer refuses to export is unsupported.
bool read_any(Call& c, uint32_t i) {
  if (c.arrays[i].read(c.objects[i], {c.routes[i], c.reasons[i]}, c.stream)) return true;
  const bool output = i >= c.num_inputs, refused = PyErr_ExceptionMatches(PyExc_BufferError) != 0;
  if (!refused && PyErr_Occurred() != PyExc_TypeError && PyErr_Occurred() != PyExc_ValueError) return false;
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Ref name(output ? PyUnicode_FromString("out") : Ref::borrow(c.declaration.inputs[i]).release());
  const Ref op(c.routes[i] == Route::refused ? Ref::borrow(c.op->name).release() : PyUnicode_FromString(c.declaration.op->name));
  if (name && op)
    PyErr_Format(refused ? PyExc_NotImplementedError : type, "%S: %U: %S", op.get(), name.get(),
                 value == nullptr ? Py_None : value);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return false;
}
bool read_one(Call& c, uint32_t i) { return c.routes[i] == Route::torch || read_any(c, i); }  // the gate has read torch's

bool find_stream(Call& c) {
  if (c.stream_object != nullptr) {
    const Ref handle(PyObject_HasAttrString(c.stream_object, "handle") ? PyObject_GetAttrString(c.stream_object, "handle")
                                                                       : Ref::borrow(c.stream_object).release());
    if (handle && !PyLong_Check(handle.get()))
      return PyErr_Format(PyExc_TypeError, "%s: stream is %R; expected a narrows.Stream or a native handle", c.declaration.op->name,
                          c.stream_object) != nullptr;
    c.stream = handle ? PyLong_AsVoidPtr(handle.get()) : nullptr;
    c.stream_keeper = Ref::borrow(c.stream_object);
    return !PyErr_Occurred();
  }
  const Route route = c.routes[c.lead];
  if (route == Route::own) {
    c.stream = own_stream(c.objects[c.lead]);
    c.stream_keeper = Ref::borrow(own_stream_object(c.objects[c.lead]));
    return true;
  }
  return current_stream(route, c.where, &c.stream, &c.stream_keeper);
}

// Frameworks whose stream nobody knows: they order what they give on the stream that they are told, and nothing afterwards.
bool has_unknown_stream(Route route) { return route == Route::dlpack || route == Route::jax || route == Route::interface; }

// Is that array's work on this stream? Anything else is refused.
bool check_stream(Call& c, uint32_t i, DLDevice device, void* stream) {
  void* other = stream;
  if (c.routes[i] == Route::own)
    other = own_stream(c.objects[i]);
  else if (!current_stream(c.routes[i], device, &other))
    return false;
  if (other == stream) return true;
  PyErr_Format(PyExc_ValueError,
               "%s: tensors of several frameworks whose current streams differ; make one stream current in "
               "both, or pass stream=",
               c.declaration.op->name);
  return false;
}

// On a GPU two frameworks have two streams: refused, unless both are on the same one.
bool check_streams(Call& c) {
  if (c.where.device_type == kDLCPU || c.stream_object != nullptr) return true;
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i) {
    if (!c.is_array(i) || has_unknown_stream(c.routes[i])) continue;
    if (c.routes[i] == c.routes[c.lead] && c.routes[i] != Route::own) continue;  // its stream is the call's
    if (!check_stream(c, i, c.where, c.stream)) return false;
  }
  return true;
}

// Where a framework's stream is not known, what it does next with its memory comes after the call only if the GPU is done by then.
int32_t finish(Call& c, nw_error* error) {
  const bool known = !has_route(c, Route::dlpack) && !has_route(c, Route::jax) && !has_route(c, Route::interface);
  if (known || c.where.device_type == kDLCPU || c.stream_object != nullptr) return NW_OK;
  int32_t status = NW_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = nw_stream_sync(runtime(), c.where, c.stream, error);
  Py_END_ALLOW_THREADS;
  return status;
}

// The same for a call that goes to torch's dispatcher, which takes arrays of others in and keeps them: on torch's current stream,
// or not at all.
bool check_dispatched(Call& c) {
  for (uint32_t i = 0; i < c.num_inputs; ++i) {
    const bool other = c.routes[i] == Route::own || c.routes[i] == Route::cupy || has_unknown_stream(c.routes[i]);
    if (!other) continue;
    DLDevice device{kDLCUDA, 0};
    if (c.routes[i] != Route::interface && !dlpack_device(c.objects[i], &device)) return false;
    if (device.device_type == kDLCPU) continue;
    if (has_unknown_stream(c.routes[i])) {
      PyErr_Format(PyExc_ValueError,
                   "%s: %U is on a GPU and of a framework whose stream is not known, beside tensors that torch's dispatcher has to "
                   "see; expected a tensor of torch",
                   c.declaration.op->name, c.declaration.inputs[i]);
      return false;
    }
    void* stream = nullptr;
    if (!torch_stream(device, &stream) || !check_stream(c, i, device, stream)) return false;
  }
  return true;
}

// The numbers among the operands become params.
bool bind_operands(Call& c, DLDataType dtype) {
  for (uint32_t i = 0; has_route(c, Route::number) && i < c.num_inputs; ++i) {
    if (c.routes[i] != Route::number) continue;
    if (!set_operand(c.declaration, i, c.objects[i], dtype, c.own_blob())) return false;
    c.objects[i] = nullptr;
  }
  return true;
}

bool read_inputs(Call& c) {
  const auto lead = static_cast<uint32_t>(c.lead);
  if (c.stream_object != nullptr && !find_stream(c)) return false;  // which the first input's producer is told, too
  if (!read_one(c, lead)) return false;
  c.where = c.arrays[lead].tensor.device;
  if (c.stream_object == nullptr && !find_stream(c)) return false;
  DLDataType dtype = c.arrays[lead].tensor.dtype;
  for (uint32_t i = 0; i < c.num_inputs; ++i) {
    if (!c.is_array(i)) continue;
    if (i != lead && !read_one(c, i)) return false;
    dtype = c.arrays[i].tensor.dtype;  // of the last one: the condition of a `where` comes before its operands
  }
  return bind_operands(c, dtype) && check_streams(c);
}

// ---- outputs ----

// The arrays that a call returns, where they were allocated here.
using Outputs = Stack<Ref>;

bool read_given_outputs(Call& c) {
  for (uint32_t i = c.num_inputs; i < c.num_inputs + c.num_outputs; ++i) {
    if (!c.is_array(i) && c.objects[i] == nullptr) continue;
    if (!read_one(c, i)) return false;
    if (c.arrays[i].read_only) return PyErr_Format(PyExc_ValueError, "%s: out is read-only", c.declaration.op->name) != nullptr;
    if (c.routes[i] == Route::torch && !torch_may_be_written(c.objects[i], c.declaration.op->name)) return false;
  }
  return true;
}

bool mark_given_outputs(Call& c) {
  for (uint32_t i = c.num_inputs; i < c.num_inputs + c.num_outputs; ++i)
    if (c.objects[i] != nullptr && c.routes[i] == Route::torch && !torch_was_written(c.objects[i])) return false;
  return true;
}

// An output that was allocated here, as the op has it: what was made may be of another shape.
bool read_new(Call& c, uint32_t i, const nw_spec& spec) {
  const Route lead = c.routes[c.lead];
  const bool known = lead == Route::numpy || lead == Route::torch;
  c.routes[i] = known ? lead : route_of(c.objects[i]).route;
  if (lead == Route::numpy) return c.arrays[i].assign(spec, numpy_data(c.objects[i]), c.where), true;
  return c.routes[i] == Route::torch ? read_new_torch(c.objects[i], spec, c.where, &c.arrays[i]) : read_one(c, i);
}

// False: exception set, or, without one, the outputs are not as the caller wants them.
bool allocate_outputs(Call& c, const nw_call& call, const DLTensor** pointers, Outputs& out) {
  if (!infer(c, call) || !c.inferred->as_wanted) return false;
  const std::vector<nw_spec>& specs = c.inferred->specs;
  const uint32_t aux = c.num_outputs - c.declaration.op->num_aux;
  for (uint32_t j = 0; j < c.num_outputs; ++j) {
    const bool skip = c.wanted == kAll ? j >= aux : (c.wanted >> j & 1) == 0;
    if (skip || specs[j].ndim < 0) continue;
    const uint32_t i = c.num_inputs + j;
    out[j] = Ref(allocate(c.routes[c.lead], c.objects[c.lead], c.inferred->outputs[j], c.where, c.stream, c.stream_keeper.get()));
    c.objects[i] = out[j].get();
    if (c.objects[i] == nullptr) return false;
    if (!read_new(c, i, specs[j])) return false;
    pointers[i] = &c.arrays[i].tensor;
  }
  return true;
}

// The outputs that were given, as a call without `out` returns its own: one array, or a tuple.
PyObject* returned(const Call& c) {
  PyObject* const items = c.out_items.get();
  if (items == nullptr) return Ref::borrow(c.out).release();
  return Ref::borrow(PyTuple_Size(items) == 1 ? PyTuple_GetItem(items, 0) : items).release();
}

PyObject* result(Call& c, Outputs& out) {
  if (c.out != nullptr) return returned(c);
  const uint32_t count = c.wanted == kAll ? c.num_outputs - c.declaration.op->num_aux : c.num_outputs;
  if (c.wanted == kAll && count == 1) return out[0].release();
  Ref tuple(PyTuple_New(count));
  for (uint32_t j = 0; tuple && j < count; ++j)
    PyTuple_SetItem(tuple.get(), j, out[j] ? out[j].release() : Ref::borrow(Py_None).release());
  return tuple.release();
}

bool refuse_without_arrays(const Call& c) {
  const Ref words(import_attribute("narrows._errors", "NO_ARRAY"));
  if (words) PyErr_Format(PyExc_TypeError, "%S: %U", c.op->name, words.get());
  return false;
}

PyObject* run(Call& c) {
  const Shown shown(c);
  if (c.lead < 0) {
    for (uint32_t i = 0; i < c.num_inputs; ++i)
      if (c.routes[i] == Route::refused) return read_one(c, i), nullptr;
    return refuse_without_arrays(c), nullptr;
  }
  const DLTensor* pointers[NW_MAX_TENSORS];
  nw_call call;
  Outputs out(c.out == nullptr ? c.num_outputs : 0);
  if (runtime() == nullptr || !read_inputs(c)) return nullptr;
  if (c.out != nullptr && !read_given_outputs(c)) return nullptr;
  fill(c, call, pointers);
  if (c.out == nullptr && !allocate_outputs(c, call, pointers, out)) return nullptr;
  nw_error error;
  bool raised = false;
  int32_t status = launch(c, call, &error, &raised);
  if (raised) return nullptr;
  if (status == NW_OK && c.out != nullptr && !mark_given_outputs(c)) return nullptr;
  if (status == NW_OK) status = finish(c, &error);
  return status == NW_OK ? result(c, out) : raise(status, error);
}

// Plain tensors of torch, of which one needs a gradient: narrows.torch._eager(), from the op's second such call on without it.
[[gnu::noinline]] PyObject* call_eager(Call& c) {
  PyObject* const recorder = __atomic_load_n(&c.op->recorder, __ATOMIC_ACQUIRE);
  if (recorder == nullptr || says_how(c) || !c.has_params_of_op() || torch_transforms())
    return delegate(c, "narrows.torch", "_eager");
  const size_t inputs = c.declaration.inputs.size();
  const Ref arguments(PyTuple_New(static_cast<Py_ssize_t>(2 + inputs)));
  if (!arguments) return nullptr;
  PyTuple_SetItem(arguments.get(), 0, Ref::borrow(PyTuple_GetItem(recorder, 1)).release());
  PyTuple_SetItem(arguments.get(), 1, Ref::borrow(&c.op->ob_base).release());
  for (size_t i = 0; i < inputs; ++i)
    PyTuple_SetItem(arguments.get(), static_cast<Py_ssize_t>(2 + i),
                    Ref::borrow(c.objects[i] == nullptr || i >= c.num_inputs ? Py_None : c.objects[i]).release());
  const Ref outputs(PyObject_CallObject(PyTuple_GetItem(recorder, 0), arguments.get()));
  if (!outputs) return nullptr;
  const bool one = c.num_outputs - c.declaration.op->num_aux == 1;
  return Ref::borrow(one ? PyTuple_GetItem(outputs.get(), 0) : outputs.get()).release();
}

// op->otherwise, with the same arguments.
PyObject* call_otherwise(const Op* op, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_Size(keywords);
  const Ref given(PyTuple_New(count)), by_name(PyDict_New());
  if (!given || !by_name) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SetItem(given.get(), i, Ref::borrow(arguments[i]).release());
  for (Py_ssize_t i = 0; i < named; ++i)
    if (PyDict_SetItem(by_name.get(), PyTuple_GetItem(keywords, i), arguments[count + i]) != 0) return nullptr;
  return PyObject_Call(op->otherwise, given.get(), by_name.get());
}

PyObject* dispatch(Op* op, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  if (__builtin_expect(op->declaration->replaced.load(std::memory_order_relaxed), 0)) return refuse_replaced(*op), nullptr;
  Call c(op);
  if (!parse(c, arguments, count, keywords)) return nullptr;
  if (c.elsewhere) return call_otherwise(op, arguments, count, keywords);
  find_routes(c);
  bool failed = false;
  const char* function = nullptr;
  const char* const module = python_module(c, &function, &failed);
  if (failed) return nullptr;
  if (module == nullptr) return run(c);
  if (std::strcmp(function, "_eager") == 0) return call_eager(c);
  if (has_others(c) && std::strcmp(module, "narrows.torch") == 0 && !check_dispatched(c)) return nullptr;
  return delegate(c, module, function);
}

// An error of an op that has a name of its own, narrows.add, says that name.
[[gnu::noinline]] void name_error(Op* op) {
  if (PyUnicode_CompareWithASCIIString(op->name, op->declaration->op->name) == 0) return;
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const Ref rename(import_attribute("narrows._errors", "of_op"));
  const Ref done(rename && value != nullptr ? PyObject_CallFunctionObjArgs(rename.get(), value, &op->ob_base, nullptr) : nullptr);
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
}

PyObject* call(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  Op* const op = reinterpret_cast<Op*>(self);
  PyObject* const result = dispatch(op, arguments, count, keywords);
  if (result == nullptr) name_error(op);
  return result;
}

}  // namespace

PyObject* op_vectorcall(PyObject* self, PyObject* const* arguments, size_t flagged_count, PyObject* keywords) {
  return call(self, arguments, static_cast<Py_ssize_t>(flagged_count & ~(size_t{1} << (8 * sizeof(size_t) - 1))), keywords);
}

// The slot that vectorcall wants beside itself.
PyObject* op_call(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const Py_ssize_t count = PyTuple_Size(arguments), named = keywords == nullptr ? 0 : PyDict_Size(keywords);
  std::vector<PyObject*> objects(static_cast<size_t>(count + named));
  for (Py_ssize_t i = 0; i < count; ++i) objects[static_cast<size_t>(i)] = PyTuple_GetItem(arguments, i);
  const Ref names(PyTuple_New(named));
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  for (Py_ssize_t i = 0; names && i < named && PyDict_Next(keywords, &at, &key, &value); ++i) {
    PyTuple_SetItem(names.get(), i, Ref::borrow(key).release());
    objects[static_cast<size_t>(count + i)] = value;
  }
  return names ? call(self, objects.data(), count, names.get()) : nullptr;
}

// What a call would refuse of these outputs beside these inputs, wherever they are: it is asked of the CPU, and nothing runs. What
// that has no kernel for, others may have one for.
static bool check_given_outputs(Call& c) {
  if (c.lead < 0) return refuse_without_arrays(c);
  DLDataType dtype{};
  for (uint32_t i = 0; i < c.num_inputs; ++i)
    if (c.is_array(i)) dtype = c.arrays[i].tensor.dtype;
  for (uint32_t i = c.num_inputs; i < c.num_inputs + c.num_outputs; ++i)
    if (c.is_array(i) && c.routes[i] == Route::torch && !read_any(c, i)) return false;
  if (runtime() == nullptr || !bind_operands(c, dtype) || !read_given_outputs(c)) return false;
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i) {
    if (!c.is_array(i)) continue;
    DLTensor& t = c.arrays[i].tensor;
    if (i < c.num_inputs && t.device.device_type != kDLCPU) t.data = nullptr, t.byte_offset = 0;
    t.device = {kDLCPU, 0};
  }
  const DLTensor* pointers[NW_MAX_TENSORS];
  nw_call call;
  fill(c, call, pointers);
  nw_error error{};
  int32_t status = NW_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = nw_plan_get(runtime(), &call, nullptr, nullptr, &error);
  Py_END_ALLOW_THREADS;
  return status != NW_INVALID || raise(status, error) != nullptr;
}

// op._checked(inputs, out=None): [(dtype, shape) | None, ...] of the inputs, read as a call reads them; None of a number too.
PyObject* op_checked(PyObject* self, PyObject* arguments) {
  PyObject *inputs = nullptr, *out = Py_None;
  if (!PyArg_ParseTuple(arguments, "O!|O", &PyTuple_Type, &inputs, &out)) return nullptr;
  Call c(reinterpret_cast<Op*>(self));
  for (Py_ssize_t i = 0; i < PyTuple_Size(inputs); ++i)
    if (!add_input(c, static_cast<uint32_t>(i), PyTuple_GetItem(inputs, i))) return nullptr;
  c.out = out == Py_None ? nullptr : out;
  if (!set_outputs(c)) return nullptr;
  find_routes(c);
  Ref list(PyList_New(c.num_inputs));
  for (uint32_t i = 0; list && i < c.num_inputs; ++i) {
    if (c.is_array(i) && !read_any(c, i)) return nullptr;
    const DLTensor& t = c.arrays[i].tensor;
    if (c.is_array(i) && *dtype_name(t.dtype) == '\0')
      return PyErr_Format(PyExc_ValueError, "%s: %U has dtype %s; expected %s", c.declaration.op->name, c.declaration.inputs[i],
                          show_dtype(t.dtype).c_str(), kDtypesExpected);
    Ref spec(c.is_array(i) ? Py_BuildValue("sN", dtype_name(t.dtype), integers(t.shape, t.ndim)) : Ref::borrow(Py_None).release());
    if (!spec) return nullptr;
    PyList_SetItem(list.get(), i, spec.release());
  }
  return list && (c.out == nullptr || check_given_outputs(c)) ? list.release() : nullptr;
}

// Below torch's dispatcher: every output, None where bit j of wanted is not set. Of `plain` the gate is asked, and the result is
// None where it lets nothing through.
static PyObject* run_below(Call& c, PyObject* inputs, uint64_t wanted, bool plain) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(inputs); ++i)
    if (!add_input(c, static_cast<uint32_t>(i), PyTuple_GetItem(inputs, i))) return nullptr;
  if (!set_outputs(c)) return nullptr;
  find_routes(c);
  c.wanted = wanted & ~(uint64_t{1} << 63);
  if (plain) {
    const int gate = has_route(c, Route::torch_other) ? 0 : torch_gate(c.objects, c.routes, c.arrays.get(), c.num_inputs, false);
    return gate > 0 ? run(c) : gate < 0 ? nullptr : Ref::borrow(Py_None).release();
  }
  for (uint32_t i = 0; i < c.num_inputs; ++i)
    if ((c.routes[i] == Route::torch || c.routes[i] == Route::torch_other) && !read_any(c, i)) return nullptr;
  return run(c);
}

// op._run(inputs, wanted, plain=False, shapes=None): run_below(), outputs in the shapes of a tuple. Beside shapes the result is
// None, too, where an output that is wanted has no shape, or another number of elements; nothing runs then.
PyObject* op_run(PyObject* self, PyObject* arguments) {
  PyObject *inputs = nullptr, *shapes = Py_None;
  unsigned long long wanted = 0;
  int plain = 0;
  if (!PyArg_ParseTuple(arguments, "O!K|pO", &PyTuple_Type, &inputs, &wanted, &plain, &shapes)) return nullptr;
  Call c(reinterpret_cast<Op*>(self));
  c.shapes = PyTuple_Check(shapes) ? shapes : nullptr;
  c.dispatched = plain == 0;
  Ref outputs(run_below(c, inputs, wanted, plain != 0));
  const bool misfits = !outputs && c.inferred && !c.inferred->as_wanted && PyErr_Occurred() == nullptr;
  return misfits ? Ref::borrow(Py_None).release() : outputs.release();
}

// op._forward(inputs): run_below() with all outputs; and the inputs' shapes, a tuple that calls alike share. None: no tensor of
// torch leads.
PyObject* op_forward(PyObject* self, PyObject* arguments) {
  PyObject* inputs = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!", &PyTuple_Type, &inputs)) return nullptr;
  Call c(reinterpret_cast<Op*>(self));
  const Ref outputs(run_below(c, inputs, kAll, false));
  PyObject* const shapes = outputs && c.inferred->shapes ? c.inferred->shapes.get() : Py_None;
  return outputs ? PyTuple_Pack(2, outputs.get(), shapes) : nullptr;
}

}  // namespace narrows::python
