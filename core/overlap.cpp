// SPDX-License-Identifier: Apache-2.0
// overlap.cpp -- see overlap.h.
//
// With equal strides, an element of a and one of b lie distance + sum(k[d] * step[d]) bytes apart, where k[d] runs over the
// differences of their indices. They share a byte when some such sum is smaller in size than an element. The search takes the
// dimensions by falling step; what the smaller ones can still reach leaves few values of each k to try.
#include "core/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace narrows {
namespace {

struct Dim {
  __int128 step;       // bytes, > 0
  __int128 low, high;  // of k
};

struct Search {
  std::vector<Dim> dims;
  std::vector<__int128> reach_low, reach_high;  // of the dims from d on
  __int128 item;
  int steps = 10000;

  bool found(size_t d, __int128 at) {
    if (--steps < 0) return true;
    if (d == dims.size()) return at < item && at > -item;
    const Dim& dim = dims[d];
    // -item < at + k*step + rest < item, with rest within reach of the dims behind
    const auto floor_div = [](__int128 a, __int128 b) { return a / b - (a % b != 0 && a < 0); };
    const __int128 first = std::max(dim.low, -floor_div(-(-item + 1 - at - reach_high[d + 1]), dim.step));
    const __int128 last = std::min(dim.high, floor_div(item - 1 - at - reach_low[d + 1], dim.step));
    for (__int128 k = first; k <= last; ++k)
      if (found(d + 1, at + k * dim.step)) return true;
    return false;
  }
};

// The dimensions by falling step, and what those from each one on can reach.
Search prepare(std::vector<Dim> dims, __int128 item) {
  Search search;
  search.item = item;
  search.dims = std::move(dims);
  std::sort(search.dims.begin(), search.dims.end(), [](const Dim& x, const Dim& y) { return x.step > y.step; });
  const size_t n = search.dims.size();
  search.reach_low.assign(n + 1, 0);
  search.reach_high.assign(n + 1, 0);
  for (size_t d = n; d-- > 0;) {
    search.reach_low[d] = search.reach_low[d + 1] + search.dims[d].low * search.dims[d].step;
    search.reach_high[d] = search.reach_high[d + 1] + search.dims[d].high * search.dims[d].step;
  }
  return search;
}

}  // namespace

bool may_share_byte(const nw_tensor_sig& a, const nw_tensor_sig& b, int64_t distance) {
  std::vector<Dim> dims;
  for (int32_t d = 0; d < a.ndim; ++d) {
    const __int128 step = static_cast<__int128>(a.strides[d]) * item_size(a.dtype);
    // The difference index(b) - index(a); a negative stride turns it round.
    const __int128 up = b.shape[d] - 1, down = a.shape[d] - 1;
    if (step == 0 || (up == 0 && down == 0)) continue;
    dims.push_back(step > 0 ? Dim{step, -down, up} : Dim{-step, -up, down});
  }
  return prepare(std::move(dims), item_size(a.dtype)).found(0, distance);
}

// Two elements that differ first in dimension d, of the larger steps, are k[d] >= 1 steps apart there; the rest is searched.
bool may_overlap_itself(const nw_tensor_sig& t) {
  std::vector<Dim> dims;
  for (int32_t d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 0) return false;
    const __int128 step = static_cast<__int128>(t.strides[d]) * item_size(t.dtype), reach = t.shape[d] - 1;
    if (reach == 0) continue;
    if (step == 0) return true;
    dims.push_back({step > 0 ? step : -step, -reach, reach});
  }
  Search search = prepare(std::move(dims), item_size(t.dtype));
  for (size_t d = 0; d < search.dims.size(); ++d) {
    const Dim& dim = search.dims[d];
    // Once past the reach of the smaller steps no larger k comes back.
    for (__int128 k = 1; k <= dim.high && k * dim.step < search.reach_high[d + 1] + search.item; ++k)
      if (search.found(d + 1, k * dim.step)) return true;
  }
  return false;
}

}  // namespace narrows
