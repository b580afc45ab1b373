// SPDX-License-Identifier: Apache-2.0
// module.cpp -- the module _narrows: the process's runtime, statuses as exceptions, dtypes by name, and the functions that are
// about the runtime itself: info, plugins, devices, streams.
#include <dlfcn.h>

#include <cstring>

#include "op.h"

namespace narrows::python {

PyObject* borrow_dlpack(PyObject* object, void* stream);  // tensor.cpp
PyObject* set_num_threads(PyObject*, PyObject* number);   // threads.cpp
PyObject* get_num_threads(PyObject*, PyObject*);

namespace {

struct NamedDtype {
  const char* name;
  DLDataType dtype;
};
constexpr NamedDtype kDtypes[] = {{"float32", {kDLFloat, 32, 1}}, {"float64", {kDLFloat, 64, 1}},
                                  {"float16", {kDLFloat, 16, 1}}, {"bfloat16", {kDLBfloat, 16, 1}},
                                  {"int8", {kDLInt, 8, 1}},       {"int16", {kDLInt, 16, 1}},
                                  {"int32", {kDLInt, 32, 1}},     {"int64", {kDLInt, 64, 1}},
                                  {"uint8", {kDLUInt, 8, 1}},     {"uint16", {kDLUInt, 16, 1}},
                                  {"uint32", {kDLUInt, 32, 1}},   {"uint64", {kDLUInt, 64, 1}},
                                  {"bool", {kDLBool, 8, 1}},      {"bool_", {kDLBool, 8, 1}},
                                  {"longlong", {kDLInt, 64, 1}},  // as NumPy calls some of its types
                                  {"ulonglong", {kDLUInt, 64, 1}}};

PyObject* exception_of(int32_t status) {
  switch (status) {
    case NW_INVALID: return PyExc_ValueError;
    case NW_UNSUPPORTED: return PyExc_NotImplementedError;
    case NW_OUT_OF_MEMORY: return PyExc_MemoryError;
    default: return PyExc_RuntimeError;
  }
}

DLDevice device_of(int type, int id) { return {static_cast<DLDeviceType>(type), id}; }

// Name of the dtype that str(object) or its `name` or `__name__` ends in: "torch.float32", "<class 'jax.numpy.float32'>".
const NamedDtype* find_dtype(PyObject* object) {
  const char* const attributes[] = {"name", "__name__", nullptr};
  for (size_t i = 0; i < 3; ++i) {
    const Ref text(PyUnicode_Check(object)    ? Ref::borrow(object).release()
                   : attributes[i] != nullptr ? PyObject_GetAttrString(object, attributes[i])
                                              : PyObject_Str(object));
    const char* name = text && PyUnicode_Check(text.get()) ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
    PyErr_Clear();
    if (name == nullptr) continue;
    if (const char* const dot = std::strrchr(name, '.')) name = dot + 1;
    for (const NamedDtype& known : kDtypes)
      if (std::strcmp(known.name, name) == 0) return &known;
  }
  return nullptr;
}

// ---- functions ----

PyObject* backend_as_dict(const nw_backend_info& b) {
  Ref ops(PyList_New(0));
  for (uint32_t i = 0; ops && i < b.num_ops; ++i) {
    Ref kernels(PyList_New(0));
    for (const char* const* k = b.ops[i]->kernels; kernels && k != nullptr && *k != nullptr; ++k) {
      const Ref name(PyUnicode_FromString(*k));
      if (!name || PyList_Append(kernels.get(), name.get()) != 0) return nullptr;
    }
    const Ref op(kernels ? Py_BuildValue("{sssO}", "name", b.ops[i]->name, "kernels", kernels.get()) : nullptr);
    if (!op || PyList_Append(ops.get(), op.get()) != 0) return nullptr;
  }
  const Ref shadowed(PyBool_FromLong(b.flags & NW_BACKEND_SHADOWED));
  return ops ? Py_BuildValue("{sssssssssssisisOsO}", "name", b.name, "version", b.version, "path", b.path, "status",
                             nw_status_name(b.status), "reason", b.reason, "device_type", b.device_type, "device_count",
                             b.device_count, "shadowed", shadowed.get(), "ops", ops.get())
             : nullptr;
}

PyObject* backends(PyObject*, PyObject*) {
  nw_runtime* const rt = runtime();
  Ref list(rt == nullptr ? nullptr : PyList_New(0));
  for (uint32_t i = 0; list && i < nw_backend_count(rt); ++i) {
    nw_backend_info b{};
    b.struct_size = sizeof b;
    nw_error error{};
    int32_t status = NW_OK;
    Py_BEGIN_ALLOW_THREADS;
    status = nw_backend(rt, i, &b, &error);
    Py_END_ALLOW_THREADS;
    if (status != NW_OK) return raise(status, error);
    const Ref dict(backend_as_dict(b));
    if (!dict || PyList_Append(list.get(), dict.get()) != 0) return nullptr;
  }
  return list.release();
}

// The names of all ops that are declared, in search order; no plugin is opened.
PyObject* declared(PyObject*, PyObject*) {
  nw_runtime* const rt = runtime();
  Ref names(rt == nullptr ? nullptr : PyList_New(0));
  for (uint32_t i = 0; names; ++i) {
    const nw_op* const op = nw_op_at(rt, i);
    if (op == nullptr) break;
    const Ref name(PyUnicode_FromString(op->name));
    if (!name || PyList_Append(names.get(), name.get()) != 0) return nullptr;
  }
  return names.release();
}

PyObject* device_info(PyObject*, PyObject* arguments) {
  int type = 0, id = 0;
  nw_runtime* const rt = PyArg_ParseTuple(arguments, "ii", &type, &id) ? runtime() : nullptr;
  if (rt == nullptr) return nullptr;
  nw_device_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  int32_t status = NW_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = nw_device(rt, device_of(type, id), &info, &error);
  Py_END_ALLOW_THREADS;
  if (status != NW_OK) return raise(status, error);
  char uuid[2 * sizeof info.uuid + 1];
  for (size_t i = 0; i < sizeof info.uuid; ++i) std::snprintf(uuid + 2 * i, 3, "%02x", info.uuid[i]);
  return Py_BuildValue("{sssssssK}", "name", info.name, "arch", info.arch, "uuid", uuid, "total_memory", info.total_memory);
}

// load(path, behind): ahead of the plugins that are present, or behind them.
PyObject* load(PyObject*, PyObject* arguments) {
  const char* path = nullptr;
  int behind = 0;
  nw_runtime* const rt = PyArg_ParseTuple(arguments, "s|p", &path, &behind) ? runtime() : nullptr;
  if (rt == nullptr) return nullptr;
  nw_error error{};
  int32_t status = NW_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = behind != 0 ? nw_load_behind(rt, path, &error) : nw_load(rt, path, &error);
  Py_END_ALLOW_THREADS;
  ++plugins_loaded;
  if (status != NW_OK) return raise(status, error);
  find_replaced();
  return Ref::borrow(Py_None).release();
}

// stream(what, device type, id, handle, other): creates, destroys, waits until all is done, or orders two.
PyObject* stream(PyObject*, PyObject* arguments) {
  const char* what = nullptr;
  int type = 0, id = 0;
  unsigned long long handle = 0, other = 0;
  if (!PyArg_ParseTuple(arguments, "sii|KK", &what, &type, &id, &handle, &other)) return nullptr;
  nw_runtime* const rt = runtime();
  if (rt == nullptr) return nullptr;
  const DLDevice device = device_of(type, id);
  void* native = pointer(handle);
  nw_error error{};
  int32_t status = NW_OK;
  Py_BEGIN_ALLOW_THREADS;
  switch (*what) {
    case 'c': status = nw_stream_create(rt, device, &native, &error); break;
    case 'd': status = nw_stream_destroy(rt, device, native, &error); break;
    case 's': status = nw_stream_sync(rt, device, native, &error); break;
    default: status = nw_stream_wait(rt, device, native, pointer(other), &error);
  }
  Py_END_ALLOW_THREADS;
  return status == NW_OK ? PyLong_FromVoidPtr(native) : raise(status, error);
}

// empty(shape, dtype, device type, id, stream's handle, the object that would destroy the stream)
PyObject* empty(PyObject*, PyObject* arguments) {
  PyObject *shape = nullptr, *dtype = nullptr, *stream_object = nullptr;
  int type = 0, id = 0;
  unsigned long long handle = 0;
  nw_spec spec{};
  if (!PyArg_ParseTuple(arguments, "O!Oii|KO", &PyTuple_Type, &shape, &dtype, &type, &id, &handle, &stream_object)) return nullptr;
  if (!parse_dtype(dtype, &spec.dtype)) return nullptr;
  const Py_ssize_t ndim = PyTuple_Size(shape);
  if (ndim > NW_MAX_NDIM) return PyErr_Format(PyExc_ValueError, "%zd dimensions; expected %d at most", ndim, NW_MAX_NDIM);
  spec.ndim = static_cast<int32_t>(ndim);
  for (int32_t i = 0; i < spec.ndim; ++i) {
    spec.shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    const bool fits = !PyErr_Occurred();
    PyErr_Clear();
    if (!fits) return PyErr_Format(PyExc_ValueError, "shape = %R; expected extents of less than 2^63", shape);
    if (spec.shape[i] < 0) return PyErr_Format(PyExc_ValueError, "shape = %R; expected extents of 0 or more", shape);
  }
  return new_tensor(spec, device_of(type, id), pointer(handle), stream_object);
}

PyObject* from_dlpack(PyObject*, PyObject* object) {
  if (!PyObject_HasAttrString(object, "__dlpack__")) {
    const Ref name(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
    const TypeRoute route = route_of(object);
    const char* const reason = route.route == Route::refused ? route.reason : "no array: it has no __dlpack__";
    return name ? PyErr_Format(PyExc_TypeError, "from_dlpack: %U is %s", name.get(), reason) : nullptr;
  }
  return borrow_dlpack(object, nullptr);
}

// What pickle and copy make an Op from.
PyObject* op_from_blob(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *blob = nullptr;
  Py_ssize_t size = 0;
  PyObject* shown = nullptr;
  if (!PyArg_ParseTuple(arguments, "sy#O", &name, &blob, &size, &shown)) return nullptr;
  const Ref made(PyObject_CallFunction(reinterpret_cast<PyObject*>(op_type), "s", name));
  if (!made) return nullptr;
  const Declaration* const d = reinterpret_cast<Op*>(made.get())->declaration;
  if (static_cast<uint64_t>(size) != d->op->params_size)
    return PyErr_Format(PyExc_ValueError, "%s: params of %zd bytes; expected %d", name, size, static_cast<int>(d->op->params_size));
  Ref op(new_op(d, reinterpret_cast<const unsigned char*>(blob)));
  return op && PyObject_SetAttrString(op.get(), "__name__", shown) == 0 ? op.release() : nullptr;
}

PyObject* abi(PyObject*, PyObject*) { return Py_BuildValue("sI", nw_version(), nw_abi_major()); }

// False of a module that some thread is still importing.
bool is_complete(PyObject* module) {
  const Ref spec(PyObject_GetAttrString(module, "__spec__"));
  const Ref initializing(spec ? PyObject_GetAttrString(spec.get(), "_initializing") : nullptr);
  PyErr_Clear();
  return !initializing || PyObject_IsTrue(initializing.get()) == 0;
}

std::atomic<bool> installed_are_loaded{false};

// The plugins that packages bring, as narrows._installed finds them. Without the lock of a static: they are loaded by Python's
// code, during which other threads run, and which comes back here.
void load_installed() {
  const Ref load_all(import_attribute("narrows._installed", "load"));
  const Ref loaded(load_all ? PyObject_CallNoArgs(load_all.get()) : nullptr);
  if (!loaded) PyErr_WriteUnraisable(nullptr);
  if (!loaded || loaded.get() == Py_True) installed_are_loaded = true;
}

}  // namespace

std::atomic<uint32_t> plugins_loaded;

nw_runtime* runtime() {
  struct Made {
    Made() { status = nw_runtime_default(&runtime, &error); }
    nw_runtime* runtime = nullptr;
    nw_error error{};
    int32_t status;
  };
  static const Made made;  // nothing of Python in there, for which a thread that waits here would have to give way
  if (made.status != NW_OK)
    raise(made.status, made.error);
  else if (!installed_are_loaded.load(std::memory_order_acquire))
    load_installed();
  return made.runtime;
}

PyObject* raise(int32_t status, const nw_error& error) {
  if (!PyErr_Occurred()) PyErr_SetString(exception_of(status), error.message);
  return nullptr;
}

PyObject* imported(const char* name) {
  PyObject* const modules = PyImport_GetModuleDict();
  return modules == nullptr ? nullptr : PyDict_GetItemString(modules, name);
}

Ref import_attribute(const char* module, const char* name) {
  PyObject* const known = imported(module);  // which takes a tenth of the time of an import that finds it
  if (known != nullptr && is_complete(known)) return Ref(PyObject_GetAttrString(known, name));
  const Ref found(PyImport_ImportModule(module));
  return Ref(found ? PyObject_GetAttrString(found.get(), name) : nullptr);
}

const char* dtype_name(DLDataType dtype) {
  for (const NamedDtype& known : kDtypes)
    if (known.dtype.code == dtype.code && known.dtype.bits == dtype.bits && dtype.lanes == 1) return known.name;
  return "";
}

std::string show_dtype(DLDataType dtype) {
  static const char* const small[] = {"float8_e3m4",     "float8_e4m3",   "float8_e4m3b11fnuz", "float8_e4m3fn",
                                      "float8_e4m3fnuz", "float8_e5m2",   "float8_e5m2fnuz",    "float8_e8m0fnu",
                                      "float6_e2m3fn",   "float6_e3m2fn", "float4_e2m1fn"};
  const std::string lanes = dtype.lanes == 1 ? "" : "x" + std::to_string(dtype.lanes);
  if (const char* const known = dtype_name(dtype); *known != '\0') return known;
  if (dtype.code == kDLComplex) return "complex" + std::to_string(dtype.bits) + lanes;
  if (dtype.code >= kDLFloat8_e3m4 && dtype.code <= kDLFloat4_e2m1fn) return small[dtype.code - kDLFloat8_e3m4] + lanes;
  return "of code " + std::to_string(dtype.code) + ", " + std::to_string(dtype.bits) + " bits" + lanes;
}

bool parse_dtype(PyObject* object, DLDataType* out) {
  const NamedDtype* const found = find_dtype(object);
  if (found == nullptr) {
    PyErr_Format(PyExc_ValueError, "dtype = %R; expected one of %s", object, kDtypesExpected);
    return false;
  }
  *out = found->dtype;
  return true;
}

static constexpr char kSetNumThreads[] =
    R"(set_num_threads(num_threads, /)
--

How many threads a call on the CPU may use, the caller's own included. Results do not depend on it.

It begins at what the process is granted when Narrows is first used, and may be set from 1 up to that. A call that runs keeps its
threads. A forked child inherits the number, and sets it for itself. A call on torch's tensors uses no more than torch.get_num_threads().
Errors: TypeError for what is no integer, such as a bool; ValueError for a number out of range.

    >>> import narrows
    >>> threads = narrows.get_num_threads()
    >>> narrows.set_num_threads(1)
    >>> narrows.get_num_threads()
    1
    >>> narrows.set_num_threads(threads)
)";
static constexpr char kGetNumThreads[] =
    R"(get_num_threads()
--

How many threads a call on the CPU may use: what set_num_threads() said last.

    >>> import narrows
    >>> narrows.get_num_threads() >= 1
    True
)";

PyMethodDef module_functions[] = {{"abi", abi, METH_NOARGS, nullptr},
                                  {"backends", backends, METH_NOARGS, nullptr},
                                  {"declared", declared, METH_NOARGS, nullptr},
                                  {"device_info", device_info, METH_VARARGS, nullptr},
                                  {"load", load, METH_VARARGS, nullptr},
                                  {"stream", stream, METH_VARARGS, nullptr},
                                  {"empty", empty, METH_VARARGS, nullptr},
                                  {"from_dlpack", from_dlpack, METH_O, nullptr},
                                  {"set_num_threads", set_num_threads, METH_O, kSetNumThreads},
                                  {"get_num_threads", get_num_threads, METH_NOARGS, kGetNumThreads},
                                  {"_op_from_blob", op_from_blob, METH_VARARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};

}  // namespace narrows::python

namespace {

// The loader gives a process one library of a name, which may have been loaded before this module.
bool has_own_library() {
  if (std::strcmp(nw_version(), NARROWS_VERSION) == 0) return true;
  Dl_info library{};
  dladdr(reinterpret_cast<const void*>(&nw_version), &library);
  PyErr_Format(PyExc_ImportError, "narrows %s: this process has libnarrows %s, %s; expected %s, the package's own", NARROWS_VERSION,
               nw_version(), library.dli_fname == nullptr ? "of an unknown file" : library.dli_fname, NARROWS_VERSION);
  return false;
}

int fill_module(PyObject* module) {
  using namespace narrows::python;
  return has_own_library() && add_op_type(module) == 0 && add_tensor_type(module) == 0 ? 0 : -1;
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill_module)},
#ifdef Py_GIL_DISABLED
                            {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
                            {0, nullptr}};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "narrows._narrows", nullptr, 0, narrows::python::module_functions, slots, nullptr, nullptr, nullptr};

}  // namespace

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the name that Python looks up
PyMODINIT_FUNC PyInit__narrows() { return PyModuleDef_Init(&definition); }
