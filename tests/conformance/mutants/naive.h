// SPDX-License-Identifier: Apache-2.0
// naive.h -- what the files of the naive plugin share. It is a complete backend in plain scalar loops, written from docs/ops.md
// and the headers alone: the conformance suite must pass it, and must not pass it with any of the faults in faults.txt.
//
//   naive_plugin.cpp                     the table: instance, plan and launch, and the slots of a device with their faults
//   naive_host.cpp, naive_device.cpp     the device: the host, or one of a real plugin, whose tensors are computed on as copies
//   naive_numbers.cpp                    dtypes: one element from memory and to memory
//   naive_conv1d.cpp, naive_lltm.cpp, naive_lltm_sequence.cpp    the ops, forward and backward
//   naive_elementwise.cpp                loops over broadcast operands, and sums of gradients
//   naive_functions.cpp, naive_gradients.cpp, naive_integers.cpp    what elementwise computes
//
// `if (fault(Fault::x))` marks the one place where a mutant differs; a reader of the backend skips these.
#pragma once

#include <narrows/ops.h>
#include <narrows/plugin.h>

#include <cfenv>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "fault.h"

namespace naive {

using mutants::fault;
using mutants::Fault;

// ---- errors: nothing is thrown across the boundary ----

// Why a call is refused.
struct Refusal {
  int32_t status, argument;
  std::string message;
};

int32_t write_error(nw_error* error, int32_t status, int32_t argument, const std::string& message);

// What a slot of another plugin gave.
inline void check(int32_t status, const nw_error& error) {
  if (status != NW_OK) throw Refusal{status, error.argument, error.message};
}

template <class Body>
int32_t guarded(nw_error* error, const Body& body) noexcept {
  try {
    body();
    return NW_OK;
  } catch (const Refusal& refusal) {
    return write_error(error, refusal.status, refusal.argument, refusal.message);
  } catch (const std::bad_alloc&) {
    return write_error(error, NW_OUT_OF_MEMORY, -1, "naive: out of memory");
  } catch (const std::exception& e) {
    return write_error(error, NW_FAILED, -1, e.what());
  }
}

// ---- numbers (naive_numbers.cpp) ----

// 64 bits of significand or more: it holds every value of every dtype, and what is computed in it is rounded once, at the end.
using Real = long double;

enum class DType : int32_t { none, f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean };  // NW_DTYPE_*
DType dtype_of(DLDataType t);
DLDataType dl_dtype(DType t);
bool is_float(DType t);
int64_t item_size(DType t);

// Addresses may be misaligned below the item size: every access is a copy of bytes.
float load_f16(const void* from);
float load_bf16(const void* from);
Real load_real(DType t, const void* from);             // any dtype, exactly
int64_t load_integer(DType t, const void* from);       // integers, and bool as its byte; u64 by its bits
void store_real(DType t, void* to, Real value);        // rounds to nearest even; to an integer truncates and saturates, NaN is 0
void store_integer(DType t, void* to, int64_t value);  // the low bits
Real round_to(DType t, Real value);                    // floating dtypes
double in_parts(double value);  // an f32 number as a matrix unit has it that takes three parts of 8 bits; itself, but in mutants
double cut_off(double sum);     // to f32, toward zero

// ---- tensors ----

// A tensor in a plan: all but its address. Strides are in bytes.
struct Layout {
  bool present = false;
  DType dtype = DType::none;
  int32_t ndim = 0;
  uint16_t align_log2 = 0;
  int64_t shape[NW_MAX_NDIM] = {}, strides[NW_MAX_NDIM] = {};

  int64_t extent(int32_t axis) const { return shape[axis]; }
  int64_t size() const;
};

// A tensor of a call.
struct View : Layout {
  unsigned char* data = nullptr;  // of element 0; NULL: absent

  template <class... Index>
  unsigned char* at(Index... index) const {
    const int64_t numbers[] = {index...};
    int64_t offset = 0;
    for (size_t i = 0; i < sizeof...(index); ++i) offset += numbers[i] * strides[i];
    return data + offset;
  }
  // The dtypes that conv1d and lltm have; a sum of these is formed in double.
  double real(const unsigned char* p) const;
  explicit operator bool() const { return data != nullptr; }
};

// The same elements, with axes of extent 1 put before the others until there are `ndim`.
View with_rank(View v, int32_t ndim);
// As an operand of something of this shape: aligned at the right, repeated by strides of 0.
View broadcast_to(View v, const Layout& shape);

// ---- plans ----

// Everything that a launch needs but addresses. `params` is the whole struct of the op, as far as the caller gave it.
struct Plan {
  const struct Op* op = nullptr;
  std::vector<Layout> inputs, outputs;
  nw_conv1d_params conv1d{};
  nw_elementwise_params elementwise{};
  nw_lltm_sequence_params sequence{};
  std::vector<unsigned char> params;  // of the other ops: keep_params() writes them, params_of() reads them
  uint64_t workspace_size = 0;
  int32_t device_id = 0;
  const nw_sig* kept = nullptr;  // of a mutant
};

// One launch: the plan's tensors with their addresses.
struct Task {
  const nw_host& host;
  const Plan& plan;
  unsigned char* workspace;
  View inputs[14], outputs[6];  // what the op does not have, or the call does not give, is empty
};

struct Op {
  const char* name;
  uint32_t max_inputs, num_outputs;
  void (*plan)(const nw_sig& sig, Plan& plan);  // may refuse
  void (*launch)(const Task& task);
};
#define NARROWS_OP(name) extern const Op name;
#include "core/ops/ops.inc"
#undef NARROWS_OP

// The params blob as the struct that this plugin knows. Absent bytes are 0; bytes behind the struct must be.
void read_params(const nw_sig& sig, void* params, uint64_t size);
template <class P>
void keep_params(const nw_sig& sig, Plan& plan) {
  plan.params.resize(sizeof(P));
  read_params(sig, plan.params.data(), sizeof(P));
}
template <class P>
P params_of(const Plan& plan) {
  P params;
  std::memcpy(&params, plan.params.data(), sizeof params);
  return params;
}

// ---- the device ----

// Whose slots from create to stream_wait this plugin's are: the plugin that NARROWS_TEST_REAL_PLUGIN names (real_plugin.h), else
// the host's own. NULL and the reason where there is none.
const nw_plugin* load_device(nw_error* error);
const nw_plugin& device_plugin();
bool is_host();
extern const nw_plugin host_plugin;  // naive_host.cpp

// What alloc() has given to anybody in this process.
void remember_allocation(const void* data, uint64_t size);
void forget_allocation(const void* data);

struct DeviceStream {
  void* device;  // an instance of device_plugin()
  int32_t device_id;
  void* handle;
};

// The memory of one launch as the host can read and write it: itself where it is the host's; else copies of what the tensors and
// the workspace span, and of what was allocated around them, so that a mutant stores past an end there as it would here.
class LaunchMemory {
 public:
  LaunchMemory(const DeviceStream& stream, const Plan& plan, const nw_call& call);  // waits for the stream
  ~LaunchMemory();
  LaunchMemory(const LaunchMemory&) = delete;
  LaunchMemory& operator=(const LaunchMemory&) = delete;

  uintptr_t first(const DLTensor& t) const;  // where its first element is; 0 for none
  unsigned char* workspace() const;
  void write_back();  // what has changed around the outputs and in the workspace

 private:
  struct Copy;
  void add(const DLTensor& t, const Layout& planned, bool written);
  void add(DLDevice device, uintptr_t begin, uintptr_t end, uint64_t beyond, bool written);
  uintptr_t here(uintptr_t address) const;

  DeviceStream stream_;
  void* workspace_;
  std::vector<Copy> copies_;  // of a device; apart from each other, by address
};

// ---- loops ----

// body(i) for every i in [0, n), on the host's threads, at least `grain` of them in a row on one.
template <class Body>
void parallel(const nw_host& host, int64_t n, int64_t grain, const Body& body) {
  const auto piece = [](void* arg, int64_t begin, int64_t end) {
    if (fault(Fault::body_rounds_up)) std::fesetround(FE_UPWARD);
    if (fault(Fault::piece_begins) && begin != 0) ++begin;
    for (int64_t i = begin; i < end; ++i) (*static_cast<const Body*>(arg))(i);
  };
  if (n > 0) host.parallel_for(host.ctx, n, grain, piece, const_cast<Body*>(&body));
}

// Stores zeros in every element.
void fill_zero(const View& v);

// ---- elementwise: functions by their number, NW_EW_* ----

struct Operands {
  Real a = 0, b = 0, c = 0;
};
Real real_function(const nw_elementwise_params& p, DType dtype, const Operands& x);
// d out / d operand. Infinite at poles alone: what overflows is the largest number, 0 times which is 0.
Real real_gradient(const nw_elementwise_params& p, DType dtype, int operand, const Operands& x);
int64_t integer_function(int32_t function, DType dtype, int64_t a, int64_t b, int64_t c);

}  // namespace naive
