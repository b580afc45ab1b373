// SPDX-License-Identifier: Apache-2.0
// elementwise_map.cpp -- see elementwise_map.h.
#include "elementwise_map.h"

#include <cstdlib>

namespace narrows::vulkan {
namespace {

constexpr int64_t kVectorBytes = 16;  // of the widest operand

uint32_t word(int64_t x) { return static_cast<uint32_t>(x); }
uint64_t low_bytes(uint64_t bits, int64_t size) { return size == 8 ? bits : bits & ((uint64_t{1} << (8 * size)) - 1); }

constexpr int64_t kThreads = kGroupThreads;  // of a work group, a power of two
constexpr int64_t kTileWidth = 32;

// As in shaders/elementwise/elementwise_loop.glsl.
enum Loop : uint32_t { kAnyLayout, kWholeVectors, kRows, kRectangles };

}  // namespace

Operand tensor_operand(int tensor) { return {true, tensor, 0}; }
Operand number_operand(int dtype, double real, int64_t integer) {
  return {true, -1, low_bytes(stored_number_of(dtype, real, integer), size_of(dtype))};
}

// ---- planning ----

Map::Map(const MapRequest& r, int variant) {
  read(r);
  choose(r, variant);
  const Program& p = r.program;
  // A CPU has no latency to hide, and compiles the longer.
  const bool is_cpu = r.device.physical.is_cpu();
  const int64_t together = is_cpu ? 1 : vector_;
  const bool halves = p.a == NW_DTYPE_FLOAT16 && p.dtype == NW_DTYPE_FLOAT16 && p.out == NW_DTYPE_FLOAT16;
  const bool pairs = halves && vector_ == 8 && r.device.physical.converts_halves;
  rows_ = variant_ == kVector && !flat_ && space_.ndim == 2;
  rectangles_ = variant_ == kStrided && !is_cpu;
  if (rectangles_) elements_ = p.heavy ? 2 : 4;
  if (rows_ && !empty_) plan_rows();
  if (!empty_ && !flat_ && !rows_) plan_layout();
  if (!empty_ && !flat_ && r.device.physical.has_grid(columns_, groups_ / columns_)) push_.traits |= kHasGrid;
  const Loop loop = rectangles_ ? kRectangles : rows_ ? kRows : flat_ && !is_cpu ? kWholeVectors : kAnyLayout;
  kernel_ = r.device.kernels().get(
      *p.shader, {word(kThreads), word(p.function), word(p.a), word(p.dtype), word(p.out), loaded_, word(vector_), word(elements_),
                  variant_ == kScalar, word(p.operand), flat_, word(together), loop, turned_, word(tile_words_), numbers_, pairs});
}

void Map::read(const MapRequest& r) {
  slots_ = r.program.slots;
  push_.alpha = r.program.alpha;
  num_inputs_ = r.sig.num_inputs;
  empty_ = is_empty(r.shape);
  const nw_tensor_sig* tensors[kMaxSlots + 1];
  std::fill_n(tensor_, kMaxSlots + 1, -1);
  for (int k = 0; k <= slots_; ++k) {
    const int slot = k == slots_ ? kOut : k;
    const Operand from = slot == kOut ? tensor_operand(r.out) : r.slots[k];
    size_[slot] = size_of(r.program.dtype_of(slot));
    tensor_[slot] = from.used ? from.tensor : -1;
    tensors[k] = is_tensor(slot) ? &r.sig.tensors[from.tensor] : nullptr;
    if (is_tensor(slot)) {
      if (slot != kOut) loaded_ |= 1u << slot;
      align_[slot] = int64_t{1} << std::min<int>(tensors[k]->align_log2, 8);
      bytewise_ |= align_[slot] < size(slot);
    } else if (from.used) {
      push_.operand[slot] = from.number;
      // A CPU's compiler takes its time: there a number is read as a tensor is, from params, and calls with one and without share a
      // pipeline.
      if (r.device.physical.is_cpu())
        loaded_ |= 1u << slot, push_.traits |= repeated(slot);
      else
        numbers_ |= 1u << slot;
    }
  }
  int64_t sizes[kMaxSlots + 1];
  for (int k = 0; k <= slots_; ++k) sizes[k] = size_[k == slots_ ? kOut : k];
  collapse(r.shape, tensors, sizes, slots_ + 1, slots_, &space_);
  for (int slot = 0; slot <= kOut; ++slot) {
    if (!is_tensor(slot)) continue;
    if (space_.ndim == 0 || stride(slot, 0) == size(slot))
      units_ |= 1u << slot;
    else if (stride(slot, 0) == 0)
      push_.traits |= repeated(slot);
  }
}

// One run of elements, of which an operand has all or repeats one.
bool Map::is_flat() const {
  if (bytewise_ || space_.ndim > 1) return false;
  for (int slot = 0; slot <= kOut; ++slot)
    if (is_tensor(slot) && !(units_ >> slot & 1) && !is_repeated(slot)) return false;
  return true;
}

// Rows that are whole vectors, all of them aligned.
bool Map::has_rows() const {
  if (bytewise_ || !(units_ >> kOut & 1) || space_.ndim == 0 || space_.extent[0] % vector_ != 0) return false;
  for (int slot = 0; slot <= kOut; ++slot) {
    if (!is_tensor(slot) || is_repeated(slot)) continue;
    const int64_t bytes = vector_ * size(slot);
    if (!(units_ >> slot & 1) || align_[slot] < bytes || offset(slot) % bytes != 0) return false;
    for (int d = 1; d < space_.ndim; ++d)
      if (stride(slot, d) % bytes != 0) return false;
  }
  return true;
}

void Map::choose(const MapRequest& r, int variant) {
  int64_t widest = 1;
  for (int slot = 0; slot <= kOut; ++slot)
    if (slot == kOut || is_tensor(slot)) widest = std::max(widest, size(slot));
  vector_ = kVectorBytes / widest;
  flat_ = is_flat();
  variant_ = choose_variant(r.sig, r.out, variant, empty_ || flat_ || has_rows(), bytewise_);
  if (variant_ == kVector) return;
  vector_ = 1;
  flat_ = false;
}

// The slots that a tile over dimensions 0 and d turns.
uint32_t Map::turned_along(int d) const {
  uint32_t turned = 0;
  for (int slot = 0; slot < slots_; ++slot)
    if (is_tensor(slot) && is_turned(space_, slot, size(slot), d)) turned |= 1u << slot;
  return turned;
}

// The first dimension along which an input is to be turned; -1: there is none.
int Map::find_turned_dim() const {
  for (int d = 1; d < space_.ndim && rectangles_; ++d)
    if (turned_along(d) != 0) return d;
  return -1;
}

// The dimension beside the first one whose elements share a work group: the first that is long enough, else the longest.
int Map::find_second_dim() const {
  int longest = 1;
  for (int d = 1; d < space_.ndim; ++d) {
    if (space_.extent[d] >= kThreads * elements_ * vector_ / space_.extent[0]) return d;
    if (space_.extent[d] > space_.extent[longest]) longest = d;
  }
  return longest;
}

void Map::multiply_groups(int64_t by) {
  if (by > UINT32_MAX / groups_)
    refuse(NW_UNSUPPORTED, -1, "elementwise: more work groups than 32 bits can count for such a layout of so many elements");
  groups_ *= by;
}

// One vector of a row to a thread; a group takes as many rows as it has room for.
void Map::plan_rows() {
  const int64_t along = space_.extent[0] / vector_, rows = space_.extent[1];
  int64_t width = 1;
  while (width < along && width < kThreads) width *= 2;
  push_.width = static_cast<uint32_t>(width);
  push_.extent[0] = static_cast<uint64_t>(along);
  push_.extent[1] = static_cast<uint64_t>(rows);
  groups_ = columns_ = ceil_div(along, width);
  multiply_groups(ceil_div(rows, kThreads / width));
  for (int slot = 0; slot <= kOut; ++slot)
    if (is_tensor(slot)) push_.row_step[slot] = stride(slot, 1);
}

// What a work group has of the first two dimensions: a tile where an input is turned, else as many columns as threads, or as there
// are. A thread's elements follow the second dimension, or the first where that is long enough.
void Map::plan_rectangle() {
  const int64_t columns = space_.ndim == 0 ? 1 : space_.extent[0] / vector_;
  const int turned = find_turned_dim();
  bool along_first = false;
  if (turned >= 0) {
    second_ = turned;
    turned_ = turned_along(turned);
    width_ = kTileWidth;
    tile_words_ = kThreads * elements_ + width_;  // an odd number to a column
    for (int slot = 0; slot < slots_; ++slot)
      if ((turned_ >> slot & 1) && size(slot) == 8) tile_words_ = 2 * (kThreads * elements_ + width_);
  } else {
    second_ = find_second_dim();
    while (width_ < columns && width_ < kThreads) width_ *= 2;
    along_first = columns >= kThreads * elements_ || space_.ndim < 2;
  }
  const int64_t lines = kThreads / width_;
  push_.width = word(width_);
  layout_.apart[along_first ? 0 : 1] = word(along_first ? width_ : lines);
  layout_.block[0] = word(width_ * (along_first ? elements_ : 1));
  layout_.block[1] = word(lines * (along_first ? 1 : elements_));
}

void Map::plan_layout() {
  plan_rectangle();
  const int ndim = std::max(space_.ndim, 2);
  layout_.dims = word(ndim);
  groups_ = 1;
  for (int d = 0; d < ndim; ++d) {
    const int from = d == 1 ? second_ : d == second_ ? 1 : d;
    const int64_t extent = from >= space_.ndim ? 1 : space_.extent[from] / (d == 0 ? vector_ : 1);
    const int64_t blocks = ceil_div(extent, d < 2 ? int64_t{layout_.block[d]} : 1);
    if (d < 2) push_.extent[d] = static_cast<uint64_t>(extent);
    multiply_groups(blocks);
    if (d == 0) columns_ = blocks;
    layout_.dimension[d].blocks = static_cast<uint64_t>(blocks);
    for (int slot = 0; slot <= kOut; ++slot)
      if (is_tensor(slot) && from < space_.ndim) layout_.dimension[d].stride[slot] = stride(slot, from) * (d == 0 ? vector_ : 1);
  }
}

// ---- recording ----

Address Map::address(const nw_call& call, int slot) const {
  const auto index = static_cast<uint32_t>(tensor_[slot]);
  return vulkan::address(index < num_inputs_ ? call.inputs[index] : call.outputs[index - num_inputs_]) +
         static_cast<Address>(offset(slot));
}

// The vectors begin where the widest operand has an aligned address; whether the others are aligned there shows in the addresses.
void Map::record_run(Recorder& recorder, Push push) const {
  int widest = kOut;
  const auto at = [&](int slot) -> Address& { return slot == kOut ? push.out : push.operand[slot]; };
  for (int slot = 0; slot < kOut; ++slot)
    if ((units_ >> slot & 1) && size(slot) > size(widest)) widest = slot;
  const int64_t lead = static_cast<int64_t>(at(widest) % static_cast<Address>(vector_ * size(widest))) / size(widest);
  for (int slot = 0; slot <= kOut; ++slot) {
    if (!(units_ >> slot & 1)) continue;
    at(slot) -= static_cast<Address>(lead * size(slot));
    if (at(slot) % static_cast<Address>(vector_ * size(slot)) != 0) push.traits |= kMisaligned;
  }
  const int64_t count = space_.ndim == 0 ? 1 : space_.extent[0];
  push.extent[0] = static_cast<uint64_t>(count);
  push.extent[1] = static_cast<uint64_t>(lead);
  recorder.dispatch(kernel_, push, ceil_div(count + lead, vector_ * kThreads));
}

void Map::record(Recorder& recorder, const nw_call& call) const {
  if (empty_) return;
  Push push = push_;
  for (int slot = 0; slot < slots_; ++slot) {
    if (!(loaded_ >> slot & 1)) continue;
    push.operand[slot] = is_tensor(slot) ? address(call, slot) : recorder.params(push_.operand[slot]);
  }
  push.out = address(call, kOut);
  if (bytewise_) push.traits |= kMisaligned;
  if (flat_) return record_run(recorder, push);
  if (!rows_) push.layout = recorder.params(layout_);
  recorder.dispatch_rows(kernel_, push, columns_, groups_ / columns_);
}

}  // namespace narrows::vulkan
