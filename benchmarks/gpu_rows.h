// SPDX-License-Identifier: Apache-2.0
// gpu_rows.h -- what bench_gpu measures: calls of ops, by shapes, dtypes and params.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "numbers.h"

namespace narrows::bench {

struct Shaped {
  std::vector<int64_t> shape;      // empty: the tensor is absent
  double size = 1;                 // inputs are uniform in [-size, size]
  std::vector<int64_t> strides{};  // in elements; empty: C-contiguous. Those of an output leave no gaps
  std::optional<Dtype> its_own{};  // of its own; else the row's
  int64_t count() const {
    int64_t n = shape.empty() ? 0 : 1;
    for (const int64_t extent : shape) n *= extent;
    return n;
  }
  // Elements from the first to the last one.
  int64_t span() const {
    int64_t last = 0;
    for (size_t d = 0; d < strides.size(); ++d) last += (shape[d] - 1) * strides[d];
    return strides.empty() ? count() : last + 1;
  }
};

struct Row {
  std::string name, op;
  Dtype dtype;
  std::vector<Shaped> inputs, outputs;
  std::vector<int64_t> params;  // the blob
  double operations = 0;        // 0: bound by the bytes that it moves
  const Dtype& dtype_of(const Shaped& t) const { return t.its_own ? *t.its_own : dtype; }
  double bytes() const {
    double sum = 0;
    for (const auto* list : {&inputs, &outputs})
      for (const Shaped& t : *list) sum += static_cast<double>(t.count()) * static_cast<double>(dtype_of(t).size());
    return sum;
  }
};

// Of elementwise: out = a + b, of `side` by `side` elements.
Row add(const std::string& name, const Dtype& dtype, int64_t side);

std::vector<Row> all_rows();
// Functions that cost more than their bytes somewhere, of `side` by `side` elements.
std::vector<Row> function_rows(int64_t side);
// Small ones of every op, and those functions, to see that they run.
std::vector<Row> quick_rows();

}  // namespace narrows::bench
