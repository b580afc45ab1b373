// SPDX-License-Identifier: Apache-2.0
// elementwise_map.cpp -- see elementwise_map.h.
#include "elementwise_map.h"

#include <cstdlib>
#include <functional>

#include "overlap.h"

namespace narrows::gpu {

// ---- tables ----

namespace {

const FunctionTable* table_of(int dtype) {
  switch (dtype) {
    case NW_DTYPE_FLOAT32: return &kFunctionsF32;
    case NW_DTYPE_FLOAT64: return &kFunctionsF64;
    case NW_DTYPE_FLOAT16: return &kFunctionsF16;
    case NW_DTYPE_BFLOAT16: return &kFunctionsBf16;
    case NW_DTYPE_INT8: return &kFunctionsI8;
    case NW_DTYPE_INT16: return &kFunctionsI16;
    case NW_DTYPE_INT32: return &kFunctionsI32;
    case NW_DTYPE_INT64: return &kFunctionsI64;
    case NW_DTYPE_UINT8: return &kFunctionsU8;
    case NW_DTYPE_UINT16: return &kFunctionsU16;
    case NW_DTYPE_UINT32: return &kFunctionsU32;
    case NW_DTYPE_UINT64: return &kFunctionsU64;
    default: return &kFunctionsBool;
  }
}

}  // namespace

const Kernels* find_kernels(int function, int dtype) {
  if (moves_bits(function)) return table_of(bits_dtype(dtype))->find(function);
  const Kernels* found = table_of(dtype)->find(function);
  return found != nullptr || kind_of(dtype) == kFloat ? found : table_of(bits_dtype(dtype))->find(function);
}

const Kernels& find_cast(int from, int to) {
  const Kernels* const to_dtype[] = {kCastsF32, kCastsF64, kCastsF16, kCastsBf16, kCastsI8,  kCastsI16, kCastsI32,
                                     kCastsI64, kCastsU8,  kCastsU16, kCastsU32,  kCastsU64, kCastsBool};
  return to_dtype[to - 1][from - 1];
}

Divider make_divider(int64_t divisor) {
  const common::Divider by(divisor);
  return {static_cast<uint32_t>(divisor), by.multiplier, by.shift};
}

// ---- planning ----

namespace {

constexpr int kPassBytes =
    8;  // of an element by a block's passes, at most; or one pass: wide ones have enough on their way at once
constexpr int64_t kMostIndices = int64_t{1} << 30;  // of one launch; kernels divide indices below 2^31
constexpr double kMostElements = 0x1p42;            // of an output, 4 TiB of bytes: its launches, which are planned, are thousands

// Cuts an iteration into parts of at most kMostIndices: body(extents, dimensions, offsets by dimension).
void cut(const int64_t* extent, int ndim, const std::function<void(const int64_t*, int, const int64_t*)>& body) {
  int64_t part[NW_MAX_NDIM], start[NW_MAX_NDIM] = {}, inner = 1;
  int split = 0;
  for (; split < ndim && extent[split] <= kMostIndices / inner; ++split) inner *= part[split] = extent[split];
  if (split == ndim) return body(part, ndim, start);
  const int64_t range = std::max<int64_t>(kMostIndices / inner, 1);
  for (;;) {
    for (start[split] = 0; start[split] < extent[split]; start[split] += range) {
      part[split] = std::min(range, extent[split] - start[split]);
      body(part, split + 1, start);
    }
    int d = split + 1;
    while (d < ndim && ++start[d] == extent[d]) start[d++] = 0;
    if (d >= ndim) return;
  }
}

int largest_power(uint64_t x) { return static_cast<int>(x & (~x + 1) & 31); }  // of two that divides x; 0: 32 or more
int alignment(uint64_t address) { return largest_power(address | 16); }        // at most 16

}  // namespace

void Map::read(const MapRequest& r) {
  kernels_ = r.kernels;
  generation_ = r.instance.device(r.sig).generation;
  num_slots_ = r.kernels.slots;
  num_inputs_ = r.sig.num_inputs;
  const nw_tensor_sig* tensors[kMaxSlots + 1];
  int64_t sizes[kMaxSlots + 1];
  for (int k = 0; k <= num_slots_; ++k) {
    const int slot = k == num_slots_ ? kOut : k;
    const int tensor = slot == kOut ? r.out : r.slots[k].tensor;
    tensor_[slot] = tensor;
    tensors[k] = tensor < 0 ? nullptr : &r.sig.tensors[tensor];
    sizes[k] = kernels_.size[slot];
    if (tensor < 0) {
      numbers_ |= 1u << slot;
      number_[slot] = r.slots[k].number;
      continue;
    }
    align_[slot] = 1 << std::min<int>(tensors[k]->align_log2, 8);
    bytewise_ |= align_[slot] < sizes[k];
  }
  collapse(r.shape, tensors, sizes, num_slots_ + 1, num_slots_, &space_);
  empty_ = is_empty(r.shape);
  for (int slot = 0; slot <= kOut; ++slot)
    if ((slot < num_slots_ || slot == kOut) && !(numbers_ >> slot & 1) &&
        (space_.ndim == 0 || stride(slot, 0) == kernels_.size[slot]))
      units_ |= 1u << slot;
}

// One run of elements, of which an operand has all or repeats one.
bool Map::is_flat() const {
  if (bytewise_ || space_.ndim > 1 || !(units_ >> kOut & 1)) return false;
  for (int k = 0; k < num_slots_; ++k)
    if (!((numbers_ | units_) >> k & 1) && stride(k, 0) != 0) return false;
  return true;
}

// Rows that are whole vectors, all of them aligned.
bool Map::has_rows() const {
  const int vector = kernels_.vector_elements;
  if (bytewise_ || space_.ndim > VectorArgs::kDims || !(units_ >> kOut & 1) || space_.extent[0] % vector != 0) return false;
  for (int slot = 0; slot <= kOut; ++slot) {
    if ((slot >= num_slots_ && slot != kOut) || (numbers_ >> slot & 1)) continue;
    if (!(units_ >> slot & 1)) {
      if (stride(slot, 0) != 0) return false;
      continue;
    }
    const int64_t bytes = int64_t{vector} * kernels_.size[slot];
    if (align_[slot] < bytes || offset(slot) % bytes != 0) return false;
    for (int d = 1; d < space_.ndim; ++d)
      if (stride(slot, d) % bytes != 0) return false;
  }
  return true;
}

bool Map::streams(const MapRequest& r) const {
  double elements = 1, bytes = 0;  // floating point does not overflow
  for (int d = 0; d < space_.ndim; ++d) elements *= static_cast<double>(space_.extent[d]);
  for (int slot = 0; slot <= kOut; ++slot) {
    if ((slot >= num_slots_ && slot != kOut) || (numbers_ >> slot & 1)) continue;
    double own = elements;
    for (int d = 0; d < space_.ndim; ++d)
      if (stride(slot, d) == 0) own /= static_cast<double>(space_.extent[d]);
    bytes += own * kernels_.size[slot];
  }
  return bytes > static_cast<double>(r.instance.device(r.sig).l2_cache);
}

void Map::plan_flat(const MapRequest& r) {
  VectorLaunch one{};
  one.args.n = space_.ndim == 0 ? 1 : space_.extent[0];
  one.args.numbers = numbers_;
  one.args.units = units_;
  one.args.repeated = ((1u << num_slots_) - 1) & ~units_;
  one.args.streamed = streams(r);
  one.args.overlaps = !one.args.streamed && width_access_ == 0;
  std::copy_n(number_, kMaxSlots, one.args.number);
  for (int slot = 0; slot <= kOut; ++slot) one.offset[slot] = slot < num_slots_ || slot == kOut ? offset(slot) : 0;
  vector_.push_back(one);
  flat_ = true;
}

void Map::plan_rows() {
  const int vector = kernels_.vector_elements;
  VectorLaunch one{};
  one.args.numbers = numbers_;
  one.args.units = units_;
  one.args.repeated = ((1u << num_slots_) - 1) & ~units_;
  std::copy_n(number_, kMaxSlots, one.args.number);
  int64_t extent[NW_MAX_NDIM] = {};
  std::copy_n(space_.extent, space_.ndim, extent);
  extent[0] /= vector;
  cut(extent, space_.ndim, [&](const int64_t* part, int ndim, const int64_t* start) {
    one.args.num_whole = 1;
    one.args.dims = ndim;
    for (int d = 0; d < ndim; ++d) {
      one.args.num_whole *= part[d];
      one.args.divider[d] = make_divider(part[d]);
    }
    for (int slot = 0; slot <= kOut; ++slot) {
      if (slot >= num_slots_ && slot != kOut) continue;
      one.offset[slot] = offset(slot);
      for (int d = 0; d < space_.ndim; ++d) {
        const int64_t step = d == 0 ? stride(slot, 0) * vector : stride(slot, d);
        one.args.stride[slot][d] = step;
        one.offset[slot] += start[d] * step;
      }
    }
    one.blocks = ceil_div(one.args.num_whole, kVectorThreads);
    vector_.push_back(one);
  });
}

// A dimension along which an input lies that is far apart along dimension 0; -1: there is none.
int Map::find_tile_dim() const {
  for (int k = 0; k < num_slots_ && variant_ != kScalar; ++k)
    for (int d = 1; d < space_.ndim; ++d)
      if (!(numbers_ >> k & 1) && is_turned(space_, k, kernels_.size[k], d)) return d;
  return -1;
}

// The dimension beside the first one whose elements share a block: the first that is long enough, else the longest.
int Map::find_second_dim() const {
  int longest = 1;
  for (int d = 1; d < space_.ndim; ++d) {
    if (space_.extent[d] >= kStridedThreads / space_.extent[0]) return d;
    if (space_.extent[d] > space_.extent[longest]) longest = d;
  }
  return longest;
}

// A block's rectangle, and the way of its threads through it: as many passes as leave every multiprocessor enough blocks.
void Map::plan_block(const MapRequest& r, bool tiled, const int64_t* extent, int ndim, StridedArgs* args) const {
  const int elements = variant_ == kScalar ? 1 : kernels_.strided_elements;
  args->passes = 1;
  if (tiled) {
    args->width = kernels_.tile;
    args->passes = kernels_.tile * kernels_.tile / (kStridedThreads * elements);
    args->apart[1] = kStridedThreads / args->width;
    args->block[0] = args->block[1] = kernels_.tile;
    return;
  }
  args->width = 1;
  while (args->width < extent[0] && args->width < kStridedThreads) args->width *= 2;
  const int lines = kStridedThreads / args->width;
  const bool along_first = extent[0] >= int64_t{kStridedThreads} * elements || extent[1] == 1;
  args->apart[along_first ? 0 : 1] = along_first ? args->width : lines;
  double blocks = 1.0 / (kStridedThreads * elements);
  for (int d = 0; d < ndim; ++d) blocks *= static_cast<double>(extent[d]);
  const int largest = *std::max_element(kernels_.size, kernels_.size + kMaxSlots + 1);
  const double enough = 32.0 * r.instance.device(r.sig).multiprocessors;
  while (args->passes * largest < kPassBytes && blocks > 2 * enough * args->passes &&
         extent[along_first ? 0 : 1] >= int64_t{2} * args->passes * elements * (along_first ? args->width : lines))
    args->passes *= 2;
  args->block[0] = args->width * (along_first ? elements * args->passes : 1);
  args->block[1] = lines * (along_first ? 1 : elements * args->passes);
}

void Map::plan_strided(const MapRequest& r) {
  StridedLaunch one{};
  one.args.numbers = numbers_;
  one.args.bytewise = bytewise_;
  std::copy_n(number_, kMaxSlots, one.args.number);
  const int tile_dim = find_tile_dim(), second = tile_dim >= 0 ? tile_dim : find_second_dim(), ndim = std::max(space_.ndim, 2);
  int64_t extent[NW_MAX_NDIM], whole[2], step[kMaxSlots + 1][NW_MAX_NDIM] = {};
  for (int d = 0; d < ndim; ++d) {
    const int from = d == 1 ? second : d == second ? 1 : d;
    extent[d] = from < space_.ndim ? space_.extent[from] : 1;
    for (int slot = 0; slot <= kOut; ++slot)
      if ((slot < num_slots_ || slot == kOut) && from < space_.ndim) step[slot][d] = stride(slot, from);
  }
  plan_block(r, tile_dim >= 0, extent, ndim, &one.args);
  for (int k = 0; k < num_slots_; ++k)
    if (tile_dim >= 0 && !(numbers_ >> k & 1) && step[k][1] != 0 && std::abs(step[k][1]) * 4 <= std::abs(step[k][0]))
      if (const auto bytes = static_cast<size_t>((__builtin_popcount(one.args.staged) + 1) * kernels_.tile_bytes);
          bytes <= r.instance.device(r.sig).shared_memory)
        one.args.staged |= 1u << k;
  for (int d = 0; d < 2; ++d) {
    whole[d] = extent[d];
    extent[d] = ceil_div(extent[d], one.args.block[d]);
    for (int slot = 0; slot <= kOut; ++slot) {
      one.args.inner[slot][d] = step[slot][d];
      one.args.step[slot] += one.args.apart[d] * step[slot][d];
      step[slot][d] *= one.args.block[d];
    }
  }
  cut(extent, ndim, [&](const int64_t* part, int dims, const int64_t* start) {
    one.blocks = 1;
    one.args.dims = std::max(dims, 2);
    for (int d = 0; d < one.args.dims; ++d) {
      const int64_t own = d < dims ? part[d] : 1;
      one.blocks *= own;
      one.args.divider[d] = make_divider(own);
    }
    for (int d = 0; d < 2; ++d) one.args.extent[d] = whole[d] - start[d] * one.args.block[d];
    for (int slot = 0; slot <= kOut; ++slot) {
      if (slot >= num_slots_ && slot != kOut) continue;
      one.offset[slot] = offset(slot);
      for (int d = 0; d < ndim; ++d) {
        one.args.stride[slot][d] = step[slot][d];
        one.offset[slot] += start[d] * step[slot][d];
      }
    }
    strided_.push_back(one);
  });
}

void Map::plan(const MapRequest& r, int variant) {
  read(r);
  if (empty_) {
    variant_ = variant == kOwnChoice ? kVector : variant;
    return;
  }
  double elements = 1;
  for (int d = 0; d < space_.ndim; ++d) elements *= static_cast<double>(space_.extent[d]);
  if (elements > kMostElements)
    refuse(NW_UNSUPPORTED, r.out, "%s: tensor %d has %.4g elements; expected at most 2^42", r.sig.op, r.out, elements);
  const bool alone = num_slots_ == 1 && !(units_ & 1);  // vector_kernel takes a function's one operand in vectors only
  const bool flat = !alone && is_flat(), rows = !alone && !flat && has_rows();
  variant_ = choose_variant(r.sig, r.out, variant, flat || rows, bytewise_);
  if (variant_ != kVector) {
    plan_strided(r);
    const int staged = __builtin_popcount(strided_[0].args.staged);
    elements_ =
        load_kernel(variant_ == kScalar ? kernels_.scalar : kernels_.strided, static_cast<size_t>(staged * kernels_.tile_bytes));
    return;
  }
  flat ? plan_flat(r) : plan_rows();
  vectors_ = load_kernel(flat ? kernels_.vector : kernels_.rows);
}

void Map::plan_width(const MapRequest& r, const char* name, void (*kernel)(VectorArgs), int elements, int access) {
  read(r);
  kernels_.vector = kernel;
  kernels_.vector_elements = elements;
  width_access_ = access;
  if (empty_) return;
  if (!is_flat() || (num_slots_ == 1 && !(units_ & 1)))
    refuse(NW_UNSUPPORTED, r.out, "%s: kernel '%s' needs contiguous operands", r.sig.op, name);
  for (int slot = 0; slot <= kOut; ++slot)
    if ((units_ >> slot & 1) && align_[slot] < access)
      refuse(NW_UNSUPPORTED, tensor_[slot], "%s: kernel '%s' needs operands aligned to %d bytes; this one is aligned to %d",
             r.sig.op, name, access, align_[slot]);
  plan_flat(r);
  vectors_ = load_kernel(kernel);
}

// ---- launch ----

char* Map::address(const nw_call& call, int k) const {
  const auto index = static_cast<uint32_t>(tensor_[k]);
  return data<char>(index < num_inputs_ ? call.inputs[index] : call.outputs[index - num_inputs_]);
}

// The vectors begin where the widest operand has an aligned address; what else is aligned there shows in the addresses.
void Map::launch_flat(const nw_call& call) const {
  VectorArgs args = vector_[0].args;
  const int vector = kernels_.vector_elements;
  int widest = kOut;
  uint64_t addresses[kMaxSlots + 1] = {};
  for (int k = 0; k <= kOut; ++k) {
    if ((k >= num_slots_ && k != kOut) || (numbers_ >> k & 1)) continue;
    char* const at = address(call, k) + vector_[0].offset[k];
    addresses[k] = reinterpret_cast<uint64_t>(at);
    if ((units_ >> k & 1) && kernels_.size[k] > kernels_.size[widest]) widest = k;
    (k == kOut ? args.out : const_cast<char*&>(args.in[k])) = at;
  }
  const auto size = static_cast<uint64_t>(kernels_.size[widest]);
  if (width_access_ == 0) args.lead = static_cast<int32_t>(addresses[widest] % (size * static_cast<uint64_t>(vector)) / size);
  bool aligned = true;
  for (int k = 0; k <= kOut; ++k) {
    if (!(units_ >> k & 1)) continue;
    const int64_t back = int64_t{args.lead} * kernels_.size[k];
    args.access[k] = static_cast<uint8_t>(alignment(addresses[k] - static_cast<uint64_t>(back)));
    aligned &= args.access[k] >= std::min<int>(vector * kernels_.size[k], width_access_ == 0 ? 16 : width_access_);
    (k == kOut ? args.out : const_cast<char*&>(args.in[k])) -= back;
  }
  const int64_t places = args.n + args.lead;
  args.first_whole = args.lead != 0;
  args.num_whole = aligned ? std::max<int64_t>(places / vector - args.first_whole, 0) : 0;
  const int64_t blocks = ceil_div(places, int64_t{vector} * kVectorThreads);
  if (args.overlaps)
    launch_overlapping(generation_, vectors_, blocks, kVectorThreads, 0, stream_of(call), args);
  else
    launch_kernel(vectors_, blocks, kVectorThreads, 0, stream_of(call), args);
}

void Map::launch(const nw_call& call) const {
  if (empty_) return;
  if (flat_) return launch_flat(call);
  char* base[kMaxSlots + 1] = {};
  for (int k = 0; k <= kOut; ++k)
    if ((k < num_slots_ || k == kOut) && !(numbers_ >> k & 1)) base[k] = address(call, k);
  const auto set = [&](auto& args, const int64_t* offset) {
    for (int k = 0; k < num_slots_; ++k)
      if (!(numbers_ >> k & 1)) args.in[k] = base[k] + offset[k];
    args.out = base[kOut] + offset[kOut];
  };
  for (const VectorLaunch& one : vector_) {
    VectorArgs args = one.args;
    set(args, one.offset);
    launch_kernel(vectors_, one.blocks, kVectorThreads, 0, stream_of(call), args);
  }
  for (const StridedLaunch& one : strided_) {
    StridedArgs args = one.args;
    set(args, one.offset);
    const int staged = __builtin_popcount(args.staged);
    launch_kernel(elements_, one.blocks, kStridedThreads, static_cast<size_t>(staged * kernels_.tile_bytes), stream_of(call), args);
  }
}

}  // namespace narrows::gpu
