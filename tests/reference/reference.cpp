// SPDX-License-Identifier: Apache-2.0
// reference.cpp -- see reference.h.
#include "reference.h"

#include <algorithm>

namespace narrows::reference {

int64_t count(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()));
  for (size_t i = 0; i < shape.size(); ++i) {  // from the last axis
    const int64_t m = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t n = i < b.size() ? b[b.size() - 1 - i] : 1;
    shape[shape.size() - 1 - i] = m == 1 ? n : m;
  }
  return shape;
}

std::vector<int64_t> broadcast_index(const Shape& from, const Shape& to) {
  const int64_t total = count(to);
  std::vector<int64_t> index;
  index.reserve(total);
  for (int64_t i = 0; i < total; ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (size_t k = 0; k < to.size(); ++k) {
      const int64_t extent = to[to.size() - 1 - k];
      const int64_t own = k < from.size() ? from[from.size() - 1 - k] : 1;
      if (own != 1) at += rest % extent * stride;
      stride *= own;
      rest /= extent;
    }
    index.push_back(at);
  }
  return index;
}

}  // namespace narrows::reference
