// SPDX-License-Identifier: Apache-2.0
// device.cpp -- see device.h.
#include "device.h"

#include <cstdlib>
#include <iterator>
#include <utility>

#include "core/byte_range.h"

namespace narrows::template_backend {

using common::refuse;

namespace {

constexpr uintptr_t kFar = uintptr_t{1} << 50;  // a bit that no address of a process has, on x86-64 and arm64

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }
unsigned char* on_host(uintptr_t address) { return reinterpret_cast<unsigned char*>(address - kFar); }

void finish(std::vector<std::function<void()>>& work) {
  for (const auto& one : std::exchange(work, {})) one();
}

}  // namespace

void Device::check_number(int32_t device_id) const {
  if (device_id != 0) refuse(NW_INVALID, -1, "%s: device %d; expected 0, the only one", name_, device_id);
}

Device::Stream& Device::stream_of(void* handle) {
  if (handle == nullptr) return default_stream_;
  auto* const stream = static_cast<Stream*>(handle);
  if (streams_.count(stream) == 0) refuse(NW_INVALID, -1, "%s: stream %p; expected NULL or one that it made", name_, handle);
  return *stream;
}

// ---- memory ----

void* Device::alloc(uint64_t size, void* stream) {
  const std::lock_guard hold(mutex_);
  stream_of(stream);
  if (size == 0) return nullptr;
  constexpr uint64_t kAlign = NW_WORKSPACE_ALIGN;
  void* const memory = size > PTRDIFF_MAX - kAlign ? nullptr : std::aligned_alloc(kAlign, (size + kAlign - 1) / kAlign * kAlign);
  if (memory == nullptr)
    refuse(NW_OUT_OF_MEMORY, -1, "%s: cannot allocate %llu bytes", name_, static_cast<unsigned long long>(size));
  memory_[number(memory) + kFar] = size;
  return reinterpret_cast<void*>(number(memory) + kFar);
}

void Device::free(void* data, void* stream) {
  const std::lock_guard hold(mutex_);
  Stream& on = stream_of(stream);
  if (data == nullptr) return;
  if (memory_.count(number(data)) == 0)
    refuse(NW_INVALID, -1, "%s: free: %p; expected an address that was allocated and not freed yet", name_, data);
  on.work.emplace_back([this, data] {
    memory_.erase(number(data));
    std::free(on_host(number(data)));
  });
}

unsigned char* Device::find(uintptr_t address, uint64_t size, int32_t argument) const {
  const auto after = memory_.upper_bound(address);
  const auto lies_in = [&](const auto& allocation) {
    const uintptr_t offset = address - allocation.first;
    return offset <= allocation.second && size <= allocation.second - offset;
  };
  if (after == memory_.begin() || !lies_in(*std::prev(after)))
    refuse(NW_INVALID, argument, "%s: %llu bytes at %#llx; expected memory that it has allocated", name_,
           static_cast<unsigned long long>(size), static_cast<unsigned long long>(address));
  return on_host(address);
}

unsigned char* Device::side_of_copy(DLDevice where, const void* address, uint64_t size) const {
  if (where.device_type == kDLCPU) return static_cast<unsigned char*>(const_cast<void*>(address));
  if (where.device_type != type_)
    refuse(NW_UNSUPPORTED, -1, "%s: a copy with device type %d; expected %d or the CPU's", name_,
           static_cast<int>(where.device_type), static_cast<int>(type_));
  check_number(where.device_id);
  return find(number(address), size, -1);
}

void Device::copy(DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream) {
  const std::lock_guard hold(mutex_);
  Stream& on = stream_of(stream);
  if (size == 0) return;
  unsigned char *const there = side_of_copy(to, dst, size), *const here = side_of_copy(from, src, size);
  on.work.emplace_back([=] { std::memmove(there, here, size); });
  if (to.device_type == kDLCPU || from.device_type == kDLCPU) finish(on.work);
}

unsigned char* Device::host_address(uintptr_t address, uint64_t size, int32_t argument) {
  const std::lock_guard hold(mutex_);
  return find(address, size, argument);
}

unsigned char* Device::host_address(const DLTensor* t, int32_t argument) {
  if (t == nullptr) return nullptr;
  if (t->device.device_type != type_)
    refuse(NW_INVALID, argument, "%s: device type %d; expected %d", name_, static_cast<int>(t->device.device_type),
           static_cast<int>(type_));
  const ByteRange range = byte_range(*t);
  if (range.is_empty()) return nullptr;
  host_address(range.begin, range.end - range.begin, argument);
  return on_host(number(t->data) + t->byte_offset);
}

// ---- streams ----

void* Device::create_stream() {
  const std::lock_guard hold(mutex_);
  return *streams_.insert(new Stream).first;
}

void Device::destroy_stream(void* stream) {
  const std::lock_guard hold(mutex_);
  finish(stream_of(stream).work);
  if (streams_.erase(static_cast<Stream*>(stream)) != 0) delete static_cast<Stream*>(stream);
}

void Device::sync(void* stream) {
  const std::lock_guard hold(mutex_);
  finish(stream_of(stream).work);
}

void Device::launch(void* stream, std::function<void()> kernel) {
  const std::lock_guard hold(mutex_);
  stream_of(stream).work.push_back(std::move(kernel));
}

}  // namespace narrows::template_backend
