// SPDX-License-Identifier: Apache-2.0
// memory.cpp -- see memory.h.
#include "program/memory.h"

#include <cstring>

namespace narrows::cpu {
namespace {

void copy_strided(const std::vector<int64_t>& shape, size_t d, char* to, const int64_t* to_strides, const char* from,
                  const int64_t* from_strides, size_t size) {
  if (d == shape.size()) {
    std::memcpy(to, from, size);
    return;
  }
  for (int64_t i = 0; i < shape[d]; ++i)
    copy_strided(shape, d + 1, to + i * to_strides[d], to_strides, from + i * from_strides[d], from_strides, size);
}

std::vector<int64_t> in_bytes(std::vector<int64_t> strides, int64_t size) {
  for (int64_t& stride : strides) stride *= size;
  return strides;
}

}  // namespace

Memory::Memory(const Instance& instance, const Bound& bound, const std::vector<std::string>& names, uint64_t frame_bytes)
    : shared_bytes_(aligned_bytes(bound.shared_bytes)), private_bytes_(aligned_bytes(bound.private_bytes)),
      frame_bytes_(aligned_bytes(frame_bytes)) {
  for (const std::string& name : names) {
    const BoundBuffer& buffer = bound.buffers.at(name);
    places_.push_back({buffer.input, buffer.output, buffer.present, buffer.is_private, buffer.offset});
  }
  for (const auto& [name, buffer] : bound.buffers) {
    if (!buffer.copied) continue;
    const int64_t size = bytes_of(buffer.buffer->dtype);
    copied_.push_back(
        {buffer.input, buffer.output, size, buffer.shape, in_bytes(buffer.in_strides, size), in_bytes(buffer.strides, size)});
  }
  const auto threads = static_cast<uint64_t>(instance.num_threads());
  (void)bound.workspace_size(instance.num_threads());  // refuses what is more than there is
  workspace_size_ = shared_bytes_ + frame_bytes_ + threads * (private_bytes_ + frame_bytes_);
}

void Memory::begin(const nw_call& call, char** base) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    if (place.output >= 0)
      base[i] = data<char>(call.outputs[place.output]);
    else if (place.input >= 0)
      base[i] = place.present ? data<char>(call.inputs[place.input]) : nullptr;
    else if (!place.is_private)
      base[i] = static_cast<char*>(call.workspace) + place.offset;
  }
  enter(call, 0, base);
  for (const Copied& one : copied_)
    copy_strided(one.shape, 0, data<char>(call.outputs[one.output]), one.to.data(), data<char>(call.inputs[one.input]),
                 one.from.data(), static_cast<size_t>(one.size));
}

char* Memory::slot_memory(const nw_call& call, int64_t slot) const {
  return static_cast<char*>(call.workspace) + shared_bytes_ + frame_bytes_ +
         static_cast<uint64_t>(slot) * (private_bytes_ + frame_bytes_);
}

void Memory::enter(const nw_call& call, int64_t slot, char** base) const {
  for (size_t i = 0; i < places_.size(); ++i)
    if (places_[i].is_private) base[i] = slot_memory(call, slot) + frame_bytes_ + places_[i].offset;
}

char* Memory::frame(const nw_call& call, int64_t slot) const {
  return slot < 0 ? static_cast<char*>(call.workspace) + shared_bytes_ : slot_memory(call, slot);
}

}  // namespace narrows::cpu
