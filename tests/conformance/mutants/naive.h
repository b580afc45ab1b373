// naive.h -- what the files of the naive plugin share. It is a complete backend in plain scalar loops, written from docs/ops.md
// and the headers alone: the conformance suite must pass it, and must not pass it with any of the faults in faults.txt.
//
//   naive_plugin.cpp                     the table: device, memory, the stream, plan and launch
//   naive_numbers.cpp                    dtypes: one element from memory and to memory
//   naive_conv1d.cpp, naive_lltm.cpp     the ops, forward and backward
//   naive_elementwise.cpp                loops over broadcast operands, and sums of gradients
//   naive_functions.cpp, naive_gradients.cpp, naive_integers.cpp    what elementwise computes
//
// `if (fault(Fault::x))` marks the one place where a mutant differs; a reader of the backend skips these.
#pragma once

#include <narrows/ops.h>
#include <narrows/plugin.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fault.h"

namespace naive {

using mutants::fault;
using mutants::Fault;

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
int64_t load_integer(DType t, const void* from);       // integers and bool; u64 by its bits
void store_real(DType t, void* to, Real value);        // rounds to nearest even; to an integer truncates and saturates, NaN is 0
void store_integer(DType t, void* to, int64_t value);  // the low bits
Real round_to(DType t, Real value);                    // floating dtypes

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
  uint64_t workspace_size = 0;
};

// One launch: the plan's tensors with their addresses.
struct Task {
  const nw_host& host;
  const Plan& plan;
  unsigned char* workspace;
  View inputs[10], outputs[5];  // what the op does not have, or the call does not give, is empty
};

struct Op {
  const char* name;
  uint32_t max_inputs, num_outputs;
  void (*plan)(const nw_sig& sig, Plan& plan);  // may refuse
  void (*launch)(const Task& task);
};
extern const Op conv1d, conv1d_backward, elementwise, elementwise_backward, lltm, lltm_backward;

// Why a call is refused; plan() in naive_plugin.cpp turns it into a status.
struct Refusal {
  int32_t status, argument;
  std::string message;
};

// The params blob as the struct that this plugin knows. Absent bytes are 0; bytes behind the struct must be.
void read_params(const nw_sig& sig, void* params, uint64_t size);

// ---- loops ----

// body(i) for every i in [0, n), on the host's threads, at least `grain` of them in a row on one.
template <class Body>
void parallel(const nw_host& host, int64_t n, int64_t grain, const Body& body) {
  const auto piece = [](void* arg, int64_t begin, int64_t end) {
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
Real real_gradient(const nw_elementwise_params& p, int operand, const Operands& x);  // d out / d operand
int64_t integer_function(int32_t function, DType dtype, int64_t a, int64_t b, int64_t c);

}  // namespace naive
