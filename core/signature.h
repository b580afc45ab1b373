// SPDX-License-Identifier: Apache-2.0
// signature.h -- from a call to the key of its plan: what planning may see, by value, and no address. Step 2 of a tensor's path,
// on every call (but for launches with NW_FITS), so it allocates nothing for calls of ordinary size. What depends on addresses
// (absent data, overlap) is checked here every time; what depends on the signature alone is checked once, when it is planned
// (contract.h).
#pragma once

#include <narrows/abi.h>

#include <memory>
#include <string>
#include <vector>

#include "core/byte_range.h"

namespace narrows {

// Names tensors for messages; asked on failure only. i counts inputs, then outputs.
class TensorNames {
 public:
  virtual std::string tensor(uint32_t i) const = 0;

 protected:
  ~TensorNames() = default;
};

// What the call's data pointers mean.
enum class Memory {
  needed,     // a launch follows
  alignment,  // planning only: NULL data counts as aligned, and aliases nothing
  ignored,    // inference only: the data of the inputs, which are alone
};

struct Key {
  uint64_t hash;
  const uint64_t* words;
  size_t size;  // words
};

class Signature {
 public:
  // `call` is complete (struct_size is ours). `backend` is part of the key; NULL: any. Throws Failure. The call must outlive this.
  Signature(const nw_call& call, DLDevice device, const char* backend, Memory memory, const TensorNames& names);
  Signature(const Signature&) = delete;

  const nw_sig& sig() const { return sig_; }
  Key key() const;  // hashed now: a launch by a plan needs none
  // May a plan of that key be launched with this call? It is the same key, or one of lower alignments.
  bool fits(const std::vector<uint64_t>& planned) const;

 private:
  const DLTensor* tensor(uint32_t i) const { return i < call_.num_inputs ? call_.inputs[i] : call_.outputs[i - call_.num_inputs]; }
  void count_words();
  void write_header(DLDevice device, const char* backend);
  const char* write_text(const char* text, size_t size);
  void write_tensor(uint32_t i, Memory memory);
  uint16_t locate(uint32_t i, uint32_t in_call, const DLTensor& t, int64_t below, int64_t above, Memory memory);
  static void write_empty_strides(const int64_t* shape, int64_t* strides, int32_t ndim);
  void find_aliases();
  void check_overlap(uint32_t output, uint32_t other);
  bool identical(uint32_t output, uint32_t input) const;
  [[noreturn, gnu::cold]] void refuse_shape(uint32_t i) const;
  [[noreturn, gnu::cold]] void refuse_size(uint32_t i) const;
  [[noreturn, gnu::cold]] void refuse_null(uint32_t i) const;
  [[noreturn, gnu::cold]] void refuse_address(uint32_t i) const;
  [[noreturn, gnu::cold]] void refuse_rank(uint32_t i) const;

  static constexpr size_t kInlineWords = 256;
  const nw_call& call_;
  const TensorNames& names_;
  uint32_t num_inputs_ = 0;  // without absent ones at the end
  uint64_t params_size_ = 0;
  size_t op_size_ = 0, kernel_size_ = 0, backend_size_ = 0;
  nw_sig sig_;
  nw_tensor_sig tensors_[NW_MAX_TENSORS];
  ByteRange ranges_[NW_MAX_TENSORS];  // of tensors without elements: empty
  uint64_t* words_ = inline_words_;
  size_t size_ = 0;
  std::unique_ptr<uint64_t[]> more_words_;
  uint64_t inline_words_[kInlineWords];
};

}  // namespace narrows
