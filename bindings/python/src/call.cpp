// call.cpp -- one call of an op: the arguments, the route of each array, outputs, nw_run without the GIL. What cannot be done here
// (torch's dispatcher, JAX, arrays for another device, a number in the place of a required array) goes to Python, with the params
// bound. Steps 1 and 2 of a tensor's path meet in launch().
#include <algorithm>
#include <cstring>
#include <new>

#include "op.h"

namespace narrows::python {
namespace {

constexpr size_t kBlob = 256;  // bytes that a call keeps on the stack
constexpr uint64_t kAll = ~uint64_t{0};

// As many elements as the op has tensors, without the heap; none beyond those is touched.
template <class T>
class Stack {
 public:
  explicit Stack(uint32_t count) : count_(count < NW_MAX_TENSORS ? count : NW_MAX_TENSORS) {
    for (uint32_t i = 0; i < count_; ++i) new (get() + i) T;
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() {
    for (uint32_t i = 0; i < count_; ++i) get()[i].~T();
  }
  T* get() { return reinterpret_cast<T*>(storage_); }
  T& operator[](uint32_t i) { return get()[i]; }
  const T& operator[](uint32_t i) const { return reinterpret_cast<const T*>(storage_)[i]; }

 private:
  alignas(T) unsigned char storage_[NW_MAX_TENSORS * sizeof(T)];
  uint32_t count_;
};

// The arguments of one call. Objects are borrowed from the caller.
struct Call {
  explicit Call(Op* op) : op(op), declaration(*op->declaration) {
    const uint64_t size = declaration.op->params_size;
    if (size > kBlob) large.reset(new unsigned char[size]);
    blob = size > kBlob ? large.get() : small;
    if (size != 0) std::memcpy(blob, op->blob, size);
  }

  Op* op;
  const Declaration& declaration;
  unsigned char* blob;
  unsigned char small[kBlob];
  std::unique_ptr<unsigned char[]> large;

  PyObject* objects[NW_MAX_TENSORS] = {};  // inputs, then outputs
  Route routes[NW_MAX_TENSORS] = {};
  const char* reasons[NW_MAX_TENSORS];
  uint32_t num_inputs = 0, num_outputs = 0;
  int lead = -1;  // the first input that is an array: outputs are of its framework

  PyObject *out = nullptr, *stream_object = nullptr, *device = nullptr;
  const char *backend = nullptr, *kernel = nullptr;
  uint32_t flags = 0;
  uint64_t wanted = kAll;  // bit j: output j

  Stack<Array> arrays{declaration.op->max_inputs + declaration.op->num_outputs};
  void* stream = nullptr;
  DLDevice where{kDLCPU, 0};
};

// ---- arguments ----

bool add_input(Call& c, uint32_t index, PyObject* object) {
  if (index >= c.declaration.inputs.size() || index >= NW_MAX_TENSORS) {
    PyErr_Format(PyExc_TypeError, "%s takes %d tensors; %d were given", c.declaration.op->name,
                 static_cast<int>(c.declaration.inputs.size()), static_cast<int>(index) + 1);
    return false;
  }
  if (c.objects[index] != nullptr) {
    PyErr_Format(PyExc_TypeError, "%s: %U is given twice", c.declaration.op->name, c.declaration.inputs[index]);
    return false;
  }
  c.objects[index] = object;
  if (index >= c.num_inputs) c.num_inputs = index + 1;
  return true;
}

const char* text_of(PyObject* value, const char* what) {
  if (value == Py_None) return nullptr;
  const char* const text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, nullptr) : nullptr;
  if (text == nullptr && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%s is %R; expected a str", what, value);
  return text;
}

// How the call is made, whatever the op.
enum Option { kOut, kStream, kDevice, kBackend, kKernel, kDeterministic, kNoOption };
Option find_option(PyObject* name, bool exactly) {
  static PyObject* const names[] = {PyUnicode_InternFromString("out"),    PyUnicode_InternFromString("stream"),
                                    PyUnicode_InternFromString("device"), PyUnicode_InternFromString("backend"),
                                    PyUnicode_InternFromString("kernel"), PyUnicode_InternFromString("deterministic")};
  for (int i = 0; i < kNoOption; ++i)
    if (names[i] == name || (!exactly && PyUnicode_Compare(names[i], name) == 0)) return static_cast<Option>(i);
  return kNoOption;
}

bool set_option(Call& c, Option option, PyObject* value) {
  PyObject* const given = value == Py_None ? nullptr : value;
  switch (option) {
    case kOut: c.out = given; break;
    case kStream: c.stream_object = given; break;
    case kDevice: c.device = given; break;
    case kBackend: c.backend = text_of(value, "backend"); break;
    case kKernel: c.kernel = text_of(value, "kernel"); break;
    default: c.flags = PyObject_IsTrue(value) == 1 ? NW_DETERMINISTIC : 0;
  }
  return !PyErr_Occurred();
}

// Names are interned, and so are those of a call in source code: the second round is for the others.
bool set_keyword(Call& c, PyObject* name, PyObject* value) {
  for (const bool exactly : {true, false}) {
    for (uint32_t i = 0; i < c.declaration.inputs.size(); ++i) {
      PyObject* const input = c.declaration.inputs[i];
      if (input == name || (!exactly && PyUnicode_Compare(input, name) == 0)) return add_input(c, i, value);
    }
    if (const int field = find_field(c.declaration, name, exactly); field >= 0)
      return set_field(c.declaration, field, value, c.blob);
    if (const Option option = find_option(name, exactly); option != kNoOption) return set_option(c, option, value);
  }
  PyErr_Format(PyExc_TypeError, "%s has no argument '%U'", c.declaration.op->name, name);
  return false;
}

// `out` is an array, or for several outputs a sequence of arrays and None.
bool set_outputs(Call& c) {
  const uint32_t count = c.declaration.op->num_outputs;
  PyObject** const outputs = c.objects + c.num_inputs;
  if (c.num_inputs + count > NW_MAX_TENSORS) {
    PyErr_Format(PyExc_TypeError, "%s: more than %d tensors", c.declaration.op->name, NW_MAX_TENSORS);
    return false;
  }
  c.num_outputs = count;
  if (c.out == nullptr) return true;
  if (!PyTuple_Check(c.out) && !PyList_Check(c.out)) {
    outputs[0] = c.out;
    if (count - c.declaration.op->num_aux == 1) return true;
    PyErr_Format(PyExc_TypeError, "%s: out is one array; expected a tuple of %d", c.declaration.op->name,
                 static_cast<int>(count - c.declaration.op->num_aux));
    return false;
  }
  const Py_ssize_t given = PySequence_Size(c.out);
  if (given > count || given < static_cast<Py_ssize_t>(count - c.declaration.op->num_aux)) {
    PyErr_Format(PyExc_TypeError, "%s: out has %zd arrays; expected %d", c.declaration.op->name, given, static_cast<int>(count));
    return false;
  }
  for (Py_ssize_t i = 0; i < given; ++i) {
    const Ref item(PySequence_GetItem(c.out, i));  // the sequence keeps it alive; this thread keeps the sequence
    outputs[i] = item.get() == Py_None ? nullptr : item.get();
  }
  return true;
}

bool parse(Call& c, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!add_input(c, static_cast<uint32_t>(i), arguments[i])) return false;
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_Size(keywords);
  for (Py_ssize_t i = 0; i < named; ++i)
    if (!set_keyword(c, PyTuple_GetItem(keywords, i), arguments[count + i])) return false;
  for (int32_t i = 0; i < c.op->operands; ++i) {
    if (c.objects[i] != nullptr && c.objects[i] != Py_None) continue;
    PyErr_Format(PyExc_TypeError, "%S takes %d operands; %U is missing", c.op->name, c.op->operands,
                 c.declaration.inputs[static_cast<uint32_t>(i)]);
    return false;
  }
  return set_outputs(c);
}

void find_routes(Call& c) {
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i) {
    if (c.objects[i] == nullptr) continue;
    const TypeRoute found = route_of(c.objects[i]);
    c.routes[i] = found.route;
    c.reasons[i] = found.reason;
    if (i < c.num_inputs && c.lead < 0 && found.route > Route::number) c.lead = static_cast<int>(i);
  }
}

// ---- what goes to Python ----

// module.function(op with the params bound, [inputs], out, device)
PyObject* delegate(Call& c, const char* module, const char* function) {
  const Ref callable(import_attribute(module, function));
  const bool same = std::memcmp(c.blob, c.op->blob, c.declaration.op->params_size) == 0;
  const Ref op(same ? Ref::borrow(&c.op->ob_base).release() : new_op(&c.declaration, c.blob));
  Ref inputs(op && callable ? PyList_New(c.num_inputs) : nullptr);
  for (uint32_t i = 0; inputs && i < c.num_inputs; ++i)
    PyList_SetItem(inputs.get(), i, Ref::borrow(c.objects[i] == nullptr ? Py_None : c.objects[i]).release());
  if (!inputs) return nullptr;
  if (c.flags != 0 || c.backend != nullptr || c.kernel != nullptr)
    return PyErr_Format(PyExc_NotImplementedError,
                        "%s: backend, kernel and deterministic are for calls that go straight to the "
                        "library, not for torch's dispatcher, JAX or device=",
                        c.declaration.op->name);
  return PyObject_CallFunctionObjArgs(callable.get(), op.get(), inputs.get(), c.out == nullptr ? Py_None : c.out,
                                      c.device == nullptr ? Py_None : c.device, nullptr);
}

bool has_route(const Call& c, Route route) {
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i)
    if (c.routes[i] == route) return true;
  return false;
}
bool number_is_required(const Call& c) {
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
    if (!set_operand(c.declaration, i, c.objects[i], dtype, c.blob)) return -1;
    c.objects[i] = nullptr;
  }
  return 1;
}

// The Python function that this call is for; NULL: it is done here. `failed`: exception set.
const char* python_module(Call& c, const char** function, bool* failed) {
  *function = "_call";
  if (c.device != nullptr) return "narrows._device";
  if (has_route(c, Route::jax_traced) || (c.lead >= 0 && c.routes[c.lead] == Route::jax)) return "narrows.jax";
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

bool read_one(Call& c, uint32_t i) {
  if (c.routes[i] == Route::torch) return true;  // the gate has read it
  if (c.arrays[i].read(c.objects[i], {c.routes[i], c.reasons[i]}, c.stream)) return true;
  const bool output = i >= c.num_inputs;
  if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError)) {  // say which argument it is
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    const Ref name(output ? PyUnicode_FromString("out") : Ref::borrow(c.declaration.inputs[i]).release());
    if (name) PyErr_Format(type, "%s: %U: %S", c.declaration.op->name, name.get(), value == nullptr ? Py_None : value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  }
  return false;
}

bool is_array(const Call& c, uint32_t i) { return c.objects[i] != nullptr && c.routes[i] > Route::number; }

bool find_stream(Call& c) {
  if (c.stream_object != nullptr) {
    const Ref handle(PyObject_HasAttrString(c.stream_object, "handle") ? PyObject_GetAttrString(c.stream_object, "handle")
                                                                       : Ref::borrow(c.stream_object).release());
    c.stream = handle ? PyLong_AsVoidPtr(handle.get()) : nullptr;
    return !PyErr_Occurred();
  }
  const Route route = c.routes[c.lead];
  if (route == Route::own) {
    c.stream = own_stream(c.objects[c.lead]);
    return true;
  }
  return current_stream(route, c.where, &c.stream);
}

// On a GPU two frameworks have two streams: refused, unless both are on the same one.
bool check_streams(Call& c) {
  if (c.where.device_type == kDLCPU || c.stream_object != nullptr) return true;
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i) {
    if (!is_array(c, i) || c.routes[i] == Route::dlpack) continue;  // a producer orders itself on the stream that it is told
    void* other = c.stream;
    if (c.routes[i] == Route::own)
      other = own_stream(c.objects[i]);
    else if (!current_stream(c.routes[i], c.where, &other))
      return false;
    if (other == c.stream) continue;
    PyErr_Format(PyExc_ValueError,
                 "%s: tensors of several frameworks whose current streams differ; make one stream current in "
                 "both, or pass stream=",
                 c.declaration.op->name);
    return false;
  }
  return true;
}

bool read_inputs(Call& c) {
  const auto lead = static_cast<uint32_t>(c.lead);
  if (!read_one(c, lead)) return false;
  c.where = c.arrays[lead].tensor.device;
  if (!find_stream(c)) return false;
  DLDataType dtype = c.arrays[lead].tensor.dtype;
  for (uint32_t i = 0; i < c.num_inputs; ++i) {
    if (!is_array(c, i)) continue;
    if (i != lead && !read_one(c, i)) return false;
    dtype = c.arrays[i].tensor.dtype;  // of the last one: the condition of a `where` comes before its operands
  }
  for (uint32_t i = 0; i < c.num_inputs; ++i) {
    if (c.routes[i] != Route::number) continue;
    if (!set_operand(c.declaration, i, c.objects[i], dtype, c.blob)) return false;
    c.objects[i] = nullptr;
  }
  return check_streams(c);
}

void fill(Call& c, nw_call& call, const DLTensor** pointers) {
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i) pointers[i] = is_array(c, i) ? &c.arrays[i].tensor : nullptr;
  call = {};
  call.struct_size = sizeof call;
  call.flags = c.flags;
  call.num_inputs = c.num_inputs;
  call.num_outputs = c.num_outputs;
  call.op = c.declaration.op->name;
  call.inputs = pointers;
  call.outputs = pointers + c.num_inputs;
  call.params = c.declaration.op->params_size == 0 ? nullptr : c.blob;
  call.params_size = c.declaration.op->params_size;
  call.stream = c.stream;
  call.backend = c.backend;
  call.kernel = c.kernel;
}

// All that inference may depend on, as words, and their hash.
void describe(const Call& c, SpecKey& key) {
  key.size = 0;
  const auto add = [&key](uint64_t word) { key.words[key.size++] = word; };
  for (uint32_t i = 0; i < c.num_inputs; ++i) {
    if (!is_array(c, i)) {
      add(~uint64_t{0});
      continue;
    }
    const DLTensor& t = c.arrays[i].tensor;
    const uint64_t address = reinterpret_cast<uint64_t>(t.data) + t.byte_offset;
    uint64_t dtype = 0;
    std::memcpy(&dtype, &t.dtype, sizeof t.dtype);
    add(dtype | static_cast<uint64_t>(t.ndim) << 32 | static_cast<uint64_t>(__builtin_ctzll(address | 256)) << 40 |
        uint64_t{t.strides != nullptr} << 48);
    uint64_t device = 0;
    std::memcpy(&device, &t.device, sizeof t.device);
    add(device);
    for (int32_t d = 0; d < t.ndim; ++d) add(static_cast<uint64_t>(t.shape[d]));
    for (int32_t d = 0; t.strides != nullptr && d < t.ndim; ++d) add(static_cast<uint64_t>(t.strides[d]));
  }
  for (uint64_t at = 0; at < c.declaration.op->params_size; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, c.blob + at, std::min<uint64_t>(8, c.declaration.op->params_size - at));
    add(word);
  }
  key.hash = key.size;
  for (size_t i = 0; i < key.size; ++i) key.hash = (key.hash ^ key.words[i]) * 0x9E3779B97F4A7C15u, key.hash ^= key.hash >> 32;
}

bool infer(Call& c, const nw_call& call, OutputSpec* outputs) {
  SpecKey key;
  const bool plain = c.backend == nullptr && c.kernel == nullptr && c.flags == 0 && c.declaration.op->params_size <= kBlob;
  if (plain) describe(c, key);
  if (plain && c.op->cache->find(key, outputs, c.num_outputs)) return true;
  nw_spec specs[NW_MAX_TENSORS];
  nw_error error{};
  const int32_t status = nw_infer(runtime(), &call, specs, c.num_outputs, &error);
  if (status != NW_OK) return raise(status, error) != nullptr;
  for (uint32_t j = 0; j < c.num_outputs; ++j)
    if (!outputs[j].assign(specs[j])) return false;
  if (plain) c.op->cache->put(key, outputs, c.num_outputs);
  return true;
}

// ---- outputs ----

// The arrays that a call returns, where they were allocated here.
using Outputs = Stack<Ref>;

bool read_given_outputs(Call& c) {
  for (uint32_t i = c.num_inputs; i < c.num_inputs + c.num_outputs; ++i) {
    if (!is_array(c, i) && c.objects[i] == nullptr) continue;
    if (!read_one(c, i)) return false;
    if (!c.arrays[i].read_only) continue;
    PyErr_Format(PyExc_ValueError, "%s: out is read-only", c.declaration.op->name);
    return false;
  }
  return true;
}

bool allocate_outputs(Call& c, const nw_call& call, const DLTensor** pointers, Outputs& out) {
  Stack<OutputSpec> specs(c.num_outputs);
  if (!infer(c, call, specs.get())) return false;
  const uint32_t aux = c.num_outputs - c.declaration.op->num_aux;
  for (uint32_t j = 0; j < c.num_outputs; ++j) {
    const bool skip = c.wanted == kAll ? j >= aux : (c.wanted >> j & 1) == 0;
    if (skip || specs[j].spec.ndim < 0) continue;
    const uint32_t i = c.num_inputs + j;
    out[j] = Ref(allocate(c.routes[c.lead], c.objects[c.lead], specs[j], c.where, c.stream));
    c.objects[i] = out[j].get();
    if (c.objects[i] == nullptr) return false;
    c.routes[i] = route_of(c.objects[i]).route;
    if (!(c.routes[i] == Route::torch ? read_torch(c.objects[i], &c.arrays[i]) : read_one(c, i))) return false;
    pointers[i] = &c.arrays[i].tensor;
  }
  return true;
}

// A built-in op on so little that releasing the GIL would take as long as the work.
bool is_tiny(const Call& c) {
  constexpr int64_t kElements = 1024;
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i) {
    if (!is_array(c, i)) continue;
    int64_t count = 1;
    for (int32_t d = 0; d < c.arrays[i].tensor.ndim && count <= kElements; ++d) count *= c.arrays[i].tensor.shape[d];
    if (count > kElements) return false;
  }
  return !c.declaration.has_vendor;
}

// On a GPU the workspace is the framework's memory: planned first, then launched.
int32_t launch(Call& c, nw_call& call, nw_error* error, bool* raised) {
  nw_runtime* const rt = runtime();
  int32_t status = NW_OK;
  if (c.where.device_type == kDLCPU && is_tiny(c)) return nw_run(rt, &call, error);
  if (c.where.device_type == kDLCPU) {
    Py_BEGIN_ALLOW_THREADS;
    status = nw_run(rt, &call, error);
    Py_END_ALLOW_THREADS;
    return status;
  }
  nw_plan* plan = nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  Py_BEGIN_ALLOW_THREADS;
  status = nw_plan_get(rt, &call, &plan, &info, error);
  Py_END_ALLOW_THREADS;
  if (status != NW_OK) return status;
  OutputSpec bytes;
  Array workspace;
  const Route route = c.routes[c.lead];
  const bool own = info.workspace_size == 0 || (route != Route::torch && route != Route::cupy);
  const Ref memory(own || !bytes.assign({{kDLUInt, 8, 1}, 1, {static_cast<int64_t>(info.workspace_size)}})
                       ? nullptr
                       : allocate(route, c.objects[c.lead], bytes, c.where, c.stream));
  *raised = PyErr_Occurred() || (memory && !workspace.read(memory.get(), route_of(memory.get()), c.stream));
  if (!*raised) {
    if (memory) call.workspace = workspace.tensor.data, call.workspace_size = info.workspace_size;
    Py_BEGIN_ALLOW_THREADS;
    status = nw_launch(plan, &call, error);
    Py_END_ALLOW_THREADS;
  }
  nw_plan_release(plan);
  return status;
}

PyObject* result(Call& c, Outputs& out) {
  if (c.out != nullptr) return Ref::borrow(c.out).release();
  const uint32_t count = c.wanted == kAll ? c.num_outputs - c.declaration.op->num_aux : c.num_outputs;
  if (c.wanted == kAll && count == 1) return out[0].release();
  Ref tuple(PyTuple_New(count));
  for (uint32_t j = 0; tuple && j < count; ++j)
    PyTuple_SetItem(tuple.get(), j, out[j] ? out[j].release() : Ref::borrow(Py_None).release());
  return tuple.release();
}

PyObject* run(Call& c) {
  if (c.lead < 0) {
    for (uint32_t i = 0; i < c.num_inputs; ++i)
      if (c.routes[i] == Route::refused) return read_one(c, i), nullptr;
    return PyErr_Format(PyExc_TypeError, "%s: no input is an array", c.declaration.op->name);
  }
  const DLTensor* pointers[NW_MAX_TENSORS];
  nw_call call;
  Outputs out(c.num_outputs);
  if (runtime() == nullptr || !read_inputs(c)) return nullptr;
  if (c.out != nullptr && !read_given_outputs(c)) return nullptr;
  fill(c, call, pointers);
  if (c.out == nullptr && !allocate_outputs(c, call, pointers, out)) return nullptr;
  nw_error error;
  bool raised = false;
  const int32_t status = launch(c, call, &error, &raised);
  if (raised) return nullptr;
  return status == NW_OK ? result(c, out) : raise(status, error);
}

PyObject* dispatch(Op* op, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  Call c(op);
  if (!parse(c, arguments, count, keywords)) return nullptr;
  find_routes(c);
  bool failed = false;
  const char* function = nullptr;
  const char* const module = python_module(c, &function, &failed);
  if (failed) return nullptr;
  return module == nullptr ? run(c) : delegate(c, module, function);
}

}  // namespace

PyObject* op_vectorcall(PyObject* self, PyObject* const* arguments, size_t flagged_count, PyObject* keywords) {
  const auto count = static_cast<Py_ssize_t>(flagged_count & ~(size_t{1} << (8 * sizeof(size_t) - 1)));
  return dispatch(reinterpret_cast<Op*>(self), arguments, count, keywords);
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
  return names ? dispatch(reinterpret_cast<Op*>(self), objects.data(), count, names.get()) : nullptr;
}

// op._run(inputs, wanted): below torch's dispatcher, where no gate is asked. Every output, None where bit j of wanted is not set.
PyObject* op_run(PyObject* self, PyObject* arguments) {
  PyObject* inputs = nullptr;
  unsigned long long wanted = 0;
  if (!PyArg_ParseTuple(arguments, "O!K", &PyTuple_Type, &inputs, &wanted)) return nullptr;
  Call c(reinterpret_cast<Op*>(self));
  for (Py_ssize_t i = 0; i < PyTuple_Size(inputs); ++i)
    if (!add_input(c, static_cast<uint32_t>(i), PyTuple_GetItem(inputs, i))) return nullptr;
  if (!set_outputs(c)) return nullptr;
  find_routes(c);
  c.wanted = wanted & ~(uint64_t{1} << 63);
  for (uint32_t i = 0; i < c.num_inputs; ++i)
    if ((c.routes[i] == Route::torch || c.routes[i] == Route::torch_other) && !read_torch(c.objects[i], &c.arrays[i]))
      return nullptr;
  return run(c);
}

// op._infer([(dtype, shape) | None, ...], device_type): [(dtype, shape) | None, ...]. Reads no memory.
PyObject* op_infer(PyObject* self, PyObject* arguments) {
  PyObject* inputs = nullptr;
  int device_type = kDLCPU;
  if (!PyArg_ParseTuple(arguments, "O|i", &inputs, &device_type)) return nullptr;
  Call c(reinterpret_cast<Op*>(self));
  const Py_ssize_t count = PySequence_Size(inputs);
  if (count < 0 || runtime() == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref input(PySequence_GetItem(inputs, i));
    if (!input || !add_input(c, static_cast<uint32_t>(i), input.get())) return nullptr;
    if (input.get() == Py_None) continue;
    PyObject *dtype = nullptr, *shape = nullptr;
    int64_t extents[NW_MAX_NDIM];
    DLTensor t{};
    if (!PyArg_ParseTuple(input.get(), "OO!", &dtype, &PyTuple_Type, &shape) || !parse_dtype(dtype, &t.dtype)) return nullptr;
    t.ndim = static_cast<int32_t>(PyTuple_Size(shape));
    if (t.ndim > NW_MAX_NDIM) return PyErr_Format(PyExc_ValueError, "%d dimensions; expected 16 at most", t.ndim);
    for (int32_t d = 0; d < t.ndim; ++d) extents[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
    if (PyErr_Occurred()) return nullptr;
    t.device = {static_cast<DLDeviceType>(device_type), 0};
    t.data = pointer(256);  // never read: its alignment is what counts
    t.shape = extents;
    c.routes[i] = Route::own;
    if (!c.arrays[i].assign(t)) return nullptr;
  }
  if (!set_outputs(c)) return nullptr;
  const DLTensor* pointers[NW_MAX_TENSORS];
  nw_call call;
  Stack<OutputSpec> specs(c.num_outputs);
  fill(c, call, pointers);
  if (!infer(c, call, specs.get())) return nullptr;
  Ref list(PyList_New(c.num_outputs));
  for (uint32_t j = 0; list && j < c.num_outputs; ++j)
    PyList_SetItem(list.get(), j,
                   specs[j].spec.ndim < 0 ? Ref::borrow(Py_None).release()
                                          : Py_BuildValue("sO", dtype_name(specs[j].spec.dtype), specs[j].shape.get()));
  return list.release();
}

bool SpecCache::find(const SpecKey& key, OutputSpec* specs, uint32_t count) {
  const Guard guard(mutex_);
  if (entries_ == nullptr) return false;
  const Entry& entry = entries_[key.hash % kEntries];
  if (entry.specs.size() != count || entry.key.size() != key.size || !std::equal(entry.key.begin(), entry.key.end(), key.words))
    return false;
  std::copy(entry.specs.begin(), entry.specs.end(), specs);
  return true;
}

void SpecCache::put(const SpecKey& key, const OutputSpec* specs, uint32_t count) {
  const Guard guard(mutex_);
  if (entries_ == nullptr) entries_ = std::make_unique<Entry[]>(kEntries);
  entries_[key.hash % kEntries] = {{key.words, key.words + key.size}, {specs, specs + count}};
}

}  // namespace narrows::python
