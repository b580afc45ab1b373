// SPDX-License-Identifier: Apache-2.0
// program_bind.h -- a lowered program and the signature of a call: numbers for its sizes and params, shapes and strides of its
// buffers, places in the workspace for its allocations. What every backend needs to launch it. It knows no device.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plugin.h"
#include "program_lower.h"

namespace narrows::common {

using Numbers = std::map<std::string, int64_t>;

// The dtypes of ir.h as those of the ABI: NW_DTYPE_*; 0 for `index`.
int dtype_number(ir::DType dtype);
int64_t bytes_of(ir::DType dtype);  // of an element; 8 of `index`

struct BoundBuffer {
  const ir::Buffer* buffer = nullptr;
  std::vector<int64_t> shape, strides;  // in elements
  // tensors
  bool present = true;
  int input = -1, output = -1;      // numbers among a call's inputs and outputs; an in-out tensor has both
  bool copied = false;              // an in-out tensor whose output is not its input: it begins as a copy
  std::vector<int64_t> in_strides;  // of the input that is copied
  // allocations
  bool is_private = false;  // each thread has its own: it lives inside a parallel loop
  uint64_t offset = 0;      // bytes into the workspace's shared part, or into a thread's part
  uint64_t bytes = 0;

  int64_t elements() const;
  bool is_dense() const;  // row-major without gaps
};

// A param's value: of a floating-point type in `real`, else in `integer`.
struct ParamValue {
  double real = 0;
  int64_t integer = 0;
};

struct Bound {
  const Lowered* lowered = nullptr;
  Numbers numbers;  // sizes and integer params
  std::map<std::string, ParamValue> params;
  std::map<std::string, BoundBuffer> buffers;    // by name: tensors and allocations
  uint64_t shared_bytes = 0, private_bytes = 0;  // private: of each thread
  uint64_t workspace_size(int64_t threads) const;
  bool is_empty = false;  // no output has an element
};

// The params' blob: a field of 8 bytes for each param, an f64 for one of a floating-point type, else an i64.
// Refuses (Refusal) what does not fit: a size that two shapes disagree about, a negative size, an output of another shape, more
// bytes than there are, an index beyond 64 bits.
Bound bind(const Lowered& lowered, const nw_sig& sig);

// A call of no sizes in particular, for a text that depends on none: an extent that is not a number is 3, so that no stride is 1 by
// chance. Bit i of `mask`: optional[i] is there; other tensors are. `is_strided`: the tensors are not dense.
Bound any_call(const Lowered& lowered, const std::vector<const ir::Buffer*>& optional = {}, size_t mask = 0,
               bool is_strided = false);

// A launch's data.
char* address(const BoundBuffer& buffer, const nw_call& call);

}  // namespace narrows::common
