// SPDX-License-Identifier: Apache-2.0
// call.h -- one call of an op with torch's tensors: what it is given, libnarrows, what it returns.
#pragma once

#include <narrows/narrows.h>

#include <string>
#include <vector>

#include "bindings/torch/record.h"
#include "bindings/torch/shim.h"

namespace narrows::torch {

// An op as it is called; kept as long as the process.
struct Entry {
  Entry(const nw_op* op, bool is_backward);

  const nw_op* op;
  std::string name;                   // torch's
  std::vector<bool> optional_inputs;  // Tensor?
  std::vector<const nw_param*> fields;
  std::vector<unsigned char> initial;  // the params of a call that gives none
  bool masked, is_backward;
  uint64_t required, all;  // masks of outputs
};

// Every op is run by this runtime. NULL before set_runtime().
nw_runtime* runtime();
void set_runtime(nw_runtime* rt);

// What torch's bindings make ValueError, MemoryError and RuntimeError of.
[[noreturn]] void raise(int32_t status, const std::string& message);

// A call owns all that it has taken. A wrong argument throws nothing while others are still to be taken: run() throws for the
// first.
class Call {
 public:
  Call(const Entry& entry, const Shim& shim);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  void take_input(uint32_t i, Handle tensor);  // owned from now on; NULL: absent
  void take_param(const nw_param& field, Value value);
  void take_number(const nw_param& field, Value value, unsigned lane = 0);
  void take_wanted(uint64_t mask) { wanted_ = mask; }
  void refuse(const std::string& what);

  Value unboxed(Value value);  // what stands in an optional that is there
  void run();
  // The caller owns what it is given: each output, NULL where there is none; or a list of torch's of those that are there.
  Handle give(uint32_t output);
  Handle give_list();

 private:
  void read(uint32_t i);
  void take_name(const nw_param& field, Value value);
  void take_list(const nw_param& field, Value value);

  std::string name_of(uint32_t input) const;
  void find_device();
  void show(Record& record) const;
  int32_t attempt(nw_error* error);
  void allocate(uint32_t j, const nw_spec& spec);
  Handle empty(const nw_spec& spec, int32_t dtype);
  int32_t launch_on_gpu(nw_call& call, nw_error* error);
  bool make_contiguous();

  const Entry& entry_;
  const Shim& shim_;
  nw_runtime* const runtime_ = runtime();
  std::string refusal_;
  Handle tensors_[NW_MAX_TENSORS] = {};  // inputs, then outputs; owned
  DLTensor read_[NW_MAX_TENSORS];
  const DLTensor* pointers_[NW_MAX_TENSORS] = {};
  uint64_t wanted_ = ~uint64_t{0};
  int32_t device_type_ = 0, device_index_ = 0;  // torch's
  DLDevice device_{kDLCPU, 0};
  void* stream_ = nullptr;
  unsigned char small_[256];
  std::vector<unsigned char> large_;
  unsigned char* blob_ = small_;
};

}  // namespace narrows::torch
