// SPDX-License-Identifier: Apache-2.0
// device.h -- an opened device: its queues, memory, kernels and streams. Locks, outermost first: that of an adopted device in use,
// a stream's, the list of streams', a queue's, the memory's or the kernels'.
#pragma once

#include <narrows/vulkan.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "kernels.h"
#include "loader.h"
#include "memory.h"
#include "physical.h"
#include "stream.h"

namespace narrows::vulkan {

// A VkQueue takes one thread at a time. Of an adopted device the application's lock is taken too.
class Queue {
 public:
  VkQueue handle = VK_NULL_HANDLE;
  void lock();
  void unlock();

 private:
  friend class Device;
  std::mutex mutex_;
  void* lock_ctx_ = nullptr;
  void (*lock_)(void*) = nullptr;
  void (*unlock_)(void*) = nullptr;
};

class Device {
 public:
  // checked: NARROWS_CHECK=1, every allocation is a buffer of its own between gaps.
  // adopted: the application's device, which stays its own; nullptr: one is opened.
  Device(Loader& loader, const PhysicalDevice& physical, int32_t id, bool checked, const nw_vulkan_device* adopted = nullptr);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Loader& loader;
  const PhysicalDevice& physical;
  const int32_t id;
  VkInstance instance;  // that it was found in: the loader's or the application's
  VkDevice handle = VK_NULL_HANDLE;
  VolkDeviceTable vk{};  // this device's functions, straight from the driver

  // Throws Refusal. What says that the device is lost marks it so: from then on every call is refused, and nothing is destroyed,
  // because drivers hang there.
  void check(VkResult result, const char* doing);
  void lose(const char* why);
  void refuse_if_lost() const;
  bool is_adopted() const { return adopted_; }
  bool is_lost() const { return gone_.load(std::memory_order_relaxed) != nullptr; }
  // An adopted device goes: waits for the calls that use it and for its work, destroys all that was made on it, and is as good as
  // lost. Plans may outlive that. Refuses a second time.
  void release();

  // Whether a thread may take so many iterations of loops, counted together. Not on a CPU that plays the device, where the driver
  // ends them before: Mesa's llvmpipe did so after 65,535, without a word, and a long sum then lacks its last terms.
  bool runs_loops(double iterations);
  void check_loops(double iterations);             // refuses work that it does not run
  static constexpr int64_t kFewestLoops = 65'535;  // of fewer every driver runs all

  Memory& memory() { return *memory_; }
  Kernels& kernels() { return *kernels_; }
  Queue& next_queue();
  VkQueue queue() const { return queues_[0].handle; }

  // The stream behind a handle of the ABI: NULL is the default one. Any other value than a live stream's is refused.
  std::shared_ptr<Stream> stream(void* handle);
  void* add_stream();
  void remove_stream(void* handle);

  // Of all streams together.
  struct Progress {
    uint64_t done;  // submissions
    bool waits_for_application;
  };
  Progress progress() const;

 private:
  friend class DeviceInUse;
  [[noreturn]] void refuse_released() const;
  bool close();                                                                         // false: it was lost
  Device(bool is_adopted, Loader& loader, const PhysicalDevice& physical, int32_t id);  // not opened yet
  void open();
  void adopt(const nw_vulkan_device& device);
  bool runs_long_loops();
  std::unique_ptr<Queue[]> queues_;
  std::atomic<uint32_t> next_queue_{0};
  std::atomic<const char*> gone_{nullptr};  // how it went; nullptr: it is there
  const bool adopted_;
  std::atomic<bool> released_{false};  // from the beginning of release() on
  std::shared_mutex in_use_;           // of an adopted device: shared by the calls that use it
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Kernels> kernels_;
  mutable std::shared_mutex streams_mutex_;
  std::map<void*, std::shared_ptr<Stream>> streams_;
  std::shared_ptr<Stream> default_stream_;
  std::once_flag loops_tried_;
  bool loops_end_early_ = false;
};

// A device while a call uses it: until then release() waits. Refuses one that is gone. What the backend opened itself stays as long
// as the runtime, and takes no lock.
class DeviceInUse {
 public:
  explicit DeviceInUse(Device& device);
  Device* operator->() const { return &device_; }
  Device& operator*() const { return device_; }

 private:
  Device& device_;
  std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace narrows::vulkan
