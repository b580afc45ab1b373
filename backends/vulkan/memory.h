// SPDX-License-Identifier: Apache-2.0
// memory.h -- a device's memory: blocks that tensors are cut from, and the map of which addresses are live. An address is a
// VkDeviceAddress, which means something within one VkDevice only.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "vk.h"

namespace narrows::vulkan {

class Device;

using Address = VkDeviceAddress;

// A VkBuffer over VkDeviceMemory of its own.
struct Buffer {
  VkBuffer handle = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  Address address = 0;
  uint64_t size = 0;
  void* mapped = nullptr;  // where the host sees it, coherently; nullptr: it does not
  char* guards = nullptr;  // of checked memory: where the host sees its first byte, with guards before it and behind it
};

// Whose side of the memory a buffer is for.
enum class Side {
  device,   // the device's own; mapped where the host reads it as fast as its own memory
  guarded,  // the device's own, and mapped: with guards, in checked memory
  host,     // mapped, cached by the host: staging
  upload,   // mapped, written by the host in order and read by the device: parameters
};

// The memory types that a buffer of this kind may lie in, of those in the bit set `allowed`, best first: where the heap of one is
// full, the next is tried. A device's own memory is never replaced by the host's.
std::vector<uint32_t> memory_types(const VkPhysicalDeviceMemoryProperties& memory, bool unified, uint32_t allowed, Side side);

// An allocation. Its entry of a list is made with it and goes from list to list, so that freeing takes no memory.
struct Piece {
  Address address;
  uint64_t size;
  uint64_t value;  // once it is freed: of the stream's timeline, after which no work uses it
};
using Pieces = std::list<Piece>;

// Live bytes: an allocation, or a part of one.
struct Span {
  VkBuffer buffer;
  uint64_t offset;  // from the buffer's start
  void* mapped;     // the same place as the host sees it, or nullptr
};

class Memory {
 public:
  Memory(Device& device, bool checked);
  ~Memory();

  Buffer create_buffer(uint64_t size, Side side, uint64_t gap = 0);  // throws NW_OUT_OF_MEMORY; gap: more memory
  void destroy_buffer(const Buffer& buffer);

  // A live allocation over the application's buffer, over host memory, or over memory that other APIs can have.
  void add_foreign(VkBuffer buffer, Address address, uint64_t size);
  void remove_foreign(Address address);
  Address import_host(void* pointer, uint64_t size);
  Address allocate_exportable(uint64_t size, int* fd, uint64_t* allocation_size);

  // `size` > 0 bytes aligned to 256; 0 if there is no room. Refuses what no allocation of this device can hold.
  Address allocate(uint64_t size);
  // Ends the life of an allocation, which joins the list `to`: from now on its address is foreign; the memory stays until
  // give_back(). Refuses an address that allocate() did not give.
  void retire(Address address, uint64_t value, Pieces& to);
  void revive(Pieces& from, Pieces::iterator piece, uint64_t size);  // a retired allocation lives again
  void give_back(Address address);  // a retired allocation's memory may be cut anew; no work uses it any more
  void trim();                      // empty blocks go back to the driver
  bool is_checked() const { return checked_; }
  // Some that the host may read as it lies there: import_host() or add_foreign() has been asked.
  bool has_host_memory() const { return has_host_memory_.load(std::memory_order_relaxed); }
  // Tells the loader, as the validation layer does, of guards that were written to: those around what find() found since the last
  // time. What work of another stream writes later is told when its memory is found again, or given back.
  void check_guards();

  // The live allocation that holds all of [begin, end), begin < end; nothing if there is none.
  std::optional<Span> find(Address begin, Address end) const;
  // The live allocation that `address` lies in, or the closest below it, for messages: [begin, end).
  std::optional<std::pair<Address, Address>> near(Address address) const;

 private:
  struct Block;
  struct External;
  Buffer create_buffer(uint64_t size, Side side, uint64_t gap, const External* external);
  Buffer create_guarded(uint64_t size);
  void refuse_if_too_large(uint64_t size) const;
  void check_guards(const Buffer& buffer);
  Address add_whole(const Buffer& buffer, bool foreign);
  Block* add_block(uint64_t size);
  Block* block_of(Address address);
  static Address end_of(const std::pair<const Address, Pieces>& live) { return live.first + live.second.front().size; }
  void drop_empty(const Block* kept);  // but not that one; under the lock

  Device& device_;
  const bool checked_;
  std::atomic<bool> has_host_memory_ = false;
  mutable std::shared_mutex mutex_;
  std::map<Address, std::unique_ptr<Block>> blocks_;  // by first address
  std::map<Address, Pieces> live_;                    // one piece each, by first address
  uint64_t empty_bytes_ = 0;                          // of blocks without an allocation
};

}  // namespace narrows::vulkan
