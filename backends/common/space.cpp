// SPDX-License-Identifier: Apache-2.0
// space.cpp -- one iteration space over tensors of any strides.
#include "space.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace narrows::common {
namespace {

struct Dim {
  int64_t extent;
  int64_t stride[kMaxOperands];
};

// The stride of a tensor along dimension `d` of a shape of `ndim` dimensions, 0 where it is broadcast.
int64_t broadcast_stride(const nw_tensor_sig* tensor, int d, int ndim) {
  if (tensor == nullptr) return 0;
  const int own = d - (ndim - tensor->ndim);
  return own < 0 || tensor->shape[own] == 1 ? 0 : tensor->strides[own];
}

bool mergeable(const Dim& inner, const Dim& outer, int num_operands) {
  for (int k = 0; k < num_operands; ++k)
    if (outer.stride[k] != inner.extent * inner.stride[k]) return false;
  return true;
}

// Dimensions of more than one element, innermost first, in the leader's order.
int list_dims(const nw_tensor_sig& shape, const nw_tensor_sig* const* operands, int num_operands, int leader, Dim* dims) {
  int n = 0;
  for (int d = shape.ndim - 1; d >= 0; --d) {
    if (shape.shape[d] == 1) continue;
    Dim& dim = dims[n++];
    dim.extent = shape.shape[d];
    for (int k = 0; k < num_operands; ++k) dim.stride[k] = broadcast_stride(operands[k], d, shape.ndim);
  }
  // By insertion: stable, and there are 16 at most.
  for (int i = 1; i < n; ++i)
    for (int j = i; j > 0 && std::abs(dims[j].stride[leader]) < std::abs(dims[j - 1].stride[leader]); --j)
      if (dims[j].stride[leader] != 0) std::swap(dims[j], dims[j - 1]);
  return n;
}

}  // namespace

void collapse(const nw_tensor_sig& shape, const nw_tensor_sig* const* operands, const int64_t* sizes, int num_operands, int leader,
              Space* space) {
  Dim dims[NW_MAX_NDIM];
  const int listed = list_dims(shape, operands, num_operands, leader, dims);
  for (int k = 0; k < num_operands; ++k) space->offset[k] = 0;
  int n = 0;
  for (int d = 0; d < listed; ++d) {
    if (dims[d].stride[leader] < 0)
      for (int k = 0; k < num_operands; ++k) {
        space->offset[k] += (dims[d].extent - 1) * dims[d].stride[k] * sizes[k];
        dims[d].stride[k] = -dims[d].stride[k];
      }
    if (n > 0 && mergeable(dims[n - 1], dims[d], num_operands))
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

int choose_leader(const Space& space, const nw_tensor_sig* const* operands, int num_operands) {
  int leader = 0, best = NW_MAX_NDIM + 1;
  for (int k = 0; k < num_operands; ++k) {
    if (operands[k] == nullptr) continue;
    const auto zeros = static_cast<int>(std::count(space.stride[k], space.stride[k] + space.ndim, 0));
    if (zeros < best) best = zeros, leader = k;
  }
  return leader;
}

}  // namespace narrows::common
