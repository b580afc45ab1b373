// SPDX-License-Identifier: Apache-2.0
// memory.h -- the memory of a made-up call: each tensor lies in a heap block that holds exactly the bytes that its metadata
// reaches, so that AddressSanitizer sees a byte before or behind it, and this file one between the elements. See call.h.
#pragma once

#include <memory>

#include "call.h"

namespace narrows::fuzz {

class Memory {
 public:
  // A tensor that is absent, empty or too large for the budget gets none. `decoy`: such a one of too many bytes points to a few
  // bytes nevertheless, because the call is illegal and must be refused before they matter; else its data is NULL.
  Memory(const Case& c, bool decoy);
  ~Memory();

  bool complete() const { return complete_; }  // every tensor has all the memory that it reaches
  const DLTensor* const* inputs() const { return pointers_.data(); }
  const DLTensor* const* outputs() const { return pointers_.data() + c_.inputs.size(); }
  std::vector<Exact> values(size_t tensor) const;  // none without memory

  // What addresses and strides add to the verdict: NULL, the end of the address space, overlap.
  void judge(Verdict* v) const;

  void snapshot();
  // Since snapshot(): a byte that changed although it is in no element of an output (refused: although nothing may change).
  std::string damage(bool refused) const;

 private:
  struct Block;
  struct Place {
    Block* block = nullptr;
    int64_t first = 0;             // byte of element 0 in the block
    std::vector<int64_t> offsets;  // byte of every element in the block, C order
    int64_t begin = 0, end = 0;    // bytes that the tensor reaches in the block
  };
  void place(size_t i);
  void bind(size_t i, bool decoy);
  void fill();
  void judge_output(size_t i, Verdict* v) const;
  bool identical(size_t i, size_t j) const;

  const Case& c_;
  bool complete_ = true;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Place> places_;
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
};

}  // namespace narrows::fuzz
