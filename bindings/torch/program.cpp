// SPDX-License-Identifier: Apache-2.0
// program.cpp -- the op that every tensor program is called by: narrows::program takes what docs/programs.md, "In saved models",
// has. A process that does not have the program loads it.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/saved_program.h"
#include "bindings/torch/kernel.h"

namespace narrows::torch {

const char* const kProgramSchema =
    "program(Tensor[] tensors, str program, *, SymInt[] integers=[], float[] reals=[], int present=-1, int wanted=-1) -> Tensor[]";

namespace {

// A list of torch's, which is deleted with it. Elements that are tensors belong to whoever takes them.
std::vector<Value> take_list(const Shim& shim, Value value) {
  const auto list = reinterpret_cast<Handle>(value);
  size_t size = 0;
  shim.torch_list_size(list, &size);
  std::vector<Value> out(size);
  for (size_t i = 0; i < size; ++i) shim.torch_list_get_item(list, i, &out[i]);
  shim.torch_delete_list(list);
  return out;
}

std::string take_string(const Shim& shim, Value value) {
  const auto string = reinterpret_cast<Handle>(value);
  const char* text = "";
  size_t size = 0;
  std::string out;
  if (shim.torch_string_c_str(string, &text) == 0 && shim.torch_string_length(string, &size) == 0) out.assign(text, size);
  shim.torch_delete_string(string);
  return out;
}

// The arguments of a call, taken from torch's stack.
struct Arguments {
  Arguments(const Shim& torch, const Value* stack)
      : shim(torch), tensors(take_list(torch, stack[0])), program(take_string(torch, stack[1])),
        integers(take_list(torch, stack[2])), reals(take_list(torch, stack[3])), present(stack[4]), wanted(stack[5]) {}
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  ~Arguments() {
    for (const Value tensor : tensors)
      if (tensor != 0) shim.aoti_torch_delete_tensor_object(reinterpret_cast<Handle>(tensor));
  }

  const Shim& shim;
  std::vector<Value> tensors;  // owned; 0 where a call has taken one
  std::string program;
  std::vector<Value> integers, reals;
  uint64_t present, wanted;
};

const nw_op* load_program(const std::string& text) {
  nw_error error{};
  const nw_op* op = nullptr;
  if (text.starts_with("program.")) {  // a name alone: of a program that others have loaded
    if (nw_find_op(runtime(), text.c_str(), &op, &error) != NW_OK) raise(error.status, error.message);
    return op;
  }
  if (load_saved_program(runtime(), "narrows::program", text, &op, &error) != NW_OK) raise(error.status, error.message);
  return op;
}

// Loaded once for each text.
const Entry& entry_of(const std::string& text) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::unique_ptr<const Entry>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const Entry>& entry = known[text];
  if (entry == nullptr) entry = std::make_unique<const Entry>(load_program(text), false);
  return *entry;
}

bool is_real(const nw_param& field) { return field.dtype.code == kDLFloat; }

// The params of one kind, in their order; none stands for the declared values.
void take_numbers(const Entry& entry, const std::vector<Value>& values, const char* argument, bool real, Call* call) {
  std::vector<const nw_param*> fields;
  for (const nw_param* const field : entry.fields)
    if (is_real(*field) == real) fields.push_back(field);
  if (!values.empty() && values.size() != fields.size())
    return call->refuse(std::string(argument) + " has " + std::to_string(values.size()) + " values; expected " +
                        std::to_string(fields.size()) + ", one for each param of that kind, or none for the defaults");
  for (size_t i = 0; i < values.size(); ++i) call->take_number(*fields[i], values[i]);
}

// The inputs that are present, in their places.
void take_tensors(const Entry& entry, Arguments* given, Call* call) {
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < entry.op->max_inputs; ++i)
    if ((given->present >> i & 1) != 0) places.push_back(i);
  if (places.size() != given->tensors.size())
    return call->refuse("tensors has " + std::to_string(given->tensors.size()) + " values; expected " +
                        std::to_string(places.size()) + ", one for each input that is present");
  for (size_t i = 0; i < places.size(); ++i)
    call->take_input(places[i], reinterpret_cast<Handle>(std::exchange(given->tensors[i], 0)));
}

}  // namespace

void run_program(Value* stack, uint64_t, uint64_t) {
  int32_t status = NW_OK;
  std::string why;
  const Shim& shim = *find_shim(&status, &why);
  Arguments given(shim, stack);
  const Entry& entry = entry_of(given.program);
  Call call(entry, shim);
  take_tensors(entry, &given, &call);
  take_numbers(entry, given.integers, "integers", false, &call);
  take_numbers(entry, given.reals, "reals", true, &call);
  if (entry.masked) call.take_wanted(given.wanted);
  call.run();
  *stack = reinterpret_cast<Value>(call.give_list());
}

}  // namespace narrows::torch
