// SPDX-License-Identifier: Apache-2.0
// record.h -- events of torch's profiler, by torch's C shim: what torch calls a RecordFunction. torch.profiler, emit_nvtx, emit_itt
// and execution traces see them.
#pragma once

#include <narrows/abi.h>

#include <cstdint>

namespace narrows::torch {

// Whether somebody looks on; some nanoseconds. torch has to be loaded.
bool is_recorded();

// One event of this thread, from begin() to the end of its life.
class Record {
 public:
  Record() = default;
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record() {
    if (__builtin_expect(guard_ != nullptr, 0)) end();
  }
  // `tensors`: of each input that there is, the address of what torch calls a TensorImpl.
  void begin(const char* name, void* const* tensors = nullptr, uint64_t count = 0);

 private:
  void end();
  void* guard_ = nullptr;
};

}  // namespace narrows::torch
