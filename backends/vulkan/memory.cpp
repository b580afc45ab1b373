// SPDX-License-Identifier: Apache-2.0
// memory.cpp -- see memory.h.
#include "memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <span>

#include "device.h"

namespace narrows::vulkan {
namespace {

constexpr uint64_t kAlignment = NW_WORKSPACE_ALIGN;
constexpr uint64_t kBlockSize = uint64_t{64} << 20;
constexpr uint64_t kLargest = kBlockSize / 4;         // what is larger gets a block of its own
constexpr uint64_t kKeptEmpty = uint64_t{256} << 20;  // empty blocks that stay for what comes
// On both sides of every buffer where memory is checked; and behind what has a block of its own, since tensors whose memory lies a
// power of two apart may share a device's banks: an H200 added some at 0.4 of its rate.
constexpr uint64_t kGap = 64 << 10;
constexpr uint64_t kGuard = 4 << 10;  // of the gap: a bus reads it slowly
constexpr char kGuardByte = 0x5a;
constexpr auto kIntactGuard = [] {
  std::array<char, kGuard> intact{};
  intact.fill(kGuardByte);
  return intact;
}();
constexpr VkMemoryPropertyFlags kVisible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = kVisible | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

}  // namespace

// Drivers list the best type of a kind first. Those of AMD that are coherent for debuggers ask for a feature, and are slow.
std::vector<uint32_t> memory_types(const VkPhysicalDeviceMemoryProperties& memory, bool unified, uint32_t allowed, Side side) {
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i)
    if ((memory.memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD) != 0) allowed &= ~(1u << i);
  struct Wish {
    VkMemoryPropertyFlags with, without;
  };
  const Wish device_wishes[] = {unified ? Wish{kLocal | kCached, 0} : Wish{kLocal, kVisible}, {kLocal, 0}};
  const Wish guarded_wishes[] = {{kLocal | kCached, 0}, {kLocal | kVisible, 0}};
  const Wish host_wishes[] = {{kCached, 0}, {kVisible, 0}};
  const Wish upload_wishes[] = {{kLocal | kVisible, 0}, {kVisible, 0}};
  const std::span<const Wish> by_side[] = {device_wishes, guarded_wishes, host_wishes, upload_wishes};
  std::vector<uint32_t> found;
  for (const Wish& wish : by_side[static_cast<size_t>(side)])
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      const VkMemoryPropertyFlags has = memory.memoryTypes[i].propertyFlags;
      const bool fits = (allowed >> i & 1) != 0 && (has & wish.with) == wish.with && (has & wish.without) == 0;
      if (fits && std::find(found.begin(), found.end(), i) == found.end()) found.push_back(i);
    }
  if (found.empty() && side == Side::device)  // a device that calls none its own
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i)
      if ((allowed >> i & 1) != 0) found.push_back(i);
  return found;
}

// A buffer, the pieces of it in use and the holes between them, by offset.
struct Memory::Block {
  Buffer buffer;
  bool foreign = false;                   // the application's buffer
  bool pooled = true;                     // its memory may be cut anew; else it goes when its tensor goes
  std::atomic<bool> used_lately = false;  // by a call or a copy, since its guards were looked at
  std::map<uint64_t, uint64_t> used, holes;

  // What is large fills a block of its own.
  bool fits(const std::pair<const uint64_t, uint64_t>& hole, uint64_t size) const {
    return size > kLargest ? hole.second == size && used.empty() : hole.second >= size && buffer.size <= kBlockSize;
  }
  uint64_t cut(std::map<uint64_t, uint64_t>::iterator hole, uint64_t size) {
    const auto [offset, room] = *hole;
    used.emplace(offset, size);
    auto rest = holes.extract(hole);
    if (room == size) return offset;
    rest.key() += size;
    rest.mapped() -= size;
    holes.insert(std::move(rest));
    return offset;
  }
  // The piece's entry becomes the hole's: giving back takes no memory.
  void give_back(uint64_t offset) {
    auto piece = used.extract(offset);
    auto next = holes.lower_bound(offset);
    if (next != holes.end() && next->first == offset + piece.mapped()) piece.mapped() += next->second, next = holes.erase(next);
    if (next != holes.begin())
      if (const auto before = std::prev(next); before->first + before->second == offset) {
        before->second += piece.mapped();
        return;
      }
    holes.insert(std::move(piece));
  }
};

Memory::Memory(Device& device, bool checked) : device_(device), checked_(checked) {}

Memory::~Memory() {
  if (device_.is_lost()) return;
  for (const auto& [address, block] : blocks_)
    if (!block->foreign) destroy_buffer(block->buffer);
}

// ---- buffers ----

// Memory from or for elsewhere: what VkMemoryAllocateInfo's chain gets, and the memory types that it allows.
struct Memory::External {
  VkExternalMemoryHandleTypeFlagBits type;
  const void* chain;
  uint32_t types = ~0u;
};

Buffer Memory::create_buffer(uint64_t size, Side side, uint64_t gap) { return create_buffer(size, side, gap, nullptr); }

Buffer Memory::create_buffer(uint64_t size, Side side, uint64_t gap, const External* external) {
  const VolkDeviceTable& vk = device_.vk;
  VkExternalMemoryBufferCreateInfo elsewhere{.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
  VkBufferCreateInfo info{.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  if (external != nullptr) {
    elsewhere.handleTypes = external->type;
    info.pNext = &elsewhere;
  }
  info.size = size;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  Buffer buffer;
  buffer.size = size;
  device_.check(vk.vkCreateBuffer(device_.handle, &info, nullptr, &buffer.handle), "creating a buffer");
  try {
    VkMemoryRequirements needs;
    vk.vkGetBufferMemoryRequirements(device_.handle, buffer.handle, &needs);
    const uint32_t allowed = external != nullptr ? needs.memoryTypeBits & external->types : needs.memoryTypeBits;
    const std::vector<uint32_t> types = memory_types(device_.physical.memory, device_.physical.is_unified(), allowed, side);
    if (types.empty())
      refuse(NW_FAILED, -1, "vulkan: %s has no memory type for a buffer of this kind", device_.physical.properties.deviceName);
    VkMemoryAllocateFlagsInfo flags{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    flags.pNext = external != nullptr ? external->chain : nullptr;
    VkMemoryAllocateInfo allocation{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
    allocation.pNext = &flags;
    const bool imports_host = external != nullptr && external->type == VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    // The gap gives way to the largest allocation that is sure to be had.
    const uint64_t largest = std::max(needs.size, uint64_t{device_.physical.properties11.maxMemoryAllocationSize});
    allocation.allocationSize = imports_host ? size : std::min(needs.size + gap, largest);
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    for (size_t i = 0; i < types.size() && result == VK_ERROR_OUT_OF_DEVICE_MEMORY; ++i) {
      allocation.memoryTypeIndex = types[i];
      result = vk.vkAllocateMemory(device_.handle, &allocation, nullptr, &buffer.memory);
    }
    device_.check(result, "allocating memory");
    const uint64_t front = side == Side::guarded ? kGap : 0;
    device_.check(vk.vkBindBufferMemory(device_.handle, buffer.handle, buffer.memory, front), "binding memory to a buffer");
    const VkMemoryPropertyFlags has = device_.physical.memory.memoryTypes[allocation.memoryTypeIndex].propertyFlags;
    // Memory behind a bus is never read from the host: that costs a thousand times what the device's copy does.
    const bool is_devices = side == Side::device || side == Side::guarded;
    void* mapped = nullptr;
    if (side != Side::device || (device_.physical.is_unified() && (has & kCached) == kCached))
      device_.check(vk.vkMapMemory(device_.handle, buffer.memory, 0, VK_WHOLE_SIZE, 0, &mapped), "mapping memory");
    if (side == Side::guarded) mapped = buffer.guards = static_cast<char*>(mapped) + kGap;
    if (!is_devices || (device_.physical.is_unified() && (has & kCached) == kCached)) buffer.mapped = mapped;
    const VkBufferDeviceAddressInfo asked{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, buffer.handle};
    buffer.address = vk.vkGetBufferDeviceAddress(device_.handle, &asked);
  } catch (...) {
    destroy_buffer(buffer);
    throw;
  }
  return buffer;
}

void Memory::refuse_if_too_large(uint64_t size) const {
  if (size > device_.physical.largest_buffer)
    refuse(NW_OUT_OF_MEMORY, -1, "vulkan: %llu bytes were asked for; a buffer of %s has %llu at most (maxBufferSize)",
           static_cast<unsigned long long>(size), device_.physical.properties.deviceName,
           static_cast<unsigned long long>(device_.physical.largest_buffer));
}

void Memory::destroy_buffer(const Buffer& buffer) {
  if (device_.is_lost()) return;
  device_.vk.vkDestroyBuffer(device_.handle, buffer.handle, nullptr);
  device_.vk.vkFreeMemory(device_.handle, buffer.memory, nullptr);
}

// ---- allocations ----

// A buffer of exactly that size between two gaps, of which the parts beside it are guards. Where the host cannot see enough of the
// device's memory there are no guards.
Buffer Memory::create_guarded(uint64_t size) {
  try {
    if (size + 3 * kGap <= device_.physical.properties11.maxMemoryAllocationSize) {
      const Buffer buffer = create_buffer(size, Side::guarded, 2 * kGap);
      std::memset(buffer.guards - kGuard, kGuardByte, kGuard);
      std::memset(buffer.guards + size, kGuardByte, kGuard);
      return buffer;
    }
  } catch (const Refusal&) {
    device_.refuse_if_lost();
  }
  return create_buffer(size, Side::device, kGap);
}

void Memory::check_guards() {
  if (!checked_) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [address, block] : blocks_)
    if (block->used_lately.exchange(false)) check_guards(block->buffer);
}

// What was written is told once. A bus takes a microsecond for each load, so guards are compared in loads as wide as memcmp's.
void Memory::check_guards(const Buffer& buffer) {
  if (buffer.guards == nullptr) return;
  for (char* const guard : {buffer.guards - kGuard, buffer.guards + buffer.size}) {
    if (std::memcmp(guard, kIntactGuard.data(), kGuard) == 0) continue;
    char* const bad = std::find_if(guard, guard + kGuard, [](char byte) { return byte != kGuardByte; });
    char said[256];
    std::snprintf(said, sizeof said, "a guard of allocation [0x%llx, 0x%llx) was written to, at byte %lld",
                  static_cast<unsigned long long>(buffer.address), static_cast<unsigned long long>(buffer.address + buffer.size),
                  static_cast<long long>(bad - buffer.guards));
    device_.loader.add_message(said);
    std::memset(guard, kGuardByte, kGuard);
  }
}

// nullptr: the driver has no room.
Memory::Block* Memory::add_block(uint64_t size) {
  auto block = std::make_unique<Block>();
  block->holes.emplace(0, size);
  try {
    block->buffer = checked_ ? create_guarded(size) : create_buffer(size, Side::device, size > kLargest ? kGap : 0);
  } catch (const Refusal& refusal) {
    if (refusal.status != NW_OUT_OF_MEMORY) throw;
    return nullptr;
  }
  const Buffer buffer = block->buffer;
  try {
    Block* const added = blocks_.emplace(buffer.address, std::move(block)).first->second.get();
    empty_bytes_ += size;
    return added;
  } catch (...) {
    destroy_buffer(buffer);
    throw;
  }
}

Address Memory::allocate(uint64_t size) {
  const uint64_t whole = device_.physical.local_memory();
  if (size > whole)
    refuse(NW_OUT_OF_MEMORY, -1, "vulkan: %llu bytes were asked for; %s has %llu", static_cast<unsigned long long>(size),
           device_.physical.properties.deviceName, static_cast<unsigned long long>(whole));
  refuse_if_too_large(size);
  const uint64_t piece = checked_ ? size : round_up(size, kAlignment);
  const std::lock_guard lock(mutex_);
  Block* block = nullptr;
  std::map<uint64_t, uint64_t>::iterator best;
  if (!checked_)
    for (const auto& [address, candidate] : blocks_)
      for (auto hole = candidate->holes.begin(); hole != candidate->holes.end(); ++hole)
        if (candidate->fits(*hole, piece) && (block == nullptr || hole->second < best->second))
          block = candidate.get(), best = hole;
  if (block == nullptr) {
    block = add_block(checked_ || piece > kLargest ? piece : kBlockSize);
    if (block == nullptr && !checked_ && piece <= kLargest) block = add_block(piece);
    if (block == nullptr) return 0;
    best = block->holes.begin();
  }
  const Address address = block->buffer.address + best->first;
  const bool was_empty = block->used.empty();
  live_.emplace(address, Pieces{{address, size, 0}});
  try {
    block->cut(best, piece);
  } catch (...) {
    live_.erase(address);
    throw;
  }
  if (was_empty) empty_bytes_ -= block->buffer.size;
  return address;
}

void Memory::retire(Address address, uint64_t value, Pieces& to) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end())
    refuse(NW_INVALID, -1, "vulkan: free: address 0x%llx; expected one that was allocated on device %d and not freed yet",
           static_cast<unsigned long long>(address), device_.id);
  const Block& block = *block_of(address);
  if (block.foreign)
    refuse(NW_INVALID, -1, "vulkan: free: address 0x%llx is memory of the application; expected remove_memory() for it",
           static_cast<unsigned long long>(address));
  found->second.front().value = value;
  if (!block.pooled) found->second.front().size = 0;  // too small for any allocation to have it next
  to.splice(to.end(), found->second);
  live_.erase(found);
}

void Memory::revive(Pieces& from, Pieces::iterator piece, uint64_t size) {
  const std::lock_guard lock(mutex_);
  Pieces& live = live_[piece->address];
  piece->size = size;
  live.splice(live.end(), from, piece);
}

Memory::Block* Memory::block_of(Address address) { return std::prev(blocks_.upper_bound(address))->second.get(); }

void Memory::give_back(Address address) {
  const std::lock_guard lock(mutex_);
  Block* const block = block_of(address);
  block->give_back(address - block->buffer.address);
  check_guards(block->buffer);
  if (!block->used.empty()) return;
  const uint64_t size = block->buffer.size;
  if (!checked_ && block->pooled && size <= kKeptEmpty) {
    if (empty_bytes_ + size > kKeptEmpty) drop_empty(block);  // what was freed last is what will be asked for
    empty_bytes_ += size;
    return;
  }
  destroy_buffer(block->buffer);
  blocks_.erase(block->buffer.address);
}

void Memory::trim() {
  const std::lock_guard lock(mutex_);
  drop_empty(nullptr);
}

void Memory::drop_empty(const Block* kept) {
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (!it->second->used.empty() || it->second.get() == kept) {
      ++it;
      continue;
    }
    empty_bytes_ -= it->second->buffer.size;
    destroy_buffer(it->second->buffer);
    it = blocks_.erase(it);
  }
}

// ---- memory from elsewhere and for others ----

// One live allocation over all of the buffer, of which no byte may be memory of the device already: not of a tensor, nor of what
// tensors are cut from. A driver may give host memory the address that it has on the host, and so twice.
Address Memory::add_whole(const Buffer& buffer, bool foreign) {
  const std::lock_guard lock(mutex_);
  const auto clash = [&] {
    const auto next = blocks_.lower_bound(buffer.address);
    if (next != blocks_.end() && next->first - buffer.address < buffer.size) return true;
    if (next == blocks_.begin()) return false;
    const Buffer& last = std::prev(next)->second->buffer;
    return buffer.address - last.address < last.size;
  };
  if (clash()) {
    if (!foreign) destroy_buffer(buffer);
    refuse(NW_INVALID, -1,
           "vulkan: bytes [0x%llx, 0x%llx) overlap memory that device %d has, or that was freed and is still used by a stream",
           static_cast<unsigned long long>(buffer.address), static_cast<unsigned long long>(buffer.address + buffer.size),
           device_.id);
  }
  try {
    auto block = std::make_unique<Block>();
    block->buffer = buffer;
    block->foreign = foreign;
    block->pooled = false;
    block->used.emplace(0, buffer.size);
    blocks_.emplace(buffer.address, std::move(block));
    live_.emplace(buffer.address, Pieces{{buffer.address, buffer.size, 0}});
  } catch (...) {
    blocks_.erase(buffer.address);
    if (!foreign) destroy_buffer(buffer);
    throw;
  }
  return buffer.address;
}

void Memory::add_foreign(VkBuffer buffer, Address address, uint64_t size) {
  if (size > UINT64_MAX - address)
    refuse(NW_INVALID, -1, "vulkan: size is %llu at address 0x%llx; expected an end below 2^64",
           static_cast<unsigned long long>(size), static_cast<unsigned long long>(address));
  has_host_memory_ = true;  // as far as is known
  add_whole({buffer, VK_NULL_HANDLE, address, size, nullptr}, true);
}

void Memory::remove_foreign(Address address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || !found->second->foreign)
    refuse(NW_INVALID, -1, "vulkan: remove_memory(): address 0x%llx; expected one that add_memory() was given for device %d",
           static_cast<unsigned long long>(address), device_.id);
  live_.erase(address);
  blocks_.erase(found);
}

// Nobody else checks pointer and size: where they do not fit, drivers take them, or refuse every later allocation too.
Address Memory::import_host(void* pointer, uint64_t size) {
  const uint64_t alignment = device_.physical.host_import_alignment;
  if (alignment == 0 || device_.vk.vkGetMemoryHostPointerPropertiesEXT == nullptr)
    refuse(NW_UNSUPPORTED, -1, "vulkan: %s cannot import host memory (VK_EXT_external_memory_host)",
           device_.physical.properties.deviceName);
  if (pointer == nullptr || size == 0 || reinterpret_cast<uintptr_t>(pointer) % alignment != 0 || size % alignment != 0)
    refuse(NW_INVALID, -1, "vulkan: import_host(): %llu bytes at %p; expected both above 0 and multiples of %llu",
           static_cast<unsigned long long>(size), pointer, static_cast<unsigned long long>(alignment));
  refuse_if_too_large(size);
  constexpr auto kType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  VkMemoryHostPointerPropertiesEXT properties{.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
  device_.check(device_.vk.vkGetMemoryHostPointerPropertiesEXT(device_.handle, kType, pointer, &properties),
                "asking for a host pointer's memory types");
  VkImportMemoryHostPointerInfoEXT chain{.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT};
  chain.handleType = kType;
  chain.pHostPointer = pointer;
  const External external{kType, &chain, properties.memoryTypeBits};
  has_host_memory_ = true;  // before work can reach it
  return add_whole(create_buffer(size, Side::host, 0, &external), false);
}

Address Memory::allocate_exportable(uint64_t size, int* fd, uint64_t* allocation_size) {
  if (device_.vk.vkGetMemoryFdKHR == nullptr)
    refuse(NW_UNSUPPORTED, -1, "vulkan: %s cannot export memory (VK_KHR_external_memory_fd)",
           device_.physical.properties.deviceName);
  refuse_if_too_large(size);
  constexpr auto kType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  VkExportMemoryAllocateInfo chain{.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO};
  chain.handleTypes = kType;
  const External external{kType, &chain};
  const Buffer buffer = create_buffer(size, Side::device, 0, &external);
  VkMemoryRequirements needs;
  device_.vk.vkGetBufferMemoryRequirements(device_.handle, buffer.handle, &needs);
  const Address address = add_whole(buffer, false);
  VkMemoryGetFdInfoKHR info{.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR};
  info.memory = buffer.memory;
  info.handleType = kType;
  int exported = -1;
  const VkResult result = device_.vk.vkGetMemoryFdKHR(device_.handle, &info, &exported);
  if (result < 0) {
    Pieces freed;
    retire(address, 0, freed);
    give_back(address);
  }
  device_.check(result, "exporting memory");
  *fd = exported;
  *allocation_size = needs.size;
  return address;
}

// ---- addresses ----

std::optional<Span> Memory::find(Address begin, Address end) const {
  const std::shared_lock lock(mutex_);
  auto found = live_.upper_bound(begin);
  if (found == live_.begin()) return std::nullopt;
  --found;
  if (end > end_of(*found) || end < begin) return std::nullopt;
  Block& block = *std::prev(blocks_.upper_bound(begin))->second;
  if (checked_) block.used_lately = true;
  const Buffer& buffer = block.buffer;
  const uint64_t offset = begin - buffer.address;
  return Span{buffer.handle, offset, buffer.mapped == nullptr ? nullptr : static_cast<char*>(buffer.mapped) + offset};
}

std::optional<std::pair<Address, Address>> Memory::near(Address address) const {
  const std::shared_lock lock(mutex_);
  const auto found = live_.upper_bound(address);
  if (found == live_.begin()) return std::nullopt;
  return std::pair(std::prev(found)->first, end_of(*std::prev(found)));
}

}  // namespace narrows::vulkan
