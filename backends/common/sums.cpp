// SPDX-License-Identifier: Apache-2.0
// sums.cpp -- cuts a sum into lanes, rows and slices.
#include "sums.h"

#include <algorithm>

#include "integers.h"

namespace narrows::common {
namespace {

int power_of_two(int64_t x, int most) {  // at least x, or `most`
  int power = 1;
  while (power < x && power < most) power *= 2;
  return power;
}

}  // namespace

Space space_of_sums(const nw_tensor_sig& shape, const nw_tensor_sig* const* operands, const int64_t* sizes, int num_operands) {
  Space space;
  collapse(shape, operands, sizes, num_operands, 0, &space);
  const int leader = choose_leader(space, operands, num_operands - 1);
  if (leader != 0) collapse(shape, operands, sizes, num_operands, leader, &space);
  return space;
}

SumDims sum_dims(const Space& space, int result) {
  SumDims out;
  for (const bool kept : {true, false}) {
    for (int d = 0; d < space.ndim; ++d) {
      if ((space.stride[result][d] != 0) != kept) continue;
      const int to = out.dims++;
      (kept ? out.kept : out.summed) *= space.extent[d];
      out.extent[to] = space.extent[d];
      for (int k = 0; k <= result; ++k) out.stride[k][to] = space.stride[k][d];
    }
    if (kept) out.kept_dims = out.dims;
  }
  return out;
}

SumGroups sum_groups(const SumDims& dims, bool first_is_kept, int threads, int64_t most_groups) {
  constexpr int64_t kTermsPerThread = 4, kGroups = 1024;  // enough groups for any GPU
  SumGroups out;
  out.lanes_first = first_is_kept;
  if (first_is_kept) {
    const int rows = power_of_two(ceil_div(dims.summed, kTermsPerThread), 8);
    out.lanes = power_of_two(dims.kept, threads / rows);
    out.rows = threads / out.lanes;
  } else {
    out.rows = power_of_two(ceil_div(dims.summed, kTermsPerThread), threads);
    out.lanes = threads / out.rows;
  }
  for (; ceil_div(dims.kept, out.lanes) > most_groups / 2 && out.rows > 1; out.rows /= 2) out.lanes *= 2;
  const int64_t wanted = ceil_div(kGroups, ceil_div(dims.kept, out.lanes));
  const int64_t least = int64_t{out.rows} * 4 * kTermsPerThread;  // what is worth a slice
  out.slices = std::max<int64_t>(1, std::min(wanted, dims.summed / least));
  return out;
}

SumGroups finishing_groups(const SumGroups& groups, int threads) {
  SumGroups out;
  out.lanes_first = true;
  out.rows = power_of_two(groups.slices, threads);
  out.lanes = threads / out.rows;
  return out;
}

}  // namespace narrows::common
