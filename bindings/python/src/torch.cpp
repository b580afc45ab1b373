// SPDX-License-Identifier: Apache-2.0
// torch.cpp -- torch's tensors without linking torch: the gate that says whether a call may bypass torch's dispatcher, the C
// exchange API, and outputs of torch's own. docs/python.md, "The gate", says what it is for.
#include "arrays.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>

#include "bindings/torch/private_names.h"

namespace narrows::python {
namespace {

using torch::Extents;
using torch::Place;

// What is looked up in torch once; references are kept.
struct Torch : torch::PrivateNames {
  PyObject *tensor = nullptr, *parameter = nullptr;
  PyObject *dispatch_modes = nullptr, *autocast = nullptr, *grad_mode = nullptr, *forward_ad = nullptr;
  PyObject *function_modes = nullptr, *function_mode_at = nullptr, *default_device = nullptr;
  PyObject *empty_cpu = nullptr, *empty_cuda = nullptr, *empty = nullptr, *device = nullptr;
  PyObject *requires_grad = nullptr, *is_neg = nullptr, *dtype = nullptr, *current_level = nullptr, *detach = nullptr;
  PyObject* no_level = nullptr;              // Python's one object for -1
  descrgetfunc get_requires_grad = nullptr;  // what looking requires_grad up in the type comes to, each time
  bool (*grad_enabled)() = nullptr;
  uint16_t tracer_key = 0, pre_dispatch_key = 0, transforms_key = 0;
  const DLPackExchangeAPI* api = nullptr;
  bool has_gate = false;  // whether the gate's questions can be asked
  int32_t (*data_of)(void* const* tensor, void**) = nullptr;
  std::atomic<int8_t> scalar_types[8][5] = {};  // by code and bytes / 2, plus 1
  std::atomic<int> layout = 0;                  // of a tensor's object: 1 as direct() expects, -1 another, 0 not looked at yet
  std::atomic<PyObject*> dtypes[8][5] = {};     // by code and bytes / 2
};

const DLPackExchangeAPI* exchange_api(PyObject* type) {
  const Ref capsule(PyObject_GetAttrString(type, "__dlpack_c_exchange_api__"));  // torch 2.10 and later
  const auto* api = static_cast<const DLPackExchangeAPI*>(capsule && PyCapsule_IsValid(capsule.get(), "dlpack_exchange_api")
                                                              ? PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api")
                                                              : nullptr);
  PyErr_Clear();
  while (api != nullptr && api->header.version.major > 1) api = reinterpret_cast<const DLPackExchangeAPI*>(api->header.prev_api);
  return api != nullptr && api->dltensor_from_py_object_no_sync != nullptr ? api : nullptr;
}

PyObject* optional_attribute(const char* module, const char* name) {
  PyObject* const found = import_attribute(module, name).release();
  PyErr_Clear();
  return found;
}

// torch's number of a dispatch key, which differs from version to version. 0, of the key that is never included: exception set.
uint16_t dispatch_key(const char* name) {
  const Ref parse(import_attribute("torch._C", "_dispatch_key_parse"));
  const Ref key(parse ? PyObject_CallFunction(parse.get(), "s", name) : nullptr);
  const Ref number(key ? PyNumber_Long(key.get()) : nullptr);
  return number ? static_cast<uint16_t>(PyLong_AsUnsignedLong(number.get())) : uint16_t{0};
}

// Finds what the gate asks, and what is quicker than torch's documented ways: names that no version of torch promises. False: the
// gate stays closed, since NARROWS_TORCH_FAST is 0 or this torch lacks one of its names.
bool find_private_names(Torch* t) {
  if (!torch::private_names_allowed()) return false;
  static_cast<torch::PrivateNames&>(*t) = torch::private_names();
  t->dispatch_modes = import_attribute("torch._C", "_len_torch_dispatch_stack").release();
  t->function_modes = import_attribute("torch._C", "_len_torch_function_stack").release();
  t->function_mode_at = import_attribute("torch._C", "_get_function_stack_at").release();
  t->default_device = import_attribute("torch.utils._device", "DeviceContext").release();
  t->tracer_key = dispatch_key("Tracer");
  t->pre_dispatch_key = dispatch_key("PreDispatch");
  t->transforms_key = dispatch_key("FuncTorchDynamicLayerFrontMode");
  t->current_level = PyUnicode_InternFromString("_current_level");
  t->no_level = PyLong_FromLong(-1);
  const Ref forward_ad(PyImport_ImportModule("torch.autograd.forward_ad"));
  if (forward_ad) t->forward_ad = Ref::borrow(PyModule_GetDict(forward_ad.get())).release();
  const bool found = PyErr_Occurred() == nullptr;
  PyErr_Clear();
  t->autocast = optional_attribute("torch._C", "_is_any_autocast_enabled");
  t->empty_cpu = optional_attribute("torch._C._dynamo.guards", "_empty_strided_cpu");
  t->empty_cuda = optional_attribute("torch._C._dynamo.guards", "_empty_strided_cuda");
  return found;
}

Torch* load() {
  auto t = std::make_unique<Torch>();
  t->tensor = import_attribute("torch", "Tensor").release();
  t->parameter = import_attribute("torch.nn", "Parameter").release();
  t->grad_mode = import_attribute("torch", "is_grad_enabled").release();
  t->empty = import_attribute("torch", "empty").release();
  t->device = import_attribute("torch", "device").release();
  t->requires_grad = t->tensor == nullptr ? nullptr : PyObject_GetAttrString(t->tensor, "requires_grad");
  t->is_neg = PyUnicode_InternFromString("is_neg");
  t->dtype = PyUnicode_InternFromString("dtype");
  t->detach = PyUnicode_InternFromString("detach");
  if (PyErr_Occurred() || t->requires_grad == nullptr) return nullptr;
  t->get_requires_grad = reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(t->requires_grad), Py_tp_descr_get));
  if (t->get_requires_grad == nullptr)
    return PyErr_SetString(PyExc_RuntimeError, "torch.Tensor.requires_grad is no descriptor"), nullptr;
  if (void* const library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY)) {
    t->grad_enabled = reinterpret_cast<bool (*)()>(dlsym(library, "aoti_torch_grad_mode_is_enabled"));
    t->data_of = reinterpret_cast<int32_t (*)(void* const*, void**)>(dlsym(library, "aoti_torch_get_data_ptr"));
  }
  t->api = exchange_api(t->tensor);
  t->has_gate = find_private_names(t.get());
  return t.release();
}

std::atomic<Torch*> loaded;
// NULL: exception set.
Torch* torch() {
  Torch* t = loaded.load(std::memory_order_acquire);
  if (t != nullptr) return t;
  t = load();
  if (t != nullptr) loaded.store(t, std::memory_order_release);
  return t;
}

// t.layout by the first tensor that comes: what direct() finds has to be its _cdata.
[[gnu::noinline]] int find_layout(Torch& t, PyObject* object, const void* found) {
  const Ref implementation(PyObject_GetAttrString(object, "_cdata"));
  const bool same = implementation && PyLong_AsVoidPtr(implementation.get()) == found;
  PyErr_Clear();
  const int layout = same && (t.to_dlpack != nullptr || t.to_dlpack_with != nullptr) && t.impl_requires_grad != nullptr ? 1 : -1;
  t.layout.store(layout, std::memory_order_relaxed);
  return layout;
}

// The at::Tensor of a Python object: a pointer to its implementation, which stands right behind the object's header in torch 2.11
// and later. nullptr: torch's own getters are asked.
inline void* const* direct(Torch& t, PyObject* object) {
  void* const* const tensor = reinterpret_cast<void* const*>(object + 1);
  int layout = t.layout.load(std::memory_order_relaxed);
  if (layout < 0 || *tensor == nullptr) return nullptr;
  if (layout == 0) layout = find_layout(t, object, *tensor);
  return layout > 0 ? tensor : nullptr;
}

std::string without_trace(const std::string& words) { return words.substr(0, words.find("\nException raised from")); }

// What the exchange API's function does, without its detour by reference counts. False: exception set, such as for a sparse tensor.
bool to_dltensor(Torch& t, PyObject* object, DLTensor* out) {
  void* const* const tensor = direct(t, object);
  if (tensor == nullptr) return t.api->dltensor_from_py_object_no_sync(object, out) == 0;
  try {
    t.to_dlpack != nullptr ? t.to_dlpack(tensor, out) : t.to_dlpack_with(tensor, out, false);
    return true;
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_BufferError, without_trace(error.what()).c_str());
    return false;
  }
}

PyObject* torch_dtype(Torch& t, DLDataType dtype) {
  std::atomic<PyObject*>& known = t.dtypes[dtype.code & 7][dtype.bits / 16];
  PyObject* found = known.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  found = import_attribute("torch", dtype_name(dtype)).release();
  known.store(found, std::memory_order_release);
  return found;
}

// Torch's integers of 1 to 7 bits are exported as those of 8. False: it is one of those, or an exception is set.
bool has_exported_dtype(Torch& t, PyObject* object, DLDataType exported) {
  if (exported.bits != 8 || (exported.code != kDLInt && exported.code != kDLUInt)) return true;
  const Ref dtype(PyObject_GetAttr(object, t.dtype));
  return dtype && dtype.get() == torch_dtype(t, exported);
}

bool read_dltensor(Torch& t, PyObject* object, DLTensor* out) {
  return to_dltensor(t, object, out) && has_exported_dtype(t, object, out->dtype);
}

// Calls a function without arguments that gives a number or bool; -1: exception set.
long number(PyObject* function) {
  const Ref result(PyObject_CallNoArgs(function));
  return result ? PyLong_AsLong(result.get()) : -1;
}

// Of modes of torch functions, only a default device, which concerns no op. -1: exception set.
int only_default_device(const Torch& t) {
  const int64_t count = t.function_mode_count != nullptr ? t.function_mode_count() : number(t.function_modes);
  for (int64_t i = 0; i < count; ++i) {
    const Ref index(PyLong_FromLongLong(i));
    const Ref mode(index ? PyObject_CallFunctionObjArgs(t.function_mode_at, index.get(), nullptr) : nullptr);
    if (!mode) return -1;
    if (reinterpret_cast<PyObject*>(Py_TYPE(mode.get())) != t.default_device) return 0;
  }
  return count < 0 ? -1 : 1;
}

// Neither a mode of torch functions, nor torch.jit.trace, nor a trace ahead of the dispatcher is on. -1: exception set.
int no_function_is_traced(const Torch& t) {
  if (t.function_mode == nullptr || t.key_included == nullptr) return 0;
  if (t.key_included(t.tracer_key) || t.key_included(t.pre_dispatch_key)) return 0;
  return t.function_mode() ? only_default_device(t) : 1;
}

// Nobody who sees what torch's dispatcher does looks on, nor is forward-mode differentiation, or autocast for an op that heeds it,
// on.
int nothing_is_traced(const Torch& t, bool autocast) {
  const int64_t modes = t.mode_count != nullptr ? t.mode_count() : number(t.dispatch_modes);
  if (modes != 0) return modes < 0 ? -1 : 0;
  if (const int free = no_function_is_traced(t); free <= 0) return free;
  PyObject* const level = PyDict_GetItemWithError(t.forward_ad, t.current_level);
  if (level == nullptr || (level != t.no_level && PyLong_AsLong(level) >= 0)) return PyErr_Occurred() ? -1 : 0;
  if (!autocast) return 1;
  if (t.autocast == nullptr) return 0;
  const long enabled = number(t.autocast);
  return enabled < 0 ? -1 : enabled == 0;
}

int requires_grad(Torch& t, PyObject* object) {
  if (void* const* const tensor = direct(t, object)) return t.impl_requires_grad(*tensor);
  const Ref flag(t.get_requires_grad(t.requires_grad, object, reinterpret_cast<PyObject*>(Py_TYPE(object))));
  return flag ? flag.get() == Py_True : -1;
}

// The mode is asked for last: as a rule no tensor requires a gradient.
int needs_grad(Torch& t, PyObject* const* objects, const Route* routes, uint32_t count) {
  int needed = 0;
  for (uint32_t i = 0; i < count && needed == 0; ++i)
    if (routes[i] == Route::torch) needed = requires_grad(t, objects[i]);
  if (needed <= 0) return needed;
  return static_cast<int>(t.grad_enabled != nullptr ? t.grad_enabled() : number(t.grad_mode));
}

// Whether the values are others than those in memory: -1 exception set. Strides do not tell: as_strided gives such a view any.
int is_negated(Torch& t, PyObject* object) {
  void* const* const tensor = t.lazily_negated == nullptr ? nullptr : direct(t, object);
  if (tensor != nullptr) return t.lazily_negated(tensor);
  const Ref negative(PyObject_CallMethodObjArgs(object, t.is_neg, nullptr));
  return negative ? negative.get() == Py_True : -1;
}

// Some versions of torch refuse what they cannot export, sparse tensors for one, by a RuntimeError, where DLPack asks for a
// BufferError. False.
bool refuse_as_buffer() {
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return false;
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Ref text(value != nullptr ? PyObject_Str(value) : nullptr);
  const char* const words = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  PyErr_SetString(PyExc_BufferError, words != nullptr ? without_trace(words).c_str() : "torch does not export it");
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return false;
}

// A tensor could not be read: for its dtype, if no op has that, else for what torch says. False.
bool refuse_export(Torch& t, PyObject* object) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  DLDataType parsed{};
  const Ref dtype(PyObject_GetAttr(object, t.dtype));
  const bool known = dtype && parse_dtype(dtype.get(), &parsed);
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  if (known || !dtype) return refuse_as_buffer();
  PyErr_Clear();
  PyErr_Format(PyExc_BufferError, "it has dtype %S; expected %s", dtype.get(), kDtypesExpected);
  return false;
}

int is_plain(Torch& t, PyObject* object, const DLTensor& x) {
  if (x.data == nullptr) {  // a fake tensor or a functional wrapper, unless there is nothing to point to
    for (int32_t i = 0; i < x.ndim; ++i)
      if (x.shape[i] == 0) return 1;
    return 0;
  }
  if (x.dtype.code == kDLComplex) return 0;  // may conjugate lazily too
  const int negated = is_negated(t, object);
  return negated < 0 ? -1 : 1 - negated;
}

}  // namespace

Route torch_route(PyTypeObject* type) {
  if (imported("torch") == nullptr) return Route::none;
  Torch* const t = torch();
  PyErr_Clear();  // torch that is still being imported
  if (t == nullptr) return Route::none;
  auto* const object = reinterpret_cast<PyObject*>(type);
  if (object == t->tensor || object == t->parameter) return Route::torch;
  return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(t->tensor)) ? Route::torch_other : Route::none;
}

int torch_gate(PyObject* const* objects, const Route* routes, Array* arrays, uint32_t count, bool autocast) {
  Torch* const t = torch();
  if (t == nullptr) return -1;
  if (!t->has_gate || t->api == nullptr) return 0;
  const int free = nothing_is_traced(*t, autocast);
  if (free <= 0) return free;
  const int grad = needs_grad(*t, objects, routes, count);
  if (grad < 0) return -1;
  for (uint32_t i = 0; i < count; ++i) {
    if (routes[i] != Route::torch) continue;
    DLTensor x;
    if (!read_dltensor(*t, objects[i], &x)) {
      PyErr_Clear();
      return 0;
    }
    const int plain = is_plain(*t, objects[i], x);
    if (plain <= 0) return plain;
    if (!arrays[i].assign(x)) return -1;
  }
  return grad != 0 ? 2 : 1;
}

int torch_needs_grad(PyObject* const* objects, const Route* routes, uint32_t count) {
  Torch* const t = torch();
  const int plain = t == nullptr ? -1 : needs_grad(*t, objects, routes, count);
  if (plain != 0) return plain;
  const long grad_mode = t->grad_enabled != nullptr ? t->grad_enabled() : number(t->grad_mode);
  for (uint32_t i = 0; grad_mode > 0 && i < count; ++i) {
    const Ref flag(routes[i] == Route::torch_other ? PyObject_GetAttrString(objects[i], "requires_grad") : nullptr);
    if (PyErr_Occurred()) return -1;
    if (flag.get() == Py_True) return 1;
  }
  return static_cast<int>(std::min(grad_mode, 0L));
}

bool torch_transforms() {
  const Torch* const t = loaded.load(std::memory_order_acquire);
  return t == nullptr || t->key_included == nullptr || t->key_included(t->transforms_key);
}

int torch_is_negated(PyObject* object) {
  Torch* const t = torch();
  if (t == nullptr) return -1;
  if (torch_route(Py_TYPE(object)) == Route::torch) return is_negated(*t, object);
  const Ref negative(PyObject_HasAttrString(object, "is_neg") ? PyObject_CallMethod(object, "is_neg", nullptr) : nullptr);
  return PyErr_Occurred() ? -1 : negative.get() == Py_True;
}

bool torch_is_symbol(PyObject* object) {
  if (PyLong_Check(object) || PyFloat_Check(object) || PyUnicode_Check(object) || imported("torch") == nullptr) return false;
  for (const char* const name : {"SymInt", "SymFloat"}) {
    const Ref type(import_attribute("torch", name));
    PyErr_Clear();  // torch that is still being imported
    if (type && reinterpret_cast<PyObject*>(Py_TYPE(object)) == type.get()) return true;
  }
  return false;
}

bool torch_may_be_written(PyObject* object, const char* op) {
  Torch* const t = torch();
  if (t == nullptr) return false;
  void* const* const tensor = t->is_inference == nullptr || t->inference_mode == nullptr ? nullptr : direct(*t, object);
  bool refused = false;
  if (tensor != nullptr) {
    refused = t->is_inference(tensor) && !t->inference_mode();
  } else {
    const Ref inference(PyObject_CallMethod(object, "is_inference", nullptr));
    const Ref mode(import_attribute("torch", "is_inference_mode_enabled"));
    const Ref enabled(mode ? PyObject_CallNoArgs(mode.get()) : nullptr);
    if (!inference || !enabled) return false;
    refused = inference.get() == Py_True && enabled.get() != Py_True;
  }
  if (refused)
    PyErr_Format(PyExc_RuntimeError, "%s: out is an inference tensor outside torch.inference_mode(); expected another", op);
  return !refused;
}

bool torch_was_written(PyObject* object) {
  Torch* const t = torch();
  if (t == nullptr) return false;
  void* const* const tensor = t->bump_version == nullptr ? nullptr : direct(*t, object);
  if (tensor == nullptr) {
    const Ref function(import_attribute("torch.autograd.graph", "increment_version"));
    return static_cast<bool>(Ref(function ? PyObject_CallFunctionObjArgs(function.get(), object, nullptr) : nullptr));
  }
  try {
    t->bump_version(tensor);
    return true;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return false;
  }
}

bool read_torch(PyObject* object, Array* out) {
  Torch* const t = torch();
  if (t == nullptr) return false;
  DLTensor x;
  if (torch_route(Py_TYPE(object)) == Route::none)  // routed as torch's, but a stand-in of torch.fx
    return PyErr_Format(PyExc_TypeError, "%R stands for a tensor while torch.fx traces; expected an array", object) != nullptr;
  if (t->api != nullptr) return (read_dltensor(*t, object, &x) && out->assign(x)) || refuse_export(*t, object);
  const Ref detached(PyObject_CallMethodObjArgs(object, t->detach, nullptr));
  const bool done = detached && out->read(detached.get(), {Route::dlpack, nullptr}, nullptr);
  return (done && has_exported_dtype(*t, object, out->tensor.dtype)) || refuse_export(*t, object);
}

bool read_new_torch(PyObject* object, const nw_spec& spec, DLDevice device, Array* out) {
  Torch* const t = torch();
  const bool here = device.device_type == kDLCPU || device.device_type == kDLCUDA;  // of pinned memory outputs are elsewhere
  void* const* const tensor = !here || t == nullptr || t->data_of == nullptr ? nullptr : direct(*t, object);
  void* data = nullptr;
  if (tensor == nullptr || t->data_of(tensor, &data) != 0) {
    if (!read_torch(object, out)) return false;
    data = static_cast<char*>(out->tensor.data) + out->tensor.byte_offset, device = out->tensor.device;
  }
  out->assign(spec, data, device);
  return true;
}

bool torch_stream(DLDevice device, void** stream) {
  Torch* const t = torch();
  if (t == nullptr) return false;
  if (t->api != nullptr)
    return t->api->current_work_stream(static_cast<DLDeviceType>(device.device_type), device.device_id, stream) == 0;
  const Ref function(import_attribute("torch.cuda", "current_stream"));
  const Ref current(function ? PyObject_CallFunction(function.get(), "i", device.device_id) : nullptr);
  const Ref handle(current ? PyObject_GetAttrString(current.get(), "cuda_stream") : nullptr);
  if (handle) *stream = PyLong_AsVoidPtr(handle.get());
  return !PyErr_Occurred();
}

namespace {

// torch's number of a dtype; -1: not known.
int8_t scalar_type(Torch& t, DLDataType dtype) {
  std::atomic<int8_t>& known = t.scalar_types[dtype.code & 7][dtype.bits / 16];
  int8_t found = known.load(std::memory_order_relaxed);
  if (found == 0) {
    void* const library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
    const std::string name = std::string("aoti_torch_dtype_") + dtype_name(dtype);
    auto* const number = reinterpret_cast<int32_t (*)()>(library == nullptr ? nullptr : dlsym(library, name.c_str()));
    found = static_cast<int8_t>(number == nullptr ? -1 : number() + 1);
    known.store(found, std::memory_order_relaxed);
  }
  return static_cast<int8_t>(found < 0 ? found : found - 1);
}

// What empty_cpu and empty_cuda do, without tuples and a call of Python's. NULL, without an exception: these have to be asked.
PyObject* new_tensor_of_torch(Torch& t, const OutputSpec& output, DLDevice device) {
  const nw_spec& spec = output.spec;
  const bool on_cpu = device.device_type == kDLCPU;
  if (t.wrap == nullptr || (on_cpu ? t.new_on_cpu == nullptr : device.device_type != kDLCUDA || t.new_on_gpu == nullptr))
    return nullptr;
  const int8_t dtype = scalar_type(t, spec.dtype);
  if (dtype < 0) return nullptr;
  const auto ndim = static_cast<size_t>(spec.ndim);
  const Extents shape{spec.shape, ndim}, steps{output.steps, ndim};
  constexpr int8_t kCuda = 1;  // c10::DeviceType
  try {
    auto* const made = static_cast<PyObject*>(
        t.wrap(on_cpu ? t.new_on_cpu(shape, steps, dtype, false)
                      : t.new_on_gpu(shape, steps, dtype, Place{kCuda, static_cast<int8_t>(device.device_id)})));
    if (made == nullptr) PyErr_Clear();
    return made;
  } catch (const std::exception&) {  // such as out of memory: it is tried again, and raised as torch does
    PyErr_Clear();
    return nullptr;
  }
}

// torch's shortest way to a new tensor on that device; NULL: there is none.
PyObject* quick_empty(const Torch& t, DLDevice device) {
  if (device.device_type == kDLCPU) return t.empty_cpu;
  if (device.device_type != kDLCUDA || t.current_gpu == nullptr) return nullptr;
  // Asked for once there is a tensor on a GPU, not before: it starts CUDA.
  static const bool one_gpu = t.gpu_count != nullptr && t.gpu_count() == 1;  // which then is the current one
  if (one_gpu) return t.empty_cuda;
  int8_t current = -1;
  return t.current_gpu(&current) == 0 && current == device.device_id ? t.empty_cuda : nullptr;
}

}  // namespace

PyObject* torch_empty_arguments(const OutputSpec& output) {
  Torch* const t = torch();
  PyObject* const dtype = t == nullptr ? nullptr : torch_dtype(*t, output.spec.dtype);
  return dtype == nullptr ? nullptr : PyTuple_Pack(3, output.shape.get(), output.strides.get(), dtype);
}

PyObject* torch_empty(const OutputSpec& output, DLDevice device) {
  Torch* const t = torch();
  if (t == nullptr) return nullptr;
  if (PyObject* const made = output.torch_arguments ? new_tensor_of_torch(*t, output, device) : nullptr) return made;
  PyObject* const quick = output.torch_arguments ? quick_empty(*t, device) : nullptr;
  if (quick != nullptr) return PyObject_CallObject(quick, output.torch_arguments.get());
  PyObject* const dtype = torch_dtype(*t, output.spec.dtype);
  if (dtype == nullptr) return nullptr;
  const char* const type = device.device_type == kDLCPU ? "cpu" : "cuda";  // torch names ROCm's devices so too
  const Ref where(PyObject_CallFunction(t->device, "si", type, device.device_id));
  const Ref keywords(where ? Py_BuildValue("{sOsO}", "dtype", dtype, "device", where.get()) : nullptr);
  const Ref arguments(PyTuple_Pack(1, output.shape.get()));
  return keywords && arguments ? PyObject_Call(t->empty, arguments.get(), keywords.get()) : nullptr;
}

}  // namespace narrows::python
