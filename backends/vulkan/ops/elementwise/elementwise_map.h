// SPDX-License-Identifier: Apache-2.0
// elementwise_map.h -- one function applied to tensors of any strides: which of its pipelines, with which arguments.
//   elementwise.cpp           elementwise: validate, plan, record; elementwise_backward.cpp: the same for elementwise_backward
//   shaders/elementwise/elementwise.comp  the functions, elementwise_cast.comp the casts, both over the loops of
//   elementwise_loop.glsl
#pragma once

#include "backend.h"
#include "common/elementwise.h"
#include "common/map.h"

namespace narrows::vulkan {

constexpr int kMaxSlots = 4;
constexpr int kOut = kMaxSlots;  // the output's place behind the slots

// What a slot of a shader reads: a tensor of the signature, or a number's bits as they are stored.
struct Operand {
  bool used = false;
  int tensor = -1;  // inputs, then outputs; -1: the number
  uint64_t number = 0;
};
Operand tensor_operand(int tensor);
Operand number_operand(int dtype, double real, int64_t integer);

// A module and its specialization.
struct Program {
  const Shader* shader;
  int function;  // NW_EW_*
  int operand;   // of a gradient
  int slots;
  int a_slot;         // the slot of the operand a, which
  int a, dtype, out;  // has a dtype of its own (NW_DTYPE_*); that of the other slots; the output's
  bool heavy;         // two elements keep a thread busy: a rectangle gives it no more
  uint64_t alpha;     // of elu, in the type that is computed in
  int dtype_of(int slot) const { return slot == kOut ? out : slot == a_slot ? a : dtype; }
};

Program cast_program(int from, int to);
Program fill_program(int dtype);  // out = slot 0, whose number's bits are the dtype's

struct MapRequest {
  Device& device;
  const nw_sig& sig;
  const Program& program;
  Operand slots[kMaxSlots];
  int out;                     // a tensor of the signature
  const nw_tensor_sig& shape;  // that of the iteration
};

class Map {
 public:
  // Refuses a variant that the tensors do not suit. kOwnChoice suits all, but for more work groups than can be counted.
  Map(const MapRequest& r, int variant);
  void record(Recorder& recorder, const nw_call& call) const;
  int variant() const { return variant_; }

 private:
  // As in shaders/elementwise/elementwise_loop.glsl.
  struct Push {
    Address operand[kMaxSlots];
    Address out;
    uint64_t extent[2];
    uint32_t traits, width;
    uint64_t alpha;
    Address layout;
    int64_t row_step[kMaxSlots + 1];
  };
  // Push::traits.
  static constexpr uint32_t repeated(int slot) { return 1u << slot; }
  static constexpr uint32_t kMisaligned = 1u << 16, kHasGrid = 1u << 17;
  struct Dimension {
    int64_t stride[kMaxSlots + 1];
    uint64_t blocks;
    uint64_t padding[2];
  };
  struct Layout {
    uint32_t block[2], apart[2];
    uint32_t dims, padding[3];
    Dimension dimension[NW_MAX_NDIM];
  };

  void read(const MapRequest& r);
  bool is_tensor(int slot) const { return tensor_[slot] >= 0; }
  bool is_repeated(int slot) const { return (push_.traits & repeated(slot)) != 0; }
  bool is_flat() const;
  bool has_rows() const;
  void plan_rows();
  void multiply_groups(int64_t by);
  void choose(const MapRequest& r, int variant);
  uint32_t turned_along(int d) const;
  int find_turned_dim() const;
  int find_second_dim() const;
  void plan_rectangle();
  void plan_layout();
  int64_t stride(int slot, int d) const { return space_.stride[slot == kOut ? slots_ : slot][d]; }
  int64_t offset(int slot) const { return space_.offset[slot == kOut ? slots_ : slot]; }
  int64_t size(int slot) const { return size_[slot]; }
  Address address(const nw_call& call, int slot) const;
  void record_run(Recorder& recorder, Push push) const;

  int variant_ = kVector;
  int slots_ = 0;
  uint32_t num_inputs_ = 0;
  int tensor_[kMaxSlots + 1];     // by slot; -1: a number, or not used
  int64_t size_[kMaxSlots + 1];   // bytes of an element
  int64_t align_[kMaxSlots + 1];  // bytes
  uint32_t loaded_ = 0;           // slots that the shader reads from memory
  uint32_t numbers_ = 0;          // slots that are numbers in Push::operand
  uint32_t units_ = 0;            // slots whose elements lie side by side along dimension 0
  Space space_;
  bool empty_ = false, flat_ = false, rows_ = false, rectangles_ = false, bytewise_ = false;
  int64_t vector_ = 1;
  int second_ = 1;        // the dimension beside the first one that a rectangle covers
  int64_t width_ = 1;     // threads along the first dimension, a power of two
  int64_t elements_ = 1;  // of a rectangle, to a thread
  uint32_t turned_ = 0;   // slots that lie along the second dimension
  int64_t tile_words_ = 1;
  int64_t groups_ = 0, columns_ = 0;  // of work groups: all, and those of a row
  Push push_{};                       // all but the addresses
  Layout layout_{};
  Kernel kernel_;
};

}  // namespace narrows::vulkan
