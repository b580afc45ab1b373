// SPDX-License-Identifier: Apache-2.0
// elementwise.h -- what the parts of elementwise share.
//   elementwise.cpp            elementwise: validate, plan, launch
//   elementwise_backward.cpp   the same for elementwise_backward
//   elementwise_map.{h,cpp}    one kernel over tensors of any strides: which kernel, with which arguments
//   elementwise_loops.h        the kernels that apply a function to elements; elementwise_sum.h: that sum what it gives
//   elementwise_functions.h    the functions; elementwise_gradients.h: their derivatives; elementwise_{math,half}.h: what both are
//                              made of; elementwise_scaled.h: derivatives whose factors leave the range of the dtype
//   elementwise_{f32,f64,f16,bf16,int,cast,grad_*}.cu  tables of kernels for a dtype; elementwise_widths.cu: forced widths
#pragma once

#include <cstdint>

#include "backend.h"
#include "common/elementwise.h"

namespace narrows::gpu {

// The operands of a kernel are its slots; a table says which tensor or number goes where.
constexpr int kMaxSlots = 4;
constexpr int kOut = kMaxSlots;  // the output's place behind them

// n / divisor by a multiplication, for n < 2^31.
struct Divider {
  uint32_t divisor, factor, shift;
};

// ---- the arguments of kernels; bit k of a set stands for slot k ----

// Elements that lie side by side, in vectors. Flat: one run, which may begin and end within a vector; addresses are those of the
// first vector. Rows: whole vectors only.
struct VectorArgs {
  static constexpr int kDims = 4;
  const char* in[kMaxSlots];
  char* out;
  int64_t first_whole, num_whole;  // vectors that are there as a whole, and aligned
  int64_t n;                       // flat: elements
  int32_t lead;                    // flat: places of the first vector before the first element
  int32_t dims;                    // rows: dimensions, counted in vectors along the first
  uint32_t units;                  // operands whose elements lie side by side
  uint32_t repeated;               // the other ones, whose elements are all the same
  uint32_t numbers;                // those of them that are a number
  bool streamed;                   // flat: what is stored is not worth keeping in a cache
  bool overlaps;                   // flat: begins before the kernel ahead has ended: pays where a launch is a large part
  uint8_t access[kMaxSlots + 1];   // flat: bytes to which vectors are aligned
  uint64_t number[kMaxSlots];      // in the compute type
  Divider divider[kDims];
  int64_t stride[kMaxSlots + 1][kDims];  // bytes
};

// Elements anywhere. A block takes a rectangle of the first two dimensions, whose others are fixed.
struct StridedArgs {
  const char* in[kMaxSlots];
  char* out;
  uint64_t number[kMaxSlots];
  int32_t dims;      // at least 2; the first two count rectangles
  uint32_t numbers;  // slots that are a number
  uint32_t staged;   // slots that go through shared memory, because they lie along the second dimension; a rectangle is a tile
  bool bytewise;     // scalar: something is not aligned to its elements
  int32_t width;     // threads along the first dimension, a power of two
  int32_t passes;
  int32_t apart[2];   // a thread's elements, along the two dimensions
  int32_t block[2];   // a rectangle's extent
  int64_t extent[2];  // of the two dimensions
  Divider divider[NW_MAX_NDIM];
  int64_t stride[kMaxSlots + 1][NW_MAX_NDIM];  // bytes
  int64_t inner[kMaxSlots + 1][2];             // bytes between elements along the two dimensions
  int64_t step[kMaxSlots + 1];                 // bytes between a thread's elements
};

// Sums over the dimensions behind the first `kept_dims`. A block has `lanes` sums side by side and `rows` threads for each.
struct SumArgs {
  const char* in[kMaxSlots];
  char* out;      // the gradient, or
  char* partial;  // what the slices of each sum make: [slice][sum]
  uint64_t number[kMaxSlots];
  int64_t kept, summed;  // elements
  int64_t slices;
  int32_t kept_dims, dims;
  uint32_t numbers;
  int32_t lanes, rows;
  bool lanes_first;  // neighbouring threads have neighbouring sums
  bool bytewise;
  bool wide;  // an index may pass 2^31
  int64_t extent[NW_MAX_NDIM];
  Divider divider[NW_MAX_NDIM];
  int64_t stride[kMaxSlots + 1][NW_MAX_NDIM];
};

// ---- tables of kernels ----

// One function for one dtype.
struct Kernels {
  void (*vector)(VectorArgs);  // flat
  void (*rows)(VectorArgs);
  void (*strided)(StridedArgs);
  void (*scalar)(StridedArgs);
  int slots;
  int size[kMaxSlots + 1];  // bytes of an element of each operand
  int vector_elements;      // of a thread
  int strided_elements;     // of a thread at a time
  int tile;                 // elements along a tile's side
  int tile_bytes;           // of a staged slot
};
constexpr int kVectorThreads = 256, kStridedThreads = 256, kSumThreads = 256;

struct FunctionRow {
  int function;
  Kernels kernels;
};
struct FunctionTable {
  const FunctionRow* rows;
  int num_rows;
  const Kernels* find(int function) const {
    for (int i = 0; i < num_rows; ++i)
      if (rows[i].function == function) return &rows[i].kernels;
    return nullptr;
  }
};
extern const FunctionTable kFunctionsF32, kFunctionsF64, kFunctionsF16, kFunctionsBf16;
// By the dtype; where a function does not ask for the sign, by the unsigned one of the same width.
extern const FunctionTable kFunctionsI8, kFunctionsI16, kFunctionsI32, kFunctionsI64;
extern const FunctionTable kFunctionsU8, kFunctionsU16, kFunctionsU32, kFunctionsU64, kFunctionsBool;
// By the dtype that is cast from, from NW_DTYPE_FLOAT32.
extern const Kernels *const kCastsF32, *const kCastsF64, *const kCastsF16, *const kCastsBf16;
extern const Kernels *const kCastsI8, *const kCastsI16, *const kCastsI32, *const kCastsI64;
extern const Kernels *const kCastsU8, *const kCastsU16, *const kCastsU32, *const kCastsU64, *const kCastsBool;

// The kernels of a function for operands of a dtype; nullptr: there are none.
const Kernels* find_kernels(int function, int dtype);
const Kernels& find_cast(int from, int to);

// A function's kernel that accesses memory in one way only; see elementwise_widths.cu.
constexpr int kNumWidths = 6;
constexpr const char* kWidthNames[kNumWidths] = {"f32", "f32x4", "f16", "f16x2", "f16x8", "f16x8_pack"};
constexpr int kWidthElements[kNumWidths] = {1, 4, 1, 2, 8, 8};  // of a thread
constexpr int kWidthAccess[kNumWidths] = {4, 16, 2, 4, 4, 16};  // bytes
void (*find_width(int width, int function))(VectorArgs);

// The gradient of a function by an operand: a kernel of grad_out, a, b, c or alpha. Those that are 0 everywhere have no row.
enum Source : int8_t { kGradOut, kA, kB, kC, kAlpha, kNone };
struct GradientRow {
  int function, operand;
  Source slots[kMaxSlots];
  Kernels map;
  void (*sum)(SumArgs);
};
struct GradientTable {
  const GradientRow* rows;
  int num_rows;
  void (*finish)(SumArgs);  // adds up the slices of each sum
  const GradientRow* find(int function, int operand) const {
    for (int i = 0; i < num_rows; ++i)
      if (rows[i].function == function && rows[i].operand == operand) return &rows[i];
    return nullptr;
  }
};
extern const GradientTable kGradientsF32, kGradientsF64, kGradientsF16, kGradientsBf16;

}  // namespace narrows::gpu
