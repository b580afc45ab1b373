// SPDX-License-Identifier: Apache-2.0
// elementwise.h -- what the parts of elementwise share.
//   elementwise.cpp          elementwise: validate, plan, launch
//   elementwise_backward.cpp the same for elementwise_backward
//   elementwise_blocks.cpp   strided tensors as blocks of contiguous elements
//   elementwise_copy.cpp     those blocks between memory and tiles
//   elementwise_{float,int,cast,gradients}.cpp and *-inl.h  kernels, compiled for each instruction set
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <narrows/plugin_space.hpp>

#include "backend.h"
#include "common/elementwise.h"
#include "ops/tasks.h"

namespace narrows::cpu {

// ---- kernels ----

// What a kernel works on: n elements of contiguous, naturally aligned operands. `out` may be exactly an input. An input that is
// constant has one element, which need not be aligned.
struct Run {
  const void* in[4] = {};
  bool constant[4] = {};
  void* out = nullptr;
  int64_t n = 0;
  double alpha = 0;
  bool streamed = false;  // the output goes past the caches
};
using Kernel = void (*)(const Run& run);

// The kernel of a function for operands of a dtype; nullptr: there is none.
Kernel float_kernel(const Instance& instance, int function, int dtype);
Kernel int_kernel(const Instance& instance, int function, int dtype);
// Any dtype to any dtype.
Kernel cast_kernel(const Instance& instance, int from, int to);

// in = grad_out, a, b, c, none of them constant; out = the gradient of operand 0, 1 or 2. Of the inputs it looks at those in
// `reads` (bits 0 to 3).
struct Gradient {
  Kernel kernel;  // nullptr: there is none
  unsigned reads;
  bool same;  // it is grad_out
};
Gradient gradient_kernel(const Instance& instance, int function, int operand, int dtype);

// Copies rows x columns elements, whatever their strides (in bytes) and alignment.
using Copy = void (*)(char* to, int64_t to_row, int64_t to_column, const char* from, int64_t from_row, int64_t from_column,
                      int64_t rows, int64_t columns);
Copy copy_kernel(const Instance& instance, int64_t size);

// Bytes of a tile. Three inputs and an output have two each (Tiles), 32 KB, of which an op fills half at most unless it converts:
// with the kernel's stack they stay in a first-level cache.
constexpr int64_t kTileBytes = 4096;
// Elements of a block that needs no tile: what is worth a thread, whatever the caches (elementwise.cpp's grain).
constexpr int64_t kMostInPlace = 16384;

// ---- sums ----

constexpr int64_t kMostSums = kTileBytes / 4;  // of f32; twice as many f64, 16 KB, hold them

// A sum per element that is kept of a block, with what rounding took from it. Adding up f32 in f64 takes nothing worth keeping.
struct Sums {
  alignas(64) double sum[kMostSums], lost[kMostSums];
};
inline void add(double& sum, double&, float x) { sum += static_cast<double>(x); }
inline void add(double& sum, double& lost, double x) {
  const double before = sum, after = before + x, back = after - before;
  lost += (before - (after - back)) + (x - back);
  sum = after;
}

// Adds a block of rows x columns contiguous elements to the sums of what is kept of it.
using Accumulator = void (*)(Sums& sums, const void* block, int64_t rows, int64_t columns, bool keep_rows, bool keep_columns);
Accumulator accumulator(const Instance& instance, int dtype);  // of f32 or f64

// ---- numbers ----

// One number as an element of a dtype, in its low bytes. `real` is read for a floating-point dtype, else `integer`, which wraps.
struct Scalar {
  alignas(8) unsigned char bytes[8];
};
Scalar make_scalar(const Instance& instance, int dtype, double real, int64_t integer);

// ---- blocks ----

// The iteration space, of two dimensions at least. A block is `rows` x `columns` of dimensions 1 and 0, row-major, and holds at
// most the elements that fit a tile, unless every operand can be used where it lies.
struct Blocks : Space {
  int64_t rows, columns;  // of a full block
  int64_t row_blocks, column_blocks;
  int64_t count;                            // of blocks
  bool across = false;                      // an operand is contiguous along dimension 1, not 0
  int64_t lead_rows = 0, lead_columns = 0;  // that the first blocks lack

  void set_block(int64_t rows_wanted, int64_t columns_wanted);
  // The first blocks have so many rows and columns fewer.
  void set_leads(int64_t rows_wanted, int64_t columns_wanted);
  // Moves dimension `from` to place 1.
  void bring_to_1(int from);
};

// One tensor that takes part: how its elements are stored, and how they become the compute type.
struct Operand {
  int64_t size = 0;          // bytes of a stored element
  int64_t compute_size = 0;  // bytes of a computed element
  bool aligned = true;       // to its element size; else it is only touched by memcpy
  bool present = false;      // false: `scalar` stands for it, in the compute type
  bool constant = false;     // every element is the same one
  Copy copy = nullptr;       // between its memory and a tile; of one that is present
  Kernel convert = nullptr;  // stored to computed (input) or computed to stored (output); nullptr: they are the same
  Scalar scalar{};
};

// collapse() of narrows/plugin_space.hpp, for two dimensions at least.
void collapse(const nw_tensor_sig& shape, const nw_tensor_sig* const* operands, const Operand* access, int num_operands, int leader,
              Blocks* blocks);

// Picks the block: see the struct.
void choose_block(Blocks* blocks, const Operand* access, int num_operands);

// Where block number `index` lies.
struct Block {
  int64_t rows, columns;
  char* address[kMaxOperands];
};
Block locate(const Blocks& blocks, int num_operands, char* const* base, int64_t index);

// Bytes of operand k, of elements of so many bytes: along a dimension that it is broadcast along, one element.
int64_t touched_bytes(const Blocks& blocks, int k, int64_t size);

// Two tiles for one operand: as stored, and as computed.
struct Tiles {
  alignas(64) unsigned char stored[kTileBytes];
  alignas(64) unsigned char computed[kTileBytes];
};

// The elements of an input within a block as a contiguous run of the compute type: in place, or in `tiles`.
const void* load(const Operand& operand, const char* address, int64_t rows, int64_t columns, const int64_t* stride, Tiles& tiles);
// A tile of one number, for a constant operand.
const void* load_constant(const Operand& operand, const char* address, Tiles& tiles);
// Where the kernel writes an output, and, after it, the way to memory.
void* destination(const Operand& operand, char* address, int64_t rows, int64_t columns, const int64_t* stride, Tiles& tiles);
void store(const Operand& operand, const void* computed, char* address, int64_t rows, int64_t columns, const int64_t* stride,
           Tiles& tiles);

// The rows of operand k of a block, without a conversion: row i is a run at data + i*step, or one element there.
struct Rows {
  char* data;
  int64_t step;
  bool constant;
};
Rows reach(const Operand& operand, const Block& block, int k, const int64_t* stride, bool by_rows, bool is_output, Tiles& tiles);

}  // namespace narrows::cpu
