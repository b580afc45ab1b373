// SPDX-License-Identifier: Apache-2.0
// reference.h -- what the references of more than one op need: broadcasting over C-ordered vectors. See each op's header for
// its formulas. No reference shares code with core or a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace narrows::reference {

using Shape = std::vector<int64_t>;

int64_t count(const Shape& shape);

// NumPy's rule. The shapes do broadcast.
Shape broadcast_shape(const Shape& a, const Shape& b);

// For every element of `to`, the index of the element of `from` that is broadcast there, both in C order.
std::vector<int64_t> broadcast_index(const Shape& from, const Shape& to);

template <class T>
std::vector<T> broadcast_to(const std::vector<T>& values, const Shape& from, const Shape& to) {
  std::vector<T> result;
  for (const int64_t i : broadcast_index(from, to)) result.push_back(values[i]);
  return result;
}

// The adjoint of broadcast_to: sums over the axes that `to` was broadcast along.
template <class T>
std::vector<T> sum_to(const std::vector<T>& values, const Shape& from, const Shape& to) {
  std::vector<T> sums(count(to), T(0));
  const std::vector<int64_t> index = broadcast_index(to, from);
  for (std::size_t i = 0; i < values.size(); ++i) sums[index[i]] += values[i];
  return sums;
}

}  // namespace narrows::reference
