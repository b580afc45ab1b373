// SPDX-License-Identifier: Apache-2.0
// memory.h -- where a launch's buffers begin: tensors where the caller has them, allocations in the workspace, of which each thread
// has a part.
#pragma once

#include <string>
#include <vector>

#include "common/program_bind.h"
#include "ops/tasks.h"

namespace narrows::cpu {

class Memory {
 public:
  // `names`: the buffers by number. `frame_bytes`: what each thread has beside its allocations.
  Memory(const Instance& instance, const Bound& bound, const std::vector<std::string>& names, uint64_t frame_bytes);

  uint64_t workspace_size() const { return workspace_size_; }
  size_t num_buffers() const { return places_.size(); }

  // Of the launch as a whole: tensors and shared allocations. An in-out tensor whose output is another one is copied there first.
  void begin(const nw_call& call, char** base) const;
  // Of one thread: its own allocations; the rest of `base` stays.
  void enter(const nw_call& call, int64_t slot, char** base) const;
  // frame_bytes of one thread's own; of the launch as a whole where slot is -1.
  char* frame(const nw_call& call, int64_t slot) const;

 private:
  struct Place {
    int input = -1, output = -1;
    bool present = true, is_private = false;
    uint64_t offset = 0;
  };
  struct Copied {
    int input, output;
    int64_t size;
    std::vector<int64_t> shape, from, to;  // strides in bytes
  };
  char* slot_memory(const nw_call& call, int64_t slot) const;

  std::vector<Place> places_;
  std::vector<Copied> copied_;
  uint64_t shared_bytes_, private_bytes_, frame_bytes_, workspace_size_ = 0;
};

}  // namespace narrows::cpu
