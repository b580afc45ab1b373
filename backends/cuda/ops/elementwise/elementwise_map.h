// SPDX-License-Identifier: Apache-2.0
// elementwise_map.h -- one function applied to tensors of any strides: which of its kernels, with which arguments, in how many
// launches.
#pragma once

#include <vector>

#include "common/map.h"
#include "elementwise.h"

namespace narrows::gpu {

// What stands in a slot of a kernel: a tensor of the signature, or a number in the slot's compute type.
struct Slot {
  int tensor = -1;  // inputs, then outputs; -1: the number
  uint64_t number = 0;
};

Divider make_divider(int64_t divisor);

struct MapRequest {
  const Instance& instance;
  const nw_sig& sig;
  const Kernels& kernels;
  Slot slots[kMaxSlots];
  int out;                     // a tensor of the signature
  const nw_tensor_sig& shape;  // that of the iteration
};

class Map {
 public:
  // Refuses a variant that the tensors do not suit; kOwnChoice suits all.
  void plan(const MapRequest& r, int variant);
  // With one kernel, on a contiguous run, each thread taking so many elements by accesses of so many bytes.
  void plan_width(const MapRequest& r, const char* name, void (*kernel)(VectorArgs), int elements, int access);
  void launch(const nw_call& call) const;
  int variant() const { return variant_; }

 private:
  struct VectorLaunch {
    VectorArgs args;
    int64_t offset[kMaxSlots + 1];  // bytes from the first element of each tensor
    int64_t blocks;
  };
  struct StridedLaunch {
    StridedArgs args;
    int64_t offset[kMaxSlots + 1];
    int64_t blocks;
  };
  void read(const MapRequest& r);
  bool is_flat() const;
  bool has_rows() const;
  void plan_flat(const MapRequest& r);
  void plan_rows();
  void plan_strided(const MapRequest& r);
  int find_tile_dim() const;
  int find_second_dim() const;
  void plan_block(const MapRequest& r, bool tiled, const int64_t* extent, int ndim, StridedArgs* args) const;
  bool streams(const MapRequest& r) const;
  int64_t stride(int k, int d) const { return space_.stride[k == kOut ? num_slots_ : k][d]; }
  int64_t offset(int k) const { return space_.offset[k == kOut ? num_slots_ : k]; }
  char* address(const nw_call& call, int k) const;
  void launch_flat(const nw_call& call) const;

  Kernels kernels_;
  LoadedKernel<VectorArgs> vectors_;
  LoadedKernel<StridedArgs> elements_;
  int generation_ = 0;
  int variant_ = kVector;
  int num_slots_ = 0;
  uint32_t num_inputs_ = 0;
  int tensor_[kMaxSlots + 1];  // by slot; -1: a number
  uint64_t number_[kMaxSlots];
  uint32_t numbers_ = 0;
  uint32_t units_ = 0;        // operands that lie side by side along dimension 0
  int align_[kMaxSlots + 1];  // bytes
  Space space_;
  bool empty_ = false;
  bool bytewise_ = false;
  bool flat_ = false;
  int width_access_ = 0;  // plan_width(): bytes
  std::vector<VectorLaunch> vector_;
  std::vector<StridedLaunch> strided_;
};

}  // namespace narrows::gpu
