// SPDX-License-Identifier: Apache-2.0
// device.h -- the device: its memory and its streams. A real backend calls its driver here, and only here. This device is played by
// the CPU, and is as strict as one can be:
//
//   an address of the device is none of the host's: the host that touches it dies
//   what is put on a stream is done when somebody waits for it, and not before
//   memory is taken only if alloc() gave all of it and it was not freed since
//
// The suite's tests use it too: tests/conformance/mutants/device.cpp puts the cpu backend's kernels on it.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "common/plugin.h"

namespace narrows::template_backend {

// Does one thing after the other; any thread may call it. What is wrong is thrown as a Refusal.
class Device {
 public:
  // `name` begins the messages.
  Device(DLDeviceType type, const char* name) : type_(type), name_(name) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // There is number 0 only.
  void check_number(int32_t device_id) const;

  // Addresses as DLTensor.data holds them, aligned to NW_WORKSPACE_ALIGN; NULL for 0 bytes.
  void* alloc(uint64_t size, void* stream);
  void free(void* data, void* stream);
  // Done on return if a side is host memory, else ordered on the stream.
  void copy(DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream);

  // NULL is a stream too: the default one.
  void* create_stream();
  void destroy_stream(void* stream);
  void sync(void* stream);
  // A kernel, after what is on the stream already. It outlives the call: it has its arguments by value, and no pointer of the
  // host's but to memory of the device, by host_address().
  void launch(void* stream, std::function<void()> kernel);

  // Where the device finds these bytes of its memory, or the first element of this tensor (NULL: it is absent or has no element).
  // Refused if alloc() did not give all of them.
  unsigned char* host_address(uintptr_t address, uint64_t size, int32_t argument);
  unsigned char* host_address(const DLTensor* t, int32_t argument);

 private:
  struct Stream {
    std::vector<std::function<void()>> work;  // in this order, whenever somebody waits for it
  };
  // These are called with the mutex held.
  Stream& stream_of(void* handle);
  unsigned char* find(uintptr_t address, uint64_t size, int32_t argument) const;
  unsigned char* side_of_copy(DLDevice where, const void* address, uint64_t size) const;

  const DLDeviceType type_;
  const char* const name_;
  std::mutex mutex_;
  std::map<uintptr_t, uint64_t> memory_;  // address and size of what is allocated
  std::set<Stream*> streams_;             // that were created and not destroyed
  Stream default_stream_;
};

}  // namespace narrows::template_backend
