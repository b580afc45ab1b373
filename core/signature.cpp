// SPDX-License-Identifier: Apache-2.0
// signature.cpp -- see signature.h.
//
// The key: four words (device; flags and counts; lengths of names; size of params), the strings and params padded to words, then
// for each tensor one word (dtype, rank, alignment, alias) followed by its shape and strides. nw_tensor_sig points into it.
#include "core/signature.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/overlap.h"
#include "core/program_op.h"

namespace narrows {
namespace {

constexpr size_t kHeaderWords = 4;
constexpr size_t kMaxName = 255;
constexpr uint16_t kMaxAlign = 8;  // log2 of 256

// In a tensor's first word.
constexpr uint64_t kAlign = uint64_t{0xFF} << 40;
constexpr uint64_t kNoAlias = uint64_t{0xFFFF} << 48;

std::string show_strides(const DLTensor& t) { return t.strides == nullptr ? "NULL" : show_shape(t.strides, t.ndim); }

size_t words_of(size_t bytes) { return (bytes + 7) / 8; }
size_t tensor_words(const nw_tensor_sig& t) { return 1 + 2 * static_cast<size_t>(std::max(t.ndim, 0)); }

// Bytes up to the last one that is not 0.
uint64_t without_trailing_zeros(const void* data, uint64_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (uint64_t word; size >= 8; size -= 8) {
    std::memcpy(&word, bytes + size - 8, 8);
    if (word != 0) break;
  }
  while (size != 0 && bytes[size - 1] == 0) --size;
  return size;
}

// The bytes that strides reach below the first one, as a number of 0 or less, and from it on. It walks as byte_range() does, which
// takes tensors that were checked: this is the check, so every product and sum is tested for overflow.
bool reach_overflows(const int64_t* shape, const int64_t* strides, int32_t ndim, int64_t item, int64_t* below, int64_t* above) {
  int64_t low = 0, high = 0;
  bool overflow = false;
  for (int32_t d = 0; d < ndim; ++d) {
    int64_t reach;
    overflow |= __builtin_mul_overflow(shape[d] - 1, strides[d], &reach);
    overflow |= __builtin_add_overflow(low, std::min<int64_t>(reach, 0), &low);
    overflow |= __builtin_add_overflow(high, std::max<int64_t>(reach, 0), &high);
  }
  overflow |= __builtin_mul_overflow(low, item, below);
  overflow |= __builtin_add_overflow(high, 1, &high);
  overflow |= __builtin_mul_overflow(high, item, above);
  return overflow;
}

size_t name_size(const char* what, const char* name) {
  if (name == nullptr) return 0;
  const size_t size = strnlen(name, kMaxName + 1);
  if (size > kMaxName) throw_failure(NW_INVALID, -1, "%s has a name of more than %zu bytes", what, kMaxName);
  return size;
}

}  // namespace

Signature::Signature(const nw_call& call, DLDevice device, const char* backend, Memory memory, const TensorNames& names)
    : call_(call), names_(names), num_inputs_(call.num_inputs) {
  while (num_inputs_ != 0 && call.inputs[num_inputs_ - 1] == nullptr) --num_inputs_;
  if (call.params == nullptr && call.params_size != 0)
    throw_failure(NW_INVALID, -1, "%s: params is NULL, but params_size = %llu; expected 0", call.op,
                  static_cast<unsigned long long>(call.params_size));
  params_size_ = without_trailing_zeros(call.params, call.params_size);
  op_size_ = name_size("op", call.op);
  kernel_size_ = name_size("kernel", call.kernel);
  backend_size_ = name_size("backend", backend);
  count_words();
  write_header(device, backend);
  sig_.num_outputs = call.num_outputs;
  for (uint32_t i = 0; i < num_inputs_ + call.num_outputs; ++i) write_tensor(i, memory);
  if (memory != Memory::ignored) find_aliases();
}

Key Signature::key() const { return {XXH3_64bits(words_, size_ * sizeof *words_), words_, size_}; }

bool Signature::fits(const std::vector<uint64_t>& planned) const {
  if (planned.size() != size_) return false;
  if (std::equal(planned.begin(), planned.end(), words_)) return true;
  std::vector<uint64_t> aligned = planned;  // raised to this call's alignments where they are higher
  size_t word = size_;
  for (uint32_t i = sig_.num_inputs + sig_.num_outputs; i-- > 0;) {
    word -= tensor_words(tensors_[i]);
    if ((aligned[word] & kAlign) < (words_[word] & kAlign)) aligned[word] = (aligned[word] & ~kAlign) | (words_[word] & kAlign);
  }
  return std::equal(aligned.begin(), aligned.end(), words_);
}

void Signature::count_words() {
  size_t count =
      kHeaderWords + words_of(op_size_ + 1) + words_of(kernel_size_ + 1) + words_of(backend_size_ + 1) + words_of(params_size_);
  for (uint32_t i = 0; i < call_.num_inputs + call_.num_outputs; ++i) {
    const DLTensor* t = tensor(i);
    if (t == nullptr) {
      count += 1;
      continue;
    }
    if (static_cast<uint32_t>(t->ndim) > NW_MAX_NDIM || (t->shape == nullptr && t->ndim != 0)) refuse_rank(i);
    count += 1 + 2 * static_cast<size_t>(t->ndim);
  }
  if (count > kInlineWords) {
    more_words_.reset(new uint64_t[count]);
    words_ = more_words_.get();
  }
}

const char* Signature::write_text(const char* text, size_t size) {
  uint64_t* const at = words_ + size_;
  size_ += words_of(size + 1);
  words_[size_ - 1] = 0;
  if (text != nullptr) std::memcpy(at, text, size);
  return reinterpret_cast<const char*>(at);
}

void Signature::write_header(DLDevice device, const char* backend) {
  words_[0] = static_cast<uint32_t>(device.device_type) | uint64_t{static_cast<uint32_t>(device.device_id)} << 32;
  words_[1] = call_.flags | uint64_t{num_inputs_} << 32 | uint64_t{call_.num_outputs} << 48;
  // A name that is NULL differs from an empty one.
  words_[2] = op_size_ | uint64_t{call_.kernel != nullptr ? kernel_size_ + 1 : 0} << 16 |
              uint64_t{backend != nullptr ? backend_size_ + 1 : 0} << 32;
  words_[3] = params_size_;
  size_ = kHeaderWords;
  sig_.struct_size = sizeof sig_;
  sig_.flags = call_.flags;
  sig_.num_inputs = num_inputs_;
  sig_.device = device;
  sig_.tensors = tensors_;
  sig_.op = write_text(call_.op, op_size_);
  const char* const kernel = write_text(call_.kernel, kernel_size_);
  sig_.kernel = call_.kernel != nullptr ? kernel : nullptr;
  write_text(backend, backend_size_);
  sig_.params_size = params_size_;
  sig_.params = params_size_ != 0 ? words_ + size_ : nullptr;
  if (params_size_ != 0) {
    size_ += words_of(params_size_);
    words_[size_ - 1] = 0;
    std::memcpy(words_ + (size_ - words_of(params_size_)), call_.params, params_size_);
  }
}

void Signature::write_tensor(uint32_t i, Memory memory) {
  const uint32_t in_call = i < num_inputs_ ? i : i - num_inputs_ + call_.num_inputs;
  const DLTensor* const t = tensor(in_call);
  nw_tensor_sig& out = tensors_[i];
  uint64_t& word = words_[size_++];
  ranges_[i] = {0, 0};
  if (t == nullptr) {
    out = nw_tensor_sig{{0, 0, 0}, -1, 0, 0, -1, nullptr, nullptr};
    word = ~uint64_t{0};
    return;
  }
  const int32_t ndim = t->ndim;
  auto* const shape = reinterpret_cast<int64_t*>(words_ + size_);
  int64_t* const strides = shape + ndim;
  size_ += 2 * static_cast<size_t>(ndim);
  int64_t elements = 1;
  bool overflow = false, empty = false, contiguous = true;
  for (int32_t d = ndim; d-- > 0;) {
    const int64_t extent = t->shape[d];
    const int64_t stride = extent > 1 && t->strides != nullptr ? t->strides[d] : elements;
    shape[d] = extent;
    strides[d] = stride;
    contiguous &= stride == elements;
    if (__builtin_expect(extent < 1, 0)) {
      if (extent < 0) refuse_shape(in_call);
      empty = true;
      continue;
    }
    overflow |= __builtin_mul_overflow(elements, extent, &elements);
  }
  uint16_t align = kMaxAlign;
  if (__builtin_expect(empty, 0)) {
    write_empty_strides(shape, strides, ndim);
  } else {
    const int64_t item = item_size(t->dtype);
    int64_t below = 0, above;
    overflow |= __builtin_mul_overflow(elements, item, &above);
    if (!contiguous) overflow |= reach_overflows(shape, strides, ndim, item, &below, &above);
    if (__builtin_expect(overflow, 0)) refuse_size(in_call);
    if (memory != Memory::ignored) align = locate(i, in_call, *t, below, above, memory);
  }
  out = nw_tensor_sig{t->dtype, ndim, align, 0, -1, shape, strides};
  uint32_t dtype;
  static_assert(sizeof dtype == sizeof t->dtype);
  std::memcpy(&dtype, &t->dtype, sizeof dtype);
  word = dtype | uint64_t{static_cast<uint8_t>(ndim)} << 32 | uint64_t{align} << 40 | kNoAlias;
}

// Where the bytes lie; gives the log2 of the first element's alignment.
inline uint16_t Signature::locate(uint32_t i, uint32_t in_call, const DLTensor& t, int64_t below, int64_t above, Memory memory) {
  const auto data = reinterpret_cast<uintptr_t>(t.data);
  const uint64_t first = data + t.byte_offset;
  if (__builtin_expect(data == 0, 0)) {
    if (memory == Memory::needed) refuse_null(in_call);
  } else {
    ByteRange& e = ranges_[i];
    bool leaves = first < data;
    leaves |= __builtin_sub_overflow(first, uint64_t{0} - static_cast<uint64_t>(below), &e.begin);
    leaves |= __builtin_add_overflow(first, static_cast<uint64_t>(above), &e.end);
    if (__builtin_expect(leaves, 0)) refuse_address(in_call);
  }
  return static_cast<uint16_t>(__builtin_ctzll(first | 1ull << kMaxAlign));
}

// Strides mean nothing where there is no element: those of a contiguous tensor, as far as they can be counted.
void Signature::write_empty_strides(const int64_t* shape, int64_t* strides, int32_t ndim) {
  int64_t contiguous = 1;
  for (int32_t d = ndim; d-- > 0;) {
    strides[d] = contiguous;
    if (__builtin_mul_overflow(contiguous, std::max<int64_t>(shape[d], 1), &contiguous)) contiguous = 1;
  }
}

void Signature::refuse_rank(uint32_t i) const {
  const int32_t ndim = tensor(i)->ndim;
  if (ndim < 0 || ndim > NW_MAX_NDIM)
    throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s has ndim %d; expected 0 to %d", call_.op, names_.tensor(i).c_str(),
                  ndim, NW_MAX_NDIM);
  throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s has shape NULL and ndim %d; expected %d extents", call_.op,
                names_.tensor(i).c_str(), ndim, ndim);
}

void Signature::refuse_shape(uint32_t i) const {
  const DLTensor& t = *tensor(i);
  throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s has shape %s; expected extents of 0 or more", call_.op,
                names_.tensor(i).c_str(), show_shape(t.shape, t.ndim).c_str());
}

void Signature::refuse_size(uint32_t i) const {
  const DLTensor& t = *tensor(i);
  throw_failure(NW_INVALID, static_cast<int32_t>(i),
                "%s: %s has shape %s and strides %s, whose bytes overflow 64 bits; expected at most 2^63 - 1", call_.op,
                names_.tensor(i).c_str(), show_shape(t.shape, t.ndim).c_str(), show_strides(t).c_str());
}

void Signature::refuse_null(uint32_t i) const {
  const DLTensor& t = *tensor(i);
  throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s has data NULL and shape %s; expected memory for its elements",
                call_.op, names_.tensor(i).c_str(), show_shape(t.shape, t.ndim).c_str());
}

void Signature::refuse_address(uint32_t i) const {
  const DLTensor& t = *tensor(i);
  throw_failure(NW_INVALID, static_cast<int32_t>(i),
                "%s: %s of shape %s and strides %s at %p + %llu leaves the address space; expected elements between 0 and 2^64",
                call_.op, names_.tensor(i).c_str(), show_shape(t.shape, t.ndim).c_str(), show_strides(t).c_str(), t.data,
                static_cast<unsigned long long>(t.byte_offset));
}

// Is the output exactly that input: same first element, dtype, shape and strides?
bool Signature::identical(uint32_t output, uint32_t input) const {
  const nw_tensor_sig &a = tensors_[output], &b = tensors_[input];
  return ranges_[output].begin == ranges_[input].begin && ranges_[output].end == ranges_[input].end && a.ndim == b.ndim &&
         std::memcmp(&a.dtype, &b.dtype, sizeof a.dtype) == 0 && std::equal(a.shape, a.shape + a.ndim, b.shape) &&
         std::equal(a.strides, a.strides + a.ndim, b.strides);
}

void Signature::check_overlap(uint32_t output, uint32_t other) {
  const nw_tensor_sig &a = tensors_[output], &b = tensors_[other];
  const auto address = [this](uint32_t i) {
    const DLTensor* t = tensor(i < num_inputs_ ? i : i - num_inputs_ + call_.num_inputs);
    return reinterpret_cast<uintptr_t>(t->data) + t->byte_offset;
  };
  const bool comparable =
      a.ndim == b.ndim && std::equal(a.strides, a.strides + a.ndim, b.strides) && item_size(a.dtype) == item_size(b.dtype);
  if (comparable && !may_share_byte(a, b, static_cast<int64_t>(address(other) - address(output)))) return;
  const uint32_t in_call = output - num_inputs_ + call_.num_inputs;
  const uint32_t other_in_call = other < num_inputs_ ? other : other - num_inputs_ + call_.num_inputs;
  throw_failure(NW_INVALID, static_cast<int32_t>(in_call),
                "%s: %s of shape %s and strides %s overlaps %s of shape %s and strides %s; expected %s", call_.op,
                names_.tensor(in_call).c_str(), show_shape(a.shape, a.ndim).c_str(), show_shape(a.strides, a.ndim).c_str(),
                names_.tensor(other_in_call).c_str(), show_shape(b.shape, b.ndim).c_str(), show_shape(b.strides, b.ndim).c_str(),
                other < num_inputs_ ? "memory of its own, or exactly that input" : "memory of its own");
}

void Signature::find_aliases() {
  size_t word = size_;
  // The words of the outputs' headers lie behind those of the inputs; walk back from the end to find them.
  for (uint32_t o = num_inputs_ + sig_.num_outputs; o-- > num_inputs_;) {
    nw_tensor_sig& out = tensors_[o];
    word -= tensor_words(out);
    const ByteRange& e = ranges_[o];
    if (e.is_empty()) continue;
    for (uint32_t i = 0; i < o; ++i) {
      const ByteRange& f = ranges_[i];
      if (!e.meets(f) || f.is_empty()) continue;
      if (i < num_inputs_ && identical(o, i)) {
        // The signature has room for one; a program may rely on an in-out tensor being no other input.
        if (out.alias_of >= 0 && is_program_name(sig_.op))
          throw_failure(NW_INVALID, static_cast<int32_t>(o),
                        "%s: output %u is the same memory as inputs %d and %u; expected its own input alone", sig_.op,
                        o - num_inputs_, out.alias_of, i);
        if (out.alias_of < 0) out.alias_of = static_cast<int32_t>(i);
      } else {
        check_overlap(o, i);
      }
    }
    if (out.alias_of >= 0) words_[word] ^= uint64_t{0xFFFFu ^ static_cast<uint32_t>(out.alias_of)} << 48;
  }
}

}  // namespace narrows
