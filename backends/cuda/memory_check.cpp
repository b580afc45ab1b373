// SPDX-License-Identifier: Apache-2.0
// memory_check.cpp -- asks the driver who owns each address.
#include "memory_check.h"

#include "core/byte_range.h"

namespace narrows::gpu {
namespace {

// `name` and `argument` are the error's; `type` is what the caller says that the memory is.
void check_range(const std::string& name, int32_t argument, const ByteRange& range, int type, int32_t device) {
  if (range.is_empty()) return;
  const auto* address = reinterpret_cast<const void*>(range.begin);
  const Memory memory = memory_at(address);
  const bool is_device = memory.kind == Memory::kDevice, is_managed = memory.kind == Memory::kManaged;
  const bool is_pinned = memory.kind == Memory::kPinned;
  if (!is_device && !is_managed && !is_pinned)
    refuse(NW_INVALID, argument,
           "%s: address %p is no memory that the driver knows: host memory, or freed; expected memory of device %d", name.c_str(),
           address, device);
  if (type == kPinnedType ? !is_pinned : type == kManagedType ? !is_managed : is_pinned)
    refuse(NW_INVALID, argument, "%s: address %p is %s memory, but its device type is %d", name.c_str(), address,
           is_pinned    ? "pinned host"
           : is_managed ? "managed"
                        : "device",
           type);
  if (is_pinned) return;
  if (is_device && memory.device != device)
    refuse(NW_INVALID, argument, "%s: address %p is memory of device %d; expected device %d", name.c_str(), address, memory.device,
           device);
  const void* base = nullptr;
  size_t size = 0;
  if (!find_allocation(address, &base, &size)) return;
  const uintptr_t end = reinterpret_cast<uintptr_t>(base) + size;
  if (range.end > end)
    refuse(NW_INVALID, argument, "%s: it ends %zu bytes past the allocation [%p, %p)", name.c_str(),
           static_cast<size_t>(range.end - end), base, reinterpret_cast<const void*>(end));
}

void check_tensor(const DLTensor& t, int32_t index, int32_t device) {
  check_range("tensor " + std::to_string(index), index, byte_range(t), static_cast<int>(t.device.device_type), device);
}

}  // namespace

void check_memory(const nw_call& call, uint64_t workspace_size, int32_t device) {
  const int owner = stream_device(stream_of(call));
  if (owner >= 0 && owner != device)
    refuse(NW_INVALID, -1, "stream %p belongs to device %d; the tensors live on device %d", call.stream, owner, device);
  for (uint32_t i = 0; i < call.num_inputs; ++i)
    if (call.inputs[i] != nullptr) check_tensor(*call.inputs[i], static_cast<int32_t>(i), device);
  for (uint32_t i = 0; i < call.num_outputs; ++i)
    if (call.outputs[i] != nullptr) check_tensor(*call.outputs[i], static_cast<int32_t>(call.num_inputs + i), device);
  const auto workspace = reinterpret_cast<uintptr_t>(call.workspace);
  check_range("workspace", -1, {workspace, workspace + workspace_size}, kDeviceType, device);
}

}  // namespace narrows::gpu
