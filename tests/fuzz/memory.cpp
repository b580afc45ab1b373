// SPDX-License-Identifier: Apache-2.0
// memory.cpp -- see memory.h.
#include "memory.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace narrows::fuzz {
namespace {

constexpr Wide kMostBytes = 1 << 16, kMostElements = 1 << 12;

uint64_t next(uint64_t* state) {  // SplitMix64
  uint64_t z = *state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Small multiples of 1/4, which every floating dtype holds; where functions are compared element by element, the special values
// too: sums of those are none of this oracle's business.
Exact real_value(DType dtype, bool specials, uint64_t bits) {
  constexpr Exact kInf = std::numeric_limits<Exact>::infinity(), kNaN = std::numeric_limits<Exact>::quiet_NaN();
  if (specials && bits >> 60 == 0) {
    const Exact list[] = {kNaN, kInf, -kInf, -0.0L, test::largest(dtype), test::lowest(dtype), test::smallest_subnormal(dtype), 1};
    return list[bits & 7];
  }
  return static_cast<Exact>(static_cast<int64_t>(bits % 25) - 12) / 4;
}

void store_value(DType dtype, bool specials, uint64_t bits, unsigned char* to) {
  if (test::is_float(dtype)) return test::store(dtype, real_value(dtype, specials, bits), to);
  if (dtype == DType::boolean) return void(*to = bits >> 63 ? static_cast<unsigned char>(bits >> 32) : 0);  // not 0: true
  const uint64_t raw = bits >> 63 ? bits >> 8 : bits >> 8 & 7;
  std::memcpy(to, &raw, static_cast<size_t>(test::item_size(dtype)));
}

// Every element's byte, counted from the first element's, in C order. Wide: with elements of 0 bits, strides of any size reach no
// byte.
std::vector<int64_t> element_offsets(const TensorSpec& t, int64_t count) {
  const int64_t item = (int64_t{t.dtype.bits} * t.dtype.lanes + 7) / 8;
  std::vector<int64_t> offsets(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    Wide rest = i, at = 0;
    for (size_t d = t.shape.size(); d-- > 0;) {
      if (t.shape[d] != 1) at += rest % t.shape[d] * t.stride(d);
      rest /= t.shape[d];
    }
    offsets[static_cast<size_t>(i)] = static_cast<int64_t>(at * item);
  }
  return offsets;
}

// Each stride steps over all that the smaller ones reach: then no two elements share a place, and anyone can tell.
bool plainly_disjoint(const TensorSpec& t) {
  std::vector<std::pair<Wide, int64_t>> dims;
  for (size_t d = 0; d < t.shape.size(); ++d)
    if (t.shape[d] != 1) dims.emplace_back(t.stride(d) < 0 ? -Wide{t.stride(d)} : Wide{t.stride(d)}, t.shape[d]);
  std::sort(dims.begin(), dims.end());
  Wide reached = 0;
  for (const auto& [stride, extent] : dims) {
    if (stride <= reached) return false;
    reached += stride * (extent - 1);
  }
  return true;
}

}  // namespace

struct Memory::Block {
  int64_t low = 0, high = 0;  // bytes from the root tensor's first element
  uint32_t misalign = 0;
  unsigned char* memory = nullptr;  // from malloc; what lies at `low` comes `misalign` bytes later
  std::vector<unsigned char> before;
  std::vector<bool> writable;
  size_t size() const { return static_cast<size_t>(high - low) + misalign; }
  ~Block() { std::free(memory); }
};

Memory::Memory(const Case& c, bool decoy) : c_(c), places_(c.size()), tensors_(c.size()), pointers_(c.size()) {
  for (size_t i = 0; i < c.size(); ++i) place(i);
  for (const auto& block : blocks_) {
    block->memory = static_cast<unsigned char*>(std::malloc(block->size()));
    std::memset(block->memory, 0xC5, block->size());
    block->writable.assign(block->size(), false);
  }
  for (Place& p : places_) {
    if (p.block == nullptr) continue;
    const int64_t shift = p.block->misalign - p.block->low;
    p.first += shift, p.begin += shift, p.end += shift;
    for (int64_t& offset : p.offsets) offset += p.first;
  }
  fill();
  for (size_t i = 0; i < c.size(); ++i) bind(i, decoy);
}
Memory::~Memory() = default;

void Memory::place(size_t i) {
  const TensorSpec& t = c_.tensor(i);
  const std::optional<Reach> r = t.present ? reach(t) : std::nullopt;
  if (!r || r->above - r->below > kMostBytes || r->elements > kMostElements) {
    complete_ &= !t.present;
    return;
  }
  Place& p = places_[i];
  const bool shares =
      t.shares_with >= 0 && static_cast<size_t>(t.shares_with) < i && places_[static_cast<size_t>(t.shares_with)].block != nullptr;
  if (shares) {
    const Place& root = places_[static_cast<size_t>(t.shares_with)];
    p.block = root.block;
    p.first = root.first + std::clamp<int32_t>(t.shift, -int32_t{kMostBytes}, int32_t{kMostBytes});
  } else {
    blocks_.push_back(std::make_unique<Block>());
    p.block = blocks_.back().get();
    p.block->misalign = t.misalign % 16;
  }
  p.begin = p.first + static_cast<int64_t>(r->below);
  p.end = p.first + static_cast<int64_t>(r->above);
  p.block->low = std::min(p.block->low, p.begin);
  p.block->high = std::max(p.block->high, p.end);
  p.offsets = element_offsets(t, static_cast<int64_t>(r->elements));
}

// Outputs keep the poison; where tensors share memory the later input's numbers stand.
void Memory::fill() {
  uint64_t state = c_.seed;
  const bool specials = c_.op == Op::elementwise;
  for (size_t i = 0; i < c_.inputs.size(); ++i) {
    const std::optional<DType> dtype = c_.inputs[i].known_dtype();
    if (places_[i].block == nullptr || !dtype) continue;
    for (const int64_t offset : places_[i].offsets) store_value(*dtype, specials, next(&state), places_[i].block->memory + offset);
  }
  for (size_t i = c_.inputs.size(); i < c_.size(); ++i) {
    const DLDataType dtype = c_.tensor(i).dtype;
    const int64_t item = (int64_t{dtype.bits} * dtype.lanes + 7) / 8;
    for (const int64_t offset : places_[i].offsets)
      for (int64_t byte = 0; byte < item; ++byte) places_[i].block->writable[static_cast<size_t>(offset + byte)] = true;
  }
}

void Memory::bind(size_t i, bool decoy) {
  static unsigned char few[64];
  const TensorSpec& t = c_.tensor(i);
  if (!t.present) return;
  DLTensor& d = tensors_[i];
  pointers_[i] = &d;
  unsigned char* const first = places_[i].block != nullptr ? places_[i].block->memory + places_[i].first : decoy ? few : nullptr;
  if (first != nullptr && !t.data_null) d.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(first) - t.byte_offset);
  d.device = t.device;
  d.ndim = t.ndim;
  d.dtype = t.dtype;
  d.shape = t.shape_null ? nullptr : const_cast<int64_t*>(t.shape.data());
  d.strides = t.strides_null ? nullptr : const_cast<int64_t*>(t.strides.data());
  d.byte_offset = t.byte_offset;
}

std::vector<Exact> Memory::values(size_t i) const {
  std::vector<Exact> out;
  const std::optional<DType> dtype = c_.tensor(i).known_dtype();
  if (dtype)
    for (const int64_t offset : places_[i].offsets) out.push_back(test::load(*dtype, places_[i].block->memory + offset));
  return out;
}

bool Memory::identical(size_t i, size_t j) const {
  const TensorSpec &a = c_.tensor(i), &b = c_.tensor(j);
  if (places_[i].first != places_[j].first || a.ndim != b.ndim || a.shape != b.shape) return false;
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (a.shape[d] != 1 && a.stride(d) != b.stride(d)) return false;
  return a.known_dtype() == b.known_dtype();
}

void Memory::judge_output(size_t i, Verdict* v) const {
  const Place& p = places_[i];
  const TensorSpec& t = c_.tensor(i);
  if (!plainly_disjoint(t)) v->unsettled = "an output whose elements may share a place";
  if (p.block == nullptr || p.offsets.empty()) return;
  const auto covered = [&](size_t of) {
    const int64_t item = test::item_size(*c_.tensor(of).known_dtype());
    std::vector<bool> bytes(p.block->size());
    bool twice = false;
    for (const int64_t offset : places_[of].offsets)
      for (int64_t byte = offset; byte < offset + item; ++byte) {
        twice = twice || bytes[static_cast<size_t>(byte)];
        bytes[static_cast<size_t>(byte)] = true;
      }
    return std::pair(bytes, twice);
  };
  const auto [own, twice] = covered(i);
  if (twice) v->illegal = "an output with two elements in one place";
  if (t.data_null) return;
  for (size_t j = 0; j < i; ++j) {
    const Place& q = places_[j];
    if (q.block != p.block || q.offsets.empty() || c_.tensor(j).data_null || q.begin >= p.end || p.begin >= q.end) continue;
    if (j < c_.inputs.size() && c_.op == Op::elementwise && identical(i, j)) continue;
    const auto other = covered(j).first;
    bool shared = false;
    for (size_t byte = 0; byte < own.size(); ++byte) shared = shared || (own[byte] && other[byte]);
    if (shared) v->illegal = "an output that overlaps another tensor";
    v->unsettled = "an output whose bytes lie between another tensor's";
  }
}

void Memory::judge(Verdict* v) const {
  for (size_t i = 0; i < c_.size(); ++i) {
    if (!c_.tensor(i).present || places_[i].block == nullptr || places_[i].offsets.empty() || c_.tensor(i).data_null) continue;
    const auto first = reinterpret_cast<uintptr_t>(places_[i].block->memory + places_[i].first);
    if (c_.tensor(i).byte_offset > first) v->illegal = "a byte_offset that leaves the address space";
  }
  if (!v->illegal.empty()) return;
  for (size_t i = c_.inputs.size(); i < c_.size(); ++i)
    if (c_.tensor(i).present && reach(c_.tensor(i))->elements != 0) judge_output(i, v);
}

void Memory::snapshot() {
  for (const auto& block : blocks_) block->before.assign(block->memory, block->memory + block->size());
}

std::string Memory::damage(bool refused) const {
  for (const auto& block : blocks_)
    for (size_t byte = 0; byte < block->size(); ++byte)
      if (block->memory[byte] != block->before[byte] && (refused || !block->writable[byte]))
        return "byte " + std::to_string(byte) + " of a block of " + std::to_string(block->size()) + " changed from " +
               std::to_string(block->before[byte]) + " to " + std::to_string(block->memory[byte]);
  return "";
}

}  // namespace narrows::fuzz
