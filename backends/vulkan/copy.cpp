// SPDX-License-Identifier: Apache-2.0
// copy.cpp -- see copy.h.
#include "copy.h"

#include "shaders.h"

namespace narrows::vulkan {
namespace {

constexpr uint64_t kThreads = 256, kWord = 16;  // of copy.comp

// On a GPU a shader: NVIDIA's vkCmdCopyBuffer reaches a fifth of what memory does. A CPU's is memcpy.
bool is_for_shader(const Device& device, Address to, Address from, uint64_t size) {
  return !device.physical.is_cpu() && (to | from | size) % kWord == 0 && size / kWord / kThreads < UINT32_MAX;
}

}  // namespace

void copy_within(Device& device, Stream& stream, Address to, Address from, uint64_t size) {
  const auto span = [&](Address begin, const char* which) {
    const auto found = device.memory().find(begin, begin + size);
    if (!found)
      refuse(NW_INVALID, -1, "vulkan: copy: %s [0x%llx, 0x%llx) lies in no live allocation of device %d", which,
             static_cast<unsigned long long>(begin), static_cast<unsigned long long>(begin + size), device.id);
    return *found;
  };
  const Span source = span(from, "src"), target = span(to, "dst");
  if (from < to + size && to < from + size) refuse(NW_INVALID, -1, "vulkan: copy: dst and src overlap; expected memory apart");
  if (!is_for_shader(device, to, from, size)) {
    stream.record([&](Recorder& recorder) { recorder.copy(target, source, size); });
    return;
  }
  const struct {
    Address to, from;
    uint64_t count;
  } push{to, from, size / kWord};
  const Kernel kernel = device.kernels().get(shaders::copy);
  const auto groups = static_cast<int64_t>((push.count + kThreads - 1) / kThreads);
  stream.record([&](Recorder& recorder) { recorder.dispatch(kernel, push, groups); });
}

}  // namespace narrows::vulkan
