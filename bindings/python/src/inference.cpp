// SPDX-License-Identifier: Apache-2.0
// inference.cpp -- what outputs a call has: asked of the library once for each combination of shapes, dtypes, layouts and params,
// and remembered by the op, with the plan by which such calls run.
#include <algorithm>
#include <cstring>

#include "call.h"

namespace narrows::python {
namespace {

// Whether what is found out for the call is remembered by the op.
bool is_remembered(const Call& c) {
  return c.backend == nullptr && c.kernel == nullptr && c.flags == 0 && c.declaration.op->params_size <= kBlob;
}

uint64_t address_of(const DLTensor& t) { return reinterpret_cast<uint64_t>(t.data) + t.byte_offset; }

// The first input that begins where a given output does, from 1; 0: none.
uint64_t alias_of(const Call& c, uint32_t output) {
  for (uint32_t i = 0; i < c.num_inputs; ++i)
    if (c.is_array(i) && address_of(c.arrays[i].tensor) == address_of(c.arrays[output].tensor)) return i + 1;
  return 0;
}

// The shape in which output j is to be allocated, a tuple; NULL: any.
PyObject* shape_of(const Call& c, uint32_t j) {
  PyObject* const shape = c.shapes == nullptr || j >= PyTuple_Size(c.shapes) ? nullptr : PyTuple_GetItem(c.shapes, j);
  return shape == nullptr || !PyTuple_Check(shape) || PyTuple_Size(shape) > NW_MAX_NDIM ? nullptr : shape;
}

int64_t elements_of(const nw_spec& spec) {
  int64_t count = 1;
  for (int32_t d = 0; d < spec.ndim; ++d) count *= spec.shape[d];
  return count;
}

// What is allocated for output j: of the shape that is wanted.
nw_spec allocated(const Call& c, uint32_t j, const nw_spec& spec) {
  PyObject* const shape = shape_of(c, j);
  if (shape == nullptr || spec.ndim < 0) return spec;
  nw_spec made = spec;
  made.ndim = static_cast<int32_t>(PyTuple_Size(shape));
  for (int32_t d = 0; d < made.ndim; ++d) made.shape[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
  return made;
}

bool is_as_wanted(const Call& c, uint32_t j, const nw_spec& spec, const nw_spec& made) {
  if (c.shapes == nullptr || (c.wanted >> j & 1) == 0) return true;
  return spec.ndim >= 0 && elements_of(spec) == elements_of(made);
}

// All that inference and the choice of a plan may depend on, as words, and their hash.
void describe(const Call& c, SpecKey& key) {
  key.size = 0;
  const auto add = [&key](uint64_t word) { key.words[key.size++] = word; };
  const uint64_t size = c.declaration.op->params_size;
  // The op's own params, which every key of its cache implies.
  const bool bound = c.has_params_of_op();
  const uint32_t given = c.num_inputs + (c.out != nullptr ? c.num_outputs : 0);
  const bool numpy = c.lead >= 0 && c.routes[c.lead] == Route::numpy;  // whose memory is aligned worse
  add(uint64_t{plugins_loaded.load(std::memory_order_relaxed)} << 32 | uint64_t{numpy} << 31 | uint64_t{given} << 16 |
      uint64_t{c.num_inputs} << 1 | uint64_t{bound});
  for (uint32_t i = 0; i < given; ++i) {
    if (!c.is_array(i)) {
      add(~uint64_t{0});
      continue;
    }
    const DLTensor& t = c.arrays[i].tensor;
    uint64_t dtype = 0;
    std::memcpy(&dtype, &t.dtype, sizeof t.dtype);
    add(dtype | static_cast<uint64_t>(t.ndim) << 32 | static_cast<uint64_t>(__builtin_ctzll(address_of(t) | kAligned)) << 40 |
        uint64_t{t.strides != nullptr} << 48 | uint64_t{t.data == nullptr} << 49 | (i < c.num_inputs ? 0 : alias_of(c, i)) << 56);
    uint64_t device = 0;
    std::memcpy(&device, &t.device, sizeof t.device);
    add(device);
    for (int32_t d = 0; d < t.ndim; ++d) add(static_cast<uint64_t>(t.shape[d]));
    for (int32_t d = 0; t.strides != nullptr && d < t.ndim; ++d) add(static_cast<uint64_t>(t.strides[d]));
  }
  add(c.wanted);
  for (uint32_t j = 0; c.shapes != nullptr && j < c.num_outputs; ++j) {
    PyObject* const shape = shape_of(c, j);
    const Py_ssize_t ndim = shape == nullptr ? -1 : PyTuple_Size(shape);
    add(static_cast<uint64_t>(ndim));
    for (Py_ssize_t d = 0; d < ndim; ++d) add(static_cast<uint64_t>(PyLong_AsLongLong(PyTuple_GetItem(shape, d))));
  }
  for (uint64_t at = 0; !bound && at < size; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, c.blob + at, std::min<uint64_t>(8, size - at));
    add(word);
  }
  // Products that do not wait for each other; their high bits depend on all words.
  key.hash = 0;
  uint64_t factor = 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i < key.size; ++i, factor += 0x6A09E667F3BCC908u) key.hash += key.words[i] * factor;
}

PyObject* shapes_of_inputs(const Call& c) {
  const auto count = static_cast<uint32_t>(c.declaration.inputs.size());
  Ref shapes(PyTuple_New(count));
  for (uint32_t i = 0; shapes && i < count; ++i) {
    const bool given = i < c.num_inputs && c.is_array(i);
    Ref shape(given ? integers(c.arrays[i].tensor.shape, c.arrays[i].tensor.ndim) : Ref::borrow(Py_None).release());
    if (!shape) return nullptr;
    PyTuple_SetItem(shapes.get(), i, shape.release());
  }
  return shapes.release();
}

}  // namespace

void fill(Call& c, nw_call& call, const DLTensor** pointers) {
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i) pointers[i] = c.is_array(i) ? &c.arrays[i].tensor : nullptr;
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

bool infer(Call& c, const nw_call& call) {
  SpecKey key;
  const bool remembered = is_remembered(c);
  if (remembered) describe(c, key);
  const bool torch = c.lead >= 0 && c.routes[c.lead] == Route::torch;
  if (remembered) c.inferred = c.op->cache->find(key);
  if (c.inferred && (!torch || c.inferred->shapes)) return true;
  std::vector<nw_spec> specs(c.num_outputs);
  nw_error error{};
  const int32_t status = nw_infer(runtime(), &call, specs.data(), c.num_outputs, &error);
  if (status != NW_OK) return raise(status, error) != nullptr;
  c.inferred = InferredRef(new Inferred);
  c.inferred->outputs.resize(c.num_outputs);
  if (torch) c.inferred->shapes = Ref(shapes_of_inputs(c));
  if (torch && !c.inferred->shapes) return false;
  for (uint32_t j = 0; j < c.num_outputs; ++j) {
    OutputSpec& output = c.inferred->outputs[j];
    if (!output.assign(allocated(c, j, specs[j]))) return false;
    if (!is_as_wanted(c, j, specs[j], output.spec)) c.inferred->as_wanted = false;
    if (!torch || specs[j].ndim < 0) continue;
    output.torch_arguments = Ref(torch_empty_arguments(output));
    if (!output.torch_arguments) return false;
  }
  c.inferred->specs = std::move(specs);
  if (remembered) c.op->cache->put(key, c.inferred);
  return true;
}

void find_alike(Call& c) {
  SpecKey key;
  if (!is_remembered(c)) return;
  describe(c, key);
  c.inferred = c.op->cache->find(key);
  if (c.inferred) return;
  c.inferred = InferredRef(new Inferred);
  c.op->cache->put(key, c.inferred);
}

// [(dtype, shape) | None, ...] as the call's inputs, in no memory. False: exception set.
static bool describe_inputs(Call& c, PyObject* inputs, int device_type) {
  const Py_ssize_t count = PySequence_Size(inputs);
  if (count < 0 || runtime() == nullptr) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref input(PySequence_GetItem(inputs, i));
    if (!input || !add_input(c, static_cast<uint32_t>(i), input.get())) return false;
    if (input.get() == Py_None) continue;
    PyObject *dtype = nullptr, *shape = nullptr;
    int64_t extents[NW_MAX_NDIM];
    DLTensor t{};
    if (!PyArg_ParseTuple(input.get(), "OO!", &dtype, &PyTuple_Type, &shape)) return false;
    const char* const op = c.declaration.op->name;
    PyObject* const name = c.declaration.inputs[i];
    if (!parse_dtype(dtype, &t.dtype)) {
      if (PyErr_ExceptionMatches(PyExc_ValueError))
        PyErr_Format(PyExc_ValueError, "%s: %U has dtype %S; expected %s", op, name, dtype, kDtypesExpected);
      return false;
    }
    t.ndim = static_cast<int32_t>(PyTuple_Size(shape));
    if (t.ndim > NW_MAX_NDIM)
      return PyErr_Format(PyExc_ValueError, "%s: %U has %d dimensions; expected 16 at most", op, name, t.ndim), false;
    for (int32_t d = 0; d < t.ndim; ++d) extents[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
    if (PyErr_Occurred()) return false;
    t.device = {static_cast<DLDeviceType>(device_type), 0};
    t.shape = extents;
    c.routes[i] = Route::own;
    if (!c.arrays[i].assign(t)) return false;
  }
  return set_outputs(c);
}

// op._capturable([(dtype, shape) | None, ...], wanted, device_type): whether a call on contiguous memory only puts work on its
// stream and needs no workspace. False too where it would fail: then the call says why.
PyObject* op_capturable(PyObject* self, PyObject* arguments) {
  PyObject* inputs = nullptr;
  unsigned long long wanted = 0;
  int device_type = 0;
  if (!PyArg_ParseTuple(arguments, "OKi", &inputs, &wanted, &device_type)) return nullptr;
  Call c(reinterpret_cast<Op*>(self));
  if (!describe_inputs(c, inputs, device_type)) return nullptr;
  const DLTensor* pointers[NW_MAX_TENSORS];
  nw_call call;
  fill(c, call, pointers);
  if (!infer(c, call)) return PyErr_Clear(), Ref::borrow(Py_False).release();
  const DLDevice device{static_cast<DLDeviceType>(device_type), 0};
  for (uint32_t j = 0; j < c.num_outputs; ++j) {
    const nw_spec& spec = c.inferred->specs[j];
    if (spec.ndim < 0 || (wanted >> j & 1) == 0) continue;
    c.arrays[c.num_inputs + j].assign(spec, nullptr, device);
    pointers[c.num_inputs + j] = &c.arrays[c.num_inputs + j].tensor;
  }
  nw_plan* plan = nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  int32_t status = NW_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = nw_plan_get(runtime(), &call, &plan, &info, &error);
  Py_END_ALLOW_THREADS;
  if (status == NW_OK) nw_plan_release(plan);
  return PyBool_FromLong(status == NW_OK && (info.traits & NW_PLAN_CAPTURABLE) != 0 && info.workspace_size == 0);
}

// op._infer([(dtype, shape) | None, ...], device_type): [(dtype, shape) | None, ...]. Reads no memory.
PyObject* op_infer(PyObject* self, PyObject* arguments) {
  PyObject* inputs = nullptr;
  int device_type = kDLCPU;
  if (!PyArg_ParseTuple(arguments, "O|i", &inputs, &device_type)) return nullptr;
  Call c(reinterpret_cast<Op*>(self));
  if (!describe_inputs(c, inputs, device_type)) return nullptr;
  const DLTensor* pointers[NW_MAX_TENSORS];
  nw_call call;
  fill(c, call, pointers);
  if (!infer(c, call)) return nullptr;
  const std::vector<OutputSpec>& specs = c.inferred->outputs;
  Ref list(PyList_New(c.num_outputs));
  for (uint32_t j = 0; list && j < c.num_outputs; ++j)
    PyList_SetItem(list.get(), j,
                   specs[j].spec.ndim < 0 ? Ref::borrow(Py_None).release()
                                          : Py_BuildValue("sO", dtype_name(specs[j].spec.dtype), specs[j].shape.get()));
  return list.release();
}

InferredRef SpecCache::find(const SpecKey& key) {
  const Guard guard(mutex_);
  if (entries_ == nullptr) return {};
  const InferredRef& entry = entries_[key.hash >> kShift];
  if (!entry || entry->key.size() != key.size || !std::equal(entry->key.begin(), entry->key.end(), key.words)) return {};
  return entry;
}

// What was there goes with `entry`, after the lock: what Python does then is its own affair.
void SpecCache::put(const SpecKey& key, InferredRef entry) {
  entry->key.assign(key.words, key.words + key.size);
  const Guard guard(mutex_);
  if (entries_ == nullptr) entries_ = std::make_unique<InferredRef[]>(kEntries);
  std::swap(entries_[key.hash >> kShift], entry);
}

}  // namespace narrows::python
