// SPDX-License-Identifier: Apache-2.0
// call.cpp -- see call.h.
#include "bindings/torch/call.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "bindings/torch/schema.h"
#include "core/label.h"
#include "core/near.h"

namespace narrows::torch {
namespace {

std::atomic<nw_runtime*> current_runtime;

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

void store(const nw_param& f, unsigned char* to, int64_t integer, double real) {
  const auto single = static_cast<float>(real);
  const void* const value = f.dtype.code != kDLFloat ? static_cast<const void*>(&integer)
                            : f.dtype.bits == 32     ? static_cast<const void*>(&single)
                                                     : &real;
  std::memcpy(to, value, f.dtype.bits / 8);  // the blob is little-endian, as every host of Narrows is
}

bool fits(DLDataType dtype, int64_t value) {
  if (dtype.code == kDLUInt) return value >= 0 && (dtype.bits == 64 || value < int64_t{1} << dtype.bits);
  return dtype.bits == 64 || (value >= -(int64_t{1} << (dtype.bits - 1)) && value < int64_t{1} << (dtype.bits - 1));
}

double as_real(Value value) {
  double real = 0;
  std::memcpy(&real, &value, sizeof real);
  return real;
}

}  // namespace

nw_runtime* runtime() { return current_runtime.load(std::memory_order_acquire); }
void set_runtime(nw_runtime* rt) { current_runtime.store(rt, std::memory_order_release); }

void raise(int32_t status, const std::string& message) {
  if (status == NW_INVALID) throw std::invalid_argument(message);
  if (status == NW_OUT_OF_MEMORY) throw OutOfMemory(message);
  throw std::runtime_error(message);
}

Entry::Entry(const nw_op* declared, bool backward)
    : op(declared), name(torch_name(declared->name)), initial(declared->params_size), masked(is_masked(*declared)),
      is_backward(backward || masked), required(required_outputs(*declared)), all((uint64_t{1} << declared->num_outputs) - 1) {
  for (uint32_t i = 0; i < op->max_inputs; ++i) optional_inputs.push_back(may_be_absent(op->inputs[i]));
  for (const nw_param* const* f = op->params; f != nullptr && *f != nullptr; ++f) {
    fields.push_back(*f);
    for (int lane = 0; lane < (*f)->dtype.lanes; ++lane)
      store(**f, initial.data() + (*f)->offset + lane * ((*f)->dtype.bits / 8), static_cast<int64_t>((*f)->initial), (*f)->initial);
  }
}

Call::Call(const Entry& entry, const Shim& shim) : entry_(entry), shim_(shim) {
  const size_t size = entry.initial.size();
  if (size > sizeof small_)
    large_ = entry.initial, blob_ = large_.data();
  else if (size != 0)
    std::memcpy(small_, entry.initial.data(), size);
}

Call::~Call() {
  for (Handle tensor : tensors_)
    if (tensor != nullptr) shim_.aoti_torch_delete_tensor_object(tensor);
}

void Call::refuse(const std::string& what) {
  if (refusal_.empty()) refusal_ = std::string(entry_.op->name) + ": " + what;
}

std::string Call::name_of(uint32_t input) const {
  std::string name = entry_.op->inputs[input];
  if (may_be_absent(name)) name.pop_back();
  return name;
}

Value Call::unboxed(Value value) {
  auto* const box = reinterpret_cast<Value*>(value);
  const Value held = *box;
  if (shim_.torch_delete_stable_ivalue != nullptr)
    shim_.torch_delete_stable_ivalue(box);
  else
    delete box;  // as torch made it by new
  return held;
}

// ---- inputs ----

void Call::take_input(uint32_t i, Handle tensor) {
  tensors_[i] = tensor;
  bool defined = tensor != nullptr;
  if (defined && entry_.optional_inputs[i]) shim_.aoti_torch_is_defined(tensor, &defined);  // the gradient that is none
  if (defined) read(i);
}

void Call::read(uint32_t i) {
  const Handle tensor = tensors_[i];
  DLTensor& to = read_[i];
  int64_t ndim = 0;
  int32_t dtype = -1, device_type = -1, index = 0;
  const void* data = nullptr;
  int32_t failed = shim_.aoti_torch_get_dim(tensor, &ndim) | shim_.aoti_torch_get_sizes(tensor, &to.shape);
  failed |= shim_.aoti_torch_get_strides(tensor, &to.strides) | shim_.aoti_torch_get_dtype(tensor, &dtype);
  failed |= shim_.aoti_torch_get_device_type(tensor, &device_type) | shim_.aoti_torch_get_device_index(tensor, &index);
  if (failed == 0) failed = shim_.torch_get_const_data_ptr(tensor, &data);
  if (failed != 0) return refuse(name_of(i) + " is a tensor without memory and strides; expected a dense one");
  to.data = const_cast<void*>(data), to.byte_offset = 0, to.ndim = static_cast<int32_t>(ndim);
  to.dtype = dtype >= 0 && dtype < 64 ? shim_.dtypes[dtype] : DLDataType{255, 0, 0};
  if (to.dtype.code == 255)
    return refuse(name_of(i) + " has torch dtype " + std::to_string(dtype) +
                  ", which Narrows does not have; expected float16, bfloat16, float32, float64, an integer or bool");
  if (device_type == shim_.cpu) {
    to.device = {kDLCPU, 0};
  } else if (device_type == shim_.cuda) {
    void* stream = nullptr;
    if (!find_stream(index, &to.device, &stream))
      return refuse(name_of(i) + " is on GPU " + std::to_string(index) + ", and torch gives no stream for it");
  } else {
    return refuse(name_of(i) + " is on a device of torch type " + std::to_string(device_type) + "; expected the CPU or a GPU");
  }
  pointers_[i] = &to;
}

// Outputs go where the first input is.
void Call::find_device() {
  uint32_t lead = 0;
  while (lead < entry_.op->max_inputs && pointers_[lead] == nullptr) ++lead;
  device_type_ = shim_.cpu;
  if (lead == entry_.op->max_inputs || read_[lead].device.device_type == kDLCPU) return;
  device_type_ = shim_.cuda, device_index_ = read_[lead].device.device_id;
  find_stream(device_index_, &device_, &stream_);
}

// ---- params ----

void Call::take_param(const nw_param& field, Value value) {
  if (field.values != nullptr) return take_name(field, value);
  if (is_optional(field)) {
    if (value == 0) return;
    value = unboxed(value);
  }
  if (field.dtype.lanes > 1) return take_list(field, value);
  take_number(field, value);
}

void Call::take_number(const nw_param& field, Value value, unsigned lane) {
  unsigned char* const to = blob_ + field.offset + lane * (field.dtype.bits / 8U);
  if (field.dtype.code == kDLBool) return store(field, to, (value & 255) != 0, 0);
  const auto integer = static_cast<int64_t>(value);
  if (field.dtype.code != kDLFloat && !fits(field.dtype, integer))
    return refuse(std::string(field.name) + " = " + std::to_string(integer) + "; expected an integer of " +
                  std::to_string(field.dtype.bits) + " bits" + (field.dtype.code == kDLUInt ? ", 0 or more" : ""));
  store(field, to, integer, field.dtype.code == kDLFloat ? as_real(value) : 0);
}

void Call::take_list(const nw_param& field, Value value) {
  const auto list = reinterpret_cast<Handle>(value);
  size_t size = 0;
  shim_.torch_list_size(list, &size);
  if (size != field.dtype.lanes)
    refuse(std::string(field.name) + " has " + std::to_string(size) + " numbers; expected " + std::to_string(field.dtype.lanes));
  for (size_t lane = 0; lane < size && size == field.dtype.lanes; ++lane) {
    Value element = 0;
    shim_.torch_list_get_item(list, lane, &element);
    take_number(field, element, static_cast<unsigned>(lane));
  }
  shim_.torch_delete_list(list);
}

// By name; "" stands for the declared value.
void Call::take_name(const nw_param& field, Value value) {
  const auto string = reinterpret_cast<Handle>(value);
  const char* text = "";
  shim_.torch_string_c_str(string, &text);
  int64_t number = 0;
  while (*text != '\0' && field.values[number] != nullptr && std::strcmp(field.values[number], text) != 0) ++number;
  if (*text != '\0' && field.values[number] != nullptr) {
    store(field, blob_ + field.offset, number, 0);
  } else if (*text != '\0') {
    std::string list;
    std::vector<std::string> known;
    for (const char* const* v = field.values; *v != nullptr; ++v) {
      if (**v == '\0') continue;
      known.emplace_back(*v);
      list += (list.empty() ? "'" : ", '") + known.back() + "'";
    }
    refuse(std::string(field.name) + " = '" + text + "'; expected one of " + list + did_you_mean(text, known));
  }
  shim_.torch_delete_string(string);
}

// ---- the call ----

// Which function it is: "narrows::elementwise(mul)". torch's dispatcher has shown the op already.
void Call::show(Record& record) const {
  const std::string label = label_of(*entry_.op, blob_, entry_.initial.size()), name = entry_.op->name;
  if (label != name) record.begin(("narrows::" + entry_.name + label.substr(name.size())).c_str());
}

void Call::run() {
  wanted_ = (wanted_ | entry_.required) & entry_.all;
  find_device();
  if (!refusal_.empty()) raise(NW_INVALID, refusal_);
  Record record;
  if (is_recorded()) show(record);
  nw_error error{};
  int32_t status = attempt(&error);
  // Autograd makes gradients of any strides, which nobody chose and not every kernel takes.
  if (status == NW_UNSUPPORTED && entry_.is_backward && make_contiguous()) status = attempt(&error);
  if (status != NW_OK) raise(status, error.message);
}

int32_t Call::attempt(nw_error* error) {
  const nw_op& op = *entry_.op;
  nw_call call{};
  call.struct_size = sizeof call;
  call.num_inputs = op.max_inputs;
  call.num_outputs = op.num_outputs;
  call.op = op.name;
  call.inputs = pointers_;
  call.outputs = pointers_ + op.max_inputs;
  call.params = entry_.initial.empty() ? nullptr : blob_;
  call.params_size = entry_.initial.size();
  call.stream = stream_;
  if (uint32_t threads = 0; device_.device_type == kDLCPU && shim_.torch_get_num_threads(&threads) == 0) call.max_threads = threads;
  nw_spec specs[NW_MAX_TENSORS];
  if (const int32_t status = nw_infer(runtime_, &call, specs, op.num_outputs, error); status != NW_OK) return status;
  for (uint32_t j = 0; j < op.num_outputs; ++j)
    if ((wanted_ >> j & 1) != 0 && specs[j].ndim >= 0 && pointers_[op.max_inputs + j] == nullptr) allocate(j, specs[j]);
  return device_.device_type == kDLCPU ? nw_run(runtime_, &call, error) : launch_on_gpu(call, error);
}

// The workspace is torch's memory: its allocator orders it by the stream, also while that is captured.
int32_t Call::launch_on_gpu(nw_call& call, nw_error* error) {
  nw_plan* plan = nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  int32_t status = nw_plan_get(runtime_, &call, &plan, &info, error);
  if (status != NW_OK) return status;
  Handle workspace = nullptr;
  if (info.workspace_size != 0) {
    const nw_spec bytes{{kDLUInt, 8, 1}, 1, {static_cast<int64_t>(info.workspace_size)}};
    workspace = empty(bytes, shim_.aoti_torch_dtype_uint8());
    if (workspace != nullptr) shim_.aoti_torch_get_data_ptr(workspace, &call.workspace);
    call.workspace_size = info.workspace_size;
  }
  if (info.workspace_size == 0 || call.workspace != nullptr) {
    status = nw_launch(plan, &call, error);
  } else {
    status = error->status = NW_OUT_OF_MEMORY;
    std::snprintf(error->message, sizeof error->message, "%s: torch has no %llu bytes for a workspace", entry_.op->name,
                  static_cast<unsigned long long>(info.workspace_size));
  }
  if (workspace != nullptr) shim_.aoti_torch_delete_tensor_object(workspace);
  nw_plan_release(plan);
  return status;
}

Handle Call::empty(const nw_spec& spec, int32_t dtype) {
  int64_t strides[NW_MAX_NDIM];
  int64_t next = 1;
  for (int32_t d = spec.ndim - 1; d >= 0; --d) strides[d] = next, next *= spec.shape[d] > 1 ? spec.shape[d] : 1;
  Handle made = nullptr;
  const int32_t failed = shim_.aoti_torch_empty_strided(spec.ndim, spec.shape, strides, dtype, device_type_, device_index_, &made);
  return failed == 0 ? made : nullptr;
}

void Call::allocate(uint32_t j, const nw_spec& spec) {
  const uint32_t at = entry_.op->max_inputs + j;
  tensors_[at] = empty(spec, shim_.dtype_number(spec.dtype));
  if (tensors_[at] == nullptr)
    raise(NW_OUT_OF_MEMORY, std::string(entry_.op->name) + ": torch allocates no memory for " + entry_.op->outputs[j]);
  DLTensor& output = read_[at];
  shim_.aoti_torch_get_data_ptr(tensors_[at], &output.data);
  shim_.aoti_torch_get_sizes(tensors_[at], &output.shape);
  shim_.aoti_torch_get_strides(tensors_[at], &output.strides);
  output.device = device_, output.ndim = spec.ndim, output.dtype = spec.dtype, output.byte_offset = 0;
  pointers_[at] = &output;
}

// Copies the inputs that are not. False: there is none.
bool Call::make_contiguous() {
  bool any = false;
  for (uint32_t i = 0; i < entry_.op->max_inputs; ++i) {
    bool contiguous = true;
    if (pointers_[i] != nullptr) shim_.aoti_torch_is_contiguous(tensors_[i], &contiguous);
    if (contiguous) continue;
    nw_spec spec{read_[i].dtype, read_[i].ndim, {}};
    std::memcpy(spec.shape, read_[i].shape, static_cast<size_t>(spec.ndim) * sizeof(int64_t));
    const Handle copy = empty(spec, shim_.dtype_number(spec.dtype));
    if (copy == nullptr || shim_.aoti_torch_copy_(copy, tensors_[i], 0) != 0)
      raise(NW_OUT_OF_MEMORY, std::string(entry_.op->name) + ": torch makes no contiguous copy of " + name_of(i));
    shim_.aoti_torch_delete_tensor_object(tensors_[i]);
    tensors_[i] = copy;
    read(i);
    any = true;
  }
  return any;
}

Handle Call::give(uint32_t output) { return std::exchange(tensors_[entry_.op->max_inputs + output], nullptr); }

Handle Call::give_list() {
  Handle list = nullptr;
  if (shim_.torch_new_list_reserve_size(entry_.op->num_outputs, &list) != 0)
    raise(NW_OUT_OF_MEMORY, std::string(entry_.op->name) + ": torch makes no list");
  for (uint32_t j = 0; j < entry_.op->num_outputs; ++j)
    if (const Handle tensor = give(j)) shim_.torch_list_push_back(list, reinterpret_cast<Value>(tensor));
  return list;
}

}  // namespace narrows::torch
