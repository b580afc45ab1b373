// SPDX-License-Identifier: Apache-2.0
// elementwise_copy.cpp -- blocks of elements between memory of any strides and tiles.
#include "targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/elementwise_copy.cpp"
#include <hwy/foreach_target.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "elementwise_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// A line of n elements; a step that is known when this is compiled is one that the compiler finds vectors for. 0: any step.
template <class T, int64_t ToStep, int64_t FromStep>
HWY_INLINE void copy_steps(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n) {
  if constexpr (ToStep != 0) to_step = ToStep;
  if constexpr (FromStep != 0) from_step = FromStep;
  NARROWS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_step, from + i * from_step, sizeof(T));
}
template <class T>
void copy_line(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n) {
  constexpr int64_t kSize = sizeof(T);
  if (to_step == kSize && from_step == kSize) return static_cast<void>(std::memcpy(to, from, static_cast<size_t>(n * kSize)));
  if (to_step == kSize && from_step == 2 * kSize) return copy_steps<T, kSize, 2 * kSize>(to, to_step, from, from_step, n);
  if (to_step == kSize) return copy_steps<T, kSize, 0>(to, to_step, from, from_step, n);
  if (from_step == kSize) return copy_steps<T, 0, kSize>(to, to_step, from, from_step, n);
  copy_steps<T, 0, 0>(to, to_step, from, from_step, n);
}

#if HWY_TARGET != HWY_SCALAR
// Blocks of 16 bytes to to, to + step, ...
template <class D>
HWY_INLINE void store_blocks(D d, hn::Vec<D> v, char* to, int64_t step) {
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<D>) <= 16) {
    hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, v), to, step);
    store_blocks(half, hn::UpperHalf(half, v), to + static_cast<int64_t>(hn::Lanes(half) * sizeof(hn::TFromD<D>) / 16) * step,
                 step);
  }
}

// Rows from i on, as many as vectors of d's size and smaller ones cover, of the first `columns`, a multiple of what 16 bytes hold.
// A vector has a column's elements of as many rows: the halves of its blocks are interleaved with those of the next columns until
// every block is a row. Returns the first row that is left.
template <class D, class T = hn::TFromD<D>>
int64_t transpose_rows(D d, char* to, int64_t to_row, const char* from, int64_t from_column, int64_t i, int64_t rows,
                       int64_t columns) {
  constexpr int64_t kSize = sizeof(T), kSide = 16 / kSize, kLanes = hn::MaxLanes(D());
  for (; i + kLanes <= rows; i += kLanes)
    for (int64_t j = 0; j < columns; j += kSide) {
      hn::Vec<D> v[kSide], w[kSide];
      for (int64_t k = 0; k < kSide; ++k) v[k] = hn::LoadU(d, reinterpret_cast<const T*>(from + i * kSize + (j + k) * from_column));
      for (int64_t step = 1; step < kSide; step *= 2) {
        for (int64_t k = 0; k < kSide / 2; ++k) {
          w[2 * k] = hn::InterleaveLower(d, v[k], v[k + kSide / 2]);
          w[2 * k + 1] = hn::InterleaveUpper(d, v[k], v[k + kSide / 2]);
        }
        for (int64_t k = 0; k < kSide; ++k) v[k] = w[k];
      }
      for (int64_t k = 0; k < kSide; ++k) store_blocks(d, v[k], to + (i + k) * to_row + j * kSize, kSide * to_row);
    }
  if constexpr (kLanes > kSide)
    return transpose_rows(hn::Half<D>(), to, to_row, from, from_column, i, rows, columns);
  else
    return i;
}
#endif

// Element (i, j) from from + i*size + j*from_column to to + i*to_row + j*size.
template <class T>
void transpose(char* to, int64_t to_row, const char* from, int64_t from_column, int64_t rows, int64_t columns) {
  constexpr int64_t kSize = sizeof(T);
  int64_t whole_rows = 0, whole_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kSide = 16 / kSize;
  whole_columns = columns / kSide * kSide;
  whole_rows = transpose_rows(hn::ScalableTag<T>(), to, to_row, from, from_column, 0, rows, whole_columns);
#endif
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t done = i < whole_rows ? whole_columns : 0;
    copy_line<T>(to + i * to_row + done * kSize, kSize, from + i * kSize + done * from_column, from_column, columns - done);
  }
}

template <class T>
void copy_block(char* to, int64_t to_row, int64_t to_column, const char* from, int64_t from_row, int64_t from_column, int64_t rows,
                int64_t columns) {
  constexpr int64_t kSize = sizeof(T), kShort = 8;
  if (from_row == kSize && to_column == kSize && rows > 1 && columns > 1)
    return transpose<T>(to, to_row, from, from_column, rows, columns);
  if (to_row == kSize && from_column == kSize && rows > 1 && columns > 1)
    return transpose<T>(to, to_column, from, from_row, columns, rows);
  // The inner loop goes along the side that is contiguous in memory, or else the longer one.
  const bool from_inside = std::abs(from_row) < std::abs(from_column) && from_row != 0;
  const bool to_inside = std::abs(to_row) < std::abs(to_column);
  if (rows > 1 && (columns == 1 || from_inside || to_inside || (columns < kShort && rows > columns))) {
    std::swap(rows, columns);
    std::swap(to_row, to_column);
    std::swap(from_row, from_column);
  }
  for (int64_t i = 0; i < rows; ++i) copy_line<T>(to + i * to_row, to_column, from + i * from_row, from_column, columns);
}

Copy lookup_copy(int64_t size) {
  switch (size) {
    case 1: return copy_block<uint8_t>;
    case 2: return copy_block<uint16_t>;
    case 4: return copy_block<uint32_t>;
    default: return copy_block<uint64_t>;
  }
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
HWY_EXPORT(lookup_copy);
Copy copy_kernel(const Instance& instance, int64_t size) { return NARROWS_DISPATCH(instance, lookup_copy)(size); }
}  // namespace narrows::cpu
#endif
