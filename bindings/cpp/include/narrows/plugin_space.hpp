// SPDX-License-Identifier: Apache-2.0
/// @file plugin_space.hpp
/// @brief One iteration space over tensors of any strides: broadcast, without dimensions that say
/// nothing, merged where memory allows it.
///
/// Header only, C++17. Launch::space() and Launch::walk() of plugin.hpp are made of this. Narrows'
/// own backends plan with it.
#ifndef NARROWS_PLUGIN_SPACE_HPP
#define NARROWS_PLUGIN_SPACE_HPP

#include <narrows/plugin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <narrows/float16.hpp>
#include <utility>

namespace narrows::plugin {

/// @defgroup cpp_plugin_space C++: tensors of any strides, walked together
/// @{

/// The quotient, rounded up. Both are positive or `a` is 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// The least multiple of `b` that is not below `a`.
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// Most tensors of a Space.
constexpr int kMaxOperands = 7;

/// Tensors of any strides that are walked together, element by element. collapse() makes it. It may
/// be given to a GPU's kernel by value.
///
/// Dimension 0 is the innermost. No dimension has exactly one element. A space of no dimensions has
/// one element.
struct Space {
  int ndim = 0;                                    ///< Dimensions.
  int64_t extent[NW_MAX_NDIM] = {};                ///< Elements along each dimension.
  int64_t stride[kMaxOperands][NW_MAX_NDIM] = {};  ///< In bytes, by operand. 0: it is broadcast.
  int64_t offset[kMaxOperands] = {};  ///< In bytes, from a tensor's first element to the space's.

  /// Number of elements.
  NARROWS_ANYWHERE int64_t size() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) {
      if (extent[d] == 0) return 0;  // the others may be huge
      n *= extent[d];
    }
    return n;
  }
  /// Number of elements along dimension 0.
  NARROWS_ANYWHERE int64_t row_size() const { return ndim == 0 ? 1 : extent[0]; }
  /// Bytes from one element of a row to the next.
  NARROWS_ANYWHERE int64_t step(int operand) const { return ndim == 0 ? 0 : stride[operand][0]; }
  /// Bytes from the first element of the operand's tensor to element `index` of the space. 0 <=
  /// index < size().
  NARROWS_ANYWHERE int64_t offset_of(int operand, int64_t index) const {
    int64_t bytes = offset[operand];
    for (int d = 0; d < ndim; ++d) {
      const int64_t rest = index / extent[d];
      bytes += (index - rest * extent[d]) * stride[operand][d];
      index = rest;
    }
    return bytes;
  }
  /// The same of the first N operands at once: an index is divided once, not N times.
  template <int N>
  NARROWS_ANYWHERE void offsets_of(int64_t index, int64_t (&bytes)[N]) const {
    for (int k = 0; k < N; ++k) bytes[k] = offset[k];
    for (int d = 0; d < ndim; ++d) {
      const int64_t rest = index / extent[d], at = index - rest * extent[d];
      for (int k = 0; k < N; ++k) bytes[k] += at * stride[k][d];
      index = rest;
    }
  }
};

/// @cond
namespace detail {

struct SpaceDim {
  int64_t extent;
  int64_t stride[kMaxOperands];
};

// The stride of a tensor along dimension `d` of a shape of `ndim` dimensions, 0 where it is
// broadcast.
inline int64_t broadcast_stride(const nw_tensor_sig* tensor, int d, int ndim) {
  if (tensor == nullptr) return 0;
  const int own = d - (ndim - tensor->ndim);
  return own < 0 || tensor->shape[own] == 1 ? 0 : tensor->strides[own];
}

// Dimensions of more than one element, innermost first, in the leader's order.
inline int list_dims(const nw_tensor_sig& shape, const nw_tensor_sig* const* operands,
                     int num_operands, int leader, SpaceDim* dims) {
  int n = 0;
  for (int d = shape.ndim - 1; d >= 0; --d) {
    if (shape.shape[d] == 1) continue;
    SpaceDim& dim = dims[n++];
    dim.extent = shape.shape[d];
    for (int k = 0; k < num_operands; ++k)
      dim.stride[k] = broadcast_stride(operands[k], d, shape.ndim);
  }
  // By insertion: stable, and there are 16 at most.
  const auto width = [&](int i) { return std::abs(dims[i].stride[leader]); };
  for (int i = 1; i < n; ++i)
    for (int j = i; j > 0 && width(j) < width(j - 1); --j)
      if (width(j) != 0) std::swap(dims[j], dims[j - 1]);
  return n;
}

inline bool mergeable(const SpaceDim& inner, const SpaceDim& outer, int num_operands) {
  for (int k = 0; k < num_operands; ++k)
    if (outer.stride[k] != inner.extent * inner.stride[k]) return false;
  return true;
}

}  // namespace detail
/// @endcond

/// Writes the space of `operands`, broadcast to `shape`: drops dimensions of extent 1, flips those
/// that operand `leader` walks backwards, orders them by its strides and merges what can be merged.
///
/// @param shape         Its extents alone are read. The operands' shapes broadcast to them; nothing
///                      checks it.
/// @param operands      1 to kMaxOperands. NULL: the operand is absent; its strides are 0.
/// @param sizes         Bytes of an element of each operand.
/// @param num_operands  Length of `operands` and `sizes`.
/// @param leader        Index of an operand that is there.
/// @param space         Written.
inline void collapse(const nw_tensor_sig& shape, const nw_tensor_sig* const* operands,
                     const int64_t* sizes, int num_operands, int leader, Space* space) {
  detail::SpaceDim dims[NW_MAX_NDIM];
  const int listed = detail::list_dims(shape, operands, num_operands, leader, dims);
  for (int k = 0; k < num_operands; ++k) space->offset[k] = 0;
  int n = 0;
  for (int d = 0; d < listed; ++d) {
    if (dims[d].stride[leader] < 0)
      for (int k = 0; k < num_operands; ++k) {
        space->offset[k] += (dims[d].extent - 1) * dims[d].stride[k] * sizes[k];
        dims[d].stride[k] = -dims[d].stride[k];
      }
    if (n > 0 && detail::mergeable(dims[n - 1], dims[d], num_operands))
      dims[n - 1].extent *= dims[d].extent;
    else
      dims[n++] = dims[d];
  }
  space->ndim = n;
  for (int d = 0; d < n; ++d) {
    space->extent[d] = dims[d].extent;
    for (int k = 0; k < num_operands; ++k) space->stride[k][d] = dims[d].stride[k] * sizes[k];
  }
}

/// The operand whose layout a walk best follows: the first one that is broadcast along the fewest
/// dimensions. Its arguments are as collapse() has them.
inline int choose_leader(const Space& space, const nw_tensor_sig* const* operands,
                         int num_operands) {
  int leader = 0, best = NW_MAX_NDIM + 1;
  for (int k = 0; k < num_operands; ++k) {
    if (operands[k] == nullptr) continue;
    const auto zeros =
        static_cast<int>(std::count(space.stride[k], space.stride[k] + space.ndim, 0));
    if (zeros < best) best = zeros, leader = k;
  }
  return leader;
}

/// @}

}  // namespace narrows::plugin
#endif
